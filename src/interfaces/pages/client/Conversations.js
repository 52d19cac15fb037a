import { signal } from "@preact/signals"
import { Refused, textOf } from "./Api.js"
import { Histories, PAGE } from "./Histories.js"

/**
 * @import { Conversation, Group, Message } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Notices } from "./Notices.js"
 * @import { Signal } from "@preact/signals"
 */

/**
 * What an open thread shows: a conversation, or an agent with which there is no conversation yet. `at` is the seq of
 * the message at which the thread was opened. `unread` is the seq of the first message that was unread at that time, if
 * the thread was opened there.
 * @typedef {{ readonly id: string | null, readonly handle: string | null, readonly at?: number, readonly unread?: number }} Place
 */

/** How long the server may take to know of a change, in milliseconds. */
const SETTLE_MS = 5_000

/** An agent's conversations and groups, and the messages of the opened conversations. */
export class Conversations {
  /** @param {Api} api @param {Notices} notices */
  constructor(api, notices) {
    this.api = api
    this.notices = notices
    /** @type {Signal<ReadonlyArray<Conversation>>} */
    this.list = signal([])
    this.listed = signal(false)
    /** When the page changed a conversation in the list itself, in milliseconds since 1970. */
    this.changedAt = 0
    /** The handles of the agents that this agent blocks. @type {Signal<ReadonlySet<string>>} */
    this.blocked = signal(new Set())
    /** The open thread. @type {Signal<Place | null>} */
    this.place = signal(null)
    this.histories = new Histories(api, notices, (id) => this.drop(id))
    /** @type {Map<string, Signal<Group | null>>} */
    this.groups = new Map()
  }

  /** Reads the list of conversations and the agents that this agent blocks. */
  async load() {
    const [list, blocks] = await Promise.all([
      this.api.all("v1/conversations", "conversations"),
      this.api.all("v1/contacts/blocks", "blocks")
    ])
    this.blocked.value = new Set(blocks.map(({ handle }) => handle))
    this.list.value = list
    const isFirst = !this.listed.peek()
    this.listed.value = true
    const { at, id } = this.place.peek() ?? {}
    if (isFirst && id !== undefined && id !== null && at === undefined) this.readOpened(id)
  }

  /** Reads the list. If that fails, shows the reason. */
  reload() {
    this.load().catch((error) => this.notices.note(textOf(error)))
  }

  /**
   * Reads the conversations at the top of the list again, and what is new in the open one. Reads nothing while the
   * server may not know yet what the page has changed.
   */
  async refresh() {
    if (Date.now() - this.changedAt < SETTLE_MS) return
    const before = this.list.peek()
    const { conversations } = await this.api.get("v1/conversations")
    // What has changed meanwhile may be newer than the answer.
    if (this.list.peek() !== before) return
    const read = new Set(conversations.map((/** @type {Conversation} */ { id }) => id))
    this.list.value = [...conversations, ...before.filter(({ id }) => !read.has(id))]
    const open = conversations.find((/** @type {Conversation} */ { id }) => id === this.place.peek()?.id)
    if (open === undefined) return
    const newest = this.timeline(open.id).peek().messages.at(-1)?.created_at ?? ""
    if (newest < (open.last_message_at ?? "")) await this.histories.catchUp(open.id)
  }

  /** @param {string} id */
  has(id) {
    return this.list.peek().some((one) => one.id === id)
  }

  /** Opens a conversation at its first unread message, or at its end. @param {string} id */
  open(id) {
    this.place.value = { id, handle: null }
    // What is unread is known only after the list is read.
    if (this.listed.peek()) this.readOpened(id)
    if (id.startsWith("grp_")) void this.loadGroup(id)
  }

  /** Reads the messages that an opened conversation shows first. @param {string} id */
  readOpened(id) {
    const unread = this.list.peek().find((one) => one.id === id)?.oldest_unread_seq ?? null
    if (unread === null) return void this.histories.newest(id)
    this.place.value = { id, handle: null, unread }
    void this.histories.unread(id, unread)
  }

  /** Shows the newest messages of the open conversation. @param {string} id */
  openNewest(id) {
    this.place.value = { id, handle: null }
    void this.histories.newest(id)
  }

  /** Opens a conversation at a message. The thread highlights this message. @param {string} id @param {number} seq */
  openAt(id, seq) {
    this.place.value = { id, handle: null, at: seq }
    void this.histories.around(id, seq)
    if (id.startsWith("grp_")) void this.loadGroup(id)
  }

  /** Reads the new messages of all opened conversations. */
  catchUpAll() {
    const { at, id: open } = this.place.peek() ?? {}
    return Promise.all(
      [...this.histories.timelines].map(([id, timeline]) =>
        id === open && timeline.peek().messages.length === 0 && (at !== undefined || !this.listed.peek())
          ? at !== undefined && this.histories.around(id, at)
          // No event repeats the reactions and outcomes that were given while there was no connection.
          : this.histories.catchUp(id, PAGE)
      )
    )
  }

  /**
   * Adds a message that the server has pushed or stored. Returns true if the person has not seen the message yet.
   * @param {Message} message
   * @param {boolean} own
   */
  put(message, own) {
    const { conversation_id: id, delivery_id: delivery } = message
    this.histories.put(message)
    if (message.type === "system" && this.groups.has(id)) void this.loadGroup(id)
    const list = this.list.peek()
    const index = list.findIndex((one) => one.id === id)
    const before = list[index]
    const fresh = !own && message.seq > (before?.newest_unread_seq ?? 0) && delivery !== null && delivery !== undefined
    if (before === undefined || (before.last_message_at ?? "") > message.created_at) return fresh
    const after = {
      ...before,
      last_message_preview: message.content.text?.slice(0, 140) ?? null,
      last_message_is_own: own,
      last_message_type: message.type,
      last_message_at: message.created_at,
      unread_count: before.unread_count + (fresh ? 1 : 0),
      oldest_unread_seq: fresh && before.unread_count === 0 ? message.seq : before.oldest_unread_seq,
      newest_unread_seq: fresh ? message.seq : before.newest_unread_seq
    }
    this.list.value = [after, ...list.filter((one) => one.id !== id)]
    return fresh
  }

  /** The loaded messages of a conversation. @param {string} id */
  timeline(id) {
    return this.histories.timeline(id)
  }

  /** @param {string} id @param {Partial<Conversation>} change */
  change(id, change) {
    this.changedAt = Date.now()
    this.list.value = this.list.peek().map((one) => one.id === id ? { ...one, ...change } : one)
  }

  /** Removes a conversation that the agent has left or hidden, or that was deleted. @param {string} id */
  drop(id) {
    this.list.value = this.list.peek().filter((one) => one.id !== id)
    this.histories.timelines.delete(id)
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

  /**
   * The name of a group, even if the group is hidden from the list; undefined for a group that the agent is not in.
   * @param {string} id
   * @returns {Promise<string | undefined>}
   */
  async groupName(id) {
    const listed = this.list.peek().find((one) => one.id === id)?.group_name
    return listed ?? this.api.get(`v1/groups/${id}`).then(({ name }) => name, (error) => {
      if (error instanceof Refused && (error.status === 404 || error.status === 410)) return undefined
      throw error
    })
  }
}
