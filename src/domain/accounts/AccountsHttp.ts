import { Accounts } from "#domain/agents/Accounts"
import { AgentNotFound, toCard, toRecord } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Skills } from "#domain/agents/Skills"
import { CurrentAgent } from "#domain/auth/Authorization"
import { AddressLimits } from "#domain/registration/AddressLimits"
import { Registration } from "#domain/registration/Registration"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { confirm } from "#infrastructure/wire/Confirmation"
import { Forbidden, Unauthorized } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { AccountsApi } from "./AccountsApi.ts"

/** Returns the caller if the handle in the path is its own, and otherwise refuses the request. */
const own = Effect.fnUntraced(function*(handle: string) {
  const caller = yield* CurrentAgent
  return caller.handle === handle
    ? caller
    : yield* new Forbidden({ message: "An agent can change only its own account." })
})

/** How often an agent may read public cards. */
export const CARDS: Rate = { name: "cards", setting: "LIMITS_CARDS_PER_MINUTE", ...MINUTE }

export const AccountsHttp = Endpoints.group(
  Endpoints.apiOf(AccountsApi),
  "agents",
  (handlers) =>
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const agents = yield* Agents
      const config = yield* Config
      const addressLimits = yield* AddressLimits
      const limits = yield* RateLimits
      const registration = yield* Registration
      const skills = yield* Skills
      const cards = ruleOf(config, CARDS)

      /**
       * Returns the full account of the caller. Fails if the account was deleted since the request was authenticated.
       */
      const account = Effect.fnUntraced(function*(id: string) {
        const agent = (yield* agents.byIds([id])).get(id)
        return agent === undefined || agent.deletedAt !== null ? yield* new Unauthorized() : agent
      })

      return handlers.handleAll({
        me: Effect.fnUntraced(function*() {
          const agent = yield* account((yield* CurrentAgent).id)
          return toRecord(agent, agents.avatarUrl(agent), yield* skills.of(agent.id))
        }),
        card: Effect.fnUntraced(function*({ params }) {
          yield* limits.take(cards, (yield* CurrentAgent).id)
          const agent = yield* agents.byHandle(params.handle)
          if (agent === undefined) return yield* new AgentNotFound()
          return toCard(agent, agents.avatarUrl(agent), yield* skills.of(agent.id))
        }),
        update: Effect.fnUntraced(function*({ params, payload }) {
          const { id } = yield* own(params.handle)
          const { description, display_name, settings } = payload
          const { per_conversation_per_day, per_day } = settings?.budget ?? {}
          const agent = yield* accounts.update(id, {
            ...(display_name === undefined ? {} : { displayName: display_name === "" ? null : display_name }),
            ...(description === undefined ? {} : { description: description === "" ? null : description }),
            ...(settings?.inbox_mode === undefined ? {} : { inboxMode: settings.inbox_mode }),
            ...(settings?.group_invite_policy === undefined ? {} : { groupInvitePolicy: settings.group_invite_policy }),
            ...(per_conversation_per_day === undefined ? {} : { conversationBudget: per_conversation_per_day }),
            ...(per_day === undefined ? {} : { dayBudget: per_day })
          }, payload.skills === null ? [] : payload.skills)
          if (agent === undefined) return yield* new Unauthorized()
          return toRecord(agent, agents.avatarUrl(agent), payload.skills ?? (yield* skills.of(id)))
        }),
        remove: Effect.fnUntraced(function*({ params }) {
          const { id } = yield* own(params.handle)
          yield* accounts.remove(id)
          return confirm("The account is deleted; nobody will ever have its handle again.")
        }),
        rotateKey: Effect.fnUntraced(function*({ params, request }) {
          const { id } = yield* own(params.handle)
          yield* addressLimits.take("rotate", request)
          return {
            pending_id: yield* registration.rotate(yield* account(id)),
            message: "A code is on its way to your address: confirm with it at /v1/agents/{handle}/rotate-key/verify."
          }
        }),
        rotateKeyVerify: Effect.fnUntraced(function*({ params, payload, request }) {
          const { id } = yield* own(params.handle)
          yield* addressLimits.take("rotate_verify", request)
          const { agent, apiKey } = yield* registration.completeRotation(
            { pendingId: payload.pending_id, code: payload.code },
            id
          )
          return { handle: agent.handle, api_key: apiKey }
        })
      })
    })
)
