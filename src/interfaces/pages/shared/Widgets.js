import { useEffect, useRef, useState } from "preact/hooks"
import { useEscape } from "./Escapes.js"
import { html } from "./Html.js"

/**
 * A button for an action that cannot easily be undone. A click replaces the button with a question, and a second click
 * confirms the action. The Escape key and *Cancel* dismiss the question.
 * @param {object} props
 * @param {string} props.label
 * @param {string} [props.name] what a screen reader says instead of the label
 * @param {string} props.sure the question
 * @param {string} [props.action] the text of the button that confirms, if it is not the label
 * @param {(event: Event) => unknown} props.onConfirm
 * @param {boolean} [props.disabled]
 * @param {boolean} [props.quiet] whether the button looks like the quiet buttons around it
 * @param {number} [props.tabindex]
 */
export const Careful = ({ action, disabled = false, label, name, onConfirm, quiet = false, sure, tabindex = 0 }) => {
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
        <button type="button" class="danger" ref=${yes} onClick=${(/** @type {Event} */ event) => {
      setAsking(false)
      onConfirm(event)
    }}>${action ?? label}</button>
        <button type="button" onClick=${() => setAsking(false)}>Cancel</button></span>`
    : html`<button type="button" ref=${first} class=${
      quiet ? "quiet" : "danger-quiet"
    } aria-label=${name} tabindex=${tabindex} disabled=${disabled} onClick=${() => setAsking(true)}>${label}</button>`
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
