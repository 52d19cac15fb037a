import { useEffect, useState } from "preact/hooks"
import { textOf } from "../client/Api.js"
import { LARGEST_PAGE } from "../client/Histories.js"
import { html } from "../shared/Html.js"
import { MessageRow } from "./MessageRow.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/**
 * A message and the messages that answer it, directly or not, oldest first.
 * @param {object} props
 * @param {Session} props.session
 * @param {Message} props.root
 * @param {(message: Message) => void} props.onReply
 * @param {() => void} props.onClose
 */
export const Answers = ({ onClose, onReply, root, session }) => {
  const [messages, setMessages] = useState(/** @type {ReadonlyArray<Message>} */ ([]))
  const [isComplete, setComplete] = useState(true)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const { conversation_id: conversation, id } = root
  const newest = session.conversations.timeline(conversation).value.messages.at(-1)?.id
  const read = async (/** @type {ReadonlyArray<Message>} */ before, /** @type {() => boolean} */ isOpen) => {
    const after = before.at(-1)?.seq ?? 0
    try {
      const page = await session.conversations.histories.page(
        conversation,
        `thread=${id}&after_seq=${after}&limit=${LARGEST_PAGE}`
      )
      if (!isOpen()) return
      setMessages([...before, ...page])
      setComplete(page.length < LARGEST_PAGE)
      setProblem(null)
    } catch (error) {
      if (isOpen()) setProblem(textOf(error))
    }
  }
  useEffect(() => {
    let open = true
    void read([], () => open)
    return () => {
      open = false
    }
  }, [id, newest])
  const byId = new Map(messages.map((message) => [message.id, message]))
  const quoted = (/** @type {Message} */ message) => {
    const parent = message.metadata["reply_to"]
    return message.id === id || typeof parent !== "string" ? undefined : byId.get(parent) ?? null
  }

  return html`<aside class="panel" aria-label="Answers">
    <header><h3>Answers</h3><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    ${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
    <div class="feed" role="feed" aria-label="A message and its answers">${
    messages.map((message, i) =>
      html`<${MessageRow} key=${message.id} session=${session} message=${message} before=${messages[i - 1]} quoted=${
        quoted(message)
      } task=${undefined} cause=${undefined} marked=${false} active=${true} position=${i + 1} size=${
        isComplete ? messages.length : -1
      } onReply=${onReply} onQuote=${() => {}} onFocus=${() => {}} />`
    )
  }</div>
    ${messages.length === 1 && isComplete ? html`<p class="empty">Nobody has answered this message yet.</p>` : null}
    ${
    isComplete
      ? null
      : html`<button type="button" onClick=${() => void read(messages, () => true)}>Show more</button>`
  }
  </aside>`
}
