import { Clock, Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { AuditLog } from "#doors/operator/AuditLog"
import { ConsoleAccess } from "#doors/operator/ConsoleAccess"
import { Readiness } from "#ground/platform/Readiness"
import { iso } from "#ground/wire/Text"
import { consoleApiOf, credentialOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { Nodes } from "./Nodes.ts"
import { NodesApi } from "./NodesApi.ts"
import { type Overview, totalsOf } from "./Overview.ts"
import { Parts } from "./Parts.ts"

/** How long all streams share one overview: a little less than the second between two events. */
const SHARED = "800 millis"

const event = (name: string, data: unknown): Uint8Array => Buffer.from(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`)

export const NodesHttp = HttpApiBuilder.group(consoleApiOf(NodesApi), "nodes", (handlers) =>
  Effect.gen(function*() {
    const access = yield* ConsoleAccess
    const audit = yield* AuditLog
    const nodes = yield* Nodes
    const parts = yield* Parts
    const readiness = yield* Readiness

    const overview = Effect.fnUntraced(function*(history: boolean): Effect.fn.Return<Overview> {
      const [all, database, redis, files, mail] = yield* Effect.all(
        [nodes.all(history), parts.database, parts.redis, parts.files, parts.mail],
        { concurrency: "unbounded" }
      )
      const at = iso(yield* Clock.currentTimeMillis)
      return { at, node: nodes.self(), nodes: all, totals: totalsOf(all, at), database, redis, files, mail }
    })
    const shared = yield* Effect.cachedWithTTL(overview(false), SHARED)

    /** The reason to end a stream; undefined if it may continue. A session that cannot be checked may continue for 5 minutes. */
    const ended = (kind: "session" | "token", token: string): Effect.Effect<string | undefined> =>
      readiness.has("draining")
        ? Effect.succeed("The server is shutting down.")
        : Effect.match(access.check(kind, token, true), {
          onFailure: () => "The session could not be checked.",
          onSuccess: (still) => still === undefined ? "The session is over." : undefined
        })

    const noted = (action: string, detail: string) =>
      Effect.flatMap(CurrentOperator, ({ operator }) => audit.note({ operator, action, handle: null, detail }))

    return handlers.handleAll({
      overview: () => overview(true),
      stream: Effect.fnUntraced(function*({ request }) {
        const { kind, token } = credentialOf(request)
        const events = Stream.unfold("first" as "first" | "next" | "over", Effect.fnUntraced(function*(state) {
          if (state === "over") return undefined
          if (state === "next") {
            yield* Effect.sleep("1 second")
            // Both run at once, so that an outage of the database is shown without a delay.
            const [reason, now] = yield* Effect.all([ended(kind, token), shared], { concurrency: "unbounded" })
            return reason === undefined ? [event("overview", now), "next"] as const : [event("end", { reason }), "over"] as const
          }
          return [event("overview", yield* shared), "next"] as const
        }))
        return HttpServerResponse.stream(events, {
          contentType: "text/event-stream",
          headers: { "cache-control": "no-store, no-transform", "x-accel-buffering": "no" }
        })
      }),
      node: ({ params }) => nodes.one(params.address),
      drain: ({ params }) => Effect.andThen(noted("drain", params.address), nodes.drain(params.address)),
      undrain: ({ params }) => Effect.andThen(noted("undrain", params.address), nodes.undrain(params.address)),
      logLevel: ({ params, payload }) =>
        Effect.andThen(noted("set log level", `${params.address} ${payload.level}`), nodes.logLevel(params.address, payload.level))
    })
  }))
