import type { ConversationListItem } from "#domain/conversations/Conversation"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { makeDirectIds } from "#domain/direct/DirectConversation"
import type { Draft } from "#domain/messages/Message"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Secrets } from "#infrastructure/database/Secrets"
import { Database } from "#infrastructure/database/Sql"
import { unavailable } from "#infrastructure/database/SqlUnavailable"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { boundless } from "#infrastructure/http/BufferedBytes"
import { Ids } from "#infrastructure/platform/Ids"
import type { Page } from "#infrastructure/wire/Page"
import type { Task } from "#interfaces/a2a/Task"
import { type SessionDependencies, SocketSession } from "#interfaces/realtime/SocketSession"
import { Clock, Context, Effect, Exit, Fiber, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import type { TestDatabase } from "../../test/support/Databases.ts"
import { FakeSocket } from "../../test/support/FakeSocket.ts"
import { leap } from "../../test/support/Leap.ts"
import { draft, newAgent } from "../../test/support/Modules.ts"
import type { Command, Cursor, Says } from "./Commands.ts"
import * as Model from "./Model.ts"
import type { Coverage, Reaches } from "./Search.ts"
import {
  calledBy,
  type Cancellation,
  hasEnded,
  makeNodes,
  type Mark,
  type ModelTask,
  nameOfLetter,
  shownState,
  tasksOf
} from "./Tasks.ts"
import { check, type Rule, ruleOfRefusal, same, Violation } from "./Violation.ts"
import { makeWaits, type OpenWait, type WaitMutant } from "./Waits.ts"

type Service<T> = T extends Context.Key<infer _I, infer S> ? S : never
type DatabaseShape = Service<typeof Database>

/** How the next commit of a batch of sends fails. */
export type Fault =
  /** The commit fails, and nothing is stored. */
  | "refused"
  /** The batch is stored, and the answer is lost. */
  | "unanswered"

/** A handle with which a test makes commits fail or pause, below the modules. */
export class Seam {
  fault: Fault | undefined = undefined
  /** Whether the fault has happened. */
  struck = false
  /** How the next commit of a derived task fails. */
  taskFault: Fault | undefined = undefined
  /** An effect that each batch waits for between its statement and its commit. */
  pause: Effect.Effect<void> | undefined = undefined
}

/** How a mutant changes the batch statement, or how it is run. */
export interface Mutant {
  readonly text?: (append: string) => string
  /** Other statements, by their names. */
  readonly statements?: Readonly<Record<string, (text: string) => string>>
  /** An effect that runs before each batch. */
  readonly before?: Effect.Effect<void, SqlError.SqlError>
  /** Runs the statement for a batch whose commit fails; without it, nothing is run. */
  readonly failing?: (
    run: Effect.Effect<ReadonlyArray<object>, SqlError.SqlError>,
    params: ReadonlyArray<unknown>,
    sql: SqlClient.SqlClient
  ) => Effect.Effect<void>
}

const broken = () => sqlError(new DatabaseFault({ message: "the connection was lost" }), "commit")

/** A database whose batch statement can fail on demand, or is replaced by a mutant. */
export const layerSeam = (database: TestDatabase, seam: Seam, mutant: Mutant = {}): TestDatabase =>
  Layer.effectContext(Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const real = yield* Database
    const prepared: DatabaseShape["prepared"] = <Row extends object>(name: string, text: string) => {
      const statement = real.prepared<Row>(name, mutant.statements?.[name]?.(text) ?? text)
      if (name !== "advance_a2a_tasks") return statement
      return (params) =>
        Effect.suspend(() => {
          const { taskFault } = seam
          seam.taskFault = undefined
          if (taskFault === undefined) return statement(params)
          return taskFault === "refused"
            ? unavailable(broken())
            : Effect.andThen(statement(params), unavailable(broken()))
        })
    }
    const raw: DatabaseShape["raw"] = <Row extends object>(name: string, text: string) => {
      const plain = name === "append_one" || name === "append_many"
      if (!plain && name !== "append" && name !== "append_continuing")
        return real.raw<Row>(name, mutant.statements?.[name]?.(text) ?? text)
      // A mutant changes the general statement, so all sends must use the general one and not the plain one.
      if (plain && (mutant.text !== undefined || mutant.failing !== undefined)) return () => Effect.succeed([])
      const statement = real.raw<Row>(name, mutant.text === undefined ? text : mutant.text(text))
      const run = (params: ReadonlyArray<unknown>) =>
        seam.pause === undefined ? statement(params) : sql.withTransaction(Effect.tap(statement(params), seam.pause))
      return (params) =>
        Effect.suspend(() => {
          const { fault } = seam
          if (fault === undefined) return Effect.andThen(mutant.before ?? Effect.void, run(params))
          seam.fault = undefined
          seam.struck = true
          if (fault === "unanswered") return Effect.andThen(run(params), Effect.fail(broken()))
          return mutant.failing === undefined
            ? Effect.fail(broken())
            : Effect.andThen(mutant.failing(statement(params), params, sql), Effect.fail(broken()))
        })
    }
    return Context.make(SqlClient.SqlClient, sql).pipe(Context.add(Database, { ...real, prepared, raw }))
  })).pipe(Layer.provide(database))

interface Connected {
  readonly agent: number
  readonly acknowledges: boolean
  readonly socket: FakeSocket
  readonly session: SocketSession
  readonly live: LiveSession
  lose: number
  delay: boolean
  held: (() => void) | undefined
  /** The number of frames that the checker has read. */
  seen: number
  /** The highest inbox number shown. */
  shown: number
  readonly showed: Set<Model.Slip>
  readonly newest: Map<string, number>
  readonly echoed: Set<Model.Letter>
  /** The agent's own messages that the socket must have shown by now. */
  readonly due: Set<Model.Letter>
  receipts: Array<Record<string, unknown>>
}

/** A call of an agent that waits for messages. */
interface Waiting {
  readonly agent: number
  readonly call: OpenWait
  readonly limit: number
  /** The inbox number up to which it acknowledged when it began. `acknowledged` is the number of those messages. */
  readonly through: number
  readonly acknowledged: number
  readonly takes: boolean
  /** The value of `watched` when it began. */
  readonly since: number
}

/** How long a wait of the simulation lasts, in seconds. */
const WAIT_SECONDS = 25
/** A little more than the interval at which waits are compared with storage. */
const COMPARED_MS = 6_000

/** The end of a jump in time that is simulated second by second. It is longer than every interval in memory. */
const SLEPT_MS = 70_000
/** After a jump this long, a query of a real database may time out, because its time-out follows the test clock. */
const TIMES_OUT_MS = 5_000

const tally = (counts: Map<string, number>, name: string, n = 1): void => {
  counts.set(name, (counts.get(name) ?? 0) + n)
}

export const LIMITS: Model.Limits = { cold: 2, soft: 3, hard: 5 }

/** The settings under which a simulation reaches its limits. */
export const SETTINGS = {
  LIMITS_SENDS_PER_SECOND: 1_000_000,
  LIMITS_COLD_CONVERSATIONS: LIMITS.cold,
  LIMITS_BACKLOG_SOFT: LIMITS.soft,
  LIMITS_BACKLOG_HARD: LIMITS.hard
}

let serial = 0

type Json = Record<string, unknown>
const parse = (text: string): Json => JSON.parse(text) as Json

/** The rule that a send's answer follows. */
const ruleOf = (outcome: Model.Outcome): Rule =>
  outcome._tag === "Created"
    ? "stored"
    : outcome._tag === "Replayed"
    ? "replayed"
    : ruleOfRefusal(outcome.failure, "refused")

const permutations = function*<A>(items: ReadonlyArray<A>): Generator<ReadonlyArray<A>> {
  if (items.length <= 1) {
    yield items
    return
  }
  for (let i = 0; i < items.length; i++) {
    for (const rest of permutations([...items.slice(0, i), ...items.slice(i + 1)])) yield [items[i]!, ...rest]
  }
}

/** One turn of the event loop, in which due work of this process runs. */
export const turn = Effect.callback<void>((resume) => {
  setImmediate(() => resume(Effect.void))
})

/** A millisecond, in which a database in another process can answer. */
const moment = Effect.callback<void>((resume) => {
  setTimeout(() => resume(Effect.void), 1)
})

/**
 * The dependencies of sessions, and `settle`, which waits until no work of the sessions or the modules is under way. It
 * checks that repeatedly, and `wait` runs between two checks.
 */
export const settlingWorld = Effect.fnUntraced(function*(wait: (looks: number) => Effect.Effect<void>) {
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const conversations = yield* Conversations
  const deliveries = yield* Deliveries
  let underWay = 0
  const world: SessionDependencies = {
    deliveries,
    inSlot: (_, query) => query,
    backlogBytes: 1_048_576,
    unsentBytes: 4_194_304,
    held: boundless(),
    fork: (effect) => {
      underWay++
      runFork(effect).addObserver(() => {
        underWay--
      })
    }
  }
  const settle = Effect.gen(function*() {
    for (let looks = 0;; looks++) {
      yield* conversations.settled
      yield* deliveries.settled
      if (underWay === 0) return
      yield* wait(looks)
      check("answered", looks < 10_000, () => "the modules do not come to rest")
    }
  })
  return { world, settle }
})

/** Runs lists of commands against the modules, each list with new agents, and compares the results with the model. */
export const makeWorld = Effect.fnUntraced(function*(seam: Seam, coverage: Coverage, mutant: WaitMutant = {}) {
  const sql = yield* SqlClient.SqlClient
  const conversations = yield* Conversations
  const deliveries = yield* Deliveries
  const liveAgents = yield* LiveAgents
  const directId = makeDirectIds((yield* Secrets).conversationIds)
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  const { driver } = yield* Database
  // Some work sleeps until the test clock advances, so every fourth check advances it.
  const { settle, world } = yield* settlingWorld((looks) =>
    looks % 4 === 3 ? TestClock.adjust(10) : driver === "pg" ? moment : turn
  )

  const nodes = yield* makeNodes
  const ids = yield* Ids
  const waits = yield* makeWaits(mutant, driver === "pg" ? moment : turn)

  // TestClock prints a warning if a test never moves its clock.
  yield* TestClock.adjust(1)

  const run = Effect.fnUntraced(function*(commands: ReadonlyArray<Command>, reaches: Reaches = () => {}) {
    const contactsOnly = [false, false, false, true]
    const mark = serial++
    const agents = yield* Effect.forEach(contactsOnly, (_, i) => newAgent(`sim-${mark.toString(36)}-${"abcd"[i]}`))
    yield* sql`UPDATE agents SET inbox_mode = 'contacts_only' WHERE id = ${agents[3]!.id}`
    const conversationId = (name: string) => {
      const [one, other] = Model.partners(name)
      return directId(agents[one]!.id, agents[other]!.id)
    }
    const talkNames = new Map(
      [0, 1, 2, 3].flatMap((a) =>
        [0, 1, 2, 3].filter((b) => b > a).map((b) => [conversationId(Model.nameOf(a, b)), Model.nameOf(a, b)])
      )
    )
    let state = Model.empty(contactsOnly, LIMITS)
    let sessions: Array<Connected> = []
    let waiting: Array<Waiting> = []
    /** The inbox number up to which each agent's caller has taken messages from its waits. */
    const taken = agents.map(() => 0)
    /** Messages that were committed without a push. A wait finds them only when it is compared with storage. */
    const untold = new Set<string>()
    /** The milliseconds of all jumps that were simulated second by second. */
    let watched = 0
    /** The number of envelopes that each agent had before the current command. */
    let headsBefore: ReadonlyArray<number> = [0, 0, 0, 0]
    let expectedReceipts: Array<Model.Receipt> = []
    /** The part of each message that is about tasks, by the message's sender and key. */
    const marks = new Map<string, Mark>()
    const cancellations: Array<Cancellation> = []
    /** Envelopes that were delivered before the current command. None of them may be offered. */
    let deliveredBefore = new Set<Model.Slip>()

    const letters = () => [...state.keys.values()]
    const deliveryId = (agent: number, inboxNo: number) => deliveries.ids.encode(agents[agent]!.id, inboxNo)
    const transition = (name: string, n = 1) => tally(coverage.transitions, name, n)
    const statusOf = (slip: Model.Slip) =>
      slip.readAt !== null ? "read" : slip.deliveredAt !== null ? "delivered" : "stored"
    const isoOf = (at: number | null) => at === null ? null : new Date(at).toISOString()

    /** Compares a message, as the viewer sees it, with the model. */
    const compare = (
      message: Json,
      letter: Model.Letter,
      viewer: number,
      progress: Model.Slip | undefined,
      what: string
    ): void => {
      letter.id ??= String(message["id"])
      same(
        "shown",
        {
          id: message["id"],
          conversation_id: message["conversation_id"],
          sender: message["sender"],
          client_msg_id: message["client_msg_id"],
          seq: message["seq"],
          content: message["content"],
          status: message["status"],
          created_at: message["created_at"],
          delivered_at: message["delivered_at"],
          read_at: message["read_at"],
          delivery_id: message["delivery_id"]
        },
        {
          id: letter.id,
          conversation_id: conversationId(letter.talk),
          sender: agents[letter.sender]!.handle,
          client_msg_id: letter.key,
          seq: letter.seq,
          content: { text: letter.text },
          status: progress === undefined ? "stored" : statusOf(progress),
          created_at: isoOf(letter.at),
          delivered_at: isoOf(progress?.deliveredAt ?? null),
          read_at: isoOf(progress?.readAt ?? null),
          delivery_id: letter.recipient === viewer ? deliveryId(viewer, Model.slipOf(state, letter).inboxNo) : null
        },
        what
      )
    }

    /** Checks the frames that every socket was sent since the last call. */
    const observe = (): void => {
      /** Envelopes that at least one of these sockets has delivered since the last call. */
      const pushed = new Set<Model.Slip>()
      for (const connected of sessions) {
        const { socket } = connected
        for (; connected.seen < socket.sent.length; connected.seen++) {
          const { at, frame } = socket.sent[connected.seen]!
          const { payload, type } = parse(frame) as { readonly payload: Json; readonly type: string }
          if (type === "message.read") {
            connected.receipts.push(payload)
            continue
          }
          check("events", type === "message.new", () => `a frame ${type}`)
          const own = payload["sender"] === agents[connected.agent]!.handle
          const talk = state.talks.get(talkNames.get(String(payload["conversation_id"])) ?? "")
          const letter = talk?.letters[Number(payload["seq"]) - 1]
          check(
            "pushedOnlyStored",
            letter !== undefined && (letter.id === undefined || letter.id === payload["id"]),
            () => `a socket was shown what is not stored: ${frame}`
          )
          if (letter === undefined) return
          compare(payload, letter, connected.agent, undefined, "frame")
          check(
            "pushedInOrder",
            (connected.newest.get(letter.talk) ?? 0) < letter.seq,
            () => `seq ${letter.seq} after ${connected.newest.get(letter.talk)} on a socket`
          )
          connected.newest.set(letter.talk, letter.seq)
          if (own) {
            connected.echoed.add(letter)
            continue
          }
          const { inboxNo, slip } = Model.slipOf(state, letter)
          check(
            "pushedInOrder",
            inboxNo > connected.shown,
            () => `inbox number ${inboxNo} after ${connected.shown} on a socket`
          )
          connected.shown = inboxNo
          connected.showed.add(slip)
          check(
            "acknowledged",
            !deliveredBefore.has(slip),
            () => `inbox number ${inboxNo} of ${connected.agent} was acknowledged, and offered again`
          )
          if (connected.acknowledges) continue
          if (Model.deliver(slip, at)) {
            transition("stored → delivered, legacy push")
            pushed.add(slip)
          } else if (pushed.has(slip)) slip.deliveredAt = Math.min(slip.deliveredAt ?? at, at)
        }
        // A client acknowledges up to the last message that it was shown, so no earlier undelivered message may be
        // missing.
        state.inboxes[connected.agent]!.slice(0, connected.shown).forEach((slip, i) =>
          check(
            "pushedToAll",
            slip.deliveredAt !== null || connected.showed.has(slip),
            () => `inbox number ${connected.shown} is on a socket that was never shown ${i + 1}`
          )
        )
        const wanted = expectedReceipts.filter((receipt) => receipt.to === connected.agent)
        same(
          "receipts",
          connected.receipts.map((
            payload
          ) => [payload["message_id"], payload["seq"], payload["through_seq"], payload["read_by"]]),
          wanted.map(({ letter, throughSeq }) => [letter.id, letter.seq, throughSeq, agents[letter.recipient]!.handle]),
          "read receipts"
        )
        connected.receipts = []
        check("socketsStayOpen", socket.closedWith === undefined, () => `a socket was closed with ${socket.closedWith}`)
      }
      expectedReceipts = []
    }

    const attach = (agent: number, acknowledges: boolean): Connected => {
      const socket = new FakeSocket(now)
      const actor = liveAgents.here(agents[agent]!.id)
      const session = new SocketSession(socket.asWebSocket, actor, agents[agent]!.handle, acknowledges, world)
      const connected: Connected = {
        agent,
        acknowledges,
        socket,
        session,
        live: {
          hint: (inboxNo, messageId, rendered) => {
            if (connected.lose > 0) {
              connected.lose--
              return
            }
            if (connected.delay) {
              connected.delay = false
              connected.held = () => session.hint(inboxNo, messageId, rendered)
              return
            }
            session.hint(inboxNo, messageId, rendered)
          },
          echo: (after, before, frame, place) => session.echo(after, before, frame, place),
          event: (frame) => session.event(frame),
          close: (reason) => session.close(reason)
        },
        lose: 0,
        delay: false,
        held: undefined,
        seen: 0,
        shown: 0,
        showed: new Set(),
        newest: new Map(),
        echoed: new Set(),
        due: new Set(),
        receipts: []
      }
      liveAgents.attach(agents[agent]!.id, connected.live)
      session.start()
      sessions.push(connected)
      return connected
    }

    const detach = (connected: Connected): void => {
      connected.session.ended()
      liveAgents.detach(agents[connected.agent]!.id, connected.live)
      sessions = sessions.filter((one) => one !== connected)
    }

    const beginWait = (agent: number, limit: number, takes: boolean, acknowledges: boolean): void => {
      const through = acknowledges ? taken[agent]! : 0
      const acknowledged = Model.acknowledgeThrough(state, agent, through, now())
      const call = waits.begin(agents[agent]!, {
        timeout_seconds: WAIT_SECONDS,
        limit,
        ...(through === 0 ? {} : { acknowledge_through: deliveryId(agent, through) })
      })
      waiting.push({ agent, call, limit, through, acknowledged, takes, since: watched })
    }

    const callsOf = (agent: number): number => waiting.filter((wait) => wait.agent === agent).length

    const hangUp = (wait: Waiting) => {
      waiting = waiting.filter((one) => one !== wait)
      return Fiber.interrupt(wait.call.fiber)
    }

    /** Checks the outcome of a wait. Returns whether the wait is still open. */
    const observeWait = (
      { acknowledged: acked, agent, call: { exit }, limit, since, takes, through }: Waiting
    ): boolean => {
      const inbox = state.inboxes[agent]!
      const waited = watched - since
      if (exit === undefined) {
        const left = inbox.flatMap((slip, i) =>
          slip.deliveredAt === null && !untold.has(slip.letter.key) ? [i + 1] : []
        )
        check("waitEnds", left.length === 0, () => `a wait of ${agent} was not told of ${left}`)
        check("waitEnds", waited < WAIT_SECONDS * 1_000, () => `a wait of ${agent} did not end in its time`)
        return true
      }
      if (!Exit.isSuccess(exit)) {
        // The time-out of a query follows the clock that jumps, so a query of a real database may time out. The caller
        // calls again.
        check(
          "answered",
          failureOf(exit)?.["_tag"] === "Unavailable" && waited >= TIMES_OUT_MS,
          () => `a wait failed: ${String(exit.cause)}`
        )
        transition("wait unavailable")
        return false
      }
      const { acknowledge_through, acknowledged, messages, outcome } = exit.value
      same("waitAcknowledges", acknowledged, acked, "what a wait acknowledged")
      if (outcome === "timeout") {
        // `settle` advances the clock a little, too.
        check("waitEnds", waited >= WAIT_SECONDS * 1_000 - 2_000, () => `a wait of ${agent} ended before its time`)
        same("waitShows", messages, [], "a wait without news")
        transition("wait timed out")
        return false
      }
      same("waitEnds", outcome, "messages", "how a wait ended")
      const numbers = messages.map(({ delivery_id }) =>
        inbox.findIndex((_, i) => deliveryId(agent, i + 1) === delivery_id) + 1
      )
      const last = numbers.at(-1) ?? 0
      check(
        "waitShows",
        numbers.length > 0 && numbers.length <= limit,
        () => `a wait for at most ${limit} has ${numbers.length} messages`
      )
      check(
        "waitShows",
        numbers.every((number, i) => number > (numbers[i - 1] ?? through)),
        () => `a wait shows ${numbers}, out of order or again: ${through} was acknowledged`
      )
      same("waitShows", acknowledge_through, deliveryId(agent, last), "acknowledge_through")
      numbers.forEach((number, i) => {
        const slip = inbox[number - 1]!
        const { letter } = slip
        check(
          "acknowledged",
          !deliveredBefore.has(slip),
          () => `${number} of ${agent} was acknowledged, and shown to a wait`
        )
        const { content, message_id, sender, seq } = messages[i]!
        same(
          "waitShows",
          [message_id, seq, (sender as Json)["handle"], content],
          [letter.id ?? message_id, letter.seq, `@${agents[letter.sender]!.handle}`, { text: letter.text }],
          "message of a wait"
        )
      })
      inbox.forEach((slip, i) => {
        if (slip.deliveredAt !== null || numbers.includes(i + 1) || (i + 1 > last && numbers.length === limit)) return
        check(
          "waitShows",
          i + 1 > last && i >= headsBefore[agent]!,
          () => `a wait of ${agent} shows ${numbers} and leaves out ${i + 1}`
        )
      })
      if (takes) taken[agent] = Math.max(taken[agent]!, last)
      transition(takes ? "wait answered" : "wait answered, answer lost")
      return false
    }

    const sessionsOf = (agent: number) => sessions.filter((connected) => connected.agent === agent)
    const someSession = (agent: number, pick: number) => {
      const own = sessionsOf(agent)
      return own[pick % Math.max(1, own.length)]
    }

    /** Does twice what the gateway does every five seconds: compares cursors, so that a lost hint is noticed. */
    const checkHeads = Effect.fnUntraced(function*(agent: number) {
      for (let i = 0; i < 2; i++) {
        const head = (yield* deliveries.heads([agents[agent]!.id])).get(agents[agent]!.id) ?? 0
        for (const connected of sessionsOf(agent)) connected.session.check(head)
        yield* settle
      }
    })

    const textOf = (key: string) => `text of ${key}, @${agents[0]!.handle}`
    const keyOf = (n: number) => `k${n}`

    const idOf = (name: string | undefined) => name === undefined ? undefined : state.keys.get(name)?.id

    const drafted = (key: string, mark: Mark | undefined): Draft => {
      const plain = draft(key, textOf(key))
      if (mark === undefined) return plain
      const id = ids.make("msg")
      const a2a = { task_id: mark.isTask === true ? id : idOf(mark.task), state: mark.state }
      const metadata = JSON.stringify({ a2a, reply_to: idOf(mark.replyTo) })
      return { ...plain, metadata, ...(mark.isTask === true ? { messageId: id } : {}) }
    }

    /** Sends a message. Its mark counts only if the message is stored now and is no repeat. */
    const send = (from: number, to: number, key: string, mark?: Mark) =>
      Effect.suspend(() => {
        const name = `${from} ${key}`
        if (mark !== undefined && !state.keys.has(name)) marks.set(name, mark)
        return Effect.exit(
          conversations.send(agents[from]!, { _tag: "Direct", handle: agents[to]!.handle }, drafted(key, mark))
        )
      })
    type SendExit = Effect.Success<ReturnType<typeof send>>

    const described = (exit: SendExit): string =>
      Exit.isSuccess(exit) ? JSON.stringify(exit.value) : JSON.stringify(failureOf(exit) ?? String(exit.cause))

    const failureOf = (exit: Exit.Exit<unknown, unknown>): Json | undefined => {
      if (Exit.isSuccess(exit)) return undefined
      const reason = exit.cause.reasons.find((one) => one._tag === "Fail")
      return reason === undefined ? undefined : reason.error as unknown as Json
    }

    /** Whether an answer equals the one of the model. */
    const agrees = (outcome: Model.Outcome, exit: SendExit, strict: boolean): boolean => {
      if (outcome._tag === "Refused") {
        const failure = failureOf(exit)
        if (failure === undefined || failure["_tag"] !== outcome.failure) return false
        const details = (failure["details"] ?? {}) as Json
        return !strict || Object.entries(outcome.figures).every(([name, value]) => details[name] === value)
      }
      if (!Exit.isSuccess(exit)) return false
      const message = parse(exit.value.body)
      if (outcome._tag === "Created") {
        return exit.value.created && message["seq"] === outcome.letter.seq &&
          talkNames.get(String(message["conversation_id"])) === outcome.letter.talk &&
          (!strict || exit.value.backlog === outcome.backlog)
      }
      return !exit.value.created && message["client_msg_id"] === outcome.letter.key &&
        (outcome.letter.id === undefined || outcome.letter.id === message["id"])
    }

    /** Notes the consequences of an answer that agrees with the model. */
    const accept = (outcome: Model.Outcome, exit: SendExit, listening: ReadonlyArray<Connected> = sessions): void => {
      if (outcome._tag === "Refused") {
        transition(`send refused: ${outcome.failure}`)
        return
      }
      if (!Exit.isSuccess(exit)) return
      const message = parse(exit.value.body)
      const { letter } = outcome
      if (outcome._tag === "Created") {
        compare(message, letter, letter.sender, undefined, "answer to a send")
        transition(
          outcome.change === "opened"
            ? "none → cold"
            : outcome.change === "established"
            ? "cold → established"
            : "established → established"
        )
        for (const connected of listening) if (connected.agent === letter.sender) connected.due.add(letter)
      } else {
        compare(message, letter, letter.sender, Model.slipOf(state, letter).slip, "replay")
        transition("send replayed")
      }
    }

    const sendOne = Effect.fnUntraced(function*(from: number, to: number, key: string, mark?: Mark) {
      const exit = yield* send(from, to, key, mark)
      const outcome = Model.send(state, now(), from, to, key, textOf(key))
      check(
        ruleOf(outcome),
        agrees(outcome, exit, true),
        () => `send of ${key} from ${from} to ${to}: got ${described(exit)}, expected ${JSON.stringify(outcome)}`
      )
      accept(outcome, exit)
    })

    const failedSend = Effect.fnUntraced(
      function*(from: number, to: number, key: string, stored: boolean, mark?: Mark) {
        seam.fault = stored ? "unanswered" : "refused"
        seam.struck = false
        const exit = yield* send(from, to, key, mark)
        seam.fault = undefined
        if (!seam.struck) {
          const outcome = Model.send(state, now(), from, to, key, textOf(key))
          check(
            ruleOf(outcome),
            agrees(outcome, exit, true),
            () => `send of ${key}: got ${described(exit)}, expected ${JSON.stringify(outcome)}`
          )
          accept(outcome, exit)
          return
        }
        check(
          "unanswered",
          failureOf(exit)?.["_tag"] === "Unavailable",
          () => `a failed commit was answered with ${described(exit)}`
        )
        const outcome = Model.send(state, now(), from, to, key, textOf(key), { fails: !stored })
        transition(stored && outcome._tag === "Created" ? "send stored, answer lost" : "send failed, nothing stored")
        if (outcome._tag === "Created") {
          const [row] = yield* sql<{ readonly id: string }>`
          SELECT id FROM messages WHERE sender_id = ${agents[from]!.id} AND client_msg_id = ${key}`
          check("unanswered", row !== undefined, () => `${key} was committed and is not there`)
          outcome.letter.id = row?.id
          untold.add(outcome.letter.key)
        }
      }
    )

    /**
     * A failed first message leaves a reservation. The next send of the pair that fails returns it, or it expires.
     * Among concurrent sends, the model cannot know which send returned it, so this reads it from storage.
     */
    const releaseReservations = Effect.gen(function*() {
      const held = yield* sql<{ readonly conversation_id: string }>`
        SELECT conversation_id FROM cold_slots
        WHERE claimed_at IS NULL AND ${sql.in("agent_id", agents.map((agent) => agent.id))}`
      const names = new Set(held.map((row) => talkNames.get(row.conversation_id)))
      for (const [name, slot] of state.slots) if (slot.claimedAt === null && !names.has(name)) state.slots.delete(name)
    })

    /** Runs concurrent sends. There must be an order of them that explains every answer. */
    const burst = Effect.fnUntraced(function*(
      sends: ReadonlyArray<
        { readonly from: number; readonly to: number; readonly key: string; readonly mark?: Mark | undefined }
      >,
      opens: number | null,
      waiter: number | null,
      meanwhile: Effect.Effect<void> = Effect.void
    ) {
      const listening = [...sessions]
      const progress = { answered: 0 }
      // The socket opens when some of the commits are done and some are not.
      const opening = Effect.gen(function*() {
        // The wait begins while the sends are being committed.
        if (waiter !== null && callsOf(waiter) < 3) beginWait(waiter, 5, true, false)
        while (progress.answered === 0) yield* driver === "pg" ? moment : turn
        if (opens !== null && sessionsOf(opens).length < 3) attach(opens, true)
      })
      const [exits] = yield* Effect.all([
        Effect.all(
          sends.map(({ from, key, mark, to }) =>
            Effect.tap(send(from, to, key, mark), () => Effect.sync(() => progress.answered++))
          ),
          { concurrency: "unbounded" }
        ),
        opening,
        meanwhile
      ], { concurrency: "unbounded" })
      // Answers do not show the order between conversations. The inbox numbers do.
      const numbered = yield* sql<
        { readonly recipient_id: string; readonly conversation_id: string; readonly seq: number }
      >`
        SELECT recipient_id, conversation_id, seq FROM envelopes
        WHERE ${sql.in("recipient_id", agents.map((agent) => agent.id))} ORDER BY recipient_id, no`
      const orderOf = (agent: number) =>
        numbered.filter((row) => row.recipient_id === agents[agent]!.id)
          .map((row) => `${talkNames.get(row.conversation_id)} ${row.seq}`).join()
      const moving = sends.some(({ to }) => sessionsOf(to).some((connected) => !connected.acknowledges))
      const before = state
      const tried = sends.map((one, i) => ({ ...one, exit: exits[i]! }))
      for (const order of permutations(tried)) {
        // Sessions refer to objects of the state, so both are copied together.
        const copy = structuredClone({
          state: before,
          showed: sessions.map((s) => s.showed),
          echoed: sessions.map((s) => s.echoed),
          due: sessions.map((s) => s.due),
          deliveredBefore
        })
        state = copy.state
        const explained: Array<[Model.Outcome, SendExit]> = []
        const agree = order.every(({ exit, from, key, to }) => {
          // It is unknown how many messages were acknowledged between two of the sends.
          const full = failureOf(exit)?.["_tag"] === "RecipientBacklogged" &&
            Model.undelivered(before, to) + sends.filter((one) => one.to === to).length > LIMITS.hard
          // A send that turns out to be a replay of a message to another agent, or to go to a full inbox, holds a cold
          // slot until then.
          const held = failureOf(exit)?.["_tag"] !== "ColdCapExceeded" ?
            0 :
            tried.filter((one) =>
              one.from === from && one.to !== to &&
              ((failureOf(one.exit)?.["_tag"] === "RecipientBacklogged" &&
                !before.talks.has(Model.nameOf(one.from, one.to))) ||
                sends.some((other) => other.from === from && other.key === one.key && other.to !== one.to))
            ).length
          const outcome = Model.send(state, now(), from, to, key, textOf(key), {
            backlog: !moving ? "exact" : full ? "full" : "module",
            held
          })
          // Two sends to different recipients share a key. One may be refused before the other is stored.
          if (outcome._tag === "Replayed" && !Exit.isSuccess(exit) && !before.keys.has(`${from} ${key}`)) return true
          explained.push([outcome, exit])
          return agrees(outcome, exit, !moving)
        }) && state.inboxes.every((inbox, agent) =>
          inbox.map(({ letter }) =>
            `${letter.talk} ${letter.seq}`
          ).join() === orderOf(agent)
        )
        if (!agree) continue
        sessions.forEach((connected, i) => {
          Object.assign(connected, { showed: copy.showed[i], echoed: copy.echoed[i], due: copy.due[i] })
        })
        deliveredBefore = copy.deliveredBefore
        yield* releaseReservations
        // The delivery state in a replay depends on when the original was read.
        for (const [outcome, exit] of explained)
          if (outcome._tag !== "Replayed") accept(outcome, exit, listening)
          else transition("send replayed")
        return
      }
      state = before
      throw new Violation(
        "concurrent",
        `no order explains ${tried.map((one) => `${one.from}→${one.to} ${one.key}: ${described(one.exit)}`).join("; ")}`
      )
    })

    /** A message, mostly one that the agent sent or received, sometimes one of other agents. */
    const someLetter = (agent: number, pick: number): Model.Letter | undefined => {
      const known = letters().filter((letter) =>
        letter.id !== undefined &&
        (pick % 4 === 0 || letter.recipient === agent || (pick % 4 === 1 && letter.sender === agent))
      )
      return known[pick % Math.max(1, known.length)]
    }

    const cursorText = (
      agent: number,
      cursor: Cursor
    ): { readonly text: string; readonly inboxNo: number | undefined } => {
      if (cursor._tag === "Garbage") return { text: cursor.text, inboxNo: undefined }
      if (cursor._tag === "Foreign")
        return { text: deliveryId((agent + 1) % 4, 1 + (cursor.pick % 8)), inboxNo: undefined }
      const last = state.inboxes[agent]!.length
      const inboxNo = last === 0 ? 0 : cursor.pick % (last + 1)
      return { text: deliveryId(agent, inboxNo), inboxNo }
    }

    const talkOf = (agent: number, pick: number): { readonly name: string; readonly talk: Model.Talk | undefined } => {
      // In one of eight cases, the conversation may be one of other agents, or may not exist.
      const all = pick % 8 === 0 ? [...talkNames.values()] : Model.talksOf(state, agent).map(({ name }) => name)
      const name = all[pick % Math.max(1, all.length)] ?? Model.nameOf(agent, (agent + 1) % 4)
      const talk = state.talks.get(name)
      return { name, talk: Model.partners(name).includes(agent) ? talk : undefined }
    }

    const expectTag = (exit: Exit.Exit<unknown, unknown>, tag: string, what: string, rule: Rule = "masked"): void => {
      const reason = Exit.isSuccess(exit) ? undefined : exit.cause.reasons.find((one) => one._tag === "Fail")
      const found = (reason?.error as { readonly _tag?: string } | undefined)?._tag
      check(
        rule,
        found === tag,
        () => `${what}: expected ${tag}, got ${Exit.isSuccess(exit) ? JSON.stringify(exit.value) : String(exit.cause)}`
      )
      transition(`refused: ${tag}`)
    }

    const expectRead = (agent: number, talk: Model.Talk, from: number, through: number): void => {
      const { changed, receipt } = Model.read(state, agent, talk, from, through, now())
      for (const was of changed) transition(`${was} → read`)
      if (receipt !== undefined) expectedReceipts.push(receipt)
    }

    const tasksIn = (name: string): ReadonlyArray<ModelTask> => tasksOf(state.talks.get(name), marks, cancellations)
    const allTasks = (): ReadonlyArray<ModelTask> =>
      [...talkNames.values()].flatMap(tasksIn).filter(({ letter }) => letter.id !== undefined)
    const sideOf = (task: ModelTask) => ({
      callerId: agents[task.caller]!.id,
      recipientId: agents[calledBy(task)]!.id,
      conversationId: conversationId(task.letter.talk)
    })
    let messages = 0

    /** A message about a task, as one of its two agents sends it. */
    const saying = (task: ModelTask, { byCaller, naming, state: said }: Says) => {
      const mark: Mark = naming === "nothing" ?
        {}
        : byCaller || naming === "task" ?
        { task: task.name }
        : { replyTo: nameOfLetter((naming === "first" ? task.letters[0] : task.letters.at(-1))!) }
      const [from, to] = byCaller ? [task.caller, calledBy(task)] : [calledBy(task), task.caller]
      return { from, to, key: `about-${messages++}`, mark: said === null ? mark : { ...mark, state: said } }
    }

    /** A task as a text, with its state and its messages. */
    const told = (state: string | undefined, ids: ReadonlyArray<string | undefined>) => `${state}: ${ids}`
    const expectedOf = (task: ModelTask) => told(shownState(state, task), task.letters.map(({ id }) => id))
    const logOf = (found: Task | undefined) =>
      told(found?.state, found?.log.flatMap(({ messageId }) => messageId ?? []) ?? [])

    const lookAt = Effect.fnUntraced(function*(task: ModelTask, node: number) {
      const found = yield* nodes[node]!.find(sideOf(task), task.letter.id!)
      same("tasks", logOf(found), expectedOf(task), `the task ${task.name} at node ${node}`)
      transition(`task ${found?.state}`)
    })

    /**
     * Finds the place of a cancellation among messages that were sent concurrently, from the resulting states of all
     * tasks.
     */
    const place = Effect.fnUntraced(function*(task: ModelTask, before: number) {
      const { talk } = task.letter
      const found = new Map<string, string>()
      for (const { letter, name } of tasksIn(talk)) {
        const side = sideOf({ ...task, caller: letter.sender, letter })
        found.set(name, logOf(yield* nodes[0].find(side, letter.id!)))
      }
      for (let after = before; after <= state.talks.get(talk)!.letters.length; after++) {
        const given = [...cancellations, { task: task.name, after }]
        const tasks = tasksOf(state.talks.get(talk), marks, given)
        const [one] = tasks.filter(({ name }) => name === task.name)
        if (one?.state !== "CANCELED" || !tasks.every((each) => found.get(each.name) === expectedOf(each))) continue
        cancellations.push(...given.slice(-1))
        return
      }
      throw new Violation(
        "concurrent",
        `no order explains a cancellation of ${task.name} with ${JSON.stringify([...found])}`
      )
    })

    const taskBurst = Effect.fnUntraced(
      function*({ cancels, looks, pick, says }: Extract<Command, { readonly _tag: "TaskBurst" }>) {
        const tasks = allTasks()
        const task = tasks[pick % Math.max(1, tasks.length)]
        if (task === undefined) return
        const { id } = task.letter
        const before = state.talks.get(task.letter.talk)!.letters.length
        const outcomes: Array<string> = []
        const cancelling = Array.from(
          { length: cancels },
          (_, i) =>
            Effect.map(
              nodes[i % 2]!.cancel(sideOf(task), id!),
              (outcome) => void outcomes.push(outcome?._tag ?? "none")
            )
        )
        const looking = Array.from({ length: looks }, (_, i) => nodes[i % 2]!.find(sideOf(task), id!))
        yield* burst(
          says.map((each) => saying(task, each)),
          null,
          null,
          Effect.orDie(Effect.all([...cancelling, ...looking], { concurrency: "unbounded", discard: true }))
        )
        const canceled = outcomes.filter((outcome) => outcome === "Canceled").length
        const wasOpen = !hasEnded(task)
        check(
          "cancelled",
          canceled <= (wasOpen ? 1 : 0) && !outcomes.includes("none"),
          () => `cancellations of ${task.name}: ${outcomes}`
        )
        if (canceled === 1) {
          yield* settle
          observe()
          yield* place(task, before)
        }
        if (cancels > 0)
          transition(canceled === 1 ? "task cancelled among messages" : "task not cancelled")
        const now = tasksIn(task.letter.talk).find(({ name }) => name === task.name)
        check(
          "cancelled",
          cancels === 0 || (now !== undefined && hasEnded(now)),
          () => `${task.name} is ${now?.state} after ${outcomes}`
        )
      }
    )

    const execute = Effect.fnUntraced(function*(command: Command) {
      switch (command._tag) {
        case "Send":
          return yield* sendOne(command.from, command.to, keyOf(command.key))
        case "FailedSend":
          return yield* failedSend(command.from, command.to, keyOf(command.key), command.stored)
        case "Burst":
          return yield* burst(
            command.sends.map(({ from, key, to }) => ({ from, to, key: keyOf(key) })),
            command.attach,
            command.waits ?? null
          )
        case "Task": {
          const { fault, from, key, to } = command
          if (from === to) return
          yield* nodes[key % 2]!.begin(conversationId(Model.nameOf(from, to)))
          const id = `a2a:${key}`
          return yield* (fault === null
            ? sendOne(from, to, id, { isTask: true })
            : failedSend(from, to, id, fault === "unanswered", { isTask: true }))
        }
        case "About": {
          const tasks = allTasks()
          const task = tasks[command.pick % Math.max(1, tasks.length)]
          if (task === undefined) return
          const { from, key, mark, to } = saying(task, command.says)
          return yield* (command.fault === null
            ? sendOne(from, to, key, mark)
            : failedSend(from, to, key, command.fault === "unanswered", mark))
        }
        case "Cancel": {
          const tasks = allTasks()
          const task = tasks[command.pick % Math.max(1, tasks.length)]
          if (task === undefined) return
          const outcome = yield* nodes[command.node]!.cancel(sideOf(task), task.letter.id!)
          same("cancelled", outcome?._tag, hasEnded(task) ? "Ended" : "Canceled", `a cancellation of ${task.name}`)
          if (outcome?._tag === "Canceled")
            cancellations.push({ task: task.name, after: state.talks.get(task.letter.talk)!.letters.length })
          return
        }
        case "LookAtTask": {
          const tasks = allTasks()
          const task = tasks[command.pick % Math.max(1, tasks.length)]
          if (task === undefined) return
          seam.taskFault = command.fault ?? undefined
          const exit = yield* Effect.exit(nodes[command.node]!.find(sideOf(task), task.letter.id!))
          const struck = command.fault !== null && seam.taskFault === undefined
          seam.taskFault = undefined
          check(
            "answered",
            struck ? failureOf(exit)?.["_tag"] === "Unavailable" : Exit.isSuccess(exit),
            () => `a look at a task: ${JSON.stringify(exit)}`
          )
          if (struck) transition(`task not stored: ${command.fault}`)
          return yield* lookAt(task, command.node)
        }
        case "TaskBurst":
          return yield* taskBurst(command)
        case "Reply": {
          const heard = Model.talksOf(state, command.agent).filter((talk) =>
            talk.letters.at(-1)?.sender !== command.agent
          )
          const talk = heard[command.pick % Math.max(1, heard.length)]
          if (talk === undefined) return
          return yield* sendOne(
            command.agent,
            Model.otherOf(talk.name, command.agent),
            `r${talk.letters.length}-${command.key}`
          )
        }
        case "Sync": {
          const { inboxNo, text } = cursorText(command.agent, command.after)
          const rows = yield* deliveries.sync(
            agents[command.agent]!.id,
            inboxNo === 0 ? undefined : text,
            command.limit
          )
          const expected = inboxNo === undefined ? [] : state.inboxes[command.agent]!
            .map((slip, i) => ({ inboxNo: i + 1, slip }))
            .filter((one) => one.inboxNo > inboxNo && one.slip.deliveredAt === null).slice(0, command.limit)
          same(
            "sync",
            rows.map((row) => parse(row)["delivery_id"]),
            expected.map((one) => deliveryId(command.agent, one.inboxNo)),
            "sync"
          )
          rows.forEach((row, i) => compare(parse(row), expected[i]!.slip.letter, command.agent, undefined, "sync row"))
          return
        }
        case "AckThrough": {
          const { inboxNo, text } = cursorText(command.agent, command.cursor)
          const acked = yield* deliveries.acknowledgeThrough(agents[command.agent]!.id, text)
          const expected = inboxNo === undefined ? 0 : Model.acknowledgeThrough(state, command.agent, inboxNo, now())
          same("syncAck", acked, expected, "acked")
          transition("stored → delivered, sync/ack", expected)
          return
        }
        case "AckFrame": {
          const connected = someSession(command.agent, command.session)
          if (connected === undefined) return
          // In one of ten cases, the message may be any message, including own ones and those of other agents, or may
          // not exist.
          const own = state.inboxes[command.agent]!.map((slip) => slip.letter)
          const known = (command.pick % 10 === 0 ? letters() : own).filter((letter) => letter.id !== undefined)
          const letter = known[command.pick % (known.length + 1)]
          // The server looks up a message that this socket was not shown.
          yield* connected.session.acknowledge(letter?.id ?? "msg_unknown") ?? Effect.void
          if (letter?.recipient === command.agent && Model.deliver(Model.slipOf(state, letter).slip, now())) {
            transition("stored → delivered, ack frame")
          } else transition("ack ignored")
          return
        }
        case "Read": {
          const letter = someLetter(command.agent, command.pick)
          const reading = Effect.exit(
            deliveries.read(agents[command.agent]!.id, agents[command.agent]!.handle, letter?.id ?? "msg_unknown")
          )
          const exits = yield* Effect.all(command.twice ? [reading, reading] : [reading], { concurrency: "unbounded" })
          for (const exit of exits) {
            if (letter === undefined || ![letter.sender, letter.recipient].includes(command.agent)) {
              expectTag(exit, "MessageNotFound", "read")
            } else if (letter.sender === command.agent) expectTag(exit, "Forbidden", "read of an own message", "read")
            else {
              expectRead(command.agent, state.talks.get(letter.talk)!, letter.seq, letter.seq)
              check("read", Exit.isSuccess(exit), () => `read failed: ${JSON.stringify(exit)}`)
              if (Exit.isSuccess(exit))
                compare(parse(exit.value), letter, command.agent, Model.slipOf(state, letter).slip, "read")
            }
          }
          return
        }
        case "ReadThrough": {
          const { name, talk } = talkOf(command.agent, command.pick)
          const agent = agents[command.agent]!
          yield* deliveries.readThrough(agent.id, agent.handle, conversationId(name), command.through)
          if (talk !== undefined) expectRead(command.agent, talk, 1, command.through)
          return
        }
        case "HideMessage": {
          const letter = someLetter(command.agent, command.pick)
          const exit = yield* Effect.exit(
            conversations.hideMessage(agents[command.agent]!.id, letter?.id ?? "msg_unknown")
          )
          if (letter === undefined || ![letter.sender, letter.recipient].includes(command.agent)) {
            return expectTag(exit, "MessageNotFound", "hide")
          }
          check("hidden", Exit.isSuccess(exit), () => `hide failed: ${JSON.stringify(exit)}`)
          state.talks.get(letter.talk)!.hidden[command.agent]!.add(letter.seq)
          if (letter.recipient === command.agent && Model.deliver(Model.slipOf(state, letter).slip, now())) {
            transition("stored → delivered, hide message")
          }
          return
        }
        case "HideConversation": {
          const { name, talk } = talkOf(command.agent, command.pick)
          const exit = yield* Effect.exit(conversations.hide(agents[command.agent]!.id, conversationId(name)))
          if (talk === undefined) return expectTag(exit, "ConversationNotFound", "hide conversation")
          check("hidden", Exit.isSuccess(exit), () => `hide conversation failed: ${JSON.stringify(exit)}`)
          talk.hiddenThrough[command.agent] = talk.letters.length
          const changed = state.inboxes[command.agent]!.filter((slip) =>
            slip.letter.talk === name && Model.deliver(slip, now())
          )
          transition("stored → delivered, hide conversation", changed.length)
          return
        }
        case "List": {
          const listed: Array<Json> = []
          let cursor: string | null = null
          let total = 0
          do {
            const page: Page<typeof ConversationListItem.Type> = yield* conversations.list(agents[command.agent]!.id, {
              limit: command.limit,
              ...(cursor === null ? {} : { cursor })
            })
            listed.push(...page.items as unknown as ReadonlyArray<Json>)
            total = page.total
            cursor = page.nextCursor
          } while (cursor !== null)
          const expected = Model.talksOf(state, command.agent)
            .filter((talk) => talk.letters.length > talk.hiddenThrough[command.agent]!)
            .map((talk) => {
              const unread = Model.unread(state, talk, command.agent)
              const last = Model.visible(talk, command.agent).at(-1)
              return {
                id: conversationId(talk.name),
                at: isoOf(talk.letters.at(-1)!.at),
                unread: [unread.length, unread[0] ?? null, unread.at(-1) ?? null],
                preview: last?.text ?? null,
                own: last?.sender === command.agent
              }
            })
            .sort((a, b) => a.at! < b.at! ? 1 : a.at! > b.at! ? -1 : a.id < b.id ? 1 : -1)
          same(
            "listed",
            listed.map((item) => ({
              id: item["id"],
              at: item["last_message_at"],
              unread: [item["unread_count"], item["oldest_unread_seq"], item["newest_unread_seq"]],
              preview: item["last_message_preview"],
              own: item["last_message_is_own"]
            })),
            expected,
            "conversation list"
          )
          same("listed", total, expected.length, "total of conversations")
          return
        }
        case "History":
          return yield* history(command)
        case "Attach": {
          if (sessionsOf(command.agent).length >= 3) return
          attach(command.agent, command.acknowledges)
          return
        }
        case "Detach": {
          const connected = someSession(command.agent, command.session)
          if (connected !== undefined) detach(connected)
          return
        }
        case "Wait": {
          if (callsOf(command.agent) >= 3) return
          beginWait(command.agent, command.limit, command.takes, true)
          return
        }
        case "HangUp": {
          const own = waiting.filter(({ agent }) => agent === command.agent)
          const wait = own[command.pick % Math.max(1, own.length)]
          if (wait === undefined) return
          yield* hangUp(wait)
          transition("wait hung up")
          return
        }
        case "LoseHint": {
          const connected = someSession(command.agent, command.session)
          if (connected !== undefined) connected.lose++
          return
        }
        case "DelayHint": {
          const connected = someSession(command.agent, command.session)
          if (connected !== undefined) connected.delay = true
          return
        }
        case "Check":
          return yield* checkHeads(command.agent)
        case "Block": {
          const name = Model.nameOf(command.agent, command.other)
          if (command.agent === command.other || state.blocks.has(name)) return
          yield* sql`
            WITH versioned AS (UPDATE conversations SET version = version + 1 WHERE id = ${conversationId(name)})
            INSERT INTO blocks (agent_id, blocked_id, created_at)
            VALUES (${agents[command.agent]!.id}, ${agents[command.other]!.id}, ${now()})`
          state.blocks.add(name)
          return
        }
        case "Jump":
          // Jobs in the skipped time are not tested. There would be thousands of runs in a day.
          yield* leap(Math.max(0, command.ms - SLEPT_MS))
          yield* TestClock.adjust(Math.min(command.ms, SLEPT_MS))
          watched += Math.min(command.ms, SLEPT_MS)
          if (command.ms >= COMPARED_MS) untold.clear()
      }
    })

    const history = Effect.fnUntraced(function*(command: Extract<Command, { readonly _tag: "History" }>) {
      const { name, talk } = talkOf(command.agent, command.pick)
      const anchor = talk?.letters[command.at % Math.max(1, talk.letters.length)]
      const exit = yield* Effect.exit(conversations.history(agents[command.agent]!.id, conversationId(name), {
        limit: command.limit,
        before: command.by === "before" ? command.at : null,
        after: command.by === "after" ? command.at : null,
        around: command.by === "around" ? anchor?.id ?? "msg_unknown" : null
      }))
      if (talk === undefined) return expectTag(exit, "ConversationNotFound", "history")
      const seen = Model.visible(talk, command.agent)
      if (command.by === "around" && (anchor?.id === undefined || !seen.includes(anchor))) {
        return expectTag(exit, "MessageNotFound", "history around")
      }
      check("history", Exit.isSuccess(exit), () => `history failed: ${JSON.stringify(exit)}`)
      if (!Exit.isSuccess(exit)) return
      const expected = command.by === "after"
        ? seen.filter(({ seq }) => seq > command.at).slice(0, command.limit)
        : seen.filter(({ seq }) =>
          command.by === "before" ? seq < command.at : command.by === "around" ? seq <= anchor!.seq : true
        ).toReversed().slice(0, command.limit)
      same("history", exit.value.map((text) => parse(text)["seq"]), expected.map(({ seq }) => seq), "history")
      exit.value.forEach((text, i) =>
        compare(parse(text), expected[i]!, command.agent, Model.slipOf(state, expected[i]!).slip, "history row")
      )
    })

    /** Compares all stored rows of these agents with the model. */
    const audit = Effect.gen(function*() {
      const ids = agents.map((agent) => agent.id)
      const inboxes = yield* sql<{ agent_id: string; last_no: number; undelivered: number }>`
        SELECT * FROM inboxes WHERE ${sql.in("agent_id", ids)}`
      const envelopes = yield* sql<
        {
          recipient_id: string
          no: number
          conversation_id: string
          seq: number
          delivered_at: number | null
          read_at: number | null
        }
      >`SELECT * FROM envelopes WHERE ${sql.in("recipient_id", ids)} ORDER BY recipient_id, no`
      agents.forEach((agent, i) => {
        const inbox = state.inboxes[i]!
        const row = inboxes.find((one) => one.agent_id === agent.id)
        const own = envelopes.filter((one) => one.recipient_id === agent.id)
        check(
          "envelopes",
          own.every((one, index) => one.no === index + 1),
          () => `the numbers of ${agent.handle} have a hole: ${own.map((one) => one.no)}`
        )
        same(
          "counted",
          row?.undelivered,
          own.filter((one) => one.delivered_at === null).length,
          `undelivered of ${agent.handle} recounted`
        )
        same(
          "counted",
          [row?.last_no, row?.undelivered],
          [inbox.length, Model.undelivered(state, i)],
          `inbox of ${agent.handle}`
        )
        same(
          "envelopes",
          own.map((one) => [talkNames.get(one.conversation_id), one.seq, one.delivered_at, one.read_at]),
          inbox.map(({ deliveredAt, letter, readAt }) => [letter.talk, letter.seq, deliveredAt, readAt]),
          `envelopes of ${agent.handle}`
        )
      })
      const talks = yield* sql<{ id: string; last_seq: number; initiator_id: string; established_at: number | null }>`
        SELECT * FROM conversations WHERE ${sql.in("id", [...talkNames.keys()])}`
      same(
        "conversations",
        talks.map((row) => [talkNames.get(row.id), row.last_seq, row.initiator_id, row.established_at !== null]).sort(),
        [...state.talks.values()].map((
          talk
        ) => [talk.name, talk.letters.length, agents[talk.initiator]!.id, talk.established]).sort(),
        "conversations"
      )
      const stored = yield* sql<
        { id: string; conversation_id: string; seq: number; sender_id: string; client_msg_id: string }
      >`
        SELECT * FROM messages WHERE ${sql.in("conversation_id", [...talkNames.keys()])} ORDER BY conversation_id, seq`
      for (const [id, name] of talkNames) {
        same(
          "stored",
          stored.filter((row) => row.conversation_id === id).map((row) => [row.seq, row.sender_id, row.client_msg_id]),
          (state.talks.get(name)?.letters ?? []).map((letter) => [letter.seq, agents[letter.sender]!.id, letter.key]),
          `messages of ${name}`
        )
      }
      const keys = new Set(stored.map((row) => `${row.sender_id} ${row.client_msg_id}`))
      same("replayed", keys.size, stored.length, "keys of messages")
      yield* releaseReservations
      const slots = yield* sql<{ conversation_id: string; agent_id: string; claimed_at: number | null }>`
        SELECT * FROM cold_slots WHERE ${sql.in("agent_id", ids)}`
      same(
        "coldSlots",
        slots.map((row) => [talkNames.get(row.conversation_id), row.agent_id, row.claimed_at]).sort(),
        [...state.slots].map(([name, slot]) => [name, agents[slot.agent]!.id, slot.claimedAt]).sort(),
        "cold slots"
      )
    })

    /** Waits until nothing is under way, and checks what every agent was shown. */
    const rest = Effect.gen(function*() {
      yield* settle
      if (waiting.length > 0) yield* waits.settle
      observe()
      waiting = waiting.filter(observeWait)
    })

    const finish = Effect.gen(function*() {
      if (waiting.length > 0) {
        yield* TestClock.adjust(COMPARED_MS)
        watched += COMPARED_MS
        untold.clear()
        yield* rest
        for (const wait of waiting) yield* hangUp(wait)
      }
      for (let agent = 0; agent < 4; agent++) {
        yield* checkHeads(agent)
        deliveredBefore = new Set(state.inboxes[agent]!.filter((slip) => slip.deliveredAt !== null))
        observe()
        for (const connected of sessionsOf(agent)) {
          const missing = state.inboxes[agent]!.filter((slip) =>
            slip.deliveredAt === null && !connected.showed.has(slip)
          )
          check(
            "pushedToAll",
            missing.length === 0,
            () => `an open socket was never shown ${missing.map((slip) => Model.slipOf(state, slip.letter).inboxNo)}`
          )
          const silent = [...connected.due].filter((letter) => !connected.echoed.has(letter))
          check(
            "echoed",
            silent.length === 0,
            () => `an own message never came back: ${silent.map((letter) => letter.key)}`
          )
        }
        const undelivered = state.inboxes[agent]!.filter((slip) => slip.deliveredAt === null)
        const late = attach(agent, true)
        yield* settle
        observe()
        same(
          "notAcknowledged",
          [...late.showed].map((slip) => Model.slipOf(state, slip.letter).inboxNo),
          undelivered.map((slip) => Model.slipOf(state, slip.letter).inboxNo),
          "what the next socket is offered"
        )
      }
      // The tasks are read one by one, or all together by a list.
      const first = mark % 2
      if (first === 0) { for (const task of allTasks()) for (const node of [0, 1]) yield* lookAt(task, node) }
      for (const [id, name] of talkNames) {
        const [one, other] = Model.partners(name)
        for (const caller of [one, other]) {
          const side = {
            callerId: agents[caller]!.id,
            recipientId: agents[Model.otherOf(name, caller)]!.id,
            conversationId: id
          }
          const { tasks } = yield* nodes[caller % 2]!.list(side, { state: null, since: null }, null, 1_000)
          const own = tasksIn(name).filter((task) => task.caller === caller)
          same(
            "tasks",
            tasks.map((task) => `${task.id} ${task.state}`).toSorted(),
            own.map((task) => `${task.letter.id} ${shownState(state, task)}`).toSorted(),
            `tasks of ${caller} in ${name}`
          )
        }
      }
      if (first === 1) { for (const task of allTasks()) for (const node of [0, 1]) yield* lookAt(task, node) }
      yield* audit
    })

    yield* Effect.gen(function*() {
      for (const [i, command] of commands.entries()) {
        reaches(i)
        tally(coverage.commands, command._tag)
        deliveredBefore = new Set(state.inboxes.flat().filter((slip) => slip.deliveredAt !== null))
        headsBefore = state.inboxes.map(({ length }) => length)
        yield* execute(command)
        yield* settle
        for (const connected of sessions) {
          const { held } = connected
          connected.held = undefined
          held?.()
        }
        yield* rest
      }
      reaches(commands.length)
      yield* finish
    }).pipe(Effect.ensuring(Effect.suspend(() => {
      seam.fault = undefined
      seam.taskFault = undefined
      for (const connected of sessions) detach(connected)
      return Effect.forEach(waiting, hangUp, { discard: true })
    })))
  })

  return { run }
})
