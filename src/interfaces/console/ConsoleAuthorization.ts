import { Budgets } from "#domain/auth/Budgets"
import { cookieOf } from "#infrastructure/http/Cookie"
import { ownOrigin } from "#infrastructure/http/Origins"
import { Config } from "#infrastructure/platform/Config"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { lowerCase } from "#infrastructure/wire/Text"
import { UncachedErrors } from "#infrastructure/wire/Uncached"
import { Forbidden, NotFound, RateLimited, Unavailable } from "#infrastructure/wire/WireError"
import { AuditLog, loggedInstead, withoutAddresses } from "#interfaces/operator/AuditLog"
import { type Access, ConsoleAccess, isByProxy, namedOf } from "#interfaces/operator/ConsoleAccess"
import { Role } from "#interfaces/operator/Role"
import { Cause, Context, Effect, Layer, Result } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApi, type HttpApiGroup, HttpApiMiddleware } from "effect/http-api"
import { personNamedBy } from "./ProxySignIn.ts"

export const COOKIE = "parley_console"

/** The error for every caller who is not an operator. It is the same error as for a path that does not exist. */
export const hidden = (): NotFound => new NotFound({ message: "This API has no such path." })

/** The operator who makes this request. */
export class CurrentOperator extends Context.Service<CurrentOperator, Access>()("parley/console/CurrentOperator") {}

/**
 * The operator of a request from the command line; null for all other requests, which need a session or a token. The
 * command line calls over the Unix socket in DATA_DIR, which only the server's user can open, or inside its own
 * process.
 */
export const CommandLine = Context.Reference<string | null>("parley/console/CommandLine", { defaultValue: () => null })

/** How the audit log names the command line. */
const COMMAND_LINE = "npm run admin"

/** Annotates an endpoint whose handler writes all its audit rows, including the row of a refusal. */
export const OwnAudit = Context.Reference("parley/console/OwnAudit", { defaultValue: () => false })

/** Annotates an endpoint with the least role that may call it. By default, a viewer may read, and an operator change. */
export const Needs = Context.Reference<Role | null>("parley/console/Needs", { defaultValue: () => null })

/** Whether a role may call an endpoint (wire.md O.1). */
export const mayCall = (
  role: Role,
  { annotations, method }: { readonly annotations: Context.Context<never>; readonly method: string }
): boolean => {
  const needed = Context.get(annotations, Needs) ?? (method === "GET" ? "viewer" : "operator")
  return Role.literals.indexOf(role) >= Role.literals.indexOf(needed)
}

/** Makes a separate API of a group of endpoints (compare `apiOf`). */
export const consoleApiOf = <Group extends HttpApiGroup.Constraint>(group: Group) =>
  HttpApi.make("parley-console").add(group).middleware(UncachedErrors)

const accessOf = (operator: string): Access => ({
  id: "",
  kind: "token",
  operator,
  role: "operator",
  name: COMMAND_LINE,
  createdAt: 0,
  lastUsedAt: null,
  expiresAt: 0
})

const API = "/console/api"
const AGENT = /^\/console\/api\/agents\/([^/?]+)/

/** The handle in the path or query of a request; null if there is none. */
const handleIn = (url: string): string | null => {
  const named = AGENT.exec(url)?.[1]
  if (named !== undefined) return lowerCase(decodeURIComponent(named).trim().replace(/^@/, ""))
  const asked = url.includes("?") ? new URLSearchParams(url.slice(url.indexOf("?"))).get("agent") : null
  return asked === null ? null : lowerCase(asked.trim().replace(/^@/, ""))
}

/** The credential of a request: a program token or, without one, a session's cookie, which may be empty. */
export const credentialOf = (
  request: HttpServerRequest.HttpServerRequest
): { readonly kind: "session" | "token"; readonly token: string } => {
  const bearer = bearerOf(request.headers["authorization"])
  return bearer === ""
    ? { kind: "session", token: cookieOf(request.headers["cookie"], COOKIE) ?? "" }
    : { kind: "token", token: bearer }
}

/** The time-outs for writing the audit row of a read and of a refused change. */
const LOOK_TIMEOUT = "700 millis"
const CHANGE_TIMEOUT = "2 seconds"

/** How many UTF-16 units of a URL the audit log stores. */
const DETAIL_LENGTH = 300

/** The detail in the audit row of a read: the query, and also the path if it contains an id. */
const detailOf = (url: string, path: string): string | null => {
  const from = /:(?!handle)/.test(path) ? API.length : url.includes("?") ? url.indexOf("?") : url.length
  return withoutAddresses(url.slice(from)).slice(0, DETAIL_LENGTH) || null
}

/**
 * Admits operators with a session's cookie or a program token (wire.md O.1), and the command line. A session that a
 * proxy has opened counts only while the proxy names its person. Writes the audit row of a read before the response, and
 * the audit row of a refused change. The handler of a change writes the audit row of the change in the same commit.
 */
export class ConsoleAuthorization
  extends HttpApiMiddleware.Service<ConsoleAuthorization, { provides: CurrentOperator }>()(
    "parley/console/ConsoleAuthorization",
    { error: [NotFound, Forbidden, RateLimited, Unavailable] }
  ) {
  static readonly layer = Layer.effect(
    ConsoleAuthorization,
    Effect.gen(function*() {
      const access = yield* ConsoleAccess
      const audit = yield* AuditLog
      const budgets = yield* Budgets
      const config = yield* Config
      const personOf = personNamedBy(config)

      const admit = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest, looks: boolean) {
        yield* budgets.ofAddress(request)
        const { kind, token } = credentialOf(request)
        const operator = yield* access.check(kind, token, looks)
        if (operator === undefined) return yield* hidden()
        if (isByProxy(operator)) {
          const named = personOf(request)
          if (Result.isFailure(named) || namedOf(named.success.person, named.success.role) !== operator.operator)
            return yield* hidden()
        }
        if (
          !looks && operator.kind === "session" &&
          request.headers["origin"] !== ownOrigin(config, request.headers["host"])
        )
          return yield* new Forbidden({ message: "A change must come from a page of this server (Origin)." })
        return operator
      })

      return (httpEffect, { endpoint }) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
          Effect.gen(function*() {
            const looks = request.method === "GET" || request.method === "HEAD"
            const local = yield* CommandLine
            const operator = local === null ? yield* admit(request, looks) : accessOf(local)
            const noted = (action: string, url: string | null) => {
              const detail = local === null ? url : url === null ? COMMAND_LINE : `${COMMAND_LINE} ${url}`
              const note = { operator: operator.operator, action, handle: handleIn(request.url), detail }
              return Effect.catch(
                Effect.timeout(
                  Effect.catchDefect(audit.note(note), Effect.fail),
                  looks ? LOOK_TIMEOUT : CHANGE_TIMEOUT
                ),
                loggedInstead(note)
              )
            }
            if (!mayCall(operator.role, endpoint)) {
              yield* noted(`refused ${endpoint.identifier}`, withoutAddresses(request.url).slice(0, DETAIL_LENGTH))
              return yield* new Forbidden({ message: `The role ${operator.role} may not do this.` })
            }
            const handled = Effect.provideService(httpEffect, CurrentOperator, operator)
            // A change from the command line is completed even if the command is interrupted.
            const answered = local === null || looks ? handled : Effect.uninterruptible(handled)
            if (Context.get(endpoint.annotations, OwnAudit)) return yield* answered
            if (looks) yield* noted(`show ${endpoint.identifier}`, detailOf(request.url, endpoint.path))
            return yield* looks
              ? answered
              // A request that has ended because its caller disconnected was not refused.
              : Effect.onError(answered, (cause) =>
                Cause.hasInterruptsOnly(cause)
                  ? Effect.void
                  : noted(`refused ${endpoint.identifier}`, withoutAddresses(request.url).slice(0, DETAIL_LENGTH)))
          }))
    })
  )
}
