import { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import * as Lines from "#infrastructure/cluster/PeerConnections"
import { Context, Effect, Layer, type Scope } from "effect"
import { once } from "node:events"
import { connect, createServer, type Server, type Socket } from "node:net"
import { eventually } from "./Eventually.ts"

/** An entry of a line, and the node that received it. */
export interface HeardEntry {
  readonly node: string
  readonly entry: ReadonlyArray<unknown>
}

/**
 * The real connections between nodes of one process, which a test can hold or break. Held bytes wait at the receiver.
 * They are neither lost nor read.
 */
export class Wires {
  private readonly ports = new Map<string, Server>()
  private readonly connections = new Set<Socket>()
  private readonly sides = new Map<Socket, string>()
  /** Whether nodes can connect to each other. */
  isUp = true
  /** Whether everything that nodes write is dropped, except greetings. */
  isMute = false
  /** The entries that nodes have received since `record`. */
  entries: Array<HeardEntry> | undefined

  /** Connects `from` to a node. */
  dial(from: string, node: string): Effect.Effect<Socket, string> {
    const address = this.ports.get(node)?.address()
    if (!this.isUp || address === null || address === undefined || typeof address === "string")
      return Effect.fail("nothing listens there")
    return Effect.promise(async () => {
      const socket = connect({ port: address.port, host: "127.0.0.1", noDelay: true })
      this.keep(from, socket)
      await once(socket, "connect")
      return socket
    })
  }

  async listen(node: string, accept: (socket: Socket) => void): Promise<void> {
    const server = createServer({ pauseOnConnect: true, noDelay: true }, (socket) => {
      this.keep(node, socket)
      accept(socket)
    })
    this.ports.set(node, server)
    await once(server.listen(0, "127.0.0.1"), "listening")
  }

  /** Records the entries that nodes receive from now on, in their order. */
  record(): Array<HeardEntry> {
    return this.entries ??= []
  }

  /** The number of open ends of connections. */
  get open(): number {
    return this.connections.size
  }

  private keep(node: string, socket: Socket): void {
    this.connections.add(socket)
    this.sides.set(socket, node)
    const write = socket.write.bind(socket)
    // A greeting is a string, a frame is not.
    socket.write =
      ((bytes: string | Buffer) =>
        this.isMute && typeof bytes !== "string" ? true : write(bytes)) as typeof socket.write
    socket.on("error", () => {})
    socket.on("close", () => this.connections.delete(socket))
  }

  /** Breaks all connections. */
  cut(): void {
    for (const connection of this.connections) connection.destroy()
  }

  /** Makes a node read nothing until it is released. */
  hold(node: string): void {
    for (const connection of this.connections) if (this.sides.get(connection) === node) connection.pause()
  }

  release(): void {
    for (const connection of this.connections) connection.resume()
  }

  close(): void {
    this.cut()
    for (const server of this.ports.values()) server.close()
  }
}

/** The connections, for as long as the scope is open. */
export const wires: Effect.Effect<Wires, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => new Wires()),
  (made) => Effect.sync(() => made.close())
)

/** The lines of a node. A test has to call `start` once all topics have handlers. */
export const layerLines = (made: Wires, name: string, incarnation = 1) =>
  Layer.effect(
    Lines.PeerConnections,
    Effect.gen(function*() {
      const lines = yield* Lines.make(name, incarnation, (node) => made.dial(name, node))
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      yield* Effect.promise(() => made.listen(name, (socket) => void fork(Effect.ignore(lines.accept(socket)))))
      return Lines.PeerConnections.of({
        ...lines,
        handle: (topic, handler) =>
          lines.handle(topic, (line, entry) => {
            made.entries?.push({ node: name, entry })
            handler(line, entry)
          })
      })
    })
  )

/** Waits until each of these nodes has a line with all others that it wants. */
export const connected = (...all: ReadonlyArray<Lines.PeerConnections["Service"]>): Effect.Effect<void> =>
  Effect.gen(function*() {
    for (const lines of all) yield* lines.want(all.map(({ self }) => self))
    yield* Effect.promise(() =>
      eventually(
        "the lines",
        () => all.every((one) => all.every(({ self }) => self === one.self || one.to(self) !== undefined)) || undefined
      )
    )
  })

/** A node that can call others and be called. */
export const makeCalls = Effect.fnUntraced(function*(made: Wires, name: string, incarnation = 1) {
  const context = yield* Layer.build(
    Layer.fresh(Layer.provideMerge(NodeCalls.layer, layerLines(made, name, incarnation)))
  )
  const lines = Context.get(context, Lines.PeerConnections)
  return { lines, calls: Context.get(context, NodeCalls), context }
})
