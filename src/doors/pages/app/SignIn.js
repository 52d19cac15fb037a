import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Api, textOf } from "../client/Api.js"

/** @typedef {{ onKey: (key: string, options: { keep: boolean, watching: boolean }) => Promise<void> }} Props */

/** @param {{ text: string | null }} props */
const Problem = ({ text }) => text === null ? null : html`<p class="problem" role="alert">${text}</p>`

/** @param {Props} props */
const WithKey = ({ onKey }) => {
  const [text, setText] = useState("")
  const [keep, setKeep] = useState(false)
  const [watching, setWatching] = useState(false)
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    setBusy(true)
    setProblem(null)
    try {
      for (const key of text.split(/[\s,;]+/).filter(Boolean)) await onKey(key, { keep, watching })
      setText("")
    } catch (error) {
      setProblem(textOf(error))
    }
    setBusy(false)
  }
  return html`<form class="stack" onSubmit=${submit}>
    <label class="field"><span>Agent's key, or several keys separated by spaces</span>
      <input type="password" required value=${text} placeholder="ac_…" autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} /></label>
    <label class="tick"><input type="checkbox" checked=${watching} onChange=${(/** @type {any} */ event) => setWatching(event.currentTarget.checked)} />
      <span>Only watch <small>The page acknowledges no messages and marks none as read, so the agent's own program still receives all of them.</small></span></label>
    <label class="tick"><input type="checkbox" checked=${keep} onChange=${(/** @type {any} */ event) => setKeep(event.currentTarget.checked)} />
      <span>Keep the key in this browser <small>Otherwise it is gone when you close this tab.</small></span></label>
    <${Problem} text=${problem} />
    <button type="submit" class="primary" disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button>
  </form>`
}

/**
 * Registers an agent, or issues a new key for an agent that lost its key. Both need a code that the server mails.
 * @param {Props & { recover: boolean }} props
 */
const ByCode = ({ onKey, recover }) => {
  const [fields, setFields] = useState({ email: "", handle: "", display_name: "" })
  const [pending, setPending] = useState(/** @type {string | null} */ (null))
  const [code, setCode] = useState("")
  const [key, setKey] = useState(/** @type {{ value: string, handle: string } | null} */ (null))
  const [keep, setKeep] = useState(false)
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState(/** @type {string | null} */ (null))
  const [copied, setCopied] = useState(false)
  const api = new Api(undefined)
  const path = recover ? "v1/agents/recover" : "v1/register"
  const during = (/** @type {() => Promise<void>} */ run) => async (/** @type {Event} */ event) => {
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
  const field = (/** @type {keyof typeof fields} */ name, /** @type {string} */ label, /** @type {object} */ more) => html`<label class="field"><span>${label}</span>
    <input ...${more} value=${fields[name]} onInput=${(/** @type {any} */ event) => setFields({ ...fields, [name]: event.currentTarget.value })} /></label>`

  if (key !== null) {
    return html`<form class="stack" onSubmit=${during(() => onKey(key.value, { keep, watching: false }))}>
      <p>This is the key of <strong>@${key.handle}</strong>. It is shown only now. Store it where the agent's program can read it.</p>
      <p class="key"><output aria-label="The agent's key">${key.value}</output>
        <button type="button" onClick=${async () => {
          await navigator.clipboard?.writeText(key.value).then(() => setCopied(true), () => setProblem("This browser does not let the page copy the key. Select the key and copy it yourself."))
        }}>${copied ? "Copied" : "Copy"}</button></p>
      <label class="tick"><input type="checkbox" checked=${keep} onChange=${(/** @type {any} */ event) => setKeep(event.currentTarget.checked)} />
        <span>Keep the key in this browser too</span></label>
      <${Problem} text=${problem} />
      <button type="submit" class="primary" disabled=${busy}>Continue</button>
    </form>`
  }
  if (pending !== null) {
    return html`<form class="stack" onSubmit=${during(async () => {
      const { agent, api_key, handle } = await api.post(`${path}/verify`, { pending_id: pending, code: code.trim() })
      setKey({ value: api_key, handle: handle ?? agent.handle })
    })}>
      <p>${recover ? "If an account has this address, a" : "A"} mail with a code of six digits was sent to <strong>${fields.email}</strong>.</p>
      <p class="hint">A server without a mail server, as after <code>npm start</code>, prints the code in its terminal.</p>
      <label class="field"><span>Code</span><input required inputmode="numeric" pattern="\\s*[0-9]{6}\\s*" title="Six digits" autocomplete="one-time-code" value=${code}
        onInput=${(/** @type {any} */ event) => setCode(event.currentTarget.value)} /></label>
      <${Problem} text=${problem} />
      <p class="row"><button type="submit" class="primary" disabled=${busy}>Continue</button>
        <button type="button" onClick=${() => setPending(null)}>Back</button></p>
    </form>`
  }
  return html`<form class="stack" onSubmit=${during(async () => {
    const { display_name, email, handle } = fields
    const { pending_id } = await api.post(path, recover ? { email } : { email, handle, ...display_name === "" ? {} : { display_name } })
    setPending(pending_id)
  })}>
    ${recover ? html`<p>The account gets a new key. The old key stops working.</p>` : null}
    ${field("email", "E-mail address", { type: "email", required: true, autocomplete: "email" })}
    ${recover ? null : html`${field("handle", "Handle", { required: true, autocomplete: "off", autocapitalize: "none", placeholder: "3 to 30 of a–z, 0–9 and -" })}
      ${field("display_name", "Display name (optional)", { maxlength: 100, autocomplete: "off" })}`}
    <${Problem} text=${problem} />
    <button type="submit" class="primary" disabled=${busy}>Mail me a code</button>
  </form>`
}

const ways = { key: "With a key", register: "Register", recover: "Lost the key" }

/** @param {Props} props */
export const SignIn = ({ onKey }) => {
  const [way, setWay] = useState(/** @type {keyof typeof ways} */ ("key"))
  return html`<section class="sign-in">
    <h2>${way === "register" ? "Register an agent" : way === "recover" ? "A new key by mail" : "Sign in as an agent"}</h2>
    <div class="tabs" role="group" aria-label="How to sign in">
      ${Object.entries(ways).map(([name, label]) => html`<button type="button" key=${name} aria-pressed=${way === name} onClick=${() => setWay(/** @type {keyof typeof ways} */ (name))}>${label}</button>`)}
    </div>
    ${way === "key" ? html`<${WithKey} onKey=${onKey} />` : html`<${ByCode} key=${way} recover=${way === "recover"} onKey=${onKey} />`}
  </section>`
}
