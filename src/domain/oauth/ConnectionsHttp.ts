import { Effect } from "effect"
import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#ground/http/Endpoints"
import { confirm } from "#ground/wire/Confirmation"
import { iso } from "#ground/wire/Text"
import { NotFound } from "#ground/wire/WireError"
import { Connections } from "./Connections.ts"
import { type Connection, ConnectionsApi } from "./ConnectionsApi.ts"
import { lastUsedAt, type StoredConnection } from "./ConnectionsRepo.ts"
import { shownOf } from "./RedirectUri.ts"
import { scopesOf } from "./Scopes.ts"

const toConnection = (connection: StoredConnection): typeof Connection.Type => {
  const usedAt = lastUsedAt(connection)
  return {
    id: connection.id,
    client_name: connection.clientName,
    client_host: connection.clientHost,
    redirect_host: shownOf(connection.redirectUri),
    scopes: scopesOf(connection.scopes),
    created_at: iso(connection.createdAt),
    last_used_at: usedAt === null ? null : iso(usedAt)
  }
}

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
