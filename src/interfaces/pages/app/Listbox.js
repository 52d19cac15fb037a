import { useEffect, useId, useRef, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { useEscape } from "../shared/Escapes.js"
import { html } from "../shared/Html.js"

/** @import { Person } from "../client/Wire.ts" */

/** @typedef {ReturnType<typeof useListbox>} Listbox */

/**
 * The keyboard and the ARIA attributes of a text field that offers a list below or above it. The arrow keys select an
 * offer, Enter chooses it, and Escape closes the list. The focus stays in the field.
 * @template T
 * @param {object} options
 * @param {ReadonlyArray<T>} options.offers the list is open while there are offers
 * @param {string} options.of the text on which the offers depend. For another text, the selection begins again
 * @param {number} [options.first] the offer that is selected at first; -1 for none
 * @param {boolean} [options.byTab] whether the Tab key chooses an offer too
 * @param {(offer: T) => void} options.onChoose
 * @param {() => void} [options.onClose] called by Escape
 */
export const useListbox = ({ byTab = false, first = 0, of, offers, onChoose, onClose }) => {
  const id = useId()
  const [choice, setChoice] = useState({ of, index: first })
  const list = useRef(/** @type {HTMLUListElement | null} */ (null))
  const isOpen = offers.length > 0
  const selected = Math.min(choice.of === of ? choice.index : first, offers.length - 1)
  useEscape(isOpen && onClose !== undefined, () => onClose?.())
  useEffect(() => {
    list.current?.querySelector("[aria-selected='true']")?.scrollIntoView({ block: "nearest" })
  }, [selected, of])
  const choose = (/** @type {number} */ index) => {
    const offer = offers[index]
    if (offer !== undefined) onChoose(offer)
  }
  return {
    isOpen,
    /** Returns whether it has handled the key. */
    onKey: (/** @type {KeyboardEvent} */ event) => {
      if (!isOpen || event.isComposing || event.shiftKey) return false
      const next = {
        ArrowDown: (selected + 1) % offers.length,
        ArrowUp: selected < 1 ? offers.length - 1 : selected - 1
      }[event.key]
      if (next !== undefined) setChoice({ of, index: next })
      else if (selected >= 0 && (event.key === "Enter" || (byTab && event.key === "Tab"))) choose(selected)
      else return false
      event.preventDefault()
      return true
    },
    /** The attributes of the field. */
    field: {
      "aria-autocomplete": "list",
      "aria-haspopup": "listbox",
      "aria-controls": isOpen ? id : undefined,
      "aria-activedescendant": isOpen && selected >= 0 ? `${id}-${selected}` : undefined
    },
    /** The attributes of the list. */
    list: { role: "listbox", id, ref: list },
    /** The attributes of an offer in the list. */
    option: (/** @type {number} */ index) => ({
      role: "option",
      id: `${id}-${index}`,
      "aria-selected": index === selected,
      // The field keeps the focus.
      onMouseDown: (/** @type {Event} */ event) => event.preventDefault(),
      onClick: () => choose(index)
    })
  }
}

/**
 * The agents that a field offers.
 * @param {{ listbox: Listbox, people: ReadonlyArray<Person & { note?: string | undefined }>, below?: boolean }} props
 */
export const OfferedAgents = ({ below = false, listbox, people }) =>
  listbox.isOpen ?
    html`<ul class=${below ? "offered-agents below" : "offered-agents"} ...${listbox.list} aria-label="Agents">${
      people.map(({ avatar_url: url, display_name: name, handle, note }, index) =>
        html`<li key=${handle} ...${listbox.option(index)}><${Avatar} name=${handle} title=${name} url=${url} />
        <span class="ellipsis"><bdi>${name ?? handle}</bdi> <span class="handle">@${handle}</span>${
          note === undefined ? null : html` <small>${note}</small>`
        }</span></li>`
      )
    }</ul>` :
    null
