import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AgentNotFound } from "../agents/Agent.ts"
import { Authorization } from "../auth/Authorization.ts"
import { OwnBudget } from "../auth/Budgets.ts"
import { Confirm } from "../wire/Confirmation.ts"
import { Idempotency } from "../idempotency/Idempotency.ts"
import { pageQuery } from "../wire/Page.ts"
import { HandleInput } from "../wire/Text.ts"
import { NotFound } from "../wire/WireError.ts"
import { AlreadyReported, BlockedAgent, Contact, ContactCheck, Notes, Reason } from "./Contact.ts"

const params = { handle: HandleInput }

const page = {
  total: Schema.Int,
  limit: Schema.Int,
  offset: Schema.Int,
  next_cursor: Schema.NullOr(Schema.String)
}

export const ContactPage = Schema.Struct({ contacts: Schema.Array(Contact), ...page })
  .annotate({ identifier: "ContactPage" })

export const BlockPage = Schema.Struct({ blocks: Schema.Array(BlockedAgent), ...page })
  .annotate({ identifier: "BlockPage" })

/** Contacts, blocks and reports of the caller (wire.md C.5). */
export class ContactsApi extends HttpApiGroup.make("contacts")
  .add(
    HttpApiEndpoint.post("add", "/v1/contacts", {
      payload: Schema.Struct({ handle: HandleInput, notes: Schema.optionalKey(Schema.NullOr(Notes)) }),
      success: [Contact.pipe(HttpApiSchema.status(201)), Contact],
      error: AgentNotFound
    }).middleware(Idempotency).annotate(
      OpenApi.Description,
      "Adds a contact: 201; 200, with nothing changed, if it is one already."
    ),
    HttpApiEndpoint.get("list", "/v1/contacts", { query: pageQuery, success: ContactPage })
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Description, "The own contacts by handle."),
    HttpApiEndpoint.get("blocks", "/v1/contacts/blocks", { query: pageQuery, success: BlockPage })
      .annotate(OpenApi.Description, "Whom the caller has blocked, newest first."),
    HttpApiEndpoint.get("check", "/v1/contacts/:handle", { params, success: ContactCheck })
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Description, "Whether a handle is among the own contacts; an unknown one is not."),
    HttpApiEndpoint.patch("annotate", "/v1/contacts/:handle", {
      params,
      payload: Schema.Struct({ notes: Schema.NullOr(Notes) }),
      success: Confirm,
      error: [AgentNotFound, NotFound]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Writes a note about a contact; null clears it."),
    HttpApiEndpoint.delete("remove", "/v1/contacts/:handle", {
      params,
      success: Confirm,
      error: [AgentNotFound, NotFound]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Removes a contact."),
    HttpApiEndpoint.post("block", "/v1/contacts/:handle/block", { params, success: Confirm, error: AgentNotFound })
      .middleware(Idempotency)
      .annotate(
        OpenApi.Description,
        "Stops direct messages between the two, both ways, from this answer on; blocking again changes nothing."
      ),
    HttpApiEndpoint.delete("unblock", "/v1/contacts/:handle/block", {
      params,
      success: Confirm,
      error: [AgentNotFound, NotFound]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Takes the own block back; one of the other side stays."),
    HttpApiEndpoint.post("report", "/v1/contacts/:handle/report", {
      params,
      // An empty body is null.
      payload: [Schema.Struct({ reason: Schema.optionalKey(Schema.NullOr(Reason)) }), Schema.Null],
      success: Confirm,
      error: [AgentNotFound, AlreadyReported]
    })
      .middleware(Idempotency)
      .annotate(OpenApi.Description, "Reports an agent, once for ever, and blocks it; the body may be left out.")
      .annotate(OpenApi.Transform, (operation) => ({
        ...operation,
        requestBody: { ...(operation["requestBody"] as object), required: false }
      }))
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Contacts", description: "The caller's contacts, blocks and reports." }))
{}
