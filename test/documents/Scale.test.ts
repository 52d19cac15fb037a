import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import {
  cellsFor,
  clusterFor,
  crossings,
  demand,
  HABITS,
  knees,
  LIMITS,
  nodesFor
} from "../../verification/scale/Model.ts"
import { PRICES, type Prices } from "../../verification/scale/Prices.ts"
import { DOCUMENT, PICTURE, picture, renewed } from "../../verification/scale/Scale.ts"

const FREE: Prices = {
  message: { server: 0, database: 0, redis: 0 },
  stranger: { server: 0, database: 0 },
  push: 0,
  several: 0,
  connect: { server: 0, database: 0, redis: 0 },
  told: { teller: 0, listener: 0 },
  ping: { server: 0, redis: 0 },
  compare: { server: 0, database: 0 },
  bytes: { socket: 0, known: 0, message: 0 }
}
/** A message a second of each agent at the peak, all of them connected, nothing else. */
const STEADY = {
  ...HABITS,
  connected: 1,
  messagesPerDay: 86_400,
  peak: 1,
  connectsPerDay: 0,
  strangers: 0,
  retentionDays: 1
}

it("the demand is the sum of rates times prices", () => {
  const asked = (prices: Partial<Prices>, nodes = 2) => demand(1_000, nodes, STEADY, { ...FREE, ...prices })
  assert.closeTo(asked({}).sends, 1_000, 1e-6)
  // 1,000 messages a second of 400 µs: two fifths of a processor, on two nodes.
  assert.closeTo(asked({ message: { server: 400, database: 100, redis: 50 } }).node, 0.2, 1e-9)
  assert.closeTo(asked({ message: { server: 400, database: 100, redis: 50 } }).database, 0.1, 1e-9)
  assert.closeTo(asked({ message: { server: 400, database: 100, redis: 50 } }).redis, 0.05, 1e-9)
  // One push crosses for each message between two nodes: half of the recipients' and half of the senders' sockets are
  // on the other.
  assert.closeTo(asked({ push: 100 }).node, 0.05, 1e-9)
  assert.closeTo(asked({ several: 50 }).node, 0.025, 1e-9)
  assert.strictEqual(asked({ several: 50 }, 1).node, 0)
  // 1,000 sockets: pinged every 30 s, compared every 5 s.
  assert.closeTo(asked({ ping: { server: 300, redis: 0 } }, 1).node, 0.01, 1e-9)
  assert.closeTo(asked({ compare: { server: 0, database: 5 } }).database, 0.001, 1e-9)
  assert.strictEqual(asked({ bytes: { socket: 20_000, known: 200, message: 860 } }).stored, 1_000 * 86_400 * 860)
})

it("the more nodes, the more pushes cross, two a message at the most", () => {
  assert.deepStrictEqual([1, 2, 4, 100].map(crossings), [0, 1, 1.5, 1.98])
})

it("the work that every node does does not shrink with their number, so more nodes do not help", () => {
  const told = { ...FREE, told: { teller: 0, listener: 1 } }
  const habits = { ...STEADY, connectsPerDay: 86_400 }
  const of = (nodes: number) => demand(1e6, nodes, habits, told).node
  assert.isAbove(of(100), of(10))
  assert.isAbove(of(10), of(2))
  assert.strictEqual(of(1), 0)
})

it("a cluster has the fewest nodes that fit", () => {
  for (const agents of [1e3, 1e5, 1e6, 3e6]) {
    const nodes = nodesFor(agents, HABITS, PRICES, LIMITS)
    const busy = (count: number) => {
      const asked = demand(agents, count, HABITS, PRICES)
      return Math.max(asked.node / LIMITS.nodeShare, asked.socketsOfNode / LIMITS.nodeSockets)
    }
    assert.isAtMost(busy(nodes), 1)
    if (nodes > 1) assert.isAbove(busy(nodes - 1), 1)
  }
})

it("a knee is where its share passes one, and as many cells as are needed all hold", () => {
  for (const [bound, agents] of knees(HABITS, PRICES, LIMITS)) {
    if (!Number.isFinite(agents)) continue
    assert.isAtMost(clusterFor(agents * 0.97, HABITS, PRICES, LIMITS).shares[bound], 1)
    assert.isAbove(clusterFor(agents * 1.03, HABITS, PRICES, LIMITS).shares[bound], 1)
  }
  for (const agents of [1e3, 1e6, 1e7, 1e8]) {
    assert.isTrue(clusterFor(agents / cellsFor(agents, HABITS, PRICES, LIMITS), HABITS, PRICES, LIMITS).holds)
  }
})

it("docs/scale.md and its picture are what is calculated; `npm run scale -- --write` renews them", () => {
  const document = readFileSync(DOCUMENT, "utf8")
  assert.strictEqual(document, renewed(document))
  assert.strictEqual(readFileSync(PICTURE, "utf8"), picture())
})
