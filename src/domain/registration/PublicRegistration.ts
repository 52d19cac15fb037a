import type { Issued } from "#domain/agents/Accounts"
import { type Agent, isRegistrable } from "#domain/agents/Agent"
import { Config } from "#infrastructure/platform/Config"
import type { RateLimited, Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Fiber, Layer } from "effect"
import type { HttpServerRequest } from "effect/http"
import { AddressLimits } from "./AddressLimits.ts"
import { HandleInvalid } from "./Code.ts"
import { type Answer, type Applicant, Registration } from "./Registration.ts"

/**
 * Delays the outcome of an effect, including failures, to a multiple of `stepMs` after its start. Without the delay,
 * the duration of the statements would reveal whether an address has an account, because it differs by some
 * microseconds.
 */
const inSteps = (stepMs: number) => <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  stepMs === 0 ? effect : Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(effect)
    do yield* Effect.sleep(stepMs)
    while (fiber.pollUnsafe() === undefined)
    return yield* Fiber.join(fiber)
  })

/** The failures of a method of `Registration`, and the refusal because of the IP address's limit. */
type Limited<
  Name extends "register" | "completeRegistration" | "recover" | "completeRecovery" | "signIn" | "completeSignIn"
> =
  | Effect.Error<ReturnType<Registration["Service"][Name]>>
  | RateLimited
  | Unavailable

/**
 * `Registration` for callers without a key (wire.md C.2 and P). Each attempt counts towards the limit of the caller's
 * IP address, except attempts with an invalid handle. The time of a response does not reveal whether an e-mail address
 * has an account.
 */
export class PublicRegistration extends Context.Service<PublicRegistration, {
  /** Sends a code by e-mail and returns its pending id. */
  readonly register: (
    request: HttpServerRequest.HttpServerRequest,
    applicant: Applicant
  ) => Effect.Effect<string, HandleInvalid | Limited<"register">>
  readonly completeRegistration: (
    request: HttpServerRequest.HttpServerRequest,
    answer: Answer
  ) => Effect.Effect<Issued, Limited<"completeRegistration">>
  /** If the address has an account, sends an e-mail with a code for a new key. Returns a pending id in either case. */
  readonly recover: (
    request: HttpServerRequest.HttpServerRequest,
    email: string
  ) => Effect.Effect<string, Limited<"recover">>
  readonly completeRecovery: (
    request: HttpServerRequest.HttpServerRequest,
    answer: Answer
  ) => Effect.Effect<Issued, Limited<"completeRecovery">>
  /** If the address has an account, sends an e-mail with a code to sign in. Returns a pending id in either case. */
  readonly signIn: (
    request: HttpServerRequest.HttpServerRequest,
    email: string
  ) => Effect.Effect<string, Limited<"signIn">>
  readonly completeSignIn: (
    request: HttpServerRequest.HttpServerRequest,
    answer: Answer
  ) => Effect.Effect<Agent, Limited<"completeSignIn">>
}>()("parley/registration/PublicRegistration") {
  static readonly layer = Layer.effect(
    PublicRegistration,
    Effect.gen(function*() {
      const config = yield* Config
      const limits = yield* AddressLimits
      const registration = yield* Registration
      const evenly = inSteps(config.LIMITS_OTP_ANSWER_MS)

      return PublicRegistration.of({
        register: (request, applicant) =>
          isRegistrable(applicant.handle)
            ? Effect.andThen(limits.take("register", request), evenly(registration.register(applicant)))
            : Effect.fail(new HandleInvalid()),
        completeRegistration: (request, answer) =>
          Effect.andThen(limits.take("register_verify", request), registration.completeRegistration(answer)),
        recover: (request, email) =>
          Effect.andThen(limits.take("recover", request), evenly(registration.recover(email))),
        completeRecovery: (request, answer) =>
          Effect.andThen(limits.take("recover_verify", request), registration.completeRecovery(answer)),
        signIn: (request, email) => Effect.andThen(limits.take("sign_in", request), evenly(registration.signIn(email))),
        completeSignIn: (request, answer) =>
          Effect.andThen(limits.take("sign_in_verify", request), registration.completeSignIn(answer))
      })
    })
  )
}
