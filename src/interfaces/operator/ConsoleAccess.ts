import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { ASKS } from "./AuditLog.ts"
import { type AccessRow, COMMAND_TOKEN_MS, ConsoleAccessRepo } from "./ConsoleAccessRepo.ts"

const MINUTE_MS = 60_000
const DAY_MS = 86_400_000

/** How long a one-time link, and a session opened by it, are valid (wire.md O). */
export const LINK_MS = 5 * MINUTE_MS
export const SESSION_MS = 12 * 60 * MINUTE_MS
/** How long after its last check a credential may still read while the database does not answer. */
const REMEMBERED_MS = 5 * MINUTE_MS
const MAX_REMEMBERED = 100
/**
 * Time-outs of the check. The second is for a credential that may read without the database, so that its page shows the
 * outage soon.
 */
const CHECK_TIMEOUT = "2 seconds"
const REMEMBERED_TIMEOUT = "700 millis"

/** A session or token of an operator for the operators' API. */
export interface Access {
  readonly id: string
  readonly kind: "session" | "token"
  readonly operator: string
  /** The name of a program's token; null for a session. */
  readonly name: string | null
  readonly createdAt: number
  readonly lastUsedAt: number | null
  readonly expiresAt: number
}

/** A new link, session or program token. The token itself is shown once and stored nowhere. */
export interface IssuedAccess {
  readonly access: Pick<Access, "id" | "operator" | "name" | "expiresAt">
  readonly token: string
}

/** The prefix of each kind of credential, by which the kind is known before any query. */
const PREFIX = { link: "opl", session: "ops", token: "opt" } as const
const FORM = /^op[lst]_[A-Za-z0-9_-]{43}$/

const isOf = (kind: keyof typeof PREFIX, token: string): boolean => token.startsWith(PREFIX[kind]) && FORM.test(token)

const accessOf = (row: AccessRow): Access => ({ ...row, kind: row.kind === "session" ? "session" : "token" })

/**
 * Sessions, one-time links and program tokens of the operators' API. All are rows, valid on every node. A node only
 * caches the credentials that it has checked in the last 5 minutes. They may read while the database does not answer.
 */
export class ConsoleAccess extends Context.Service<ConsoleAccess, {
  /** Makes a one-time link for this operator. */
  readonly link: (operator: string) => Effect.Effect<IssuedAccess, Unavailable>
  /** Makes a program's token that is valid for `days` days. */
  readonly program: (operator: string, name: string, days: number) => Effect.Effect<IssuedAccess, Unavailable>
  /** Makes a token that is valid for a minute, for one command of `npm run admin`. */
  readonly commandToken: (operator: string) => Effect.Effect<IssuedAccess, Unavailable>
  /** Turns a link's token into a session, once; undefined if the token is unknown, used or expired. */
  readonly redeem: (
    token: string
  ) => Effect.Effect<{ readonly access: Access; readonly token: string } | undefined, Unavailable>
  /**
   * The valid session of a cookie, or the valid program's token; undefined if there is none. With `readsOn`, and while
   * the database does not answer, a credential stays valid for five minutes after this node has checked it.
   */
  readonly check: (
    kind: "session" | "token",
    token: string,
    readsOn: boolean
  ) => Effect.Effect<Access | undefined, Unavailable>
  /** The valid sessions and program tokens, the newest first, without the tokens of `commandToken`. */
  readonly list: Effect.Effect<ReadonlyArray<Access>, Unavailable>
  /** Ends a session or token from the commit on, on every node; false if there is none. */
  readonly end: (id: string, operator: string) => Effect.Effect<boolean, Unavailable>
}>()("parley/operator/ConsoleAccess") {
  static readonly layer = Layer.effect(
    ConsoleAccess,
    Effect.gen(function*() {
      const ids = yield* Ids
      const repo = yield* ConsoleAccessRepo
      const clock = yield* Clock.Clock
      const now = () => clock.currentTimeMillisUnsafe()
      const monotonic = monotonicMillis(clock)
      const remembered = new Map<string, { readonly access: Access; readonly at: number }>()

      const fresh = (kind: keyof typeof PREFIX) => {
        const token = `${PREFIX[kind]}_${ids.bytes(32).toString("base64url")}`
        return { token, hash: sha256(token), id: `${PREFIX[kind]}_${ids.bytes(9).toString("hex")}` }
      }

      const issue = Effect.fnUntraced(function*(
        kind: "link" | "token",
        operator: string,
        name: string | null,
        lifeMs: number,
        action: string
      ) {
        const { hash, id, token } = fresh(kind)
        const at = now()
        const expiresAt = at + lifeMs
        yield* repo.insert({ id, kind, hash, operator, name, at, expiresAt, action })
        return { access: { id, operator, name, expiresAt }, token }
      })

      const remember = (token: string, access: Access | undefined): void => {
        remembered.delete(token)
        if (access === undefined) return
        remembered.set(token, { access, at: monotonic() })
        for (const oldest of remembered.keys()) {
          if (remembered.size <= MAX_REMEMBERED) break
          remembered.delete(oldest)
        }
      }

      return ConsoleAccess.of({
        link: (operator) => issue("link", operator, null, LINK_MS, "make console link"),
        program: (operator, name, days) => issue("token", operator, name, days * DAY_MS, "make program token"),
        commandToken: (operator) => issue("token", operator, "npm run admin", COMMAND_TOKEN_MS, ASKS),
        redeem: Effect.fnUntraced(function*(token) {
          if (!isOf("link", token)) return undefined
          const session = fresh("session")
          const at = now()
          const row = yield* repo.redeem({
            link: sha256(token),
            id: session.id,
            hash: session.hash,
            at,
            expiresAt: at + SESSION_MS
          })
          return row === undefined ? undefined : { access: accessOf(row), token: session.token }
        }),
        check: Effect.fnUntraced(function*(kind, token, readsOn) {
          if (!isOf(kind, token)) return undefined
          const before = remembered.get(token)
          const readable = readsOn && before !== undefined && monotonic() - before.at < REMEMBERED_MS &&
              before.access.expiresAt > now()
            ? before.access
            : undefined
          const timeout = readable === undefined ? CHECK_TIMEOUT : REMEMBERED_TIMEOUT
          const found = yield* Effect.result(Effect.timeoutOption(repo.find(kind, sha256(token), now()), timeout))
          if (found._tag === "Success" && found.success._tag === "Some") {
            const row = found.success.value
            const access = row === undefined ? undefined : accessOf(row)
            remember(token, access)
            return access
          }
          return readable ?? (yield* Effect.fail(found._tag === "Failure" ? found.failure : new Unavailable()))
        }),
        list: Effect.suspend(() => Effect.map(repo.living(now()), (rows) => rows.map(accessOf))),
        end: (id, operator) => Effect.suspend(() => repo.end(id, operator, now()))
      })
    })
  ).pipe(Layer.provide(ConsoleAccessRepo.layer))
}
