import { useState } from "preact/hooks"
import { Field, useForm } from "./Forms.js"
import { html } from "./Html.js"
import { Problem } from "./Problem.js"
import { Admission, isClosed, needsInvitation } from "./Registration.js"

/**
 * A form for the six-digit code that the server has e-mailed. The children tell the person where the code was sent.
 * @param {object} props
 * @param {string} [props.action] the text of the button
 * @param {any} [props.children]
 * @param {(code: string) => Promise<unknown>} props.onCode
 * @param {() => void} props.onBack
 * @param {string} [props.back] the text of the button that goes back
 */
export const CodeForm = ({ action = "Continue", back = "Back", children, onBack, onCode }) => {
  const [code, setCode] = useState("")
  const { busy, during, problem } = useForm()
  return html`<form class="stack" onSubmit=${during(() => onCode(code.trim()))}>
    ${children}
    <p class="hint">A server without a mail server, as after <code>npm start</code>, prints the code in its terminal.</p>
    <${Field} label="Code" required inputmode="numeric" pattern="\\s*[0-9]{6}\\s*" title="Six digits" autocomplete="one-time-code" value=${code} onText=${setCode} />
    <${Problem} text=${problem} />
    <p class="row"><button type="submit" class="primary" disabled=${busy}>${action}</button>
      <button type="button" onClick=${onBack}>${back}</button></p>
  </form>`
}

/**
 * Asks for an e-mail address, lets the server send a code to it, and asks for the code.
 * @param {object} props
 * @param {boolean} [props.registers] whether the code is for a new agent. The form then also asks for a handle. For an
 * existing agent, the form does not reveal whether an account has the address.
 * @param {string} [props.invitation] the code of the invitation with which the person has come
 * @param {(fields: object) => Promise<{ pending_id: string }>} props.onAsk
 * @param {(answer: { pending_id: string, code: string }) => Promise<unknown>} props.onCode
 */
export const ByCode = ({ invitation, onAsk, onCode, registers = false }) => {
  const [fields, setFields] = useState({ email: "", handle: "", display_name: "", invite_code: invitation ?? "" })
  const [pending, setPending] = useState(/** @type {string | null} */ (null))
  const { busy, during, problem } = useForm()
  const field = (/** @type {keyof typeof fields} */ name, /** @type {string} */ label, /** @type {object} */ more) =>
    html`<${Field} ...${more} label=${label} value=${fields[name]} onText=${(/** @type {string} */ text) =>
      setFields({ ...fields, [name]: text })} />`

  if (registers && isClosed) return html`<${Admission} />`
  if (pending !== null) {
    return html`<${CodeForm} key="code" onCode=${(/** @type {string} */ code) =>
      onCode({ pending_id: pending, code })} onBack=${() => setPending(null)}>
      <p>${
      registers ? "A" : "If an account has this address, a"
    } mail with a code of six digits was sent to <strong>${fields.email}</strong>.</p><//>`
  }
  return html`<form class="stack" key="address" onSubmit=${
    during(async () => {
      const { display_name, email, handle, invite_code } = fields
      // Many people paste the whole link.
      const code = invite_code.trim().replace(/^.*#/, "")
      const given = Object.entries({ display_name, invite_code: code }).filter(([, text]) => text.trim() !== "")
      const { pending_id } = await onAsk(registers ? { email, handle, ...Object.fromEntries(given) } : { email })
      setPending(pending_id)
    })
  }>
    ${registers ? html`<${Admission} isInvited=${invitation !== undefined} />` : null}
    ${field("email", "E-mail address", { type: "email", required: true, autocomplete: "email" })}
    ${
    registers ?
      html`${
        field("handle", "Handle", {
          required: true,
          autocomplete: "off",
          autocapitalize: "none",
          placeholder: "3 to 30 of a–z, 0–9 and -"
        })
      }
      ${field("display_name", "Display name (optional)", { maxlength: 100, autocomplete: "off" })}
      ${
        needsInvitation && invitation === undefined
          ? field("invite_code", "Invitation code", {
            autocomplete: "off",
            spellcheck: false,
            placeholder: "empty if your address was invited"
          })
          : null
      }` :
      null
  }
    <${Problem} text=${problem} />
    <button type="submit" class="primary" disabled=${busy}>Mail me a code</button>
  </form>`
}
