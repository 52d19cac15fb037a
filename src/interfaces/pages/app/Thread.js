import { useEffect, useReducer, useRef, useState } from "preact/hooks"
import { empty } from "../client/Timeline.js"
import { Avatar } from "../shared/Avatar.js"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"
import { Answers } from "./Answers.js"
import { Budget } from "./Budget.js"
import { Composer } from "./Composer.js"
import { avatarOf } from "./ConversationList.js"
import { GroupPanel } from "./GroupPanel.js"
import { OutgoingRow } from "./MessageRow.js"
import { Messages } from "./Messages.js"
import { PersonPanel } from "./PersonPanel.js"
import { StandingText, useStanding } from "./Standing.js"
import { searchIn } from "./Views.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Root } from "./Answers.js"
 * @import { Place } from "../client/Conversations.js"
 * @import { Session } from "../client/Session.js"
 */

/** @param {{ session: Session, id: string }} props */
const Typing = ({ id, session }) => {
  const who = [...session.presences.typing.value.get(id)?.keys() ?? []]
  return html`<p class="typing" aria-live="off">${
    who.length === 0
      ? ""
      : who.length > 2
      ? `${who.length} are writing …`
      : `${who.map((handle) => `@${handle}`).join(" and ")} ${who.length === 1 ? "is" : "are"} writing …`
  }</p>`
}

/**
 * Whether touch is the only input. If a field gets the focus on such a device, the keyboard covers half of the page.
 */
const byTouch = () => matchMedia("(hover: none)").matches

/**
 * An open conversation: its title, its messages, and the field for a new message.
 * @param {{ session: Session, place: Place, isFront: boolean }} props
 */
export const Thread = ({ isFront, place, session }) => {
  const [details, setDetails] = useState(false)
  const [answers, setAnswers] = useState(/** @type {Root | null} */ (null))
  /** Whether the person does not want to reply to the message whose answers are shown. */
  const [declined, setDeclined] = useState(false)
  const thread = useRef(/** @type {HTMLElement | null} */ (null))
  const about = useRef(/** @type {HTMLButtonElement | null} */ (null))
  const item = session.conversations.list.value.find(({ id }) => id === place.id)
  const isGroup = place.id?.startsWith("grp_") === true
  const listed = session.conversations.listed.value
  const { messages } = place.id === null ? empty : session.conversations.timeline(place.id).value
  // A conversation that is hidden is not in the list.
  const handle = isGroup
    ? null
    : place.handle ?? item?.participants[0]?.handle ??
      (listed ? messages.find(({ sender }) => sender !== session.handle)?.sender ?? null : null)
  const group = isGroup && place.id !== null ? session.conversations.group(place.id).value : null
  const title = isGroup
    ? group?.name ?? item?.group_name ?? "Group"
    : item?.participants[0]?.display_name ?? handle ?? ""
  const standing = useStanding(session, session.watching ? null : handle)
  const isRefused = standing?.isRefused === true ||
    (handle !== null && session.conversations.blocked.value.has(handle))
  const presence = handle === null ? undefined : session.presences.all.value.get(handle)
  const members = group?.member_count ?? item?.group_member_count
  /** The target of the messages, in the form that the outbox and the drafts use. */
  const target = isGroup ? place.id : handle === null ? null : `@${handle}`

  const [, redraw] = useReducer((/** @type {number} */ count) => count + 1, 0)
  const reply = (/** @type {Message | null} */ message) => {
    if (target !== null) session.drafts.set(target, { ...session.drafts.of(target), replyTo: message })
    redraw(0)
  }
  useEffect(() => {
    setDetails(false)
    setAnswers(null)
  }, [target])
  useEffect(() => {
    // If the thread was opened at a message, that message takes the focus itself.
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
  /** The message to which a new one replies: the chosen one, or the one whose answers are shown. */
  const replyTo = target === null
    ? null
    : session.drafts.of(target).replyTo ??
      (answers !== null && "sender" in answers && !declined ? answers : null)
  const cancelReply = () => {
    setDeclined(true)
    reply(null)
  }
  /** The element that opened the answers, and gets the focus back. */
  const opener = useRef(/** @type {Element | null} */ (null))
  const closeAnswers = () => {
    setAnswers(null)
    if (opener.current instanceof HTMLElement && opener.current.isConnected) opener.current.focus()
    else thread.current?.querySelector("h2")?.focus()
  }
  useEscape(answers !== null, closeAnswers)
  useEffect(() => {
    const button = thread.current?.querySelector("aside button")
    if ((details || answers !== null) && button instanceof HTMLElement) button.focus()
  }, [details, answers?.id, group === null])

  return html`<section class="thread" ref=${thread} aria-label=${`Conversation of @${session.handle}: ${title}`}>
    <header class="thread-head">
      <button type="button" class="icon back" aria-label="Back to the conversations" onClick=${() =>
    session.conversations.place.value = null}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M12.5 4 6.5 10l6 6" /></svg></button>
      ${
    item === undefined
      ? html`<${Avatar} name=${handle ?? title} group=${isGroup} />`
      : html`<${Avatar} ...${avatarOf(item)} ...${
        group === null ? {} : { url: group.avatar_url }
      } dot=${presence?.status} />`
  }
      <div class="thread-title">
        <h2 tabindex="-1"><bdi>${title}</bdi></h2>
        <p>${
    isGroup ? counted(members ?? 0, "member") : handle === null ? null : html`<span class="handle">@${handle}</span>`
  }
          ${
    handle !== null && session.conversations.blocked.value.has(handle)
      ? html` · <small class="tag" title="Neither can write to the other">blocked</small>`
      : null
  }
          ${
    presence === undefined ? null : html` · <span class=${`presence ${presence.status}`}>${presence.status}</span>
            ${
      presence.custom_message === null || presence.custom_message === ""
        ? null
        : html` · <bdi>${presence.custom_message}</bdi>`
    }`
  }</p>
      </div>
      ${
    place.id === null
      ? null
      : html`<button type="button" class="icon" aria-label="Search in this conversation" title="Search in this conversation" onClick=${() =>
        searchIn(session, place.id ?? "")}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M8.5 14a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11Zm4-1.5L17 17" /></svg></button>`
  }
      <button type="button" ref=${about} aria-expanded=${details} onClick=${() => {
    setAnswers(null)
    setDetails(!details)
  }}>${isGroup ? "Group" : "About"}</button>
    </header>
    ${
    details && isGroup && place.id !== null
      ? html`<${GroupPanel} session=${session} id=${place.id} onClose=${close} />`
      : null
  }
    ${
    details && handle !== null
      ? html`<${PersonPanel} session=${session} handle=${handle} conversation=${item} onClose=${close} />`
      : null
  }
    ${
    answers === null
      ? null
      : html`<${Answers} key=${answers.id} session=${session} root=${answers} onReply=${reply} onClose=${closeAnswers} />`
  }
    ${
    place.id === null
      ? html`<div class="messages"><div class="scroller"><div class="feed">
          ${
        session.outbox.messages.value.filter(({ body }) => body.to === handle).map((outgoing) =>
          html`<${OutgoingRow} key=${outgoing.client_msg_id} session=${session} outgoing=${outgoing} />`
        )
      }
        </div></div>${
        standing?.isRefused === true
          ? null
          : html`<p class="empty">There are no messages yet. After your first message, you can send a second one only when @${handle} has replied.</p>`
      }<${StandingText} session=${session} standing=${standing} /></div>`
      : html`<${Messages} key=${place.id} session=${session} id=${place.id} place=${place} onReply=${reply} onAnswers=${(
        /** @type {Root} */ root
      ) => {
        setDetails(false)
        opener.current = document.activeElement
        setAnswers(root)
        setDeclined(false)
      }} />
        <${Typing} session=${session} id=${place.id} />`
  }
    ${place.id === null ? null : html`<${StandingText} session=${session} standing=${standing} isCalm />`}
    ${
    session.watching
      ? html`<p class="hint watching">Only watching as <span class="handle">@${session.handle}</span>: this page acknowledges no messages, marks none as read and sends none.</p>`
      : target === null || isRefused ?
      null
      : html`<${Budget} session=${session} target=${target} /><${Composer} key=${target} session=${session} target=${target} conversation=${place.id} replyTo=${replyTo} onCancelReply=${cancelReply} onSent=${() =>
        reply(null)} />`
  }
  </section>`
}
