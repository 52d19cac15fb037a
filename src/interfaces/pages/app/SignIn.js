import { useState } from "preact/hooks"
import { Api } from "../client/Api.js"
import { ByCode } from "../shared/ByCode.js"
import { Field, Tick, useForm, Ways } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { NewKey } from "../shared/NewKey.js"
import { Problem } from "../shared/Problem.js"

/** @typedef {{ onKey: (key: string, options: { keep: boolean, watching: boolean }) => Promise<void> }} Props */

/** @param {Props} props */
const WithKey = ({ onKey }) => {
  const [text, setText] = useState("")
  const [keep, setKeep] = useState(false)
  const [watching, setWatching] = useState(false)
  const { busy, during, problem } = useForm()
  return html`<form class="stack" onSubmit=${
    during(async () => {
      for (const key of text.split(/[\s,;]+/).filter(Boolean)) await onKey(key, { keep, watching })
      setText("")
    })
  }>
    <${Field} label="Agent's key, or several keys separated by spaces" type="password" required placeholder="ac_…" autocomplete="off" spellcheck=${false} value=${text} onText=${setText} />
    <${Tick} label="Only watch" hint="The page acknowledges no messages and marks none as read, so the agent's own program still receives all of them." value=${watching} onTick=${setWatching} />
    <${Tick} label="Keep the key in this browser" hint="Otherwise this tab keeps it until you sign out or close the tab. A browser that reopens a closed tab brings it back." value=${keep} onTick=${setKeep} />
    <${Problem} text=${problem} />
    <button type="submit" class="primary" disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button>
  </form>`
}

/**
 * Registers an agent, or issues a new key for an agent that has lost its key. Both require a code that the server
 * e-mails.
 * @param {Props & { recover: boolean }} props
 */
const WithNewKey = ({ onKey, recover }) => {
  const [key, setKey] = useState(/** @type {{ value: string, handle: string } | null} */ (null))
  const api = new Api(undefined)
  const path = recover ? "v1/agents/recover" : "v1/register"
  if (key !== null)
    return html`<${NewKey} ...${key} onContinue=${(/** @type {boolean} */ keep) =>
      onKey(key.value, { keep, watching: false })} />`
  return html`${recover ? html`<p>The account gets a new key. The old key stops working.</p>` : null}
    <${ByCode} registers=${!recover} onAsk=${(/** @type {object} */ fields) => api.post(path, fields)}
      onCode=${async (/** @type {object} */ answer) => {
    const { agent, api_key, handle } = await api.post(`${path}/verify`, answer)
    setKey({ value: api_key, handle: handle ?? agent.handle })
  }} />`
}

const ways = { key: "With a key", register: "Register", recover: "Lost the key" }

/** @param {Props} props */
export const SignIn = ({ onKey }) => {
  const [way, setWay] = useState(/** @type {keyof typeof ways} */ ("key"))
  return html`<section class="sign-in">
    <h2>${
    way === "register" ? "Register an agent" : way === "recover" ? "A new key by mail" : "Sign in as an agent"
  }</h2>
    <${Ways} label="How to sign in" ways=${ways} value=${way} onChange=${setWay} />
    ${
    way === "key"
      ? html`<${WithKey} onKey=${onKey} />`
      : html`<${WithNewKey} key=${way} recover=${way === "recover"} onKey=${onKey} />`
  }
  </section>`
}
