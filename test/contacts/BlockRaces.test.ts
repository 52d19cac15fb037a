import { Contacts } from "#domain/contacts/Contacts"
import { Conversations } from "#domain/conversations/Conversations"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, Redacted, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { freshDatabase } from "../support/Databases.ts"
import { WITNESS } from "../support/Invariants.ts"
import { draft, layerModules, newAgents, type Party } from "../support/Modules.ts"

const ROUNDS = 200

/** Two processes that both believe they own every conversation: only the statements order what they do. */
const twoNodes = Effect.gen(function*() {
  const url = Redacted.make(yield* Effect.promise(() => freshDatabase(18)))
  const node = Effect.map(
    Layer.build(Layer.fresh(layerModules(layerPg({ url, poolSize: 6 }), { LIMITS_SENDS_PER_SECOND: 1_000_000 }))),
    (context) => {
      const run = <A, E>(effect: Effect.Effect<A, E, Conversations | Contacts | SqlClient.SqlClient>) =>
        Effect.provide(effect, context)
      return {
        run,
        send: (from: Party, to: Party, key: string) =>
          run(
            Effect.flatMap(Conversations, (conversations) =>
              Effect.match(conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(key)), {
                onSuccess: () =>
                  "Sent",
                onFailure: ({ _tag }) => _tag as string
              }))
          ),
        block: (from: Party, to: Party) =>
          run(Effect.flatMap(Contacts, (contacts) => contacts.block(from.id, to.handle))),
        unblock: (from: Party, to: Party) =>
          run(Effect.flatMap(Contacts, (contacts) => contacts.unblock(from.id, to.handle)))
      }
    }
  )
  const nodes = [yield* node, yield* node] as const
  yield* nodes[0].run(Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(WITNESS)))
  return nodes
})

const violations = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT message_id FROM violations`)

/** A few turns of the event loop, so that one of the two gets a head start. */
const headStart = (turns: number) =>
  Effect.promise(async () => {
    for (let i = 0; i < turns; i++) await new Promise<void>((resolve) => setImmediate(resolve))
  })

const live = <A, E>(effect: Effect.Effect<A, E, Scope.Scope>) =>
  Effect.scoped(Effect.provideService(effect, Clock.Clock, Clock.Clock.defaultValue()))

describe.skipIf(!isInstalled(18))("blocks racing sends over two nodes, PostgreSQL 18", () => {
  it.effect("the witness sees a message that comes after a block", () =>
    live(Effect.gen(function*() {
      const [node] = yield* twoNodes
      const [a, b] = (yield* node.run(newAgents(2))) as [Party, Party]
      assert.strictEqual(yield* node.send(a, b, "m1"), "Sent")
      assert.strictEqual(yield* node.send(b, a, "m2"), "Sent")
      assert.deepStrictEqual(yield* node.run(violations), [])
      yield* node.run(Effect.flatMap(SqlClient.SqlClient, (sql) =>
        sql`INSERT INTO blocks (agent_id, blocked_id, created_at) VALUES (${b.id}, ${a.id}, 0)`))
      // What a block would be that raised no version: the actor goes on.
      assert.strictEqual(yield* node.send(a, b, "m3"), "Sent")
      assert.strictEqual((yield* node.run(violations)).length, 1)
    })))

  it.effect("a first message is committed before the block or not at all", () =>
    live(Effect.gen(function*() {
      const nodes = yield* twoNodes
      const everybody = yield* nodes[0].run(newAgents(ROUNDS * 2))
      const told = new Map<string, number>()
      for (let round = 0; round < ROUNDS; round++) {
        const [a, b] = [everybody[2 * round]!, everybody[2 * round + 1]!]
        const [sends, blocks] = round % 4 === 0 ? [nodes[0], nodes[0]] as const : nodes
        const sending = yield* Effect.forkChild(
          Effect.andThen(headStart(round % 3 === 0 ? round % 11 : 0), sends.send(a, b, "m1"))
        )
        yield* headStart(round % 3 === 0 ? 0 : round % 13)
        // Either side may be the one that blocks.
        const [blocker, blocked] = round % 2 === 0 ? [b, a] : [a, b]
        yield* blocks.block(blocker, blocked)
        const after = yield* Effect.all([nodes[0].send(a, b, "m2"), nodes[1].send(b, a, "m3")], { concurrency: 2 })
        assert.deepStrictEqual(after, ["Blocked", "Blocked"], `round ${round}`)
        const outcome = yield* Fiber.join(sending)
        told.set(outcome, (told.get(outcome) ?? 0) + 1)
        if (round % 10 < 2) {
          yield* nodes[1].unblock(blocker, blocked)
          assert.strictEqual(yield* nodes[0].send(b, a, "m4"), "Sent", `round ${round}`)
        }
      }
      assert.deepStrictEqual(yield* nodes[0].run(violations), [])
      assert.hasAllKeys(told, ["Sent", "Blocked"], "both came first at times")
      // What is empty stands for a block.
      const empty = yield* nodes[0].run(Effect.flatMap(SqlClient.SqlClient, (sql) =>
        sql<{ rows: number; messages: number }>`
          SELECT count(*) AS rows, (SELECT count(*) FROM messages m WHERE m.conversation_id = ANY(array_agg(c.id))) AS messages
          FROM conversations c WHERE c.last_seq = 0`))
      assert.strictEqual(empty[0]?.messages, 0)
      assert.isAtMost(empty[0]?.rows ?? 0, told.get("Blocked") ?? 0)
    })))

  it.effect("an answer through another node ends the wait for it", () =>
    live(Effect.gen(function*() {
      const nodes = yield* twoNodes
      const [a, b] = (yield* nodes[0].run(newAgents(2))) as [Party, Party]
      assert.strictEqual(yield* nodes[0].send(a, b, "open"), "Sent")
      assert.strictEqual(yield* nodes[0].send(a, b, "again"), "AwaitingReply")
      assert.strictEqual(yield* nodes[1].send(b, a, "reply"), "Sent")
      assert.strictEqual(yield* nodes[0].send(a, b, "again"), "Sent")
    })))

  it.effect("a send in an established conversation is committed before the block or not at all", () =>
    live(Effect.gen(function*() {
      const nodes = yield* twoNodes
      const [a, b] = (yield* nodes[0].run(newAgents(2))) as [Party, Party]
      assert.strictEqual(yield* nodes[0].send(a, b, "open"), "Sent")
      assert.strictEqual(yield* nodes[1].send(b, a, "reply"), "Sent")
      const told = new Map<string, number>()
      let sent = 2
      for (let round = 0; round < ROUNDS; round++) {
        const [sends, blocks] = round % 4 === 0 ? [nodes[0], nodes[0]] as const : nodes
        const sending = yield* Effect.forkChild(Effect.andThen(
          headStart(round % 3 === 0 ? round % 11 : 0),
          Effect.forEach([0, 1, 2, 3], (i) => {
            const [from, to] = i % 2 === 0 ? [a, b] : [b, a]
            return sends.send(from, to, `m${round}-${i}`)
          }, { concurrency: "unbounded" })
        ))
        yield* headStart(round % 3 === 0 ? 0 : round % 13)
        const [blocker, blocked] = round % 2 === 0 ? [b, a] : [a, b]
        yield* blocks.block(blocker, blocked)
        const after = yield* Effect.all(
          [nodes[0].send(a, b, `x${round}`), nodes[1].send(b, a, `y${round}`)],
          { concurrency: 2 }
        )
        assert.deepStrictEqual(after, ["Blocked", "Blocked"], `round ${round}`)
        for (const outcome of yield* Fiber.join(sending)) {
          told.set(outcome, (told.get(outcome) ?? 0) + 1)
          if (outcome === "Sent") sent++
        }
        yield* nodes[round % 2]!.unblock(blocker, blocked)
      }
      assert.deepStrictEqual(yield* nodes[0].run(violations), [])
      assert.hasAllKeys(told, ["Sent", "Blocked"], "both came first at times")
      const stored = yield* nodes[0].run(
        Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT count(*) AS n, max(seq) AS last FROM messages`)
      )
      assert.deepStrictEqual(stored, [{ n: sent, last: sent }], "what was accepted is there, and no more")
    })))

  it.effect("both sides blocking and unblocking at once leave exactly the blocks that stand", () =>
    live(Effect.gen(function*() {
      const [one, two] = yield* twoNodes
      const [a, b] = (yield* one.run(newAgents(2))) as [Party, Party]
      const standing = one.run(
        Effect.flatMap(
          SqlClient.SqlClient,
          (sql) =>
            sql`SELECT (SELECT count(*) FROM conversations) AS rows, (SELECT array_agg(agent_id) FROM blocks) AS by`
        )
      )
      const atOnce = <A, E, A2, E2>(first: Effect.Effect<A, E>, second: Effect.Effect<A2, E2>, round: number) =>
        Effect.all([
          Effect.andThen(headStart(round % 2 === 0 ? round % 5 : 0), Effect.orDie(first)),
          Effect.andThen(headStart(round % 2 === 0 ? 0 : round % 7), Effect.orDie(second))
        ], { concurrency: 2 })
      for (let round = 0; round < 60; round++) {
        yield* atOnce(one.block(a, b), two.block(b, a), round)
        yield* atOnce(one.unblock(a, b), two.unblock(b, a), round)
        assert.deepStrictEqual(yield* standing, [{ rows: 0, by: null }], `round ${round}`)
        yield* one.block(a, b)
        yield* atOnce(one.unblock(a, b), two.block(b, a), round)
        assert.deepStrictEqual(yield* standing, [{ rows: 1, by: [b.id] }], `round ${round}`)
        assert.strictEqual(yield* one.send(a, b, `m${round}`), "Blocked")
        yield* two.unblock(b, a)
      }
      assert.deepStrictEqual(yield* Effect.all([one.send(a, b, "m"), two.send(b, a, "m")]), ["Sent", "Sent"])
    })))
})
