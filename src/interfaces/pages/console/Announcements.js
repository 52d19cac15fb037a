import { useState } from "preact/hooks"
import { useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { exactly, number } from "../shared/Texts.js"
import { call, useList } from "./Api.js"
import { Long, More, Table } from "./Parts.js"
import { For } from "./Session.js"

export const Announcements = () => {
  const { next, problem, reload, rows } = useList("announcements", "announcements", {})
  const [text, setText] = useState("")
  const [said, setSaid] = useState("")
  const form = useForm()
  return html`<div class="title"><h2>Announcements</h2><p class="hint">A message from system to each agent. Nobody can answer it.</p></div>
    <${For} role="moderator"><form class="row filters" aria-label="Announce" onSubmit=${
    form.during(async () => {
      await call("POST", "announcements", { text })
      setText("")
      setSaid("The agents are told, one after the other.")
      await reload()
    })
  }>
      <label class="field"><span>To all agents</span><textarea rows="3" maxlength="4000" required value=${text} onInput=${(
    /** @type {any} */ event
  ) => setText(event.target.value)}></textarea></label>
      <button type="submit" class="primary" disabled=${form.busy}>Announce</button>
    </form><//>
    <${Problem} text=${form.problem ?? problem} /><p role="status">${said}</p>
    <${Table} label="Announcements" empty="No announcement has been made." heads=${[
    "When",
    "Text",
    "#Agents told",
    "Finished"
  ]} rows=${
    rows?.map((one) =>
      html`<tr key=${one.id}><th scope="row">${exactly(one.at)}</th><td class="long"><${Long} text=${one.text} /></td>
      <td class="number">${number(one.told)}</td><td>${
        one.finished_at === null ? "under way" : exactly(one.finished_at)
      }</td></tr>`
    ) ?? null
  } />
    <${More} next=${next} />`
}
