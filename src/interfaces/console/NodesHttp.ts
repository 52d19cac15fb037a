import { Config, effective, Origins } from "#infrastructure/platform/Config"
import { Readiness } from "#infrastructure/platform/Readiness"
import { iso } from "#infrastructure/wire/Text"
import { Backups } from "#interfaces/operator/Backups"
import { ConsoleAccess, isByProxy } from "#interfaces/operator/ConsoleAccess"
import { GrantAdmin } from "#interfaces/operator/GrantAdmin"
import { NodeProblems } from "#interfaces/operator/NodeProblems"
import { Nodes } from "#interfaces/operator/Nodes"
import type { NodeShown } from "#interfaces/operator/Overview"
import { Effect, Option, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { consoleApiOf, credentialOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { NodesApi } from "./NodesApi.ts"

/** How long all streams share one overview. It is slightly shorter than the second between two events. */
const CACHE_TTL = "800 millis"
/** After how many events a stream of a session by a proxy ends, so that the proxy admits the person to the next one. */
const PROXY_EVENTS = 60
/** How long the overview waits for the number of connections. */
const COUNT_TIMEOUT = "800 millis"

const event = (name: string, data: unknown): Uint8Array =>
  Buffer.from(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`)

export const NodesHttp = HttpApiBuilder.group(consoleApiOf(NodesApi), "nodes", (handlers) =>
  Effect.gen(function*() {
    const access = yield* ConsoleAccess
    const backups = yield* Backups
    const config = yield* Config
    const connections = yield* GrantAdmin
    const nodes = yield* Nodes
    const origins = yield* Origins
    const problems = yield* NodeProblems
    const readiness = yield* Readiness

    /** The number of connections; null if the database does not respond in time. */
    const counted = Effect.timeoutOption(connections.count, COUNT_TIMEOUT).pipe(
      Effect.map(Option.getOrNull),
      Effect.catchCause(() => Effect.succeed(null))
    )
    const shared = yield* Effect.cachedWithTTL(nodes.overview(false), CACHE_TTL)

    /**
     * Why a stream must end; undefined if it may continue. If a session cannot be checked, its stream may continue for
     * five minutes.
     */
    const ended = (kind: "session" | "token", token: string): Effect.Effect<string | undefined> =>
      readiness.has("draining")
        ? Effect.succeed("The server is shutting down.")
        : Effect.match(access.check(kind, token, true), {
          onFailure: () => "The session could not be checked.",
          onSuccess: (still) => still === undefined ? "The session is over." : undefined
        })

    const ordered = <E>(order: (operator: string) => Effect.Effect<NodeShown, E>) =>
      Effect.flatMap(CurrentOperator, ({ operator }) => order(operator))

    return handlers.handleAll({
      overview: () =>
        Effect.map(
          Effect.all([nodes.overview(true), counted], { concurrency: "unbounded" }),
          ([overview, live]) => ({ ...overview, connections: live })
        ),
      stream: Effect.fnUntraced(function*({ request }) {
        const { kind, token } = credentialOf(request)
        const last = isByProxy(yield* CurrentOperator) ? PROXY_EVENTS : Infinity
        const events = Stream.unfold(
          0 as number | "over",
          Effect.fnUntraced(function*(sent) {
            if (sent === "over") return undefined
            if (sent >= last) return [event("end", { reason: "The proxy is asked again." }), "over"] as const
            if (sent > 0) {
              yield* Effect.sleep("1 second")
              // Run both at once, so that an outage of the database is shown without a delay.
              const [reason, now] = yield* Effect.all([ended(kind, token), shared], { concurrency: "unbounded" })
              return reason === undefined
                ? [event("overview", now), sent + 1] as const
                : [event("end", { reason }), "over"] as const
            }
            return [event("overview", yield* shared), 1] as const
          })
        )
        return HttpServerResponse.stream(events, {
          contentType: "text/event-stream",
          headers: { "cache-control": "no-store, no-transform", "x-accel-buffering": "no" }
        })
      }),
      node: ({ params }) => nodes.one(params.address),
      problems: ({ params }) =>
        Effect.map(problems.of(params.address), (problems) => ({
          problems: problems.map(({ at, ...problem }) => ({ at: iso(at), ...problem }))
        })),
      settings: () =>
        Effect.sync(() => ({
          node: nodes.self(),
          settings: effective(config, origins).map(({ isDefault, ...setting }) => ({
            ...setting,
            is_default: isDefault
          }))
        })),
      backups: Effect.fnUntraced(function*() {
        const schedule = yield* backups.schedule
        return {
          every_hours: schedule?.everyHours ?? null,
          place: schedule?.place ?? null,
          keep: schedule?.keep ?? null,
          problem: schedule?.problem ?? null,
          backups: schedule?.backups.toReversed().map(({ at, bytes, name }) => ({ name, at: iso(at), bytes })) ?? []
        }
      }),
      drain: ({ params }) => ordered((operator) => nodes.drain(params.address, operator)),
      undrain: ({ params }) => ordered((operator) => nodes.undrain(params.address, operator)),
      logLevel: ({ params, payload }) => ordered((operator) => nodes.logLevel(params.address, payload.level, operator))
    })
  }))
