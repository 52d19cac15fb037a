import { type Agent, maskEmail } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Auth } from "#domain/auth/Auth"
import { AuthorizationRequests } from "#domain/oauth/AuthorizationRequests"
import { offersOAuth } from "#domain/oauth/Discovery"
import { redirectUriOf } from "#domain/oauth/RedirectUri"
import { SCOPES, scopesOf } from "#domain/oauth/Scopes"
import { PublicRegistration } from "#domain/registration/PublicRegistration"
import { toAnswer, toApplicant } from "#domain/registration/RegistrationApi"
import { Config } from "#infrastructure/platform/Config"
import { iso } from "#infrastructure/wire/Text"
import { NotFound, Unauthorized } from "#infrastructure/wire/WireError"
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentSignIn, FromPage } from "./FromPage.ts"
import { OAuthLimits } from "./OAuthLimits.ts"
import { RequestsApi } from "./RequestsApi.ts"

const handlers = HttpApiBuilder.group(RequestsApi, "requests", (handlers) =>
  Effect.gen(function*() {
    const agents = yield* Agents
    const auth = yield* Auth
    const config = yield* Config
    const limits = yield* OAuthLimits
    const registration = yield* PublicRegistration
    const requests = yield* AuthorizationRequests

    /** The request as the page shows it, with the signed-in agent. */
    const show = ({ stored }: CurrentSignIn["Service"], agent: Agent | undefined) => ({
      client: { name: stored.clientName, host: stored.clientHost },
      // The request may have begun in another release, which permitted other schemes.
      redirect: redirectUriOf(stored.redirectUri, config.OAUTH_REDIRECT_SCHEMES) ??
        { kind: "private" as const, shown: stored.redirectUri },
      scopes: scopesOf(stored.scopes),
      expires_at: iso(stored.expiresAt),
      agent: agent === undefined ? null : {
        handle: agent.handle,
        display_name: agent.displayName,
        email_masked: maskEmail(agent.email),
        status: agent.status
      }
    })

    const signedIn = Effect.fnUntraced(function*(current: CurrentSignIn["Service"], agent: Agent) {
      if (!(yield* requests.signIn(current.reference, agent.id))) return yield* new NotFound()
      return show(current, agent)
    })

    const mailed = (pendingId: string, message: string) => ({
      pending_id: pendingId,
      message,
      expires_in: config.LIMITS_OTP_TTL_SECONDS
    })

    return handlers.handleAll({
      show: Effect.fnUntraced(function*() {
        const current = yield* CurrentSignIn
        const { agentId } = current.stored
        const agent = agentId === null ? undefined : (yield* agents.byIds([agentId])).get(agentId)
        return show(current, agent?.deletedAt === null ? agent : undefined)
      }),
      key: Effect.fnUntraced(function*({ payload, request }) {
        yield* limits.take("keys", request)
        return yield* signedIn(yield* CurrentSignIn, yield* auth.authenticate(payload.api_key.trim()))
      }),
      code: Effect.fnUntraced(function*({ payload, request }) {
        const pendingId = yield* registration.signIn(request, payload.email)
        return mailed(pendingId, "If the address has an account, it was mailed a code, now or a moment ago.")
      }),
      codeVerify: Effect.fnUntraced(function*({ payload, request }) {
        return yield* signedIn(yield* CurrentSignIn, yield* registration.completeSignIn(request, toAnswer(payload)))
      }),
      register: Effect.fnUntraced(function*({ payload, request }) {
        return mailed(
          yield* registration.register(request, toApplicant(payload)),
          "A code is on its way to your address."
        )
      }),
      registerVerify: Effect.fnUntraced(function*({ payload, request }) {
        const current = yield* CurrentSignIn
        const { agent, apiKey } = yield* registration.completeRegistration(request, toAnswer(payload))
        // Return the key even if the sign-in has ended meanwhile, because the account exists.
        yield* requests.signIn(current.reference, agent.id)
        return { ...show(current, agent), api_key: apiKey }
      }),
      allow: Effect.fnUntraced(function*({ payload }) {
        const { reference, stored } = yield* CurrentSignIn
        if (stored.agentId === null)
          return yield* new Unauthorized({ message: "Nobody has signed in on this page: sign in first." })
        const url = yield* requests.allow(reference, payload.scopes ?? SCOPES)
        return url === undefined ? yield* new NotFound() : { redirect_to: url }
      }),
      deny: Effect.fnUntraced(function*() {
        const url = yield* requests.deny((yield* CurrentSignIn).reference)
        return url === undefined ? yield* new NotFound() : { redirect_to: url }
      })
    })
  }))

/** The routes that the sign-in page calls. */
export const RequestsHttp = Layer.unwrap(
  Effect.map(Config, (config) =>
    offersOAuth(config)
      ? HttpApiBuilder.layer(RequestsApi).pipe(Layer.provide(handlers), Layer.provide(FromPage.layer))
      : Layer.empty)
)
