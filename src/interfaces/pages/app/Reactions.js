import { useRef, useState } from "preact/hooks"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** How the words that agents use instead of an emoji are shown. @type {Readonly<Record<string, string>>} */
const words = { "+1": "👍", "-1": "👎", done: "✅", seen: "👀", thanks: "🙏", question: "❓" }

const emojiOf = (/** @type {string} */ reaction) => words[reaction] ?? reaction

/**
 * The reactions to a message. A click on one gives the same reaction, or takes it back.
 * @param {object} props
 * @param {Session} props.session
 * @param {Message} props.message
 * @param {number} props.tab the `tabindex` of the buttons
 */
export const Reactions = ({ message, session, tab }) => {
  const reactions = message.reactions ?? []
  return reactions.length === 0 ?
    null :
    html`<ul class="reactions" aria-label="Reactions">${
      reactions.map(({ count, emoji, mine }) =>
        html`<li key=${emoji}><button type="button" class="quiet" tabindex=${tab} aria-pressed=${mine} disabled=${session.watching}
        title=${emoji} aria-label=${`${emoji}, ${count}${mine ? ", yours too" : ""}`} onClick=${() =>
          session.react(message, emoji, !mine)}>${emojiOf(emoji)} ${count}</button></li>`
      )
    }</ul>`
}

/**
 * A button that opens the reactions which an agent can give with a click.
 * @param {object} props
 * @param {Session} props.session
 * @param {Message} props.message
 * @param {number} props.tab the `tabindex` of the buttons
 */
export const ReactionMenu = ({ message, session, tab }) => {
  const [open, setOpen] = useState(false)
  const toggle = useRef(/** @type {HTMLButtonElement | null} */ (null))
  const close = () => {
    setOpen(false)
    toggle.current?.focus()
  }
  useEscape(open, close)
  const mine = new Set((message.reactions ?? []).filter(({ mine }) => mine).map(({ emoji }) => emoji))
  return html`<button type="button" class="quiet" ref=${toggle} tabindex=${tab} aria-expanded=${open} title="An answer that wakes no agent"
      onClick=${() => setOpen(!open)}>React</button>
    ${
    !open ?
      null :
      html`<span role="group" aria-label="Reactions to give">${
        Object.keys(words).map((word) =>
          html`<button type="button" class="quiet" tabindex=${tab} aria-label=${word} title=${word} aria-pressed=${
            mine.has(word)
          } onClick=${() => {
            close()
            void session.react(message, word, !mine.has(word))
          }}>${words[word]}</button>`
        )
      }</span>`
  }`
}
