import { Effect } from "effect"
import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#ground/http/Endpoints"
import { confirm } from "#ground/wire/Confirmation"
import { NotFound } from "#ground/wire/WireError"
import { Connections } from "./Connections.ts"
import { ConnectionsApi, toConnection } from "./ConnectionsApi.ts"

export const ConnectionsHttp = Endpoints.group(
  Endpoints.apiOf(ConnectionsApi),
  "connections",
  Effect.fnUntraced(function*(handlers) {
    const connections = yield* Connections

    return handlers.handleAll({
      list: Effect.fnUntraced(function*() {
        const { id } = yield* CurrentAgent
        return { connections: (yield* connections.list(id)).map(toConnection) }
      }),
      end: Effect.fnUntraced(function*({ params }) {
        const { id } = yield* CurrentAgent
        const ended = yield* connections.end(id, params.id)
        return ended === undefined ? yield* new NotFound({ message: "You have no such connection." }) : confirm("The connection is ended.")
      })
    })
  })
)
