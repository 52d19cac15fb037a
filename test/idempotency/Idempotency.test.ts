import { CurrentAgent } from "#domain/auth/Authorization"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { IdempotencyRepo } from "#domain/idempotency/IdempotencyRepo"
import { idempotencyTables } from "#domain/idempotency/IdempotencyTables"
import { CurrentAttempt, IdempotentIds } from "#domain/idempotency/IdempotentIds"
import { RawBody } from "#infrastructure/http/EndpointOptions"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { Forbidden, RateLimited, Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { WireErrors } from "#infrastructure/wire/WireErrors"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Context, Deferred, Effect, Exit, Fiber, Layer, Schema, Scope } from "effect"
import { HttpEffect, HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import {
  HttpApi,
  HttpApiBuilder,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiMiddleware,
  HttpApiSchema,
  OpenApi
} from "effect/http-api"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Api } from "../../src/Api.ts"
import { away, back } from "../support/Away.ts"
import { eachDatabase, layerPgliteTest, type TestDatabase } from "../support/Databases.ts"
import { sweepExpired } from "../support/Expiry.ts"

const DEADLINE_MILLIS = 30_000
/** A statement that was sent at the deadline may run for 20 s. */
const LAPSE_MILLIS = 55_000

/** Whoever the header names; the real Authorization is tested with its own module. */
class AsAgent extends HttpApiMiddleware.Service<AsAgent, { provides: CurrentAgent }>()("test/platform/AsAgent") {
  static readonly layer = Layer.succeed(
    AsAgent,
    (httpEffect) =>
      Effect.flatMap(
        HttpServerRequest.HttpServerRequest,
        ({ headers }) =>
          Effect.provideService(httpEffect, CurrentAgent, {
            id: headers["x-agent"] ?? "agt_a",
            handle: "somebody",
            displayName: null,
            status: "active"
          })
      )
  )
}

const Thing = Schema.Struct({ id: Schema.String, name: Schema.String })

class ThingsApi extends HttpApiGroup.make("things")
  .add(
    HttpApiEndpoint.post("create", "/v1/things", {
      payload: Schema.Struct({ name: Schema.String }),
      success: Thing.pipe(HttpApiSchema.status(201)),
      error: [Forbidden, RateLimited, Unauthorized, Unavailable]
    }).middleware(Idempotency),
    HttpApiEndpoint.patch("rename", "/v1/things/:id", {
      params: { id: Schema.String },
      payload: Schema.Struct({ name: Schema.String }),
      success: Thing
    }).middleware(Idempotency),
    HttpApiEndpoint.delete("remove", "/v1/things/:id", { params: { id: Schema.String } }).middleware(Idempotency),
    HttpApiEndpoint.put("picture", "/v1/things/:id/picture", {
      params: { id: Schema.String },
      success: Schema.Struct({ size: Schema.Int })
    }).annotate(RawBody, 2_000_000).middleware(Idempotency),
    HttpApiEndpoint.post("unkeyed", "/v1/unkeyed", { success: Schema.Struct({ effects: Schema.Int }) })
  )
  .middleware(AsAgent)
{}

class ThingApi extends HttpApi.make("things").add(ThingsApi).middleware(WireErrors) {}

/** How often each handler had its effect, and what happens right after it. */
class Seam extends Context.Service<Seam, {
  effects: number
  afterEffect: Effect.Effect<void, Forbidden | RateLimited | Unauthorized | Unavailable>
}>()("test/platform/Seam") {
  static readonly layer = Layer.sync(Seam, () => ({ effects: 0, afterEffect: Effect.void }))
}

/** Made anew for each process, as the layers of two would not be shared. */
const handlers = () =>
  HttpApiBuilder.group(ThingApi, "things", (group) =>
    Effect.gen(function*() {
      const ids = yield* IdempotentIds
      const seam = yield* Seam
      const sql = yield* SqlClient.SqlClient
      const effect = Effect.suspend(() => {
        seam.effects++
        return seam.afterEffect
      })
      return group.handleAll({
        create: Effect.fnUntraced(function*({ payload }) {
          const id = yield* ids.make("grp")
          yield* Effect.orDie(
            sql`INSERT INTO things (id, name) VALUES (${id}, ${payload.name}) ON CONFLICT (id) DO NOTHING`
          )
          yield* effect
          return HttpServerResponse.text(`{ "id": "${id}",  "name": "${payload.name}" }`, {
            status: 201,
            contentType: "application/json",
            headers: { location: `/v1/things/${id}`, "x-backlog-warning": "somebody=5001" }
          })
        }),
        rename: Effect.fnUntraced(function*({ params, payload }) {
          yield* Effect.orDie(effect)
          return { id: params.id, name: payload.name }
        }),
        remove: () => Effect.asVoid(Effect.orDie(effect)),
        picture: Effect.fnUntraced(function*({ request }) {
          yield* Effect.orDie(effect)
          return { size: (yield* Effect.orDie(request.arrayBuffer)).byteLength }
        }),
        unkeyed: Effect.fnUntraced(function*() {
          yield* Effect.orDie(effect)
          return { effects: seam.effects }
        })
      })
    }))

interface Sent {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly code: string | undefined
  readonly replayed: boolean
}

interface Input {
  readonly key?: string
  readonly agent?: string
  readonly name?: string
  readonly bytes?: Uint8Array<ArrayBuffer>
}

interface Node {
  readonly send: (method: string, path: string, input?: Input) => Effect.Effect<Sent>
}

/** Routes without a server, on the test's clock, as one process of several would have them. */
const makeNode: Effect.Effect<
  Node,
  never,
  Config | Ids | IdempotencyRepo | IdempotentIds | Seam | SqlClient.SqlClient | Scope.Scope
> = Effect.gen(function*() {
  const routes = HttpApiBuilder.layer(ThingApi).pipe(
    Layer.provide(handlers()),
    Layer.provide(Layer.mergeAll(Layer.fresh(Idempotency.layer), AsAgent.layer, WireErrors.layer)),
    Layer.provide(NodeHttpServer.layerHttpServices)
  )
  const app = yield* HttpRouter.toHttpEffect(routes) as Effect.Effect<
    Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, HttpServerRequest.HttpServerRequest | Scope.Scope>,
    never,
    Config | Ids | IdempotencyRepo | IdempotentIds | Seam | SqlClient.SqlClient | Scope.Scope
  >
  const handle = HttpEffect.toWebHandlerWith<never, HttpServerRequest.HttpServerRequest | Scope.Scope>(
    yield* Effect.context<never>()
  )(app)
  return {
    send: (method, path, { agent, bytes, key, name } = {}) =>
      Effect.promise(async () => {
        const headers: Record<string, string> = {}
        if (key !== undefined) headers["idempotency-key"] = key
        if (agent !== undefined) headers["x-agent"] = agent
        if (name !== undefined) headers["content-type"] = "application/json"
        const body = bytes ?? (name === undefined ? undefined : JSON.stringify({ name }))
        const init = { method, headers, ...(body === undefined ? {} : { body }) }
        const response = await handle(new Request(`http://parley.example${path}`, init))
        const text = await response.text()
        const parsed: unknown = text.startsWith("{") ? JSON.parse(text) : {}
        return {
          status: response.status,
          headers: response.headers,
          text,
          code: (parsed as { readonly code?: string }).code,
          replayed: response.headers.get("idempotent-replay") === "true"
        }
      })
  }
})

/** Two processes on one database. */
class Nodes extends Context.Service<Nodes, { readonly one: Node; readonly two: Node }>()("test/platform/Nodes") {
  static readonly layer = Layer.effect(
    Nodes,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TABLE things (id text PRIMARY KEY, name text NOT NULL)`
      return { one: yield* makeNode, two: yield* makeNode }
    })
  )
}

const layerNodes = (database: TestDatabase) =>
  Nodes.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(IdempotencyRepo.layer, IdempotentIds.layer, Seam.layer)),
    Layer.provideMerge(Layer.mergeAll(Config.layerTest(), Ids.layer)),
    Layer.provideMerge(database)
  )

const setting = Effect.gen(function*() {
  const { one, two } = yield* Nodes
  const seam = yield* Seam
  const sql = yield* SqlClient.SqlClient
  seam.effects = 0
  seam.afterEffect = Effect.void
  const things = Effect.map(
    sql<{ readonly id: string }>`SELECT id FROM things ORDER BY id`,
    (rows) => rows.map(({ id }) => id)
  )
  const marks = Effect.map(
    sql<{ readonly key: string }>`SELECT key FROM idempotency_keys`,
    (rows) => rows.map(({ key }) => key)
  )
  yield* sql`DELETE FROM things`
  return { one, two, seam, sql, things, marks }
})

let serial = 0
const freshKey = () => `key ${serial++} ~!"`

const is = (sent: Sent, status: number, code?: string) =>
  assert.deepStrictEqual([sent.status, sent.code], [status, code], sent.text)

/** A handler that has had its effect and goes no further until it is told; `reached` completes when it is there. */
const held = Effect.gen(function*() {
  const reached = yield* Deferred.make<void>()
  const gate = yield* Deferred.make<void>()
  const wait = Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(gate))
  return { wait, reached: Deferred.await(reached), open: Deferred.succeed(gate, undefined) }
})

eachDatabase((database) => {
  layer(layerNodes(database))("an Idempotency-Key", (it) => {
    it.effect("gives a repetition the first answer, to the byte, and no second effect (J 14)", () =>
      Effect.gen(function*() {
        const { one, seam, things, two } = yield* setting
        const key = freshKey()
        const first = yield* one.send("POST", "/v1/things", { key, name: "a boat" })
        is(first, 201)
        assert.isFalse(first.replayed)
        for (const node of [one, two, one]) {
          yield* TestClock.adjust("1 hour")
          const again = yield* node.send("POST", "/v1/things", { key, name: "a boat" })
          assert.deepStrictEqual([again.status, again.text, again.replayed], [201, first.text, true])
          assert.deepStrictEqual(
            [...again.headers].filter(([name]) => name !== "idempotent-replay"),
            [...first.headers]
          )
        }
        assert.deepStrictEqual([seam.effects, (yield* things).length], [1, 1])
        const other = yield* one.send("POST", "/v1/things", { key: freshKey(), name: "a boat" })
        assert.deepStrictEqual([other.status, other.replayed], [201, false])
        assert.deepStrictEqual([seam.effects, (yield* things).length], [2, 2])
      }))

    it.effect("repeats refusals of the rules and answers without a body too", () =>
      Effect.gen(function*() {
        const { one, seam } = yield* setting
        const [refused, invalid, removed] = [freshKey(), freshKey(), freshKey()]
        seam.afterEffect = Effect.fail(new Forbidden())
        is(yield* one.send("POST", "/v1/things", { key: refused, name: "x" }), 403, "FORBIDDEN")
        seam.afterEffect = Effect.void
        const again = yield* one.send("POST", "/v1/things", { key: refused, name: "x" })
        is(again, 403, "FORBIDDEN")
        assert.isTrue(again.replayed)
        is(yield* one.send("POST", "/v1/things", { key: invalid }), 400, "VALIDATION_ERROR")
        assert.isTrue((yield* one.send("POST", "/v1/things", { key: invalid })).replayed)
        assert.strictEqual(seam.effects, 1)
        for (const replayed of [false, true]) {
          const answer = yield* one.send("DELETE", "/v1/things/7", { key: removed })
          assert.deepStrictEqual([answer.status, answer.text, answer.replayed], [204, "", replayed])
        }
        assert.strictEqual(seam.effects, 2)
      }))

    it.effect("is a conflict with another body, path or method, running or done (J 15, 16)", () =>
      Effect.gen(function*() {
        const { one, seam, two } = yield* setting
        const key = freshKey()
        const others: ReadonlyArray<readonly [string, string, string]> = [
          ["PATCH", "/v1/things/1", "y"],
          ["PATCH", "/v1/things/2", "x"],
          ["POST", "/v1/things", "x"],
          ["DELETE", "/v1/things/1", "x"]
        ]
        const { open, reached, wait } = yield* held
        seam.afterEffect = wait
        const running = yield* Effect.forkChild(one.send("PATCH", "/v1/things/1", { key, name: "x" }))
        yield* reached
        for (const [method, path, name] of others) {
          is(yield* two.send(method, path, { key, name }), 422, "IDEMPOTENCY_KEY_CONFLICT")
        }
        yield* open
        is(yield* Fiber.join(running), 200)
        for (const [method, path, name] of others) {
          is(yield* two.send(method, path, { key, name }), 422, "IDEMPOTENCY_KEY_CONFLICT")
        }
        assert.isTrue((yield* two.send("PATCH", "/v1/things/1", { key, name: "x" })).replayed)
        assert.strictEqual(seam.effects, 1)
      }))

    it.effect("of a request that is running is answered with 409 and Retry-After", () =>
      Effect.gen(function*() {
        const { one, seam, two } = yield* setting
        const key = freshKey()
        const { open, reached, wait } = yield* held
        seam.afterEffect = wait
        const running = yield* Effect.forkChild(one.send("PATCH", "/v1/things/1", { key, name: "x" }))
        yield* reached
        yield* TestClock.adjust(DEADLINE_MILLIS - 1)
        for (const node of [one, two]) {
          const answer = yield* node.send("PATCH", "/v1/things/1", { key, name: "x" })
          is(answer, 409, "IDEMPOTENT_IN_PROGRESS")
          assert.deepStrictEqual([answer.headers.get("retry-after"), answer.replayed], ["1", false])
        }
        yield* open
        is(yield* Fiber.join(running), 200)
        assert.isTrue((yield* two.send("PATCH", "/v1/things/1", { key, name: "x" })).replayed)
        assert.strictEqual(seam.effects, 1)
      }))

    it.effect("has one effect when it comes ten times at once over two processes (J 17)", () =>
      Effect.gen(function*() {
        const { one, seam, things, two } = yield* setting
        for (let round = 0; round < 5; round++) {
          seam.effects = 0
          const key = freshKey()
          const answers = yield* Effect.forEach(
            Array.from({ length: 10 }, (_, i) => i % 2 === 0 ? one : two),
            (node) => node.send("POST", "/v1/things", { key, name: "x" }),
            { concurrency: "unbounded" }
          )
          const first = answers.filter(({ replayed, status }) => status === 201 && !replayed)
          assert.strictEqual(first.length, 1)
          for (const answer of answers) {
            if (answer.status === 201) assert.strictEqual(answer.text, first[0]?.text)
            else is(answer, 409, "IDEMPOTENT_IN_PROGRESS")
          }
          assert.deepStrictEqual([seam.effects, (yield* things).length], [1, round + 1])
        }
      }))

    it.effect("belongs to its agent (J 18)", () =>
      Effect.gen(function*() {
        const { one, seam, things } = yield* setting
        const key = freshKey()
        const a = yield* one.send("POST", "/v1/things", { key, agent: "agt_a", name: "x" })
        const b = yield* one.send("POST", "/v1/things", { key, agent: "agt_b", name: "y" })
        assert.deepStrictEqual([a.status, b.status, a.replayed, b.replayed], [201, 201, false, false])
        assert.notStrictEqual(a.headers.get("location"), b.headers.get("location"))
        assert.deepStrictEqual([seam.effects, (yield* things).length], [2, 2])
      }))

    it.effect("does not keep a 429 or a 401, and the key is free for anything (J 19)", () =>
      Effect.gen(function*() {
        const { marks, one, seam } = yield* setting
        for (
          const [failure, status, code] of [
            [new RateLimited({ details: { retry_after_ms: 1000 } }), 429, "RATE_LIMITED"],
            [new Unauthorized(), 401, "UNAUTHORIZED"]
          ] as const
        ) {
          const key = freshKey()
          seam.afterEffect = Effect.fail(failure)
          is(yield* one.send("POST", "/v1/things", { key, name: "x" }), status, code)
          assert.notInclude(yield* marks, key)
          seam.afterEffect = Effect.void
          const again = yield* one.send("POST", "/v1/things", { key, name: "z" })
          assert.deepStrictEqual([again.status, again.replayed], [201, false])
          assert.isTrue((yield* one.send("POST", "/v1/things", { key, name: "z" })).replayed)
        }
      }))

    it.effect("does not keep a 5xx: the same request is attempted at once and meets the first one's row, another is a conflict", () =>
      Effect.gen(function*() {
        const { one, seam, things } = yield* setting
        for (const failure of [Effect.fail(new Unavailable()), Effect.die(new Error("a defect for the test"))]) {
          const key = freshKey()
          const before = (yield* things).length
          seam.effects = 0
          seam.afterEffect = failure
          assert.isAtLeast((yield* one.send("POST", "/v1/things", { key, name: "x" })).status, 500)
          const [made] = (yield* things).slice(-1)
          seam.afterEffect = Effect.void
          yield* TestClock.adjust("3 seconds")
          is(yield* one.send("POST", "/v1/things", { key, name: "y" }), 422, "IDEMPOTENCY_KEY_CONFLICT")
          const again = yield* one.send("POST", "/v1/things", { key, name: "x" })
          assert.deepStrictEqual([again.status, again.replayed], [201, false])
          assert.strictEqual(again.headers.get("location"), `/v1/things/${made}`)
          assert.deepStrictEqual([seam.effects, (yield* things).length], [2, before + 1])
        }
      }))

    it.effect("is 1 to 255 printable ASCII characters; others are refused and do nothing", () =>
      Effect.gen(function*() {
        const { one, seam } = yield* setting
        for (const key of ["", "k".repeat(256), "caf\u00e9", "a\tb"]) {
          is(yield* one.send("PATCH", "/v1/things/1", { key, name: "x" }), 400, "IDEMPOTENCY_KEY_INVALID")
        }
        assert.strictEqual(seam.effects, 0)
        for (const key of ["k", "k".repeat(255), "a b", "!~"]) {
          is(yield* one.send("PATCH", "/v1/things/1", { key, name: "x" }), 200)
          assert.isTrue((yield* one.send("PATCH", "/v1/things/1", { key, name: "x" })).replayed)
        }
        assert.strictEqual(seam.effects, 4)
      }))

    it.effect("is kept for 24 hours, and then forgotten and removed", () =>
      Effect.gen(function*() {
        const { marks, one, seam, things, two } = yield* setting
        const key = freshKey()
        const first = yield* one.send("POST", "/v1/things", { key, name: "x" })
        yield* TestClock.adjust("86399999 millis")
        assert.isTrue((yield* two.send("POST", "/v1/things", { key, name: "x" })).replayed)
        yield* TestClock.adjust("1 millis")
        const later = yield* two.send("POST", "/v1/things", { key, name: "y" })
        assert.deepStrictEqual([later.status, later.replayed], [201, false])
        assert.notStrictEqual(later.headers.get("location"), first.headers.get("location"))
        assert.deepStrictEqual([seam.effects, (yield* things).length], [2, 2])
        assert.isTrue((yield* one.send("POST", "/v1/things", { key, name: "y" })).replayed)
        yield* TestClock.adjust("86399999 millis")
        assert.include(yield* marks, key)
        yield* sweepExpired(idempotencyTables, "idempotency_keys")
        assert.include(yield* marks, key)
        yield* TestClock.adjust("1 millis")
        yield* sweepExpired(idempotencyTables, "idempotency_keys")
        assert.notInclude(yield* marks, key)
      }))

    it.effect("is removed in bounded batches", () =>
      Effect.gen(function*() {
        const { marks, sql } = yield* setting
        const sweep = sweepExpired(idempotencyTables, "idempotency_keys")
        const before = (yield* Clock.currentTimeMillis) - 86_400_000 - 1_200
        yield* sql`DELETE FROM idempotency_keys`
        yield* sql`INSERT INTO idempotency_keys (agent_id, key, fingerprint, nonce, created_at, lapses_at)
          SELECT 'agt_a', n::text, '', '', ${before} + n, 0 FROM generate_series(1, 1203) AS n`
        assert.deepStrictEqual(yield* sweep, { rows: 500, more: true })
        assert.strictEqual((yield* marks).length, 703)
        assert.deepStrictEqual(yield* sweep, { rows: 500, more: true })
        assert.deepStrictEqual(yield* sweep, { rows: 200, more: false })
        assert.sameMembers([...yield* marks], ["1201", "1202", "1203"])
        yield* sql`DELETE FROM idempotency_keys`
      }))

    it.effect("is taken over after the deadline if its process died between effect and answer, and the effect is not doubled", () =>
      Effect.gen(function*() {
        const { seam, things, two } = yield* setting
        const key = freshKey()
        const { reached, wait } = yield* held
        let killed = 0
        seam.afterEffect = Effect.onInterrupt(wait, () => Effect.sync(() => void killed++))
        const process = yield* Scope.make()
        const dying = yield* Effect.provideService(makeNode, Scope.Scope, process)
        const begun = yield* Clock.currentTimeMillis
        yield* Effect.forkDetach(dying.send("POST", "/v1/things", { key, name: "x" }))
        yield* reached
        // The process ends, after the moment that it gives to what is under way; its claim stays.
        const ending = yield* Effect.forkChild(Scope.close(process, Exit.void))
        while (ending.pollUnsafe() === undefined) {
          yield* TestClock.adjust("1 second")
          yield* things
        }
        const elapsed = (yield* Clock.currentTimeMillis) - begun
        assert.isBelow(elapsed, DEADLINE_MILLIS)
        assert.strictEqual(killed, 1)
        seam.afterEffect = Effect.void
        const [made] = yield* things
        assert.deepStrictEqual([seam.effects, (yield* things).length], [1, 1])
        yield* TestClock.adjust(LAPSE_MILLIS - elapsed - 1)
        is(yield* two.send("POST", "/v1/things", { key, name: "x" }), 409, "IDEMPOTENT_IN_PROGRESS")
        yield* TestClock.adjust(1)
        is(yield* two.send("POST", "/v1/things", { key, name: "y" }), 422, "IDEMPOTENCY_KEY_CONFLICT")
        const answer = yield* two.send("POST", "/v1/things", { key, name: "x" })
        assert.deepStrictEqual([answer.status, answer.replayed], [201, false])
        assert.strictEqual(answer.headers.get("location"), `/v1/things/${made}`)
        assert.deepStrictEqual(yield* things, [made])
        assert.isTrue((yield* two.send("POST", "/v1/things", { key, name: "x" })).replayed)
        assert.strictEqual(seam.effects, 2)
      }))

    it.effect("is taken over by one of ten requests once it was abandoned", () =>
      Effect.gen(function*() {
        const { one, seam, sql, things, two } = yield* setting
        const key = freshKey()
        is(yield* one.send("POST", "/v1/things", { key, name: "x" }), 201)
        const [made] = yield* things
        yield* sql`UPDATE idempotency_keys SET status = NULL, headers = NULL, body = NULL WHERE key = ${key}`
        yield* TestClock.adjust(LAPSE_MILLIS)
        seam.effects = 0
        const answers = yield* Effect.forEach(
          Array.from({ length: 10 }, (_, i) => i % 2 === 0 ? one : two),
          (node) => node.send("POST", "/v1/things", { key, name: "x" }),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(answers.filter(({ replayed, status }) => status === 201 && !replayed).length, 1)
        assert.strictEqual(seam.effects, 1)
        assert.deepStrictEqual(yield* things, [made])
      }))

    it.effect("cuts its handler off at the deadline, and is free once its last statement has surely ended", () =>
      Effect.gen(function*() {
        const { one, seam, two } = yield* setting
        const key = freshKey()
        const { reached, wait } = yield* held
        let cut = 0
        seam.afterEffect = Effect.onInterrupt(wait, () => Effect.sync(() => void cut++))
        const running = yield* Effect.forkChild(one.send("PATCH", "/v1/things/1", { key, name: "x" }))
        yield* reached
        yield* TestClock.adjust(DEADLINE_MILLIS - 1)
        assert.strictEqual(cut, 0)
        yield* TestClock.adjust(1)
        const answer = yield* Fiber.join(running)
        is(answer, 503, "UNAVAILABLE")
        assert.deepStrictEqual([cut, answer.headers.get("retry-after")], [1, "2"])
        seam.afterEffect = Effect.void
        is(yield* two.send("PATCH", "/v1/things/1", { key, name: "x" }), 409, "IDEMPOTENT_IN_PROGRESS")
        yield* TestClock.adjust(LAPSE_MILLIS - DEADLINE_MILLIS - 1)
        is(yield* two.send("PATCH", "/v1/things/1", { key, name: "x" }), 409, "IDEMPOTENT_IN_PROGRESS")
        yield* TestClock.adjust(1)
        is(yield* two.send("PATCH", "/v1/things/1", { key, name: "x" }), 200)
      }))

    it.effect("gets 503 and has no effect if it cannot be claimed", () =>
      Effect.gen(function*() {
        const { one, seam } = yield* setting
        const key = freshKey()
        yield* away("idempotency_keys")
        const answer = yield* one.send("PATCH", "/v1/things/1", { key, name: "x" })
        const without = yield* one.send("PATCH", "/v1/things/1", { name: "x" })
        yield* back("idempotency_keys")
        is(answer, 503, "UNAVAILABLE")
        assert.strictEqual(answer.headers.get("retry-after"), "2")
        is(without, 200)
        assert.strictEqual(seam.effects, 1)
        is(yield* one.send("PATCH", "/v1/things/1", { key, name: "x" }), 200)
      }))

    it.effect("gets its answer even if that cannot be stored, and lapses", () =>
      Effect.gen(function*() {
        const { one, seam, sql, things } = yield* setting
        const key = freshKey()
        seam.afterEffect = Effect.orDie(Effect.asVoid(sql`ALTER TABLE idempotency_keys RENAME TO away`))
        const answer = yield* one.send("POST", "/v1/things", { key, name: "x" })
        yield* sql`ALTER TABLE away RENAME TO idempotency_keys`
        is(answer, 201)
        seam.afterEffect = Effect.void
        is(yield* one.send("POST", "/v1/things", { key, name: "x" }), 409, "IDEMPOTENT_IN_PROGRESS")
        yield* TestClock.adjust(LAPSE_MILLIS)
        const again = yield* one.send("POST", "/v1/things", { key, name: "x" })
        assert.deepStrictEqual([again.text, again.replayed], [answer.text, false])
        assert.strictEqual((yield* things).length, 1)
      }))

    it.effect("has no effect any more once another attempt took over", () =>
      Effect.gen(function*() {
        const { sql } = yield* setting
        const repo = yield* IdempotencyRepo
        const key = freshKey()
        const fingerprint = Buffer.from("same")
        const attempt = (nonce: string) => ({ agentId: "agt_a", key, nonce: Buffer.from(nonce) })
        const claim = (nonce: string, now: number) =>
          repo.claim(attempt(nonce), { fingerprint, now, lapsesAt: now + 10, expired: now - 1_000 })
        const said = (text: string) => ({ status: 200, headers: {}, body: Buffer.from(text) })
        assert.deepStrictEqual(yield* claim("old", 100), { _tag: "Claimed", createdAt: 100 })
        assert.deepStrictEqual(yield* claim("new", 109), { _tag: "Running" })
        assert.deepStrictEqual(yield* claim("new", 110), { _tag: "Claimed", createdAt: 100 })
        for (
          const late of [
            repo.finish(attempt("old"), said("old")),
            repo.release(attempt("old")),
            repo.forget(attempt("old"))
          ]
        ) {
          yield* late
          assert.deepStrictEqual(yield* claim("third", 119), { _tag: "Running" })
        }
        yield* repo.finish(attempt("new"), said("new"))
        yield* repo.finish(attempt("old"), said("old"))
        assert.deepStrictEqual(yield* claim("third", 500), { _tag: "Done", answer: said("new") })
        yield* sql`DELETE FROM idempotency_keys WHERE key = ${key}`
      }))
  })
})

layer(layerNodes(layerPgliteTest))("a claim", (it) => {
  it.effect("is not taken over when the clock is set back by an hour, and lapses one lifetime after the first repeat", () =>
    Effect.gen(function*() {
      const repo = yield* IdempotencyRepo
      const claim = (nonce: number, now: number) =>
        Effect.map(
          repo.claim({ agentId: "agt_back", key: "back", nonce: Buffer.alloc(16, nonce) }, {
            fingerprint: Buffer.from("same"),
            now,
            lapsesAt: now + 60_000,
            expired: now - 86_400_000
          }),
          ({ _tag }) => _tag
        )
      const at = 1_700_000_000_000
      assert.deepStrictEqual([yield* claim(1, at), yield* claim(2, at + 1)], ["Claimed", "Running"])
      const after = at - 3_600_000
      assert.deepStrictEqual(
        [yield* claim(3, after), yield* claim(4, after + 59_999), yield* claim(5, after + 60_000)],
        ["Running", "Running", "Claimed"]
      )
    }))
})

layer(layerNodes(layerPgliteTest))("a request", (it) => {
  it.effect("without the header leaves nothing behind and is done every time", () =>
    Effect.gen(function*() {
      const { marks, one, seam, things } = yield* setting
      for (let i = 0; i < 3; i++) is(yield* one.send("POST", "/v1/things", { name: "x" }), 201)
      assert.deepStrictEqual([seam.effects, (yield* things).length, yield* marks], [3, 3, []])
    }))

  it.effect("to an endpoint that does not declare it may hold any header", () =>
    Effect.gen(function*() {
      const { marks, one, seam } = yield* setting
      for (const key of ["", "k".repeat(300), "k", "k"]) is(yield* one.send("POST", "/v1/unkeyed", { key }), 200)
      assert.deepStrictEqual([seam.effects, yield* marks], [4, []])
    }))

  it.effect("compares raw bytes one by one, up to the size that the endpoint allows", () =>
    Effect.gen(function*() {
      const { one, seam } = yield* setting
      const key = freshKey()
      const picture = (last: number, size = 1_500_000) => new Uint8Array(size).fill(0xff).fill(last, size - 1)
      const put = (bytes: Uint8Array<ArrayBuffer>, withKey: string) =>
        one.send("PUT", "/v1/things/1/picture", { key: withKey, bytes })
      const first = yield* put(picture(0xfe), key)
      assert.deepStrictEqual([first.status, first.text], [200, `{"size":1500000}`])
      assert.isTrue((yield* put(picture(0xfe), key)).replayed)
      // Both are the same replacement character as text.
      is(yield* put(picture(0xfd), key), 422, "IDEMPOTENCY_KEY_CONFLICT")
      is(yield* put(picture(0xfe, 2_000_001), freshKey()), 413, "PAYLOAD_TOO_LARGE")
      assert.strictEqual(seam.effects, 1)
    }))
})

describe("an id of something created", () => {
  const attempt = { agentId: "agt_a", key: "k", createdAt: 1_700_000_000_000 }
  const layerIds = Layer.provide(IdempotentIds.layer, Ids.layer)

  it.effect("is the same for the same agent, key and first attempt, and no other", () =>
    Effect.gen(function*() {
      const ids = yield* IdempotentIds
      const made = (changes: Partial<typeof attempt> = {}, which?: string | number) =>
        Effect.provideService(ids.make("grp", which), CurrentAttempt, { ...attempt, ...changes })
      const id = yield* made()
      assert.match(id, /^grp_[A-Za-z0-9_-]{16}$/)
      assert.strictEqual(yield* made(), id)
      assert.strictEqual(Buffer.from(id.slice(4), "base64url").readUIntBE(0, 6), attempt.createdAt)
      const others = [
        yield* made({ agentId: "agt_b" }),
        yield* made({ key: "l" }),
        yield* made({ createdAt: attempt.createdAt + 1 }),
        yield* made({}, 1),
        yield* made({}, 2),
        yield* Effect.provideService(ids.make("gri"), CurrentAttempt, attempt)
      ]
      assert.strictEqual(new Set([id, ...others].map((text) => text.slice(4))).size, 7)
    }).pipe(Effect.provide(layerIds)))

  it.effect("is fresh without a key", () =>
    Effect.gen(function*() {
      const ids = yield* IdempotentIds
      const made = yield* Effect.all([ids.make("grp"), ids.make("grp"), ids.make("grp")])
      assert.strictEqual(new Set(made).size, 3)
      for (const id of made) assert.match(id, /^grp_[A-Za-z0-9_-]{16}$/)
    }).pipe(Effect.provide(layerIds)))
})

describe("the OpenAPI document", () => {
  interface Operation {
    readonly security: ReadonlyArray<unknown>
    readonly parameters: ReadonlyArray<{ readonly $ref?: string }>
    readonly responses: Record<string, { readonly headers: Record<string, { readonly $ref?: string }> }>
  }
  const document = OpenApi.fromApi(Api) as unknown as {
    readonly paths: Record<string, Record<string, Operation>>
    readonly components: Record<string, Record<string, Record<string, unknown>>>
  }
  const operations = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const)
  )

  /** They need a key and take no Idempotency-Key (wire.md C.0, L). */
  const exempt = [
    "POST /v1/messages",
    "POST /v1/presence/batch",
    "POST /v1/agents/{handle}/rotate-key/verify",
    "PUT /v1/reply/active",
    "DELETE /v1/reply/active",
    "POST /v1/reply/claim",
    "POST /v1/reply/claim-batch"
  ]

  it("names the key on every operation that changes something for an agent, but those exempt", () => {
    const parameter = document.components["parameters"]?.["IdempotencyKey"]
    assert.deepStrictEqual([parameter?.["name"], parameter?.["in"], parameter?.["required"]], [
      "Idempotency-Key",
      "header",
      false
    ])
    let count = 0
    for (const [name, { parameters, responses, security }] of operations) {
      const changes = security.length > 0 && !name.startsWith("GET ") && !exempt.includes(name)
      if (changes) count++
      assert.strictEqual(
        parameters.some(({ $ref }) => $ref === "#/components/parameters/IdempotencyKey"),
        changes,
        `${name}: an endpoint that changes something for an agent has .middleware(Idempotency) before its group's Authorization`
      )
      const text = (status: string) => JSON.stringify(responses[status] ?? {})
      assert.strictEqual(text("400").includes("/IdempotencyKeyInvalid"), changes, name)
      assert.strictEqual(text("409").includes("/IdempotentInProgress"), changes, name)
      assert.strictEqual(text("422").includes("/IdempotencyKeyConflict"), changes, name)
      if (!changes) continue
      assert.strictEqual(responses["409"]?.headers["retry-after"]?.$ref, "#/components/headers/RetryAfter", name)
      assert.strictEqual(
        responses["403"]?.headers["idempotent-replay"]?.$ref,
        "#/components/headers/IdempotentReplay",
        name
      )
    }
    assert.isAtLeast(count, 7)
  })
})
