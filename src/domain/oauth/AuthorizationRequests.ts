import { Config } from "#infrastructure/platform/Config"
import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import type { Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { type AuthorizationRequest, responseUrl } from "./AuthorizationRequest.ts"
import { Grants } from "./Grants.ts"
import { redirectUriOf } from "./RedirectUri.ts"
import { Refusals } from "./Refusals.ts"
import { RequestsRepo, type StoredRequest } from "./RequestsRepo.ts"
import { type OAuthScope, scopesOf, scopeText } from "./Scopes.ts"

/** How long a request waits for a person's decision, in milliseconds. */
export const REQUEST_MS = 900_000

/** A request as its page refers to it: by its id, and by the cookie of the browser in which it began. */
export interface Reference {
  readonly id: string
  readonly cookie: string
}

/**
 * Requests for authorization, from `/authorize` to a person's decision (wire.md P). A request belongs to the browser in
 * which it began, so its id is of no use without the cookie of that browser. A request can be decided only once.
 */
export class AuthorizationRequests extends Context.Service<AuthorizationRequests, {
  readonly begin: (request: AuthorizationRequest) => Effect.Effect<Reference, Unavailable>
  readonly find: (reference: Reference) => Effect.Effect<StoredRequest | undefined, Unavailable>
  /** Records who has signed in on the request's page. Returns `false` if there is no such request. */
  readonly signIn: (reference: Reference, agentId: string) => Effect.Effect<boolean, Unavailable>
  /**
   * Creates the grant with those of these scopes that the client asked for, and returns the URL for the browser.
   * Returns `undefined` if there is no such request, nobody has signed in, or operators have refused the client in the
   * meantime.
   */
  readonly allow: (
    reference: Reference,
    scopes: ReadonlyArray<OAuthScope>
  ) => Effect.Effect<string | undefined, Unauthorized | Unavailable>
  /**
   * Returns the URL that redirects the browser to the host with the refusal, or `undefined` if there is no such
   * request.
   */
  readonly deny: (reference: Reference) => Effect.Effect<string | undefined, Unavailable>
}>()("parley/oauth/AuthorizationRequests") {
  static readonly layer = Layer.effect(
    AuthorizationRequests,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const connections = yield* Grants
      const ids = yield* Ids
      const refusals = yield* Refusals
      const repo = yield* RequestsRepo
      const config = yield* Config
      const now = () => clock.currentTimeMillisUnsafe()
      const random = (prefix: string) => `${prefix}_${ids.bytes(32).toString("base64url")}`

      const answer = ({ redirectUri, state }: StoredRequest, parameters: Readonly<Record<string, string>>): string => {
        const redirect = redirectUriOf(redirectUri, config.OAUTH_REDIRECT_SCHEMES)
        // If the server was upgraded since the request began, it may permit other schemes.
        return responseUrl(
          publicUrl(config),
          redirect ?? { uri: redirectUri, kind: "private", shown: "" },
          state,
          parameters
        )
      }

      return AuthorizationRequests.of({
        begin: Effect.fn("AuthorizationRequests.begin")(function*({ challenge, client, redirect, scopes, state }) {
          const id = random("orq")
          const cookie = random("ork")
          yield* repo.insert({
            id,
            cookieHash: sha256(cookie),
            clientId: client.id,
            clientName: client.name,
            clientHost: client.source === "document" ? new URL(client.id).host : null,
            redirectUri: redirect.uri,
            challenge,
            state,
            scopes: scopeText(scopes),
            expiresAt: now() + REQUEST_MS
          })
          return { id, cookie }
        }),
        find: ({ cookie, id }) => repo.find(id, sha256(cookie), now()),
        signIn: ({ cookie, id }, agentId) => repo.signIn(id, sha256(cookie), agentId, now()),
        allow: Effect.fn("AuthorizationRequests.allow")(function*({ cookie, id }, scopes) {
          const found = yield* repo.find(id, sha256(cookie), now())
          if (found?.agentId === undefined || found.agentId === null) return undefined
          const allowed = scopesOf(found.scopes).filter((scope) => scopes.includes(scope))
          if (allowed.length === 0) return undefined
          if ((yield* refusals.permitted(found.clientId, [found.redirectUri])).length === 0) return undefined
          const request = yield* repo.take(id, sha256(cookie), now())
          if (request === undefined || request.agentId !== found.agentId) return undefined
          const code = yield* connections.connect({ ...request, agentId: found.agentId, scopes: allowed })
          return answer(request, { code })
        }),
        deny: Effect.fn("AuthorizationRequests.deny")(({ cookie, id }) =>
          Effect.map(
            repo.take(id, sha256(cookie), now()),
            (request) => request && answer(request, { error: "access_denied" })
          )
        )
      })
    })
  )
}
