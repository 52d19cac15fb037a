import { useState } from "preact/hooks"
import { Tick, useForm } from "./Forms.js"
import { html } from "./Html.js"
import { Problem } from "./Problem.js"

/**
 * Shows the key that an agent has just got, once.
 * @param {{ handle: string, value: string, onContinue: (keep: boolean) => Promise<unknown> }} props `keep` is whether to store the key in this browser
 */
export const NewKey = ({ handle, onContinue, value }) => {
  const [keep, setKeep] = useState(false)
  const [copied, setCopied] = useState(false)
  const form = useForm()
  const copying = useForm()
  return html`<form class="stack" onSubmit=${form.during(() => onContinue(keep))}>
    <p>This is the key of <strong>@${handle}</strong>. It is shown only now. Store it where the agent's program can read it.</p>
    <p class="key"><output aria-label="The agent's key">${value}</output>
      <button type="button" onClick=${copying.during(async () => {
        try {
          await navigator.clipboard.writeText(value)
        } catch {
          throw new Error("This browser does not let the page copy the key. Select the key and copy it yourself.")
        }
        setCopied(true)
      })}>${copied ? "Copied" : "Copy"}</button></p>
    <${Tick} label="Keep the key in this browser too" value=${keep} onTick=${setKeep} />
    <${Problem} text=${copying.problem ?? form.problem} />
    <button type="submit" class="primary" disabled=${form.busy}>Continue</button>
  </form>`
}
