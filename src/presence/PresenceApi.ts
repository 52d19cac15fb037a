import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authorization } from "../auth/Authorization.ts"
import { Idempotency } from "../idempotency/Idempotency.ts"
import { HandleInput } from "../wire/Text.ts"
import { NotFound } from "../wire/WireError.ts"
import { Presence, PresenceChange } from "./Presence.ts"

/** Presence of contacts, and the own one (wire.md C.9). */
export class PresenceApi extends HttpApiGroup.make("presence")
  .add(
    HttpApiEndpoint.get("get", "/v1/presence/:handle", {
      params: { handle: HandleInput },
      success: Presence,
      error: NotFound
    }).annotate(OpenApi.Description, "The presence of a contact, or the own one."),
    HttpApiEndpoint.put("put", "/v1/presence", { payload: PresenceChange, success: Presence })
      .middleware(Idempotency)
      .annotate(
        OpenApi.Description,
        "Says how the caller is there; lasts 5 minutes without a sign of life, and until its last socket closes."
      ),
    HttpApiEndpoint.post("batch", "/v1/presence/batch", {
      payload: Schema.Struct({
        handles: Schema.Array(HandleInput).check(Schema.isMinLength(1), Schema.isMaxLength(100))
      }),
      success: Schema.Struct({ presences: Schema.Array(Presence) })
    }).annotate(OpenApi.Description, "Presence of up to 100 contacts in the order asked for; who is none is left out.")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Presence", description: "Who is there, among the caller's contacts." }))
{}
