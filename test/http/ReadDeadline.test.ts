import { AccountsApi } from "#domain/accounts/AccountsApi"
import { AccountsHttp } from "#domain/accounts/AccountsHttp"
import { Auth } from "#domain/auth/Auth"
import { Authorization, AuthorizationEvenSuspended } from "#domain/auth/Authorization"
import { AnonymousBudget, Budgets } from "#domain/auth/Budgets"
import { OptionalAuthorization } from "#domain/auth/OptionalAuthorization"
import { MessagesApi } from "#domain/conversations/MessagesApi"
import { MessagesHttp } from "#domain/conversations/MessagesHttp"
import { DirectoryApi } from "#domain/directory/DirectoryApi"
import { DirectoryBudget } from "#domain/directory/DirectoryBudget"
import { DirectoryHttp } from "#domain/directory/DirectoryHttp"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { PresenceApi } from "#domain/presence/PresenceApi"
import { PresenceHttp } from "#domain/presence/PresenceHttp"
import { RepliesApi } from "#domain/replies/RepliesApi"
import { RepliesHttp } from "#domain/replies/RepliesHttp"
import { withReadDeadline } from "#infrastructure/http/Endpoints"
import { Unavailable } from "#infrastructure/wire/WireError"
import { WireErrors } from "#infrastructure/wire/WireErrors"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, type Scope } from "effect"
import { HttpEffect, HttpRouter, type HttpServerRequest, type HttpServerResponse } from "effect/http"
import { HttpApi, HttpApiBuilder } from "effect/http-api"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { eachDatabase } from "../support/Databases.ts"
import { breath, eventually } from "../support/Eventually.ts"
import { hang, layerHanging, waited } from "../support/HangingDatabase.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

class RoomsApi extends HttpApi.make("parley")
  .add(AccountsApi, DirectoryApi, MessagesApi, PresenceApi, RepliesApi)
  .middleware(WireErrors)
{}

const routes = HttpApiBuilder.layer(RoomsApi).pipe(
  Layer.provide(Layer.mergeAll(AccountsHttp, DirectoryHttp, MessagesHttp, PresenceHttp, RepliesHttp)),
  Layer.provide(Layer.mergeAll(
    Authorization.layer,
    AuthorizationEvenSuspended.layer,
    OptionalAuthorization.layer,
    AnonymousBudget.layer,
    DirectoryBudget.layer,
    Idempotency.layer,
    WireErrors.layer
  )),
  Layer.provide(NodeHttpServer.layerHttpServices)
)

type Asked = readonly [method: string, path: string, body?: object]

const READS: ReadonlyArray<Asked> = [
  ["GET", "/v1/messages/sync"],
  ["GET", "/v1/messages/conv_1"],
  ["GET", "/v1/agents/somebody-else"],
  ["GET", "/v1/directory?q=some"],
  ["GET", "/v1/presence/somebody"],
  ["POST", "/v1/presence/batch", { handles: ["somebody"] }],
  ["GET", "/v1/reply/active"],
  ["PUT", "/v1/reply/active"],
  ["DELETE", "/v1/reply/active"],
  ["POST", "/v1/reply/claim", { message_id: "msg_1", holder: "daemon:1" }],
  ["POST", "/v1/reply/claim-batch", { message_ids: ["msg_1"], holder: "daemon:1" }],
  // More claims than are made at once: the last of them wait for their turn.
  ["POST", "/v1/reply/claim", { message_id: "msg_2", holder: "daemon:1" }],
  ["POST", "/v1/reply/claim", { message_id: "msg_3", holder: "daemon:1" }]
]

const sum = (counts: Iterable<number>): number => [...counts].reduce((all, count) => all + count, 0)

const send = (
  to: string,
  id: string
): Asked => ["POST", "/v1/messages", { to, client_msg_id: id, content: { text: id } }]

layer(Layer.mergeAll(Auth.layer, Budgets.layer).pipe(Layer.provideMerge(layerModules(layerHanging))))((it) => {
  const make = Effect.gen(function*() {
    const app: Effect.Effect<
      HttpServerResponse.HttpServerResponse,
      unknown,
      HttpServerRequest.HttpServerRequest | Scope.Scope
    > = yield* HttpRouter.toHttpEffect(routes)
    const handle = HttpEffect.toWebHandlerWith<never, HttpServerRequest.HttpServerRequest | Scope.Scope>(
      yield* Effect.context<never>()
    )(app)
    return (key: string, [method, path, body]: Asked) =>
      Effect.promise(async () => {
        const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
        const given = body === undefined ? {} : { body: JSON.stringify(body) }
        const response = await handle(new Request(`http://parley.example${path}`, { method, headers, ...given }))
        const text = await response.text()
        const { code } = JSON.parse(text) as { readonly code?: string }
        return [response.status, code, response.headers.get("retry-after")] as const
      })
  })

  // Two of the statements for claims and leases run at once, so three wait; one of the two sends has a statement. All
  // requests that check a key share one statement.
  for (
    const [what, isKnown, statements] of [["its rows", true, READS.length - 3 + 1], ["the key", false, 1]] as const
  ) {
    it.effect(`a read or a call of reply coordination is answered with 503 after 3.5 s, and a send after 5 s, if ${what} cannot be read`, () =>
      Effect.gen(function*() {
        const ask = yield* make
        const name = isKnown ? "known" : "new"
        const [one, other] = [yield* newAgent(`${name}-one`), yield* newAgent(`${name}-other`)]
        // A key that was checked less than a second ago is not checked again.
        if (isKnown) { for (const { key } of [one, other]) yield* ask(key, ["GET", "/v1/agents/me"]) }
        const goOn = yield* hang
        const begin = (asked: Asked) => Effect.forkChild(ask(one.key, asked), { startImmediately: true })
        const reads = yield* Effect.forEach(READS, begin)
        // What a send begins by itself, a look-up of a key included, keeps the time of sends.
        const sends = yield* Effect.forEach([send(other.handle, "a"), send(other.handle, "b")], begin)
        const answered = (fibers: typeof reads) => fibers.filter((fiber) => fiber.pollUnsafe() !== undefined).length
        const untilAnswered = (fibers: typeof reads) =>
          Effect.promise(() => eventually("the answers", () => answered(fibers) === fibers.length || undefined))
        yield* Effect.promise(() =>
          eventually("the statements of all requests", () => sum(waited.values()) >= statements || undefined)
        )
        yield* TestClock.adjust("3400 millis")
        assert.strictEqual(answered(reads), 0)
        yield* TestClock.adjust("200 millis")
        yield* untilAnswered(reads)
        for (const [i, fiber] of reads.entries()) {
          assert.deepStrictEqual(yield* Fiber.join(fiber), [503, "UNAVAILABLE", "2"], READS[i]!.join(" "))
        }
        const atOnce = (waited.get("claim_replies") ?? 0) + (waited.get("end_reply_lease") ?? 0)
        assert.strictEqual(
          atOnce,
          isKnown ? 2 : 0,
          "callers that have stopped waiting let no others go to the database"
        )
        yield* TestClock.adjust("1300 millis")
        assert.strictEqual(answered(sends), 0)
        yield* TestClock.adjust("2 seconds")
        yield* untilAnswered(sends)
        for (const fiber of sends) assert.deepStrictEqual(yield* Fiber.join(fiber), [503, "UNAVAILABLE", "2"])

        yield* goOn
        yield* TestClock.adjust("2 seconds")
        for (const asked of READS) assert.include([200, 404], (yield* ask(one.key, asked))[0], asked.join(" "))
      }))
  }
})

eachDatabase((database, { version }) => {
  layer(database)((it) => {
    it.effect("the transaction of a read that timed out is rolled back, and its connection comes back", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        yield* sql`CREATE TABLE IF NOT EXISTS held (n integer PRIMARY KEY)`
        const locked = yield* Deferred.make<void>()
        const release = yield* Deferred.make<void>()
        const holder = yield* Effect.forkChild(sql.withTransaction(Effect.gen(function*() {
          yield* sql`INSERT INTO held VALUES (1)`
          yield* Deferred.succeed(locked, undefined)
          yield* Deferred.await(release)
        })))
        yield* Deferred.await(locked)
        // On PostgreSQL these wait for the row, and on PGlite for the session.
        const read = sql.withTransaction(sql`INSERT INTO held VALUES (1) ON CONFLICT DO NOTHING`)
        const reads = yield* Effect.forEach(
          [1, 2, 3],
          () => Effect.forkChild(Effect.exit(withReadDeadline(read)), { startImmediately: true })
        )
        if (version !== undefined) {
          const waiting = sql<{ n: number }>`SELECT count(*) AS n FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'`
          while ((yield* waiting)[0]?.n !== reads.length) yield* Effect.promise(breath)
        }
        yield* TestClock.adjust("3500 millis")
        for (const fiber of reads) assert.deepStrictEqual(yield* Fiber.join(fiber), Exit.fail(new Unavailable()))
        yield* Deferred.succeed(release, undefined)
        yield* Fiber.join(holder)
        // As many transactions at once as there are connections.
        const rows = yield* Effect.forEach(
          Array.from({ length: 10 }),
          () => sql.withTransaction(sql<{ n: number }>`SELECT n FROM held`),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(rows, rows.map(() => [{ n: 1 }]))
      }))
  })
}, { pglite: true })
