import { DirectActor } from "#domain/direct/DirectActor"
import { DirectEntity, type Send, type SendCommand } from "#domain/direct/DirectEntity"
import type { Published } from "#domain/messages/Published"
import { LiveAgent, type Push } from "#domain/push/LiveAgent"
import { PushRouter } from "#domain/push/PushRouter"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import type { Sent } from "#domain/sending/Sent"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { Members } from "#infrastructure/cluster/Members"
import { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import * as Lines from "#infrastructure/cluster/PeerConnections"
import { boundless } from "#infrastructure/http/BufferedBytes"
import { Config } from "#infrastructure/platform/Config"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { CALLER_TIMEOUT_MS } from "#infrastructure/wire/WireError"
import { makeComparison } from "#interfaces/realtime/Cursors"
import { type SessionDependencies, SocketSession } from "#interfaces/realtime/SocketSession"
import { Clock, Context, Effect, Exit, type Fiber, Layer, References, Scope } from "effect"
import { ShardId, type ShardId as ShardIds, Sharding } from "effect/cluster"
import { FakeSocket } from "../../../test/support/FakeSocket.ts"
import { randomOf } from "../../../test/support/Random.ts"
import type { Reaches } from "../Search.ts"
import { check, same } from "../Violation.ts"
import { AGENTS, type Command, NODES, type OneSend as OneCommand } from "./Commands.ts"
import { Connections } from "./Connections.ts"
import { Database, type DatabaseMutant } from "./Database.ts"
import { Time } from "./Time.ts"

/** A mistake that the simulation has to find. */
export interface Mutant {
  readonly database?: DatabaseMutant
  readonly lines?: (lines: Lines.PeerConnections["Service"]) => Lines.PeerConnections["Service"]
  readonly calls?: (calls: NodeCalls["Service"]) => NodeCalls["Service"]
  /** Executes calls of other nodes whether or not the node holds the shard. */
  readonly servesAll?: boolean
  readonly publish?: (publish: (stored: Published) => void, time: Time) => (stored: Published) => void
  /** Changes a push before the receiving node handles it. */
  readonly hears?: (push: Push) => Push
  /** Replaces something for the duration of a run. Returns a function that restores it. */
  readonly patch?: () => () => void
}

/** Counts of the events in all runs, for tests that require them. */
export type Coverage = Map<string, number>

const SEND = "Conversation/Send"
/** One push more than may wait for one node (PushQueue.ts). */
const FLOOD = 20_001
const LOOK_MS = 5
/** How long a socket that opens waits for other nodes (PushRouter.ts). */
const LONGEST_WAIT_MS = 1_000
/** Within this time all lines are connected again, and every socket has read the messages that it missed. */
const QUIET_MS = 15_000
/** No caller waits longer than this for the answer to a send (EntityRpc.ts, SendQueues.ts). */
const ANSWERED_MS = 12_000

const agentName = (agent: number): string => `agent-${agent}`
const nodeName = (node: number): string => `node-${node}:1`
/** Each pair of agents has a conversation, and each conversation a shard. */
const shardOf = (one: number, other: number): number => AGENTS - one - other
const conversationName = (shard: number): string => `conv_${shard}`
const shardIn = (conversationId: string): number => Number(conversationId.slice("conv_".length))

/** An open socket, with the state of its client. */
interface OpenSocket {
  readonly agent: number
  readonly node: LiveNode
  readonly place: SocketSlot
  readonly session: SocketSession
  readonly actor: LiveAgent
  readonly socket: ClientSocket
  /**
   * Whether a node received the socket's announcement too late. Only the regular comparison finds messages committed
   * there before.
   */
  isLate: boolean
}

/** A client's socket that compares each frame with the database. */
class ClientSocket extends FakeSocket {
  nextInboxNo = 1
  private readonly seqs = new Map<string, number>()
  private readonly world: World
  private readonly name: string

  constructor(world: World, name: string) {
    super(() => 0)
    this.world = world
    this.name = name
  }

  override send(frame: string): void {
    if (!frame.startsWith('{"type":"message.new"')) return
    const { conversation_id, delivery_id, id, seq } = (JSON.parse(frame) as {
      payload: { conversation_id: string; delivery_id: string | null; id: string; seq: number }
    }).payload
    this.world.judge(() => {
      check(
        "pushedOnlyStored",
        this.world.database.byId.has(id),
        () => `${this.name} showed ${id}, which is not committed`
      )
      const last = this.seqs.get(conversation_id) ?? 0
      check("pushedInOrder", seq > last, () => `${this.name} showed ${conversation_id} ${seq} after ${last}`)
      this.seqs.set(conversation_id, seq)
      if (delivery_id !== null) {
        same("pushedInOrder", delivery_id, `dlv_${this.nextInboxNo}`, `${this.name} showed the inbox`)
        this.nextInboxNo++
      }
    })
    this.world.met(delivery_id === null ? "echo shown" : "message shown")
  }
}

/** A process of a node. */
interface LiveNode {
  readonly no: number
  readonly name: string
  readonly process: string
  readonly scope: Scope.Closeable
  readonly lines: Lines.PeerConnections["Service"]
  readonly router: PushRouter["Service"]
  readonly send: EntityRpc.Client<typeof Send>["Send"]
  readonly agents: Map<string, LiveAgent>
  readonly sockets: Set<OpenSocket>
  readonly fibers: Set<Fiber.Fiber<unknown, unknown>>
  readonly fork: <A, E>(effect: Effect.Effect<A, E>) => Fiber.Fiber<A, E>
  /** Messages whose echo has come to this node. */
  readonly echoes: Set<string>
}

interface OneSend {
  readonly from: number
  readonly to: number
  readonly key: string
  /** How often a node may have executed the send for another node, as far as the callers know. */
  mayBeExecuted: number
  /** How often a node did execute it for another node. */
  executed: number
  isAnswered: boolean
  underWay: number
}

/**
 * Nodes with the real lines, calls, procedures, actors of conversations, routers of pushes and sessions, over simulated
 * connections, a simulated database and a simulated clock. The list of nodes and the owners of shards are simulated
 * too: each node learns of a change at another time. The regular comparison of cursors with storage (SocketServer.ts)
 * is left out, because it would hide a lost push after ten seconds. Two cases need this comparison and are not checked:
 * a commit whose node got no answer, and a socket that opens while another node does not answer for a second.
 */
export class World {
  readonly time = new Time()
  readonly connections = new Connections(this.time)
  readonly database: Database
  private readonly mutant: Mutant
  private readonly coverage: Coverage
  private readonly nodes = new Map<number, LiveNode>()
  private readonly owners: Array<number> = []
  private readonly former: Array<number | undefined> = []
  /** The shards that each node believes to hold. */
  private readonly held: Array<Set<number>> = []
  /** The owner of each shard, as each node believes. */
  private readonly views: Array<Array<readonly [number, number | undefined]>> = []
  /** The sends that are made when a node has a line again, by the name of the node. */
  private readonly whenAgain = new Map<string, ReadonlyArray<OneCommand>>()
  private readonly floods = new Set<string>()
  private readonly sends = new Map<string, OneSend>()
  /** When pushes, perhaps an echo among them, were dropped because too many waited. */
  private floodedAt = -1
  /** Whether the execution of another node's call is beginning right now. */
  private isServing = false
  private incarnations = 0
  private messages = 0
  /** The node that was killed, and when it starts again. */
  private restartAt: { readonly node: number; readonly at: number } | undefined
  private violation: unknown
  private isOver = false

  constructor(mutant: Mutant, coverage: Coverage) {
    this.mutant = mutant
    this.coverage = coverage
    this.database = new Database(this.time, randomOf(1), mutant.database ?? {})
    for (let shard = 0; shard < AGENTS; shard++) this.owners[shard] = shard % NODES
    for (let node = 0; node < NODES; node++) {
      this.held[node] = new Set()
      this.views[node] = []
      for (let shard = 0; shard < AGENTS; shard++) this.learn(node, shard)
    }
  }

  met(what: string): void {
    this.coverage.set(what, (this.coverage.get(what) ?? 0) + 1)
  }

  /** Runs a comparison. The first violation ends the run after the current command. */
  judge(compare: () => void): void {
    if (this.violation !== undefined || this.isOver) return
    try {
      compare()
    } catch (violation) {
      this.violation = violation
    }
  }

  private learn(node: number, shard: number): void {
    const owner = this.owners[shard]!
    this.views[node]![shard] = [owner, this.former[shard]]
    if (owner === node) this.held[node]!.add(shard)
    else this.held[node]!.delete(shard)
  }

  private move(shard: number, to: number, lags: ReadonlyArray<number>): void {
    if (this.owners[shard] === to) return
    this.former[shard] = this.owners[shard]
    this.owners[shard] = to
    for (let node = 0; node < NODES; node++) this.time.after(lags[node] ?? 0, () => this.learn(node, shard))
  }

  /** The shards that a node holds, and the owners that it knows. */
  private cluster(no: number, others: ReadonlyArray<string>) {
    return Layer.merge(
      Layer.succeed(
        Sharding.Sharding,
        {
          getShardId: (id: string) => ShardId.make("default", shardIn(id) + 1),
          hasShardId: ({ id }: ShardIds.ShardId) =>
            (this.isServing && this.mutant.servesAll === true) || this.held[no]!.has(id - 1)
        } as unknown as Sharding.Sharding["Service"]
      ),
      Layer.succeed(
        Members,
        Members.of({
          list: () => undefined,
          after: () => Effect.never,
          belongs: () => true,
          others: () => others,
          ownersOf: ({ id }) =>
            this.views[no]![id - 1]!.flatMap((owner) => owner === undefined ? [] : [nodeName(owner)]),
          refresh: Effect.delay(
            Effect.sync(() => {
              for (let shard = 0; shard < AGENTS; shard++)
                this.views[no]![shard] = [this.owners[shard]!, this.former[shard]]
            }),
            LOOK_MS
          )
        })
      )
    )
  }

  /** Pushes a committed message, as Conversations does. */
  private publish(
    node: LiveNode,
    { envelopes, message, rendered, senderLastInboxNo, senderNextInboxNo }: Published
  ): void {
    const { agents, echoes, router } = node
    const { clientMsgId, id, senderId } = message
    const tell = (agentId: string, push: Push): void => {
      agents.get(agentId)?.push(push)
      router.push(agentId, push)
    }
    for (const { inboxNo, recipientId } of envelopes)
      tell(recipientId, { _tag: "Hint", inboxNo, messageId: id, senderId, rendered })
    if (senderLastInboxNo !== null) {
      echoes.add(id)
      tell(senderId, { _tag: "Echo", after: senderLastInboxNo, before: senderNextInboxNo, messageId: id, rendered })
    }
    if (this.floods.delete(`${senderId} ${clientMsgId}`)) {
      this.floodedAt = this.time.now
      for (const { recipientId } of envelopes) {
        if (router.count(recipientId) > 0) this.met("flood")
        for (let i = 0; i < FLOOD; i++) router.push(recipientId, { _tag: "Event", frame: '{"type":"flood"}' })
      }
    }
  }

  private start(no: number): Effect.Effect<void> {
    return Effect.gen({ self: this }, function*() {
      const { connections, database, mutant, time } = this
      const scope = yield* Scope.make()
      const name = nodeName(no)
      const incarnation = ++this.incarnations
      const process = `${name} ${incarnation}`
      const others = Array.from({ length: NODES }, (_, i) => nodeName(i)).filter((other) => other !== name)
      const made = yield* Lines.make(name, incarnation, (node) => connections.dial(name, node)).pipe(
        Scope.provide(scope)
      )
      const lines = mutant.lines?.(made) ?? made
      const fibers = new Set<Fiber.Fiber<unknown, unknown>>()
      const run = Effect.runForkWith(yield* Effect.context<never>())
      const fork = <A, E>(effect: Effect.Effect<A, E>): Fiber.Fiber<A, E> => {
        const fiber = run(effect)
        fibers.add(fiber)
        fiber.addObserver(() => fibers.delete(fiber))
        return fiber
      }

      const calls = Layer.effect(
        NodeCalls,
        Effect.map(NodeCalls, (real) => this.counted(no, mutant.calls?.(real) ?? real))
      ).pipe(
        Layer.provide(NodeCalls.layer)
      )
      const context = yield* Layer.build(
        PushRouter.layer.pipe(
          Layer.provideMerge(Layer.mergeAll(calls, this.cluster(no, others), Config.layerTest())),
          Layer.provideMerge(Layer.succeed(Lines.PeerConnections, lines)),
          Layer.fresh
        )
      ).pipe(Scope.provide(scope))
      const router = Context.get(context, PushRouter)
      const agents = new Map<string, LiveAgent>()
      const publish = (stored: Published): void => this.publish(node, stored)
      const actors = new Map<string, DirectActor>()
      const makeActor = DirectActor.make({
        ...database.for(process),
        now: () => time.currentTimeMillisUnsafe(),
        monotonic: monotonicMillis(time),
        newMessageId: () => `msg_${++this.messages}`,
        publish: mutant.publish?.(publish, time) ?? publish,
        facts: () => Effect.die("a send was refused"),
        reserve: () => Effect.void,
        release: () => Effect.void,
        useAttachment: () => Effect.void,
        backlogSoft: 1_000_000,
        backlogHard: 1_000_000,
        fork
      })
      const client = yield* EntityRpc.make(DirectEntity, {
        Send: {
          run: (conversationId, { command }) => {
            this.judge(() =>
              check(
                "oneOwner",
                this.held[no]!.has(shardIn(conversationId)),
                () => `${process} executed a send of ${conversationId}, and does not hold its shard`
              )
            )
            const known = actors.get(conversationId) ?? makeActor(conversationId)
            actors.set(conversationId, known)
            return known.send(command)
          }
        },
        Block: { run: () => Effect.die("not simulated") },
        Unblock: { run: () => Effect.die("not simulated") }
      }).pipe(Effect.provide(context), Scope.provide(scope))

      const node: LiveNode = {
        no,
        name,
        process,
        scope,
        lines,
        router,
        send: client.Send,
        agents,
        sockets: new Set(),
        fibers,
        fork,
        echoes: new Set()
      }
      const compare = makeComparison(node.sockets, (agentIds) => database.heads(agentIds))
      router.listen({
        push: (agentId, pushed) => {
          const push = mutant.hears?.(pushed) ?? pushed
          if (push._tag === "Echo") node.echoes.add(push.messageId)
          agents.get(agentId)?.push(push)
        },
        notice: () => Effect.void,
        // SocketServer does the same.
        missed: () => void fork(Effect.andThen(compare, compare)),
        parted: () => {}
      })
      // SendQueues.ts does the same.
      fork(Effect.forever(Effect.andThen(
        Effect.sleep(1_000),
        Effect.sync(() => {
          for (const actor of actors.values()) if (!actor.idle) actor.timeOutCallers(time.now - CALLER_TIMEOUT_MS)
        })
      )))
      this.nodes.set(no, node)
      lines.watch({
        began: () => {
          const sends = this.whenAgain.get(name) ?? []
          this.whenAgain.delete(name)
          time.after(
            0,
            () => this.sendAll(sends.map((send) => ({ ...send, node: this.owners[shardOf(send.from, send.to)]! })))
          )
        },
        ended: () => {}
      })
      connections.listen(name, (connection) => void fork(Effect.ignore(lines.accept(connection))))
      yield* lines.want(others)
    }).pipe(Effect.provideService(Clock.Clock, this.time), Effect.provideService(References.MinimumLogLevel, "None"))
  }

  /** Counts executions of sends, and compares each answer with what came before it on the line. */
  private counted(no: number, real: NodeCalls["Service"]): NodeCalls["Service"] {
    const sendOf = (payload: unknown): OneSend | undefined => {
      const { draft, sender } = (payload as { readonly command: SendCommand }).command
      return this.sends.get(`${sender.id} ${draft.clientMsgId}`)
    }
    return NodeCalls.of({
      serve: (procedure, handler) =>
        real.serve(procedure, (target, payload) => {
          this.isServing = true
          const executed = handler(target, payload)
          this.isServing = false
          const send = procedure === SEND && executed !== undefined ? sendOf(payload) : undefined
          if (send !== undefined) send.executed++
          return executed
        }),
      call: (node, procedure, target, payload, until) => {
        const send = procedure === SEND ? sendOf(payload) : undefined
        if (send === undefined) return real.call(node, procedure, target, payload, until)
        return Effect.suspend(() => {
          const here = this.nodes.get(no)
          const began = this.time.now
          const sessions = new Set(here?.agents.get(agentName(send.from))?.sessions)
          // The caller may die before it has an answer.
          send.mayBeExecuted++
          return Effect.tap(real.call(node, procedure, target, payload, until), (answer) =>
            Effect.sync(() => {
              this.met(`call ${typeof answer === "string" ? answer : answer.ending}`)
              if (
                answer === "unsent" ||
                (typeof answer !== "string" && (answer.ending === "absent" || answer.ending === "busy"))
              ) send.mayBeExecuted--
              if (
                here === undefined || typeof answer === "string" || answer.ending !== "done" || this.floodedAt >= began
              ) return
              const sent = answer.value as Sent
              const { id } = JSON.parse(sent.body) as { readonly id: string }
              const hasHadSocket = [...here.agents.get(agentName(send.from))?.sessions ?? []].some((session) =>
                sessions.has(session)
              )
              if (sent.created && hasHadSocket) {
                this.judge(() =>
                  check("echoBeforeAnswer", here.echoes.has(id), () =>
                    `${here.process} had the answer to ${id} before its echo`)
                )
              }
            }))
        })
      }
    })
  }

  /** Opens a socket. `reads` is called when the socket begins to read its inbox. */
  private open(agent: number, no: number, reads = (): void => {}): void {
    const node = this.nodes.get(no)
    if (node === undefined) return
    const id = agentName(agent)
    const place = node.router.enter(id, () => {})
    if (place === undefined) return
    const actor = node.agents.get(id) ?? new LiveAgent(id)
    node.agents.set(id, actor)
    const socket = new ClientSocket(this, `a socket of ${id} at ${node.process}`)
    const dependencies: SessionDependencies = {
      deliveries: this.database.deliveries,
      inSlot: (_, query) => query,
      fork: node.fork,
      backlogBytes: 1_000_000_000,
      unsentBytes: 1_000_000_000,
      held: boundless()
    }
    const session = new SocketSession(socket.asWebSocket, actor, id, true, dependencies)
    const one: OpenSocket = { agent, node, place, session, actor, socket, isLate: false }
    const began = this.time.now
    node.sockets.add(one)
    actor.sessions.add(session)
    node.fork(Effect.map(node.router.reachable, () => {
      one.isLate = this.time.now - began >= LONGEST_WAIT_MS
      session.start()
      reads()
    }))
  }

  private close(socket: OpenSocket): void {
    socket.node.sockets.delete(socket)
    socket.session.ended()
    socket.actor.sessions.delete(socket.session)
    socket.node.router.leave(socket.place)
  }

  private get sockets(): ReadonlyArray<OpenSocket> {
    return [...this.nodes.values()].flatMap(({ sockets }) => [...sockets])
  }

  private kill(no: number): Effect.Effect<void> {
    return Effect.gen({ self: this }, function*() {
      const node = this.nodes.get(no)
      if (node === undefined) return
      this.nodes.delete(no)
      this.database.end(node.process)
      this.connections.kill(node.name)
      for (const { session } of node.sockets) session.ended()
      for (const fiber of node.fibers) fiber.interruptUnsafe()
      yield* Scope.close(node.scope, Exit.void)
      this.held[no]!.clear()
      for (let shard = 0; shard < AGENTS; shard++) {
        const to = [...this.nodes.keys()][0]
        if (this.owners[shard] === no && to !== undefined) this.move(shard, to, [100, 300, 600])
      }
    })
  }

  private sendAll(sends: ReadonlyArray<OneCommand>): void {
    for (const { from, key, node, to } of sends) this.send(node, from, to, key)
  }

  private send(no: number, from: number, to: number, keyNo: number): void {
    const node = this.nodes.get(no) ?? [...this.nodes.values()][0]
    if (node === undefined) return
    const key = `key-${keyNo}-${to}`
    const id = `${agentName(from)} ${key}`
    const send = this.sends.get(id) ?? { from, to, key, mayBeExecuted: 0, executed: 0, isAnswered: false, underWay: 0 }
    this.sends.set(id, send)
    send.underWay++
    const began = this.time.now
    const command: SendCommand = {
      sender: { id: agentName(from), handle: agentName(from), displayName: null },
      recipient: { id: agentName(to), handle: agentName(to) },
      draft: { clientMsgId: key, type: "text", content: '{"text":"any"}', metadata: "{}", attachmentId: undefined }
    }
    node.fork(node.send(conversationName(shardOf(from, to)), { command })).addObserver((exit) => {
      send.underWay--
      if (Exit.isFailure(exit)) {
        const [reason] = exit.cause.reasons
        const isUnavailable = reason?._tag === "Interrupt" ||
          (reason?._tag === "Fail" && (reason.error as { readonly _tag?: string })._tag === "Unavailable")
        this.judge(() => check("answered", isUnavailable, () => `a send ended with ${String(exit.cause)}`))
        this.met("send unanswered")
      } else {
        send.isAnswered = true
        this.met(exit.value.created ? "send stored" : "send replayed")
        this.judge(() => {
          const stored = this.database.byKey.get(id)
          const answered = JSON.parse(exit.value.body) as { readonly id: string; readonly seq: number }
          check("stored", stored !== undefined, () => `${id} was answered as ${answered.id}, and is not committed`)
          same("stored", [answered.id, answered.seq], [stored?.id, stored?.seq], `the answer to ${id}`)
        })
      }
      this.judge(() =>
        check("answered", this.time.now - began <= ANSWERED_MS, () => `${id} waited ${this.time.now - began} ms`)
      )
    })
  }

  private apply(command: Command): Effect.Effect<void> {
    this.met(command._tag)
    const { connections } = this
    switch (command._tag) {
      case "Weather":
        this.database.delayMs = Math.min(30, command.delayMs + 2)
        return Effect.sync(() => connections.weather(command.seed, command.delayMs))
      case "Send":
        return Effect.sync(() => this.send(command.node, command.from, command.to, command.key))
      case "Burst":
        return Effect.sync(() => this.sendAll(command.sends))
      case "Flood":
        return Effect.sync(() => {
          this.floods.add(`${agentName(command.from)} key-${command.key}-${command.to}`)
          const send = (): void => this.send(command.node, command.from, command.to, command.key)
          if (command.opens === null) send()
          else this.open(command.to, command.opens, send)
        })
      case "Open":
        return Effect.sync(() => this.open(command.agent, command.node))
      case "Close":
        return Effect.sync(() => {
          const { sockets } = this
          if (sockets.length > 0) this.close(sockets[command.pick % sockets.length]!)
        })
      case "Move":
        return Effect.sync(() => {
          if (this.nodes.has(command.to)) this.move(command.shard, command.to, command.lags)
        })
      case "Frame":
        return Effect.sync(() => connections.fault(nodeName(command.from), nodeName(command.to), command.fault))
      case "Cut":
        return Effect.sync(() => {
          connections.cut(nodeName(command.one), nodeName(command.other))
          this.whenAgain.set(nodeName(command.one), command.sends).set(nodeName(command.other), command.sends)
        })
      case "Part":
        return Effect.sync(() => {
          connections.part(nodeName(command.one), nodeName(command.other))
          this.time.after(command.ms, () => connections.rejoin(nodeName(command.one), nodeName(command.other)))
        })
      case "Idle":
        return Effect.sync(() => connections.idle(nodeName(command.node), command.ms))
      case "Kill":
        if (this.nodes.size < NODES) return Effect.void
        return Effect.andThen(
          this.kill(command.node),
          Effect.sync(() => {
            this.restartAt = { node: command.node, at: this.time.now + command.ms }
          })
        )
      case "Break":
        return Effect.sync(() => this.database.break(command.broken))
      case "Pass":
        return this.pass(command.ms)
      case "Rest":
        return this.rest
    }
  }

  private pass(ms: number): Effect.Effect<void> {
    return Effect.gen({ self: this }, function*() {
      const until = this.time.now + ms
      const restart = this.restartAt
      if (restart !== undefined && restart.at <= until) {
        yield* Effect.promise(() => this.time.pass(Math.max(0, restart.at - this.time.now)))
        this.restartAt = undefined
        yield* this.start(restart.node)
      }
      yield* Effect.promise(() => this.time.pass(until - this.time.now))
    })
  }

  /** Lets everything work again, waits, and checks that all sent messages are stored and shown. */
  private get rest(): Effect.Effect<void> {
    return Effect.gen({ self: this }, function*() {
      if (this.restartAt !== undefined) this.restartAt = { ...this.restartAt, at: this.time.now }
      this.connections.weather(1, 2)
      this.connections.rejoin()
      this.database.break(undefined)
      yield* this.pass(QUIET_MS)
      for (const { from, isAnswered, key, to } of this.sends.values()) {
        if (!isAnswered) this.send(from, from, to, Number(key.split("-")[1]))
      }
      yield* this.pass(1_000)
      this.judge(() => this.compare())
    })
  }

  private compare(): void {
    const { byKey, log } = this.database
    for (const [id, send] of this.sends) {
      check("answered", send.isAnswered && send.underWay === 0, () => `${id} has no answer`)
      check("stored", byKey.has(id), () => `${id} is not stored`)
      check(
        "oneOwner",
        send.executed <= send.mayBeExecuted,
        () => `${id} was executed ${send.executed} times for other nodes, and asked for ${send.mayBeExecuted} times`
      )
    }
    same("stored", new Set(log.map(({ key }) => key)).size, log.length, "messages with different keys")
    const epochs = new Map<string, { epoch: number; seq: number; writer: string }>()
    for (const { conversationId, epoch, seq, writer } of log) {
      const last = epochs.get(conversationId) ?? { epoch: 0, seq: 0, writer: "" }
      same("stored", seq, last.seq + 1, `the next message of ${conversationId}`)
      check(
        "oneOwner",
        epoch > last.epoch || (epoch === last.epoch && writer === last.writer),
        () =>
          `${conversationId} ${seq} was written by ${writer} in epoch ${epoch}, after ${last.writer} had written in epoch ${last.epoch}`
      )
      epochs.set(conversationId, { epoch, seq, writer })
    }
    for (const node of this.nodes.values()) {
      for (const other of this.nodes.keys()) {
        check(
          "announced",
          other === node.no || node.lines.to(nodeName(other)) !== undefined,
          () => `${node.process} has no line with node ${other}`
        )
      }
      for (let agent = 0; agent < AGENTS; agent++) {
        const elsewhere = this.sockets.filter((socket) => socket.agent === agent && socket.node !== node).length
        same(
          "announced",
          node.router.count(agentName(agent)),
          elsewhere,
          `the sockets of agent ${agent} elsewhere, as ${node.process} knows them`
        )
      }
    }
    for (const one of this.sockets) {
      const { isLate, socket } = one
      check("socketsStayOpen", socket.closedWith === undefined, () => `a socket was closed with ${socket.closedWith}`)
      const inbox = this.database.inbox(agentName(one.agent))
      // Only the regular comparison finds messages of which no node knows that they are committed.
      const pushed = inbox.findLast(({ isAnswered }) => isAnswered)?.inboxNo ?? 0
      const shown = socket.nextInboxNo - 1
      check(
        "pushedToAll",
        (isLate || shown >= pushed) && shown <= inbox.length,
        () => `a socket of agent ${one.agent} at ${one.node.process} has shown ${shown} messages of ${pushed}`
      )
    }
  }

  run(commands: ReadonlyArray<Command>, reaches: Reaches = () => {}): Effect.Effect<void> {
    return Effect.gen({ self: this }, function*() {
      const restore = this.mutant.patch?.()
      try {
        for (let node = 0; node < NODES; node++) yield* this.start(node)
        yield* this.pass(500)
        for (const [i, command] of commands.entries()) {
          reaches(i)
          yield* this.apply(command)
          if (this.violation !== undefined) break
        }
        if (this.violation === undefined) {
          reaches(commands.length)
          yield* this.rest
        }
      } finally {
        this.isOver = true
        for (const node of this.nodes.keys()) yield* this.kill(node)
        restore?.()
      }
      if (this.violation !== undefined) return yield* Effect.die(this.violation)
    })
  }
}

/** Runs lists of commands, each in a world of its own. */
export const makeRun =
  (coverage: Coverage, mutant: Mutant = {}) =>
  (commands: ReadonlyArray<Command>, reaches?: Reaches): Effect.Effect<void> =>
    Effect.suspend(() => new World(mutant, coverage).run(commands, reaches))
