import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { figuresOf, type PageQuery } from "#infrastructure/wire/Page"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { Conversations } from "./Conversations.ts"
import { ConversationsApi } from "./ConversationsApi.ts"

/** First-party clients get the list as a plain array. All other clients get a page (wire.md B1). */
const wantsArray = (headers: Readonly<Record<string, string | undefined>>, query: PageQuery): boolean => {
  if (query.cursor !== undefined) return false
  if (query.offset !== undefined) return true
  const agent = headers["user-agent"] ?? ""
  return (headers["x-agentchat-client"] ?? "") !== "" || agent.startsWith("agentchat-ts/") ||
    agent.startsWith("agentchatme-py/")
}

/** How often an agent may list its conversations. */
export const CONVERSATION_LISTS: Rate = {
  name: "conversation_list",
  setting: "LIMITS_CONVERSATION_LISTS_PER_MINUTE",
  ...MINUTE
}

export const ConversationsHttp = Endpoints.group(
  Endpoints.apiOf(ConversationsApi),
  "conversations",
  Effect.fnUntraced(function*(handlers) {
    const conversations = yield* Conversations
    const limits = yield* RateLimits
    const config = yield* Config
    const rate = ruleOf(config, CONVERSATION_LISTS)

    return handlers.handleAll({
      list: Effect.fnUntraced(function*({ query, request }) {
        const agent = yield* CurrentAgent
        yield* limits.take(rate, agent.id)
        const page = yield* conversations.list(agent.id, query)
        const headers: Record<string, string> = {
          "x-total-count": String(page.total),
          vary: "X-AgentChat-Client, User-Agent",
          ...(page.nextCursor === null ? {} : { "x-next-cursor": page.nextCursor })
        }
        return HttpServerResponse.jsonUnsafe(
          wantsArray(request.headers, query) ? page.items : {
            conversations: page.items,
            ...figuresOf(page)
          },
          { headers }
        )
      }),
      context: Effect.fnUntraced(function*({ params }) {
        const agent = yield* CurrentAgent
        return yield* conversations.context(agent.id, params.id)
      }),
      participants: Effect.fnUntraced(function*({ params }) {
        const agent = yield* CurrentAgent
        return yield* conversations.participants(agent.id, params.id)
      }),
      hide: Effect.fnUntraced(function*({ params }) {
        const agent = yield* CurrentAgent
        yield* conversations.hide(agent.id, params.id)
        return {
          ok: true as const,
          hidden: true as const,
          message: "The conversation is hidden until a new message comes."
        }
      })
    })
  })
)
