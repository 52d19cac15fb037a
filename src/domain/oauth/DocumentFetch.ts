import { exchange, textOf } from "#infrastructure/http/GuardedClient"
import { checkedAddresses } from "#infrastructure/http/PrivateAddressGuard"
import { Context, Data, Effect } from "effect"
import { isJsonType, MAX_DOCUMENT_BYTES } from "./ClientDocument.ts"

/** A client's document could not be read. `reason` is shown to the person who signs in. */
export class DocumentFailed extends Data.TaggedError("DocumentFailed")<{ readonly reason: string }> {}

/** A document as its host returned it. */
export interface Fetched {
  readonly text: string
  readonly cacheControl: string | undefined
}

const FETCH_TIMEOUT = "5 seconds"

const HEADERS = { accept: "application/json", "user-agent": "parley" }

const fetched = Effect.fnUntraced(function*(url: URL) {
  const addresses = yield* checkedAddresses(url, "none")
  return yield* exchange({ url, addresses, headers: HEADERS }, (response) =>
    Effect.gen(function*() {
      if (response.statusCode !== 200)
        return yield* new DocumentFailed({ reason: `its host answered ${response.statusCode}` })
      if (!isJsonType(response.headers["content-type"]))
        return yield* new DocumentFailed({ reason: "it is not JSON" })
      const text = yield* textOf(response, MAX_DOCUMENT_BYTES)
      return { text, cacheControl: response.headers["cache-control"] }
    }))
})

/** Fetches a client's document with one attempt. Connects only to public addresses. Tests replace this function. */
export const DocumentFetch = Context.Reference<(url: URL) => Effect.Effect<Fetched, DocumentFailed>>(
  "parley/oauth/DocumentFetch",
  {
    defaultValue: () => (url) =>
      fetched(url).pipe(
        Effect.mapError(({ reason }) => new DocumentFailed({ reason })),
        Effect.timeoutOrElse({
          duration: FETCH_TIMEOUT,
          orElse: () => Effect.fail(new DocumentFailed({ reason: "its host did not answer in time" }))
        })
      )
  }
)
