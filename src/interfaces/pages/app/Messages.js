import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import { taskStates } from "../client/Tasks.js"
import { covers, unreadBeyond } from "../client/Timeline.js"
import { lineOf } from "../content/Line.js"
import { html } from "../shared/Html.js"
import { number } from "../shared/Texts.js"
import { MessageRow, OutgoingRow } from "./MessageRow.js"
import { VirtualList } from "./VirtualList.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Place } from "../client/Conversations.js"
 * @import { Session } from "../client/Session.js"
 * @import { Timeline } from "../client/Timeline.js"
 * @import { Root } from "./Answers.js"
 * @import { Handle } from "./VirtualList.js"
 */

/** Whether the person can see this page now. Messages on the page count as read only if the person can see it. */
const isVisible = () => document.visibilityState === "visible" && document.hasFocus()

/**
 * What is unread in an open conversation: where the line *New messages* is, how many messages are unread above and below
 * the screen, and which messages become read because they are on the screen.
 * @param {Session} session
 * @param {string} id
 * @param {Place} place
 * @param {Timeline} timeline what the list shows
 * @param {boolean} isAtEnd
 * @param {{ current: Handle | null }} list
 */
const useUnread = (session, id, place, timeline, isAtEnd, list) => {
  const item = session.conversations.list.value.find((one) => one.id === id)
  const unread = item ?? { unread_count: 0, oldest_unread_seq: null, newest_unread_seq: null }
  const count = unread.unread_count
  const [line, setLine] = useState(place.unread)
  const [beyond, setBeyond] = useState({ above: 0, below: 0, isExact: true })
  const view = useRef({ first: 0, last: -1 })
  /** The place that the list has moved to. Before, what is on the screen does not become read. */
  const arrived = useRef(/** @type {Place | null} */ (null))
  /** Whether the first unread message takes the focus when the list has moved to it. */
  const takesFocus = useRef(false)
  const before = useRef(count)
  const isThere = place.unread === undefined || covers(timeline, place.unread)

  const markSeen = () => {
    if (count === 0 || arrived.current !== place || !isVisible()) return
    session.saw(id, timeline.messages.slice(view.current.first, view.current.last + 1))
  }
  const onView = (/** @type {number} */ first, /** @type {number} */ last) => {
    view.current = { first, last }
    markSeen()
    const next = unreadBeyond(timeline, unread, session.handle, first, last)
    if (next.above !== beyond.above || next.below !== beyond.below || next.isExact !== beyond.isExact) setBeyond(next)
  }
  useLayoutEffect(() => {
    if (!isThere || arrived.current === place || !session.conversations.listed.peek()) return
    arrived.current = place
    if (place.unread === undefined) return markSeen()
    const seq = place.unread
    setLine(seq)
    const first = timeline.messages.find((message) => message.seq >= seq)
    if (first !== undefined) list.current?.reveal(first.id, { middle: true, focus: takesFocus.current })
    takesFocus.current = false
  })
  useEffect(() => {
    if (before.current === 0 && count > 0 && !(isAtEnd && isVisible())) setLine(unread.oldest_unread_seq ?? undefined)
    before.current = count
  }, [count])
  useEffect(() => {
    markSeen()
    document.addEventListener("visibilitychange", markSeen)
    addEventListener("focus", markSeen)
    return () => {
      document.removeEventListener("visibilitychange", markSeen)
      removeEventListener("focus", markSeen)
    }
  })
  return {
    ...beyond,
    line,
    onView,
    toFirst: () => {
      takesFocus.current = true
      session.open(id)
    },
    markAll: () => {
      session.markRead(id, Math.max(unread.newest_unread_seq ?? 0, timeline.messages.at(-1)?.seq ?? 0))
      list.current?.focus()
    }
  }
}

/** How many messages are unread, or how many at least; nothing if none are. @param {{ of: number, isExact: boolean }} props */
const Count = ({ isExact, of }) =>
  of === 0
    ? null
    : html`<span class="count">${number(of)}${isExact ? "" : "+"}<span class="unseen"> unread</span></span>`

/**
 * The messages of a conversation, as a feed in which the arrow keys move from message to message.
 * @param {object} props
 * @param {Session} props.session
 * @param {string} props.id
 * @param {Place} props.place
 * @param {(message: Message) => void} props.onReply
 * @param {(root: Root) => void} props.onAnswers opens a message with its answers
 */
export const Messages = ({ id, onAnswers, onReply, place, session }) => {
  const { at } = place
  const timeline = session.conversations.timeline(id).value
  const { complete, messages: loaded, newer } = timeline
  const hidden = session.hiding.waiting.value
  const messages = hidden.size === 0 ? loaded : loaded.filter((one) => !hidden.has(one.id))
  const item = session.conversations.list.value.find((one) => one.id === id)
  const handle = item?.participants[0]?.handle
  // A read may return a message before the response to its send arrives. Do not show such a message twice.
  const there = new Set(messages.slice(-200).map((one) => one.sender === session.handle ? one.client_msg_id : ""))
  const pending = session.outbox.messages.value.filter(({ body, client_msg_id: own }) =>
    !there.has(own) &&
    (body.conversation_id === id || (body.to !== undefined && body.to === handle && item?.type === "direct"))
  )
  const [end, setEnd] = useState(true)
  const [active, setActive] = useState(/** @type {string | null} */ (null))
  const [said, setSaid] = useState("")
  const list = useRef(/** @type {Handle | null} */ (null))
  const keys = useMemo(() => [...messages.map((one) => one.id), ...pending.map((one) => one.client_msg_id)], [
    loaded,
    hidden,
    session.outbox.messages.value
  ])
  const byId = useMemo(() => new Map(messages.map((one) => [one.id, one])), [loaded, hidden])
  const answered = useMemo(() => new Set(messages.map(({ metadata }) => metadata["reply_to"])), [loaded, hidden])
  const tasks = useMemo(() => item?.type === "direct" ? taskStates(loaded) : new Map(), [loaded, item?.type])
  const newest = messages.at(-1)
  const marked = at === undefined ? undefined : messages.find(({ seq }) => seq === at)

  const unread = useUnread(session, id, place, { ...timeline, messages }, end && !newer, list)
  const { above, below, isExact } = unread
  useEffect(() => {
    if (newest !== undefined && newest.sender !== session.handle)
      setSaid(newest.type === "system" ? lineOf(newest) : `@${newest.sender}: ${lineOf(newest)}`)
  }, [newest?.id])
  const wasPending = useRef(pending.length)
  useEffect(() => {
    if (pending.length > wasPending.current) toEnd()
    wasPending.current = pending.length
  }, [pending.length])
  useEffect(() => {
    if (marked === undefined) return
    setActive(marked.id)
    list.current?.reveal(marked.id, { middle: true })
  }, [at, marked?.id])

  const toEnd = () => {
    if (newer || at !== undefined) session.openNewest(id)
    list.current?.toEnd()
  }
  const { line } = unread
  const firstNew = line === undefined || !covers(timeline, line)
    ? undefined
    : messages.find(({ seq, sender }) => seq >= line && sender !== session.handle)?.id
  const tabbed = active !== null && byId.has(active) ? active : newest?.id
  const go = (/** @type {number} */ index) => {
    const message = messages[Math.max(0, Math.min(messages.length - 1, index))]
    if (message === undefined) return
    setActive(message.id)
    list.current?.reveal(message.id)
  }
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (!(event.target instanceof HTMLElement) || event.target.tagName !== "ARTICLE") return
    const index = messages.findIndex((one) => one.id === tabbed)
    const steps = {
      ArrowUp: index - 1,
      ArrowDown: index + 1,
      PageUp: index - 10,
      PageDown: index + 10,
      Home: 0,
      End: messages.length - 1
    }
    const next = /** @type {Record<string, number | undefined>} */ (steps)[event.key]
    if (next !== undefined) {
      event.preventDefault()
      go(next)
    } else if (event.key === "r" && !event.ctrlKey && !event.metaKey && !session.watching) {
      event.preventDefault()
      const message = messages[index]
      if (message !== undefined) onReply(message)
    }
  }
  /**
   * The first message of the thread, or the message before those that are loaded.
   * @param {Message} message
   * @returns {Root}
   */
  const rootOf = (message) => {
    let root = message
    let parent = quotedBy(root)
    for (; parent && parent.seq < root.seq; parent = quotedBy(root)) root = parent
    return parent === null ? { id: String(root.metadata["reply_to"]), conversation_id: id } : root
  }
  const quotedBy = (/** @type {Message} */ message) => {
    const replyTo = message.metadata["reply_to"]
    return typeof replyTo === "string" ? byId.get(replyTo) ?? null : undefined
  }
  const causeOf = (/** @type {Message} */ message) => {
    const cause = message.metadata["caused_by"]
    if (typeof cause !== "string" || cause === message.metadata["reply_to"] || byId.has(cause)) return undefined
    return session.conversations.histories.find(cause)
  }
  const row = (/** @type {number} */ index) => {
    const message = messages[index]
    if (message === undefined) {
      const outgoing = pending[index - messages.length]
      return outgoing === undefined
        ? null
        : html`<${OutgoingRow} key=${outgoing.client_msg_id} session=${session} outgoing=${outgoing} />`
    }
    return html`<${MessageRow} key=${message.id} session=${session} message=${message} before=${
      messages[index - 1]
    } task=${tasks.get(message.id)} quoted=${quotedBy(message)} cause=${causeOf(message)}
      active=${message.id === tabbed} isFirstNew=${message.id === firstNew} marked=${message.seq === at} position=${
      index + 1
    } size=${complete && !newer ? messages.length : -1} onReply=${onReply} onAnswers=${
      answered.has(message.id) || quotedBy(message) !== undefined ? () => onAnswers(rootOf(message)) : undefined
    }
      onQuote=${(/** @type {string} */ quoted) => go(messages.findIndex((one) => one.id === quoted))}
      onFocus=${() => setActive(message.id)} />`
  }

  const markAll = session.watching
    ? null
    : html`<button type="button" class="quiet" onClick=${unread.markAll}>Mark all as read</button>`
  return html`<div class="messages">
    ${
    messages.length === 0 && pending.length === 0 ?
      html`<p class="empty">${
        complete
          ? `No messages yet.${id.startsWith("grp_") ? " You see what is written from when you joined." : ""}`
          : "Loading …"
      }</p>` :
      null
  }
    ${!complete && messages.length > 0 ? html`<p class="unseen">Scroll up to load older messages.</p>` : null}
    ${
    above === 0 ? null : html`<p class="first-unread">
      <button type="button" onClick=${unread.toFirst}>First unread ↑ <${Count} of=${above} isExact=${isExact} /></button>
      ${markAll}</p>`
  }
    <${VirtualList} keys=${keys} row=${row} label="Messages" handle=${list} onKey=${onKey} more=${newer}
      onTop=${() => void session.conversations.histories.older(id)} onBottom=${() =>
    void session.conversations.histories.newer(id)} onEnd=${(/** @type {boolean} */ at) =>
    setEnd(at)} onView=${unread.onView} />
    ${
    end && !newer
      ? null
      : html`<p class="to-end"><button type="button" onClick=${toEnd}>Newest ↓ <${Count} of=${below} isExact=${isExact} /></button>
      ${above === 0 && below > 0 ? markAll : null}</p>`
  }
    <p class="unseen" role="status" aria-live="polite">${said}</p>
  </div>`
}
