import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { confirm } from "#infrastructure/wire/Confirmation"
import { NotFound } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { Grants } from "./Grants.ts"
import { GrantsApi, toConnection } from "./GrantsApi.ts"

export const GrantsHttp = Endpoints.group(
  Endpoints.apiOf(GrantsApi),
  "connections",
  Effect.fnUntraced(function*(handlers) {
    const connections = yield* Grants

    return handlers.handleAll({
      list: Effect.fnUntraced(function*() {
        const { id } = yield* CurrentAgent
        return { connections: (yield* connections.list(id)).map(toConnection) }
      }),
      end: Effect.fnUntraced(function*({ params }) {
        const { id } = yield* CurrentAgent
        const ended = yield* connections.end(id, params.id)
        return ended === undefined
          ? yield* new NotFound({ message: "You have no such connection." })
          : confirm("The connection is ended.")
      })
    })
  })
)
