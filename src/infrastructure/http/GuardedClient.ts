import { exactSize } from "#infrastructure/wire/Size"
import { Data, Effect } from "effect"
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from "node:http"
import { Agent as HttpsAgent, request as requestHttps } from "node:https"
import { isIPv6, type LookupFunction } from "node:net"
import { hostOf } from "./PrivateAddressGuard.ts"

/** There was no valid HTTP response: the connection failed or broke, or the response was not HTTP or was too large. */
export class ExchangeFailed extends Data.TaggedError("ExchangeFailed")<{ readonly reason: string }> {
  static of(error: Error): ExchangeFailed {
    const code = "code" in error && typeof error.code === "string" ? error.code : ""
    return new ExchangeFailed({ reason: error.message === "" ? code : error.message })
  }

  /** Whether the TLS connection could not be made. */
  get isOfTls(): boolean {
    return /\b(?:TLS|SSL|certificate|EPROTO|CERT)\b|certificate|self[- ]signed|altnames/i.test(this.reason)
  }
}

/** A request to an untrusted URL. It is a POST if it has a body, and otherwise a GET. */
export interface GuardedRequest {
  readonly url: URL
  /** The only addresses that may be dialled, from `checkedAddresses`. */
  readonly addresses: ReadonlyArray<string>
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

// These requests have their own HTTP agents. Each connection serves one request, goes only to addresses that were
// checked for this request, and uses no proxy.
const plain = new HttpAgent({ keepAlive: false })
const secure = new HttpsAgent({ keepAlive: false })

/** A DNS look-up that returns these addresses for every name. */
const onlyThese = (addresses: ReadonlyArray<string>): LookupFunction => (_hostname, options, callback) => {
  const found = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }))
  const first = found[0]
  if (first === undefined) callback(new Error("no address"), "", 0)
  else if (options.all === true) callback(null, found)
  else callback(null, first.address, first.family)
}

const answerTo = ({ addresses, body, headers, url }: GuardedRequest): Effect.Effect<IncomingMessage, ExchangeFailed> =>
  Effect.callback<IncomingMessage, ExchangeFailed>((resume) => {
    const options = {
      method: body === undefined ? "GET" : "POST",
      hostname: hostOf(url),
      port: url.port,
      path: url.pathname + url.search,
      headers: body === undefined ? headers : { ...headers, "content-length": String(Buffer.byteLength(body)) },
      lookup: onlyThese(addresses)
    }
    const request = url.protocol === "https:"
      ? requestHttps({ ...options, agent: secure })
      : requestHttp({ ...options, agent: plain })
    request.on("error", (error) => resume(Effect.fail(ExchangeFailed.of(error))))
    request.on("response", (response) => resume(Effect.succeed(response)))
    request.end(body)
    return Effect.sync(() => request.destroy())
  })

/**
 * Sends a request once, reads the response with `read`, and closes the connection. Redirects are not followed. The host
 * name of the URL is used for the Host header and TLS. The connection goes to `addresses` only. An interruption closes
 * the connection. There is no time-out, so the caller must limit the time.
 */
export const exchange = <A, E, R>(
  request: GuardedRequest,
  read: (response: IncomingMessage) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | ExchangeFailed, R> =>
  Effect.flatMap(
    answerTo(request),
    (response) => Effect.ensuring(read(response), Effect.sync(() => response.destroy()))
  )

/** Reads the body of a response as text. Fails if the body has more than `most` bytes or is incomplete. */
export const textOf = (response: IncomingMessage, most: number): Effect.Effect<string, ExchangeFailed> =>
  Effect.callback<string, ExchangeFailed>((resume) => {
    const fail = (reason: string) => resume(Effect.fail(new ExchangeFailed({ reason })))
    const parts: Array<Buffer> = []
    let bytes = 0
    response.on("data", (part: Buffer) => {
      bytes += part.length
      if (bytes > most) fail(`it has more than ${exactSize(most)}`)
      else parts.push(part)
    })
    response.once(
      "close",
      () => response.complete ? resume(Effect.succeed(Buffer.concat(parts).toString())) : fail("the connection broke")
    )
  })
