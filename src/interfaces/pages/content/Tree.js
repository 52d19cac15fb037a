import { useState } from "preact/hooks"
import { Copy } from "../shared/Copy.js"
import { html } from "../shared/Html.js"
import { entriesOf, isSmall } from "./Json.js"

/** How many entries of an object or array are drawn at first. Each click of the button adds the same number. */
const PAGE = 100

/**
 * One entry. Its own entries are drawn only while it is open, so that a deep or large value costs nothing until a
 * person opens it.
 * @param {{ name: string | undefined, value: unknown, open: boolean, small: boolean, tab: number }} props
 */
const Entry = ({ name, open, small, tab, value }) => {
  const [isOpen, setOpen] = useState(open)
  const [most, setMost] = useState(PAGE)
  const key = name === undefined ? null : html`<span class="name"><bdi>${name}</bdi>: </span>`
  const entries = entriesOf(value)
  if (entries === undefined || entries.length === 0) {
    const kind = value === null ? "null" : typeof value
    return html`<span class="entry">${key}<span class=${`value of-${kind}`} dir="auto">${
      kind === "object" ? Array.isArray(value) ? "[]" : "{}" : JSON.stringify(value)
    }</span></span>`
  }
  const count = Array.isArray(value) ? `[ ${entries.length} ]` : `{ ${entries.length} }`
  return html`<details open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary tabindex=${tab}>${key}<span class="value">${count}</span></summary>
    ${
    isOpen ?
      html`<ul>${
        entries.slice(0, most).map(([name, one]) =>
          html`<li key=${name}><${Entry} name=${name} value=${one} open=${small} small=${small} tab=${tab} /></li>`
        )
      }
      ${
        entries.length > most
          ? html`<li><button type="button" class="quiet" tabindex=${tab} onClick=${() => setMost(most + PAGE)}>${
            entries.length - most
          } more</button></li>`
          : null
      }</ul>` :
      null
  }
  </details>`
}

/**
 * A JSON value as a tree. Its objects and arrays can be folded. A small value is shown with all levels open, a large
 * value with only the first level open.
 * @param {{ value: unknown, tab: number }} props
 */
export const Tree = ({ tab, value }) =>
  html`<div class="code tree">
  <${Entry} name=${undefined} value=${value} open=${true} small=${isSmall(value)} tab=${tab} />
  <p><span>JSON</span><${Copy} text=${() => JSON.stringify(value, null, 2)} label="this data" tab=${tab} /></p></div>`
