import { useRef, useState } from "preact/hooks"
import { everything, excerptOf } from "../client/Search.js"
import { useEscape } from "../shared/Escapes.js"
import { Field } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { briefly, counted, fully } from "../shared/Texts.js"
import { titleOf } from "./ConversationList.js"

/**
 * @import { Found, Message } from "../client/Wire.ts"
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
        <time datetime=${at} title=${fully(at)}>${briefly(at)}</time></span>
      <span class="excerpt" dir="auto"><bdi>${sender === session.handle ? "You" : `@${sender}`}</bdi>: ${
    excerptOf(content.text ?? "", highlights)
      .map(({ isFound, text }) => isFound ? html`<mark>${text}</mark>` : text)
  }</span>
    </span>
  </button></li>`
}

/** A message whose file has a name with the words. @param {{ session: Session, message: Message, filename: string }} props */
const Named = ({ filename, message: { conversation_id: id, created_at: at, sender, seq }, session }) =>
  html`<li><button type="button" class="conversation hit" data-conversation=${id} onClick=${() =>
    session.openAt(id, seq)}>
    <span class="conversation-text">
      <span class="conversation-title"><bdi class="ellipsis">${filename}</bdi>
        <time datetime=${at} title=${fully(at)}>${briefly(at)}</time></span>
      <span class="excerpt">A file of <bdi>${sender === session.handle ? "yours" : `@${sender}`}</bdi></span>
    </span>
  </button></li>`

/**
 * The fields that limit a search to a conversation, a sender and a time.
 * @param {{ session: Session }} props
 */
const Limits = ({ session }) => {
  const { search } = session
  const limits = search.limits.value
  const open = session.conversations.place.value?.id
  const shown = session.conversations.list.value.filter(({ id }) => id === open || id === limits.conversation)
  return html`<div class="search-limits" role="group" aria-label="Limits of the search">
    <label class="field"><span>In</span><select value=${limits.conversation} onChange=${(
    /** @type {any} */ event
  ) => search.limit({ conversation: event.currentTarget.value })}>
      <option value="">All conversations</option>
      ${
    shown.map((one) =>
      html`<option key=${one.id} value=${one.id} selected=${one.id === limits.conversation}>${titleOf(one)}</option>`
    )
  }
    </select></label>
    <${Field} label="Sender" value=${limits.from} placeholder="handle" maxlength="64" autocomplete="off" autocapitalize="none"
      onText=${(/** @type {string} */ from) => search.limit({ from })} />
    <${Field} label="From" type="date" value=${limits.after} onText=${(/** @type {string} */ after) =>
    search.limit({ after })} />
    <${Field} label="To" type="date" value=${limits.before} onText=${(/** @type {string} */ before) =>
    search.limit({ before })} />
  </div>`
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
  const named = search.named.value
  const isOpen = typed.trim() !== ""
  const [wanted, setWanted] = useState(false)
  const isLimited = Object.values(search.limits.value).some((one) => one !== "")
  const limits = wanted || isLimited
  const clear = () => {
    search.limits.value = everything
    search.type("")
    box.current?.querySelector("input")?.focus()
  }
  useEscape(isOpen, clear)
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.target instanceof Element && event.target.closest(".search-limits") !== null) return
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step === undefined || !isOpen) return
    const stops = [...box.current?.querySelectorAll("input[type='search'], .hit") ?? []]
    const next = stops[stops.findIndex((one) => one === document.activeElement) + step]
    if (next instanceof HTMLElement) next.focus()
    event.preventDefault()
  }
  return html`<div ref=${box} onKeyDown=${onKey}>
    <label class="search"><span class="unseen">Search messages</span>
      <input type="search" value=${typed} placeholder="Search messages" maxlength="200" autocomplete="off"
        onInput=${(/** @type {any} */ event) => search.type(event.currentTarget.value)} /></label>
    ${
    isOpen || isLimited
      ? html`<p class="row"><button type="button" class="quiet" aria-expanded=${limits} onClick=${() => {
        setWanted(!limits)
        if (isLimited) search.limit(everything)
      }}>${isLimited ? "Without limits" : "Limits"}</button></p>${
        limits ? html`<${Limits} session=${session} />` : null
      }`
      : null
  }
    ${!isOpen && isLimited ? html`<p class="hint">Type a word to search within these limits.</p>` : null}
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
      named.length === 0
        ? null
        : html`<h3 class="label">Files</h3><ul class="conversations" aria-label="Found files">${
          named.map(({ filename, message }) =>
            html`<${Named} key=${message.id} session=${session} message=${message} filename=${filename} />`
          )
        }</ul><h3 class="label">Messages</h3>`
    }
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
              hits.complete && hits.next === null ?
                isLimited
                  ? "No message within these limits has all of these words."
                  : "No message has all of these words."
                : "Nothing found so far."
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
