import { useEffect, useId, useRef, useState } from "preact/hooks"
import { textOf } from "../client/Api.js"
import { upload } from "../client/Files.js"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"
import { sizeOf } from "../shared/Texts.js"
import { useMentions } from "./Mentions.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The size of the largest message, in bytes. From `NEAR` bytes on, the composer shows the size of the message. */
const MOST = 32_768
const NEAR = 28_000
/** The shortest time between two typing signals, in milliseconds. */
const TYPING_MS = 3_000

const bytesOf = (/** @type {string} */ text) => new TextEncoder().encode(JSON.stringify({ text })).length + 80

/**
 * @param {object} props
 * @param {Session} props.session
 * @param {string} props.target a group's id, or `@` and a handle
 * @param {string | null} props.conversation the id of the conversation; null if it does not exist yet
 * @param {Message | null} props.replyTo
 * @param {() => void} props.onCancelReply
 */
export const Composer = ({ conversation, onCancelReply, replyTo, session, target }) => {
  const id = useId()
  const draft = session.drafts.of(target)
  const [text, setText] = useState(draft.text)
  const [file, setFile] = useState(draft.file)
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null))
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null))
  /** When the last typing signal was sent; 0 after the signal that the agent has stopped typing. */
  const signalledAt = useRef(0)
  const first = useRef(true)
  const to = target.startsWith("@") ? { to: target.slice(1) } : { conversation_id: target }

  useEffect(() => {
    if (replyTo !== null && !first.current) field.current?.focus()
    first.current = false
  }, [replyTo])
  useEscape(replyTo !== null, onCancelReply)
  useEffect(() => {
    const element = field.current
    if (element === null) return
    element.style.height = "auto"
    element.style.height = `${Math.min(element.scrollHeight + 2, 260)}px`
  }, [text])

  const size = text.length > NEAR / 4 ? bytesOf(text) : 0
  const nothing = text.trim() === "" && file === null

  const typed = (/** @type {string} */ next) => {
    setText(next)
    session.drafts.set(target, { ...session.drafts.of(target), text: next })
    if (conversation === null) return
    if (next === "") {
      if (signalledAt.current !== 0) session.signalTyping(conversation, false)
      signalledAt.current = 0
    } else if (Date.now() - signalledAt.current > TYPING_MS) {
      signalledAt.current = Date.now()
      session.signalTyping(conversation, true)
    }
  }

  const choose = (/** @type {File | null} */ next) => {
    setFile(next)
    session.drafts.set(target, { ...session.drafts.of(target), file: next })
  }
  const mentions = useMentions({ session, target, text, field, onText: typed })

  const submit = async (/** @type {Event | undefined} */ event) => {
    event?.preventDefault()
    if (nothing || busy || size > MOST) return
    setProblem(null)
    const reply = replyTo?.id ?? null
    if (file === null) {
      session.outbox.send({ ...to, content: { text } }, text, reply)
    } else {
      setBusy(true)
      try {
        const id = await upload(session.api, to, file)
        const words = text.trim() === "" ? {} : { text }
        session.outbox.send(
          { ...to, type: "file", content: { ...words, attachment_id: id } },
          text.trim() === "" ? file.name : `${text}\n${file.name}`,
          reply
        )
      } catch (error) {
        setProblem(textOf(error))
        return
      } finally {
        setBusy(false)
      }
    }
    choose(null)
    if (chooser.current !== null) chooser.current.value = ""
    typed("")
    onCancelReply()
    field.current?.focus()
  }

  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (mentions.onKey(event)) return
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) void submit(event)
  }
  const take = (/** @type {FileList | null | undefined} */ files) => {
    const one = files?.[0]
    if (one !== undefined) choose(one)
  }

  return html`<form class="composer" onSubmit=${submit}
    onDragOver=${(/** @type {DragEvent} */ event) => event.preventDefault()}
    onDrop=${(/** @type {DragEvent} */ event) => {
    event.preventDefault()
    take(event.dataTransfer?.files)
  }}>
    ${
    replyTo === null ?
      null :
      html`<p class="chip">Reply to <bdi>@${replyTo.sender}</bdi>: <bdi class="ellipsis">${
        replyTo.content.text ?? "a file"
      }</bdi>
      <button type="button" class="quiet" onClick=${onCancelReply} aria-label="Do not reply to this message">✕</button></p>`
  }
    ${
    file === null ?
      null :
      html`<p class="chip"><bdi class="ellipsis">${file.name}</bdi> <small>${sizeOf(file.size)}</small>
      <button type="button" class="quiet" disabled=${busy} onClick=${() =>
        choose(null)} aria-label="Do not send this file">✕</button></p>`
  }
    ${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
    ${mentions.list}
    <div class="composer-row">
      <input type="file" hidden ref=${chooser} onChange=${(/** @type {any} */ event) =>
    take(event.currentTarget.files)} aria-label="File" />
      <button type="button" class="icon" title="Send a file" aria-label="Send a file" disabled=${busy} onClick=${() =>
    chooser.current?.click()}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M14.5 9.5 9 15a3.2 3.2 0 0 1-4.6-4.6l6.2-6.1a2.2 2.2 0 0 1 3.1 3.1l-6 6a1.1 1.1 0 0 1-1.6-1.6l5.3-5.2" /></svg></button>
      <textarea ref=${field} rows="1" dir="auto" value=${text} placeholder="Write a message" aria-label="Message" aria-describedby=${`${id}-as`} ...${mentions.field}
        onInput=${(/** @type {any} */ event) => {
    typed(event.currentTarget.value)
    mentions.follow()
  }} onKeyDown=${onKey}
        onPaste=${(/** @type {ClipboardEvent} */ event) => take(event.clipboardData?.files)}></textarea>
      <button type="submit" class="primary" disabled=${nothing || busy || size > MOST}>${
    busy ? "Uploading …" : "Send"
  }</button>
    </div>
    <p class="as" id=${`${id}-as`}>as <span class="handle">@${session.handle}</span></p>
    ${size > NEAR ? html`<p class=${size > MOST ? "problem" : "hint"}>${sizeOf(size)} of ${sizeOf(MOST)}</p>` : null}
  </form>`
}
