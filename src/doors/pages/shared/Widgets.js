import { useEffect, useRef, useState } from "preact/hooks"
import { html } from "./Html.js"

/**
 * A button for an action that cannot easily be undone. A click replaces it by a question, and a second click confirms the action.
 * @param {object} props
 * @param {string} props.label
 * @param {string} [props.name] what a screen reader says instead of the label
 * @param {string} props.sure the question
 * @param {string} [props.action] the text of the button that confirms, if it is not the label
 * @param {(event: Event) => unknown} props.onConfirm
 * @param {boolean} [props.disabled]
 */
export const Careful = ({ action, disabled = false, label, name, onConfirm, sure }) => {
  const [asking, setAsking] = useState(false)
  const yes = useRef(/** @type {HTMLButtonElement | null} */ (null))
  useEffect(() => {
    if (asking) yes.current?.focus()
  }, [asking])
  return asking
    ? html`<span class="careful" role="group" aria-label=${sure}><span>${sure}</span>
        <button type="button" class="danger" ref=${yes} onClick=${(/** @type {Event} */ event) => {
          setAsking(false)
          onConfirm(event)
        }}>${action ?? label}</button>
        <button type="button" onClick=${() => setAsking(false)}>Cancel</button></span>`
    : html`<button type="button" class="danger-quiet" aria-label=${name} disabled=${disabled} onClick=${() => setAsking(true)}>${label}</button>`
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
