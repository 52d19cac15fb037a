import { Authorization } from "#domain/auth/Authorization"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { documented } from "#infrastructure/http/Documented"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { DateTimeString, iso, isoOrNull, Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { lastUsedAt, type StoredGrant } from "./GrantsRepo.ts"
import { shownOf } from "./RedirectUri.ts"
import { scopesOf } from "./Scopes.ts"

/** A grant as its agent sees it (wire.md P). The wire calls it a connection. */
export const Connection = Schema.Struct({
  id: Schema.String,
  client_name: Schema.NullOr(Schema.String),
  client_host: Schema.NullOr(Schema.String),
  redirect_host: Schema.String,
  scopes: Schema.Array(Schema.Literals(["agent:read", "agent:act"])),
  created_at: DateTimeString,
  last_used_at: Schema.NullOr(DateTimeString)
}).annotate({ identifier: "Connection" })

export const toConnection = (connection: StoredGrant): typeof Connection.Type => ({
  id: connection.id,
  client_name: connection.clientName,
  client_host: connection.clientHost,
  redirect_host: shownOf(connection.redirectUri),
  scopes: scopesOf(connection.scopes),
  created_at: iso(connection.createdAt),
  last_used_at: isoOrNull(lastUsedAt(connection))
})

export const ConnectionList = Schema.Struct({ connections: Schema.Array(Connection) }).annotate({
  identifier: "ConnectionList"
})

const example: typeof Connection.Type = {
  id: "con_AaGbmQggHbcjeFEd",
  client_name: "Claude",
  client_host: "claude.ai",
  redirect_host: "claude.ai",
  scopes: ["agent:read", "agent:act"],
  created_at: "2026-11-05T18:00:00.000Z",
  last_used_at: "2026-11-06T08:00:00.000Z"
}

/** The caller's grants: the programs that may act for the agent after an OAuth sign-in (wire.md P). */
export class GrantsApi extends HttpApiGroup.make("connections")
  .add(
    HttpApiEndpoint.get("list", "/v1/connections", { success: ConnectionList }).annotateMerge(documented({
      summary: "List your connections",
      description:
        "Lists the programs that may act for the caller since somebody signed in with OAuth, newest first, at most 50. `client_host` is " +
        "the site that describes the program. It is null for a program that registered itself; nobody has checked the name of such a program. " +
        "`redirect_host` is the site, or the scheme of the application, that received the answer of the sign-in. `last_used_at` is null until " +
        "a token of the connection was used.",
      answer: { connections: [example] }
    })),
    HttpApiEndpoint.delete("end", "/v1/connections/:id", {
      params: { id: Text(1, 128) },
      success: Confirmation,
      error: NotFound
    })
      .middleware(Idempotency)
      .annotateMerge(documented({
        summary: "End a connection",
        description: "Ends one of the caller's connections. Its tokens stop working within a second.",
        parameters: { id: example.id },
        answer: confirm("The connection is ended.")
      }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Connections",
      description: "Programs that may act for you after an OAuth sign-in."
    })
  )
{}
