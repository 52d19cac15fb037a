import type { Agent } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { AgentsRepo, type NewAgent } from "#domain/agents/AgentsRepo"
import { Config } from "#infrastructure/platform/Config"
import { sha256 } from "#infrastructure/platform/Ids"
import { Unavailable } from "#infrastructure/wire/WireError"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { layerPgliteTest } from "../support/Databases.ts"

/**
 * The repo with a tap on every look-up: how many there were, how many ids the last one was for, and what happens before
 * each.
 */
class Tap extends Context.Service<Tap, {
  queries: number
  ids: number
  before: Effect.Effect<void, Unavailable>
  after: Effect.Effect<void>
}>()("test/agents/Tap") {
  static readonly layer = Layer.sync(Tap, () => ({ queries: 0, ids: 0, before: Effect.void, after: Effect.void }))
}

const tapped = Layer.effect(
  AgentsRepo,
  Effect.gen(function*() {
    const repo = yield* AgentsRepo
    const tap = yield* Tap
    const tapping = <A>(query: Effect.Effect<A, Unavailable>) =>
      Effect.suspend(() => {
        tap.queries++
        return Effect.andThen(tap.before, Effect.tap(query, () => tap.after))
      })
    return AgentsRepo.of({
      ...repo,
      find: (sought) => {
        tap.ids = sought.ids.length
        return tapping(repo.find(sought))
      }
    })
  })
).pipe(Layer.provide(AgentsRepo.layer))

const module = Agents.layer.pipe(
  Layer.provideMerge(tapped),
  Layer.provideMerge(Tap.layer),
  Layer.provideMerge(Config.layerTest({ PUBLIC_URL: "https://parley.example" })),
  Layer.provideMerge(layerPgliteTest)
)

let made = 0

const newAgent = (changes: Partial<NewAgent> = {}): NewAgent => {
  const n = ++made
  return {
    id: `agt_${String(n).padStart(16, "0")}`,
    handle: `agent-${n}`,
    email: `agent-${n}@example.com`,
    displayName: null,
    description: null,
    keyHash: sha256(`ac_${n}`),
    ...changes
  }
}

const insert = Effect.fnUntraced(function*(changes: Partial<NewAgent> = {}) {
  const agent = newAgent(changes)
  const stored = yield* (yield* AgentsRepo).insert(agent, 1000, 3)
  assert.isDefined(stored)
  return agent
})

/** Until the statements of this turn of the event loop have begun. */
const nextTurn = Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))

/** From a clean slate: nothing cached of earlier tests, no queries counted. */
const fresh = Effect.gen(function*() {
  yield* TestClock.adjust("2 seconds")
  const tap = yield* Tap
  tap.queries = 0
  tap.before = Effect.void
  tap.after = Effect.void
  return { agents: yield* Agents, repo: yield* AgentsRepo, tap }
})

const databaseGone = Effect.suspend(() => Effect.fail(new Unavailable()))

layer(module)("Agents", (it) => {
  it.effect("finds an account by key, handle and id", () =>
    Effect.gen(function*() {
      const { agents } = yield* fresh
      const alice = yield* insert({ displayName: "Alice", description: "Cooks." })
      const expected: Partial<Agent> = {
        id: alice.id,
        handle: alice.handle,
        email: alice.email,
        displayName: "Alice",
        description: "Cooks.",
        avatarKey: null,
        status: "active",
        inboxMode: "open",
        groupInvitePolicy: "open",
        createdAt: 1000,
        updatedAt: 1000,
        deletedAt: null
      }
      const found = [
        yield* agents.byKeyHash(alice.keyHash),
        yield* agents.byHandle(alice.handle),
        (yield* agents.byIds([alice.id])).get(alice.id)
      ]
      for (const agent of found) assert.deepInclude(agent, expected)
      assert.isUndefined(yield* agents.byKeyHash(sha256("ac_nobody")))
      assert.isUndefined(yield* agents.byHandle("nobody"))
      assert.strictEqual((yield* agents.byIds(["agt_nobody"])).size, 0)
    }))

  it.effect("asks once a second at most for an account, whichever way it is looked for", () =>
    Effect.gen(function*() {
      const { agents, tap } = yield* fresh
      const alice = yield* insert()
      for (let i = 0; i < 10; i++) {
        yield* agents.byKeyHash(alice.keyHash)
        yield* agents.byHandle(alice.handle)
        yield* agents.byIds([alice.id])
      }
      assert.strictEqual(tap.queries, 1)
      yield* TestClock.adjust(999)
      yield* agents.byHandle(alice.handle)
      assert.strictEqual(tap.queries, 1)
      yield* TestClock.adjust(1)
      yield* agents.byHandle(alice.handle)
      assert.strictEqual(tap.queries, 2)
    }))

  it.effect("an answer's age counts from its question", () =>
    Effect.gen(function*() {
      const { agents, tap } = yield* fresh
      const alice = yield* insert()
      const go = yield* Deferred.make<void>()
      tap.after = Deferred.await(go)
      const asking = yield* Effect.forkChild(agents.byKeyHash(alice.keyHash))
      yield* Effect.yieldNow
      yield* nextTurn
      yield* TestClock.adjust(700)
      yield* Deferred.succeed(go, undefined)
      yield* Fiber.join(asking)
      yield* agents.byIds([alice.id])
      assert.strictEqual(tap.queries, 1)
      yield* TestClock.adjust(300)
      yield* agents.byIds([alice.id])
      assert.strictEqual(tap.queries, 2)
    }))

  it.effect("concurrent look-ups of one key share a query, and one caller's interruption leaves the others theirs", () =>
    Effect.gen(function*() {
      const { agents, tap } = yield* fresh
      const alice = yield* insert()
      const go = yield* Deferred.make<void>()
      tap.before = Deferred.await(go)
      const first = yield* Effect.forkChild(agents.byKeyHash(alice.keyHash))
      const others = yield* Effect.forEach(
        Array.from({ length: 20 }),
        () => Effect.forkChild(agents.byKeyHash(alice.keyHash))
      )
      yield* Effect.yieldNow
      yield* Fiber.interrupt(first)
      yield* Deferred.succeed(go, undefined)
      const found = yield* Fiber.joinAll(others)
      assert.isTrue(found.every((agent) => agent?.id === alice.id))
      assert.strictEqual(tap.queries, 1)
    }))

  it.effect("look-ups of one turn share one query, by keys, handles and ids; look-ups while it runs share another", () =>
    Effect.gen(function*() {
      const { agents, tap } = yield* fresh
      const [a, b, c, d, e, f] = [
        yield* insert(),
        yield* insert(),
        yield* insert(),
        yield* insert(),
        yield* insert(),
        yield* insert()
      ]
      yield* agents.byIds([a.id])
      tap.queries = 0
      const go = yield* Deferred.make<void>()
      tap.before = Deferred.await(go)
      const one = yield* Effect.forkChild(agents.byIds([a.id, b.id, c.id, b.id]))
      const two = yield* Effect.forkChild(agents.byIds([c.id, d.id, "agt_nobody"]))
      const three = yield* Effect.forkChild(agents.byHandle(e.handle))
      const four = yield* Effect.forkChild(agents.byKeyHash(f.keyHash))
      yield* Effect.yieldNow
      yield* nextTurn
      const late = yield* Effect.forkChild(agents.byIds([d.id, e.id]))
      yield* Effect.yieldNow
      yield* nextTurn
      yield* Deferred.succeed(go, undefined)
      assert.strictEqual((yield* Fiber.join(three))?.id, e.id)
      assert.strictEqual((yield* Fiber.join(four))?.id, f.id)
      assert.deepStrictEqual([...(yield* Fiber.join(late)).keys()].sort(), [d.id, e.id].sort())
      assert.deepStrictEqual([...(yield* Fiber.join(one)).keys()].sort(), [a.id, b.id, c.id].sort())
      assert.deepStrictEqual([...(yield* Fiber.join(two)).keys()].sort(), [c.id, d.id].sort())
      assert.strictEqual(tap.queries, 2)
    }))

  it.effect("a forgotten account is read again at once", () =>
    Effect.gen(function*() {
      const { agents, repo } = yield* fresh
      const alice = yield* insert()
      yield* agents.byKeyHash(alice.keyHash)
      yield* repo.replaceKey(alice.id, sha256("ac_new"), 2000)
      assert.isDefined(yield* agents.byKeyHash(alice.keyHash))
      agents.forget(alice.id)
      assert.isUndefined(yield* agents.byKeyHash(alice.keyHash))
      assert.strictEqual((yield* agents.byKeyHash(sha256("ac_new")))?.id, alice.id)
    }))

  it.effect("a look-up that read before a change neither answers later callers nor stays", () =>
    Effect.gen(function*() {
      const { agents, repo, tap } = yield* fresh
      const alice = yield* insert()
      const go = yield* Deferred.make<void>()
      tap.after = Deferred.await(go)
      const early = yield* Effect.forkChild(agents.byKeyHash(alice.keyHash))
      yield* Effect.yieldNow
      yield* nextTurn
      tap.after = Effect.void
      yield* repo.end(alice.id, 2000)
      agents.forget(alice.id)
      assert.isUndefined(yield* agents.byKeyHash(alice.keyHash))
      yield* Deferred.succeed(go, undefined)
      assert.isDefined(yield* Fiber.join(early))
      assert.isUndefined(yield* agents.byKeyHash(alice.keyHash))
    }))

  it.effect("a deleted account has no key and no handle, but keeps its id", () =>
    Effect.gen(function*() {
      const { agents, repo } = yield* fresh
      const alice = yield* insert({ displayName: "Alice", description: "Cooks." })
      assert.isTrue(yield* repo.end(alice.id, 5000))
      assert.isFalse(yield* repo.end(alice.id, 6000))
      assert.isUndefined(yield* agents.byKeyHash(alice.keyHash))
      assert.isUndefined(yield* agents.byHandle(alice.handle))
      assert.deepInclude((yield* agents.byIds([alice.id])).get(alice.id), {
        handle: alice.handle,
        deletedAt: 5000,
        displayName: null,
        description: null
      })
      assert.isUndefined(yield* agents.byHandle(alice.handle))
    }))

  it.effect("a deleted account keeps values in these columns alone", () =>
    Effect.gen(function*() {
      const { repo } = yield* fresh
      const sql = yield* SqlClient.SqlClient
      const alice = yield* insert({ displayName: "Alice", description: "Cooks." })
      const columns = yield* sql<{ name: string; type: string }>`
        SELECT column_name AS name, data_type AS type FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = 'agents' AND is_nullable = 'YES' AND column_name <> 'deleted_at'`
      for (const { name, type } of columns) {
        yield* sql`UPDATE agents SET ${sql(name)} = ${
          sql.literal(type === "bytea" ? "'\\x01'" : "'1'")
        } WHERE id = ${alice.id}`
      }
      assert.isTrue(yield* repo.end(alice.id, 5000))
      const [row = {}] = yield* sql`SELECT * FROM agents WHERE id = ${alice.id}`
      const kept = Object.entries(row).filter(([, value]) => value !== null).map(([name]) => name)
      assert.sameMembers(kept, [
        "id",
        "handle",
        "email",
        "email_no",
        "status",
        "inbox_mode",
        "group_invite_policy",
        "created_at",
        "updated_at",
        "deleted_at",
        "restricted_until",
        "suspended_at",
        "counted_from",
        "judged",
        "webhook_events"
      ])
    }))

  it.effect("look-ups fail with 503 as long as the database is away", () =>
    Effect.gen(function*() {
      const { agents, tap } = yield* fresh
      const alice = yield* insert()
      tap.before = databaseGone
      const lookUps: ReadonlyArray<Effect.Effect<unknown, Unavailable>> = [
        agents.byKeyHash(alice.keyHash),
        agents.byHandle(alice.handle),
        agents.byIds([alice.id])
      ]
      for (const lookUp of lookUps) {
        const error = yield* Effect.flip(lookUp)
        assert.strictEqual(error.code, "UNAVAILABLE")
        assert.strictEqual(error.status, 503)
      }
      tap.before = Effect.void
      assert.isDefined(yield* agents.byKeyHash(alice.keyHash))
      tap.before = databaseGone
      assert.isDefined(yield* agents.byKeyHash(alice.keyHash))
    }))

  it.effect("look-ups fail with 503 after five seconds if the database does not answer", () =>
    Effect.gen(function*() {
      const { agents, tap } = yield* fresh
      tap.before = Effect.never
      const asking = yield* Effect.forkChild(Effect.flip(agents.byHandle("anybody")))
      yield* Effect.yieldNow
      yield* nextTurn
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual((yield* Fiber.join(asking)).code, "UNAVAILABLE")
    }))

  it.effect("avatar URLs begin with the public address", () =>
    Effect.gen(function*() {
      const { agents } = yield* fresh
      const alice = yield* insert()
      const agent = yield* agents.byHandle(alice.handle)
      assert.isDefined(agent)
      assert.isNull(agents.avatarUrl(agent!))
      assert.strictEqual(
        agents.avatarUrl({ ...agent!, avatarKey: "k.webp" }),
        "https://parley.example/v1/avatars/k.webp"
      )
    }))

  it.effect("the cache holds fifty thousand accounts at most", () =>
    Effect.gen(function*() {
      const { agents, tap } = yield* fresh
      const sql = yield* SqlClient.SqlClient
      yield* sql`
        INSERT INTO agents (id, handle, email, created_at, updated_at)
        SELECT 'many_' || n, 'many-' || n, n || '@many.example', 1, 1 FROM generate_series(1, 60000) AS n`
      const ids = Array.from({ length: 60_000 }, (_, i) => `many_${i + 1}`)
      assert.strictEqual((yield* agents.byIds(ids)).size, 60_000)
      assert.strictEqual((yield* agents.byIds(ids)).size, 60_000)
      assert.strictEqual(tap.ids, 10_000)
    }))
})

describe("the creation of an account", () => {
  layer(module)((it) => {
    it.effect("gives the account an inbox", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const alice = yield* insert()
        assert.deepStrictEqual(
          yield* sql`SELECT last_no, undelivered FROM inboxes WHERE agent_id = ${alice.id}`,
          [{ last_no: 0, undelivered: 0 }]
        )
      }))

    it.effect("creates nothing if the handle, the address or the lifetime limit forbids it", () =>
      Effect.gen(function*() {
        const repo = yield* AgentsRepo
        const sql = yield* SqlClient.SqlClient
        const email = "once@example.com"
        const first = yield* insert({ email })
        const count = () =>
          Effect.map(
            sql<{ n: number }>`SELECT (SELECT count(*) FROM agents) + (SELECT count(*) FROM inboxes) AS n`,
            (rows) => rows[0]?.n
          )
        const before = yield* count()
        assert.isUndefined(yield* repo.insert(newAgent({ handle: first.handle }), 1, 3))
        assert.isUndefined(yield* repo.insert(newAgent({ email }), 1, 3))
        assert.deepStrictEqual(yield* repo.obstacles(first.handle, email), {
          handleTaken: true,
          emailTaken: true,
          lifetime: 1
        })
        assert.strictEqual(yield* count(), before)
        yield* repo.end(first.id, 2)
        const second = yield* insert({ email })
        yield* repo.end(second.id, 3)
        const third = yield* insert({ email })
        yield* repo.end(third.id, 4)
        assert.deepStrictEqual(yield* repo.obstacles("free", email), {
          handleTaken: false,
          emailTaken: false,
          lifetime: 3
        })
        assert.isUndefined(yield* repo.insert(newAgent({ email }), 1, 3))
        assert.isTrue(yield* repo.handleExists(second.handle))
        assert.isFalse(yield* repo.handleExists("never-was"))
      }))
  })
})
