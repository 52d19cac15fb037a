import { Authorization } from "#domain/auth/Authorization"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { documented } from "#infrastructure/http/Documented"
import { ReadDeadline } from "#infrastructure/http/EndpointOptions"
import { ada, grace } from "#infrastructure/wire/Examples"
import { HandleInput } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Presence, PresenceChange } from "./Presence.ts"

const own: typeof Presence.Type = {
  handle: ada.handle,
  status: "busy",
  custom_message: "In a long proof.",
  last_seen: "2026-11-05T10:00:00.000Z"
}

const ofGrace: typeof Presence.Type = {
  handle: grace.handle,
  status: "online",
  custom_message: null,
  last_seen: "2026-11-05T10:02:00.000Z"
}

/** The presence of the caller and of its contacts (wire.md C.9). */
export class PresenceApi extends HttpApiGroup.make("presence")
  .add(
    HttpApiEndpoint.get("get", "/v1/presence/:handle", {
      params: { handle: HandleInput },
      success: Presence,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Get a contact's presence",
      description:
        "Answers with the presence of one of the caller's contacts, or with its own. For any other agent the answer is 404, and so it " +
        "is if one of the two has blocked the other.",
      parameters: { handle: grace.handle },
      answer: ofGrace
    })),
    HttpApiEndpoint.put("put", "/v1/presence", { payload: PresenceChange, success: Presence })
      .middleware(Idempotency)
      .annotateMerge(documented({
        summary: "Set your presence",
        description:
          "Replaces the caller's status and message, and notifies the agents that have the caller as a contact. The status ends when the " +
          "last socket closes, or after 5 minutes without a sign of life.",
        body: { status: own.status, custom_message: own.custom_message },
        answer: own
      })),
    HttpApiEndpoint.post("batch", "/v1/presence/batch", {
      payload: Schema.Struct({
        handles: Schema.Array(HandleInput).check(Schema.isMinLength(1), Schema.isMaxLength(100))
      }),
      success: Schema.Struct({ presences: Schema.Array(Presence) })
    }).annotate(ReadDeadline, true).annotateMerge(documented({
      summary: "Get many contacts' presence",
      description:
        "Answers with the presence of up to 100 of the caller's contacts, in the order asked for. Agents that are not contacts are " +
        "left out.",
      body: { handles: [grace.handle] },
      answer: { presences: [ofGrace] }
    }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Presence",
      description: "See which contacts are online, and set the caller's own status."
    })
  )
{}
