import { Database } from "#infrastructure/database/Sql"
import { noSpace } from "#infrastructure/database/SqlValues"
import { comesFrom, networksOf } from "#infrastructure/http/ClientAddress"
import { apiOf } from "#infrastructure/http/Endpoints"
import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { Config } from "#infrastructure/platform/Config"
import { saysNoSpace } from "#infrastructure/platform/disk/DiskSpace"
import { sha256 } from "#infrastructure/platform/Ids"
import { LogThrottle, MINUTE_MS } from "#infrastructure/platform/LogThrottle"
import { buildInfo, metricsText, nodeDrained, nodeReady, socketsOpen } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { ProcessMetrics } from "#infrastructure/platform/ProcessMetrics"
import { Readiness } from "#infrastructure/platform/Readiness"
import { commit, VERSION } from "#infrastructure/platform/Version"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { Unauthorized, UpgradeRequired } from "#infrastructure/wire/WireError"
import { Pages, wantsPage } from "#interfaces/pages/Pages"
import { Clock, Effect, Fiber, FiberSet, Redacted } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import * as PrometheusMetrics from "effect/observability/PrometheusMetrics"
import { SqlClient, SqlError } from "effect/sql"
import { timingSafeEqual } from "node:crypto"
import { NotReady, ServiceApi } from "./ServiceApi.ts"

/** How long the database may take to respond before it counts as unreachable. */
const STORAGE_TIMEOUT = "2 seconds"
/** The shortest time between two test commits, in milliseconds. */
const COMMIT_MS = 1_000

/** The response to programs at `/` (wire.md C.13). */
const alive = { name: "parley", version: VERSION, status: "alive" }

export const ServiceHttp = HttpApiBuilder.group(apiOf(ServiceApi), "service", (handlers) =>
  Effect.gen(function*() {
    const config = yield* Config
    const sql = yield* SqlClient.SqlClient
    const database = yield* Database
    const readiness = yield* Readiness
    const metrics = yield* ProcessMetrics
    const gateway = yield* UpgradeHandler
    yield* socketsOpen.readsIn(gateway.size)
    const build = { version: VERSION, commit: commit() }
    buildInfo.at(build.version, build.commit).set(1)
    const pages = yield* Pages
    const now = monotonicMillis(yield* Clock.Clock)
    let committed = Number.NEGATIVE_INFINITY
    const run = yield* FiberSet.makeRuntime<never, string | undefined, never>()
    const isNear = networksOf(config.PROBE_ADDRESSES)
    const token = config.METRICS_TOKEN === undefined ? undefined : sha256(Redacted.value(config.METRICS_TOKEN))
    const warnings = new LogThrottle(MINUTE_MS)
    const touchStorage = sql`select 1 as one`.pipe(Effect.timeout(STORAGE_TIMEOUT))

    /**
     * Why the database cannot be used; undefined if it can be used. The probe does not queue behind requests, because a
     * long queue is no reason to send requests to another node. At most once a second, the probe also commits a message
     * that nothing reads. Only a commit reveals an unreachable synchronous standby or a full disk.
     */
    const lookAtStorage = Effect.suspend(() => {
      const commit = now() - committed > COMMIT_MS
      return database.probe<{ readonly locked: boolean }>(`
        SELECT CASE WHEN pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN true
          WHEN ${commit} THEN pg_logical_emit_message(true, 'parley', 'ready') IS NULL
          ELSE false END AS locked`).pipe(
        Effect.tap(() =>
          Effect.sync(() => {
            if (commit) committed = now()
          })
        ),
        Effect.timeout(STORAGE_TIMEOUT),
        Effect.match({
          onFailure: (error) =>
            SqlError.isSqlError(error) && noSpace(error) !== undefined
              ? `The database cannot write: ${noSpace(error)}. Free some space.`
              : "The database does not answer or does not commit. Check the database and the network to DATABASE_URL.",
          onSuccess: ([row]) =>
            row?.locked === true
              ? "The database takes no writes: DATABASE_URL leads to a standby, or it is read only."
              : undefined
        })
      )
    })
    /** The running probe. All requests that arrive meanwhile share its result. */
    let looking: Fiber.Fiber<string | undefined> | undefined
    const storageProblem = Effect.suspend(() => {
      const fiber = looking ??= run(lookAtStorage)
      fiber.addObserver(() => {
        looking = undefined
      })
      return Fiber.join(fiber)
    })
    /** Why this node should get no requests. Empty if it is ready. */
    const problems = Effect.map(storageProblem, (problem) => {
      const isFull = problem !== undefined && saysNoSpace(problem)
      const others = readiness.reasons().filter((reason) => !isFull || !saysNoSpace(reason))
      return problem === undefined ? others : [problem, ...others]
    })
    yield* nodeDrained.readsIn(() => readiness.has("drained") || readiness.has("draining") ? 1 : 0)

    return handlers
      .handleRaw("root", ({ request }) =>
        wantsPage(request.headers["accept"])
          ? pages.welcome(request)
          : Effect.succeed(HttpServerResponse.jsonUnsafe(alive, { headers: { vary: "Accept" } })))
      .handle("health", () =>
        touchStorage.pipe(
          Effect.as({ status: "ok" as const, ...build }),
          Effect.catchCause((cause) =>
            Effect.as(warnings.log(Effect.logWarning("Storage cannot be reached", cause)), {
              status: "degraded" as const,
              code: "STORAGE_UNAVAILABLE" as const,
              message: "Storage cannot be reached.",
              ...build
            })
          )
        ))
      .handle("ready", () =>
        Effect.flatMap(problems, (reasons) =>
          reasons.length === 0
            ? Effect.succeed({ status: "ready" as const })
            : Effect.fail(new NotReady({ details: { reason: reasons.join(" ") } }))))
      .handle("metrics", ({ request }) => {
        if (token === undefined && !comesFrom(request, isNear, config.TRUST_PROXY)) {
          return Effect.fail(
            new Unauthorized({
              message:
                "Only the addresses in PROBE_ADDRESSES may read the metrics. Others need METRICS_TOKEN, which is not set."
            })
          )
        }
        if (token !== undefined && !timingSafeEqual(sha256(bearerOf(request.headers["authorization"])), token)) {
          return Effect.fail(new Unauthorized({ message: "The metrics require METRICS_TOKEN as the bearer token." }))
        }
        metrics.refresh()
        return Effect.gen(function*() {
          nodeReady.set((yield* problems).length === 0 ? 1 : 0)
          // The metrics of Effect's cluster are in a separate registry.
          const ofCluster = yield* PrometheusMetrics.format()
          return HttpServerResponse.text(metricsText() + ofCluster, {
            contentType: "text/plain; version=0.0.4; charset=utf-8"
          })
        })
      })
      .handle("socket", () => Effect.fail(new UpgradeRequired()))
  }))
