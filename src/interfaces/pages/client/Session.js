import { batch, computed, signal } from "@preact/signals"
import { Drafts } from "../tab/Drafts.js"
import { Levels } from "../tab/Levels.js"
import { Api, textOf } from "./Api.js"
import { Conversations } from "./Conversations.js"
import { Files } from "./Files.js"
import { Hiding } from "./Hiding.js"
import { ListPoll } from "./ListPoll.js"
import { Mentions } from "./Mentions.js"
import { Notices } from "./Notices.js"
import { Outbox } from "./Outbox.js"
import { Presences } from "./Presences.js"
import { Previews } from "./Previews.js"
import { Reading } from "./Reading.js"
import { Search } from "./Search.js"
import { AgentSocket } from "./Socket.js"
import { StatePoll } from "./StatePoll.js"
import { withOutcome, withReceipt, withRemoval } from "./Timeline.js"
import { Timers } from "./Timers.js"
import { Uploads } from "./Uploads.js"

/**
 * @import { Agent, Invite, Message, OutcomeChange, Outgoing, Receipt } from "./Wire.ts"
 * @import { Place } from "./Conversations.js"
 * @import { Link } from "./Socket.js"
 * @import { Signal } from "@preact/signals"
 */

/** @typedef {"conversations" | "people" | "new" | "me"} View */

/** How long reactions are collected before they are read, in milliseconds. */
const REACTIONS_MS = 200

/**
 * One signed-in agent: its connection, and the state that the connection keeps current. The parts of this state do not
 * depend on the session.
 */
export class Session {
  /**
   * @param {string} key
   * @param {boolean} watching whether the session only watches: it acknowledges no messages, marks none as read and
   * sends none
   * @param {(message: Message) => void} onFresh called for an unread message that has arrived while the session was
   * connected
   */
  constructor(key, watching, onFresh = () => undefined) {
    this.key = key
    this.watching = watching
    this.onFresh = onFresh
    this.api = new Api(key)
    this.timers = new Timers()
    this.notices = new Notices(this.timers)
    this.conversations = new Conversations(this.api, this.notices)
    this.files = new Files(this.api)
    this.previews = new Previews(this.files, this.conversations, () => this.handle)
    this.uploads = new Uploads(this.api)
    this.hiding = new Hiding(this.api, this.timers, this.notices, this.conversations)
    this.mentions = new Mentions(this.api, this.conversations, () => this.handle)
    this.reading = new Reading(
      this.api,
      this.timers,
      this.conversations,
      this.previews,
      () => this.handle,
      (id, seq) =>
        this.socket?.say({ type: "message.read_ack", payload: { conversation_id: id, through_seq: seq } }) === true
    )
    this.drafts = new Drafts(() => this.handle)
    this.levels = new Levels(() => this.handle)
    this.search = new Search(this.api, this.timers, this.conversations, this.files)
    this.presences = new Presences(this.api, this.timers)
    this.outbox = new Outbox(this.api, this.timers, (message, outgoing) => this.stored(message, outgoing))
    this.states = new StatePoll(
      this.api,
      this.timers,
      this.conversations,
      () => this.link.peek().kind === "live" ? this.handle : undefined
    )
    this.lists = new ListPoll(this.timers, this.conversations, () => this.link.peek().kind === "live")
    /** @type {Signal<Agent | null>} */
    this.me = signal(null)
    /** @type {Signal<Link>} */
    this.link = signal({ kind: "connecting" })
    /** @type {Signal<ReadonlyArray<Invite>>} */
    this.invites = signal([])
    /** How many unread messages may notify the person: none of a muted conversation. */
    this.unread = computed(() =>
      this.conversations.list.value.reduce(
        (sum, one) =>
          sum + (one.is_muted
            ? 0
            : this.levels.mentionsOnly.value.has(one.id)
            ? this.previews.mentions(one)
            : one.unread_count),
        0
      )
    )
    /** What the pane shows beside the open conversation. @type {Signal<View>} */
    this.view = signal("conversations")
    /** The handle of the agent whose profile is shown over the pane; null if none is. @type {Signal<string | null>} */
    this.profile = signal(null)
    /** The picture that is shown over the pane; null if none is. @type {Signal<{ url: string, name: string } | null>} */
    this.picture = signal(null)
    /**
     * Counts batches of received messages. When the count changes, the component `Acknowledger` acknowledges the
     * messages that were drawn.
     */
    this.arrived = signal(0)
    /** Ids of received messages that are acknowledged after the next draw. @type {Array<string>} */
    this.shown = []
    /** @type {Array<Message>} */
    this.incoming = []
    /** The ids of messages whose reactions have changed, with their conversations. @type {Map<string, string>} */
    this.reactedTo = new Map()
    /** Whether a read of reactions is under way, or begins soon. */
    this.readsReactions = false
    /** @type {AgentSocket | undefined} */
    this.socket = undefined
    /**
     * When the newest message at the time of the first connect was sent. Messages up to that time cause no
     * notification.
     * @type {string | undefined}
     */
    this.since = undefined
  }

  get handle() {
    return this.me.peek()?.handle ?? ""
  }

  /** Checks the key and connects. Fails if the key is not valid. */
  async begin() {
    this.me.value = await this.api.get("v1/agents/me")
    this.drafts.load()
    this.levels.load()
    if (this.me.value?.status === "suspended") {
      this.link.value = {
        kind: "refused",
        why:
          "This agent is suspended. Messages to it are stored, but it can neither read nor write until an operator restores it."
      }
      return
    }
    this.connect()
  }

  connect() {
    this.socket = new AgentSocket(this.key, {
      link: (link) => {
        this.link.value = link
      },
      hello: () => void this.refresh(),
      frame: (type, payload) => this.receive(type, payload)
    })
  }

  /**
   * Ends the session. Hides on the server at once what the person has hidden, and removes the agent's drafts from the
   * tab and its choices of notifications from the browser.
   */
  signOut() {
    this.hiding.flush()
    this.drafts.forget()
    this.levels.forget()
    this.end()
  }

  /** Connects with the agent's new key. The server refuses the former key. @param {string} key */
  renew(key) {
    this.key = key
    this.api.key = key
    this.socket?.end()
    this.connect()
  }

  end() {
    this.socket?.end()
    this.timers.end()
    this.previews.end()
    this.files.end()
    this.uploads.end()
  }

  /** Reads everything that may have changed while there was no connection. Runs after each connect. */
  async refresh() {
    await Promise.all([
      this.conversations.load(),
      this.api.get("v1/groups/invites").then((invites) => {
        this.invites.value = invites
      }),
      this.conversations.catchUpAll()
    ]).catch((error) => this.notices.note(textOf(error)))
    if (this.conversations.listed.peek()) this.since ??= this.conversations.list.peek()[0]?.last_message_at ?? ""
    const place = this.conversations.place.peek()
    if (place?.id === null && place.handle !== null) this.openWith(place.handle)
    this.outbox.flush()
    this.states.follow()
    this.lists.begin()
    await this.presences.ask(
      this.conversations.list.peek().flatMap(({ participants }) => participants.map(({ handle }) => handle))
    )
  }

  /** Handles a frame of the socket. @param {string} type @param {any} payload */
  receive(type, payload) {
    switch (type) {
      case "message.new": {
        this.incoming.push(payload)
        if (this.incoming.length === 1) this.timers.later(0, () => this.take())
        return
      }
      case "message.read": {
        const receipt = /** @type {Receipt} */ (payload)
        const timeline = this.conversations.histories.timelines.get(receipt.conversation_id)
        if (timeline === undefined) return
        if (receipt.conversation_id.startsWith("grp_")) return this.states.follow()
        timeline.value = withReceipt(timeline.peek(), receipt, this.handle)
        return
      }
      case "message.reaction": {
        const { conversation_id: id, message_id: message } = payload
        const timeline = this.conversations.histories.timelines.get(id)?.peek()
        if (timeline?.messages.some((one) => one.id === message) !== true) return
        this.reactedTo.set(message, id)
        if (this.readsReactions) return
        this.readsReactions = true
        this.timers.later(REACTIONS_MS, () => this.readReactions())
        return
      }
      case "message.outcome": {
        const change = /** @type {OutcomeChange} */ (payload)
        if (this.incoming.length > 0) this.take()
        const timeline = this.conversations.histories.timelines.get(change.conversation_id)
        if (timeline === undefined || change.conversation_id.startsWith("grp_")) return
        timeline.value = withOutcome(timeline.peek(), change)
        return
      }
      case "message.removed": {
        if (this.incoming.length > 0) this.take()
        const timeline = this.conversations.histories.timelines.get(payload.conversation_id)
        if (timeline !== undefined) timeline.value = withRemoval(timeline.peek(), payload.message_id)
        this.previews.forget(payload.conversation_id)
        return this.conversations.reload()
      }
      case "presence.update": {
        this.presences.set(payload)
        return
      }
      case "typing.start":
      case "typing.stop": {
        this.presences.setTyping(payload.conversation_id, payload.sender, type === "typing.start")
        return
      }
      case "group.invite.received": {
        this.invites.value = [...this.invites.peek().filter(({ id }) => id !== payload.id), payload]
        return
      }
      case "group.deleted": {
        const gone = this.conversations.list.peek().find(({ id }) => id === payload.group_id)
        this.notices.note(`@${payload.deleted_by_handle ?? "somebody"} deleted the group ${gone?.group_name ?? ""}.`)
        this.conversations.drop(payload.group_id)
        return
      }
      case "rate_limit.warning":
      case "error": {
        this.notices.note(payload.message)
        return
      }
    }
  }

  /**
   * Adds all messages that have arrived since the last call in one update, so that a large backlog is drawn only a few
   * times.
   */
  take() {
    const messages = this.incoming
    this.incoming = []
    const unknown = messages.some((message) => !this.conversations.has(message.conversation_id))
    batch(() => {
      for (const message of messages) this.put(message)
      this.arrived.value++
    })
    if (unknown) this.conversations.reload()
  }

  /** @param {Message} message */
  put(message) {
    const { conversation_id: id, delivery_id: delivery, sender } = message
    const own = sender === this.handle
    if (own) this.outbox.remove(message.client_msg_id)
    if (delivery !== null && delivery !== undefined) this.shown.push(message.id)
    if (this.presences.typing.peek().get(id)?.has(sender)) this.presences.setTyping(id, sender, false)
    if (!own) this.hiding.undo(id)
    const fresh = this.conversations.put(message, own)
    this.previews.put(message)
    if (fresh && message.type !== "system" && this.since !== undefined && message.created_at > this.since)
      this.onFresh(message)
  }

  /**
   * Acknowledges the received messages. Call it after they are drawn. The server then offers messages again that were
   * not drawn.
   */
  acknowledge() {
    if (this.watching || this.shown.length === 0) return
    // If an acknowledgement cannot be sent now, the server offers the message again at the next connect.
    for (const id of this.shown) this.socket?.say({ type: "ack", message_id: id })
    this.shown = []
  }

  /**
   * Opens a conversation at its first unread message, and polls for the states of its messages.
   * @param {string} id
   */
  open(id) {
    this.conversations.open(id)
    this.states.follow()
  }

  /** Shows the newest messages of the open conversation. @param {string} id */
  openNewest(id) {
    this.conversations.openNewest(id)
    this.states.follow()
  }

  /** Opens a conversation at a message, from a link or a search result. @param {string} id @param {number} seq */
  openAt(id, seq) {
    this.conversations.openAt(id, seq)
    this.states.follow()
  }

  /** Opens the place that a URL names. @param {Place | null} place */
  go(place) {
    if (place === null) this.conversations.place.value = null
    else if (place.id === null) this.openWith(place.handle ?? "")
    else if (place.at === undefined) this.open(place.id)
    else this.openAt(place.id, place.at)
  }

  /** Opens the conversation with an agent, even if the conversation does not exist yet. @param {string} handle */
  openWith(handle) {
    const there = this.conversations.list.peek().find(({ participants, type }) =>
      type === "direct" && participants[0]?.handle === handle
    )
    if (there === undefined) this.conversations.place.value = { id: null, handle }
    else this.open(there.id)
  }

  /** Reads the reactions to the messages that somebody has reacted to. */
  async readReactions() {
    const changed = [...this.reactedTo]
    this.reactedTo.clear()
    for (const [message, id] of changed)
      await this.conversations.histories.readReactions(id, message).catch(() => undefined)
    this.readsReactions = this.reactedTo.size > 0
    // Read again what has changed meanwhile.
    if (this.readsReactions) this.timers.later(REACTIONS_MS, () => this.readReactions())
  }

  /**
   * Gives a reaction to a message, or takes it back.
   * @param {Message} message
   * @param {string} emoji
   * @param {boolean} add
   */
  react({ conversation_id: id, id: message }, emoji, add) {
    return this.notices.attempt(async () => {
      const { reactions } = await this.api.call(
        add ? "PUT" : "DELETE",
        `v1/messages/${message}/reactions/${encodeURIComponent(emoji)}`
      )
      this.conversations.histories.setReactions(id, message, reactions)
    })
  }

  /** Marks messages as read that the person sees now. @param {string} id @param {ReadonlyArray<Message>} messages */
  saw(id, messages) {
    if (!this.watching) this.reading.saw(id, messages)
  }

  /** Marks all messages up to this seq as read. @param {string} id @param {number} seq */
  markRead(id, seq) {
    if (this.watching || this.reading.mark(id, { through: seq, single: [] })) return
    this.notices.note("Nothing was marked as read, because there is no connection. Try again when it is back.")
  }

  /**
   * Notifies the other members of the conversation that the agent is typing or has stopped typing.
   * @param {string} id
   * @param {boolean} writing
   */
  signalTyping(id, writing) {
    this.socket?.say({ type: writing ? "typing.start" : "typing.stop", payload: { conversation_id: id } })
  }

  /**
   * Handles the response to a send. The stored message replaces the outgoing message.
   * @param {Message} message
   * @param {Outgoing} outgoing
   */
  stored(message, outgoing) {
    const id = message.conversation_id
    batch(() => {
      this.put(message)
      this.outbox.remove(outgoing.client_msg_id)
      const place = this.conversations.place.peek()
      if (place?.id === null && place.handle === outgoing.body.to) this.open(id)
    })
    if (!this.conversations.has(id)) this.conversations.reload()
    this.states.restart()
  }
}
