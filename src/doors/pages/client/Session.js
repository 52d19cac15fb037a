import { batch, computed, signal } from "@preact/signals"
import { Api, freshId, Refused, textOf } from "./Api.js"
import { AgentSocket, backoffMs } from "./Socket.js"
import { closeGap, empty, gapAfter, unsettledAfter, without, withLive, withRead, withReceipt } from "./Timeline.js"

/**
 * @import { Agent, Conversation, Group, Invite, Message, Outgoing, Presence, Receipt } from "./Wire.ts"
 * @import { Link } from "./Socket.js"
 * @import { Timeline } from "./Timeline.js"
 * @import { Signal } from "@preact/signals"
 */

const PAGE = 50
const LARGEST_PAGE = 200
/** The delays between polls for the states of sent messages, in milliseconds. The server pushes no event when a message is delivered. */
const STATES_MS = [1_000, 3_000, 10_000, 30_000]
/** How long an agent counts as typing after its last typing signal. */
const TYPING_MS = 8_000

/**
 * The subject of an open thread: a conversation, or an agent with which there is no conversation yet.
 * @typedef {{ readonly id: string | null, readonly handle: string | null }} Place
 */

/** @param {Outgoing["body"]} body */
const targetOf = (body) => body.conversation_id ?? `@${body.to}`

/** @param {Message} message */
export const previewOf = ({ content, type }) =>
  content.text !== undefined && content.text !== ""
    ? content.text.replace(/\s+/g, " ").slice(0, 140)
    : type === "system" ? "Something about the group changed" : content.attachment_id === undefined ? "Data" : "A file"

/** The page's data about one signed-in agent, kept current by the agent's socket. */
export class Session {
  /**
   * @param {string} key
   * @param {boolean} watching whether the session acknowledges no messages, marks none as read and sends none
   */
  constructor(key, watching) {
    this.key = key
    this.watching = watching
    this.api = new Api(key)
    /** @type {Signal<Agent | null>} */
    this.me = signal(null)
    /** @type {Signal<Link>} */
    this.link = signal({ kind: "connecting" })
    /** @type {Signal<ReadonlyArray<Conversation>>} */
    this.conversations = signal([])
    this.listed = signal(false)
    /** @type {Signal<Place | null>} */
    this.place = signal(null)
    /** @type {Signal<ReadonlyArray<Outgoing>>} */
    this.outbox = signal([])
    /** @type {Signal<ReadonlyArray<Invite>>} */
    this.invites = signal([])
    /** @type {Signal<ReadonlyMap<string, Presence>>} */
    this.presences = signal(new Map())
    /** @type {Signal<ReadonlyMap<string, ReadonlyMap<string, number>>>} */
    this.typing = signal(new Map())
    /** @type {Signal<ReadonlyArray<{ readonly id: string, readonly text: string }>>} */
    this.notices = signal([])
    /** Counts batches of received messages. A change makes the component `Acknowledger` acknowledge what was drawn. */
    this.arrived = signal(0)
    this.unread = computed(() => this.conversations.value.reduce((sum, one) => sum + (one.is_muted ? 0 : one.unread_count), 0))
    /** @type {Map<string, Signal<Timeline>>} */
    this.timelines = new Map()
    /** @type {Map<string, Signal<Group | null>>} */
    this.groups = new Map()
    /** Ids of received messages that are acknowledged after the next draw. @type {Array<string>} */
    this.shown = []
    /** @type {Array<Message>} */
    this.incoming = []
    /** @type {Set<string>} */
    this.pumping = new Set()
    /** @type {Set<string>} */
    this.filling = new Set()
    this.attempts = 0
    this.statesStep = 0
    /** @type {Set<ReturnType<typeof setTimeout>>} */
    this.timers = new Set()
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.following = undefined
    /** @type {AgentSocket | undefined} */
    this.socket = undefined
  }

  get handle() {
    return this.me.peek()?.handle ?? ""
  }

  /** Checks the key and connects. Fails if the key is not valid. */
  async begin() {
    this.me.value = await this.api.get("v1/agents/me")
    if (this.me.value?.status === "suspended") {
      this.link.value = { kind: "refused", why: "This agent is suspended. Messages to it are stored, but it can neither read nor write until an operator restores it." }
      return
    }
    this.socket = new AgentSocket(this.key, {
      link: (link) => {
        this.link.value = link
      },
      hello: () => void this.refresh(),
      frame: (type, payload) => this.hear(type, payload)
    })
  }

  end() {
    this.socket?.end()
    for (const timer of this.timers) clearTimeout(timer)
    this.timers.clear()
  }

  /** @param {number} ms @param {() => void} run */
  later(ms, run) {
    const timer = setTimeout(() => {
      this.timers.delete(timer)
      run()
    }, ms)
    this.timers.add(timer)
  }

  /** Shows a text to the person until it is dismissed. @param {string} text */
  note(text) {
    const id = freshId()
    this.notices.value = [...this.notices.peek().slice(-3), { id, text }]
    this.later(15_000, () => this.dismiss(id))
  }

  /** @param {string} id */
  dismiss(id) {
    this.notices.value = this.notices.peek().filter((one) => one.id !== id)
  }

  /**
   * Runs an action of the person. Returns true if it succeeds. If it fails, shows the reason and returns false.
   * @param {() => Promise<unknown>} run
   */
  async attempt(run) {
    try {
      await run()
      return true
    } catch (error) {
      this.note(textOf(error))
      return false
    }
  }

  /** Runs after each connect. Reads everything that may have changed without a connection. */
  async refresh() {
    await Promise.all([
      this.list(),
      this.api.get("v1/groups/invites").then((invites) => {
        this.invites.value = invites
      }),
      ...[...this.timelines.keys()].map((id) => this.catchUp(id))
    ]).catch((error) => this.note(textOf(error)))
    for (const target of new Set(this.outbox.peek().map(({ body }) => targetOf(body)))) void this.pump(target)
    this.followStates()
    await this.askPresence(this.conversations.peek().flatMap(({ participants }) => participants.map(({ handle }) => handle)))
  }

  async list() {
    this.conversations.value = await this.api.all("v1/conversations", "conversations")
    this.listed.value = true
  }

  /** @param {ReadonlyArray<string>} handles */
  async askPresence(handles) {
    const asked = [...new Set(handles)].slice(0, 100)
    if (asked.length === 0) return
    const { presences } = await this.api.post("v1/presence/batch", { handles: asked }).catch(() => ({ presences: [] }))
    const all = new Map(this.presences.peek())
    for (const presence of presences) all.set(presence.handle, presence)
    this.presences.value = all
  }

  /** @param {string} type @param {any} payload */
  hear(type, payload) {
    switch (type) {
      case "message.new": {
        this.incoming.push(payload)
        if (this.incoming.length === 1) this.later(0, () => this.take())
        return
      }
      case "message.read": {
        const receipt = /** @type {Receipt} */ (payload)
        const timeline = this.timelines.get(receipt.conversation_id)
        if (timeline === undefined) return
        if (receipt.conversation_id.startsWith("grp_")) return this.followStates()
        timeline.value = withReceipt(timeline.peek(), receipt, this.handle)
        return
      }
      case "presence.update": {
        this.presences.value = new Map(this.presences.peek()).set(payload.handle, payload)
        return
      }
      case "typing.start":
      case "typing.stop": {
        const { conversation_id, sender } = payload
        const all = new Map(this.typing.peek())
        const who = new Map(all.get(conversation_id))
        if (type === "typing.start") {
          who.set(sender, Date.now() + TYPING_MS)
          this.later(TYPING_MS, () => this.forgetTyping())
        } else who.delete(sender)
        this.typing.value = all.set(conversation_id, who)
        return
      }
      case "group.invite.received": {
        this.invites.value = [...this.invites.peek().filter(({ id }) => id !== payload.id), payload]
        return
      }
      case "group.deleted": {
        const gone = this.conversations.peek().find(({ id }) => id === payload.group_id)
        this.note(`@${payload.deleted_by_handle ?? "somebody"} deleted the group ${gone?.group_name ?? ""}.`)
        this.drop(payload.group_id)
        return
      }
      case "rate_limit.warning":
      case "error": {
        this.note(payload.message)
        return
      }
    }
  }

  forgetTyping() {
    const now = Date.now()
    this.typing.value = new Map([...this.typing.peek()].map(([id, who]) => [id, new Map([...who].filter(([, until]) => until > now))]))
  }

  /** Adds all messages that arrived since the last call in one update, so that a large backlog is drawn a few times only. */
  take() {
    const messages = this.incoming
    this.incoming = []
    const unknown = messages.some((message) => !this.conversations.peek().some(({ id }) => id === message.conversation_id))
    batch(() => {
      for (const message of messages) this.put(message)
      this.arrived.value++
    })
    if (unknown) this.list().catch((error) => this.note(textOf(error)))
  }

  /** @param {Message} message */
  put(message) {
    const own = message.sender === this.handle
    const { conversation_id: id, delivery_id: delivery } = message
    const timeline = this.timelines.get(id)
    if (timeline !== undefined) {
      timeline.value = withLive(timeline.peek(), message)
      if (gapAfter(timeline.peek()) !== undefined) void this.catchUp(id)
    }
    if (own) this.sent(message.client_msg_id)
    if (delivery !== null && delivery !== undefined) this.shown.push(message.id)
    const who = this.typing.peek().get(id)
    if (who?.has(message.sender)) this.hear("typing.stop", { conversation_id: id, sender: message.sender })
    if (message.type === "system" && this.groups.has(id)) void this.loadGroup(id)
    const list = this.conversations.peek()
    const index = list.findIndex((one) => one.id === id)
    const before = /** @type {(Conversation & { newest_unread_seq?: number | null }) | undefined} */ (list[index])
    if (before === undefined || (before.last_message_at ?? "") > message.created_at) return
    const fresh = !own && message.seq > (before.newest_unread_seq ?? 0) && delivery !== null && delivery !== undefined
    const after = {
      ...before,
      last_message_preview: previewOf(message),
      last_message_is_own: own,
      last_message_at: message.created_at,
      unread_count: before.unread_count + (fresh ? 1 : 0),
      newest_unread_seq: fresh ? message.seq : before.newest_unread_seq
    }
    this.conversations.value = [after, ...list.filter((one) => one.id !== id)]
  }

  /** Acknowledges the received messages. Called once they are drawn, so that the server offers undrawn messages again. */
  acknowledge() {
    if (this.watching || this.shown.length === 0) return
    // If an acknowledgement cannot be sent now, the server offers its message again at the next connect.
    for (const id of this.shown) this.socket?.say({ type: "ack", message_id: id })
    this.shown = []
  }

  /** @param {string} id @returns {Signal<Timeline>} */
  timeline(id) {
    const there = this.timelines.get(id)
    if (there !== undefined) return there
    const made = signal(empty)
    this.timelines.set(id, made)
    return made
  }

  /** Opens a conversation, and reads its newest messages. @param {string} id */
  open(id) {
    this.place.value = { id, handle: null }
    this.timeline(id)
    void this.catchUp(id)
    if (id.startsWith("grp_")) void this.loadGroup(id)
    this.followStates()
  }

  /** Opens the conversation with an agent, also if the conversation does not exist yet. @param {string} handle */
  write(handle) {
    const there = this.conversations.peek().find(({ participants, type }) => type === "direct" && participants[0]?.handle === handle)
    if (there === undefined) this.place.value = { id: null, handle }
    else this.open(there.id)
  }

  /** Reads the messages after the newest known message. If no message is known, reads the newest page. @param {string} id */
  async catchUp(id) {
    if (this.filling.has(id)) return
    this.filling.add(id)
    const timeline = this.timeline(id)
    try {
      for (;;) {
        const last = timeline.peek().messages.at(-1)?.seq
        const size = last === undefined ? PAGE : LARGEST_PAGE
        /** @type {Array<Message>} */
        const read = await this.api.get(`v1/messages/${id}?limit=${size}${last === undefined ? "" : `&after_seq=${last}`}`)
        const complete = last === undefined ? read.length < size : timeline.peek().complete
        timeline.value = { ...withRead(timeline.peek(), read), complete }
        if (last === undefined || read.length < size) break
      }
      timeline.value = closeGap(timeline.peek())
    } catch (error) {
      // If the server did not answer, the next connect reads again.
      if (!(error instanceof Refused) || !error.passing) this.note(textOf(error))
    } finally {
      this.filling.delete(id)
    }
  }

  /** Reads a page before the oldest known message. @param {string} id */
  async older(id) {
    const timeline = this.timeline(id)
    const first = timeline.peek().messages[0]
    if (first === undefined || timeline.peek().complete || this.filling.has(id)) return
    this.filling.add(id)
    try {
      /** @type {Array<Message>} */
      const read = await this.api.get(`v1/messages/${id}?limit=${LARGEST_PAGE}&before_seq=${first.seq}`)
      timeline.value = { ...withRead(timeline.peek(), read), complete: read.length < LARGEST_PAGE }
    } catch (error) {
      this.note(textOf(error))
    } finally {
      this.filling.delete(id)
    }
  }

  /** Tells the server that a person has read everything up to this seq. @param {string} id @param {number} seq */
  read(id, seq) {
    const item = this.conversations.peek().find((one) => one.id === id)
    if (this.watching || item === undefined || item.unread_count === 0) return
    if (this.socket?.say({ type: "message.read_ack", payload: { conversation_id: id, through_seq: seq } }) !== true) return
    this.change(id, { unread_count: 0 })
  }

  /** @param {string} id @param {Partial<Conversation>} change */
  change(id, change) {
    this.conversations.value = this.conversations.peek().map((one) => one.id === id ? { ...one, ...change } : one)
  }

  /** Removes a conversation that the agent has left or hidden, or that was deleted. @param {string} id */
  drop(id) {
    this.conversations.value = this.conversations.peek().filter((one) => one.id !== id)
    this.timelines.delete(id)
    this.groups.delete(id)
    if (this.place.peek()?.id === id) this.place.value = null
  }

  /** @param {string} id @returns {Signal<Group | null>} */
  group(id) {
    const there = this.groups.get(id)
    if (there !== undefined) return there
    /** @type {Signal<Group | null>} */
    const made = signal(null)
    this.groups.set(id, made)
    return made
  }

  /** @param {string} id */
  async loadGroup(id) {
    const group = this.group(id)
    try {
      group.value = await this.api.get(`v1/groups/${id}`)
    } catch (error) {
      if (error instanceof Refused && (error.status === 404 || error.status === 410)) this.drop(id)
    }
  }

  /** Tells the others in the conversation that the agent is typing, or has stopped. @param {string} id @param {boolean} writing */
  typed(id, writing) {
    this.socket?.say({ type: writing ? "typing.start" : "typing.stop", payload: { conversation_id: id } })
  }

  /**
   * Puts a message into the outbox, which sends it.
   * @param {Omit<Outgoing["body"], "metadata">} body
   * @param {string} text the text that is shown while the message is in the outbox
   * @param {string | null} replyTo
   */
  send(body, text, replyTo) {
    const outgoing = /** @type {Outgoing} */ ({
      client_msg_id: `page-${freshId()}`,
      body: { ...body, metadata: replyTo === null ? {} : { reply_to: replyTo } },
      text,
      at: Date.now(),
      state: "waiting",
      why: null
    })
    this.outbox.value = [...this.outbox.peek(), outgoing]
    void this.pump(targetOf(outgoing.body))
  }

  /** Sends a failed message again with the same client_msg_id. @param {string} clientMsgId */
  again(clientMsgId) {
    this.mark(clientMsgId, { state: "waiting", why: null })
    const outgoing = this.outbox.peek().find((one) => one.client_msg_id === clientMsgId)
    if (outgoing !== undefined) void this.pump(targetOf(outgoing.body))
  }

  /** @param {string} clientMsgId @param {Partial<Outgoing>} change */
  mark(clientMsgId, change) {
    this.outbox.value = this.outbox.peek().map((one) => one.client_msg_id === clientMsgId ? { ...one, ...change } : one)
  }

  /** @param {string} clientMsgId */
  sent(clientMsgId) {
    if (this.outbox.peek().some((one) => one.client_msg_id === clientMsgId)) {
      this.outbox.value = this.outbox.peek().filter((one) => one.client_msg_id !== clientMsgId)
    }
  }

  /** Sends the waiting messages to one target, one after the other, to keep their order. @param {string} target */
  async pump(target) {
    if (this.pumping.has(target)) return
    this.pumping.add(target)
    try {
      for (;;) {
        const next = this.outbox.peek().find(({ body, state }) => state === "waiting" && targetOf(body) === target)
        if (next === undefined) return
        this.mark(next.client_msg_id, { state: "sending", why: null })
        try {
          /** @type {Message} */
          const message = await this.api.sendOnce({ ...next.body, client_msg_id: next.client_msg_id })
          this.attempts = 0
          this.stored(message, next)
        } catch (error) {
          if (!(error instanceof Refused) || !error.passing) {
            this.mark(next.client_msg_id, { state: "failed", why: textOf(error) })
            continue
          }
          this.mark(next.client_msg_id, { state: "waiting", why: textOf(error) })
          this.later(Math.max(1000 * (error.retryAfter ?? 0), backoffMs(this.attempts++)), () => void this.pump(target))
          return
        }
      }
    } finally {
      this.pumping.delete(target)
    }
  }

  /** @param {Message} message @param {Outgoing} outgoing */
  stored(message, outgoing) {
    const id = message.conversation_id
    batch(() => {
      this.put(message)
      this.sent(outgoing.client_msg_id)
      if (this.place.peek()?.id === null && this.place.peek()?.handle === outgoing.body.to) this.open(id)
    })
    if (!this.conversations.peek().some((one) => one.id === id)) this.list().catch((error) => this.note(textOf(error)))
    this.statesStep = 0
    this.followStates()
  }

  /**
   * Polls for the states of the agent's messages in the open thread, with growing delays. The server pushes no event when a message is
   * delivered.
   */
  followStates() {
    clearTimeout(this.following)
    this.statesStep = Math.min(this.statesStep, STATES_MS.length - 1)
    const wait = STATES_MS[this.statesStep] ?? 30_000
    this.following = setTimeout(() => void this.lookAtStates(), wait)
    this.timers.add(this.following)
  }

  async lookAtStates() {
    const id = this.place.peek()?.id
    if (id === null || id === undefined || this.link.peek().kind !== "live") return
    const timeline = this.timeline(id)
    const after = unsettledAfter(timeline.peek(), this.handle)
    if (after === undefined) return
    if (document.visibilityState === "visible") {
      try {
        /** @type {Array<Message>} */
        const read = await this.api.get(`v1/messages/${id}?limit=${LARGEST_PAGE}&after_seq=${after}`)
        // The timeline is taken after the read, because other reads may have added older messages meanwhile.
        timeline.value = withRead(timeline.peek(), read)
      } catch {
        // The next poll reads again.
      }
    }
    this.statesStep++
    this.followStates()
  }

  /** Hides a message for this agent. @param {Message} message */
  async hide(message) {
    await this.api.call("DELETE", `v1/messages/${message.id}`)
    const timeline = this.timeline(message.conversation_id)
    timeline.value = without(timeline.peek(), message.id)
  }

  /** @param {string} id */
  async hideConversation(id) {
    await this.api.call("DELETE", `v1/conversations/${id}`)
    this.drop(id)
  }
}
