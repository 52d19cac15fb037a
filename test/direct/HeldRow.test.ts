import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { DeliveriesRepo } from "#domain/deliveries/DeliveriesRepo"
import { Groups } from "#domain/groups/Groups"
import { assert, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Client } from "pg"
import { layerPostgresTest } from "../support/Databases.ts"
import { chanceFor, eventuallyEffect } from "../support/Eventually.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"
import { Stopwatch } from "../support/Promptly.ts"

const modules = layerModules(layerPostgresTest(18), {
  LIMITS_COLD_CONVERSATIONS: 1_000,
  LIMITS_SENDS_PER_SECOND: 100_000
})

type Agent = { readonly id: string; readonly handle: string }

/** Repeats what is unavailable, as every client does it: what has waited for 5 s. */
const untilTaken = <A, E extends { readonly _tag: string }>(effect: Effect.Effect<A, E>) =>
  Effect.retry(effect, { while: ({ _tag }) => _tag === "Unavailable" })

/** The exit of a send that is repeated until it is decided. */
const decided = <A, E extends { readonly _tag: string }>(effect: Effect.Effect<A, E>) => Effect.exit(untilTaken(effect))

/** Waits until this many transactions wait for locks. */
const blocked = Effect.fnUntraced(function*(isSo: (count: number) => boolean) {
  const sql = yield* SqlClient.SqlClient
  const waiting = sql<{ readonly n: number }>`
    SELECT count(*)::integer AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
  yield* eventuallyEffect(
    () => "transactions that wait for locks",
    Effect.map(waiting, ([row]) => isSo(row?.n ?? 0) || undefined)
  )
})

const parse = (
  exit: Exit.Exit<{ readonly body: string }, unknown>
): { readonly seq: number; readonly client_msg_id: string } =>
  Exit.isSuccess(exit)
    ? JSON.parse(exit.value.body) as { seq: number; client_msg_id: string }
    : assert.fail(String(exit.cause))

const tagOf = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isSuccess(exit) ? "sent" : exit.cause.reasons.find(Cause.isFailReason)?.error._tag

/** Pairs that have written to each other, so that what follows are plain sends. */
const pairs = Effect.fnUntraced(function*(prefix: string, n: number) {
  const { send } = yield* Conversations
  return yield* Effect.forEach(Array.from({ length: n }, (_, i) => i), (i) =>
    Effect.gen(function*() {
      const [a, b] = [yield* newAgent(`${prefix}-a${i}`), yield* newAgent(`${prefix}-b${i}`)]
      const hello = draft(`${prefix}-hello-${i}`)
      const { body } = yield* untilTaken(send(a, { _tag: "Direct", handle: b.handle }, hello))
      yield* untilTaken(send(b, { _tag: "Direct", handle: a.handle }, hello))
      return { a, b, id: String((JSON.parse(body) as { conversation_id: string }).conversation_id) }
    }))
})

/** Another connection's transaction locks a row until it is told to let go. */
const lock = Effect.fnUntraced(function*(statement: string, id: string) {
  const sql = yield* SqlClient.SqlClient
  const locked = yield* Deferred.make<void>()
  const end = yield* Deferred.make<void>()
  const fiber = yield* Effect.forkChild(sql.withTransaction(
    // PostgreSQL does not end the transaction, however long it is idle.
    sql`SELECT set_config('idle_in_transaction_session_timeout', '0', true)`.pipe(
      Effect.andThen(sql.unsafe(statement, [id])),
      Effect.andThen(Deferred.succeed(locked, undefined)),
      Effect.andThen(Deferred.await(end))
    )
  ))
  yield* Deferred.await(locked)
  return Effect.andThen(Deferred.succeed(end, undefined), Fiber.join(fiber))
})

const CONVERSATION = "SELECT FROM conversations WHERE id = $1 FOR UPDATE"
const INBOX = "SELECT FROM inboxes WHERE agent_id = $1 FOR UPDATE"

it.live("while a conversation's row is locked, sends to others are answered promptly, and its own once it is free", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const { send } = yield* Conversations
    const [held, ...others] = yield* pairs("held", 12)
    if (held === undefined) return assert.fail("no pair")
    const to = (b: Agent) => ({ _tag: "Direct", handle: b.handle }) as const
    const free = yield* lock(CONVERSATION, held.id)
    const waiting = yield* Effect.forkChild(
      Effect.all([1, 2, 3].map((n) => decided(send(held.a, to(held.b), draft(`wait-${n}`)))), {
        concurrency: "unbounded"
      }),
      { startImmediately: true }
    )
    // The row is free only after all rounds.
    const watch = new Stopwatch()
    for (let round = 0; round < 4; round++) {
      const done = yield* Effect.all(others.map(({ a, b }) => decided(send(a, to(b), draft(`round-${round}`)))), {
        concurrency: "unbounded"
      })
      for (const exit of done) parse(exit)
    }
    // One wait of 300 ms in all; without it each round would take seconds.
    watch.endsWithin(2_500)
    assert.isUndefined(waiting.pollUnsafe())
    yield* free
    const seqs = (yield* Fiber.join(waiting)).map((exit) => parse(exit).seq)
    assert.sameMembers(seqs, [3, 4, 5])
    // Nothing is stored twice, whoever asks again.
    assert.strictEqual(parse(yield* decided(send(held.a, to(held.b), draft("wait-2")))).seq, seqs[1])
    const [row] = yield* sql<{ n: number }>`SELECT count(*) AS n FROM messages WHERE conversation_id = ${held.id}`
    assert.strictEqual(row?.n, 5)
  }).pipe(Effect.provide(modules)))

it.live("a send that meets a lock for 5 s is answered with 503 and stored never, or once when it is asked again", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const { send } = yield* Conversations
    const [held, other] = yield* pairs("late", 2)
    if (held === undefined || other === undefined) return assert.fail("no pair")
    const to = (b: Agent) => ({ _tag: "Direct", handle: b.handle }) as const
    // An inbox this time: it is in the way of everybody who writes to its agent.
    const free = yield* lock(INBOX, held.b.id)
    const waiting = yield* Effect.forkChild(
      Effect.all([
        Effect.exit(send(held.a, to(held.b), draft("late-1"))),
        Effect.exit(send(held.a, to(held.b), draft("late-2"))),
        Effect.exit(send(other.a, to(held.b), draft("late-3")))
      ], { concurrency: "unbounded" }),
      { startImmediately: true }
    )
    const watch = new Stopwatch()
    parse(yield* decided(send(other.a, to(other.b), draft("prompt"))))
    const done = yield* Fiber.join(waiting)
    assert.deepStrictEqual(done.map(tagOf), ["Unavailable", "Unavailable", "Unavailable"])
    watch.endsWithin(9_000)
    yield* free
    yield* blocked((count) => count === 0)
    const stored = sql<{ n: number }>`SELECT count(*) AS n FROM messages WHERE client_msg_id LIKE 'late-_'`
    assert.strictEqual((yield* stored)[0]?.n, 0)
    for (const key of ["late-1", "late-2", "late-1"]) parse(yield* decided(send(held.a, to(held.b), draft(key))))
    assert.strictEqual((yield* stored)[0]?.n, 2)
  }).pipe(Effect.provide(modules)))

it.live("a group with a member whose inbox is locked waits, and no other group does", () =>
  Effect.gen(function*() {
    const { send } = yield* Conversations
    const groups = yield* Groups
    const [a, b] = [yield* newAgent("grp-a"), yield* newAgent("grp-b")]
    const profile = { name: "Band", description: null, avatarUrl: null }
    const [held, other] = [
      yield* groups.create(a, { profile, handles: [b.handle] }),
      yield* groups.create(a, { profile, handles: [] })
    ]
    yield* groups.accept(b, String(held.add_results[0]?.invite_id))
    const to = (id: string) => ({ _tag: "Conversation", id }) as const
    const free = yield* lock(INBOX, b.id)
    const waiting = yield* Effect.forkChild(decided(send(a, to(held.group.id), draft("held"))), {
      startImmediately: true
    })
    yield* Effect.promise(() => chanceFor("a look at the lock", 600))
    parse(yield* decided(send(a, to(other.group.id), draft("other"))))
    assert.isUndefined(waiting.pollUnsafe())
    yield* free
    assert.strictEqual(parse(yield* Fiber.join(waiting)).client_msg_id, "held")
  }).pipe(Effect.provide(modules)))

it.live("while an inbox is locked, the acknowledgements and reads of others are stored, and its own once it is free", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const deliveries = yield* Deliveries
    const [held, ...others] = yield* pairs("acks", 6)
    if (held === undefined) return assert.fail("no pair")
    const read = ({ b, id }: typeof held) => untilTaken(deliveries.readThrough(b.id, b.handle, id, 1))
    const acknowledge = ({ a }: typeof held) => deliveries.acknowledge(a.id, 1)
    const stored = Effect.fnUntraced(function*(some: ReadonlyArray<typeof held>) {
      const ids = some.flatMap(({ a, b }) => [a.id, b.id])
      const [row] = yield* sql<
        { n: number }
      >`SELECT sum(undelivered)::integer AS n FROM inboxes WHERE agent_id = ANY(${ids})`
      return row?.n === 0
    })
    const soon = (some: ReadonlyArray<typeof held>) =>
      eventuallyEffect(() => "what is acknowledged", Effect.map(stored(some), (isSo) => isSo || undefined))
    const [freeReader, freeOther] = [yield* lock(INBOX, held.b.id), yield* lock(INBOX, held.a.id)]
    acknowledge(held)
    const waiting = yield* Effect.forkChild(read(held), { startImmediately: true })
    yield* Effect.promise(() => chanceFor("a look at the lock"))
    yield* Effect.all(others.map((pair) => Effect.andThen(Effect.sync(() => acknowledge(pair)), read(pair))), {
      concurrency: "unbounded"
    })
    yield* soon(others)
    assert.isUndefined(waiting.pollUnsafe())
    assert.isFalse(yield* stored([held]))
    yield* Effect.andThen(freeReader, freeOther)
    yield* Fiber.join(waiting)
    yield* soon([held])
  }).pipe(Effect.provide(modules)))

it.live("a search for locked rows does not wait for the disk while it holds the free ones", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const { locks } = yield* DeliveriesRepo
    const agent = yield* newAgent("probe-a")
    const [row] = yield* sql.withTransaction(
      Effect.andThen(
        locks.held([{ agentId: agent.id }]),
        sql<{ how: string }>`SELECT current_setting('synchronous_commit') AS how`
      )
    )
    assert.strictEqual(row?.how, "off")
  }).pipe(Effect.provide(Layer.provideMerge(DeliveriesRepo.layer, modules))))

it.live("the limit on waiting for locks costs no round trip", () =>
  Effect.gen(function*() {
    const { send } = yield* Conversations
    const [pair] = yield* pairs("trips", 1)
    if (pair === undefined) return assert.fail("no pair")
    const texts: Array<string> = []
    const query = Client.prototype.query
    // Only what is sent counts, not how.
    Client.prototype.query = function(this: Client, ...given: ReadonlyArray<unknown>) {
      const [config] = given
      texts.push(typeof config === "string" ? config : String((config as { readonly text?: string }).text))
      return Reflect.apply(query, this, given)
    } as typeof query
    yield* Effect.ensuring(
      send(pair.a, { _tag: "Direct", handle: pair.b.handle }, draft("one")),
      Effect.sync(() => Client.prototype.query = query)
    )
    assert.deepStrictEqual(texts.filter((text) => /lock_timeout|INSERT INTO messages/.test(text)).length, 1)
    assert.deepStrictEqual(texts.filter((text) => /^\s*(BEGIN|COMMIT|SET)\b/.test(text)), [])
  }).pipe(Effect.provide(modules)))
