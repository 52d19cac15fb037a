import { Budgets } from "#domain/auth/Budgets"
import { ownOrigin } from "#infrastructure/http/Origins"
import { Config } from "#infrastructure/platform/Config"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { lowerCase } from "#infrastructure/wire/Text"
import { UncachedErrors } from "#infrastructure/wire/Uncached"
import { Forbidden, NotFound, RateLimited, Unavailable } from "#infrastructure/wire/WireError"
import { AuditLog, withoutAddresses } from "#interfaces/operator/AuditLog"
import { type Access, ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { Cause, Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApi, type HttpApiGroup, HttpApiMiddleware } from "effect/http-api"

export const COOKIE = "parley_console"

/** The answer to every caller who is no operator. It is the same as for a path that does not exist. */
export const hidden = (): NotFound => new NotFound({ message: "This API has no such path." })

/** The operator who makes this request. */
export class CurrentOperator extends Context.Service<CurrentOperator, Access>()("parley/console/CurrentOperator") {}

/**
 * The operator of a request by the command line: on the Unix socket in DATA_DIR, which only the server's user can open,
 * or inside the command's own process. Null for all other requests, which need a session or a token.
 */
export const CommandLine = Context.Reference<string | null>("parley/console/CommandLine", { defaultValue: () => null })

/** The name of the command line in the audit log. */
const COMMAND_LINE = "npm run admin"

/** Annotates an endpoint whose handler writes all rows of the audit log, also the row of a refusal. */
export const OwnAudit = Context.Reference("parley/console/OwnAudit", { defaultValue: () => false })

/** A group of endpoints as a separate API (compare `apiOf`). */
export const consoleApiOf = <Group extends HttpApiGroup.Constraint>(group: Group) =>
  HttpApi.make("parley-console").add(group).middleware(UncachedErrors)

const accessOf = (operator: string): Access => ({
  id: "",
  kind: "token",
  operator,
  name: COMMAND_LINE,
  createdAt: 0,
  lastUsedAt: null,
  expiresAt: 0
})

const AGENT = /^\/console\/api\/agents\/([^/?]+)/

/** The handle that a request is about, from its path or its query; null if there is none. */
const handleIn = (url: string): string | null => {
  const named = AGENT.exec(url)?.[1]
  if (named !== undefined) return lowerCase(decodeURIComponent(named).trim().replace(/^@/, ""))
  const asked = url.includes("?") ? new URLSearchParams(url.slice(url.indexOf("?"))).get("agent") : null
  return asked === null ? null : lowerCase(asked.trim().replace(/^@/, ""))
}

/** The credential of a request: a program's token, or else a session's cookie, which may be empty. */
export const credentialOf = (
  request: HttpServerRequest.HttpServerRequest
): { readonly kind: "session" | "token"; readonly token: string } => {
  const bearer = bearerOf(request.headers["authorization"])
  return bearer === "" ? { kind: "session", token: request.cookies[COOKIE] ?? "" } : { kind: "token", token: bearer }
}

/** Timeout for writing the audit row of a read or a refused change. */
const LOOK_TIMEOUT = "700 millis"
const CHANGE_TIMEOUT = "2 seconds"

/** The longest part of a URL in the audit log, in UTF-16 units. */
const DETAIL_LENGTH = 300

const detailOf = (url: string): string | null =>
  url.includes("?") ? withoutAddresses(url.slice(url.indexOf("?"))).slice(0, DETAIL_LENGTH) : null

/**
 * Admits only operators, by a session's cookie or a program's token (wire.md O.1), and the command line. For a read, it
 * writes the audit row before the answer. It also writes the audit row of a refused change. The handler of a change
 * writes the change's row in the same commit.
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

      const admit = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest, looks: boolean) {
        yield* budgets.ofAddress(request)
        const { kind, token } = credentialOf(request)
        const operator = yield* access.check(kind, token, looks)
        if (operator === undefined) return yield* hidden()
        if (!looks && kind === "session" && request.headers["origin"] !== ownOrigin(config, request.headers["host"]))
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
              // Operators must be able to see why a database accepts no writes. In that case, the note goes to the
              // server's log.
              return Effect.catch(
                Effect.timeout(
                  Effect.catchDefect(audit.note(note), Effect.fail),
                  looks ? LOOK_TIMEOUT : CHANGE_TIMEOUT
                ),
                (error) =>
                  Effect.logWarning("A call by an operator could not be written into the audit log", error).pipe(
                    Effect.annotateLogs(note)
                  )
              )
            }
            const handled = Effect.provideService(httpEffect, CurrentOperator, operator)
            // A change by the command line is carried out to its end, also if the command is interrupted.
            const answered = local === null || looks ? handled : Effect.uninterruptible(handled)
            if (Context.get(endpoint.annotations, OwnAudit)) return yield* answered
            if (looks) yield* noted(`show ${endpoint.identifier}`, detailOf(request.url))
            return yield* looks
              ? answered
              // A request that ended because its caller disconnected was not refused.
              : Effect.onError(answered, (cause) =>
                Cause.hasInterruptsOnly(cause)
                  ? Effect.void
                  : noted(`refused ${endpoint.identifier}`, withoutAddresses(request.url).slice(0, DETAIL_LENGTH)))
          }))
    })
  )
}
