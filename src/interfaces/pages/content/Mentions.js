import { html } from "../shared/Html.js"
import { WORD } from "../tab/Mentions.js"
import { hashOf } from "../tab/Routes.js"

/** @import { Session } from "../client/Session.js" */

/**
 * `@` and a handle, by the server's rule (wire.md I). The server decides which of them are mentions, so this need not
 * know code and URLs.
 */
const LETTER = `A-Za-z0-9${WORD}`
const NAME = "[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
const LONGER = String.raw`[${LETTER}_/@]|[\-.][${LETTER}]|:[${LETTER}\-]+\.[${LETTER}]|:registry(?![A-Za-z0-9])`
const MENTION = new RegExp(String.raw`(?<![${LETTER}_\-@./])@(${NAME})(?!${LONGER})`, "gu")

/**
 * The pieces of a text without formatting. A piece with a `handle` is a mention.
 * @param {string} text
 * @param {ReadonlyArray<string>} mentions the handles that the message mentions, in lower case
 * @returns {ReadonlyArray<{ readonly text: string, readonly handle?: string }>}
 */
export const piecesOf = (text, mentions) => {
  /** @type {Array<{ text: string, handle?: string }>} */
  const pieces = []
  let at = 0
  for (const { 0: found, 1: name = "", index } of text.matchAll(MENTION)) {
    const handle = name.toLowerCase()
    if (!mentions.includes(handle)) continue
    if (index > at) pieces.push({ text: text.slice(at, index) })
    pieces.push({ text: found, handle })
    at = index + found.length
  }
  return at < text.length ? [...pieces, { text: text.slice(at) }] : pieces
}

/**
 * Shows the mentions in the texts of a message. A mention of the agent itself is highlighted. A mention of another
 * agent is a link, which opens the profile of that agent.
 * @param {Session} session
 * @param {ReadonlyArray<string>} mentions the handles that the message mentions
 * @param {number} tab the tabindex of the links
 * @returns {(text: string) => any}
 */
export const mentioned = (session, mentions, tab) => (text) =>
  mentions.length === 0 || !text.includes("@") ?
    text :
    piecesOf(text, mentions).map(({ handle, text }) =>
      handle === undefined
        ? text
        : handle === session.handle
        ? html`<mark class="mention">${text}</mark>`
        : html`<a class="mention" tabindex=${tab} title="Shows the profile" href=${
          hashOf({ handle: session.handle, place: { id: null, handle } })
        } onClick=${(/** @type {MouseEvent} */ event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return
          event.preventDefault()
          session.profile.value = handle
        }}>${text}</a>`
    )
