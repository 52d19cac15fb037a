import { computed, signal } from "@preact/signals"
import { Refused, textOf } from "./Api.js"
import { closeGap, empty, gapAfter, without, withLive, withRead } from "./Timeline.js"

/**
 * @import { Conversation, Group, Message } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Notices } from "./Notices.js"
 * @import { Timeline } from "./Timeline.js"
 * @import { Signal } from "@preact/signals"
 */

const PAGE = 50
export const LARGEST_PAGE = 200

/**
 * The subject of an open thread: a conversation, or an agent with which there is no conversation yet.
 * @typedef {{ readonly id: string | null, readonly handle: string | null }} Place
 */

/** @param {Message} message */
const previewOf = ({ content, type }) =>
  content.text !== undefined && content.text !== ""
    ? content.text.replace(/\s+/g, " ").slice(0, 140)
    : type === "system" ? "Something about the group changed" : content.attachment_id === undefined ? "Data" : "A file"

/** An agent's conversations and groups, and the messages of the conversations that were opened. */
export class Conversations {
  /** @param {Api} api @param {Notices} notices */
  constructor(api, notices) {
    this.api = api
    this.notices = notices
    /** @type {Signal<ReadonlyArray<Conversation>>} */
    this.list = signal([])
    this.listed = signal(false)
    /** The open thread. @type {Signal<Place | null>} */
    this.place = signal(null)
    this.unread = computed(() => this.list.value.reduce((sum, one) => sum + (one.is_muted ? 0 : one.unread_count), 0))
    /** @type {Map<string, Signal<Timeline>>} */
    this.timelines = new Map()
    /** @type {Map<string, Signal<Group | null>>} */
    this.groups = new Map()
    /** Conversations whose messages are being read. @type {Set<string>} */
    this.filling = new Set()
  }

  /** Reads the list of conversations. */
  async load() {
    this.list.value = await this.api.all("v1/conversations", "conversations")
    this.listed.value = true
  }

  /** Reads the list. If that fails, shows the reason. */
  reload() {
    this.load().catch((error) => this.notices.note(textOf(error)))
  }

  /** @param {string} id */
  has(id) {
    return this.list.peek().some((one) => one.id === id)
  }

  /** Opens a conversation, and reads its newest messages. @param {string} id */
  open(id) {
    this.place.value = { id, handle: null }
    this.timeline(id)
    void this.catchUp(id)
    if (id.startsWith("grp_")) void this.loadGroup(id)
  }

  /** Reads the new messages of all conversations that were opened. */
  catchUpAll() {
    return Promise.all([...this.timelines.keys()].map((id) => this.catchUp(id)))
  }

  /** Adds a message that the server has pushed or stored. @param {Message} message @param {boolean} own */
  put(message, own) {
    const { conversation_id: id, delivery_id: delivery } = message
    const timeline = this.timelines.get(id)
    if (timeline !== undefined) {
      timeline.value = withLive(timeline.peek(), message)
      if (gapAfter(timeline.peek()) !== undefined) void this.catchUp(id)
    }
    if (message.type === "system" && this.groups.has(id)) void this.loadGroup(id)
    const list = this.list.peek()
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
    this.list.value = [after, ...list.filter((one) => one.id !== id)]
  }

  /** @param {string} id @returns {Signal<Timeline>} */
  timeline(id) {
    const there = this.timelines.get(id)
    if (there !== undefined) return there
    const made = signal(empty)
    this.timelines.set(id, made)
    return made
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
      if (!(error instanceof Refused) || !error.passing) this.notices.note(textOf(error))
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
      this.notices.note(textOf(error))
    } finally {
      this.filling.delete(id)
    }
  }

  /** @param {string} id @param {Partial<Conversation>} change */
  change(id, change) {
    this.list.value = this.list.peek().map((one) => one.id === id ? { ...one, ...change } : one)
  }

  /** Removes a conversation that the agent has left or hidden, or that was deleted. @param {string} id */
  drop(id) {
    this.list.value = this.list.peek().filter((one) => one.id !== id)
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
