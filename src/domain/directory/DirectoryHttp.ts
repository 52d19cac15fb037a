import { CurrentCaller } from "#domain/auth/OptionalAuthorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { figuresOf } from "#infrastructure/wire/Page"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { Directory } from "./Directory.ts"
import { DirectoryApi } from "./DirectoryApi.ts"

export const DirectoryHttp = Endpoints.group(
  Endpoints.apiOf(DirectoryApi),
  "directory",
  Effect.fnUntraced(function*(handlers) {
    const directory = yield* Directory
    return handlers.handleAll({
      search: Effect.fnUntraced(function*({ query }) {
        const { agent } = yield* CurrentCaller
        const { q: prefix = null, tag = null } = query
        if (prefix === null && tag === null) return yield* ValidationFailed.field("q", "is required if there is no tag")
        const page = yield* directory.search(agent?.id ?? null, { prefix, tag }, query)
        return {
          agents: page.items,
          ...figuresOf(page)
        }
      })
    })
  })
)
