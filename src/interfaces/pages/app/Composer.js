import { useEffect, useId, useRef, useState } from "preact/hooks"
import { problemOf } from "../client/Files.js"
import { lineOf } from "../content/Line.js"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"
import { sizeOf } from "../shared/Texts.js"
import { nothing as noDraft } from "../tab/Drafts.js"
import { ChosenFiles, MOST_FILES, pastedFiles, useDrop } from "./ChosenFiles.js"
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
 * @param {() => void} props.onSent called when the message has been taken for sending
 */
export const Composer = ({ conversation, onCancelReply, onSent, replyTo, session, target }) => {
  const id = useId()
  const draft = session.drafts.of(target)
  const [text, setText] = useState(draft.text)
  const [files, setFiles] = useState(draft.files)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null))
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null))
  /** When the last typing signal was sent; 0 after the signal that the agent has stopped typing. */
  const signalledAt = useRef(0)
  const first = useRef(true)
  const to = target.startsWith("@") ? { to: target.slice(1) } : { conversation_id: target }
  const progress = session.uploads.all.value.get(target)
  const busy = progress?.why === null

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
  const unready = (text.trim() === "" && files.length === 0) || busy || size > MOST ||
    (conversation === null && files.length > 1) || files.some((file) => problemOf(file) !== null)

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

  const choose = (/** @type {ReadonlyArray<File>} */ next) => {
    setFiles(next)
    session.uploads.forget(target)
    session.drafts.set(target, { ...session.drafts.of(target), files: next })
  }
  const mentions = useMentions({ session, target, text, field, onText: typed })
  useEffect(() => {
    // The uploads may have ended while another conversation was open, or after this one was opened again.
    setText(session.drafts.of(target).text)
    setFiles(session.drafts.of(target).files)
  }, [busy])

  const submit = async (/** @type {Event | undefined} */ event) => {
    event?.preventDefault()
    if (unready) return
    setProblem(null)
    const reply = replyTo?.id ?? null
    if (files.length === 0) session.outbox.send({ ...to, content: { text } }, text, reply)
    else {
      const ids = await session.uploads.run(target, to, files)
      if (ids === undefined) return
      for (const [index, id] of ids.entries()) {
        const words = index > 0 || text.trim() === "" ? {} : { text }
        session.outbox.send(
          { ...to, type: "file", content: { ...words, attachment_id: id } },
          [words.text, files[index]?.name].filter((line) => line !== undefined).join("\n"),
          index === 0 ? reply : null
        )
      }
    }
    session.drafts.set(target, noDraft)
    setFiles([])
    typed("")
    onSent()
    field.current?.focus()
  }

  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (mentions.onKey(event)) return
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) void submit(event)
  }
  const take = (/** @type {Iterable<File>} */ added) => {
    const all = [...files, ...added]
    if (busy || all.length === files.length) return
    setProblem(
      all.length > MOST_FILES ? `You can send at most ${MOST_FILES} files at once. The others were left out.` : null
    )
    choose(all.slice(0, MOST_FILES))
    field.current?.focus()
  }
  const over = useDrop(field, take)

  return html`<form class="composer" onSubmit=${submit}>
    ${over ? html`<p class="drop-here">Drop files here to send them</p>` : null}
    ${
    replyTo === null ?
      null :
      html`<p class="chip">Reply to <bdi>@${replyTo.sender}</bdi>: <bdi class="ellipsis">${lineOf(replyTo)}</bdi>
      <button type="button" class="quiet" onClick=${onCancelReply} aria-label="Do not reply to this message">✕</button></p>`
  }
    <${ChosenFiles} files=${files} progress=${progress} isNew=${conversation === null} hasText=${
    text.trim() !== ""
  } onRemove=${(/** @type {File} */ file) => {
    setProblem(null)
    choose(files.filter((one) => one !== file))
    field.current?.focus()
  }} />
    ${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
    ${mentions.list}
    <div class="composer-row">
      <input type="file" hidden multiple ref=${chooser} onChange=${(/** @type {any} */ event) => {
    take(event.currentTarget.files)
    event.currentTarget.value = ""
  }} aria-label="Files" />
      <button type="button" class="icon" title="Send files" aria-label="Send files" disabled=${busy} onClick=${() =>
    chooser.current?.click()}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M14.5 9.5 9 15a3.2 3.2 0 0 1-4.6-4.6l6.2-6.1a2.2 2.2 0 0 1 3.1 3.1l-6 6a1.1 1.1 0 0 1-1.6-1.6l5.3-5.2" /></svg></button>
      <textarea ref=${field} rows="1" readonly=${busy} dir="auto" value=${text} placeholder="Write a message" aria-label="Message" aria-describedby=${`${id}-as`} ...${mentions.field}
        onInput=${(/** @type {any} */ event) => {
    typed(event.currentTarget.value)
    mentions.follow()
  }} onKeyDown=${onKey}
        onPaste=${(/** @type {ClipboardEvent} */ event) => {
    const pasted = pastedFiles(event.clipboardData)
    if (pasted.length === 0) return
    event.preventDefault()
    take(pasted)
  }}></textarea>
      ${
    busy
      ? html`<button type="button" key="cancel" onClick=${() => {
        session.uploads.cancel(target)
        field.current?.focus()
      }}>Cancel the upload</button>`
      : html`<button type="submit" key="send" class="primary" disabled=${unready}>Send</button>`
  }
    </div>
    <p class="as" id=${`${id}-as`}>as <span class="handle">@${session.handle}</span></p>
    ${size > NEAR ? html`<p class=${size > MOST ? "problem" : "hint"}>${sizeOf(size)} of ${sizeOf(MOST)}</p>` : null}
  </form>`
}
