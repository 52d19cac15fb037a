import { type Agent, NO_MAILBOX } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Secrets } from "#infrastructure/database/Secrets"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { MailQueue } from "#infrastructure/platform/Mailer"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { Unauthorized, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { connectionMail } from "./GrantMail.ts"
import { type Ending, type Grant, GrantsRepo, type NewGrant, type Presented, type StoredGrant } from "./GrantsRepo.ts"
import { shownOf } from "./RedirectUri.ts"
import { Refusals } from "./Refusals.ts"
import { type OAuthScope, scopesOf, scopeText } from "./Scopes.ts"
import { codeOf, fits, isAccessToken, isCode, isRefreshToken, pairOf, refreshOutcome } from "./Tokens.ts"

/** The response of `/token`: the pair of tokens, the seconds until the access token expires, and the scopes. */
export interface Issued {
  readonly access: string
  readonly refresh: string
  readonly expiresIn: number
  readonly scopes: ReadonlyArray<OAuthScope>
}

/**
 * Why `/token` responds with `invalid_grant`. `Unknown`: the code or token is not valid. `Reused`: the code or token
 * had been used before, so the server has ended its grant.
 */
export type NotIssued = { readonly _tag: "Unknown" } | { readonly _tag: "Reused"; readonly connection: StoredGrant }

/** The parameters with which a client exchanges a code at `/token`. */
export interface Redeemed {
  readonly code: string
  readonly clientId: string
  readonly redirectUri: string
  readonly verifier: string
}

const CODE_MS = 60_000
const DAY_MS = 86_400_000
const MAX_CONNECTIONS = 50
/** How many exchanged tokens of a grant are kept, so that the reuse of one is noticed. */
const MAX_EXCHANGED = 20
const BATCH_SIZE = 1_000
/** How long a node caches the grant of a token, in milliseconds. Accounts are cached for the same time. */
const MAX_AGE_MS = 1_000
const MAX_GRANTS = 50_000
/** How old the recorded last use of a grant may become while the grant is in use, in milliseconds. */
const USE_MS = 60_000

/**
 * OAuth grants (wire.md P, where they are called connections). A grant gives a host an access token and a refresh
 * token, with which the host acts for the agent at `/mcp`. The rows contain only hashes of codes and tokens. All
 * decisions are based on rows, so any node can handle any request.
 *
 * A grant is valid as long as the key that its agent had when the grant was created. So the statement that rotates the
 * key, recovers the account or ends the account also ends the grant.
 *
 * The statement that stores a grant, or ends a live one for another reason, writes a row of the audit log. The owner of
 * the agent gets an e-mail about each new grant.
 */
export class Grants extends Context.Service<Grants, {
  /**
   * Stores a grant that a person has allowed, starts sending the e-mail to the agent's owner, and returns the code for
   * the host. If the agent then has more than 50 grants, the one that was not used for the longest time is removed.
   * Fails with `Unauthorized` if the account has been deleted.
   */
  readonly connect: (
    connection: Omit<NewGrant, "id" | "scopes"> & {
      readonly scopes: ReadonlyArray<OAuthScope>
      readonly challenge: string
    }
  ) => Effect.Effect<string, Unauthorized | Unavailable>
  /** Exchanges a code for the first pair of tokens. If the code was exchanged before, its grant ends. */
  readonly redeem: (redeemed: Redeemed) => Effect.Effect<Issued | NotIssued, Unavailable>
  /**
   * Exchanges a refresh token for the next pair. A repeated exchange returns the same pair, until the repeat shows that
   * a second party has the token (`refreshOutcome`).
   */
  readonly refresh: (token: string, clientId: string) => Effect.Effect<Issued | NotIssued, Unavailable>
  /** Returns the account, the grant and the scopes of a live access token. The account may be suspended. */
  readonly authenticate: (
    token: string
  ) => Effect.Effect<
    { readonly agent: Agent; readonly connectionId: string; readonly scopes: ReadonlyArray<OAuthScope> },
    Unauthorized | Unavailable
  >
  /**
   * Ends the grant of an access or refresh token, if there is one, and returns it. If `clientId` is given, it must be
   * the client of the grant.
   */
  readonly revoke: (token: string, clientId: string | undefined) => Effect.Effect<StoredGrant | undefined, Unavailable>
  /** Returns the live grants of an agent, newest first. */
  readonly list: (agentId: string) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
  /** Ends a grant of the agent and returns it. */
  readonly end: (agentId: string, id: string) => Effect.Effect<StoredGrant | undefined, Unavailable>
  /** Ends all live grants of an agent for an operator, and returns their number. */
  readonly endAllOf: (agentId: string, operator: string) => Effect.Effect<number, Unavailable>
  /**
   * Ends the live grants for which `selects` returns true, for an operator, and returns their number. Reads the live
   * grants of all agents.
   */
  readonly endWhere: (
    selects: (connection: StoredGrant) => boolean,
    operator: string
  ) => Effect.Effect<number, Unavailable>
  /** Removes all grants of an agent. Idempotent. */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
}>()("parley/oauth/Connections") {
  static readonly layer = Layer.effect(
    Grants,
    Effect.gen(function*() {
      const agents = yield* Agents
      const clock = yield* Clock.Clock
      const config = yield* Config
      // Access tokens are valid for a week, because some hosts do not refresh reliably. A long validity is safe,
      // because the database is asked whether a token is still valid.
      const { OAUTH_ACCESS_SECONDS: accessSeconds, OAUTH_REFRESH_DAYS: refreshDays } = config
      const mails = yield* MailQueue
      const { transaction } = yield* Database
      const ids = yield* Ids
      const refusals = yield* Refusals
      const repo = yield* GrantsRepo
      const { tokens: key } = yield* Secrets
      const now = () => clock.currentTimeMillisUnsafe()
      const monotonic = monotonicMillis(clock)
      const unknown: NotIssued = { _tag: "Unknown" }

      const issue = Effect.fnUntraced(function*(token: string, presented: Presented) {
        const at = now()
        const pair = pairOf(key, token)
        yield* repo.exchange(
          sha256(token),
          sha256(pair.access),
          at + accessSeconds * 1_000,
          sha256(pair.refresh),
          at + refreshDays * DAY_MS,
          at
        )
        yield* repo.forgetOld(presented.id, MAX_EXCHANGED)
        const issued: Issued = { ...pair, expiresIn: accessSeconds, scopes: scopesOf(presented.scopes) }
        return issued
      })

      const end = (agentId: string, id: string, why: Ending["why"]) =>
        repo.end(id, agentId, now(), { operator: "server", why })

      /** Ends grants for an operator. */
      const endThese = (connections: ReadonlyArray<StoredGrant>, operator: string) =>
        Effect.map(
          repo.endThese(connections.map(({ id }) => id), now(), { operator, why: "ended by an operator" }),
          (ended) => ended.length
        )

      const reused = Effect.fnUntraced(function*({ agentId, id, kind }: Presented) {
        const connection = yield* end(
          agentId,
          id,
          kind === "code" ? "a code was used again" : "a refresh token was used again"
        )
        if (connection === undefined) return unknown
        yield* Effect.logWarning("A code or token was used again, so its connection has ended", {
          connection: id,
          kind
        })
        const notIssued: NotIssued = { _tag: "Reused", connection }
        return notIssued
      })

      /** Starts sending the e-mail about a new grant. Sends none for an agent without an e-mail address. */
      const announce = Effect.fnUntraced(
        function*(connection: Omit<NewGrant, "scopes">, scopes: ReadonlyArray<OAuthScope>, at: number) {
          const agent = (yield* agents.byIds([connection.agentId])).get(connection.agentId)
          if (agent === undefined || agent.email.endsWith(`@${NO_MAILBOX}`)) return
          const mail = connectionMail({
            ...connection,
            to: agent.email,
            handle: agent.handle,
            scopes,
            at,
            base: publicUrl(config)
          })
          yield* mails.begin(
            mails.deliver(mail),
            (reason) => Effect.logWarning("A mail about a connection could not be sent", { reason })
          )
        }
      )

      /**
       * Decides on an exchange while it holds the lock of the grant. So the second of two concurrent exchanges sees the
       * result of the first.
       */
      const exchange = (
        token: string,
        kind: Presented["kind"],
        decide: (presented: Presented) => Effect.Effect<Issued | NotIssued, Unavailable>
      ): Effect.Effect<Issued | NotIssued, Unavailable> =>
        transaction(Effect.gen(function*() {
          const presented = yield* repo.lock(sha256(token))
          if (presented?.kind !== kind) return unknown
          const permitted = yield* refusals.permitted(presented.clientId, [presented.redirectUri])
          return permitted.length === 0 ? unknown : yield* decide(presented)
        }))

      /** The grants of tokens that were read within the last second, the oldest first. */
      const grants = new Map<string, { readonly grant: Grant; readonly at: number }>()
      const grantOf = Effect.fnUntraced(function*(hash: Buffer) {
        const name = hash.toString("latin1")
        const known = grants.get(name)
        if (known !== undefined && monotonic() - known.at < MAX_AGE_MS) return known.grant
        grants.delete(name)
        const at = monotonic()
        const grant = yield* repo.grant(hash, now())
        if (grant === undefined) return undefined
        if (!grant.isUsed || now() - grant.usedAt >= USE_MS) yield* repo.used(hash, now())
        if (grants.size >= MAX_GRANTS) grants.delete(grants.keys().next().value ?? "")
        grants.set(name, { grant, at })
        return grant
      })

      return Grants.of({
        connect: Effect.fn("Grants.connect")(function*({ challenge, scopes, ...connection }) {
          const code = codeOf(ids.bytes(32))
          const id = ids.make("con")
          const at = now()
          const made = { ...connection, id, scopes: scopeText(scopes) }
          const note = `${id}: ${made.clientHost ?? "a registered client"}, sent to ${
            shownOf(made.redirectUri)
          }, ${made.scopes}`
          const stored = yield* repo.insert(made, at, sha256(code), challenge, at + CODE_MS, note)
          if (!stored) return yield* new Unauthorized()
          yield* repo.endBeyond(made.agentId, id, MAX_CONNECTIONS - 1, at, {
            operator: "server",
            why: "replaced by newer connections"
          })
          yield* Effect.ignore(announce(made, scopes, at))
          return code
        }, Effect.uninterruptible),

        redeem: Effect.fn("Grants.redeem")(({ clientId, code, redirectUri, verifier }) =>
          isCode(code)
            ? exchange(code, "code", (presented) => {
              if (presented.exchanged) return reused(presented)
              const isValid = now() < presented.expiresAt && presented.clientId === clientId &&
                presented.redirectUri === redirectUri &&
                fits(verifier, presented.challenge ?? "")
              return isValid ? issue(code, presented) : Effect.succeed(unknown)
            })
            : Effect.succeed(unknown)
        ),

        refresh: Effect.fn("Grants.refresh")((token, clientId) =>
          isRefreshToken(token)
            ? exchange(
              token,
              "refresh",
              Effect.fnUntraced(function*(presented) {
                if (presented.clientId !== clientId) return unknown
                const successorUsedAt = presented.exchanged
                  ? yield* repo.successorUsedAt(presented.id, sha256(token))
                  : null
                switch (
                  refreshOutcome(
                    { isUsed: presented.exchanged, successorUsedAt, expiresAt: presented.expiresAt },
                    now()
                  )
                ) {
                  case "next":
                  case "same":
                    return yield* issue(token, presented)
                  case "expired":
                    return unknown
                  case "reused":
                    return yield* reused(presented)
                }
              })
            )
            : Effect.succeed(unknown)
        ),

        authenticate: Effect.fnUntraced(function*(token) {
          const grant = isAccessToken(token) ? yield* grantOf(sha256(token)) : undefined
          if (grant === undefined || now() >= grant.expiresAt) return yield* new Unauthorized()
          const agent = yield* agents.byKeyHash(grant.keyHash)
          if (agent === undefined) return yield* new Unauthorized()
          return { agent, connectionId: grant.connectionId, scopes: scopesOf(grant.scopes) }
        }),

        revoke: Effect.fn("Grants.revoke")(function*(token, clientId) {
          if (!isAccessToken(token) && !isRefreshToken(token)) return undefined
          const found = yield* repo.ofToken(sha256(token))
          return found !== undefined && (clientId ?? found.clientId) === found.clientId
            ? yield* end(found.agentId, found.id, "revoked by the host")
            : undefined
        }),

        list: repo.list,
        end: (agentId, id) => end(agentId, id, "disconnected by the agent"),
        endAllOf: Effect.fn("Grants.endAllOf")((agentId, operator) =>
          Effect.flatMap(repo.list(agentId), (connections) => endThese(connections, operator))
        ),
        endWhere: Effect.fn("Grants.endWhere")(function*(selects, operator) {
          let [ended, after] = [0, ""]
          for (
            let page = yield* repo.page(after, BATCH_SIZE);
            page.length > 0;
            page = yield* repo.page(after, BATCH_SIZE)
          ) {
            ended += yield* endThese(page.filter(selects), operator)
            after = page.at(-1)!.id
          }
          return ended
        }),
        removeAgent: Effect.fn("Grants.removeAgent")(function*(agentId) {
          while ((yield* repo.removeAll(agentId, BATCH_SIZE)).length > 0);
        })
      })
    })
  )
}
