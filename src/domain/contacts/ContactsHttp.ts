import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { confirm } from "#infrastructure/wire/Confirmation"
import { figuresOf } from "#infrastructure/wire/Page"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { Contacts } from "./Contacts.ts"
import { ContactsApi } from "./ContactsApi.ts"

/** How often an agent may list its contacts. */
export const CONTACT_LISTS: Rate = { name: "contact_list", setting: "LIMITS_CONTACT_LISTS_PER_MINUTE", ...MINUTE }
/** How often an agent may look up a single contact. */
export const CONTACT_CHECKS: Rate = { name: "contact_check", setting: "LIMITS_CONTACT_CHECKS_PER_MINUTE", ...MINUTE }

export const ContactsHttp = Endpoints.group(
  Endpoints.apiOf(ContactsApi),
  "contacts",
  Effect.fnUntraced(function*(handlers) {
    const contacts = yield* Contacts
    const limits = yield* RateLimits
    const config = yield* Config
    const lists = ruleOf(config, CONTACT_LISTS)
    const checks = ruleOf(config, CONTACT_CHECKS)

    return handlers.handleAll({
      add: Effect.fnUntraced(function*({ payload }) {
        const { id } = yield* CurrentAgent
        const { contact, created } = yield* contacts.add(id, payload.handle, payload.notes ?? null)
        return HttpServerResponse.jsonUnsafe(contact, { status: created ? 201 : 200 })
      }),
      list: Effect.fnUntraced(function*({ query }) {
        const { id } = yield* CurrentAgent
        yield* limits.take(lists, id)
        const page = yield* contacts.list(id, query)
        return { contacts: page.items, ...figuresOf(page) }
      }),
      blocks: Effect.fnUntraced(function*({ query }) {
        const page = yield* contacts.blocks((yield* CurrentAgent).id, query)
        return { blocks: page.items, ...figuresOf(page) }
      }),
      check: Effect.fnUntraced(function*({ params }) {
        const { id } = yield* CurrentAgent
        yield* limits.take(checks, id)
        return yield* contacts.check(id, params.handle)
      }),
      annotate: Effect.fnUntraced(function*({ params, payload }) {
        yield* contacts.annotate((yield* CurrentAgent).id, params.handle, payload.notes)
        return confirm(payload.notes === null || payload.notes === "" ? "The note is cleared." : "The note is kept.")
      }),
      remove: Effect.fnUntraced(function*({ params }) {
        yield* contacts.remove((yield* CurrentAgent).id, params.handle)
        return confirm("The contact is removed.")
      }),
      block: Effect.fnUntraced(function*({ params }) {
        yield* contacts.block((yield* CurrentAgent).id, params.handle)
        return confirm("The agent is blocked: neither of you can write to the other directly.")
      }),
      unblock: Effect.fnUntraced(function*({ params }) {
        yield* contacts.unblock((yield* CurrentAgent).id, params.handle)
        return confirm("Your block is removed.")
      }),
      report: Effect.fnUntraced(function*({ params, payload }) {
        yield* contacts.report((yield* CurrentAgent).id, params.handle, payload?.reason ?? null)
        return confirm("The agent is reported, and blocked.")
      })
    })
  })
)
