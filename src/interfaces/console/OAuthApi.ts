import { documented } from "#infrastructure/http/Documented"
import { Confirmation } from "#infrastructure/wire/Confirmation"
import { DateTimeString, Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Conflict } from "#interfaces/operator/Conflict"
import { Reason } from "#interfaces/operator/Reason"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConsoleAuthorization } from "./ConsoleAuthorization.ts"

const refused = { kind: Schema.Literals(["client", "redirect_host"]), value: Text(1, 2_400) }

const Refusal = Schema.Struct({
  ...refused,
  by: Schema.String,
  at: DateTimeString,
  reason: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Refusal" })

const Ended = Schema.Struct({ ok: Schema.Literal(true), message: Schema.String, ended: Schema.Int })

/** The response of endpoints that end connections, with the number of ended connections. */
export const endedShown = (ended: number): typeof Ended.Type => ({
  ok: true,
  message: `${ended === 1 ? "1 connection is" : `${ended} connections are`} ended.`,
  ended
})

const payload = Schema.Struct({ ...refused, reason: Schema.optionalKey(Reason) })
const body = { kind: "redirect_host", value: "evil.example", reason: "imitates another program" } as const

/**
 * The endpoints for the OAuth connections of all agents, and for the clients and hosts that operators refuse (wire.md
 * O.1).
 */
export class OAuthApi extends HttpApiGroup.make("oauth")
  .add(
    HttpApiEndpoint.get("connections", "/console/api/connections", {
      success: Schema.Struct({ live: Schema.Int, refusals: Schema.Array(Refusal) })
    }).annotateMerge(documented({
      summary: "Count connections",
      description:
        "Answers with the number of live OAuth connections, and with the clients and redirect hosts that operators refuse, newest first.",
      answer: { live: 12, refusals: [{ ...body, by: "ops", at: "2026-11-22T09:00:00.000Z" }] }
    })),
    HttpApiEndpoint.post("endAllConnections", "/console/api/connections/end", {
      payload: Schema.Struct({ reason: Schema.optionalKey(Reason) }),
      success: Ended
    }).annotateMerge(documented({
      summary: "End all connections",
      description:
        "Ends the OAuth connections of all agents. Their tokens stop working within a second. The keys of the agents stay.",
      body: { reason: "tokens have leaked" },
      answer: endedShown(12)
    })),
    HttpApiEndpoint.post("refuseClient", "/console/api/connections/refuse", {
      payload,
      success: Ended,
      error: Conflict
    }).annotateMerge(documented({
      summary: "Refuse a client",
      description:
        "Refuses a client, by its client id, or all clients that send people to a host after the sign-in. `value` of a host is as " +
        "`redirect_host` of a connection shows it. Ends their connections. From now on they get no code and no token.",
      body,
      answer: endedShown(1)
    })),
    HttpApiEndpoint.post("allowClient", "/console/api/connections/allow", {
      payload,
      success: Confirmation,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Allow a client again",
      description: "Ends the refusal of a client or of a host. Connections that ended because of it do not come back.",
      body: { kind: body.kind, value: body.value },
      answer: { ok: true, message: "It is allowed again." }
    }))
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Connections", description: "OAuth connections, and refused clients." })
  )
{}
