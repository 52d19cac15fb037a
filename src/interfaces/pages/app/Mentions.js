import { useEffect, useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"
import { completed, mentionAt, offered } from "../tab/Mentions.js"
import { OfferedAgents, useListbox } from "./Listbox.js"

/**
 * @import { Person } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/**
 * Completes handles after `@` in a text field. The arrow keys select an agent, Enter and Tab complete its handle, and
 * Escape closes the list.
 * @param {object} options
 * @param {Session} options.session
 * @param {string} options.target the recipient of the text, on which the offered agents depend
 * @param {string} options.text
 * @param {{ current: HTMLTextAreaElement | null }} options.field
 * @param {(text: string) => void} options.onText
 * @returns {{ list: any, field: object, follow: () => void, onKey: (event: KeyboardEvent) => boolean }}
 * `list` is the list to draw above the field. `field` are the properties of the field. `follow` is called after the
 * text has changed. `onKey` returns whether it has handled the key.
 */
export const useMentions = ({ field, onText, session, target, text }) => {
  const [people, setPeople] = useState(/** @type {ReadonlyArray<Person>} */ ([]))
  const [caret, setCaret] = useState(-1)
  const mention = caret < 0 ? undefined : mentionAt(text, caret)
  const offers = mention === undefined ? [] : offered(people, mention.begin)
  const isAsked = mention !== undefined
  useEffect(() => {
    if (isAsked) void session.mentions.people().then(setPeople)
  }, [isAsked, target])

  const complete = (/** @type {Person} */ { handle }) => {
    const element = field.current
    if (mention === undefined || element === null) return
    const next = completed(text, mention.at, caret, handle)
    // Change the field at once, so that the caret is at the right position for the next key.
    element.value = next.text
    element.focus()
    element.setSelectionRange(next.caret, next.caret)
    onText(next.text)
    setCaret(-1)
  }
  const listbox = useListbox({
    offers,
    of: mention?.begin ?? "",
    byTab: true,
    onChoose: complete,
    onClose: () => setCaret(-1)
  })
  const follow = () => {
    const element = field.current
    setCaret(element === null || element.selectionStart !== element.selectionEnd ? -1 : element.selectionStart)
  }
  return {
    onKey: listbox.onKey,
    follow,
    field: {
      ...listbox.field,
      onKeyUp: (/** @type {KeyboardEvent} */ event) => {
        if (/^(Arrow(Left|Right)|Home|End)$/.test(event.key)) follow()
      },
      onClick: follow,
      onBlur: () => setCaret(-1)
    },
    list: html`<span class="unseen" role="status">${
      listbox.isOpen ? `${counted(offers.length, "agent")} to choose from` : ""
    }</span>
      <${OfferedAgents} listbox=${listbox} people=${offers} />`
  }
}
