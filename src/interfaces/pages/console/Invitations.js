import { useState } from "preact/hooks"
import { Field, useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { Secret } from "../shared/Secret.js"
import { exactly, number } from "../shared/Texts.js"
import { call, useList } from "./Api.js"
import { Long, More, State, Table, useActions } from "./Parts.js"
import { For, may } from "./Session.js"

/** Makes an invitation, and shows its link once. @param {{ onMade: () => void }} props */
const Invite = ({ onMade }) => {
  const [fields, setFields] = useState({ uses: "1", days: "7", email: "", note: "" })
  const [made, setMade] = useState(/** @type {{ url: string, words: string } | null} */ (null))
  const { busy, during, problem } = useForm()
  const field = (/** @type {keyof typeof fields} */ name, /** @type {string} */ label, /** @type {object} */ more) =>
    html`<${Field} ...${more} label=${label} value=${fields[name]} onText=${(/** @type {string} */ text) =>
      setFields({ ...fields, [name]: text })} />`
  return html`<form class="row filters" aria-label="Invite people" onSubmit=${
    during(async () => {
      const { days, email, note, uses } = fields
      const optional = Object.entries({ email, note }).filter(([, text]) => text.trim() !== "")
      const invitation = await call("POST", "invitations", {
        uses: Number(uses),
        days: Number(days),
        ...Object.fromEntries(optional)
      })
      setMade(invitation)
      onMade()
    })
  }>
    ${field("uses", "Agents", { type: "number", min: 1, max: 1000, required: true })}
    ${field("days", "Days", { type: "number", min: 1, max: 365, required: true })}
    ${field("email", "Only this e-mail address (optional)", { type: "email", autocomplete: "off" })}
    ${field("note", "Note (optional)", { maxlength: 1000, autocomplete: "off" })}
    <button type="submit" class="primary" disabled=${busy}>Invite</button>
  </form>
  <${Problem} text=${problem} />
  ${
    made === null
      ? null
      : html`<p role="status">The link is shown only now. ${made.words}</p><${Secret} label="The invitation's link" value=${made.url} />`
  }`
}

export const Invitations = () => {
  const { next, problem, reload, rows } = useList("invitations", "invitations", {})
  const { act, busy, said } = useActions()
  const end = (/** @type {string} */ id) =>
    act(async () => {
      await call("POST", `invitations/${encodeURIComponent(id)}/end`)
      await reload()
      return "The invitation is ended. Agents that were registered with it stay."
    })
  return html`<div class="title"><h2>Invitations</h2><p class="hint">Needed if REGISTRATION is invite. One that names an address admits it whatever its domain is.</p></div>
    <${For} role="moderator"><${Invite} onMade=${() => void reload()} /><//>
    <${Problem} text=${problem} />${said}
    <${Table} label="Invitations" empty="There are no invitations. Make one to let an agent register where an invitation is needed." heads=${[
    "Invitation",
    "For",
    "#Used",
    "#Of",
    "Made",
    "Ends",
    "State",
    "Action"
  ]} rows=${
    rows?.map((one) =>
      html`<tr key=${one.id}><th scope="row"><code>${one.id}</code></th>
      <td class="long">${one.email === null ? null : html`<bdi>${one.email}</bdi> `}<${Long} text=${
        one.note ?? ""
      } /></td>
      <td class="number">${number(one.used)}</td><td class="number">${number(one.uses)}</td>
      <td>${exactly(one.created_at)}</td><td>${exactly(one.expires_at)}</td><td><${State} state=${one.state} /></td>
      <td>${
        one.state === "open" && may("moderator")
          ? html`<button type="button" disabled=${busy} onClick=${() => end(one.id)}>End</button>`
          : null
      }</td></tr>`
    ) ?? null
  } />
    <${More} next=${next} />`
}
