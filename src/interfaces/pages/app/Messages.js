import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { taskStates } from "../client/Tasks.js"
import { html } from "../shared/Html.js"
import { MessageRow, OutgoingRow } from "./MessageRow.js"
import { VirtualList } from "./VirtualList.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** Whether the person can see this page now. Messages on the page count as read only if the person can see it. */
const seen = () => document.visibilityState === "visible" && document.hasFocus()

/**
 * Marks a conversation as read while its newest message is drawn and the person can see the page.
 * @param {Session} session
 * @param {string} id
 * @param {number | undefined} seq the seq of the newest message; undefined if it is not drawn
 */
const useReading = (session, id, seq) => {
  const unread = session.conversations.list.value.find((one) => one.id === id)?.unread_count ?? 0
  useEffect(() => {
    const mark = () => {
      if (seq !== undefined && unread > 0 && seen()) session.markRead(id, seq)
    }
    mark()
    document.addEventListener("visibilitychange", mark)
    addEventListener("focus", mark)
    return () => {
      document.removeEventListener("visibilitychange", mark)
      removeEventListener("focus", mark)
    }
  }, [seq, unread, session.link.value.kind])
}

/**
 * The messages of a conversation, as a feed in which the arrow keys move from message to message.
 * @param {object} props
 * @param {Session} props.session
 * @param {string} props.id
 * @param {number | undefined} props.at the seq of the message at which the conversation was opened
 * @param {(message: Message) => void} props.onReply
 * @param {(root: Message) => void} props.onAnswers opens a message with its answers
 */
export const Messages = ({ at, id, onAnswers, onReply, session }) => {
  const { complete, messages: loaded, newer } = session.conversations.timeline(id).value
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
  const list = useRef(
    /** @type {{ toEnd: () => void, reveal: (key: string, middle?: boolean) => void } | null} */ (null)
  )
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

  useReading(session, id, end && !newer ? newest?.seq : undefined)
  useEffect(() => {
    if (newest !== undefined && newest.sender !== session.handle)
      setSaid(`@${newest.sender}: ${newest.content.text ?? "a message without text"}`)
  }, [newest?.id])
  useEffect(() => {
    if (pending.length > 0) toEnd()
  }, [pending.length])
  useEffect(() => {
    if (marked === undefined) return
    setActive(marked.id)
    list.current?.reveal(marked.id, true)
  }, [at, marked?.id])

  const toEnd = () => {
    if (newer || at !== undefined) session.open(id)
    list.current?.toEnd()
  }
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
  /** The first message of the thread, as far as it is loaded. */
  const rootOf = (/** @type {Message} */ message) => {
    let root = message
    for (let parent = quotedBy(root); parent && parent.seq < root.seq; parent = quotedBy(root)) root = parent
    return root
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
      active=${message.id === tabbed} marked=${message.seq === at} position=${index + 1} size=${
      complete ? messages.length : -1
    } onReply=${onReply} onAnswers=${
      answered.has(message.id) || quotedBy(message) !== undefined ? () => onAnswers(rootOf(message)) : undefined
    }
      onQuote=${(/** @type {string} */ quoted) => go(messages.findIndex((one) => one.id === quoted))}
      onFocus=${() => setActive(message.id)} />`
  }

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
    <${VirtualList} keys=${keys} row=${row} label="Messages" handle=${list} onKey=${onKey} more=${newer}
      onTop=${() => void session.conversations.histories.older(id)} onBottom=${() =>
    void session.conversations.histories.newer(id)} onEnd=${(/** @type {boolean} */ at) => setEnd(at)} />
    ${end && !newer ? null : html`<button type="button" class="to-end" onClick=${toEnd}>Newest ↓</button>`}
    <p class="unseen" role="status" aria-live="polite">${said}</p>
  </div>`
}
