import { Context, Effect, Layer, Option, RcMap, Schedule, Schema } from "effect"
import { RunnerAddress, Runners, RunnerStorage, ShardingConfig } from "effect/cluster"
import { Rpc, RpcClient, RpcGroup } from "effect/rpc"
import { createConnection } from "node:net"
import { Ids } from "./Ids.ts"

/** The receiver knows nothing of what the sender said before: it has to be said again. */
export class PeerForgot extends Schema.TaggedError<PeerForgot>()("PeerForgot", {}) {}

/** A text from one node to another; `first` stands for everything that was said before. */
const Deliver = Rpc.make("Deliver", {
  payload: { from: Schema.String, start: Schema.String, first: Schema.Boolean, body: Schema.String },
  error: PeerForgot
})

/** What nodes say to each other besides calls to entities. Landed names: never changed. */
export const PeerRpcs = RpcGroup.make(Deliver)

/** Who is told of the other nodes and by them. */
export interface PeerListener {
  readonly joined: (node: string) => void
  /** It has left, is dead, or does not answer: nothing that it said holds any more. */
  readonly left: (node: string) => void
  /** Calls of one node come one after the other. */
  readonly receive: (node: string, body: string, first: boolean) => Effect.Effect<void>
}

export type Delivery = "taken" | "forgot" | "unreachable"

/**
 * The other nodes of the cluster, as its storage lists them, and a way to each that is
 * not an entity's: for what concerns a node rather than whoever owns a shard. Knows
 * them a second late at most. A node whose process is gone is reported by whoever
 * notices first, so that its shards move although the one that watches may be the
 * one that died.
 */
export class Peers extends Context.Service<Peers, {
  readonly listen: (listener: PeerListener) => void
  /** Calls of one caller to one node must go one after the other. */
  readonly deliver: (node: string, body: string, first: boolean) => Effect.Effect<Delivery>
  /** For the door of this node. */
  readonly received: (from: string, start: string, first: boolean, body: string) => Effect.Effect<void, PeerForgot>
}>()("parley/platform/Peers") {
  /** A process that is the whole cluster. */
  static readonly layerAlone = Layer.succeed(
    Peers,
    Peers.of({
      listen: () => {},
      deliver: () => Effect.succeed("unreachable"),
      received: () => Effect.fail(new PeerForgot())
    })
  )

  static readonly layer = Layer.effect(
    Peers,
    Effect.gen(function*() {
      const storage = yield* RunnerStorage.RunnerStorage
      const protocol = yield* Runners.RpcClientProtocol
      const { runnerAddress } = yield* ShardingConfig.ShardingConfig
      const self = Option.match(runnerAddress, { onNone: () => "", onSome: nameOf })
      const start = (yield* Ids).bytes(12).toString("hex")
      const known = new Map<string, Peer>()
      let listener: PeerListener | undefined

      const clients = yield* RcMap.make({
        lookup: (node: string) =>
          Effect.flatMap(
            Effect.suspend(() => protocol.make(known.get(node)?.address ?? addressOf(node))),
            (made) =>
              Effect.provideService(RpcClient.make(PeerRpcs, { disableTracing: true }), RpcClient.Protocol, made)
          ),
        idleTimeToLive: "1 minute"
      })

      /** The start of each node's process whose texts are known from its first on. */
      const starts = new Map<string, string>()

      const refused = Effect.fnUntraced(function*(node: string, peer: Peer) {
        const gone = yield* isRefused(peer.address)
        peer.refusals = gone ? peer.refusals + 1 : 0
        if (peer.refusals !== REFUSALS) return
        yield* Effect.logWarning(`Node ${node} is gone: its shards are taken over`)
        yield* storage.setRunnerHealth(peer.address, false)
      })

      const look = Effect.gen(function*() {
        const seen = new Set<string>()
        for (const [runner, isHealthy] of yield* storage.getRunners) {
          const node = nameOf(runner.address)
          if (node === self || !isHealthy) continue
          seen.add(node)
          if (known.has(node)) continue
          known.set(node, { address: runner.address, refusals: 0 })
          listener?.joined(node)
        }
        for (const node of known.keys()) {
          if (seen.has(node)) continue
          known.delete(node)
          starts.delete(node)
          listener?.left(node)
          yield* RcMap.invalidate(clients, node)
        }
        yield* Effect.forEach(known, ([node, peer]) => refused(node, peer), { concurrency: 16, discard: true })
      })
      yield* look.pipe(
        Effect.timeout("5 seconds"),
        Effect.catchCause((cause) => Effect.logDebug("The nodes could not be looked up", cause)),
        Effect.repeat(Schedule.spaced(LOOK)),
        Effect.forkScoped
      )

      return Peers.of({
        listen: (made) => {
          listener = made
          for (const node of known.keys()) made.joined(node)
        },
        deliver: (node, body, first) =>
          RcMap.get(clients, node).pipe(
            Effect.flatMap((client) => client.Deliver({ from: self, start, first, body })),
            Effect.timeout(ANSWER),
            Effect.scoped,
            Effect.matchCauseEffect({
              onSuccess: () => Effect.succeed<Delivery>("taken"),
              onFailure: (cause) => {
                const forgot = cause.reasons.some((reason) => reason._tag === "Fail" && reason.error instanceof PeerForgot)
                return forgot
                  ? Effect.succeed<Delivery>("forgot")
                  : Effect.as(RcMap.invalidate(clients, node), "unreachable" as Delivery)
              }
            })
          ),
        received: (from, began, first, body) =>
          Effect.suspend(() => {
            if (listener === undefined || !known.has(from)) return Effect.fail(new PeerForgot())
            if (first) starts.set(from, began)
            else if (starts.get(from) !== began) return Effect.fail(new PeerForgot())
            return listener.receive(from, body, first)
          })
      })
    })
  )

  /** What other nodes call. */
  static readonly layerHandlers = PeerRpcs.toLayer(Effect.map(Peers, (peers) => ({
    Deliver: ({ body, first, from, start }) => peers.received(from, start, first, body)
  })))
}

interface Peer {
  readonly address: RunnerAddress.RunnerAddress
  refusals: number
}

const LOOK = "500 millis"
const ANSWER = "3 seconds"
/** Connections refused in a row that prove a process to be gone rather than being replaced. */
const REFUSALS = 2
const PROBE_MS = 1_000

const nameOf = ({ host, port }: RunnerAddress.RunnerAddress): string => `${host}:${port}`

const addressOf = (node: string): RunnerAddress.RunnerAddress => {
  const colon = node.lastIndexOf(":")
  return RunnerAddress.make(node.slice(0, colon), Number(node.slice(colon + 1)))
}

/** Whether nothing listens there: an answer of the machine, which a network that is cut or a process that hangs does not give. */
const isRefused = ({ host, port }: RunnerAddress.RunnerAddress): Effect.Effect<boolean> =>
  Effect.callback((resume) => {
    const socket = createConnection({ host, port, timeout: PROBE_MS })
    const end = (gone: boolean) => {
      socket.destroy()
      resume(Effect.succeed(gone))
    }
    socket.on("connect", () => end(false))
    socket.on("timeout", () => end(false))
    socket.on("error", (error: NodeJS.ErrnoException) => end(error.code === "ECONNREFUSED"))
    return Effect.sync(() => socket.destroy())
  })
