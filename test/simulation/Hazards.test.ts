import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { makeDirectIds } from "#domain/direct/DirectConversation"
import { DirectEntity } from "#domain/direct/DirectEntity"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Secrets } from "#infrastructure/database/Secrets"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { boundless } from "#infrastructure/http/BufferedBytes"
import { SocketSession } from "#interfaces/realtime/SocketSession"
import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Context, Effect, Exit, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { isInstalled, type PostgresVersion } from "../../runners/local/Postgres.ts"
import { layerSeam, Seam } from "../../verification/simulation/World.ts"
import { entityClient } from "../support/AsACaller.ts"
import { eachDatabase, freshDatabase, postgresVersions, type TestDatabase } from "../support/Databases.ts"
import { breath } from "../support/Eventually.ts"
import { FakeSocket } from "../support/FakeSocket.ts"
import { UNSOUND } from "../support/Invariants.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const RELAXED = { LIMITS_SENDS_PER_SECOND: 1_000_000, LIMITS_COLD_CONVERSATIONS: 1_000 }

const parse = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>

const direct = (handle: string) => ({ _tag: "Direct", handle }) as const

const eachPostgres = (suite: (version: PostgresVersion) => void): void => {
  for (const version of postgresVersions(false)) {
    const title = isInstalled(version)
      ? `PostgreSQL ${version}`
      : `PostgreSQL ${version} (not found: apt-get install postgresql-${version})`
    describe.skipIf(!isInstalled(version))(title, () => suite(version))
  }
}

/**
 * Lets what is under way on a database elsewhere come to rest, moving the clock now and then. Each round waits for a
 * statement of its own, so that a rest takes longer on a busy machine, on which other statements take longer too.
 */
const rest = (deliveries: Deliveries["Service"]) =>
  Effect.gen(function*() {
    for (let i = 0; i < 20; i++) {
      yield* Effect.promise(breath)
      yield* deliveries.heads(["nobody"])
      yield* TestClock.adjust(10)
      yield* deliveries.settled
    }
  })

/** An open socket of an agent, with the real SocketSession behind it. */
const connect = Effect.fnUntraced(function*(
  agent: { readonly id: string; readonly handle: string },
  through: (session: SocketSession) => LiveSession = (session) => session,
  unsent = 0
) {
  const clock = yield* Clock.Clock
  const deliveries = yield* Deliveries
  const liveAgents = yield* LiveAgents
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  const socket = new FakeSocket(() => clock.currentTimeMillisUnsafe())
  socket.bufferedAmount = unsent
  const session = new SocketSession(socket.asWebSocket, liveAgents.here(agent.id), agent.handle, true, {
    deliveries,
    inSlot: (_, query) => query,
    backlogBytes: 1_048_576,
    unsentBytes: 4_194_304,
    held: boundless(),
    fork: (effect) => {
      fork(effect)
    }
  })
  liveAgents.attach(agent.id, through(session))
  session.start()
  return {
    session,
    socket,
    messages: () => socket.sent.map(({ frame }) => parse(frame)["payload"] as Record<string, unknown>),
    /** Compares with storage as the gateway does, twice. */
    check: Effect.gen(function*() {
      for (let i = 0; i < 2; i++) {
        session.check((yield* deliveries.heads([agent.id])).get(agent.id) ?? 0)
        yield* rest(deliveries)
      }
    })
  }
})

const audit = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  assert.deepStrictEqual(yield* sql.unsafe(UNSOUND), [])
})

eachPostgres((version) => {
  describe("two nodes write to the same conversations", () => {
    it.effect("no error, no gap, no inversion; a repeated id is one message", () =>
      Effect.gen(function*() {
        const url = Redacted.make(yield* Effect.promise(() => freshDatabase(version)))
        const node = Layer.fresh(layerModules(layerPg({ url, poolSize: 6 }), RELAXED))
        const nodes = [yield* Layer.build(node), yield* Layer.build(node)]
        const on = <A, E, R>(i: number, effect: Effect.Effect<A, E, R>) =>
          Effect.provide(effect, nodes[i]! as Context.Context<R>)
        const agents = yield* on(0, Effect.forEach(["a", "b", "c", "d"], (name) => newAgent(`two-nodes-${name}`)))
        const send = (i: number, from: number, to: number, id: string) =>
          on(
            i,
            Effect.flatMap(Conversations, (conversations) =>
              conversations.send(agents[from]!, direct(agents[to]!.handle), draft(id)).pipe(
                // As every client does: a send whose conversation moves is asked for again.
                Effect.retry({
                  times: 20,
                  while: (failure) => failure._tag === "Unavailable"
                })
              ))
          )
        const pairs = [0, 1, 2, 3].flatMap((from) =>
          [0, 1, 2, 3].filter((to) => to !== from).map((to) => [from, to] as const)
        )
        yield* Effect.forEach(pairs, ([from, to]) => send(0, from, to, `first-${from}-${to}`).pipe(Effect.ignore))
        yield* Effect.forEach(pairs, ([from, to]) => send(0, from, to, `second-${from}-${to}`))
        const sockets = [yield* on(0, connect(agents[0]!)), yield* on(1, connect(agents[0]!))]
        const sends = Array.from({ length: 30 }, (_, n) =>
          pairs.flatMap(([from, to]) => {
            const id = `m-${from}-${to}-${n}`
            // Every fourth is asked for on both nodes at once.
            return n % 4 === 0 ? [[0, from, to, id], [1, from, to, id]] as const : [[n % 2, from, to, id]] as const
          })).flat()
        const answers = yield* Effect.forEach(sends, ([i, from, to, id]) => Effect.exit(send(i, from, to, id)), {
          concurrency: 24
        })
        const failed = answers.filter(Exit.isFailure)
        assert.deepStrictEqual(failed.map((exit) => String(exit.cause)), [])
        const ids = new Map<string, Set<unknown>>()
        answers.forEach((exit, k) => {
          if (!Exit.isSuccess(exit)) return
          const known = ids.get(sends[k]![3]) ?? new Set()
          ids.set(sends[k]![3], known.add(parse(exit.value.body)["id"]))
        })
        for (const [id, answered] of ids) assert.strictEqual(answered.size, 1, `${id} is more than one message`)
        yield* on(0, audit)
        for (const [i, socket] of sockets.entries()) {
          yield* on(i, Effect.flatMap(Deliveries, rest))
          yield* on(i, socket.check)
          const own = socket.messages().filter((message) => message["delivery_id"] !== null)
          const [inbox] = yield* on(
            0,
            Effect.flatMap(
              SqlClient.SqlClient,
              (sql) => sql<{ last_no: number }>`SELECT last_no FROM inboxes WHERE agent_id = ${agents[0]!.id}`
            )
          )
          assert.strictEqual(own.length, inbox?.last_no, "each envelope is shown once")
          const newest = new Map<unknown, number>()
          for (const message of socket.messages().filter((one) => one["sender"] !== agents[0]!.handle)) {
            const seq = Number(message["seq"])
            assert.isAbove(seq, newest.get(message["conversation_id"]) ?? 0)
            newest.set(message["conversation_id"], seq)
          }
        }
      }))

    it.effect("both sides open the same conversation at the same time, each on another node", () =>
      Effect.gen(function*() {
        const url = Redacted.make(yield* Effect.promise(() => freshDatabase(version)))
        const node = Layer.fresh(layerModules(layerPg({ url, poolSize: 4 }), RELAXED))
        const nodes = [yield* Layer.build(node), yield* Layer.build(node)]
        const on = <A, E, R>(i: number, effect: Effect.Effect<A, E, R>) =>
          Effect.provide(effect, nodes[i]! as Context.Context<R>)
        for (let round = 0; round < 10; round++) {
          const [a, b] = yield* on(0, Effect.all([newAgent(`open-a-${round}`), newAgent(`open-b-${round}`)]))
          const send = (i: number, from: typeof a, to: typeof a, id: string) =>
            on(
              i,
              Effect.flatMap(Conversations, (conversations) => conversations.send(from, direct(to.handle), draft(id)))
            )
          const answers = yield* Effect.all([
            Effect.exit(send(0, a, b, "hello")),
            Effect.exit(send(1, b, a, "hello"))
          ], { concurrency: "unbounded" })
          const seqs = answers.map((exit) => Exit.isSuccess(exit) ? parse(exit.value.body)["seq"] : String(exit.cause))
          assert.sameMembers(seqs, [1, 2], `round ${round}`)
        }
        yield* on(0, audit)
      }))

    it.effect("a node that slept through the opening of a conversation joins it", () =>
      Effect.gen(function*() {
        const url = Redacted.make(yield* Effect.promise(() => freshDatabase(version)))
        const node = Layer.fresh(layerModules(layerPg({ url, poolSize: 4 }), RELAXED))
        const nodes = [yield* Layer.build(node), yield* Layer.build(node)]
        const on = <A, E, R>(i: number, effect: Effect.Effect<A, E, R>) =>
          Effect.provide(effect, nodes[i]! as Context.Context<R>)
        const [a, b] = yield* on(0, Effect.all([newAgent("slept-a"), newAgent("slept-b")]))
        const send = (i: number, from: typeof a, to: typeof a, id: string) =>
          on(
            i,
            Effect.flatMap(Conversations, (conversations) => conversations.send(from, direct(to.handle), draft(id)))
          )
        const blocked = yield* on(0, SqlClient.SqlClient)
        yield* blocked`INSERT INTO blocks (agent_id, blocked_id, created_at) VALUES (${b.id}, ${a.id}, 0)`
        // Node 0 now remembers that nothing was ever written.
        yield* blocked`UPDATE agents SET inbox_mode = 'contacts_only' WHERE id = ${b.id}`
        yield* blocked`DELETE FROM blocks`
        assert.strictEqual((yield* Effect.flip(send(0, a, b, "m0")))._tag, "InboxRestricted")
        yield* send(1, b, a, "hello")
        const reply = yield* send(0, a, b, "m1")
        assert.strictEqual(parse(reply.body)["seq"], 2)
        yield* on(0, audit)
      }))
  })
})

eachDatabase((database) => {
  layer(layerModules(database, RELAXED))((it) => {
    it.effect("a poison message fails alone, and leaves nothing", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const sql = yield* SqlClient.SqlClient
        const client = yield* entityClient(DirectEntity)
        const id = makeDirectIds((yield* Secrets).conversationIds)
        const a = yield* newAgent("poison-a")
        const others = yield* Effect.forEach([0, 1, 2, 3, 4, 5, 6], (i) => newAgent(`poison-b${i}`))
        for (const other of others) {
          yield* conversations.send(a, direct(other.handle), draft(`${other.handle}-1`))
          yield* conversations.send(other, direct(a.handle), draft(`${other.handle}-2`))
        }
        const poisoned = others[3]!
        const send = (to: typeof a, key: string, content: string) =>
          Effect.exit(
            client(id(a.id, to.id)).Send({
              command: {
                sender: { id: a.id, handle: a.handle, displayName: a.handle },
                recipient: { id: to.id, handle: to.handle },
                draft: { ...draft(key), content }
              }
            })
          )
        const answers = yield* Effect.forEach(
          others.flatMap((to) => [0, 1].map((n) => ({ to, n }))),
          ({ n, to }) =>
            // Validation refuses NUL; only the database would notice it here.
            send(to, `${to.handle}-batch-${n}`, to === poisoned && n === 0 ? '{"text":"\0"}' : '{"text":"innocent"}'),
          { concurrency: "unbounded" }
        )
        answers.forEach((exit, i) => {
          if (i === 6) assert.isTrue(Exit.isFailure(exit) && String(exit.cause).includes("Unavailable"), String(exit))
          else assert.isTrue(Exit.isSuccess(exit), `neighbour ${i}: ${JSON.stringify(exit)}`)
        })
        assert.deepStrictEqual(
          yield* sql`SELECT FROM messages WHERE client_msg_id = ${`${poisoned.handle}-batch-0`}`,
          []
        )
        yield* audit
        // The same id, mended, is a message like any other.
        const mended = yield* send(poisoned, `${poisoned.handle}-batch-0`, '{"text":"mended"}')
        assert.isTrue(Exit.isSuccess(mended) && mended.value.created)
        yield* audit
      }))

    it.effect("a batch decided on an older version is decided again", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const sql = yield* SqlClient.SqlClient
        const a = yield* newAgent("fence-a")
        const b = yield* newAgent("fence-b")
        const send = (key: string) => conversations.send(a, direct(b.handle), draft(key))
        const id = String(parse((yield* send("m1")).body)["conversation_id"])
        yield* conversations.send(b, direct(a.handle), draft("m1"))
        yield* send("m2")
        yield* sql`UPDATE conversations SET version = version + 1 WHERE id = ${id}`
        const answers = yield* Effect.forEach(["m3", "m4", "m5"], send, { concurrency: "unbounded" })
        assert.deepStrictEqual(answers.map(({ body }) => parse(body)["seq"]), [4, 5, 6])
        yield* sql`
          WITH versioned AS (UPDATE conversations SET version = version + 1 WHERE id = ${id})
          INSERT INTO blocks (agent_id, blocked_id, created_at) VALUES (${b.id}, ${a.id}, 0)`
        assert.strictEqual((yield* Effect.flip(send("m6")))._tag, "Blocked")
        assert.deepStrictEqual(yield* sql`SELECT FROM messages WHERE sender_id = ${a.id} AND client_msg_id = 'm6'`, [])
        yield* audit
      }))

    it.effect("a crash between the reservation of a cold slot and its claim leaks nothing once the reservation has lapsed", () =>
      Effect.gen(function*() {
        const liveAgents = yield* LiveAgents
        const conversations = yield* Conversations
        const sql = yield* SqlClient.SqlClient
        const id = makeDirectIds((yield* Secrets).conversationIds)
        const clock = yield* Clock.Clock
        const a = yield* newAgent("lapse-a")
        const b = yield* newAgent("lapse-b")
        for (let i = 0; i < RELAXED.LIMITS_COLD_CONVERSATIONS - 1; i++) {
          yield* liveAgents.reserveOutreach(a.id, `conv_lapse_${i}`, clock.currentTimeMillisUnsafe())
        }
        yield* liveAgents.reserveOutreach(a.id, id(a.id, b.id), clock.currentTimeMillisUnsafe())
        const other = yield* newAgent("lapse-c")
        assert.strictEqual(
          (yield* Effect.flip(conversations.send(a, direct(other.handle), draft("m1"))))._tag,
          "ColdCapExceeded"
        )
        yield* TestClock.adjust(59_999)
        assert.strictEqual(
          (yield* Effect.flip(conversations.send(a, direct(other.handle), draft("m1"))))._tag,
          "ColdCapExceeded"
        )
        yield* TestClock.adjust(1)
        yield* conversations.send(a, direct(other.handle), draft("m1"))
        // What was left behind stands in nobody's way.
        yield* conversations.send(b, direct(a.handle), draft("m1"))
        assert.deepStrictEqual(
          yield* sql`SELECT agent_id FROM cold_slots WHERE conversation_id = ${id(a.id, b.id)}`,
          [{ agent_id: b.id }]
        )
        yield* audit
      }))

    it.effect("an own message sent while the backlog drains does not overtake it", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const a = yield* newAgent("drain-a")
        const b = yield* newAgent("drain-b")
        const say = (from: typeof a, to: typeof a, key: string) =>
          conversations.send(from, direct(to.handle), draft(key))
        yield* say(b, a, "hello")
        yield* say(a, b, "hello")
        yield* Effect.forEach(Array.from({ length: 250 }), (_, i) => say(b, a, `m${i}`), { concurrency: "unbounded" })
        // A slow reader: the drain waits after its first page.
        const opened = yield* connect(a, undefined, 2_000_000)
        yield* rest(deliveries)
        assert.strictEqual(opened.messages().length, 100)
        yield* say(a, b, "own, meanwhile")
        yield* say(b, a, "after it")
        yield* rest(deliveries)
        assert.strictEqual(opened.messages().length, 100)
        opened.socket.bufferedAmount = 0
        yield* rest(deliveries)
        assert.deepStrictEqual(
          opened.messages().map((message) => message["seq"]),
          [1, ...Array.from({ length: 252 }, (_, i) => i + 3)]
        )
        assert.deepStrictEqual(opened.messages().at(-2)?.["content"], { text: "own, meanwhile" })
      }))

    it.effect("a hint lost between commit and push, and later messages pushed first: nothing is lost, nothing out of order", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const a = yield* newAgent("lost-a")
        const b = yield* newAgent("lost-b")
        const say = (from: typeof a, to: typeof a, key: string) =>
          conversations.send(from, direct(to.handle), draft(key))
        let lost = 0
        const late: Array<() => void> = []
        const opened = yield* connect(b, (session) => ({
          hint: (inboxNo, messageId, rendered) => {
            if (inboxNo % 5 === 2) lost++
            else if (inboxNo % 5 === 3) late.push(() => session.hint(inboxNo, messageId, rendered))
            else session.hint(inboxNo, messageId, rendered)
          },
          echo: (after, before, frame, place) => session.echo(after, before, frame, place),
          event: (frame) => session.event(frame),
          close: (reason) => session.close(reason)
        }))
        yield* rest(deliveries)
        yield* say(a, b, "first")
        yield* say(b, a, "reply")
        for (let i = 0; i < 20; i++) {
          yield* say(a, b, `m${i}`)
          for (const push of late.splice(0)) push()
          if (i % 7 === 0) yield* rest(deliveries)
        }
        yield* rest(deliveries)
        yield* opened.check
        assert.isAbove(lost, 0)
        assert.deepStrictEqual(
          opened.messages().map((message) => message["seq"]),
          Array.from({ length: 22 }, (_, i) => i + 1)
        )
        assert.strictEqual(
          (yield* deliveries.sync(b.id, undefined, 500)).length,
          21,
          "nothing was acknowledged by itself"
        )
      }))
  })

  describe("failures that may pass", () => {
    layer(layerModules(failingOften(database), RELAXED))((it) => {
      it.effect("a deadlock and a serialisation failure are tried again, and nobody notices", () =>
        Effect.gen(function*() {
          const conversations = yield* Conversations
          const a = yield* newAgent("again-a")
          const b = yield* newAgent("again-b")
          for (let i = 0; i < 6; i++) {
            const [from, to] = i % 2 === 0 ? [a, b] : [b, a]
            const sent = yield* conversations.send(from, direct(to.handle), draft(`m${i}`))
            assert.isTrue(sent.created)
            assert.strictEqual(parse(sent.body)["seq"], i + 1)
          }
          yield* audit
        }))
    })
  })
})

/** Each batch fails twice before it passes. */
function failingOften(database: TestDatabase): TestDatabase {
  let n = 0
  return layerSeam(database, new Seam(), {
    before: Effect.suspend(() => {
      n++
      return n % 3 === 0
        ? Effect.void
        : Effect.fail(
          sqlError(new DatabaseFault({ code: n % 3 === 1 ? "40P01" : "40001", message: "try again" }), "execute")
        )
    })
  })
}
