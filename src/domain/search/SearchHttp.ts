import { CurrentAgent } from "#domain/auth/Authorization"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { NO_INSTANT, parseInstant } from "#infrastructure/wire/Text"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { MessageSearch } from "./MessageSearch.ts"
import { RESULTS, SearchApi } from "./SearchApi.ts"

/** Returns an ISO time in milliseconds, or `null` if the parameter is missing or empty. */
const timeOf = (field: string, text: string | undefined): Effect.Effect<number | null, ValidationFailed> => {
  if (text === undefined || text === "") return Effect.succeed(null)
  const at = parseInstant(text)
  return at === undefined ? Effect.fail(ValidationFailed.field(field, NO_INSTANT)) : Effect.succeed(at)
}

const givenOrNull = (text: string | undefined): string | null => text === undefined || text === "" ? null : text

/** How often an agent may search its messages. */
export const SEARCHES: Rate = { name: "search", setting: "LIMITS_SEARCHES_PER_MINUTE", ...MINUTE }

export const SearchHttp = Endpoints.group(
  Endpoints.apiOf(SearchApi),
  "search",
  Effect.fnUntraced(function*(handlers) {
    const config = yield* Config
    const limits = yield* RateLimits
    const reads = yield* LargeReads
    const messages = yield* MessageSearch
    const rate = ruleOf(config, SEARCHES)

    return handlers.handleAll({
      search: Effect.fnUntraced(function*({ query }) {
        const agent = yield* CurrentAgent
        yield* limits.take(rate, agent.id)
        const { complete, hits, nextCursor } = yield* reads.search(
          agent.id,
          messages.search(agent.id, {
            q: query.q,
            conversationId: givenOrNull(query.conversation_id),
            from: givenOrNull(query.from),
            after: yield* timeOf("after", query.after),
            before: yield* timeOf("before", query.before),
            limit: Math.min(query.limit ?? RESULTS.usual, RESULTS.max),
            cursor: givenOrNull(query.cursor)
          })
        )
        const found = hits.map(({ highlights, json }) =>
          `${json.slice(0, -1)},"highlights":${JSON.stringify(highlights)}}`
        )
        return HttpServerResponse.text(
          `{"messages":[${found.join(",")}],"next_cursor":${JSON.stringify(nextCursor)},"complete":${complete}}`,
          { contentType: "application/json" }
        )
      })
    })
  })
)
