import { Cause, Effect, Schedule, type Semaphore } from "effect"
import type { Duplex } from "node:stream"
import type { WebSocket } from "ws"
import type { LiveAgent, LiveSession } from "../push/LiveAgent.ts"
import { messageFrame, type MessagePosition, type Rendered } from "../messages/Message.ts"
import type { Deliveries } from "../deliveries/Deliveries.ts"
import { isStorable } from "../wire/Text.ts"
import type { CloseReason } from "../agents/Sessions.ts"

/** Rows read from storage at once. */
const PAGE = 100
/** How long a hole among the hints may be a matter of two commits' answers crossing, before storage is asked. */
const REORDER_MS = 10
const MAX_AHEAD = 256
const MAX_ECHOES = 1_024
/** Pushed messages whose acknowledgement finds its number without asking storage. */
const MAX_UNACKED = 4_096
/** Conversations of which a socket knows what it showed last. */
const MAX_RECENT = 64
/** A database that restarts is waited for, some 6 s in all. */
export const readAgain = { schedule: Schedule.exponential("100 millis"), times: 6 }

interface Ahead {
  readonly messageId: string
  readonly rendered: Rendered
  readonly muted: boolean
}

/** The stream below a socket, which `ws` keeps to itself. */
const streamOf = (socket: WebSocket): Duplex => (socket as WebSocket & { readonly _socket: Duplex })._socket

const release = (session: Session): void => session.release()

interface Echo {
  readonly after: number
  readonly before: number | null
  readonly frame: string
  readonly place: MessagePosition | undefined
}

interface Shown {
  readonly seq: number
  /** The cursor then. */
  readonly no: number
}

/** What a session needs from its node. */
export interface SessionDependencies {
  readonly deliveries: Deliveries["Service"]
  /** Bounds how many sessions read their backlog at once. */
  readonly readers: Semaphore.Semaphore
  readonly fork: (effect: Effect.Effect<void>) => void
  /** Bytes unsent at which the backlog waits for the socket (wire.md E.3). */
  readonly backlogBytes: number
  /** Bytes unsent at which a socket is given up (wire.md E.4). */
  readonly unsentBytes: number
}

/**
 * One authenticated socket: a cursor over its agent's inbox numbers. Number
 * `cursor + 1` goes out as it comes; anything else means reading on from storage, in
 * order, until the cursor has caught up. So the backlog, a lost hint and a
 * re-attach are one thing, no live message overtakes the backlog, and memory is
 * bounded by a page. The agent's own messages have no number: each waits until the
 * cursor has reached what its inbox held when it was committed. What is muted when
 * its turn comes is passed over like what was delivered elsewhere: this socket never
 * shows it, though the mute may end; sync and the next socket's backlog have it.
 *
 * An own message may come late from another node, when storage or the conversation's
 * next owner has shown what was written after it: then it is left out.
 */
export class Session implements LiveSession {
  readonly agent: LiveAgent
  readonly handle: string
  private readonly socket: WebSocket
  private readonly deps: SessionDependencies
  /** Whether the client acknowledges; else a frame that the socket took counts as delivered (wire.md E.2). */
  private readonly acknowledges: boolean
  private cursor = 0
  /** The highest number that really went out; the cursor also passes what needed no showing. */
  private shown = 0
  private live = false
  /** The newest number heard of while behind. */
  private head = 0
  private ahead: Map<number, Ahead> | undefined
  private waitingForHole = false
  private echoes: Array<Echo> | undefined
  private unacked: Map<string, number> | undefined
  private suspect = 0
  /** What was shown last of the conversations that were shown last, the latest one last. */
  private recent: Map<string, Shown> | undefined
  /** Up to this number something was shown that `recent` has forgotten. */
  private forgotten = 0
  /** Where the cursor was when it was found to be beyond storage; 0: it is not. */
  private beyond = 0
  private closed = false
  private corked: Duplex | undefined

  constructor(socket: WebSocket, agent: LiveAgent, handle: string, acknowledges: boolean, deps: SessionDependencies) {
    this.socket = socket
    this.agent = agent
    this.handle = handle
    this.acknowledges = acknowledges
    this.deps = deps
  }

  /** Begins with what waits in storage. */
  start(): void {
    this.catchUp()
  }

  hint(no: number, messageId: string, rendered: Rendered, muted = false): void {
    if (no > this.head) this.head = no
    if (!this.live || no <= this.cursor) return
    if (no === this.cursor + 1) {
      if (muted) this.pass(no)
      else this.push(no, messageId, rendered)
      if (this.ahead !== undefined && this.ahead.size > 0) this.pushAhead(this.ahead)
      return
    }
    const ahead = this.ahead ??= new Map()
    ahead.set(no, { messageId, rendered, muted })
    if (ahead.size > MAX_AHEAD) this.catchUp()
    else this.waitForHole()
  }

  echo(after: number, before: number | null, frame: string, place?: MessagePosition): void {
    // The backlog has shown what comes after it: a lower seq may not follow, history has it.
    if (before !== null && this.shown >= before) return
    if (this.live && this.cursor >= after && (this.echoes === undefined || this.echoes.length === 0)) {
      this.writeEcho(after, frame, place)
      return
    }
    const echoes = this.echoes ??= []
    echoes.push({ after, before, frame, place })
    if (echoes.length > MAX_ECHOES) echoes.shift()
  }

  event(frame: string): void {
    this.write(frame)
  }

  close(reason: CloseReason): void {
    this.closed = true
    this.socket.close(reason.code, reason.text)
  }

  /** The socket is gone: nothing more is read or sent. */
  ended(): void {
    this.closed = true
    this.ahead = undefined
    this.echoes = undefined
    this.unacked = undefined
    this.recent = undefined
  }

  /**
   * Compares the cursor with the newest number in storage; twice behind the same one means
   * that a hint was lost. Storage that is behind where the cursor was before has been
   * restored from a backup: the client is to come again, and to be shown what there is.
   */
  check(head: number): void {
    if (this.beyond !== 0 && head < this.beyond) {
      return this.close({ code: 1011, text: "the inbox is not what it was: connect again" })
    }
    this.beyond = this.live && this.cursor > head ? this.cursor : 0
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

  /** Acknowledges what this socket was shown; for anything else gives the look-up that does. */
  acknowledge(messageId: string): Effect.Effect<void> | undefined {
    const no = this.unacked?.get(messageId)
    if (no === undefined) {
      // No message has an id that storage cannot be asked for.
      return this.agent.isOwn(messageId) || !isStorable(messageId)
        ? undefined
        : Effect.ignore(this.deps.deliveries.acknowledgeMessage(this.agent, messageId))
    }
    this.unacked?.delete(messageId)
    this.deps.deliveries.acknowledge(this.agent.id, no)
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
      const no = this.cursor + 1
      ahead.delete(no)
      if (next.muted) this.pass(no)
      else this.push(no, next.messageId, next.rendered)
    }
    for (const no of ahead.keys()) if (no <= this.cursor) ahead.delete(no)
  }

  /** Sends envelope `no`; everything below it has been shown or needs no showing. */
  private push(no: number, messageId: string, rendered: Rendered): void {
    this.releaseEchoes(no - 1)
    this.cursor = no
    this.shown = no
    const { acknowledges, agent, deps } = this
    const frame = messageFrame(rendered, deps.deliveries.ids.encode(agent.id, no))
    this.remember(rendered)
    if (acknowledges) {
      const unacked = this.unacked ??= new Map()
      unacked.set(messageId, no)
      if (unacked.size > MAX_UNACKED) {
        for (const oldest of unacked.keys()) {
          unacked.delete(oldest)
          break
        }
      }
      this.write(frame)
    } else if (this.write(frame)) {
      deps.deliveries.acknowledge(agent.id, no)
    }
    this.releaseEchoes(no)
  }

  /** Moves past a muted envelope, which stays as undelivered as it is. */
  private pass(no: number): void {
    this.releaseEchoes(no - 1)
    this.cursor = no
    this.releaseEchoes(no)
  }

  private releaseEchoes(reached: number): void {
    const { echoes } = this
    if (echoes === undefined || echoes.length === 0) return
    let n = 0
    for (; n < echoes.length && echoes[n]!.after <= reached; n++) {
      const { after, before, frame, place } = echoes[n]!
      if (before === null || this.shown < before) this.writeEcho(after, frame, place)
    }
    if (n > 0) echoes.splice(0, n)
  }

  /** Unless something that comes after it in its conversation has been shown. */
  private writeEcho(after: number, frame: string, place: MessagePosition | undefined): void {
    if (place !== undefined) {
      const last = this.recent?.get(place.conversationId)
      if (last === undefined ? this.forgotten > after : last.seq > place.seq) return
      this.remember(place)
    }
    this.write(frame)
  }

  private remember({ conversationId, seq }: MessagePosition): void {
    const recent = this.recent ??= new Map()
    recent.delete(conversationId)
    recent.set(conversationId, { seq, no: this.cursor })
    if (recent.size <= MAX_RECENT) return
    for (const [oldest, { no }] of recent) {
      recent.delete(oldest)
      if (no > this.forgotten) this.forgotten = no
      break
    }
  }

  private write(frame: string): boolean {
    if (this.closed || this.socket.readyState !== 1) return false
    if (this.socket.bufferedAmount > this.deps.unsentBytes) {
      // It goes behind what is unsent: a peer that reads on in time gets both, any other is cut off.
      this.close({ code: 1013, text: "too slow: read faster, nothing is lost" })
      return false
    }
    this.gather()
    this.socket.send(frame)
    return true
  }

  /** Frames of one turn leave in one write: a system call costs as much as all the rest of a frame. */
  private gather(): void {
    if (this.corked !== undefined) return
    const stream = streamOf(this.socket)
    stream.cork()
    this.corked = stream
    process.nextTick(release, this)
  }

  /** Lets out what `gather` has held back. */
  release(): void {
    this.corked?.uncork()
    this.corked = undefined
  }

  private catchUp(): void {
    this.live = false
    this.ahead = undefined
    this.deps.fork(
      this.readOn().pipe(
        Effect.retry(readAgain),
        Effect.catchDefect((defect) =>
          Effect.andThen(Effect.logError("An inbox could not be shown", Cause.die(defect)), Effect.fail(undefined))
        ),
        Effect.catch(() => Effect.sync(() => this.close({ code: 1011, text: "the inbox cannot be read right now" })))
      )
    )
  }

  private readOn(): Effect.Effect<void, unknown> {
    const { agent, deps } = this
    return Effect.gen({ self: this }, function*() {
      while (!this.closed) {
        // A socket that is slow to take a page must not keep others from reading theirs.
        const page = yield* deps.readers.withPermits(1)(deps.deliveries.page(agent.id, this.cursor, PAGE))
        if (page === undefined) return
        for (const row of yield* deps.deliveries.render(page)) {
          if (row.no <= this.cursor) continue
          if (agent.mutes?.covers(row.senderId, row.rendered.conversationId) === true) this.pass(row.no)
          else this.push(row.no, row.messageId, row.rendered)
        }
        if (page.rows.length < PAGE) {
          if (page.lastNo > this.cursor) this.cursor = page.lastNo
          this.releaseEchoes(this.cursor)
          if (this.head <= this.cursor) {
            this.live = true
            return
          }
        }
        yield* this.flushed()
      }
    })
  }

  /** Waits while the socket holds more than the backlog may queue. */
  private flushed(): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.closed || this.socket.bufferedAmount <= this.deps.backlogBytes) return Effect.void
      return Effect.andThen(Effect.sleep(20), this.flushed())
    })
  }
}
