import { assert, it } from "@effect/vitest"
import { lineOf, type NodeView, parseMetrics, tableOf } from "../../runners/local/ClusterTable.ts"

const view = (changes: Partial<NodeView>): NodeView => ({
  name: "node-1",
  pid: 4711,
  url: "http://127.0.0.1:3001",
  state: "ready",
  metrics: { shards: 150, sockets: 2, stored: 9 },
  sendsPerSecond: 1.25,
  ...changes
})

it("a node's figures are added up over their labels, and 0 before there are any", () => {
  const text = [
    "# TYPE messages_stored_total counter",
    'messages_stored_total{kind="direct"} 40',
    'messages_stored_total{kind="group"} 2',
    "effect_cluster_shards 150",
    "effect_cluster_shards_releasing 3"
  ].join("\n")
  assert.deepStrictEqual(parseMetrics(text), { shards: 150, sockets: 0, stored: 42 })
})

it("a table and a line show every node, and what the nodes that speak have together", () => {
  const views = [
    view({}),
    view({ name: "node-2", pid: 12, metrics: { shards: 150, sockets: 0, stored: 0 }, sendsPerSecond: 0 }),
    view({ name: "node-3", pid: 123_456, state: "gone (SIGKILL)", metrics: undefined, sendsPerSecond: 0 })
  ]
  assert.deepStrictEqual(tableOf(views), [
    "node       pid  address                state           shards  sockets  sends/s",
    "node-1    4711  http://127.0.0.1:3001  ready              150        2      1.3",
    "node-2      12  http://127.0.0.1:3001  ready              150        0      0.0",
    "node-3  123456  http://127.0.0.1:3001  gone (SIGKILL)       -        -        -",
    "all                                    2 ready            300        2      1.3"
  ])
  assert.strictEqual(
    lineOf(views),
    "shards=300; node-1 pid=4711 ready shards=150 sockets=2 sends/s=1.3; node-2 pid=12 ready shards=150 sockets=0 sends/s=0.0; " +
      "node-3 pid=123456 gone (SIGKILL) shards=- sockets=- sends/s=-"
  )
})
