import type { CloseReason } from "#domain/agents/Sessions"
import type { Deliveries, Within } from "#domain/deliveries/Deliveries"
import { messageFrame, type MessagePosition, type Rendered } from "#domain/messages/Message"
import { turn } from "#domain/messages/MessagePage"
import type { LiveAgent, LiveSession, SocketState } from "#domain/push/LiveAgent"
import { isStorable } from "#infrastructure/wire/Text"
import { Cause, Effect, Schedule } from "effect"
import type { WebSocket } from "ws"
import { SocketWriter, type UnsentBounds } from "./SocketWriter.ts"

/** How many rows are read from storage at once. */
const PAGE_SIZE = 100
/**
 * How long a gap in the inbox numbers may last before storage is read, in milliseconds. Pushes may arrive out of order,
 * because two commits may be confirmed out of order.
 */
const REORDER_MS = 10
const MAX_AHEAD = 256
const MAX_ECHOES = 1_024
/** How many pushed messages can be acknowledged without a query for their inbox numbers. */
const MAX_UNACKED = 4_096
/** For how many conversations a socket remembers the last shown message. */
const MAX_RECENT = 64
/** Retries reads for about 6 s in total, to outlast a restart of the database. */
export const readAgain = { schedule: Schedule.exponential("100 millis"), times: 6 }

interface Ahead {
  readonly messageId: string
  readonly rendered: Rendered
  readonly muted: boolean
}

interface Echo {
  readonly after: number
  readonly before: number | null
  readonly frame: string
  readonly position: MessagePosition | undefined
}

interface Shown {
  readonly seq: number
  /** The cursor when the message was shown. */
  readonly inboxNo: number
}

/** When a session began, in milliseconds, and its client's name. */
export interface SessionOrigin {
  readonly since: number
  readonly client: string | null
}

/** The services and limits of its node that a session uses. */
export interface SessionDependencies extends UnsentBounds {
  readonly deliveries: Deliveries["Service"]
  /** Runs a query for a page of the agent's backlog as soon as the agent and the node have a free slot. */
  readonly inSlot: (agentId: string, ...of: Parameters<Within>) => ReturnType<Within>
  readonly fork: (effect: Effect.Effect<void>) => void
}

/**
 * One authenticated socket: a cursor over its agent's inbox numbers. Number `cursor + 1` is sent as soon as it arrives.
 * After a gap, the session continues from storage, in order, until the cursor has caught up. So the backlog, a lost
 * push and a reconnect are handled in the same way. No live message overtakes the backlog, and memory is bounded by a
 * page. The agent's own messages have no inbox number. Each of them waits until the cursor has reached the newest
 * number that the agent's inbox had when the message was committed. The session skips a message that is muted when the
 * cursor reaches it. This socket never shows the message, even if the mute ends. Sync and the backlog of the next
 * socket contain the message.
 *
 * An own message may arrive late from another node, after the session has shown later messages of the conversation. In
 * that case the session drops the own message.
 */
export class SocketSession implements LiveSession {
  readonly agent: LiveAgent
  readonly handle: string
  private readonly writer: SocketWriter
  private readonly deps: SessionDependencies
  /**
   * Whether the client acknowledges messages. If not, a message counts as delivered as soon as the socket has accepted
   * its frame (wire.md E.2).
   */
  private readonly acknowledges: boolean
  private cursor = 0
  /** The highest inbox number that was sent. The cursor also passes numbers that are not shown. */
  private shown = 0
  private live = false
  /** The newest inbox number from pushes, and from comparisons with storage while the session was reading. */
  private head = 0
  private ahead: Map<number, Ahead> | undefined
  private waitingForHole = false
  private echoes: Array<Echo> | undefined
  private unacked: Map<string, number> | undefined
  private suspect = 0
  /**
   * For each recently shown conversation, the last message shown. The map is ordered from the least to the most
   * recently shown conversation.
   */
  private recent: Map<string, Shown> | undefined
  /** The highest cursor among the entries that `recent` has dropped. */
  private forgotten = 0
  /** The cursor when the last comparison found it beyond storage; 0 if the cursor was not beyond storage. */
  private beyond = 0
  private readonly origin: SessionOrigin

  constructor(
    socket: WebSocket,
    agent: LiveAgent,
    handle: string,
    acknowledges: boolean,
    deps: SessionDependencies,
    origin: SessionOrigin = { since: 0, client: null }
  ) {
    this.origin = origin
    this.writer = new SocketWriter(socket, agent.id, deps)
    this.agent = agent
    this.handle = handle
    this.acknowledges = acknowledges
    this.deps = deps
  }

  /** Starts with the backlog in storage. */
  start(): void {
    this.catchUp()
  }

  hint(inboxNo: number, messageId: string, rendered: Rendered, muted = false): void {
    if (inboxNo > this.head) this.head = inboxNo
    if (!this.live || inboxNo <= this.cursor) return
    if (inboxNo === this.cursor + 1) {
      if (muted) this.pass(inboxNo)
      else this.push(inboxNo, messageId, rendered)
      if (this.ahead !== undefined && this.ahead.size > 0) this.pushAhead(this.ahead)
      return
    }
    const ahead = this.ahead ??= new Map()
    ahead.set(inboxNo, { messageId, rendered, muted })
    if (ahead.size > MAX_AHEAD) this.catchUp()
    else this.waitForHole()
  }

  echo(after: number, before: number | null, frame: string, position?: MessagePosition): void {
    // The next message of the conversation has been shown. Do not send a lower seq after it. The client finds this
    // message in the history.
    if (before !== null && this.shown >= before) return
    if (this.live && this.cursor >= after && (this.echoes === undefined || this.echoes.length === 0)) {
      this.writeEcho(after, frame, position)
      return
    }
    const echoes = this.echoes ??= []
    echoes.push({ after, before, frame, position })
    if (echoes.length > MAX_ECHOES) echoes.shift()
  }

  event(frame: string): void {
    this.writer.write(frame)
  }

  close(reason: CloseReason): void {
    this.writer.close(reason)
  }

  state(): SocketState {
    return {
      since: this.origin.since,
      client: this.origin.client,
      acknowledges: this.acknowledges,
      cursor: this.cursor,
      unsentBytes: this.writer.unsentBytes,
      unacknowledged: this.unacked?.size ?? 0,
      isLive: this.live
    }
  }

  /** Call it after the socket has closed. The session then reads and sends nothing more. */
  ended(): void {
    this.writer.ended()
    this.ahead = undefined
    this.echoes = undefined
    this.unacked = undefined
    this.recent = undefined
  }

  /**
   * Compares the cursor with the newest number in storage. If the cursor is behind the same number in two comparisons,
   * a push was lost. If the cursor is beyond storage in two comparisons, storage was restored from a backup. The
   * session then closes the socket. When the client reconnects, it gets the messages in storage.
   */
  check(head: number): void {
    if (this.beyond !== 0 && head < this.beyond) {
      return this.close({ code: 1011, text: "the inbox was restored from a backup: connect again" })
    }
    this.beyond = this.live && this.cursor > head ? this.cursor : 0
    // The page that the session is reading may be older than this number.
    if (!this.live) this.head = Math.max(this.head, head)
    if (!this.live || this.cursor >= head) {
      this.suspect = 0
      return
    }
    if (this.suspect !== 0 && this.cursor < this.suspect) {
      this.suspect = 0
      this.head = Math.max(this.head, head)
      this.catchUp()
    } else {
      this.suspect = head
    }
  }

  /** Whether the session reads its backlog from storage. */
  get isCatchingUp(): boolean {
    return !this.live && !this.writer.closed
  }

  /**
   * Acknowledges a message that this socket has shown. For any other message, returns the look-up that acknowledges it.
   */
  acknowledge(messageId: string): Effect.Effect<void> | undefined {
    const inboxNo = this.unacked?.get(messageId)
    if (inboxNo === undefined) {
      // An id that PostgreSQL cannot store belongs to no message.
      return this.agent.isOwn(messageId) || !isStorable(messageId)
        ? undefined
        : Effect.ignore(this.deps.deliveries.acknowledgeMessage(this.agent, messageId))
    }
    // The next push creates a new map, because the table of a long-lived map references old entries until a full
    // garbage collection (http/SlotList.ts).
    if (this.unacked?.size === 1) this.unacked = undefined
    else this.unacked?.delete(messageId)
    this.deps.deliveries.acknowledge(this.agent.id, inboxNo)
    return undefined
  }

  private waitForHole(): void {
    if (this.waitingForHole) return
    this.waitingForHole = true
    this.deps.fork(
      Effect.map(Effect.sleep(REORDER_MS), () => {
        this.waitingForHole = false
        if (this.live && this.ahead !== undefined && this.ahead.size > 0) this.catchUp()
      })
    )
  }

  private pushAhead(ahead: Map<number, Ahead>): void {
    for (let next = ahead.get(this.cursor + 1); next !== undefined; next = ahead.get(this.cursor + 1)) {
      const inboxNo = this.cursor + 1
      ahead.delete(inboxNo)
      if (next.muted) this.pass(inboxNo)
      else this.push(inboxNo, next.messageId, next.rendered)
    }
    for (const inboxNo of ahead.keys()) if (inboxNo <= this.cursor) ahead.delete(inboxNo)
  }

  /** Sends envelope `inboxNo`. All lower numbers have been shown or skipped. */
  private push(inboxNo: number, messageId: string, rendered: Rendered): void {
    this.releaseEchoes(inboxNo - 1)
    this.cursor = inboxNo
    this.shown = inboxNo
    const { acknowledges, agent, deps } = this
    const frame = messageFrame(rendered, deps.deliveries.ids.encode(agent.id, inboxNo))
    this.remember(rendered)
    if (acknowledges) {
      const unacked = this.unacked ??= new Map()
      unacked.set(messageId, inboxNo)
      if (unacked.size > MAX_UNACKED) {
        for (const oldest of unacked.keys()) {
          unacked.delete(oldest)
          break
        }
      }
      this.writer.write(frame)
    } else if (this.writer.write(frame)) {
      deps.deliveries.acknowledge(agent.id, inboxNo)
    }
    this.releaseEchoes(inboxNo)
  }

  /** Moves past a muted envelope, which stays undelivered. */
  private pass(inboxNo: number): void {
    this.releaseEchoes(inboxNo - 1)
    this.cursor = inboxNo
    this.releaseEchoes(inboxNo)
  }

  private releaseEchoes(reached: number): void {
    const { echoes } = this
    if (echoes === undefined || echoes.length === 0) return
    let n = 0
    for (; n < echoes.length && echoes[n]!.after <= reached; n++) {
      const { after, before, frame, position } = echoes[n]!
      if (before === null || this.shown < before) this.writeEcho(after, frame, position)
    }
    if (n > 0) echoes.splice(0, n)
  }

  /** Sends an own message unless a later message of its conversation has been shown. */
  private writeEcho(after: number, frame: string, position: MessagePosition | undefined): void {
    if (position !== undefined) {
      const last = this.recent?.get(position.conversationId)
      if (last === undefined ? this.forgotten > after : last.seq > position.seq) return
      this.remember(position)
    }
    this.writer.write(frame)
  }

  private remember({ conversationId, seq }: MessagePosition): void {
    const recent = this.recent ??= new Map()
    recent.delete(conversationId)
    recent.set(conversationId, { seq, inboxNo: this.cursor })
    if (recent.size <= MAX_RECENT) return
    for (const [oldest, { inboxNo }] of recent) {
      recent.delete(oldest)
      if (inboxNo > this.forgotten) this.forgotten = inboxNo
      break
    }
  }

  private catchUp(): void {
    this.live = false
    this.ahead = undefined
    this.deps.fork(
      this.readOn().pipe(
        Effect.retry(readAgain),
        Effect.catchDefect((defect) =>
          Effect.andThen(
            Effect.logError("An inbox could not be sent to a socket", Cause.die(defect)),
            Effect.fail(undefined)
          )
        ),
        Effect.catch(() => Effect.sync(() => this.close({ code: 1011, text: "the inbox cannot be read right now" })))
      )
    )
  }

  private readOn(): Effect.Effect<void, unknown> {
    const { agent, deps } = this
    return Effect.gen({ self: this }, function*() {
      while (!this.writer.closed) {
        // The slot is taken only for the query, so that a slow socket does not block the reads of other sockets. A
        // socket may have closed while it waited for the slot.
        const page = yield* deps.deliveries.page(
          agent.id,
          this.cursor,
          PAGE_SIZE,
          (query) => deps.inSlot(agent.id, Effect.suspend(() => this.writer.closed ? Effect.undefined : query))
        )
        if (page === undefined) return
        for (const row of yield* deps.deliveries.render(page)) {
          if (row.inboxNo <= this.cursor) continue
          if (agent.mutes?.covers(row.senderId, row.rendered.conversationId) === true) this.pass(row.inboxNo)
          else this.push(row.inboxNo, row.messageId, row.rendered)
        }
        if (page.isLast) {
          if (page.lastInboxNo > this.cursor) this.cursor = page.lastInboxNo
          this.releaseEchoes(this.cursor)
          if (this.head <= this.cursor) {
            this.live = true
            return
          }
        }
        yield* turn
        yield* this.writer.flushed()
      }
    })
  }
}
