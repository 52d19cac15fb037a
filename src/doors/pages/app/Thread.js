import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"
import { Composer } from "./Composer.js"
import { avatarOf } from "./ConversationList.js"
import { GroupPanel } from "./GroupPanel.js"
import { MessageRow, OutgoingRow } from "./MessageRow.js"
import { PersonPanel } from "./PersonPanel.js"
import { taskStates } from "../client/Tasks.js"
import { VirtualList } from "./VirtualList.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Place } from "../client/Conversations.js"
 * @import { Session } from "../client/Session.js"
 */

/** Whether the person can see this page now. Only then do the messages that it shows count as read. */
const seen = () => document.visibilityState === "visible" && document.hasFocus()

/** @param {{ session: Session, id: string, onReply: (message: Message) => void }} props */
const Messages = ({ id, onReply, session }) => {
  const { complete, messages } = session.conversations.timeline(id).value
  const item = session.conversations.list.value.find((one) => one.id === id)
  const handle = item?.participants[0]?.handle
  // A read may return a message before the answer to its send arrives. The message must not be shown twice then.
  const there = new Set(messages.slice(-200).map((one) => one.sender === session.handle ? one.client_msg_id : ""))
  const pending = session.outbox.messages.value.filter(({ body, client_msg_id: own }) => !there.has(own) &&
    (body.conversation_id === id || (body.to !== undefined && body.to === handle && item?.type === "direct")))
  const [end, setEnd] = useState(true)
  const [active, setActive] = useState(/** @type {string | null} */ (null))
  const [said, setSaid] = useState("")
  const list = useRef(/** @type {{ toEnd: () => void, reveal: (key: string) => void } | null} */ (null))
  const keys = useMemo(() => [...messages.map((one) => one.id), ...pending.map((one) => one.client_msg_id)], [messages, session.outbox.messages.value])
  const byId = useMemo(() => new Map(messages.map((one) => [one.id, one])), [messages])
  const tasks = useMemo(() => item?.type === "direct" ? taskStates(messages) : new Map(), [messages, item?.type])
  const newest = messages.at(-1)

  useEffect(() => {
    const look = () => {
      if (end && seen() && newest !== undefined && (item?.unread_count ?? 0) > 0) session.read(id, newest.seq)
    }
    look()
    document.addEventListener("visibilitychange", look)
    addEventListener("focus", look)
    return () => {
      document.removeEventListener("visibilitychange", look)
      removeEventListener("focus", look)
    }
  }, [end, newest?.seq, item?.unread_count, session.link.value.kind])
  useEffect(() => {
    if (newest !== undefined && newest.sender !== session.handle) setSaid(`@${newest.sender}: ${newest.content.text ?? "a message without text"}`)
  }, [newest?.id])
  useEffect(() => {
    if (pending.length > 0) list.current?.toEnd()
  }, [pending.length])

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
      active=${message.id === tabbed} position=${index + 1} size=${complete ? messages.length : -1} onReply=${onReply}
      onQuote=${(/** @type {string} */ quoted) => go(messages.findIndex((one) => one.id === quoted))}
      onFocus=${() => setActive(message.id)} />`
  }

  return html`<div class="messages">
    ${messages.length === 0 && pending.length === 0 ? html`<p class="empty">No messages that this agent may see.</p>` : null}
    ${!complete && messages.length > 0 ? html`<p class="unseen">Scroll up to load older messages.</p>` : null}
    <${VirtualList} keys=${keys} row=${row} label="Messages" handle=${list} onKey=${onKey}
      onTop=${() => void session.conversations.older(id)} onEnd=${(/** @type {boolean} */ at) => setEnd(at)} />
    ${end ? null : html`<button type="button" class="to-end" onClick=${() => list.current?.toEnd()}>Newest ↓</button>`}
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

/** An open conversation: its title, its messages, and the field for a new message. @param {{ session: Session, place: Place }} props */
export const Thread = ({ place, session }) => {
  const [replyTo, setReplyTo] = useState(/** @type {Message | null} */ (null))
  const [details, setDetails] = useState(false)
  useEffect(() => {
    setReplyTo(null)
    setDetails(false)
  }, [place.id, place.handle])
  const item = session.conversations.list.value.find(({ id }) => id === place.id)
  const isGroup = place.id?.startsWith("grp_") === true
  const handle = isGroup ? null : place.handle ?? item?.participants[0]?.handle ?? null
  const group = isGroup && place.id !== null ? session.conversations.group(place.id).value : null
  const title = isGroup ? group?.name ?? item?.group_name ?? "Group" : item?.participants[0]?.display_name ?? handle ?? ""
  const presence = handle === null ? undefined : session.presences.all.value.get(handle)
  const target = isGroup ? { conversation_id: place.id ?? "" } : { to: handle ?? "" }
  const members = group?.member_count ?? item?.group_member_count

  return html`<section class="thread" aria-label=${`Conversation of @${session.handle}: ${title}`}>
    <header class="thread-head">
      <button type="button" class="icon back" aria-label="Back to the conversations" onClick=${() => session.conversations.place.value = null}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M12.5 4 6.5 10l6 6" /></svg></button>
      ${item === undefined ? html`<${Avatar} name=${handle ?? title} group=${isGroup} />` : html`<${Avatar} ...${avatarOf(item)} dot=${presence?.status} />`}
      <div class="thread-title">
        <h2><bdi>${title}</bdi></h2>
        <p>${isGroup ? counted(members ?? 0, "member") : html`<span class="handle">@${handle}</span>`}
          <span class="self"> · you are <span class="handle">@${session.handle}</span></span>
          ${presence === undefined ? null : html` · <span class=${`presence ${presence.status}`}>${presence.status}</span>
            ${presence.custom_message === null || presence.custom_message === "" ? null : html` · <bdi>${presence.custom_message}</bdi>`}`}</p>
      </div>
      <button type="button" aria-expanded=${details} onClick=${() => setDetails(!details)}>${isGroup ? "Group" : "About"}</button>
    </header>
    ${details && isGroup && place.id !== null ? html`<${GroupPanel} session=${session} id=${place.id} onClose=${() => setDetails(false)} />` : null}
    ${details && handle !== null ? html`<${PersonPanel} session=${session} handle=${handle} conversation=${item} onClose=${() => setDetails(false)} />` : null}
    ${place.id === null
      ? html`<div class="messages"><div class="scroller"><div class="feed">
          ${session.outbox.messages.value.filter(({ body }) => body.to === handle).map((outgoing) => html`<${OutgoingRow} key=${outgoing.client_msg_id} session=${session} outgoing=${outgoing} />`)}
        </div></div><p class="empty">There are no messages yet. After your first message, you can send a second one only when @${handle} has replied.</p></div>`
      : html`<${Messages} key=${place.id} session=${session} id=${place.id} onReply=${setReplyTo} />
        <${Typing} session=${session} id=${place.id} />`}
    ${session.watching
      ? html`<p class="hint watching">Only watching: this page acknowledges no messages, marks none as read and sends none.</p>`
      : html`<${Composer} key=${`${place.id}${handle}`} session=${session} target=${target} conversation=${place.id} replyTo=${replyTo}
          onCancelReply=${() => setReplyTo(null)} onSent=${() => undefined} />`}
  </section>`
}
