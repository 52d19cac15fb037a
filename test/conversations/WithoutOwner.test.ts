import { assert, layer } from "@effect/vitest"
import { Context, Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Conversations } from "../../src/conversations/Conversations.ts"
import { Database } from "../../src/database/Sql.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { UNSOUND } from "../support/Invariants.ts"
import { layerNotTheOwner } from "../support/NotTheOwner.ts"
import { draft, layerRooms, newAgent, type Party } from "../support/Rooms.ts"

const SETTINGS = { LIMITS_SENDS_PER_SECOND: 1_000_000 }

const failure = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit) ? exit.cause.reasons.map((reason) => reason._tag === "Fail" ? reason.error._tag : reason._tag)[0] : "success"

/**
 * Two nodes with memories of their own on one database: `here` owns every conversation, `there` owns none of those it is
 * asked about, and takes whatever it cannot do as somebody who is not the owner to a second owner.
 */
const twoNodes = Effect.gen(function*() {
  const database = Layer.succeedContext(
    Context.make(SqlClient.SqlClient, yield* SqlClient.SqlClient).pipe(Context.add(Database, yield* Database))
  ) as typeof layerPgliteTest
  let started = false
  const here = Context.get(yield* Layer.build(Layer.fresh(layerRooms(database, SETTINGS))), Conversations)
  const there = Context.get(
    yield* Layer.build(Layer.fresh(layerRooms(database, SETTINGS, layerNotTheOwner(() => started)))),
    Conversations
  )
  started = true
  const send = (node: typeof here, from: Party, to: Party, key: string) =>
    Effect.exit(node.send(from, { _tag: "Direct", handle: to.handle }, draft(key)))
  return { here, there, send }
})

const seqOf = (exit: Effect.Success<ReturnType<Effect.Success<typeof twoNodes>["send"]>>): number =>
  Exit.isSuccess(exit) ? Number((JSON.parse(exit.value.body) as { readonly seq: number }).seq) : 0

layer(layerRooms(layerPgliteTest, SETTINGS))("sends at a node that does not own the conversation", (it) => {
  it.effect("the other side of a conversation may be at another node from the first message on", () =>
    Effect.gen(function*() {
      const { here, send, there } = yield* twoNodes
      const [ada, bob] = [yield* newAgent("wo-ada"), yield* newAgent("wo-bob")]
      const answers = [
        yield* send(there, ada, bob, "m1"),
        yield* send(there, ada, bob, "m2"),
        yield* send(here, bob, ada, "m3"),
        yield* send(there, ada, bob, "m4"),
        yield* send(here, bob, ada, "m5"),
        yield* send(there, ada, bob, "m6")
      ]
      assert.deepStrictEqual(answers.map(failure), ["success", "AwaitingReply", "success", "success", "success", "success"])
      assert.deepStrictEqual(answers.map(seqOf), [1, 0, 2, 3, 4, 5])
    }))

  it.effect("a block at the owner stops the next message of a node that has not heard of it; so the other way round", () =>
    Effect.gen(function*() {
      const { here, send, there } = yield* twoNodes
      const [ada, bob] = [yield* newAgent("wo-cleo"), yield* newAgent("wo-dan")]
      for (const [node, from, to, key] of [[here, ada, bob, "m1"], [here, bob, ada, "m2"], [there, ada, bob, "m3"]] as const) {
        assert.strictEqual(failure(yield* send(node, from, to, key)), "success")
      }
      const pair = { agentId: bob.id, blockedId: ada.id }
      yield* here.block({ ...pair, at: 1, report: null })
      assert.strictEqual(failure(yield* send(there, ada, bob, "m4")), "Blocked")
      // What was stored before is answered as it was.
      const again = yield* send(there, ada, bob, "m3")
      assert.deepStrictEqual([failure(again), Exit.isSuccess(again) && again.value.created], ["success", false])
      yield* here.unblock(pair)
      assert.strictEqual(failure(yield* send(there, ada, bob, "m4")), "success")
      yield* there.block({ ...pair, at: 2, report: null })
      assert.strictEqual(failure(yield* send(here, ada, bob, "m5")), "Blocked")
    }))

  it.effect("both sides at once, at both nodes, with keys that repeat: each is stored once, and seqs have no hole", () =>
    Effect.gen(function*() {
      const { here, send, there } = yield* twoNodes
      const [ada, bob] = [yield* newAgent("wo-eve"), yield* newAgent("wo-fay")]
      yield* send(here, ada, bob, "m1")
      yield* send(here, bob, ada, "m2")
      const exits = yield* Effect.all(
        Array.from({ length: 60 }, (_, i) =>
          send(i % 2 === 0 ? here : there, i % 3 === 0 ? ada : bob, i % 3 === 0 ? bob : ada, `c${i >> 2}`)),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(new Set(exits.map(failure)), new Set(["success"]))
      const created = exits.filter((exit) => Exit.isSuccess(exit) && exit.value.created).map(seqOf)
      const keys = new Set(Array.from({ length: 60 }, (_, i) => `${i % 3 === 0} ${i >> 2}`))
      assert.deepStrictEqual(created.toSorted((a, b) => a - b), Array.from({ length: keys.size }, (_, i) => i + 3))
      assert.deepStrictEqual(new Set(exits.map(seqOf)), new Set(created))
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql.unsafe(UNSOUND).unprepared, [])
    }))
})
