import { PushRouter } from "#domain/push/PushRouter"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import * as ClusterNode from "#infrastructure/cluster/ClusterNode"
import { Members } from "#infrastructure/cluster/Members"
import { nameOf } from "#infrastructure/cluster/NodeAddress"
import { complete } from "#infrastructure/cluster/NodeDuty"
import { lockKeyOf } from "#infrastructure/cluster/NodeTable"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Config } from "#infrastructure/platform/Config"
import { Readiness } from "#infrastructure/platform/Readiness"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { Context, Effect, Layer, Logger, Redacted } from "effect"
import { Socket } from "node:net"
import { setTimeout as pause } from "node:timers/promises"

/** The settings of the node, given as its first argument. */
export interface NodeOptions {
  readonly url: string
  readonly host: string
  readonly port: number
}

/** What the node has used since it started. */
export interface NodeUse {
  /** The other nodes that belong to the cluster. */
  readonly others: number
  readonly cpuMicros: number
  readonly residentBytes: number
  /** Bytes that came from the database. */
  readonly readBytes: number
  /** How many sockets other nodes have announced, for a sample of agents. */
  readonly known: number
}

/** The commands to the node's process, with their arguments and results. */
export interface NodeCommands {
  readonly use: (sample: ReadonlyArray<string>) => Promise<NodeUse>
  /** Collects garbage and returns the bytes of the heap and of buffers that are left. */
  readonly memory: (none: null) => Promise<number>
  /** Opens and closes sockets. Returns the milliseconds that each new socket waited for the other nodes. */
  readonly connect: (load: { readonly perSecond: number; readonly seconds: number }) => Promise<ReadonlyArray<number>>
  /** Pushes to agents without sockets. Returns the microseconds of processor time of one push. */
  readonly push: (times: number) => Promise<number>
  /** Waits until a node no longer belongs to the cluster. Returns the time of this, in milliseconds since the epoch. */
  readonly gone: (node: string) => Promise<number>
}

const PUSHES = 200

/** The sockets that this process has connected, which are those to the database. */
const dialled: Array<Socket> = []
const watchDials = (): void => {
  // eslint-disable-next-line @typescript-eslint/unbound-method
  const connect = Socket.prototype.connect as (...given: ReadonlyArray<unknown>) => Socket
  Socket.prototype.connect = function(this: Socket, ...given: ReadonlyArray<unknown>) {
    dialled.push(this)
    return connect.apply(this, [...given])
  } as typeof Socket.prototype.connect
}

const node = Effect.fnUntraced(function*({ host, port, url }: NodeOptions) {
  const settings = Config.layerTest({
    RUNNER_HOST: host,
    RUNNER_PORT: port,
    DATABASE_URL: Redacted.make(url)
  })
  const config = Context.get(yield* Layer.build(settings), Config)
  const context = yield* Layer.build(
    PushRouter.layer.pipe(
      Layer.provideMerge(ClusterNode.layer({ ...config, DATABASE_URL: Redacted.make(url) })),
      Layer.provide([
        layerPg({ url: Redacted.make(url), poolSize: 2, mark: lockKeyOf(nameOf({ host, port })) }),
        Readiness.layer,
        StallGuard.layer,
        settings,
        Logger.layer([])
      ])
    )
  )
  yield* Effect.provideContext(complete, context)
  return { members: Context.get(context, Members), router: Context.get(context, PushRouter) }
})

const commandsOf = ({ members, router }: Effect.Success<ReturnType<typeof node>>): NodeCommands => ({
  use: async (sample) => {
    const { system, user } = process.cpuUsage()
    return {
      others: [...members.others()].length,
      cpuMicros: user + system,
      residentBytes: process.memoryUsage.rss(),
      readBytes: dialled.reduce((sum, { bytesRead }) => sum + bytesRead, 0),
      known: sample.reduce((sum, agentId) => sum + router.count(agentId), 0)
    }
  },
  memory: async () => {
    globalThis.gc?.()
    const { arrayBuffers, heapUsed } = process.memoryUsage()
    return heapUsed + arrayBuffers
  },
  connect: async ({ perSecond, seconds }) => {
    const waits: Array<number> = []
    const open: Array<SocketSlot> = []
    const began = performance.now()
    let count = 0
    const connect = async (): Promise<void> => {
      const place = router.enter(`agt_own${String(count++).padStart(13, "0")}`, () => undefined)
      const at = performance.now()
      await Effect.runPromise(router.reachable)
      waits.push(performance.now() - at)
      if (place !== undefined) open.push(place)
      if (open.length > perSecond) router.leave(open.shift()!)
    }
    const all: Array<Promise<void>> = []
    while (performance.now() - began < seconds * 1_000) {
      if (count < (performance.now() - began) / 1_000 * perSecond) all.push(connect())
      else await pause(5)
    }
    await Promise.all(all)
    return waits
  },
  push: async (times) => {
    const agents = Array.from({ length: 1_000 }, (_, i) => `agt_none${String(i).padStart(12, "0")}`)
    let micros = 0
    // In slices, so that the connections are served meanwhile.
    for (let done = 0; done < times; done += PUSHES) {
      const before = process.cpuUsage()
      for (let i = 0; i < PUSHES; i++) router.push(agents[(done + i) % agents.length]!, { _tag: "Event", frame: "{}" })
      const { system, user } = process.cpuUsage(before)
      micros += user + system
      await pause(10)
    }
    return micros / times
  },
  gone: async (name) => {
    while ([...members.others()].includes(name)) await pause(5)
    return Date.now()
  }
})

const main = async (options: NodeOptions): Promise<void> => {
  watchDials()
  await Effect.runPromise(Effect.scoped(Effect.gen(function*() {
    const commands = commandsOf(yield* node(options))
    process.on(
      "message",
      (call: { readonly id: number; readonly command: keyof NodeCommands; readonly argument: never }) => {
        void commands[call.command](call.argument).then((result) => process.send?.({ id: call.id, result }))
      }
    )
    process.send?.({ id: 0, result: null })
    yield* Effect.never
  })))
}

if (import.meta.main) await main(JSON.parse(process.argv[2] ?? "{}") as NodeOptions)
