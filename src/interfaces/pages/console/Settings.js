import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { useRead } from "./Api.js"
import { Filters, Long, Table } from "./Parts.js"

/** The settings of the node that answers. */
export const Settings = () => {
  const [filter, setFilter] = useState(/** @type {Record<string, string>} */ ({ name: "", which: "set" }))
  const { data, problem } = useRead("settings")
  const part = (filter["name"] ?? "").trim().toUpperCase()
  const settings = data?.settings.filter((/** @type {any} */ one) =>
    one.name.includes(part) && (filter["which"] === "all" || one.origin !== "default")
  )
  return html`<div class="title"><h2>Settings</h2><p class="hint">${
    data === null ? "" : html`Of ${data.node}, as it read them at its start. `
  }Secrets are not shown. Changes of limits are under <a href="#/limits">Limits</a>.</p></div>
    <${Filters} value=${filter} onChange=${setFilter} fields=${[{ name: "name", label: "Name contains" }, {
    name: "which",
    label: "Show",
    options: [["set", "Set"], ["all", "Set and defaults"]]
  }]} />
    <${Problem} text=${problem} />
    <${Table} label="Settings" empty="No setting matches the search." heads=${["Setting", "Value", "From"]} rows=${
    settings?.map((/** @type {any} */ one) =>
      html`<tr key=${one.name}><th scope="row"><span>${one.name}</span><small class="block">${one.about}</small></th>
      <td class="long"><${Long} text=${one.value === "" ? "none" : one.value} /></td><td>${one.origin}</td></tr>`
    ) ?? null
  } />`
}
