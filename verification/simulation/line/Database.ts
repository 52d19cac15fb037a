import type { Deliveries } from "#domain/deliveries/Deliveries"
import type { DirectDependencies } from "#domain/direct/DirectActor"
import type { DirectAppend, DirectAppended } from "#domain/direct/DirectConversation"
import { messageJson, type Rendered, renderMessage, sentMessage } from "#domain/messages/Message"
import type { Settled } from "#infrastructure/database/CommitQueue"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Effect, Exit } from "effect"
import type { Time } from "./Time.ts"

/** One committed message, with the process that wrote it and the epoch. */
export interface Committed {
  readonly id: string
  readonly key: string
  readonly conversationId: string
  readonly seq: number
  readonly epoch: number
  readonly writer: string
  readonly senderId: string
  readonly recipientId: string
  readonly inboxNo: number
  readonly rendered: Rendered
  /** Whether its process knows that it is committed. Otherwise no push follows. */
  isAnswered: boolean
}

/** How a statement fails: it is refused, or it is committed and its answer is lost. */
export type Broken = "refused" | "unanswered"

/** The changes of a mutant. */
export interface DatabaseMutant {
  /** Whether writes are compared with the epoch of the row; a mutant sets it to false. */
  readonly fences?: boolean
  /** Statements are answered before they are committed. */
  readonly answersEarly?: boolean
}

const EARLY_MS = 20
/** A page takes longer than a statement, so that much happens while a socket reads its inbox. */
const PAGE_SLOWNESS = 4

/** The effects of the statements on the tables, as far as direct messages of established conversations need them. */
export class Database {
  readonly log: Array<Committed> = []
  readonly byKey = new Map<string, Committed>()
  readonly byId = new Map<string, Committed>()
  readonly inboxes = new Map<string, Array<Committed>>()
  private readonly rows = new Map<string, { epoch: number; seq: number }>()
  private readonly time: Time
  private readonly random: () => number
  private readonly mutant: DatabaseMutant
  private readonly dead = new Set<string>()
  private broken: Broken | undefined
  /** The longest time of a statement. */
  delayMs = 5

  constructor(time: Time, random: () => number, mutant: DatabaseMutant) {
    this.time = time
    this.random = random
    this.mutant = mutant
  }

  /** The next write fails. */
  break(broken: Broken | undefined): void {
    this.broken = broken
  }

  /** Ends the sessions of a process. Its uncommitted statements are never committed. */
  end(process: string): void {
    this.dead.add(process)
  }

  inbox(agentId: string): Array<Committed> {
    const known = this.inboxes.get(agentId)
    if (known !== undefined) return known
    const made: Array<Committed> = []
    this.inboxes.set(agentId, made)
    return made
  }

  /**
   * Runs a function as a statement. It takes effect after half of a random delay, and is answered after the other half.
   */
  private query<A>(run: () => A, slowness = 1): Effect.Effect<A> {
    return Effect.callback((resume) => {
      this.time.after(this.random() * this.delayMs * slowness, () => {
        const value = run()
        this.time.after(this.random() * this.delayMs * slowness, () => resume(Effect.succeed(value)))
      })
    })
  }

  private row(conversationId: string): { epoch: number; seq: number } {
    const known = this.rows.get(conversationId)
    if (known !== undefined) return known
    const made = { epoch: 0, seq: 0 }
    this.rows.set(conversationId, made)
    return made
  }

  /** The batch statement (Append.ts) for one send. */
  private append(append: DirectAppend, writer: string): DirectAppended {
    const { conversationId, draft, recipientId, senderId } = append
    const key = `${senderId} ${draft.clientMsgId}`
    if (this.byKey.has(key)) return { _tag: "Replayed" }
    const row = this.row(conversationId)
    if (row.epoch !== append.epoch && this.mutant.fences !== false) return { _tag: "Fenced" }
    row.epoch = append.nextEpoch
    row.seq++
    const inbox = this.inbox(recipientId)
    const committed: Committed = {
      id: append.messageId,
      key,
      conversationId,
      seq: row.seq,
      epoch: append.nextEpoch,
      writer,
      senderId,
      recipientId,
      inboxNo: inbox.length + 1,
      isAnswered: true,
      rendered: renderMessage(
        sentMessage(draft, { id: append.messageId, conversationId, seq: row.seq, senderId, createdAt: append.at }),
        { senderHandle: senderId, senderDisplayName: null, group: null }
      )
    }
    inbox.push(committed)
    this.log.push(committed)
    this.byKey.set(key, committed)
    this.byId.set(committed.id, committed)
    return this.stored(committed)
  }

  private stored({ inboxNo, senderId, seq }: Pick<Committed, "inboxNo" | "senderId" | "seq">): DirectAppended {
    return {
      _tag: "Stored",
      seq,
      inboxNo,
      undelivered: 0,
      senderLastInboxNo: this.inbox(senderId).length,
      senderNextInboxNo: null
    }
  }

  /** The database functions that the actors of one process use. */
  for(process: string): Pick<DirectDependencies, "appends" | "load" | "original"> {
    /** When the last statement of each conversation takes effect, and is answered. */
    const last = new Map<string, { effect: number; answer: number }>()
    const submit = (append: DirectAppend, settle: (settled: Settled<DirectAppended>) => void): void => {
      const lane = last.get(append.conversationId) ?? { effect: 0, answer: 0 }
      last.set(append.conversationId, lane)
      lane.effect = Math.max(lane.effect, this.time.now + this.random() * this.delayMs)
      const ends = (settled: Settled<DirectAppended>): void => {
        lane.answer = Math.max(lane.answer, this.time.now + this.random() * this.delayMs)
        this.time.after(lane.answer - this.time.now, () => {
          if (!this.dead.has(process)) settle(settled)
        })
      }
      this.time.after(lane.effect - this.time.now, () => {
        if (this.dead.has(process)) return
        const { broken } = this
        this.broken = undefined
        if (broken === "refused") return ends(FAILED)
        if (this.mutant.answersEarly === true) {
          const { seq } = this.row(append.conversationId)
          ends({
            _tag: "Done",
            value: this.stored({
              seq: seq + 1,
              inboxNo: this.inbox(append.recipientId).length + 1,
              senderId: append.senderId
            })
          })
          this.time.after(EARLY_MS, () => void this.append(append, process))
          return
        }
        const value = this.append(append, process)
        if (broken !== "unanswered") return ends({ _tag: "Done", value })
        const committed = this.byId.get(append.messageId)
        if (committed !== undefined) committed.isAnswered = false
        ends(FAILED)
      })
    }
    return {
      appends: { submit },
      load: (conversationId, initiatorId) =>
        this.query(() => ({
          epoch: this.row(conversationId).epoch,
          version: 0,
          state: { initiatorId, createdAt: 0, established: true, blocked: false }
        })),
      original: (senderId, clientMsgId) =>
        this.query(() => {
          const found = this.byKey.get(`${senderId} ${clientMsgId}`)
          return found === undefined
            ? undefined
            : { created: false, body: messageJson(found.rendered, null), backlog: null }
        })
    }
  }

  /** The newest number of each inbox. */
  heads(agentIds: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, number>> {
    return this.query(() => new Map(agentIds.map((agentId) => [agentId, this.inbox(agentId).length])))
  }

  /** The functions of deliveries that a Session uses. No client acknowledges messages here. */
  readonly deliveries = {
    ids: { encode: (_: string, inboxNo: number) => `dlv_${inboxNo}` },
    page: (agentId: string, after: number, limit: number) =>
      this.query(() => {
        const inbox = this.inbox(agentId)
        const rows = inbox.slice(after, after + limit)
        return { lastInboxNo: inbox.length, undelivered: 0, rows, isLast: rows.length < limit }
      }, PAGE_SLOWNESS),
    render: (page: { readonly rows: ReadonlyArray<Committed> }) =>
      Effect.succeed(
        page.rows.map(({ id, inboxNo, rendered, senderId }) => ({ inboxNo, messageId: id, senderId, rendered }))
      ),
    acknowledge: () => {}
  } as unknown as Deliveries["Service"]
}

const FAILED: Settled<never> = { _tag: "Failed", exit: Exit.fail(new Unavailable()) }
