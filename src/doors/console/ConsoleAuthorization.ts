import { Cause, Context, Effect, Layer } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApi, type HttpApiGroup, HttpApiMiddleware } from "effect/http-api"
import { Budgets } from "#domain/auth/Budgets"
import { AuditLog, withoutAddresses } from "#doors/operator/AuditLog"
import { type Access, ConsoleAccess } from "#doors/operator/ConsoleAccess"
import { Config, type Settings } from "#ground/platform/Config"
import { bearerOf } from "#ground/wire/Bearer"
import { commonErrors, Forbidden, NotFound, RateLimited, Unavailable } from "#ground/wire/WireError"
import { lowerCase } from "#ground/wire/Text"
import { answer } from "#ground/wire/WireErrors"

export const COOKIE = "parley_console"

/** The answer to every caller who is no operator. It is the same as for a path that does not exist. */
export const hidden = (): NotFound => new NotFound({ message: "This API has no such path." })

/** The operator who makes this request. */
export class CurrentOperator extends Context.Service<CurrentOperator, Access>()("parley/console/CurrentOperator") {}

/** The headers of every answer of this API. */
export const NO_STORE = { "cache-control": "no-store", "referrer-policy": "no-referrer", "x-content-type-options": "nosniff" }

/** Turns every failure into its documented answer, and keeps all answers out of caches. It is the outermost middleware. */
export class ConsoleErrors extends HttpApiMiddleware.Service<ConsoleErrors>()("parley/console/ConsoleErrors", {
  error: commonErrors
}) {
  static readonly layer = Layer.succeed(ConsoleErrors, (httpEffect) =>
    Effect.map(Effect.catchCause(httpEffect, (cause) => answer(cause)), (response) => HttpServerResponse.setHeaders(response, { ...NO_STORE, ...response.headers })))
}

/** A group of endpoints as a separate API (compare `apiOf`). */
export const consoleApiOf = <Group extends HttpApiGroup.Constraint>(group: Group) =>
  HttpApi.make("parley-console").add(group).middleware(ConsoleErrors)

/** The origin whose pages may make changes with the cookie: this server's own. */
export const ownOrigin = (config: Settings, host: string | undefined): string =>
  config.PUBLIC_URL === undefined ? `http://${host ?? ""}` : new URL(config.PUBLIC_URL).origin

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

/** How long writing the audit row of a read, and of a refused change, may take. */
const LOOK_TIMEOUT = "700 millis"
const CHANGE_TIMEOUT = "2 seconds"

/** The longest part of a URL in the audit log, in UTF-16 units. */
const DETAIL_LENGTH = 300

const detailOf = (url: string): string | null => url.includes("?") ? withoutAddresses(url.slice(url.indexOf("?"))).slice(0, DETAIL_LENGTH) : null

/**
 * Admits only operators, by a session's cookie or a program's token (wire.md O.1). For a read, it writes the audit row before the
 * answer. It also writes the audit row of a refused change. The handler of a change writes the change's row in the same commit.
 */
export class ConsoleAuthorization extends HttpApiMiddleware.Service<ConsoleAuthorization, { provides: CurrentOperator }>()(
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

      return (httpEffect, { endpoint }) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
          Effect.gen(function*() {
            yield* budgets.ofAddress(request)
            const looks = request.method === "GET" || request.method === "HEAD"
            const { kind, token } = credentialOf(request)
            const operator = yield* access.check(kind, token, looks)
            if (operator === undefined) return yield* hidden()
            if (!looks && kind === "session" && request.headers["origin"] !== ownOrigin(config, request.headers["host"])) {
              return yield* new Forbidden({ message: "A change must come from a page of this server (Origin)." })
            }
            const noted = (action: string, detail: string | null) => {
              const note = { operator: operator.operator, action, handle: handleIn(request.url), detail }
              // Operators must be able to see why a database accepts no writes. In that case, the note goes to the server's log.
              return Effect.catch(Effect.timeout(Effect.catchDefect(audit.note(note), Effect.fail), looks ? LOOK_TIMEOUT : CHANGE_TIMEOUT), (error) =>
                Effect.logWarning("A call by an operator could not be written into the audit log", error).pipe(Effect.annotateLogs(note)))
            }
            if (looks) yield* noted(`show ${endpoint.identifier}`, detailOf(request.url))
            const answered = Effect.provideService(httpEffect, CurrentOperator, operator)
            return yield* looks
              ? answered
              // A request that ended because its caller disconnected was not refused.
              : Effect.onError(answered, (cause) =>
                Cause.hasInterruptsOnly(cause) ? Effect.void : noted(`refused ${endpoint.identifier}`, withoutAddresses(request.url).slice(0, DETAIL_LENGTH)))
          }))
    })
  )
}
