import { useState } from "preact/hooks"
import { Copy } from "../shared/Copy.js"
import { classes, html } from "../shared/Html.js"

/** The number of entries of one object or array that are drawn at first, and that each click of the button adds. */
const PAGE = 100
/** A value with at most so many entries, on at most so many levels, is drawn open as a whole. */
const SMALL = 60
const SHALLOW = 6

/** @param {unknown} value @returns {ReadonlyArray<readonly [string, unknown]> | undefined} the entries of an object or array */
const entriesOf = (value) => typeof value === "object" && value !== null ? Object.entries(value) : undefined

/**
 * How many more entries may follow after all of those of a value; negative if the value has too many, or too many levels.
 * @param {unknown} value
 * @param {number} left
 * @param {number} depth
 * @returns {number}
 */
const leftAfter = (value, left, depth) => {
  const entries = entriesOf(value) ?? []
  if (entries.length > left || depth > SHALLOW) return -1
  let rest = left - entries.length
  for (const [, one] of entries) {
    rest = leftAfter(one, rest, depth + 1)
    if (rest < 0) return -1
  }
  return rest
}

/**
 * One entry. Its own entries are made only while it is open, so that a deep or large value costs nothing until somebody opens it.
 * @param {{ name: string | undefined, value: unknown, open: boolean, small: boolean, tab: number }} props
 */
const Entry = ({ name, open, small, tab, value }) => {
  const [isOpen, setOpen] = useState(open)
  const [most, setMost] = useState(PAGE)
  const key = name === undefined ? null : html`<span class="key"><bdi>${name}</bdi>: </span>`
  const entries = entriesOf(value)
  if (entries === undefined || entries.length === 0) {
    const kind = value === null ? "null" : typeof value
    return html`<span class="entry">${key}<span class=${`value of-${kind}`} dir="auto">${kind === "object" ? Array.isArray(value) ? "[]" : "{}" : JSON.stringify(value)}</span></span>`
  }
  const count = Array.isArray(value) ? `[ ${entries.length} ]` : `{ ${entries.length} }`
  return html`<details open=${open} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary tabindex=${tab}>${key}<span class="value">${count}</span></summary>
    ${isOpen ? html`<ul>${entries.slice(0, most).map(([name, one]) => html`<li key=${name}><${Entry} name=${name} value=${one} open=${small} small=${small} tab=${tab} /></li>`)}
      ${entries.length > most ? html`<li><button type="button" class="quiet" tabindex=${tab} onClick=${() => setMost(most + PAGE)}>${entries.length - most} more</button></li>` : null}</ul>` : null}
  </details>`
}

/**
 * A JSON value as a tree whose objects and arrays fold. A small value is open as a whole, a large one on its first level.
 * @param {{ value: unknown, tab: number }} props
 */
export const Tree = ({ tab, value }) => html`<div class=${classes("code", "tree")}>
  <${Entry} name=${undefined} value=${value} open=${true} small=${leftAfter(value, SMALL, 0) >= 0} tab=${tab} />
  <p><span>JSON</span><${Copy} text=${() => JSON.stringify(value, null, 2)} label="this data" tab=${tab} /></p></div>`

/**
 * The object or array that a text is as JSON; undefined if the text is none, or has digits that a number of JavaScript cannot hold.
 * @param {string} text
 * @returns {unknown}
 */
export const jsonOf = (text) => {
  if (!/^\s*[[{]/.test(text) || !/[\]}]\s*$/.test(text) || /\d{16}/.test(text)) return undefined
  try {
    const value = JSON.parse(text)
    return Object.keys(value).length === 0 ? undefined : value
  } catch {
    return undefined
  }
}
