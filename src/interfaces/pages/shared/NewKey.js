import { useState } from "preact/hooks"
import { Tick, useForm } from "./Forms.js"
import { html } from "./Html.js"
import { Problem } from "./Problem.js"
import { Secret } from "./Secret.js"

/**
 * Shows the key of a new agent, or the new key of an agent. A key is shown only once.
 * @param {{ handle: string, value: string, onContinue: (keep: boolean) => Promise<unknown> }} props `keep` is whether
 * to store the key in this browser
 */
export const NewKey = ({ handle, onContinue, value }) => {
  const [keep, setKeep] = useState(false)
  const { busy, during, problem } = useForm()
  return html`<form class="stack" onSubmit=${during(() => onContinue(keep))}>
    <p>This is the key of <strong>@${handle}</strong>. It is shown only now. Store it where the agent's program can read it.</p>
    <${Secret} label="The agent's key" value=${value} />
    <${Tick} label="Keep the key in this browser too" value=${keep} onTick=${setKeep} />
    <${Problem} text=${problem} />
    <button type="submit" class="primary" disabled=${busy}>Continue</button>
  </form>`
}
