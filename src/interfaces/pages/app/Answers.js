import { useEffect, useRef, useState } from "preact/hooks"
import { textOf } from "../client/Api.js"
import { LARGEST_PAGE } from "../client/Histories.js"
import { html } from "../shared/Html.js"
import { MessageRow } from "./MessageRow.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/**
 * The message whose answers are shown. It may not be loaded.
 * @typedef {Message | Pick<Message, "id" | "conversation_id">} Root
 */

/**
 * A message and the messages that answer it, directly or not, oldest first. Use the id of the message as `key`.
 * @param {object} props
 * @param {Session} props.session
 * @param {Root} props.root
 * @param {(message: Message) => void} props.onReply
 * @param {() => void} props.onClose
 */
export const Answers = ({ onClose, onReply, root, session }) => {
  const { conversation_id: conversation, id } = root
  const [read, setRead] = useState(/** @type {ReadonlyArray<Message>} */ ([]))
  const [isComplete, setComplete] = useState(true)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const [active, setActive] = useState(/** @type {string | null} */ (null))
  const panel = useRef(/** @type {HTMLElement | null} */ (null))
  /** The number of the last read that began. Only this read may change the list. */
  const latest = useRef(0)
  const timeline = session.conversations.timeline(conversation).value.messages
  const newest = timeline.at(-1)?.id
  /** Reads the messages after those that are known. */
  const readOn = async () => {
    latest.current++
    const own = latest.current
    try {
      const page = await session.conversations.histories.page(
        conversation,
        `thread=${id}&after_seq=${read.at(-1)?.seq ?? 0}&limit=${LARGEST_PAGE}`
      )
      if (own !== latest.current) return
      setRead([...read, ...page])
      setComplete(page.length < LARGEST_PAGE)
      setProblem(null)
    } catch (error) {
      if (own === latest.current) setProblem(textOf(error))
    }
  }
  useEffect(() => void readOn(), [newest])
  useEffect(() => () => {
    latest.current++
  }, [])
  // The timeline has the newest states and reactions.
  const current = new Map(timeline.map((one) => [one.id, one]))
  const hidden = session.hiding.waiting.value
  const messages = read.filter((one) => !hidden.has(one.id)).map((one) => current.get(one.id) ?? one)
  const byId = new Map(messages.map((message) => [message.id, message]))
  const quoted = (/** @type {Message} */ message) => {
    const parent = message.metadata["reply_to"]
    return message.id === id || typeof parent !== "string" ? undefined : byId.get(parent) ?? null
  }
  const last = messages.at(-1)
  const before = useRef({ id: last?.id, isComplete: false })
  useEffect(() => {
    // An answer of one's own that was written beside the panel.
    if (before.current.id !== undefined && before.current.isComplete && last?.sender === session.handle)
      panel.current?.querySelector(`[data-key="${last.id}"]`)?.scrollIntoView({ block: "end" })
    before.current = { id: last?.id, isComplete }
  }, [last?.id, isComplete])
  const tabbed = active !== null && byId.has(active) ? active : messages[0]?.id
  const go = (/** @type {string} */ message) => {
    setActive(message)
    const row = panel.current?.querySelector(`[data-key="${message}"]`)
    if (row instanceof HTMLElement) row.focus()
  }
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (!(event.target instanceof HTMLElement) || event.target.tagName !== "ARTICLE") return
    const step = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0
    const next = messages[messages.findIndex((one) => one.id === tabbed) + step]
    if (step === 0 || next === undefined) return
    event.preventDefault()
    go(next.id)
  }

  return html`<aside class="panel" aria-label="Answers" ref=${panel}>
    <header><h3>Answers</h3><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    ${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
    <div class="feed" role="feed" aria-label="A message and its answers" onKeyDown=${onKey}>${
    messages.map((message, i) =>
      html`<${MessageRow} key=${message.id} session=${session} message=${message} before=${messages[i - 1]} quoted=${
        quoted(message)
      } task=${undefined} cause=${undefined} marked=${false} active=${message.id === tabbed} position=${i + 1} size=${
        isComplete ? messages.length : -1
      } onReply=${onReply} onQuote=${go} onFocus=${() => setActive(message.id)} />`
    )
  }</div>
    ${messages.length === 1 && isComplete ? html`<p class="empty">Nobody has answered this message yet.</p>` : null}
    ${isComplete ? null : html`<button type="button" onClick=${() => void readOn()}>Show more</button>`}
  </aside>`
}
