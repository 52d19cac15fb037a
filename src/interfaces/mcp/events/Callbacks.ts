import { makePostQueue } from "#domain/webhooks/PostQueue"
import { ChallengeClient } from "#domain/webhooks/WebhookClient"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { checkedAddresses, hostOf, NameLookup, parseTarget, placeOf } from "#infrastructure/http/PrivateAddressGuard"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"
import { Unavailable, type ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Option } from "effect"
import { timingSafeEqual } from "node:crypto"
import type { CallbackReason } from "./EventErrors.ts"

const MAX_ANSWER_BYTES = 4_096
const ANSWER_TIMEOUT = "10 seconds"
/** How many challenges of this process may run at once, and how many may wait. */
const PLACES = { inAll: 32, perAgent: 2, perHost: 8, waiting: { inAll: 1_000, perAgent: 10 } }
/** How long a challenge may take, including the time that it waits for a place. Then it is dropped. */
const CHALLENGE_TIMEOUT = "20 seconds"

/** Whether a response repeats the challenge. */
const repeats = (text: string | undefined, challenge: string): boolean => {
  if (text === undefined) return false
  let given: unknown
  try {
    given = (JSON.parse(text) as { readonly challenge?: unknown } | null)?.challenge
  } catch {
    return false
  }
  if (typeof given !== "string") return false
  const [one, other] = [Buffer.from(given), Buffer.from(challenge)]
  return one.length === other.length && timingSafeEqual(one, other)
}

/** Makes the headers of a challenge, which contain its signature. `at` is in seconds. */
type Headers = (
  message: { readonly id: string; readonly at: number; readonly body: string }
) => Readonly<Record<string, string>>

/** Checks the URLs to which the server posts events. */
export class Callbacks extends Context.Service<Callbacks, {
  /** Fails if no webhook may have this URL. */
  readonly check: (url: string) => Effect.Effect<void, ValidationFailed>
  /** Whether a URL uses https, or uses http with a loopback address and the settings allow that. */
  readonly isSecure: (url: string) => boolean
  /**
   * Posts a challenge once. Returns undefined if the response repeats the challenge, and the reason of the failure
   * otherwise. The server posts events only to URLs that repeat their challenge. So nobody can make the server post to
   * the URL of somebody else. Fails if too many challenges are in progress.
   */
  readonly challenge: (
    agentId: string,
    url: string,
    headers: Headers
  ) => Effect.Effect<CallbackReason | undefined, Unavailable>
}>()("parley/mcp/Callbacks") {
  static readonly layer = Layer.effect(
    Callbacks,
    Effect.gen(function*() {
      const allow = (yield* Config).WEBHOOK_ALLOW_PRIVATE
      const client = yield* ChallengeClient
      const clock = yield* Clock.Clock
      const ids = yield* Ids
      const names = yield* NameLookup
      const webhooks = yield* Webhooks
      const places = makePostQueue(PLACES, () => "Answers")

      const challenge = Effect.fnUntraced(function*(url: URL, headers: Headers) {
        const addresses = yield* Effect.provideService(checkedAddresses(url, allow), NameLookup, names)
        const challenge = ids.bytes(24).toString("base64url")
        const body = JSON.stringify({ type: "verification", challenge })
        const id = `msg_verification_${ids.bytes(12).toString("base64url")}`
        const at = Math.floor(clock.currentTimeMillisUnsafe() / 1_000)
        const { status, text: answered } = yield* client(
          { url, addresses, headers: headers({ id, at, body }), body },
          MAX_ANSWER_BYTES
        )
        if (status >= 500) return "http_5xx" as const
        if (status >= 400) return "http_4xx" as const
        return status >= 200 && status < 300 && repeats(answered, challenge) ? undefined : "challenge_failed" as const
      }, (effect) =>
        effect.pipe(
          Effect.timeoutOrElse({
            duration: ANSWER_TIMEOUT,
            orElse: () => Effect.succeed<CallbackReason | undefined>("timeout")
          }),
          Effect.catch((failure) =>
            Effect.succeed<CallbackReason | undefined>(
              failure._tag === "ExchangeFailed" && failure.isOfTls ? "tls_error" : "connection_refused"
            )
          )
        ))

      return Callbacks.of({
        check: webhooks.check,
        isSecure: (text) => {
          const url = absoluteUrl(text)
          if (url?.protocol !== "http:") return url?.protocol === "https:"
          const host = hostOf(url)
          return allow !== "none" && (placeOf(host) === "loopback" || host === "localhost")
        },
        challenge: Effect.fn("Callbacks.challenge")(function*(agentId, text, headers) {
          const url = yield* Effect.orDie(parseTarget(text))
          const answer = yield* places.run({ agentId, host: url.host })(() => challenge(url, headers)).pipe(
            Effect.timeoutOption(CHALLENGE_TIMEOUT)
          )
          return yield* Effect.mapError(Effect.fromOption(Option.flatten(answer)), () => new Unavailable())
        })
      })
    })
  )
}
