import { PushRouter } from "#domain/push/PushRouter"
import { Members } from "#infrastructure/cluster/Members"
import { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { Config } from "#infrastructure/platform/Config"
import { Clock, Context, Effect, Layer, Logger } from "effect"
import { connected, layerLines, wires } from "../../test/support/Lines.ts"

const SECONDS = 5

/**
 * A node without clients, database and Redis: only its lines, and its knowledge of which agents have sockets on which
 * nodes.
 */
const node = Effect.fnUntraced(function*(made: Effect.Success<typeof wires>, name: string) {
  const context = yield* Layer.build(
    Layer.fresh(PushRouter.layer).pipe(
      Layer.provideMerge(Layer.fresh(NodeCalls.layer)),
      Layer.provideMerge(layerLines(made, name)),
      Layer.provide([
        Layer.succeed(
          Members,
          Members.of({
            list: () => undefined,
            after: () => Effect.never,
            belongs: () => true,
            others: () => [],
            ownersOf: () => [],
            refresh: Effect.void
          })
        ),
        Config.layerTest({}),
        Logger.layer([])
      ])
    )
  )
  return { router: Context.get(context, PushRouter), lines: Context.get(context, PeerConnections) }
})

/**
 * Connects this many sockets per second on all nodes together. Each socket is announced to all other nodes and closed
 * once all of them have received the announcement. All nodes are in this process and use real connections, so its
 * processor time is that of all nodes.
 */
const connects = (nodes: number, perSecond: number) =>
  Effect.gen(function*() {
    const made = yield* wires
    const all = yield* Effect.forEach(Array.from({ length: nodes }), (_, i) =>
      node(made, `node-${String(i).padStart(3, "0")}:1`))
    yield* connected(...all.map(({ lines }) =>
      lines
    ))
    const waits: Array<number> = []
    let count = 0
    const connect = Effect.gen(function*() {
      const { router } = all[count++ % nodes]!
      const place = router.enter(`agt_${String(count).padStart(16, "0")}`, () => undefined)
      const began = performance.now()
      yield* router.reachable
      waits.push(performance.now() - began)
      if (place !== undefined) router.leave(place)
    })
    const before = process.cpuUsage()
    const began = performance.now()
    while (performance.now() - began < SECONDS * 1_000) {
      const due = Math.floor((performance.now() - began) / 1_000 * perSecond) - count
      for (let i = 0; i < due; i++) yield* Effect.forkChild(connect, { startImmediately: true })
      yield* Effect.sleep("1 millis")
    }
    const seconds = (performance.now() - began) / 1_000
    const { system, user } = process.cpuUsage(before)
    waits.sort((one, other) => one - other)
    const share = (user + system) / 1e6 / seconds / nodes
    return `${nodes} nodes, ${perSecond} connects a second in all: ${
      (waits.length / seconds).toFixed(0)
    } were announced, ` +
      `${((user + system) / waits.length).toFixed(0)} µs of all nodes together for each, ${
        (share * 100).toFixed(1)
      } % of a processor for each node; ` +
      `a socket waited ${waits[Math.floor(waits.length / 2)]?.toFixed(1)} ms (median), ${
        waits[Math.floor(waits.length * 0.99)]?.toFixed(1)
      } ms (p99)`
  }).pipe(Effect.scoped, Effect.provideService(Clock.Clock, Clock.Clock.defaultValue()))

/** Measures the cost of announcing sockets, by the number of nodes and of connects. */
export const manyNodes = async (): Promise<ReadonlyArray<string>> => {
  const lines: Array<string> = []
  for (const [nodes, perSecond] of [[2, 500], [20, 100], [20, 500], [20, 2_000]] as const) {
    lines.push(await Effect.runPromise(connects(nodes, perSecond)))
  }
  return lines
}
