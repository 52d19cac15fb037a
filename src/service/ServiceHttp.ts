import { Effect, Metric, Redacted } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { PrometheusMetrics } from "effect/observability"
import { SqlClient } from "effect/sql"
import { timingSafeEqual } from "node:crypto"
import { Api } from "../Api.ts"
import { Config } from "../platform/Config.ts"
import { sha256 } from "../platform/Ids.ts"
import { ProcessMetrics } from "../platform/Telemetry.ts"
import { Unauthorized, UpgradeRequired } from "../platform/WireError.ts"
import { Gateway } from "../realtime/Gateway.ts"
import { Readiness } from "./Readiness.ts"
import { NotReady } from "./ServiceApi.ts"
import { VERSION } from "./Version.ts"

/** How long storage may take to answer before it counts as away. */
const STORAGE_TIMEOUT = "2 seconds"

const socketsOpen = Metric.gauge("sockets_open", { description: "WebSockets held by this node" })

/** The routes for operators and tools. */
export const ServiceHttp = HttpApiBuilder.group(Api, "service", (handlers) =>
  Effect.gen(function*() {
    const config = yield* Config
    const sql = yield* SqlClient.SqlClient
    const readiness = yield* Readiness
    const metrics = yield* ProcessMetrics
    const gateway = yield* Gateway
    const token = config.METRICS_TOKEN === undefined ? undefined : sha256(`Bearer ${Redacted.value(config.METRICS_TOKEN)}`)
    const touchStorage = sql`select 1 as one`.pipe(Effect.timeout(STORAGE_TIMEOUT))

    return handlers
      .handle("root", () => Effect.succeed({ name: "parley", version: VERSION, status: "alive" as const }))
      .handle("health", () =>
        touchStorage.pipe(
          Effect.as({ status: "ok" as const }),
          Effect.catchCause((cause) =>
            Effect.as(Effect.logWarning("Storage cannot be reached", cause), {
              status: "degraded" as const,
              code: "STORAGE_UNAVAILABLE" as const,
              message: "Storage cannot be reached."
            }))
        ))
      .handle("ready", () => {
        const [reason] = readiness.reasons()
        return reason === undefined
          ? touchStorage.pipe(
            Effect.as({ status: "ready" as const }),
            Effect.catchCause(() => new NotReady({ details: { reason: "Storage cannot be reached." } }))
          )
          : Effect.fail(new NotReady({ details: { reason } }))
      })
      .handle("metrics", ({ request }) => {
        const given = request.headers["authorization"]
        if (token !== undefined && (given === undefined || !timingSafeEqual(sha256(given), token))) {
          return Effect.fail(new Unauthorized({ message: "The metrics need their token." }))
        }
        metrics.refresh()
        return Effect.andThen(Metric.update(socketsOpen, gateway.size()), PrometheusMetrics.format()).pipe(
          Effect.map((text) => HttpServerResponse.text(text, { contentType: "text/plain; version=0.0.4; charset=utf-8" })))
      })
      .handle("socket", () => Effect.fail(new UpgradeRequired()))
  }))
