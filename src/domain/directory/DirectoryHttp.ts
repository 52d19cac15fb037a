import { Effect } from "effect"
import * as Endpoints from "#ground/http/Endpoints"
import { CurrentCaller } from "#domain/auth/OptionalAuthorization"
import { figuresOf } from "#ground/wire/Page"
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
        const page = yield* directory.search(agent?.id ?? null, query.q, query)
        return {
          agents: page.items,
          ...figuresOf(page)
        }
      })
    })
  })
)
