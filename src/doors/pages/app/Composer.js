import { useEffect, useRef, useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { sizeOf } from "../shared/Texts.js"
import { textOf } from "../client/Api.js"
import { upload } from "../client/Files.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The largest message, and the size from which the size is shown, in bytes. */
const MOST = 32_768
const NEAR = 28_000
/** The shortest time between two typing signals, in milliseconds. */
const TYPING_MS = 3_000

const bytesOf = (/** @type {string} */ text) => new TextEncoder().encode(JSON.stringify({ text })).length + 80

/**
 * @param {object} props
 * @param {Session} props.session
 * @param {{ to: string } | { conversation_id: string }} props.target
 * @param {string | null} props.conversation the id of the conversation; null if it does not exist yet
 * @param {Message | null} props.replyTo
 * @param {() => void} props.onSent
 * @param {() => void} props.onCancelReply
 */
export const Composer = ({ conversation, onCancelReply, onSent, replyTo, session, target }) => {
  const [text, setText] = useState("")
  const [file, setFile] = useState(/** @type {File | null} */ (null))
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null))
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null))
  const told = useRef(0)

  useEffect(() => {
    if (replyTo !== null) field.current?.focus()
  }, [replyTo])
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
    if (conversation === null) return
    if (next === "") {
      if (told.current !== 0) session.typed(conversation, false)
      told.current = 0
    } else if (Date.now() - told.current > TYPING_MS) {
      told.current = Date.now()
      session.typed(conversation, true)
    }
  }

  const submit = async (/** @type {Event | undefined} */ event) => {
    event?.preventDefault()
    if (nothing || busy || size > MOST) return
    setProblem(null)
    const reply = replyTo?.id ?? null
    if (file === null) {
      session.outbox.send({ ...target, content: { text } }, text, reply)
    } else {
      setBusy(true)
      try {
        const id = await upload(session.api, target, file)
        const words = text.trim() === "" ? {} : { text }
        session.outbox.send({ ...target, type: "file", content: { ...words, attachment_id: id } }, text.trim() === "" ? file.name : `${text}\n${file.name}`, reply)
      } catch (error) {
        setProblem(textOf(error))
        return
      } finally {
        setBusy(false)
      }
    }
    setFile(null)
    if (chooser.current !== null) chooser.current.value = ""
    typed("")
    onCancelReply()
    onSent()
    field.current?.focus()
  }

  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) void submit(event)
    else if (event.key === "Escape" && replyTo !== null) onCancelReply()
  }
  const take = (/** @type {FileList | null | undefined} */ files) => {
    const one = files?.[0]
    if (one !== undefined) setFile(one)
  }

  return html`<form class="composer" onSubmit=${submit}
    onDragOver=${(/** @type {DragEvent} */ event) => event.preventDefault()}
    onDrop=${(/** @type {DragEvent} */ event) => {
      event.preventDefault()
      take(event.dataTransfer?.files)
    }}>
    ${replyTo === null ? null : html`<p class="chip">Reply to <bdi>@${replyTo.sender}</bdi>: <bdi class="ellipsis">${replyTo.content.text ?? "a file"}</bdi>
      <button type="button" class="quiet" onClick=${onCancelReply} aria-label="Do not reply to this message">✕</button></p>`}
    ${file === null ? null : html`<p class="chip"><bdi class="ellipsis">${file.name}</bdi> <small>${sizeOf(file.size)}</small>
      <button type="button" class="quiet" disabled=${busy} onClick=${() => setFile(null)} aria-label="Do not send this file">✕</button></p>`}
    ${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
    <div class="composer-row">
      <input type="file" hidden ref=${chooser} onChange=${(/** @type {any} */ event) => take(event.currentTarget.files)} aria-label="File" />
      <button type="button" class="icon" title="Send a file" aria-label="Send a file" disabled=${busy} onClick=${() => chooser.current?.click()}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M14.5 9.5 9 15a3.2 3.2 0 0 1-4.6-4.6l6.2-6.1a2.2 2.2 0 0 1 3.1 3.1l-6 6a1.1 1.1 0 0 1-1.6-1.6l5.3-5.2" /></svg></button>
      <textarea ref=${field} rows="1" dir="auto" value=${text} placeholder="Write a message" aria-label="Message"
        onInput=${(/** @type {any} */ event) => typed(event.currentTarget.value)} onKeyDown=${onKey}
        onPaste=${(/** @type {ClipboardEvent} */ event) => take(event.clipboardData?.files)}></textarea>
      <button type="submit" class="primary" disabled=${nothing || busy || size > MOST}>${busy ? "Uploading …" : "Send"}</button>
    </div>
    ${size > NEAR ? html`<p class=${size > MOST ? "problem" : "hint"}>${sizeOf(size)} of ${sizeOf(MOST)}</p>` : null}
  </form>`
}
