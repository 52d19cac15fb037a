import { useRef } from "preact/hooks"
import { excerptOf } from "../client/Search.js"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"
import { briefly, counted, exactly } from "../shared/Texts.js"
import { titleOf } from "./ConversationList.js"

/**
 * @import { Found } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** @param {{ session: Session, hit: Found["messages"][number] }} props */
const Hit = ({ hit, session }) => {
  const { content, conversation_id: id, created_at: at, highlights, sender, seq } = hit
  const item = session.conversations.list.value.find((one) => one.id === id)
  const place = session.conversations.place.value
  return html`<li><button type="button" class="conversation hit" data-conversation=${id} aria-current=${
    place?.id === id && place.at === seq ? "true" : undefined
  }
    onClick=${() => session.openAt(id, seq)}>
    <span class="conversation-text">
      <span class="conversation-title"><bdi class="ellipsis">${
    item === undefined ? "A hidden conversation" : titleOf(item)
  }</bdi>
        <time datetime=${at} title=${exactly(at)}>${briefly(at)}</time></span>
      <span class="excerpt" dir="auto"><bdi>${sender === session.handle ? "You" : `@${sender}`}</bdi>: ${
    excerptOf(content.text ?? "", highlights)
      .map(({ isFound, text }) => isFound ? html`<mark>${text}</mark>` : text)
  }</span>
    </span>
  </button></li>`
}

/**
 * The search field for an agent's messages. The results replace `children`. Choosing a result opens the conversation at
 * the message.
 * @param {{ session: Session, children: any }} props
 */
export const Search = ({ children, session }) => {
  const { search } = session
  const box = useRef(/** @type {HTMLDivElement | null} */ (null))
  const typed = search.typed.value
  const hits = search.hits.value
  const isOpen = typed.trim() !== ""
  const clear = () => {
    search.type("")
    box.current?.querySelector("input")?.focus()
  }
  useEscape(isOpen, clear)
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step === undefined || !isOpen) return
    const stops = [...box.current?.querySelectorAll("input, .hit") ?? []]
    const next = stops[stops.findIndex((one) => one === document.activeElement) + step]
    if (next instanceof HTMLElement) next.focus()
    event.preventDefault()
  }
  return html`<div ref=${box} onKeyDown=${onKey}>
    <label class="search"><span class="unseen">Search messages</span>
      <input type="search" value=${typed} placeholder="Search messages" maxlength="200" autocomplete="off"
        onInput=${(/** @type {any} */ event) => search.type(event.currentTarget.value)} /></label>
    <p class="unseen" role="status">${!isOpen || hits === null ? "" : counted(hits.messages.length, "message")}</p>
    ${
    search.problem.value === null
      ? null
      : html`<p class="problem" role="alert">${search.problem.value} <button type="button" onClick=${() =>
        void search.find()}>Try again</button></p>`
  }
    ${
    !isOpen ? children : html`
      ${
      hits === null ?
        html`<p class="empty">${search.busy.value ? "Searching …" : ""}</p>`
        : html`${
          hits.complete ? null : html`<p class="hint indexing">Older messages are still being indexed.
              <button type="button" disabled=${search.busy.value} onClick=${() =>
            void search.find()}>Search again</button></p>`
        }
          ${
          hits.messages.length === 0
            ? html`<p class="empty">${
              hits.complete && hits.next === null ? "No message has all of these words." : "Nothing found so far."
            }</p>`
            : html`<ul class="conversations" aria-label="Found messages">${
              hits.messages.map((hit) => html`<${Hit} key=${hit.id} session=${session} hit=${hit} />`)
            }</ul>`
        }
          ${
          hits.next === null
            ? null
            : html`<button type="button" class="more" disabled=${search.busy.value} onClick=${() =>
              void search.more()}>More</button>`
        }`
    }`
  }
  </div>`
}
