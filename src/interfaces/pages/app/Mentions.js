import { useEffect, useId, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"
import { completed, mentionAt, offered } from "../tab/Mentions.js"

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
  const id = useId()
  const [people, setPeople] = useState(/** @type {ReadonlyArray<Person>} */ ([]))
  const [caret, setCaret] = useState(-1)
  const [choice, setChoice] = useState({ begin: "", index: 0 })
  const mention = caret < 0 ? undefined : mentionAt(text, caret)
  const offers = mention === undefined ? [] : offered(people, mention.begin)
  const isOpen = offers.length > 0
  // A choice applies only to the beginning that was typed at that time. For another beginning, the first agent is
  // chosen.
  const chosen = choice.begin === mention?.begin ? choice.index : 0
  const isAsked = mention !== undefined
  useEffect(() => {
    if (isAsked) void session.mentions.people().then(setPeople)
  }, [isAsked, target])
  useEscape(isOpen, () => setCaret(-1))

  const complete = (/** @type {string | undefined} */ handle) => {
    const element = field.current
    if (mention === undefined || handle === undefined || element === null) return
    const next = completed(text, mention.at, caret, handle)
    // Change the field at once, so that the caret is at the right position for the next key.
    element.value = next.text
    element.focus()
    element.setSelectionRange(next.caret, next.caret)
    onText(next.text)
    setCaret(-1)
  }
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (!isOpen || event.isComposing || event.shiftKey) return false
    const step = { ArrowDown: 1, ArrowUp: offers.length - 1 }[event.key]
    if (step !== undefined) setChoice({ begin: mention?.begin ?? "", index: (chosen + step) % offers.length })
    else if (event.key === "Enter" || event.key === "Tab") complete(offers[chosen]?.handle)
    else return false
    event.preventDefault()
    return true
  }
  const follow = () => {
    const element = field.current
    setCaret(element === null || element.selectionStart !== element.selectionEnd ? -1 : element.selectionStart)
  }
  return {
    onKey,
    follow,
    field: {
      "aria-autocomplete": "list",
      "aria-haspopup": "listbox",
      "aria-controls": isOpen ? id : undefined,
      "aria-activedescendant": isOpen ? `${id}-${chosen}` : undefined,
      onKeyUp: (/** @type {KeyboardEvent} */ event) => {
        if (/^(Arrow(Left|Right)|Home|End)$/.test(event.key)) follow()
      },
      onClick: follow,
      onBlur: () => setCaret(-1)
    },
    list: html`<span class="unseen" role="status">${
      isOpen ? `${counted(offers.length, "agent")} to choose from` : ""
    }</span>
      ${
      isOpen ?
        html`<ul class="mentions" role="listbox" id=${id} aria-label="Agents">${
          offers.map(({ avatar_url: url, display_name: name, handle }, index) =>
            html`<li key=${handle} role="option" id=${`${id}-${index}`} aria-selected=${index === chosen}
          onPointerDown=${(/** @type {Event} */ event) => {
              event.preventDefault()
              complete(handle)
            }}><${Avatar} name=${handle} title=${name} url=${url} /> <span class="ellipsis"><bdi>${
              name ?? handle
            }</bdi> <span class="handle">@${handle}</span></span></li>`
          )
        }</ul>` :
        null
    }`
  }
}
