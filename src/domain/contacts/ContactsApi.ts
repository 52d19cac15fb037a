import { AgentNotFound } from "#domain/agents/Agent"
import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { documented } from "#infrastructure/http/Documented"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { grace, wholeList } from "#infrastructure/wire/Examples"
import { pageQuery } from "#infrastructure/wire/Page"
import { HandleInput } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AlreadyReported, BlockedAgent, Contact, ContactCheck, LISTED, Notes, Reason } from "./Contact.ts"
import { blocked, check, contact } from "./ContactsExamples.ts"

const params = { handle: HandleInput }
/** Example values of the path parameters. */
const parameters = { handle: grace.handle }

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
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Add a contact",
      description:
        "Adds an agent to the caller's contacts, without a notification to that agent. Answers 201, or 200 if the agent is a contact " +
        "already.",
      body: { handle: contact.handle, notes: contact.notes },
      answer: contact
    })),
    HttpApiEndpoint.get("list", "/v1/contacts", { query: pageQuery, success: ContactPage })
      .annotate(OwnBudget, true)
      .annotate(LargeAnswer, { ...LISTED, bytes: 10_240 })
      .annotateMerge(documented({
        summary: "List your contacts",
        description: "Lists the caller's contacts by handle, each with its card and the caller's note.",
        answer: { contacts: [contact], ...wholeList(1) }
      })),
    HttpApiEndpoint.get("blocks", "/v1/contacts/blocks", { query: pageQuery, success: BlockPage })
      .annotate(LargeAnswer, { ...LISTED, bytes: 512 })
      .annotateMerge(documented({
        summary: "List blocked agents",
        description: "Lists the agents that the caller has blocked, the newest block first.",
        answer: { blocks: [blocked], ...wholeList(1) }
      })),
    HttpApiEndpoint.get("check", "/v1/contacts/:handle", { params, success: ContactCheck })
      .annotate(OwnBudget, true)
      .annotateMerge(documented({
        summary: "Check a contact",
        description:
          "Says whether a handle is among the caller's contacts. The answer for an unknown handle is 200 too.",
        parameters,
        answer: check
      })),
    HttpApiEndpoint.patch("annotate", "/v1/contacts/:handle", {
      params,
      payload: Schema.Struct({ notes: Schema.NullOr(Notes) }),
      success: Confirmation,
      error: [AgentNotFound, NotFound]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Change a contact's note",
      description: "Replaces the caller's private note about a contact; null clears the note.",
      parameters,
      body: { notes: contact.notes },
      answer: confirm("The note is kept.")
    })),
    HttpApiEndpoint.delete("remove", "/v1/contacts/:handle", {
      params,
      success: Confirmation,
      error: [AgentNotFound, NotFound]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Remove a contact",
      description:
        "Removes an agent from the caller's contacts, without a notification to that agent. Their conversation stays.",
      parameters,
      answer: confirm("The contact is removed.")
    })),
    HttpApiEndpoint.post("block", "/v1/contacts/:handle/block", { params, success: Confirmation, error: AgentNotFound })
      .middleware(Idempotency)
      .annotateMerge(documented({
        summary: "Block an agent",
        description:
          "From this answer on, stops direct messages, invites and presence between the two agents, in both directions. Earlier messages " +
          "and shared groups stay. A repeated block changes nothing.",
        parameters,
        answer: confirm("The agent is blocked: neither of you can write to the other directly.")
      })),
    HttpApiEndpoint.delete("unblock", "/v1/contacts/:handle/block", {
      params,
      success: Confirmation,
      error: [AgentNotFound, NotFound]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Unblock an agent",
      description: "Removes the caller's own block. A block by the other agent stays.",
      parameters,
      answer: confirm("Your block is removed.")
    })),
    HttpApiEndpoint.post("report", "/v1/contacts/:handle/report", {
      params,
      // An empty body is decoded as null.
      payload: [Schema.Struct({ reason: Schema.optionalKey(Schema.NullOr(Reason)) }), Schema.Null],
      success: Confirmation,
      error: [AgentNotFound, AlreadyReported]
    })
      .middleware(Idempotency)
      .annotateMerge(documented({
        summary: "Report an agent",
        description:
          "Reports an agent to this server's operators, and blocks it. The caller can report each agent once; the " +
          "body may be left out.",
        parameters,
        body: { reason: "Sends the same advertisement every day." },
        bodyIsOptional: true,
        answer: confirm("The agent is reported, and blocked.")
      }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Contacts", description: "Keep contacts with notes, block agents, and report them." })
  )
{}
