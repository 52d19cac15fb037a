import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { ASKS } from "./AuditLog.ts"
import { type AccessRow, COMMAND_TOKEN_MS, ConsoleAccessRepo, type Hashes } from "./ConsoleAccessRepo.ts"
import type { Role } from "./Role.ts"

const MINUTE_MS = 60_000
const DAY_MS = 86_400_000

/** How long a one-time link is valid, and how long a session is valid, in milliseconds (wire.md O). */
export const LINK_MS = 5 * MINUTE_MS
export const SESSION_MS = 12 * 60 * MINUTE_MS
/** The name of the sessions that a proxy has opened. */
const BY_PROXY = "proxy"
/** How long after its last check a credential may still read while the database does not respond, in milliseconds. */
const REMEMBERED_MS = 5 * MINUTE_MS
const MAX_REMEMBERED = 100
/**
 * The time-outs of the check. `REMEMBERED_TIMEOUT` applies to a credential that may read without the database, so that
 * its page shows the outage soon.
 */
const CHECK_TIMEOUT = "2 seconds"
const REMEMBERED_TIMEOUT = "700 millis"

/** An operator's session or token for the operators' API. */
export interface Access {
  readonly id: string
  readonly kind: "session" | "token"
  /** The person, with the role unless it is `operator`, as the audit log names them. */
  readonly operator: string
  readonly role: Role
  /** The name of a program token; `proxy` for a session that a proxy has opened; null for other sessions. */
  readonly name: string | null
  readonly createdAt: number
  readonly lastUsedAt: number | null
  readonly expiresAt: number
}

/** A new link, session or program token. The token itself is shown once and is not stored. */
export interface IssuedAccess {
  readonly access: Pick<Access, "id" | "operator" | "name" | "expiresAt">
  readonly token: string
}

/** The prefix of each kind of credential. It shows the kind without a query. */
const PREFIX = { link: "opl", session: "ops", token: "opt" } as const
const FORM = /^op[lst]_[A-Za-z0-9_-]{43}$/

/** Whether a proxy has opened this session. Then it is valid only for requests in which the proxy names the person. */
export const isByProxy = ({ kind, name }: Access): boolean => kind === "session" && name === BY_PROXY

/** Whether a request comes from the command line, also through another server's HTTP port. */
export const isFromCommandLine = ({ createdAt, expiresAt }: Access): boolean =>
  expiresAt - createdAt <= COMMAND_TOKEN_MS

/** The hash under which a token of this role is stored. A server that does not know roles looks for that of an operator. */
const hashOf = (token: string, role: Role): Buffer => sha256(role === "operator" ? token : `${role}:${token}`)

const hashesOf = (token: string): Hashes => ({
  viewer: hashOf(token, "viewer"),
  moderator: hashOf(token, "moderator"),
  operator: hashOf(token, "operator")
})

const isOf = (kind: keyof typeof PREFIX, token: string): boolean => token.startsWith(PREFIX[kind]) && FORM.test(token)

/** How the audit log names a person with a role. */
export const namedOf = (person: string, role: Role): string => role === "operator" ? person : `${person} (${role})`

const accessOf = (row: AccessRow): Access => ({
  ...row,
  operator: namedOf(row.operator, row.role),
  kind: row.kind === "session" ? "session" : "token"
})

/**
 * Sessions, one-time links and program tokens of the operators' API. All are rows in the database and are valid on
 * every node. A node caches only the credentials that it has checked in the last five minutes. These may read while the
 * database does not respond.
 */
export class ConsoleAccess extends Context.Service<ConsoleAccess, {
  /** Creates a one-time link for this person. `maker` makes it. */
  readonly link: (maker: string, person: string, role: Role) => Effect.Effect<IssuedAccess, Unavailable>
  /** Creates a program token that is valid for `days` days. */
  readonly program: (
    operator: string,
    name: string,
    days: number,
    role: Role
  ) => Effect.Effect<IssuedAccess, Unavailable>
  /** Creates a token for one command of `npm run admin`. It is valid for a minute. */
  readonly commandToken: (operator: string) => Effect.Effect<IssuedAccess, Unavailable>
  /** Creates a session of a person whom a proxy has signed in. */
  readonly byProxy: (
    person: string,
    role: Role
  ) => Effect.Effect<{ readonly access: Access; readonly token: string }, Unavailable>
  /** Exchanges a link's token for a session; undefined if the token is unknown, used or expired. */
  readonly redeem: (
    token: string
  ) => Effect.Effect<{ readonly access: Access; readonly token: string } | undefined, Unavailable>
  /**
   * The valid session of a cookie, or the valid program token; undefined if there is none. While the database does not
   * respond, `readsOn` makes a credential count as valid for five minutes after its last check by this node.
   */
  readonly check: (
    kind: "session" | "token",
    token: string,
    readsOn: boolean
  ) => Effect.Effect<Access | undefined, Unavailable>
  /** The valid sessions and program tokens, newest first. Tokens issued by `commandToken` are not included. */
  readonly list: Effect.Effect<ReadonlyArray<Access>, Unavailable>
  /** Ends a session or token. It is invalid on every node after the commit. Returns false if it does not exist. */
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
        return { token, id: `${PREFIX[kind]}_${ids.bytes(9).toString("hex")}` }
      }

      const insert = Effect.fnUntraced(function*(given: {
        readonly kind: "link" | "session" | "token"
        readonly operator: string
        readonly role: Role
        readonly name: string | null
        readonly lifeMs: number
        readonly action: string
        readonly maker: string
        readonly detail: string | null
      }) {
        const { lifeMs, ...row } = given
        const { id, token } = fresh(row.kind)
        const at = now()
        const expiresAt = at + lifeMs
        yield* repo.insert({ ...row, id, hash: hashOf(token, row.role), at, expiresAt })
        return { access: { id, operator: row.operator, name: row.name, createdAt: at, expiresAt }, token }
      })
      const issue = (
        kind: "link" | "token",
        operator: string,
        role: Role,
        name: string | null,
        lifeMs: number,
        action: string,
        maker = operator
      ) => {
        const detail = [
          ...name === null ? [] : [name],
          ...maker === operator ? [] : [`for ${JSON.stringify(operator)}`],
          ...role === "operator" ? [] : [`as ${role}`]
        ].join(", ")
        return insert({ kind, operator, role, name, lifeMs, action, maker, detail: detail === "" ? null : detail })
      }

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
        link: (maker, person, role) => issue("link", person, role, null, LINK_MS, "make console link", maker),
        program: (operator, name, days, role) =>
          issue("token", operator, role, name, days * DAY_MS, "make program token"),
        commandToken: (operator) => issue("token", operator, "operator", "npm run admin", COMMAND_TOKEN_MS, ASKS),
        byProxy: Effect.fnUntraced(function*(person, role) {
          const maker = namedOf(person, role)
          const made = yield* insert({
            kind: "session",
            operator: person,
            role,
            name: BY_PROXY,
            lifeMs: SESSION_MS,
            action: "open console session",
            maker,
            detail: "signed in by the proxy"
          })
          const access: Access = { ...made.access, kind: "session", operator: maker, role, lastUsedAt: null }
          return { access, token: made.token }
        }),
        redeem: Effect.fnUntraced(function*(token) {
          if (!isOf("link", token)) return undefined
          const session = fresh("session")
          const at = now()
          const row = yield* repo.redeem({
            links: hashesOf(token),
            id: session.id,
            hashes: hashesOf(session.token),
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
          const found = yield* Effect.result(Effect.timeoutOption(repo.find(kind, hashesOf(token), now()), timeout))
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
