import { Secrets } from "#infrastructure/database/Secrets"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Option, Semaphore } from "effect"
import type { Client } from "./AuthorizationRequest.ts"
import { cacheMs, documentUrl, readDocument } from "./ClientDocument.ts"
import {
  type AuthMethod,
  clientIdOf,
  isSecretOf,
  type Registered,
  registeredOf,
  SALT_BYTES,
  secretOf
} from "./ClientId.ts"
import { DocumentFailed, DocumentFetch } from "./DocumentFetch.ts"
import { knownClient } from "./KnownClients.ts"
import { Refusals } from "./Refusals.ts"

/** The credentials with which a client authenticates at `/token`. */
export interface Credentials {
  readonly clientId: string
  /** `null` if the request contains no secret. */
  readonly secret: string | null
  readonly method: AuthMethod
}

const CACHED = `SELECT body FROM oauth_documents WHERE client_id = $1 AND expires_at > $2`

const CACHE = `
INSERT INTO oauth_documents (client_id, body, expires_at) VALUES ($1, $2, $3)
ON CONFLICT (client_id) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at`

/**
 * How many documents the process fetches at once. Anybody can cause a fetch, which holds a connection for up to 5
 * seconds.
 */
const MAX_FETCHES = 32

/**
 * The OAuth clients that may ask an agent to sign in (wire.md P). A registered client is not stored, because its id
 * contains its metadata. The document of any other client is fetched from the document's host, and cached in the
 * database for all nodes.
 */
export class Clients extends Context.Service<Clients, {
  /** Registers a client. The secret is `null` if the client uses the method `none`. */
  readonly register: (metadata: Registered) => { readonly id: string; readonly secret: string | null }
  /**
   * Returns the client with this id, without the redirect URIs that operators have refused. Returns `undefined` if
   * there is no such client, or if none of its redirect URIs is left. Fails with `DocumentFailed` if the client's
   * document cannot be read. `beforeFetch` runs before a document is fetched. If it fails, the document is not fetched.
   */
  readonly find: <E = never>(
    id: string,
    beforeFetch?: Effect.Effect<unknown, E>
  ) => Effect.Effect<Client | undefined, DocumentFailed | Unavailable | E>
  /**
   * Whether the credentials are correct: those of a registered client, or the id of a client with a document and no
   * secret.
   */
  readonly authenticate: (credentials: Credentials) => boolean
}>()("parley/oauth/Clients") {
  static readonly layer = Layer.effect(
    Clients,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const { OAUTH_CIMD: which, OAUTH_REDIRECT_SCHEMES: schemes } = yield* Config
      const ids = yield* Ids
      const { prepared } = yield* Database
      const { clients: keys } = yield* Secrets
      const key = keys[0]!
      const fetch = yield* DocumentFetch
      const refusals = yield* Refusals
      const cached = prepared<{ readonly body: string }>("cached_oauth_document", CACHED)
      const cache = prepared("cache_oauth_document", CACHE)
      const now = () => clock.currentTimeMillisUnsafe()

      const fetches = yield* Semaphore.make(MAX_FETCHES)
      const fetchInTurn = (url: URL) =>
        Effect.flatMap(
          fetches.withPermitsIfAvailable(1)(fetch(url)),
          Option.match({
            onNone: () =>
              Effect.fail(new DocumentFailed({ reason: "the server reads too many others now: try again" })),
            onSome: Effect.succeed
          })
        )

      const fetched = Effect.fnUntraced(function*(id: string, url: URL) {
        const { cacheControl, text } = yield* fetchInTurn(url)
        const client = readDocument(id, text, schemes)
        if (client === undefined) return yield* new DocumentFailed({ reason: "it does not describe this client" })
        yield* cache([id, text, now() + cacheMs(cacheControl)])
        return client
      })

      const described = Effect.fnUntraced(function*<E>(id: string, url: URL, beforeFetch: Effect.Effect<unknown, E>) {
        const known = knownClient(id)
        if (which === "off" || (which === "known" && known === undefined)) return undefined
        const [stored] = yield* cached([id, now()])
        if (stored !== undefined) return readDocument(id, stored.body, schemes)
        yield* beforeFetch
        return yield* known === undefined
          ? fetched(id, url)
          : Effect.catchTag(fetched(id, url), "DocumentFailed", () => Effect.succeed(known))
      })

      const existing = <E>(
        id: string,
        beforeFetch: Effect.Effect<unknown, E>
      ): Effect.Effect<Client | undefined, DocumentFailed | Unavailable | E> => {
        const url = documentUrl(id)
        if (url !== undefined) return described(id, url, beforeFetch)
        const registered = registeredOf(keys, id)
        return Effect.succeed(
          registered && { id, source: "registered", redirectUris: registered.redirectUris, name: registered.name }
        )
      }

      return Clients.of({
        register: (metadata) => {
          const id = clientIdOf(key, metadata, ids.bytes(SALT_BYTES))
          return { id, secret: metadata.method === "none" ? null : secretOf(key, id) }
        },
        find: Effect.fn("Clients.find")(
          function*<E = never>(id: string, beforeFetch: Effect.Effect<unknown, E> = Effect.void) {
            const client = yield* existing(id, beforeFetch)
            if (client === undefined) return undefined
            const redirectUris = yield* refusals.permitted(id, client.redirectUris)
            return redirectUris.length === 0 ? undefined : { ...client, redirectUris }
          }
        ),
        authenticate: ({ clientId, method, secret }) => {
          if (documentUrl(clientId) !== undefined) return method === "none" && secret === null
          const known = registeredOf(keys, clientId)
          if (known === undefined || known.method !== method) return false
          return method === "none" ? secret === null : secret !== null && isSecretOf(known.key, clientId, secret)
        }
      })
    })
  )
}
