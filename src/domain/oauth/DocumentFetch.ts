import { checkedAddresses, hostOf } from "#domain/webhooks/PrivateAddressGuard"
import { onlyThese } from "#domain/webhooks/WebhookClient"
import { exactSize } from "#infrastructure/wire/Size"
import { Context, Data, Effect } from "effect"
import { Agent, request } from "node:https"
import { MAX_DOCUMENT_BYTES } from "./ClientDocument.ts"

/** A client's document could not be read. `reason` is for the person who signs in. */
export class DocumentFailed extends Data.TaggedError("DocumentFailed")<{ readonly reason: string }> {}

/** A document as its host sent it. */
export interface Fetched {
  readonly text: string
  readonly cacheControl: string | undefined
}

const FETCH_TIMEOUT = "5 seconds"

// An HTTPS agent of its own, because a connection serves one fetch, goes to addresses that were checked for it, and
// uses no proxy.
const agent = new Agent({ keepAlive: false })

const fetchFrom = (url: URL, addresses: ReadonlyArray<string>): Effect.Effect<Fetched, DocumentFailed> =>
  Effect.callback<Fetched, DocumentFailed>((resume) => {
    const fail = (reason: string) => resume(Effect.fail(new DocumentFailed({ reason })))
    const asked = request({
      method: "GET",
      hostname: hostOf(url),
      path: url.pathname + url.search,
      headers: { accept: "application/json", "user-agent": "parley" },
      agent,
      lookup: onlyThese(addresses)
    })
    asked.on("error", (error) => fail(error.message))
    asked.on("response", (response) => {
      if (response.statusCode !== 200) return fail(`its host answered ${response.statusCode}`)
      if (!/^application\/(?:[\w.+-]+\+)?json\b/i.test(response.headers["content-type"] ?? ""))
        return fail("it is not JSON")
      const parts: Array<Buffer> = []
      let bytes = 0
      response.on("data", (part: Buffer) => {
        bytes += part.length
        if (bytes > MAX_DOCUMENT_BYTES) fail(`it has more than ${exactSize(MAX_DOCUMENT_BYTES)}`)
        else parts.push(part)
      })
      response.once("close", () =>
        response.complete
          ? resume(
            Effect.succeed({ text: Buffer.concat(parts).toString(), cacheControl: response.headers["cache-control"] })
          )
          : fail("the connection broke"))
    })
    asked.end()
    return Effect.sync(() => asked.destroy())
  })

/**
 * Reads a client's document once. No redirects are followed, and no address is reached that is not public. The host
 * name is used for the Host header and TLS. Tests replace it.
 */
export const DocumentFetch = Context.Reference<(url: URL) => Effect.Effect<Fetched, DocumentFailed>>(
  "parley/oauth/DocumentFetch",
  {
    defaultValue: () => (url) =>
      checkedAddresses(url, "none").pipe(
        Effect.mapError(({ reason }) => new DocumentFailed({ reason })),
        Effect.flatMap((addresses) => fetchFrom(url, addresses)),
        Effect.timeoutOrElse({
          duration: FETCH_TIMEOUT,
          orElse: () => Effect.fail(new DocumentFailed({ reason: "its host did not answer in time" }))
        })
      )
  }
)
