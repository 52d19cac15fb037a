import { useEffect, useRef, useState } from "preact/hooks"
import { useEscape } from "./Escapes.js"
import { classes, html } from "./Html.js"

/**
 * A small disc with the first letter of a handle. The handle determines its colour.
 * @param {{ name: string, group?: boolean, dot?: string | undefined }} props
 */
export const Monogram = ({ dot, group = false, name }) => {
  let sum = 0
  for (const char of name) sum = (sum * 31 + (char.codePointAt(0) ?? 0)) % 6
  return html`<span class=${classes("monogram", `hue-${sum}`, group && "of-group")} aria-hidden="true">
    ${[...name.replace(/^[^\p{L}\p{N}]+/u, "")][0]?.toUpperCase() ?? "#"}
    ${dot === undefined ? null : html`<i class=${`dot ${dot}`}></i>`}</span>`
}

/**
 * A button for an action that cannot easily be undone. A click replaces it by a question, and a second click confirms the action. The Escape
 * key and *Cancel* take the question back.
 * @param {{ label: string, sure: string, onConfirm: () => unknown, disabled?: boolean, quiet?: boolean, tabindex?: number }} props
 * `quiet` is for a button among other quiet ones
 */
export const Careful = ({ disabled = false, label, onConfirm, quiet = false, sure, tabindex = 0 }) => {
  const [asking, setAsking] = useState(/** @type {boolean | undefined} */ (undefined))
  const yes = useRef(/** @type {HTMLButtonElement | null} */ (null))
  const first = useRef(/** @type {HTMLButtonElement | null} */ (null))
  useEffect(() => {
    if (asking === true) yes.current?.focus()
    else if (asking === false) first.current?.focus()
  }, [asking])
  useEscape(asking === true, () => setAsking(false))
  return asking === true
    ? html`<span class="careful" role="group" aria-label=${sure}><span>${sure}</span>
        <button type="button" class="danger" ref=${yes} onClick=${() => {
          setAsking(false)
          onConfirm()
        }}>${label}</button>
        <button type="button" onClick=${() => setAsking(false)}>Cancel</button></span>`
    : html`<button type="button" ref=${first} class=${quiet ? "quiet" : "danger-quiet"} tabindex=${tabindex} disabled=${disabled} onClick=${() => setAsking(true)}>${label}</button>`
}

/**
 * A form with one field.
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.action the text of its button
 * @param {string} [props.value]
 * @param {string} [props.placeholder]
 * @param {boolean} [props.optional] whether it may be empty
 * @param {number} [props.max]
 * @param {(value: string) => Promise<unknown>} props.onSubmit clears the field if it returns true
 */
export const OneField = ({ action, label, max, onSubmit, optional = false, placeholder, value = "" }) => {
  const [text, setText] = useState(value)
  const [busy, setBusy] = useState(false)
  return html`<form class="one-field" onSubmit=${async (/** @type {Event} */ event) => {
    event.preventDefault()
    setBusy(true)
    if (await onSubmit(text.trim()) === true) setText("")
    setBusy(false)
  }}>
    <label><span>${label}</span><input value=${text} placeholder=${placeholder} maxlength=${max} required=${!optional} autocomplete="off" autocapitalize="none"
      onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} /></label>
    <button type="submit" disabled=${busy}>${action}</button>
  </form>`
}
