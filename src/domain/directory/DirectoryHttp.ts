import { Effect } from "effect"
import * as Endpoints from "#ground/http/Endpoints"
import { CurrentCaller } from "#domain/auth/OptionalAuthorization"
import { figuresOf } from "#ground/wire/Page"
import { ValidationFailed } from "#ground/wire/WireError"
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
