import { batch, effect, signal } from "@preact/signals"

/**
 * @import { Conversation, Message } from "./Wire.ts"
 * @import { Conversations } from "./Conversations.js"
 * @import { Files } from "./Files.js"
 * @import { Signal } from "@preact/signals"
 */

/** How many conversations at the top of the list have their newest messages read. */
const MOST = 50
/** The largest page of a history. */
const LARGEST_PAGE = 200

/**
 * What is known about the end of a conversation. `at` is the time of the newest message, and `message` this message,
 * unless it is not known. `mentions` are the numbers of the unread messages that mention the agent. `counted` is
 * whether `mentions` is complete.
 * @typedef {{ readonly at: string | null, readonly message: Message | undefined, readonly mentions:
 * ReadonlySet<number>, readonly counted: boolean }} End
 */

/** @type {End} */
const unknown = { at: null, message: undefined, mentions: new Set(), counted: false }

/**
 * The newest messages and the unread mentions of the listed conversations. The list that the server returns has neither
 * of them. This reads them one conversation after the other, and then follows the messages that are pushed.
 */
export class Previews {
  /** @param {Files} files @param {Conversations} conversations @param {() => string} handle the agent's own handle */
  constructor(files, conversations, handle) {
    this.files = files
    this.conversations = conversations
    this.handle = handle
    /** @type {Signal<ReadonlyMap<string, End>>} */
    this.ends = signal(new Map())
    /** The names of the files in `ends`, by attachment id. @type {Signal<ReadonlyMap<string, string>>} */
    this.names = signal(new Map())
    this.isReading = false
    this.end = effect(() => {
      if (this.conversations.list.value.length > 0) void this.read()
    })
  }

  /** The newest message of a conversation, if it is known. @param {Conversation} conversation */
  message({ id, last_message_at: at }) {
    const end = this.ends.value.get(id)
    return end?.at === at ? end.message : undefined
  }

  /** The name of a message's file, if it is known. @param {Message | undefined} message */
  fileName(message) {
    return this.names.value.get(message?.content.attachment_id ?? "")
  }

  /** How many unread messages of a conversation mention the agent. @param {Conversation} conversation */
  mentions({ id, oldest_unread_seq: oldest, unread_count: unread }) {
    const mentions = [...this.ends.value.get(id)?.mentions ?? []].filter((seq) => seq >= (oldest ?? 0))
    return Math.min(unread, mentions.length)
  }

  /** Counts a message no longer as an unread mention. @param {Message} message */
  saw({ conversation_id: id, seq }) {
    const end = this.ends.peek().get(id)
    if (end?.mentions.has(seq) !== true) return
    const mentions = new Set([...end.mentions].filter((one) => one !== seq))
    this.ends.value = new Map(this.ends.peek()).set(id, { ...end, mentions })
  }

  /** Reads a conversation again, because its newest message may have changed. @param {string} id */
  forget(id) {
    this.ends.value = new Map([...this.ends.peek()].filter(([other]) => other !== id))
  }

  /** Adds a message that the server has pushed or stored, after the list has got it. @param {Message} message */
  put(message) {
    const item = this.conversations.list.peek().find(({ id }) => id === message.conversation_id)
    if (item === undefined) return
    const before = this.ends.peek().get(item.id) ?? unknown
    const isNewest = item.last_message_at === message.created_at
    const isFirst = item.unread_count <= 1
    const mentions = new Set(isFirst ? [] : before.mentions)
    if (item.unread_count > 0 && this.isMention(message)) mentions.add(message.seq)
    this.set(item.id, {
      at: isNewest ? item.last_message_at : before.at,
      message: isNewest ? message : before.message,
      mentions,
      counted: isFirst || before.counted
    })
  }

  /** @param {Message} message */
  isMention({ context, sender }) {
    return sender !== this.handle() && context?.mentions?.includes(this.handle()) === true
  }

  /** @param {string} id @param {End} end */
  set(id, end) {
    this.ends.value = new Map(this.ends.peek()).set(id, end)
    const file = end.message?.content.text === undefined ? end.message?.content.attachment_id : undefined
    if (file === undefined || this.names.peek().has(file)) return
    this.files.info(file).then(({ filename }) => {
      this.names.value = new Map(this.names.peek()).set(file, filename)
    }, () => undefined)
  }

  /** Whether the end of a conversation must be read. @param {Conversation} conversation */
  isUnknown({ id, last_message_at: at, last_message_type: type, type: kind, unread_count: unread }) {
    const end = this.ends.peek().get(id) ?? unknown
    if (at === null) return false
    return (end.at !== at && (kind === "group" || type !== "text" || unread > 0)) || (unread > 0 && !end.counted)
  }

  /** Reads the conversations whose end is not known, in the order of the list. */
  async read() {
    if (this.isReading) return
    this.isReading = true
    const next = () => this.conversations.list.peek().slice(0, MOST).find((one) => this.isUnknown(one))
    for (let item = next(); item !== undefined; item = next()) await this.readEnd(item)
    this.isReading = false
  }

  /** @param {Conversation} conversation */
  async readEnd({ id, last_message_at: at, oldest_unread_seq: oldest, unread_count: unread }) {
    const isUnread = unread > 0 && oldest !== null && oldest !== undefined
    const limit = isUnread ? LARGEST_PAGE : 1
    const query = isUnread ? `limit=${limit}&after_seq=${oldest - 1}` : `limit=${limit}`
    const read = await this.conversations.histories.page(id, query).catch(() => [])
    // Messages that came during the read are newer.
    const item = this.conversations.list.peek().find((one) => one.id === id)
    const before = this.ends.peek().get(id)
    const isCurrent = item?.last_message_at === at
    const found = read.filter((message) => this.isMention(message)).map(({ seq }) => seq)
    const newest = isUnread && read.length === limit ? undefined : read.at(-1)
    batch(() =>
      this.set(id, {
        at: isCurrent ? at : before?.at ?? at,
        message: isCurrent ? newest : before?.message,
        mentions: new Set(isCurrent ? found : [...found, ...before?.mentions ?? []]),
        counted: true
      })
    )
  }
}
