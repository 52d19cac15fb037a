import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"
import { Composer } from "./Composer.js"
import { avatarOf } from "./ConversationList.js"
import { GroupPanel } from "./GroupPanel.js"
import { MessageRow, OutgoingRow } from "./MessageRow.js"
import { PersonPanel } from "./PersonPanel.js"
import { taskStates } from "../client/Tasks.js"
import { empty } from "../client/Timeline.js"
import { VirtualList } from "./VirtualList.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Place } from "../client/Conversations.js"
 * @import { Session } from "../client/Session.js"
 */

/** Whether the person can see this page now. Only then do the messages that it shows count as read. */
const seen = () => document.visibilityState === "visible" && document.hasFocus()

/** @param {{ session: Session, id: string, at: number | undefined, onReply: (message: Message) => void }} props */
const Messages = ({ at, id, onReply, session }) => {
  const { complete, messages: loaded, newer } = session.conversations.timeline(id).value
  const hidden = session.hiding.waiting.value
  const messages = hidden.size === 0 ? loaded : loaded.filter((one) => !hidden.has(one.id))
  const item = session.conversations.list.value.find((one) => one.id === id)
  const handle = item?.participants[0]?.handle
  // A read may return a message before the answer to its send arrives. The message must not be shown twice then.
  const there = new Set(messages.slice(-200).map((one) => one.sender === session.handle ? one.client_msg_id : ""))
  const pending = session.outbox.messages.value.filter(({ body, client_msg_id: own }) => !there.has(own) &&
    (body.conversation_id === id || (body.to !== undefined && body.to === handle && item?.type === "direct")))
  const [end, setEnd] = useState(true)
  const [active, setActive] = useState(/** @type {string | null} */ (null))
  const [said, setSaid] = useState("")
  const list = useRef(/** @type {{ toEnd: () => void, reveal: (key: string, middle?: boolean) => void } | null} */ (null))
  const keys = useMemo(() => [...messages.map((one) => one.id), ...pending.map((one) => one.client_msg_id)], [loaded, hidden, session.outbox.messages.value])
  const byId = useMemo(() => new Map(messages.map((one) => [one.id, one])), [loaded, hidden])
  const tasks = useMemo(() => item?.type === "direct" ? taskStates(loaded) : new Map(), [loaded, item?.type])
  const newest = messages.at(-1)
  const marked = at === undefined ? undefined : messages.find(({ seq }) => seq === at)

  useEffect(() => {
    const look = () => {
      if (end && !newer && seen() && newest !== undefined && (item?.unread_count ?? 0) > 0) session.read(id, newest.seq)
    }
    look()
    document.addEventListener("visibilitychange", look)
    addEventListener("focus", look)
    return () => {
      document.removeEventListener("visibilitychange", look)
      removeEventListener("focus", look)
    }
  }, [end, newer, newest?.seq, item?.unread_count, session.link.value.kind])
  useEffect(() => {
    if (newest !== undefined && newest.sender !== session.handle) setSaid(`@${newest.sender}: ${newest.content.text ?? "a message without text"}`)
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
    if (newer) session.open(id)
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
    const steps = { ArrowUp: index - 1, ArrowDown: index + 1, PageUp: index - 10, PageDown: index + 10, Home: 0, End: messages.length - 1 }
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
  const quotedBy = (/** @type {Message} */ message) => {
    const replyTo = message.metadata["reply_to"]
    return typeof replyTo === "string" ? byId.get(replyTo) ?? null : undefined
  }
  const row = (/** @type {number} */ index) => {
    const message = messages[index]
    if (message === undefined) {
      const outgoing = pending[index - messages.length]
      return outgoing === undefined ? null : html`<${OutgoingRow} key=${outgoing.client_msg_id} session=${session} outgoing=${outgoing} />`
    }
    return html`<${MessageRow} key=${message.id} session=${session} message=${message} before=${messages[index - 1]} task=${tasks.get(message.id)} quoted=${quotedBy(message)}
      active=${message.id === tabbed} marked=${message.seq === at} position=${index + 1} size=${complete ? messages.length : -1} onReply=${onReply}
      onQuote=${(/** @type {string} */ quoted) => go(messages.findIndex((one) => one.id === quoted))}
      onFocus=${() => setActive(message.id)} />`
  }

  return html`<div class="messages">
    ${messages.length === 0 && pending.length === 0 ? html`<p class="empty">${complete
      ? `No messages yet.${id.startsWith("grp_") ? " You see what is written from when you joined." : ""}`
      : "Loading …"}</p>` : null}
    ${!complete && messages.length > 0 ? html`<p class="unseen">Scroll up to load older messages.</p>` : null}
    <${VirtualList} keys=${keys} row=${row} label="Messages" handle=${list} onKey=${onKey} more=${newer}
      onTop=${() => void session.conversations.histories.older(id)} onBottom=${() => void session.conversations.histories.newer(id)} onEnd=${(/** @type {boolean} */ at) => setEnd(at)} />
    ${end && !newer ? null : html`<button type="button" class="to-end" onClick=${toEnd}>Newest ↓</button>`}
    <p class="unseen" role="status" aria-live="polite">${said}</p>
  </div>`
}

/** @param {{ session: Session, id: string }} props */
const Typing = ({ id, session }) => {
  const who = [...session.presences.typing.value.get(id)?.keys() ?? []]
  return html`<p class="typing" aria-live="off">${who.length === 0
    ? ""
    : who.length > 2 ? `${who.length} are writing …` : `${who.map((handle) => `@${handle}`).join(" and ")} ${who.length === 1 ? "is" : "are"} writing …`}</p>`
}

/** Whether a finger is the only pointer. A focused field would then cover half of the page by the keyboard. */
const byTouch = () => matchMedia("(hover: none)").matches

/**
 * An open conversation: its title, its messages, and the field for a new message.
 * @param {{ session: Session, place: Place, isFront: boolean }} props
 */
export const Thread = ({ isFront, place, session }) => {
  const [details, setDetails] = useState(false)
  const thread = useRef(/** @type {HTMLElement | null} */ (null))
  const about = useRef(/** @type {HTMLButtonElement | null} */ (null))
  const item = session.conversations.list.value.find(({ id }) => id === place.id)
  const isGroup = place.id?.startsWith("grp_") === true
  const listed = session.conversations.listed.value
  const { messages } = place.id === null ? empty : session.conversations.timeline(place.id).value
  // A conversation that is hidden is not in the list.
  const handle = isGroup ? null : place.handle ?? item?.participants[0]?.handle ?? (listed ? messages.find(({ sender }) => sender !== session.handle)?.sender ?? null : null)
  const group = isGroup && place.id !== null ? session.conversations.group(place.id).value : null
  const title = isGroup ? group?.name ?? item?.group_name ?? "Group" : item?.participants[0]?.display_name ?? handle ?? ""
  const presence = handle === null ? undefined : session.presences.all.value.get(handle)
  const members = group?.member_count ?? item?.group_member_count
  /** The target of the messages, as the outbox and the drafts name it. */
  const target = isGroup ? place.id : handle === null ? null : `@${handle}`

  const [replyTo, setReplyTo] = useState(/** @type {Message | null} */ (null))
  useEffect(() => {
    setReplyTo(target === null ? null : session.drafts.of(target).replyTo)
    setDetails(false)
  }, [target])
  const reply = (/** @type {Message | null} */ message) => {
    setReplyTo(message)
    if (target !== null) session.drafts.set(target, { ...session.drafts.of(target), replyTo: message })
  }
  useEffect(() => {
    // A message that a link names takes the focus itself.
    if (!isFront || place.at !== undefined) return
    const field = session.watching || byTouch() ? null : thread.current?.querySelector("textarea")
    const next = field ?? thread.current?.querySelector("h2")
    if (next instanceof HTMLElement) next.focus()
  }, [place.id, place.handle, place.at, target])
  const close = () => {
    setDetails(false)
    about.current?.focus()
  }
  useEscape(details, close)
  useEffect(() => {
    const button = thread.current?.querySelector("aside button")
    if (details && button instanceof HTMLElement) button.focus()
  }, [details, group === null])

  return html`<section class="thread" ref=${thread} aria-label=${`Conversation of @${session.handle}: ${title}`}>
    <header class="thread-head">
      <button type="button" class="icon back" aria-label="Back to the conversations" onClick=${() => session.conversations.place.value = null}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M12.5 4 6.5 10l6 6" /></svg></button>
      ${item === undefined ? html`<${Avatar} name=${handle ?? title} group=${isGroup} />` : html`<${Avatar} ...${avatarOf(item)} ...${group === null ? {} : { url: group.avatar_url }} dot=${presence?.status} />`}
      <div class="thread-title">
        <h2 tabindex="-1"><bdi>${title}</bdi></h2>
        <p>${isGroup ? counted(members ?? 0, "member") : handle === null ? null : html`<span class="handle">@${handle}</span>`}
          ${presence === undefined ? null : html` · <span class=${`presence ${presence.status}`}>${presence.status}</span>
            ${presence.custom_message === null || presence.custom_message === "" ? null : html` · <bdi>${presence.custom_message}</bdi>`}`}</p>
      </div>
      <button type="button" ref=${about} aria-expanded=${details} onClick=${() => setDetails(!details)}>${isGroup ? "Group" : "About"}</button>
    </header>
    ${details && isGroup && place.id !== null ? html`<${GroupPanel} session=${session} id=${place.id} onClose=${close} />` : null}
    ${details && handle !== null ? html`<${PersonPanel} session=${session} handle=${handle} conversation=${item} onClose=${close} />` : null}
    ${place.id === null
      ? html`<div class="messages"><div class="scroller"><div class="feed">
          ${session.outbox.messages.value.filter(({ body }) => body.to === handle).map((outgoing) => html`<${OutgoingRow} key=${outgoing.client_msg_id} session=${session} outgoing=${outgoing} />`)}
        </div></div><p class="empty">There are no messages yet. After your first message, you can send a second one only when @${handle} has replied.</p></div>`
      : html`<${Messages} key=${place.id} session=${session} id=${place.id} at=${place.at} onReply=${reply} />
        <${Typing} session=${session} id=${place.id} />`}
    ${session.watching
      ? html`<p class="hint watching">Only watching as <span class="handle">@${session.handle}</span>: this page acknowledges no messages, marks none as read and sends none.</p>`
      : target === null ? null
      : html`<${Composer} key=${target} session=${session} target=${target} conversation=${place.id} replyTo=${replyTo} onCancelReply=${() => reply(null)} />`}
  </section>`
}
