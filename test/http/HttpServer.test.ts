import { deferred, DeferredResponse } from "#infrastructure/http/DeferredResponse"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { endpointsOf } from "#infrastructure/http/RouteTable"
import type { ServerResponse } from "#infrastructure/http/ServerResponse"
import type { ServerTimeouts } from "#infrastructure/http/ServerTimeouts"
import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { refusals } from "#infrastructure/platform/Metrics"
import { Readiness } from "#infrastructure/platform/Readiness"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { Forbidden, Unauthorized } from "#infrastructure/wire/WireError"
import { refuse, WireErrors } from "#infrastructure/wire/WireErrors"
import { mcpProtocols } from "#interfaces/mcp/McpProtocol"
import { apiProtocol } from "#interfaces/service/ApiProtocol"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Context, Deferred, Effect, Exit, Fiber, Layer, Schema, Scope, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { request as nodeRequest } from "node:http"
import { connect } from "node:net"
import { eventually, LONGEST_WAIT_MS, within } from "../support/Eventually.ts"
import { layerLeapingClock, leap } from "../support/Leap.ts"
import { Stopwatch } from "../support/Promptly.ts"

const Thing = Schema.Struct({ name: Schema.String, n: Schema.optionalKey(Schema.Int) })

class TestApi extends HttpApi.make("test").add(
  HttpApiGroup.make("things")
    .add(HttpApiEndpoint.get("one", "/v1/things/:id", {
      params: { id: Schema.String },
      query: { limit: Schema.optionalKey(Schema.Int) },
      success: Schema.Struct({ id: Schema.String })
    }))
    .add(HttpApiEndpoint.post("make", "/v1/things", { payload: Thing, success: Thing }))
    .add(HttpApiEndpoint.post("touch", "/v1/things/:id/touch", {
      params: { id: Schema.String },
      success: Schema.Struct({ id: Schema.String })
    }))
    .add(HttpApiEndpoint.delete("remove", "/v1/things/:id", {
      params: { id: Schema.String },
      success: Schema.Struct({ id: Schema.String })
    }))
    .add(HttpApiEndpoint.get("defect", "/v1/defect", { success: Schema.String }))
    .add(HttpApiEndpoint.get("sql", "/v1/sql", { success: Schema.String }))
    .add(HttpApiEndpoint.get("denied", "/v1/denied", { success: Schema.String, error: Unauthorized }))
    .add(HttpApiEndpoint.get("badAnswer", "/v1/bad-answer", { success: Schema.Struct({ n: Schema.Int }) }))
    .add(HttpApiEndpoint.get("badHeader", "/v1/bad-header", { success: Schema.String }))
    .add(HttpApiEndpoint.get("stream", "/v1/stream", { success: Schema.String }))
    .add(HttpApiEndpoint.get("wait", "/v1/wait", { success: Schema.Struct({ waited: Schema.Boolean }) }))
    .add(HttpApiEndpoint.get("varied", "/v1/varied", { success: Schema.String }))
    .add(HttpApiEndpoint.get("late", "/v1/late", { success: Schema.String }))
    .add(HttpApiEndpoint.post("waitByRpc", "/mcp", { success: Schema.Struct({ waited: Schema.Boolean }) }))
    .add(HttpApiEndpoint.get("root", "/", { success: Schema.Struct({ ok: Schema.Boolean }) }))
).middleware(WireErrors) {}

class Gate extends Context.Service<Gate, {
  /** How many are inside. */
  readonly inside: { count: number }
  readonly entered: Deferred.Deferred<void>
  readonly open: Deferred.Deferred<void>
  /** Done once its handler has ended, however. */
  readonly left: Deferred.Deferred<void>
}>()("test/Gate") {
  static readonly layer = Layer.effect(
    Gate,
    Effect.all({
      inside: Effect.sync(() => ({ count: 0 })),
      entered: Deferred.make<void>(),
      open: Deferred.make<void>(),
      left: Deferred.make<void>()
    })
  )
}

/** A response that never comes, of a request that enters and leaves like the ones that wait in their handler. */
class Never extends DeferredResponse {
  private readonly gate: Gate["Service"]

  constructor(gate: Gate["Service"]) {
    super()
    this.gate = gate
  }

  override begin(response: ServerResponse): void {
    response.worker = this
    this.gate.inside.count++
    Deferred.doneUnsafe(this.gate.entered, Effect.void)
  }

  override interruptUnsafe(): void {
    this.gate.inside.count--
    Deferred.doneUnsafe(this.gate.left, Effect.void)
  }
}

const things = Endpoints.group(TestApi, "things", (handlers) =>
  Effect.gen(function*() {
    const gate = yield* Gate
    const waiting = Effect.sync(() => gate.inside.count++).pipe(
      Effect.andThen(Deferred.succeed(gate.entered, undefined)),
      Effect.andThen(Deferred.await(gate.open)),
      Effect.as({ waited: true }),
      Effect.ensuring(Effect.suspend(() => {
        gate.inside.count--
        return Deferred.succeed(gate.left, undefined)
      }))
    )
    return handlers
      .handle("one", ({ params }) => Effect.succeed({ id: params.id }))
      .handle("make", ({ payload }) => Effect.succeed(payload))
      .handle("touch", ({ params }) => Effect.succeed({ id: params.id }))
      .handle("remove", ({ params }) => Effect.succeed({ id: params.id }))
      .handle("defect", () => Effect.die(new Error("the secret of the house")))
      .handle(
        "sql",
        () => Effect.die(new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause: "gone" }) }))
      )
      .handle("denied", () => Effect.fail(new Unauthorized()))
      .handle("badAnswer", () => Effect.succeed({ n: 1.5 }))
      .handle("badHeader", () => Effect.succeed(HttpServerResponse.text("fine", { headers: { "x-name": "one\ntwo" } })))
      .handle("stream", () => {
        let left = 0
        const rest = Stream.fromEffect(Effect.promise(async () => {
          await new Promise(setImmediate)
          return Buffer.from(` ${left}`)
        }))
        return Effect.as(
          Effect.addFinalizer(() => Effect.sync(() => left++)),
          HttpServerResponse.stream(Stream.concat(Stream.make(Buffer.from("0")), rest))
        )
      })
      .handle(
        "varied",
        () => Effect.succeed(HttpServerResponse.text("fine", { headers: { vary: "X-AgentChat-Client, User-Agent" } }))
      )
      .handle("wait", () => waiting)
      .handle("late", () => Effect.sync(() => deferred(new Never(gate))))
      .handle("waitByRpc", () => waiting)
      .handle("root", () => Effect.succeed({ ok: true }))
  }))

const routes = HttpApiBuilder.layer(TestApi).pipe(
  Layer.provide(things),
  Layer.provide(WireErrors.layer),
  Layer.provide(NodeHttpServer.layerHttpServices)
)

/** Takes upgrades by refusing them in a way that can be told from the server's own refusals. */
const gatewayOf = (events: Array<string>) =>
  Layer.succeed(UpgradeHandler, {
    path: "/v1/ws",
    upgrade: (_request, socket, _head, requestId) => {
      events.push("upgrade")
      refuse(socket, new Forbidden({ message: "met the gateway" }), requestId)
    },
    turnAway: () => void events.push("turn away"),
    welcomeAgain: () => {},
    drain: Effect.sync(() => void events.push("drain")),
    size: () => 0
  })

interface Server {
  readonly url: string
  readonly port: number
  readonly gate: Gate["Service"]
  readonly readiness: Readiness["Service"]
  readonly events: Array<string>
  /** Shuts the server down and completes when that is done. */
  readonly close: Effect.Effect<void>
}

const started = (
  settings: Partial<Settings> = {},
  patience: Partial<ServerTimeouts> = {}
): Effect.Effect<Server, unknown, Scope.Scope> =>
  Effect.gen(function*() {
    const events: Array<string> = []
    const scope = yield* Effect.acquireRelease(Scope.make(), (scope, exit) => Scope.close(scope, exit))
    const context = yield* Layer.buildWithScope(
      HttpServer.layer(routes, {
        timeouts: patience,
        endpoints: endpointsOf(TestApi),
        protocols: (config) => [apiProtocol(config), ...mcpProtocols(config)]
      }).pipe(
        Layer.provideMerge(Gate.layer),
        Layer.provideMerge(Readiness.layer),
        Layer.provide([Config.layerTest({ PORT: 0, ...settings }), Ids.layer, gatewayOf(events)])
      ),
      scope
    )
    const { port, url } = Context.get(context, HttpServer)
    return {
      port,
      url,
      events,
      gate: Context.get(context, Gate),
      readiness: Context.get(context, Readiness),
      close: Scope.close(scope, Exit.void)
    }
  })

interface Reply {
  readonly status: number
  readonly headers: Headers
  readonly body: unknown
  readonly text: string
}

const call = (server: Server, path: string, init?: RequestInit): Effect.Effect<Reply, unknown> =>
  Effect.tryPromise(async () => {
    const response = await fetch(`${server.url}${path}`, init)
    const text = await response.text()
    let body: unknown
    try {
      body = JSON.parse(text)
    } catch {
      body = undefined
    }
    return { status: response.status, headers: response.headers, body, text }
  })

/** Writes bytes on a connection of its own and returns everything that comes back before it closes. */
const raw = (server: Server, bytes: string, waitMs = LONGEST_WAIT_MS): Effect.Effect<string, unknown> =>
  Effect.callback((resume) => {
    let received = ""
    const socket = connect(server.port, "127.0.0.1", () => socket.write(bytes))
    socket.setTimeout(waitMs, () => socket.destroy())
    socket.on("data", (chunk) => received += chunk.toString("latin1"))
    socket.on("error", () => {})
    socket.on("close", () => resume(Effect.succeed(received)))
    return Effect.sync(() => socket.destroy())
  })

const assertWire = (reply: Reply, status: number, code: string) => {
  assert.strictEqual(reply.status, status)
  assert.isObject(reply.body)
  const body = reply.body as Record<string, unknown>
  assert.strictEqual(body["code"], code)
  assert.isString(body["message"])
  assert.isEmpty(Object.keys(body).filter((key) => !["code", "message", "details"].includes(key)))
  if ("details" in body) assert.isObject(body["details"])
  assert.match(reply.headers.get("x-request-id") ?? "", /^[!-~]{1,128}$/)
  assert.strictEqual(reply.headers.get("content-type"), "application/json")
}

const assertRawWire = (received: string, status: number, code: string) => {
  const [head = "", body = ""] = received.split("\r\n\r\n")
  assert.match(head, new RegExp(`^HTTP/1\\.1 ${status} `))
  assert.match(head, /\r\nx-request-id: [!-~]+/i)
  const parsed = JSON.parse(body) as { code: string; message: string }
  assert.strictEqual(parsed.code, code)
  assert.isString(parsed.message)
}

const withServer = <A, E>(
  f: (server: Server) => Effect.Effect<A, E>,
  settings?: Partial<Settings>,
  patience?: Partial<ServerTimeouts>
) => Effect.scoped(Effect.flatMap(started(settings, patience), f))

describe("HttpServer", () => {
  it.live("answers every refused request in the wire's shape", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const post = (body: string, headers = {}) => call(server, "/v1/things", { method: "POST", body, headers })
        assertWire(yield* call(server, "/v1/nothing"), 404, "NOT_FOUND")
        assertWire(yield* call(server, "/nothing/at/all?x=1"), 404, "NOT_FOUND")
        assertWire(yield* post('{"name": '), 400, "VALIDATION_ERROR")
        assertWire(yield* post('{"name": 5}'), 400, "VALIDATION_ERROR")
        assertWire(yield* post("[]"), 400, "VALIDATION_ERROR")
        assertWire(yield* post(""), 400, "VALIDATION_ERROR")
        assertWire(yield* call(server, "/v1/things/%zz"), 400, "VALIDATION_ERROR")
        assertWire(yield* call(server, "/v1/things/%c3"), 400, "VALIDATION_ERROR")
        assertWire(yield* call(server, "/v1/things/a%00b"), 400, "VALIDATION_ERROR")
        assertWire(yield* call(server, "/v1/things/a?limit=x"), 400, "VALIDATION_ERROR")
        assertWire(yield* call(server, `/v1/things/${"x".repeat(20_000)}`), 431, "VALIDATION_ERROR")
        const denied = yield* call(server, "/v1/denied")
        assertWire(denied, 401, "UNAUTHORIZED")
        assert.strictEqual(denied.headers.get("www-authenticate"), "Bearer")
      })
    ))

  it.live("answers the same whether the router runs an endpoint or not", () =>
    withServer((server) =>
      Effect.gen(function*() {
        // A target with scheme and host goes through the router; it is not under /v1, so that no page is told it may
        // read it.
        const replies = (method: string, path: string, body: string) =>
          Effect.forEach(["", "http://x"], (origin) =>
            Effect.map(
              raw(
                server,
                `${method} ${origin}${path} HTTP/1.1\r\nhost: x\r\nx-request-id: one\r\nconnection: close\r\n` +
                  `${body === "" ? "" : `content-length: ${Buffer.byteLength(body)}\r\n`}\r\n${body}`
              ),
              (received) => received.replace(/^(?:date|access-control-allow-origin): .*\r\n/gim, "")
            ))
        const statuses: Array<string> = []
        for (
          const [method, path, body = ""] of [
            ["GET", "/v1/things/a%20b"],
            ["GET", "/v1/things//A?limit=3&limit=4"],
            ["GET", "/v1/things/a?limit=x"],
            ["GET", "/v1/things/a", "{}"],
            ["GET", "/v1/nothing"],
            ["HEAD", "/v1/things/a"],
            ["POST", "/v1/things", '{"name":"☃","n":1,"x":2}'],
            ["POST", "/v1/things", '{"name":1}'],
            ["POST", "/v1/things", "{"],
            ["POST", "/v1/things"],
            ["DELETE", "/v1/things/a"],
            ["GET", "/v1/defect"],
            ["GET", "/v1/sql"],
            ["GET", "/v1/denied"],
            ["GET", "/v1/bad-answer"],
            ["GET", "/v1/stream"]
          ] as const
        ) {
          const [direct, routed] = yield* replies(method, path, body)
          assert.strictEqual(direct, routed, `${method} ${path} ${body}`)
          statuses.push(direct!.slice(9, 12))
        }
        assert.deepStrictEqual(
          statuses,
          [
            "200",
            "400",
            "400",
            "200",
            "404",
            "200",
            "200",
            "400",
            "400",
            "400",
            "200",
            "500",
            "503",
            "401",
            "500",
            "200"
          ]
        )
      })
    ))

  it.live("names the field that is wrong", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const reply = yield* call(server, "/v1/things", { method: "POST", body: '{"name":"a","n":"x"}' })
        assertWire(reply, 400, "VALIDATION_ERROR")
        const { details } = reply.body as { details: { fields: Record<string, ReadonlyArray<string>> } }
        assert.deepStrictEqual(Object.keys(details.fields), ["n"])
      })
    ))

  it.live("refuses a body over 1 MiB, announced or not", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const big = JSON.stringify({ name: "x".repeat(1_048_576) })
        assertWire(yield* call(server, "/v1/things", { method: "POST", body: big }), 413, "PAYLOAD_TOO_LARGE")
        const chunk = `8000\r\n${"x".repeat(0x8000)}\r\n`
        const chunked = yield* raw(
          server,
          `POST /v1/things HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n${
            chunk.repeat(40)
          }0\r\n\r\n`
        )
        assertRawWire(chunked, 413, "PAYLOAD_TOO_LARGE")
        const most = JSON.stringify({ name: "x".repeat(1_048_576 - 11) })
        assert.strictEqual(most.length, 1_048_576)
        assert.strictEqual((yield* call(server, "/v1/things", { method: "POST", body: most })).status, 200)
      })
    ))

  it.live("goes on with the connection after a body that was too large", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const body = "x".repeat(3_000_000)
        const received = yield* raw(
          server,
          `POST /v1/things HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}` +
            "GET /v1/things/next HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        assert.match(received, /^HTTP\/1\.1 413 /)
        assert.include(received, '{"id":"next"}')
      })
    ))

  it.live("leaves the connection open until the rest of a body that was too large is read, so that the answer arrives", () =>
    Effect.scoped(
      Effect.gen(function*() {
        const server = yield* started()
        const head = "POST /v1/things HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        const bodies = [
          { first: `content-length: 2000000\r\n\r\n${"x".repeat(10)}`, rest: "x".repeat(1_999_990) },
          {
            first: `transfer-encoding: chunked\r\n\r\n200000\r\n${"x".repeat(0x1f_ff_00)}`,
            rest: `${"x".repeat(0x100)}\r\n0\r\n\r\n`
          }
        ]
        for (const { first, rest } of bodies) {
          const socket = connect({ port: server.port, host: "127.0.0.1", allowHalfOpen: true })
          const seen = { text: "", ended: false, error: undefined as Error | undefined }
          socket.on("data", (chunk) => seen.text += chunk.toString("latin1"))
          socket.on("end", () => {
            seen.ended = true
          })
          socket.on("error", (error) => {
            seen.error = error
          })
          yield* Effect.promise(async () => {
            socket.write(`${head}${first}`)
            await eventually("the answer", () => seen.text.endsWith("}") || undefined)
          })
          // The server has had a turn in which it would have closed the connection.
          yield* call(server, "/v1/things/1")
          assert.isFalse(seen.ended, "closed before the body was read")
          yield* Effect.promise(async () => {
            socket.write(rest)
            await eventually("the end of the connection", () => seen.ended || undefined)
            socket.destroy()
          })
          assert.isUndefined(seen.error)
          assertRawWire(seen.text, 413, "PAYLOAD_TOO_LARGE")
          assert.match(seen.text, /\r\nconnection: close\r\n/i)
        }
      })
    ))

  it.live("refuses a body with more values than it may have, whatever they are; commas and brackets in strings are no values", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const post = (body: string) => call(server, "/v1/things", { method: "POST", body })
        for (
          const many of [
            "{},".repeat(21_000) + "{}",
            "[".repeat(21_000) + "]".repeat(21_000),
            "1,".repeat(20_001) + "1"
          ]
        ) {
          const refused = yield* post(`{"name":"x","more":[${many}]}`)
          assertWire(refused, 400, "VALIDATION_ERROR")
          assert.include(JSON.stringify(refused.body), "more than 20000 values")
        }
        for (const few of ["1,".repeat(19_000) + "1", JSON.stringify(`${'\\",[{'.repeat(20_000)}`)]) {
          assert.strictEqual((yield* post(`{"name":"x","more":[${few}]}`)).status, 200)
        }
      })
    ))

  it.live("refuses a body that is not UTF-8", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const body = Buffer.from("7b226e616d65223a22ff227d", "hex")
        assertWire(yield* call(server, "/v1/things", { method: "POST", body }), 400, "VALIDATION_ERROR")
        const snow = yield* call(server, "/v1/things", { method: "POST", body: '{"name":"☃"}' })
        assert.deepStrictEqual(snow.body, { name: "☃" })
      })
    ))

  it.live("tells a wrong method from an unknown path, and which methods there are", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const put = yield* call(server, "/v1/things/a", { method: "PUT", body: "{}" })
        assertWire(put, 405, "METHOD_NOT_ALLOWED")
        assert.deepStrictEqual(put.headers.get("allow")?.split(", ").sort(), ["DELETE", "GET", "HEAD", "OPTIONS"])
        const get = yield* call(server, "/v1/things")
        assertWire(get, 405, "METHOD_NOT_ALLOWED")
        assert.deepStrictEqual(get.headers.get("allow")?.split(", ").sort(), ["OPTIONS", "POST"])
        assertRawWire(
          yield* raw(server, "TRACE /v1/things HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
          405,
          "METHOD_NOT_ALLOWED"
        )
        assertRawWire(yield* raw(server, "CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n"), 405, "METHOD_NOT_ALLOWED")
        const head = yield* call(server, "/v1/things/a", { method: "HEAD" })
        assert.strictEqual(head.status, 200)
        assert.strictEqual(head.text, "")
      })
    ))

  it.live("hides the cause of a failure, and says when to come back", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const defect = yield* call(server, "/v1/defect")
        assertWire(defect, 500, "INTERNAL_ERROR")
        assert.notInclude(defect.text, "secret")
        assertWire(yield* call(server, "/v1/bad-answer"), 500, "INTERNAL_ERROR")
        assertWire(yield* call(server, "/v1/bad-header"), 500, "INTERNAL_ERROR")
        const sql = yield* call(server, "/v1/sql")
        assertWire(sql, 503, "UNAVAILABLE")
        assert.strictEqual(sql.headers.get("retry-after"), "2")
      })
    ))

  it.live("refuses changes that may have waited while the process stood still, and answers reads", () => {
    let late = true
    return withServer((server) =>
      Effect.gen(function*() {
        assertWire(yield* call(server, "/v1/things/1", { method: "DELETE" }), 503, "UNAVAILABLE")
        assertWire(yield* call(server, "/v1/things/1/avatar", { method: "PUT", body: "x" }), 503, "UNAVAILABLE")
        assert.strictEqual((yield* call(server, "/")).status, 200)
        late = false
        assert.notStrictEqual((yield* call(server, "/v1/things/1", { method: "DELETE" })).status, 503)
      })
    ).pipe(Effect.provideService(StallGuard, { listensOn: () => {}, stalledLately: () => late }))
  })

  it.effect("answers the first change after a start that took a long time, and counts from then", () =>
    Effect.gen(function*() {
      // As when the machine is busy, or the process paused, while it makes its database.
      yield* leap("6 seconds")
      yield* withServer((server) =>
        Effect.gen(function*() {
          const remove = Effect.map(call(server, "/v1/things/1", { method: "DELETE" }), ({ status }) => status)
          assert.strictEqual(yield* remove, 200, "before any timer has fired")
          yield* TestClock.adjust("500 millis")
          assert.strictEqual(yield* remove, 200, "the timer has fired")
          yield* leap("6 seconds")
          assert.strictEqual(yield* remove, 503)
        })
      )
    }).pipe(Effect.provide(StallGuard.layer), Effect.provide(layerLeapingClock)))

  it.live("keeps a caller's request id when it is harmless, and gives one otherwise", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const idFor = (id: string, path = "/") =>
          Effect.map(call(server, path, { headers: { "x-request-id": id } }), (reply) =>
            reply.headers.get("x-request-id"))
        assert.strictEqual(yield* idFor("mine-1~"), "mine-1~")
        assert.strictEqual(yield* idFor("x".repeat(128), "/v1/nothing"), "x".repeat(128))
        assert.match((yield* idFor("x".repeat(129))) ?? "", /^req_/)
        assert.match((yield* idFor("two words")) ?? "", /^req_/)
        const [one, two] = yield* Effect.all([call(server, "/"), call(server, "/")])
        assert.notStrictEqual(one.headers.get("x-request-id"), two.headers.get("x-request-id"))
      })
    ))

  it.live("takes JSON whatever its content-type, and POST and DELETE without a body", () =>
    withServer((server) =>
      Effect.gen(function*() {
        for (const type of ["text/plain", "application/x-www-form-urlencoded", "image/png", "multipart/form-data"]) {
          const reply = yield* call(server, "/v1/things", {
            method: "POST",
            body: '{"name":"a"}',
            headers: { "content-type": type }
          })
          assert.strictEqual(reply.status, 200, type)
        }
        for (const [method, path] of [["POST", "/v1/things/a/touch"], ["DELETE", "/v1/things/a"]] as const) {
          assert.deepStrictEqual((yield* call(server, path, { method })).body, { id: "a" })
          for (const framing of ["content-length: 0\r\n", ""]) {
            const received = yield* raw(
              server,
              `${method} ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${framing}\r\n`
            )
            assert.match(received, /^HTTP\/1\.1 200 /)
          }
        }
      })
    ))

  it.live("collapses repeated slashes and decodes names once", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const received = yield* raw(server, "GET //v1//things/%2540a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert.include(received, '{"id":"%40a"}')
        assert.deepStrictEqual((yield* call(server, "/v1/things/%40Alice")).body, { id: "@Alice" })
      })
    ))

  it.live("lets browsers call /v1 from anywhere by default", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const preflight = yield* call(server, "/v1/things", {
          method: "OPTIONS",
          headers: {
            "origin": "https://page.example",
            "access-control-request-method": "POST",
            "access-control-request-headers":
              "authorization,content-type,idempotency-key,x-agentchat-client,x-agentchat-client-version,x-request-id"
          }
        })
        assert.strictEqual(preflight.status, 204)
        assert.strictEqual(preflight.headers.get("access-control-allow-origin"), "*")
        assert.isNull(preflight.headers.get("access-control-allow-credentials"))
        assert.include(preflight.headers.get("access-control-allow-methods") ?? "", "PATCH")
        const allowed = (preflight.headers.get("access-control-allow-headers") ?? "").toLowerCase().split(", ")
        for (const name of ["authorization", "content-type", "idempotency-key", "x-agentchat-client", "x-request-id"]) {
          assert.include(allowed, name)
        }
        assert.isNotNull(preflight.headers.get("x-request-id"))
        for (const path of ["/v1/things/a", "/v1/nothing", "/v1/defect"]) {
          const reply = yield* call(server, path, { headers: { origin: "https://page.example" } })
          assert.strictEqual(reply.headers.get("access-control-allow-origin"), "*", path)
          assert.include(reply.headers.get("access-control-expose-headers") ?? "", "X-Next-Cursor")
        }
        assert.isNull((yield* call(server, "/")).headers.get("access-control-allow-origin"))
      })
    ))

  it.live("allows only the named origins if there is a list", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const from = (origin: string) =>
          Effect.map(call(server, "/v1/things/a", { headers: { origin } }), (reply) => reply.headers)
        const good = yield* from("https://b.example")
        assert.strictEqual(good.get("access-control-allow-origin"), "https://b.example")
        assert.strictEqual(good.get("vary"), "Origin")
        assert.isNull((yield* from("https://evil.example")).get("access-control-allow-origin"))
        const upgrade = (origin: string) =>
          raw(
            server,
            `GET /v1/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\norigin: ${origin}\r\n\r\n`
          )
        assert.notInclude(yield* upgrade("https://evil.example"), "met the gateway")
        assert.include(yield* upgrade("https://b.example"), "met the gateway")
      }), { ALLOWED_ORIGINS: "https://a.example, https://b.example" }))

  it.live("with a list of origins, Vary names what the endpoint varies by and the origin (wire.md B1, C.0 CORS)", () =>
    withServer((server) =>
      Effect.gen(function*() {
        for (const origin of ["https://a.example", "https://evil.example", undefined]) {
          const { headers } = yield* call(server, "/v1/varied", origin === undefined ? {} : { headers: { origin } })
          const names = (headers.get("vary") ?? "").toLowerCase().split(",").map((name) => name.trim())
          assert.sameMembers(names, ["x-agentchat-client", "user-agent", "origin"])
        }
      }), { ALLOWED_ORIGINS: "https://a.example, https://b.example" }))

  it.live("gives upgrades of /v1/ws to the gateway and refuses all others", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const upgrade = (path: string, to = "websocket") =>
          raw(
            server,
            `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: ${to}\r\nx-request-id: mine\r\n\r\n`
          )
        for (const path of ["/v1/ws", "//v1/ws", "/v1/ws?token=x", "/v1//ws/"]) {
          const received = yield* upgrade(path)
          assertRawWire(received, 403, "FORBIDDEN")
          assert.include(received, "x-request-id: mine")
        }
        assert.strictEqual(server.events.length, 4)
        for (const path of ["/v1/things/a", "/", "/v1/wsx"]) assertRawWire(yield* upgrade(path), 404, "NOT_FOUND")
        assert.strictEqual(server.events.length, 4)
        // Another protocol is an offer that may be ignored (curl --http2 makes it on every request).
        assert.match(yield* upgrade("/v1/things/a", "h2c"), /^HTTP\/1\.1 200 /)
      })
    ))

  it.live("answers bytes that are no HTTP request", () =>
    withServer((server) =>
      Effect.gen(function*() {
        assertRawWire(yield* raw(server, "what is this\r\n\r\n"), 400, "VALIDATION_ERROR")
        assertRawWire(yield* raw(server, "GET / HTTP/1.1\r\nconnection: close\r\n\r\n"), 400, "VALIDATION_ERROR")
        assertRawWire(
          yield* raw(server, `GET / HTTP/1.1\r\nhost: x\r\nx-big: ${"y".repeat(17_000)}\r\n\r\n`),
          431,
          "VALIDATION_ERROR"
        )
        assertRawWire(
          yield* raw(server, "POST /v1/things HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
          400,
          "VALIDATION_ERROR"
        )
        assertRawWire(
          yield* raw(server, "GET / HTTP/1.1\r\nhost: x\r\nexpect: a miracle\r\n\r\n"),
          417,
          "VALIDATION_ERROR"
        )
      })
    ))

  it.live("answers 100 Continue to a client that waits for it, unless the body would be too large", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const send = (length: number) =>
          Effect.callback<{ continued: boolean; status: number }, Error>((resume) => {
            let continued = false
            const request = nodeRequest({
              port: server.port,
              path: "/v1/things",
              method: "POST",
              headers: { "expect": "100-continue", "content-length": String(length) }
            })
            request.on("continue", () => {
              continued = true
              request.end('{"name":"a"}')
            })
            request.on("response", (response) => {
              response.resume()
              resume(Effect.succeed({ continued, status: response.statusCode ?? 0 }))
            })
            request.on("error", (error) => resume(Effect.fail(error)))
            request.flushHeaders()
          })
        assert.deepStrictEqual(yield* send(12), { continued: true, status: 200 })
        assert.deepStrictEqual(yield* send(5_000_000), { continued: false, status: 413 })
      })
    ))

  it.live("closes a connection whose body or headers do not arrive", () =>
    withServer(
      (server) =>
        Effect.gen(function*() {
          assertRawWire(
            yield* raw(server, 'POST /v1/things HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"name"'),
            408,
            "VALIDATION_ERROR"
          )
          assertRawWire(yield* raw(server, "POST /v1/things HTTP/1.1\r\nhost"), 408, "VALIDATION_ERROR")
        }),
      {},
      { headers: 150, request: 150, check: 30 }
    ))

  it.live("closes a connection within a second of the time for its head, also if it had an answer", () =>
    withServer(
      (server) =>
        Effect.gen(function*() {
          const late = (before: string, received: string) =>
            Effect.gen(function*() {
              const watch = new Stopwatch()
              const answers = yield* raw(server, `${before}GET / HTTP/1.1\r\nhost: x\r\nx-slow: `)
              // A server that looked at half of HTTP_HEADERS_SECONDS, 10, would take 5 s longer.
              watch.endsWithin(4_000)
              assert.match(answers, new RegExp(received, "s"))
            })
          yield* Effect.all([
            late("", "^HTTP/1\\.1 408 "),
            late("GET / HTTP/1.1\r\nhost: x\r\n\r\n", "^HTTP/1\\.1 200 .*HTTP/1\\.1 408 ")
          ], { concurrency: "unbounded" })
        }),
      {},
      { headers: 2_000 }
    ))

  it.live("finishes requests in flight before it closes, and takes no new ones", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const idle = connect(server.port, "127.0.0.1")
        const idleClosed = new Promise<void>((resolve) => idle.on("close", () => resolve()))
        idle.on("error", () => {})
        idle.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        yield* Effect.promise(() => new Promise((resolve) => idle.once("data", resolve)))
        const waiting = yield* Effect.forkChild(call(server, "/v1/wait"))
        yield* Deferred.await(server.gate.entered)
        const closing = yield* Effect.forkChild(server.close, { startImmediately: true })
        yield* Effect.promise(() => idleClosed)
        assert.deepStrictEqual(server.readiness.reasons(), ["The server is shutting down."])
        const refused = yield* Effect.exit(call(server, "/"))
        assert.isTrue(Exit.isFailure(refused))
        assert.deepStrictEqual(server.events, ["turn away"])
        yield* Deferred.succeed(server.gate.open, undefined)
        const reply = yield* Fiber.join(waiting)
        assert.strictEqual(reply.status, 200)
        assert.strictEqual(reply.headers.get("connection"), "close")
        yield* Fiber.join(closing)
        assert.deepStrictEqual(server.events, ["turn away", "drain"])
      })
    ))

  it.live("ends the work for a client that hangs up, and counts no refusal for it", () =>
    Effect.forEach(
      ["/v1/wait", "http://x/v1/wait", "/v1/late", "http://x/v1/late"],
      (target) =>
        withServer((server) =>
          Effect.gen(function*() {
            const refused = () => refusals.at("http", "UNAVAILABLE").value
            const before = refused()
            const socket = connect(
              server.port,
              "127.0.0.1",
              () => socket.write(`GET ${target} HTTP/1.1\r\nhost: x\r\n\r\n`)
            )
            yield* Deferred.await(server.gate.entered)
            socket.destroy()
            yield* Deferred.await(server.gate.left)
            yield* server.close
            assert.strictEqual(refused(), before, target)
          })
        )
    ))

  it.live("ends the work also for requests that a client sent behind another one", () =>
    Effect.forEach(
      ["/v1/wait", "http://x/v1/wait", "/v1/late", "http://x/v1/late"],
      (target) =>
        withServer(
          (server) =>
            Effect.gen(function*() {
              const request = `GET ${target} HTTP/1.1\r\nhost: x\r\n\r\n`
              const socket = connect(server.port, "127.0.0.1", () => socket.write(request + request))
              socket.on("error", () => {})
              const { inside } = server.gate
              yield* Effect.promise(() => eventually("both requests", () => inside.count === 2 || undefined))
              socket.destroy()
              yield* Effect.promise(() => eventually("the end of both", () => inside.count === 0 || undefined))
              yield* server.close
            }),
          {},
          { drain: LONGEST_WAIT_MS * 10 }
        )
    ))

  it.live("cuts a connection on which a client sends very many requests before the first is answered", () =>
    // A request with an unknown expectation is refused before its route is looked up.
    Effect.forEach(["", "expect: x\r\n"], (more) =>
      withServer(
        (server) =>
          Effect.gen(function*() {
            const request = (headers: string) => `GET /v1/wait HTTP/1.1\r\nhost: x\r\n${headers}\r\n`
            let parsed = 0
            const count = () => parsed++
            subscribe("http.server.request.start", count)
            const socket = connect(
              server.port,
              "127.0.0.1",
              () => socket.write(request("") + request(more).repeat(500))
            )
            socket.on("error", () => {})
            const closed = new Promise((resolve) => socket.once("close", resolve))
            yield* Effect.promise(() => within("the cut", closed))
            unsubscribe("http.server.request.start", count)
            // Node makes nothing of the rest of the packet.
            assert.isAtMost(parsed, 66)
            const { inside } = server.gate
            yield* Effect.promise(() =>
              eventually("the end of those that had begun", () => inside.count === 0 || undefined)
            )
            yield* server.close
          }),
        {},
        { drain: LONGEST_WAIT_MS * 10 }
      )))

  it.live("waits for requests in flight for a bounded time, and answers them", () =>
    Effect.forEach(
      ["/v1/wait", "http://x/v1/wait", "/v1/late", "http://x/v1/late"],
      (target) =>
        withServer(
          (server) =>
            Effect.gen(function*() {
              const waiting = yield* Effect.forkChild(raw(server, `GET ${target} HTTP/1.1\r\nhost: x\r\n\r\n`))
              yield* Deferred.await(server.gate.entered)
              yield* server.close
              assertRawWire(yield* Fiber.join(waiting), 503, "UNAVAILABLE")
              assert.deepStrictEqual(server.events, ["turn away", "drain"])
            }),
          {},
          { drain: 100 }
        )
    ))

  it.live("answers requests in flight on /mcp as that protocol does", () =>
    withServer(
      (server) =>
        Effect.gen(function*() {
          const waiting = yield* Effect.forkChild(
            raw(server, "POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
          )
          yield* Deferred.await(server.gate.entered)
          yield* server.close
          const [head = "", body = ""] = (yield* Fiber.join(waiting)).split("\r\n\r\n")
          assert.match(head, /^HTTP\/1\.1 503 /)
          assert.deepInclude(JSON.parse(body), { jsonrpc: "2.0", id: null })
        }),
      {},
      { drain: 100 }
    ))

  it.live("says in one line that its port is taken", () =>
    withServer((server) =>
      Effect.gen(function*() {
        const exit = yield* Effect.exit(Effect.scoped(started({ PORT: server.port })))
        assert.isTrue(Exit.isFailure(exit))
        if (Exit.isFailure(exit)) {
          assert.include(Cause.pretty(exit.cause).split("\n")[0], `Port ${server.port} on 127.0.0.1 is in use`)
        }
      })
    ))
})
