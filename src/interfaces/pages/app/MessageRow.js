import { useRef, useState } from "preact/hooks"
import { Content, hasForm } from "../content/Content.js"
import { eventText, lineOf } from "../content/Line.js"
import { useEscape } from "../shared/Escapes.js"
import { classes, html } from "../shared/Html.js"
import { clockOf, dayOf, exactly, fully } from "../shared/Texts.js"
import { Careful } from "../shared/Widgets.js"
import { hashOf } from "../tab/Routes.js"
import { ReactionMenu, Reactions } from "./Reactions.js"

/**
 * @import { Message, Outcome, Outgoing } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The text and the colour for each A2A task state. */
const tasks = /** @type {Readonly<Record<string, readonly [text: string, kind: string]>>} */ ({
  SUBMITTED: ["submitted", ""],
  WORKING: ["working", ""],
  INPUT_REQUIRED: ["needs an answer", "warn"],
  AUTH_REQUIRED: ["needs credentials", "warn"],
  COMPLETED: ["completed", "good"],
  FAILED: ["failed", "bad"],
  REJECTED: ["rejected", "bad"],
  CANCELED: ["cancelled", ""]
})

/** The colour for each outcome that a recipient can report. */
const outcomes = { working: "", done: "good", refused: "bad" }

const states = { stored: "Stored", delivered: "Delivered", read: "Read" }

/** Whether an operator has removed the message for all. @param {Message} message */
const isRemoved = ({ content }) => Object.keys(content).length === 0

/** @param {Session} session @param {Message} message */
const namedBy = (session, { sender }) => sender === session.handle ? "You" : `@${sender}`

/** The outcome that the recipient of a message has reported. @param {{ outcome: Outcome }} props */
const OutcomeTag = ({ outcome: { at, reason, state } }) =>
  html`<span class="outcome"><span class=${classes("state-tag", outcomes[state])} title=${exactly(at)}>${state}</span>${
    reason === null ? null : html` <bdi>${reason}</bdi>`
  }</span>`

/** The time of day, with the whole date as its title. @param {{ at: string }} props */
const Clock = ({ at }) => html`<time datetime=${at} title=${fully(at)}>${clockOf(at)}</time>`

/**
 * A button that opens the actions which are rarely used, and says what nobody can do to a sent message (wire.md G.10).
 * @param {object} props
 * @param {Session} props.session
 * @param {Message} props.message
 * @param {number} props.tab the `tabindex` of the buttons
 */
const MoreMenu = ({ message, session, tab }) => {
  const [open, setOpen] = useState(false)
  const toggle = useRef(/** @type {HTMLButtonElement | null} */ (null))
  useEscape(open, () => {
    setOpen(false)
    toggle.current?.focus()
  })
  return html`<button type="button" class="quiet" ref=${toggle} tabindex=${tab} aria-expanded=${open} onClick=${() =>
    setOpen(!open)}>More</button>
    ${
    !open ?
      null :
      html`<span class="more-actions" role="group" aria-label="More actions">
        <${Careful} label="Hide" sure="Hide the message for this agent?" quiet=${true} tabindex=${tab} onConfirm=${() =>
        session.hiding.message(message)} />
        <span class="hint">${
        message.sender === session.handle
          ? "A sent message cannot be edited, and only an operator can delete it for everyone. Hide removes it for this agent only. To correct it, reply to it."
          : "Hide removes the message for this agent only. Only an operator can delete it for everyone."
      }</span></span>`
  }`
}

/** @param {{ at: string }} props */
export const Day = ({ at }) => html`<div class="day" role="presentation"><span>${dayOf(at)}</span></div>`

const NewLine = () => html`<div class="new-line" role="presentation"><span>New messages</span></div>`

/**
 * One message. Consecutive messages of one sender do not repeat the name.
 * @param {object} props
 * @param {Session} props.session
 * @param {Message} props.message
 * @param {Message | undefined} props.before the message before this one
 * @param {Message | null | undefined} props.quoted the message to which this message replies; null if it is not loaded
 * @param {Message | undefined} props.cause the message in another conversation that made the sender write, if it is loaded
 * @param {string | undefined} props.task the state of the task that the message began
 * @param {boolean} [props.isFirstNew] whether the line *New messages* is above this message
 * @param {boolean} props.marked whether the conversation was opened at this message
 * @param {boolean} props.active whether the Tab key reaches this row
 * @param {number} props.position the position among the messages, from 1
 * @param {number} props.size the number of messages; -1 if it is unknown
 * @param {(message: Message) => void} props.onReply
 * @param {(() => void) | undefined} [props.onAnswers] opens the message with its answers; undefined if none are known
 * @param {(id: string) => void} props.onQuote
 * @param {() => void} props.onFocus
 */
export const MessageRow = (
  {
    active,
    before,
    cause,
    isFirstNew = false,
    marked,
    message,
    onAnswers,
    onFocus,
    onQuote,
    onReply,
    position,
    quoted,
    session,
    size,
    task
  }
) => {
  const { content, created_at: at, id, sender, seq, status, type } = message
  const own = sender === session.handle
  const newDay = before === undefined || new Date(before.created_at).toDateString() !== new Date(at).toDateString()
  const goesOn = !newDay && !isFirstNew && before.sender === sender && before.type !== "system" &&
    quoted === undefined &&
    Date.parse(at) - Date.parse(before.created_at) < 300_000
  const tab = active ? 0 : -1
  const [isPlain, setPlain] = useState(false)
  const name = message.context?.sender.display_name
  const hops = typeof message.metadata["caused_by"] === "string" ? Number(message.metadata["hops"]) : 0
  const common = {
    "data-key": id,
    "tabindex": tab,
    "aria-posinset": position,
    "aria-setsize": size,
    onFocus,
    // Safari gives the focus to no row that is touched.
    onClick: onFocus
  }
  if (type === "system") {
    return html`<article key=${id} ...${common} class="message system" aria-label=${`Notice${
      isFirstNew ? ", first new message" : ""
    }`}>
      ${newDay ? html`<${Day} at=${at} />` : null}${isFirstNew ? html`<${NewLine} />` : null}
      <p><bdi>${content.text ?? eventText(content.data ?? {})}</bdi> <${Clock} at=${at} /></p>
    </article>`
  }
  return html`<article key=${id} ...${common} class=${
    classes("message", own && "own", goesOn && "goes-on", marked && "marked", active && "active")
  }
    aria-label=${`${own ? "You" : `@${sender}`}, ${clockOf(at)}${isFirstNew ? ", first new message" : ""}`}>
    ${newDay ? html`<${Day} at=${at} />` : null}${isFirstNew ? html`<${NewLine} />` : null}
    ${
    goesOn ? null : html`<header><strong><bdi>${own ? "You" : name ?? sender}</bdi></strong>
      ${
      own || name === null || name === undefined || name === sender
        ? null
        : html`<span class="handle">@${sender}</span>`
    }
      <${Clock} at=${at} /></header>`
  }
    <div class="bubble">
      ${
    quoted === undefined ? null : quoted === null
      ? onAnswers === undefined
        ? html`<p class="quote">Reply to an earlier message</p>`
        : html`<button type="button" class="quote" tabindex=${tab} onClick=${onAnswers}>Reply to an earlier message</button>`
      : html`<button type="button" class="quote" tabindex=${tab} onClick=${() => onQuote(quoted.id)}>
            <span><bdi>${namedBy(session, quoted)}</bdi>:${" "}</span>
            <bdi>${lineOf(quoted)}</bdi></button>`
  }
      ${
    cause === undefined ?
      null :
      html`<p class="quote">In answer to <a tabindex=${tab} href=${
        hashOf({ handle: session.handle, place: { id: cause.conversation_id, handle: null, at: cause.seq } })
      }><bdi>${namedBy(session, cause)}</bdi>: <bdi>${lineOf(cause)}</bdi></a></p>`
  }
      ${
    isRemoved(message)
      ? html`<p class="hint">An operator of the server removed this message.</p>`
      : html`<${Content} session=${session} content=${content} mentions=${message.context?.mentions} active=${active} isPlain=${isPlain} />`
  }
    </div>
    <${Reactions} session=${session} message=${message} tab=${tab} />
    <footer>
      ${
    !own && message.context?.mentions?.includes(session.handle)
      ? html`<span class="state-tag">Mentions you</span>`
      : null
  }
      ${
    hops > 1
      ? html`<span class="state-tag" title="Agents have made each other write ${hops} messages in a row">${hops} in a row</span>`
      : null
  }
      ${
    task === undefined
      ? null
      : html`<span class=${classes("state-tag", tasks[task]?.[1])} title="This message is an A2A task">Task: ${
        tasks[task]?.[0] ?? task
      }</span>`
  }
      ${
    own
      ? html`<span class=${`state ${status}`} title=${
        status === "read" ? `Read ${exactly(message.read_at)}` : states[status]
      }>${states[status]}</span>`
      : null
  }
      ${message.outcome === undefined ? null : html`<${OutcomeTag} outcome=${message.outcome} />`}
      <span class="row-actions">
        ${goesOn ? html`<${Clock} at=${at} />` : null}
        ${
    onAnswers === undefined
      ? null
      : html`<button type="button" class="quiet" tabindex=${tab} onClick=${onAnswers}>Answers</button>`
  }
        ${
    hasForm(content) ?
      html`<button type="button" class="quiet" tabindex=${tab} aria-pressed=${isPlain} title="Shows this message as it was written"
          onClick=${() => setPlain(!isPlain)}>Plain text</button>` :
      null
  }
        ${
    session.watching ?
      null :
      html`<button type="button" class="quiet" tabindex=${tab} onClick=${() => onReply(message)}>Reply</button>
        ${isRemoved(message) ? null : html`<${ReactionMenu} session=${session} message=${message} tab=${tab} />`}`
  }
        <a class="seq" tabindex=${tab} title="The number of the message, and a link to it" href=${
    hashOf({ handle: session.handle, place: { id: message.conversation_id, handle: null, at: seq } })
  }>#${seq}</a>
        ${session.watching ? null : html`<${MoreMenu} session=${session} message=${message} tab=${tab} />`}
      </span>
    </footer>
  </article>`
}

/** @param {{ session: Session, outgoing: Outgoing }} props */
export const OutgoingRow = ({ outgoing, session }) => {
  const { client_msg_id: id, state, text, why } = outgoing
  return html`<article key=${id} data-key=${id} class=${`message own pending ${state}`} tabindex="-1" aria-label="You, not sent yet">
    <div class="bubble"><p class="text" dir="auto">${text}</p></div>
    <footer>
      <span class="state">${
    state === "failed"
      ? "Not sent"
      : state === "sending"
      ? "Sending …"
      : why === null
      ? "Waiting …"
      : "Waiting for the server"
  }</span>
      ${why === null ? null : html`<span class="why">${why}</span>`}
      ${
    state === "sending" ? null : html`
        <button type="button" class="quiet" onClick=${() => session.outbox.again(id)}>Try again</button>
        <button type="button" class="quiet" onClick=${() => session.outbox.remove(id)}>Discard</button>`
  }
    </footer>
  </article>`
}
