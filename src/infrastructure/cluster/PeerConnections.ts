import type { Settings } from "#infrastructure/platform/Config"
import { LogThrottle, MINUTE_MS } from "#infrastructure/platform/LogThrottle"
import { type GREETINGS, greetingsFailed, lineFrames, linesBroken } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Cause, Clock, Context, Effect, FiberMap, Latch, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import type { Socket } from "node:net"
import { nameOf } from "./NodeAddress.ts"
import { makeDial, SILENT } from "./NodeDial.ts"
import { type Greeting, NODE_PROTOCOL_VERSION, NotGreeted, readGreeting, writeGreeting } from "./NodeGreeting.ts"
import { type LineEnd, PeerConnection } from "./PeerConnection.ts"

/** The topics of entries. The topic is the first item of each entry. */
export type Topic = "call" | "answer" | "sockets" | "hint" | "echo" | "event" | "missed"

/** Is notified when connections begin and end. */
export interface LineWatcher {
  readonly began?: (line: PeerConnection) => void
  /** Frames arrive in both directions. */
  readonly confirmed?: (line: PeerConnection) => void
  readonly ended: (line: PeerConnection, end: LineEnd) => void
}

/**
 * Why a connection from another node is not accepted: the node sent no greeting (`stranger`), or its greeting was
 * refused.
 */
export type NotTaken = "stranger" | "refused"

/**
 * The connections between this node and the other nodes, one for each pair of nodes. Of two nodes that want a
 * connection, the node with the smaller name connects at once. The other node connects when there has been no
 * connection for two seconds, because connections may be possible in its direction only. If both connect at the same
 * time, the connection that the node with the smaller name has opened is kept.
 */
export class PeerConnections extends Context.Service<PeerConnections, {
  /** This node's name: RUNNER_HOST:RUNNER_PORT. */
  readonly self: string
  /** Handles the entries of a topic. Must be called before `start`. */
  readonly handle: (topic: Topic, handler: (line: PeerConnection, entry: ReadonlyArray<unknown>) => void) => void
  readonly watch: (watcher: LineWatcher) => void
  /** Begins to open and accept connections. All topics must have handlers by then. */
  readonly start: Effect.Effect<void>
  /** Sets the nodes to which this node should have connections. Connections to other nodes stay until they break. */
  readonly want: (nodes: Iterable<string>) => Effect.Effect<void>
  /** The connection to a node, or undefined if there is none at the moment. */
  readonly to: (node: string) => PeerConnection | undefined
  readonly all: () => Iterable<PeerConnection>
  /**
   * Why there is no connection to a node, written for operators. Undefined if there is a connection, or if the reason
   * is not known.
   */
  readonly problem: (node: string) => string | undefined
  /** Accepts a connection that another node has opened. */
  readonly accept: (connection: Socket) => Effect.Effect<void, NotTaken>
}>()("parley/cluster/PeerConnections") {
  /** For a standalone server, which has no other nodes. */
  static readonly layerAlone = Layer.succeed(
    PeerConnections,
    PeerConnections.of({
      self: "",
      handle: () => {},
      watch: () => {},
      start: Effect.void,
      want: () => Effect.void,
      to: () => undefined,
      all: () => [],
      problem: () => undefined,
      accept: () => Effect.fail("refused")
    })
  )

  static readonly layer = (config: Pick<Settings, "RUNNER_HOST" | "RUNNER_PORT" | "RUNNER_SECRET">) =>
    Layer.effect(
      PeerConnections,
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        // The incarnation is a transaction id. Of two processes with one address, the later process has the greater
        // number, whatever the clocks show.
        const [made] = yield* sql<{ readonly no: number }>`SELECT pg_current_xact_id()::text::bigint AS no`
        const self = nameOf({ host: config.RUNNER_HOST, port: config.RUNNER_PORT })
        return yield* make(self, made?.no ?? 0, makeDial(config))
      })
    )
}

/** Why there is no connection to a node. */
interface Failed {
  readonly kind: typeof GREETINGS[number]
  readonly reason: string
}

/** Makes the service. `dial` connects to a node by name, or fails with the reason. */
export const make = Effect.fnUntraced(
  function*(self: string, incarnation: number, dial: (node: string) => Effect.Effect<Socket, string>) {
    const now = monotonicMillis(yield* Clock.Clock)
    const fork = Effect.runForkWith(yield* Effect.context<never>())
    const warnings = new LogThrottle(MINUTE_MS)
    const started = yield* Latch.make(false)
    const handlers = new Map<string, (line: PeerConnection, entry: ReadonlyArray<unknown>) => void>()
    const watchers: Array<LineWatcher> = []
    const lines = new Map<string, PeerConnection>()
    const preferred = new WeakSet<PeerConnection>()
    const problems = new Map<string, string>()
    const dialling = yield* FiberMap.make<string>()

    const warn = (key: string, text: string, cause?: unknown): void => {
      fork(
        warnings.log(cause === undefined ? Effect.logWarning(text) : Effect.logWarning(text, Cause.fail(cause)), key)
      )
    }

    /** Logs why a connection ended. `Members` logs the death of a node once. */
    const explain = (node: string, end: LineEnd, cause: unknown): void => {
      if (end === "closed") return
      linesBroken.at(end).add()
      if (end === "answer")
        return warn(
          `${node} answer`,
          `The connection to node ${node} was closed, because a frame from the node could not be read. Do both nodes run the same version of Parley?`,
          cause
        )
      const text = `The connection to node ${node} broke: ${
        cause instanceof Error ? cause.message : "the connection was closed"
      }`
      if (end === "silence") warn(`${node} silence`, text)
      else fork(Effect.logDebug(text))
    }

    /** Begins a connection with a node. `isPreferred` is true if the node with the smaller name has connected. */
    const begin = (
      node: string,
      greeting: Greeting,
      connection: Socket,
      rest: Buffer,
      isPreferred: boolean,
      ended: () => void
    ): void => {
      const known = lines.get(node)
      if (known !== undefined && !isPreferred && preferred.has(known) && greeting.incarnation <= known.incarnation) {
        connection.destroy()
        return ended()
      }
      known?.end("connection", new Error("there is a newer connection"))
      const line = new PeerConnection(node, greeting.incarnation, connection, {
        received: (line, entry) => {
          const handler = handlers.get(entry[0] as string)
          if (handler === undefined) throw new Error(`unknown topic ${String(entry[0])}`)
          handler(line, entry)
        },
        ended: (line, end, cause) => {
          if (lines.get(node) === line) lines.delete(node)
          explain(node, end, cause)
          for (const watcher of watchers) watcher.ended(line, end)
          ended()
        },
        confirmed: (line) => {
          for (const watcher of watchers) watcher.confirmed?.(line)
        },
        sent: (entries) => lineFrames.observe(entries)
      }, now)
      lines.set(node, line)
      if (isPreferred) preferred.add(line)
      problems.delete(node)
      for (const watcher of watchers) watcher.began?.(line)
      line.begin(rest)
      line.probe()
    }

    const greeting = (to: string, refused?: string): Greeting => ({
      parley: NODE_PROTOCOL_VERSION,
      from: self,
      to,
      incarnation,
      ...refused === undefined ? {} : { refused }
    })

    /** Connects to a node, and completes when the connection has ended. */
    const connected = Effect.fnUntraced(function*(node: string) {
      const failed = (kind: typeof GREETINGS[number], reason: string): Failed => ({ kind, reason })
      const connection = yield* Effect.mapError(
        dial(node),
        (reason) => failed(reason === SILENT ? "silent" : "unreachable", reason)
      )
      writeGreeting(connection, greeting(node))
      const { greeting: answer, rest } = yield* readGreeting(connection).pipe(
        Effect.mapError(() =>
          failed(
            "unreachable",
            "it closes the connection: does it have the same RUNNER_SECRET and the same version of Parley?"
          )
        ),
        Effect.timeoutOrElse({
          duration: DIALED_GREETING_TIMEOUT,
          orElse: () => Effect.fail(failed("silent", "it does not respond"))
        }),
        Effect.onError(() => Effect.sync(() => connection.destroy()))
      )
      if (answer.refused !== undefined) {
        connection.destroy()
        return yield* Effect.fail(failed("refused", answer.refused))
      }
      yield* Effect.callback<void>((resume) =>
        begin(node, answer, connection, rest, self < node, () => resume(Effect.void))
      )
    })

    const keepConnected = (node: string) =>
      Effect.gen(function*() {
        let failures = 0
        while (true) {
          if (node < self) yield* Effect.sleep(SECOND_DIALER_DELAY_MS)
          // The other side may have connected meanwhile.
          if (lines.has(node)) {
            failures = 0
            yield* Effect.sleep(RECONNECT_DELAY_MS)
            continue
          }
          const at = now()
          const result = yield* Effect.result(connected(node))
          if (result._tag === "Success") {
            failures = 0
            // A connection that breaks is opened again at once, but at most four times a second.
            yield* Effect.sleep(Math.max(0, at + RECONNECT_DELAY_MS - now()))
            continue
          } else {
            failures++
            problems.set(node, result.failure.reason)
            greetingsFailed.at(result.failure.kind).add()
          }
          // Handshakes with a node that always refuses this node are expensive, so the pauses become longer.
          yield* Effect.sleep(
            Math.min(RECONNECT_DELAY_MS * 2 ** Math.max(0, failures - QUICK_RETRIES), SLOW_RECONNECT_DELAY_MS)
          )
        }
      })

    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        for (const line of lines.values()) line.end("closed")
      })
    )

    let checkedAt = now()
    yield* Effect.sync(() => {
      // If this process stood still, it has not read the frames yet that arrived meanwhile.
      const stoodStill = now() - checkedAt > 2 * CHECK_INTERVAL_MS
      checkedAt = now()
      for (const line of lines.values()) line.check(!stoodStill)
    }).pipe(Effect.repeat(Schedule.spaced(CHECK_INTERVAL_MS)), Effect.forkScoped)

    return PeerConnections.of({
      self,
      handle: (topic, handler) => handlers.set(topic, handler),
      watch: (watcher) => watchers.push(watcher),
      start: Effect.asVoid(started.open),
      want: Effect.fnUntraced(function*(nodes: Iterable<string>) {
        const wanted = new Set([...nodes].filter((node) => node !== self).slice(0, MAX_NODES))
        for (const [node] of dialling) if (!wanted.has(node)) yield* FiberMap.remove(dialling, node)
        for (const node of problems.keys()) if (!wanted.has(node)) problems.delete(node)
        for (const node of wanted) {
          yield* FiberMap.run(dialling, node, Effect.andThen(started.await, keepConnected(node)), {
            onlyIfMissing: true
          })
        }
      }),
      to: (node) => lines.get(node),
      all: () => lines.values(),
      problem: (node) => lines.has(node) ? undefined : problems.get(node),
      accept: Effect.fnUntraced(function*(connection: Socket) {
        yield* started.await
        const { greeting: { from, incarnation: process, parley, to }, rest } = yield* readGreeting(connection).pipe(
          Effect.timeoutOrElse({ duration: ACCEPTED_GREETING_TIMEOUT, orElse: () => Effect.fail(new NotGreeted()) }),
          Effect.mapError((): NotTaken => "stranger")
        )
        const refusal = to !== self
          ? `the node at this address is ${self}`
          : parley !== NODE_PROTOCOL_VERSION
          ? `it uses version ${NODE_PROTOCOL_VERSION} of the protocol between nodes, not version ${parley}: nodes of these versions cannot run together, so stop all nodes for this upgrade`
          : process < (lines.get(from)?.incarnation ?? 0)
          ? "a newer process uses its address"
          : undefined
        if (refusal !== undefined) {
          if (to === self)
            warn(
              `refused ${from}`,
              `Node ${from} is refused: ${
                parley === NODE_PROTOCOL_VERSION
                  ? refusal
                  : `it uses version ${parley} of the protocol between nodes, and this node version ${NODE_PROTOCOL_VERSION}`
              }`
            )
          writeGreeting(connection, greeting(from, refusal))
          connection.destroySoon()
          return yield* Effect.fail<NotTaken>("refused")
        }
        writeGreeting(connection, greeting(from))
        begin(from, { parley, from, to, incarnation: process }, connection, rest, from < self, () => {})
      })
    })
  }
)

const CHECK_INTERVAL_MS = 250
/** How long the node that connects waits for the other node's greeting. */
const DIALED_GREETING_TIMEOUT = "2 seconds"
/** How long a node that accepts a connection waits for the greeting. */
const ACCEPTED_GREETING_TIMEOUT = "10 seconds"
const RECONNECT_DELAY_MS = 250
/** How long the node with the greater name waits for the other node to connect. */
const SECOND_DIALER_DELAY_MS = 2_000
/** The longest pause between attempts, in milliseconds. */
const SLOW_RECONNECT_DELAY_MS = 4_000
/** Failures in a row after which the pauses between attempts become longer. */
const QUICK_RETRIES = 4
const MAX_NODES = 1_000
