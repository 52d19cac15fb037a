import { Database } from "#infrastructure/database/Sql"
import type { Settings } from "#infrastructure/platform/Config"
import { metricsText } from "#infrastructure/platform/Metrics"
import { Readiness } from "#infrastructure/platform/Readiness"
import { LogVolume } from "#infrastructure/platform/Telemetry"
import { type Span, startTracing } from "#infrastructure/platform/Tracing"
import { commit, VERSION } from "#infrastructure/platform/Version"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Redacted, References } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { eventually } from "../support/Eventually.ts"
import { metric } from "../support/Metrics.ts"
import { serviceAlone, SOCKETS } from "./ServiceAlone.ts"

interface Storage {
  up: boolean
  readOnly: boolean
}

/**
 * A database that only ever says whether it is there and can be written to; nothing else of the client is used by these
 * routes.
 */
const storageLayer = (storage: Storage) => {
  const look = Effect.suspend(() =>
    storage.up
      ? Effect.succeed([{ locked: storage.readOnly }])
      : Effect.fail(new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause: new Error("gone") }) }))
  )
  return Layer.merge(
    Layer.succeed(SqlClient.SqlClient, (() => look) as unknown as SqlClient.SqlClient),
    Layer.succeed(Database, {
      backup: undefined,
      driver: "pg",
      prepared: () => () => Effect.die("these routes prepare nothing"),
      raw: () => () => Effect.die("these routes prepare nothing"),
      query: () => Effect.die("these routes need no such statement"),
      transaction: () => Effect.die("these routes need no transaction"),
      probe: (() => look) as unknown as Database["Service"]["probe"]
    })
  )
}

const withService = <A, E>(
  f: (
    get: (path: string, headers?: Record<string, string>) => Effect.Effect<Response>,
    storage: Storage,
    readiness: Readiness["Service"]
  ) => Effect.Effect<A, E>,
  settings?: Partial<Settings>
) => {
  const storage = { up: true, readOnly: false }
  return Effect.scoped(Effect.gen(function*() {
    const { context, url } = yield* serviceAlone(storageLayer(storage), settings)
    return yield* f(
      (path, headers) => Effect.promise(() => fetch(`${url}${path}`, headers === undefined ? {} : { headers })),
      storage,
      Context.get(context, Readiness)
    )
  }))
}

const json = (response: Response) => Effect.promise(() => response.json() as Promise<Record<string, unknown>>)
const text = (response: Response) => Effect.promise(() => response.text())

describe("the service routes", () => {
  it.live("show the server's name and version", () =>
    withService((get) =>
      Effect.gen(function*() {
        const { name, version, status } = yield* Effect.flatMap(get("/"), json)
        assert.strictEqual(name, "parley")
        assert.match(String(version), /^\d+\.\d+\.\d+/)
        assert.strictEqual(status, "alive")
      })
    ))

  it.live("report health by a query of storage, with version and commit", () =>
    withService((get, storage) =>
      Effect.gen(function*() {
        const build = { version: VERSION, commit: commit() }
        const well = yield* get("/v1/health")
        assert.deepStrictEqual([well.status, yield* json(well)], [200, { status: "ok", ...build }])
        assert.include(
          yield* Effect.flatMap(get("/internal/metrics"), text),
          `\nbuild_info{version="${build.version}",commit="${build.commit}"} 1\n`
        )
        storage.up = false
        const ill = yield* get("/v1/health")
        const body = yield* json(ill)
        assert.strictEqual(ill.status, 503)
        assert.deepStrictEqual(Object.keys(body), ["status", "code", "message", "version", "commit"])
        assert.strictEqual(body["code"], "STORAGE_UNAVAILABLE")
        assert.strictEqual(body["status"], "degraded")
      })
    ))

  it.live("report readiness by the reasons of all parts, and by storage", () =>
    withService((get, storage, readiness) =>
      Effect.gen(function*() {
        assert.strictEqual((yield* get("/v1/ready")).status, 200)
        readiness.set("clock", "The clock jumped.")
        const busy = yield* get("/v1/ready")
        const body = yield* json(busy)
        assert.strictEqual(busy.status, 503)
        assert.strictEqual(body["code"], "NOT_READY")
        assert.deepStrictEqual(body["details"], { reason: "The clock jumped." })
        const gauges = Effect.map(
          Effect.flatMap(get("/internal/metrics"), text),
          (body) => [metric(body, "node_ready"), metric(body, "node_drained")]
        )
        assert.deepStrictEqual(yield* gauges, [0, 0])
        readiness.set("drained", "An operator has drained this node.")
        assert.deepStrictEqual(yield* gauges, [0, 1])
        readiness.set("drained", undefined)
        readiness.set("clock", undefined)
        assert.deepStrictEqual(yield* gauges, [1, 0])
        assert.deepStrictEqual(
          (yield* Effect.all(Array.from({ length: 20 }, () => get("/v1/ready")), { concurrency: "unbounded" })).map((
            r
          ) => r.status),
          Array(20).fill(200)
        )
        readiness.check(() => "Work waits.")
        storage.up = false
        const away = yield* get("/v1/ready")
        assert.strictEqual(away.status, 503)
        assert.match(
          String(Object((yield* json(away))["details"]).reason),
          /^The database does not answer or .* Work waits\.$/
        )
        storage.up = true
        storage.readOnly = true
        const standby = yield* get("/v1/ready")
        assert.match(String(Object((yield* json(standby))["details"]).reason), /^The database takes no writes: /)
      })
    ))

  it.live("count as probes only: in no metric of requests or refusals, without a span and without a line in the log", () => {
    const spans: Array<Span> = []
    const logged: Array<unknown> = []
    const figures = () => {
      const text = metricsText()
      return {
        requests: metric(text, "http_requests_total"),
        failures: metric(text, "http_requests_total", { status: "5xx" }),
        refusals: metric(text, "refusals_total"),
        notReady: metric(text, "http_probes_total", { route: "/v1/ready", status: "5xx" }),
        probes: metric(text, "http_probes_total")
      }
    }
    return Effect.acquireUseRelease(
      Effect.sync(() =>
        startTracing({ sampler: { followsParent: true, ratio: 1 }, record: (span) => void spans.push(span) })
      ),
      () =>
        withService((get, _, readiness) =>
          Effect.gen(function*() {
            readiness.set("draining", "The server is shutting down.")
            const before = figures()
            const statuses: Array<number> = []
            for (const path of ["/", "/v1/health", "/v1/ready", "/internal/metrics", "/v1/ready/?again=1"]) {
              const reply = yield* get(path, { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" })
              statuses.push(reply.status)
              yield* text(reply)
            }
            assert.deepStrictEqual(statuses, [200, 200, 503, 200, 503])
            const after = figures()
            assert.deepStrictEqual(after, { ...before, probes: before.probes + 5, notReady: before.notReady + 2 })
            // What is no probe counts everywhere, and its line comes after those of all requests before it.
            yield* Effect.flatMap(get("/v1/ws"), text)
            yield* Effect.promise(() =>
              eventually("the line of the last request", () => logged.includes("/v1/ws") || undefined)
            )
            assert.deepStrictEqual(logged, ["/v1/ws"])
            assert.deepStrictEqual(spans.map(({ name }) => name), ["GET /v1/ws"])
            assert.deepStrictEqual(
              [figures().requests, figures().refusals, figures().probes],
              [before.requests + 1, before.refusals + 1, after.probes]
            )
          }), { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" }).pipe(
            Effect.provide(Layer.mergeAll(
              Logger.layer([Logger.make(({ fiber, message }) => {
                if (/^(Answered|Refused)$/.test(String(message)))
                  logged.push(fiber.getRef(References.CurrentLogAnnotations)["path"])
              })]),
              Layer.succeed(References.MinimumLogLevel, "Debug"),
              Layer.succeed(LogVolume, { level: "debug" })
            ))
          ),
      (stop) => Effect.sync(stop)
    )
  })

  it.live("require an upgrade at the socket's path", () =>
    withService((get) =>
      Effect.gen(function*() {
        const reply = yield* get("/v1/ws")
        assert.strictEqual(reply.status, 426)
        assert.strictEqual(reply.headers.get("upgrade"), "websocket")
        assert.strictEqual((yield* json(reply))["code"], "UPGRADE_REQUIRED")
      })
    ))

  it.live("show metrics to this machine alone when there is no token", () =>
    withService((get) =>
      Effect.gen(function*() {
        const reply = yield* get("/internal/metrics")
        assert.match(reply.headers.get("content-type") ?? "", /^text\/plain/)
        const body = yield* text(reply)
        assert.strictEqual(metric(body, "sockets_open"), SOCKETS)
        assert.match(body, /^process_resident_memory_bytes \d+$/m)
        // A proxy on this machine may forward requests from elsewhere.
        for (const headers of [{ "x-forwarded-for": "127.0.0.1" }, { forwarded: "for=127.0.0.1" }]) {
          const forwarded = yield* get("/internal/metrics", headers)
          assert.strictEqual(forwarded.status, 401)
          assert.match(String((yield* json(forwarded))["message"]), /PROBE_ADDRESSES .* METRICS_TOKEN/)
        }
      })
    ))

  it.live("show metrics without a token to PROBE_ADDRESSES, also behind a trusted proxy", () =>
    Effect.gen(function*() {
      const statusOf = (settings: Partial<Settings>, headers?: Record<string, string>) =>
        withService((get) => Effect.map(get("/internal/metrics", headers), ({ status }) => status), settings)
      assert.strictEqual(yield* statusOf({ PROBE_ADDRESSES: ["10.0.0.0/8"] }), 401)
      assert.strictEqual(yield* statusOf({ PROBE_ADDRESSES: [] }), 401)
      const behind = { PROBE_ADDRESSES: ["127.0.0.0/8", "10.0.0.0/8"], TRUST_PROXY: 1 }
      assert.strictEqual(yield* statusOf(behind, { "x-forwarded-for": "10.1.2.3" }), 200)
      assert.strictEqual(yield* statusOf(behind, { "x-forwarded-for": "127.0.0.1, 192.0.2.1" }), 401)
      for (const unnamed of ["unknown", "unix:", ""])
        assert.strictEqual(yield* statusOf(behind, { "x-forwarded-for": unnamed }), 401, unnamed)
      assert.strictEqual(yield* statusOf(behind, { forwarded: "for=10.1.2.3" }), 401)
      // The other side of the connection is no proxy of this machine, so it may have written the header itself.
      assert.strictEqual(
        yield* statusOf({ PROBE_ADDRESSES: ["10.0.0.0/8"], TRUST_PROXY: 1 }, { "x-forwarded-for": "10.1.2.3" }),
        401
      )
    }))

  it.live("show metrics only to callers with the token when there is one", () =>
    withService((get) =>
      Effect.gen(function*() {
        for (const headers of [{}, { authorization: "Bearer nope" }, { authorization: "s3cret" }]) {
          const reply = yield* get("/internal/metrics", headers)
          assert.strictEqual(reply.status, 401)
          assert.strictEqual((yield* json(reply))["code"], "UNAUTHORIZED")
        }
        for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR "]) {
          assert.strictEqual(
            (yield* get("/internal/metrics", { authorization: `${scheme} s3cret` })).status,
            200,
            scheme
          )
        }
      }), { METRICS_TOKEN: Redacted.make("s3cret") }))

  it.live("serve the document, and a page that loads nothing from other origins", () =>
    withService((get) =>
      Effect.gen(function*() {
        const document = yield* Effect.flatMap(get("/v1/openapi.json"), json)
        assert.match(String(document["openapi"]), /^3\.1/)
        const reply = yield* get("/docs")
        const policy = reply.headers.get("content-security-policy") ?? ""
        assert.match(reply.headers.get("content-type") ?? "", /^text\/html/)
        assert.include(policy, "default-src 'none'")
        assert.notMatch(policy, /https?:/)
        const page = yield* text(reply)
        assert.notMatch(page, /<(?:script|link|img)[^>]+(?:src|href)=/)
        assert.include(page, "/v1/messages")
        assert.include(page, "Send a message")
      })
    ))
})
