import { Clock, Context, Effect, Layer } from "effect"
import { timingSafeEqual } from "node:crypto"
import { Config } from "#ground/platform/Config"
import { Ids } from "#ground/platform/Ids"
import { checkedAddresses, hostOf, NameLookup, parseTarget, placeOf } from "#domain/webhooks/PrivateAddressGuard"
import { ChallengeClient } from "#domain/webhooks/WebhookClient"
import { Webhooks } from "#domain/webhooks/Webhooks"
import type { ValidationFailed } from "#ground/wire/WireError"
import type { CallbackReason } from "./EventErrors.ts"

const MAX_ANSWER_BYTES = 4_096
const PATIENCE = "10 seconds"

/** Whether an answer repeats the challenge. */
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

/** The URLs to which events are posted. */
export class Callbacks extends Context.Service<Callbacks, {
  /** Refuses a URL that no webhook may have. */
  readonly check: (url: string) => Effect.Effect<void, ValidationFailed>
  /** Whether a URL is https, or http on a loopback address that the settings allow. */
  readonly isSecure: (url: string) => boolean
  /**
   * Posts a challenge once and returns why the URL does not want events, or undefined if it repeats the challenge. The server posts only to
   * URLs that do, so that nobody can make it post to a stranger's URL.
   */
  readonly challenge: (
    url: string,
    headers: (message: { readonly id: string; readonly at: number; readonly body: string }) => Readonly<Record<string, string>>
  ) => Effect.Effect<CallbackReason | undefined>
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

      return Callbacks.of({
        check: webhooks.check,
        isSecure: (text) => {
          const url = URL.canParse(text) ? new URL(text) : undefined
          if (url?.protocol !== "http:") return url?.protocol === "https:"
          const host = hostOf(url)
          return allow !== "none" && (placeOf(host) === "loopback" || host === "localhost")
        },
        challenge: Effect.fn("Callbacks.challenge")(function*(text, headers) {
          const url = yield* parseTarget(text)
          const addresses = yield* Effect.provideService(checkedAddresses(url, allow), NameLookup, names)
          const challenge = ids.bytes(24).toString("base64url")
          const body = JSON.stringify({ type: "verification", challenge })
          const id = `msg_verification_${ids.bytes(12).toString("base64url")}`
          const at = Math.floor(clock.currentTimeMillisUnsafe() / 1_000)
          const { status, text: answered } = yield* client({ url, addresses, headers: headers({ id, at, body }), body }, MAX_ANSWER_BYTES)
          if (status >= 500) return "http_5xx" as const
          if (status >= 400) return "http_4xx" as const
          return status >= 200 && status < 300 && repeats(answered, challenge) ? undefined : "challenge_failed" as const
        }, (effect) =>
          effect.pipe(
            Effect.timeoutOrElse({ duration: PATIENCE, orElse: () => Effect.succeed<CallbackReason | undefined>("timeout") }),
            Effect.catch((failure) =>
              Effect.succeed<CallbackReason | undefined>(failure._tag === "PostFailed" && failure.isOfTls ? "tls_error" : "connection_refused"))
          ))
      })
    })
  )
}
