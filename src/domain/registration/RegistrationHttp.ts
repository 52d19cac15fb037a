import { toRecord } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { Effect } from "effect"
import { PublicRegistration } from "./PublicRegistration.ts"
import { RegistrationApi, toAnswer, toApplicant } from "./RegistrationApi.ts"

/** Registration and recovery, for callers without a key. */
export const RegistrationHttp = Endpoints.group(
  Endpoints.apiOf(RegistrationApi),
  "registration",
  (handlers) =>
    Effect.gen(function*() {
      const agents = yield* Agents
      const config = yield* Config
      const registration = yield* PublicRegistration

      return handlers.handleAll({
        register: Effect.fnUntraced(function*({ payload, request }) {
          const pendingId = yield* registration.register(request, toApplicant(payload))
          return {
            pending_id: pendingId,
            message: "A code is on its way to your address: confirm with it at /v1/register/verify.",
            expires_in: config.LIMITS_OTP_TTL_SECONDS
          }
        }),
        registerVerify: Effect.fnUntraced(function*({ payload, request }) {
          const { agent, apiKey } = yield* registration.completeRegistration(request, toAnswer(payload))
          return { agent: toRecord(agent, agents.avatarUrl(agent), []), api_key: apiKey }
        }),
        recover: Effect.fnUntraced(function*({ payload, request }) {
          return {
            pending_id: yield* registration.recover(request, payload.email),
            message:
              "If the address has an account, it was mailed a code, now or a moment ago: confirm with it at /v1/agents/recover/verify."
          }
        }),
        recoverVerify: Effect.fnUntraced(function*({ payload, request }) {
          const { agent, apiKey } = yield* registration.completeRecovery(request, toAnswer(payload))
          return { handle: agent.handle, api_key: apiKey }
        })
      })
    })
)
