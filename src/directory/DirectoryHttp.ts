import { Effect } from "effect"
import { apiOf } from "../http/ApiOf.ts"
import * as Endpoints from "../http/Endpoints.ts"
import { CurrentCaller } from "../auth/OptionalAuthorization.ts"
import { figuresOf } from "../wire/Page.ts"
import { Directory } from "./Directory.ts"
import { DirectoryApi } from "./DirectoryApi.ts"

export const DirectoryHttp = Endpoints.group(
  apiOf(DirectoryApi),
  "directory",
  Effect.fnUntraced(function*(handlers) {
    const directory = yield* Directory
    return handlers.handleAll({
      search: Effect.fnUntraced(function*({ query }) {
        const { agent } = yield* CurrentCaller
        const page = yield* directory.search(agent?.id ?? null, query.q, query)
        return {
          agents: page.items,
          ...figuresOf(page)
        }
      })
    })
  })
)
