import { documented } from "#infrastructure/http/Documented"
import { Limit as PageLimit } from "#infrastructure/wire/Page"
import { DateTimeString, HandleInput, Storable } from "#infrastructure/wire/Text"
import { NotFound, ValidationFailed } from "#infrastructure/wire/WireError"
import { Conflict } from "#interfaces/operator/Conflict"
import { Reason } from "#interfaces/operator/Reason"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConsoleAuthorization } from "./ConsoleAuthorization.ts"

const orNull = <S extends Schema.Top>(schema: S) => Schema.NullOr(schema)

export const LimitShown = Schema.Struct({
  name: Schema.String,
  about: Schema.String,
  per: Schema.Literals(["agent", "address", "group", "server"]),
  default: Schema.Finite,
  value: Schema.Finite,
  can_change: Schema.Boolean,
  changes: Schema.Array(Schema.Struct({
    agent: orNull(Schema.String),
    value: Schema.Finite,
    until: orNull(DateTimeString),
    by: Schema.String,
    at: DateTimeString,
    reason: orNull(Schema.String)
  }))
}).annotate({ identifier: "Limit" })
export type LimitShown = typeof LimitShown.Type

/** The response with a page of the audit log. */
export const AuditPage = Schema.Struct({
  entries: Schema.Array(Schema.Struct({
    no: Schema.Finite,
    at: DateTimeString,
    operator: orNull(Schema.String),
    action: Schema.String,
    agent: orNull(Schema.String),
    detail: orNull(Schema.String)
  })),
  next_cursor: orNull(Schema.String)
})

const NearLimitShown = Schema.Struct({
  agent: Schema.String,
  limit: Schema.String,
  value: Schema.Finite,
  count: Schema.Finite,
  window_seconds: Schema.Finite
}).annotate({ identifier: "NearLimit" })

const params = { name: Storable }
const parameters = { name: "LIMITS_SENDS_PER_SECOND" }
const example = {
  name: "LIMITS_SENDS_PER_SECOND",
  about: "messages that an agent may send per second, direct and group together",
  per: "agent",
  default: 60,
  value: 20,
  can_change: true,
  changes: [{
    agent: "nina",
    value: 20,
    until: "2026-11-23T09:00:00.000Z",
    by: "ops",
    at: "2026-11-22T09:00:00.000Z",
    reason: "floods a group"
  }]
} as const

/** The endpoints for the audit log, and for the limits that operators change at run time (wire.md O.1). */
export class LimitsApi extends HttpApiGroup.make("limits")
  .add(
    HttpApiEndpoint.get("limits", "/console/api/limits", {
      query: { agent: Schema.optionalKey(HandleInput) },
      success: Schema.Struct({ limits: Schema.Array(LimitShown) }),
      error: NotFound
    }).annotateMerge(documented({
      summary: "List limits",
      description:
        "Lists every limit with its value in force, for all agents or for one, and the changes by operators.",
      answer: { limits: [example] }
    })),
    HttpApiEndpoint.get("nearLimits", "/console/api/limits/near", {
      success: Schema.Struct({ near: Schema.Array(NearLimitShown), silent_nodes: Schema.Array(Schema.String) })
    }).annotateMerge(documented({
      summary: "List who is near a rate limit",
      description:
        "Lists the agents that have used at least 80 % of a rate limit, of their unanswered conversations, or of a budget of messages, those " +
        "that have used most first, as of at most five seconds ago. Requests that a node in `silent_nodes` has accepted are missing.",
      answer: {
        near: [{ agent: "nina", limit: "LIMITS_SENDS_PER_SECOND", value: 60, count: 57, window_seconds: 1 }],
        silent_nodes: []
      }
    })),
    HttpApiEndpoint.put("changeLimit", "/console/api/limits/:name", {
      params,
      payload: Schema.Struct({
        value: Schema.Int,
        agent: Schema.optionalKey(Schema.NullOr(HandleInput)),
        until: Schema.optionalKey(Schema.NullOr(Schema.String)),
        reason: Schema.optionalKey(Reason)
      }),
      success: LimitShown,
      error: [NotFound, Conflict, ValidationFailed]
    }).annotateMerge(documented({
      summary: "Change a limit",
      description:
        "Changes a limit for all agents or for one, until a time or until the change is reset. It is in force " +
        "on every node within a second, and after restarts.",
      parameters,
      body: { value: 20, agent: "nina", until: "2026-11-23T09:00:00.000Z", reason: "floods a group" },
      answer: example
    })),
    HttpApiEndpoint.delete("takeBackLimit", "/console/api/limits/:name", {
      params,
      query: { agent: Schema.optionalKey(HandleInput) },
      success: LimitShown,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Take a change back",
      description:
        "Ends the change for an agent, or for all. After that, the change for all or the configuration applies again.",
      parameters,
      answer: { ...example, value: 60, changes: [] }
    })),
    HttpApiEndpoint.get("audit", "/console/api/audit", {
      query: {
        agent: Schema.optionalKey(HandleInput),
        operator: Schema.optionalKey(Storable),
        looks: Schema.optionalKey(Schema.Literals(["true", "false"])),
        limit: Schema.optionalKey(PageLimit),
        cursor: Schema.optionalKey(Schema.String)
      },
      success: AuditPage
    }).annotateMerge(documented({
      summary: "Read the audit log",
      description: "Lists what operators changed or read, about which agent and when, the newest first."
    }))
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(OpenApi.annotations({ title: "Limits", description: "Limits at run time, and the audit log." }))
{}
