import { alive, gone, type PresenceState, unknownPresence, whenDue } from "#domain/presence/Presence"
import { PresenceStore } from "#domain/presence/PresenceStore"
import { Config } from "#infrastructure/platform/Config"
import { Redis } from "#infrastructure/platform/Redis"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Redacted, Scope } from "effect"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { eventually } from "../support/Eventually.ts"

type Store = PresenceStore["Service"]
const run = Effect.runPromise

const rules = (stores: () => readonly [Store, Store]): void => {
  it("a state is the same for every node until it is released", async () => {
    const [store, other] = stores()
    const { after, before } = await run(store.update("agt_a", unknownPresence, (state) => alive(state, 1_000, 300)))
    assert.deepStrictEqual(before, unknownPresence)
    const found = await run(other.get(["agt_a", "agt_none"]))
    assert.deepStrictEqual([...found], [["agt_a", after]])
    const [held] = [...found.values()]
    // Somebody who is there is not let go of.
    await run(other.release("agt_a", held!))
    assert.strictEqual((await run(store.get(["agt_a"]))).size, 1)
    await run(other.update("agt_a", unknownPresence, (state) => gone(state, 1_100)))
    // A state that has changed since is kept.
    await run(store.release("agt_a", { ...held!, expiresAt: null }))
    const offline = (await run(store.get(["agt_a"]))).get("agt_a")
    assert.strictEqual(offline?.status, "offline")
    await run(store.release("agt_a", offline!))
    assert.strictEqual((await run(other.get(["agt_a"]))).size, 0)
  })

  it("changes at once are all made, each on what the one before left", async () => {
    const both = stores()
    const count = (state: PresenceState) => ({
      ...state,
      customMessage: String(Number(state.customMessage ?? "0") + 1)
    })
    const changes = Array.from({ length: 40 }, (_, i) => both[i % 2]!.update("agt_many", unknownPresence, count))
    const seen = await run(Effect.all(changes, { concurrency: "unbounded" }))
    const numbers = seen.map(({ after }) => Number(after.customMessage)).sort((a, b) => a - b)
    assert.deepStrictEqual(numbers, numbers.map((_, i) => i + 1))
  })

  it("returns the agents whose states have ended by a time", async () => {
    const [store, other] = stores()
    const until = (id: string, at: number) =>
      run(store.update(id, unknownPresence, (state) => ({ ...state, status: "online", expiresAt: at })))
    await until("agt_first", 5_000)
    await until("agt_second", 6_000)
    const due = async (at: number) =>
      (await run(other.due(at, 10_000))).filter((id) => id === "agt_first" || id === "agt_second")
    assert.deepStrictEqual(await due(4_999), [])
    assert.deepStrictEqual(await due(5_000), ["agt_first"])
    await until("agt_first", 7_000)
    assert.deepStrictEqual(await due(6_999), ["agt_second"])
    await run(other.update("agt_second", unknownPresence, (state) => gone(state, 6_500)))
    assert.deepStrictEqual(await due(9_000), ["agt_first"])
    // The clock is set back by an hour: what was to last 10 s at most is due, and does not hide what ends after it.
    await until("agt_first", 3_607_000)
    await until("agt_second", 6_000)
    assert.sameMembers(await due(6_000), ["agt_first", "agt_second"])
    const held = (await run(store.get(["agt_first"]))).get("agt_first")!
    assert.deepStrictEqual(whenDue(held, 6_000, 10_000), { ...held, expiresAt: 16_000 })
  })
}

describe("in memory", () => {
  let store: Store
  beforeAll(async () => {
    store = await run(Effect.provide(PresenceStore.use(Effect.succeed), PresenceStore.layerMemory))
  })
  rules(() => [store, store])
})

describe.skipIf(missingRedis !== "")(`in Redis${missingRedis}`, () => {
  let server: RedisServer
  let stores: readonly [Store, Store]
  const scope = Scope.makeUnsafe()
  beforeAll(async () => {
    server = await RedisServer.start()
    const one = () =>
      Layer.fresh(PresenceStore.layerRedis).pipe(
        Layer.provide(Layer.fresh(Redis.layer)),
        Layer.provide(Config.layerTest({ REDIS_URL: Redacted.make(server.url), REDIS_TIMEOUT_MS: 20_000 }))
      )
    const build = Effect.suspend(() => Effect.map(Layer.buildWithScope(one(), scope), Context.get(PresenceStore)))
    stores = await run(Effect.all([build, build]))
  })
  afterAll(async () => {
    await run(Scope.close(scope, Exit.void))
    await server?.kill()
  })

  rules(() => stores)

  it("each node knows the states of its own agents while Redis is away, and adds them later", async () => {
    const [store, other] = stores
    await server.kill()
    await run(store.update("agt_meanwhile", unknownPresence, (state) => alive(state, 9_000, 300)))
    assert.strictEqual((await run(store.get(["agt_meanwhile"]))).get("agt_meanwhile")?.status, "online")
    assert.strictEqual((await run(other.get(["agt_meanwhile"]))).size, 0)
    await server.launch()
    await eventually("what was heard meanwhile", async () => {
      await run(store.get(["agt_a"]))
      return (await run(other.get(["agt_meanwhile"]))).get("agt_meanwhile")
    })
  })
})
