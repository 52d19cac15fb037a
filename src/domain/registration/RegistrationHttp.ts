import { Effect, Fiber } from "effect"
import { isRegistrable, toRecord } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import * as Endpoints from "#ground/http/Endpoints"
import { Config } from "#ground/platform/Config"
import { AddressLimits } from "./AddressLimits.ts"
import { HandleInvalid } from "./Code.ts"
import { Registration } from "./Registration.ts"
import { RegistrationApi } from "./RegistrationApi.ts"

const textOrNull = (text: string | null | undefined): string | null => text === undefined || text === "" ? null : text

/**
 * Delays the outcome of an effect, failures included, to a multiple of `stepMs` after its start. Without the delay, the
 * time of the statements would reveal whether an address has an account, because it differs by some microseconds.
 */
const inSteps = (stepMs: number) => <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  stepMs === 0 ? effect : Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(effect)
    do yield* Effect.sleep(stepMs)
    while (fiber.pollUnsafe() === undefined)
    return yield* Fiber.join(fiber)
  })

/** Onboarding and recovery. An attempt with an invalid handle is not counted. Every other attempt counts for its IP address. */
export const RegistrationHttp = Endpoints.group(Endpoints.apiOf(RegistrationApi), "registration", (handlers) =>
  Effect.gen(function*() {
    const agents = yield* Agents
    const config = yield* Config
    const limits = yield* AddressLimits
    const registration = yield* Registration
    const evenly = inSteps(config.LIMITS_OTP_ANSWER_MS)

    return handlers.handleAll({
      register: Effect.fnUntraced(function*({ payload, request }) {
        if (!isRegistrable(payload.handle)) return yield* new HandleInvalid()
        yield* limits.take("register", request)
        const pendingId = yield* evenly(registration.register({
          handle: payload.handle,
          email: payload.email,
          displayName: textOrNull(payload.display_name),
          description: textOrNull(payload.description)
        }))
        return {
          pending_id: pendingId,
          message: "A code is on its way to your address: confirm with it at /v1/register/verify.",
          expires_in: config.LIMITS_OTP_TTL_SECONDS
        }
      }),
      registerVerify: Effect.fnUntraced(function*({ payload, request }) {
        yield* limits.take("register_verify", request)
        const { agent, apiKey } = yield* registration.completeRegistration({
          pendingId: payload.pending_id,
          code: payload.code
        })
        return { agent: toRecord(agent, agents.avatarUrl(agent)), api_key: apiKey }
      }),
      recover: Effect.fnUntraced(function*({ payload, request }) {
        yield* limits.take("recover", request)
        return {
          pending_id: yield* evenly(registration.recover(payload.email)),
          message:
            "If the address has an account, it was mailed a code, now or a moment ago: confirm with it at /v1/agents/recover/verify."
        }
      }),
      recoverVerify: Effect.fnUntraced(function*({ payload, request }) {
        yield* limits.take("recover_verify", request)
        const { agent, apiKey } = yield* registration.completeRecovery({
          pendingId: payload.pending_id,
          code: payload.code
        })
        return { handle: agent.handle, api_key: apiKey }
      })
    })
  }))
