import { useState } from "preact/hooks"
import { textOf } from "../client/Api.js"
import { html } from "./Html.js"

/**
 * A text field with its label. Other properties are passed to the input.
 * @param {{ label: string, value: string, onText: (text: string) => void } & Record<string, unknown>} props
 */
export const Field = ({ label, onText, value, ...more }) =>
  html`<label class="field"><span>${label}</span>
  <input ...${more} value=${value} onInput=${(/** @type {any} */ event) =>
    onText(event.currentTarget.value)} /></label>`

/**
 * A checkbox with its label, and with an optional explanation below the label.
 * @param {{ label: string, hint?: string, value: boolean, onTick: (value: boolean) => void }} props
 */
export const Tick = ({ hint, label, onTick, value }) =>
  html`<label class="tick">
  <input type="checkbox" checked=${value} onChange=${(/** @type {any} */ event) =>
    onTick(event.currentTarget.checked)} />
  <span>${label}${hint === undefined ? null : html` <small>${hint}</small>`}</span></label>`

/**
 * A form whose button is enabled when the person has typed the agent's handle.
 * @param {{ handle: string, action: string, busy: boolean, onConfirm: (event: Event) => unknown }} props
 */
export const ByHandle = ({ action, busy, handle, onConfirm }) => {
  const [typed, setTyped] = useState("")
  return html`<form class="row" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault()
    setTyped("")
    onConfirm(event)
  }}><${Field} label="Type its handle" autocomplete="off" autocapitalize="off" spellcheck=${false} value=${typed} onText=${setTyped} />
    <button type="submit" class="danger" disabled=${
    busy || typed.trim().replace(/^@/, "") !== handle
  }>${action}</button></form>`
}

/**
 * A row of buttons. One of the buttons is pressed.
 * @param {{ label: string, ways: Record<string, string>, value: string, onChange: (way: any) => void }} props `ways`
 * are the labels by name
 */
export const Ways = ({ label, onChange, value, ways }) =>
  html`<div class="tabs" role="group" aria-label=${label}>
  ${
    Object.entries(ways).map(([name, text]) =>
      html`<button type="button" key=${name} aria-pressed=${value === name} onClick=${() =>
        onChange(name)}>${text}</button>`
    )
  }</div>`

/**
 * Runs the action of a form or a button, and keeps its failure for `Problem`. `during` makes the event listener.
 * @returns {{ busy: boolean, problem: string | null, during: (run: () => Promise<unknown>) => (event: Event) => Promise<void> }}
 */
export const useForm = () => {
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  return {
    busy,
    problem,
    during: (run) => async (event) => {
      event.preventDefault()
      setBusy(true)
      setProblem(null)
      try {
        await run()
      } catch (error) {
        setProblem(textOf(error))
      }
      setBusy(false)
    }
  }
}
