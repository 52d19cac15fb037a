import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { exactly, number, spanOf } from "../shared/Texts.js"
import { Careful } from "../shared/Widgets.js"
import { call, useRead } from "./Api.js"
import { AgentLink, Filters, Table, useActions } from "./Parts.js"
import { For, may } from "./Session.js"

/** The agents that have used most of a limit. */
const Near = () => {
  const { busy, data, problem, reload } = useRead("limits/near")
  return html`<div class="title"><h3>Near a limit</h3><button type="button" disabled=${busy} onClick=${() =>
    void reload()}>Read again</button></div>
    <${Problem} text=${
    problem ?? (data === null || data.silent_nodes.length === 0
      ? null
      : `${data.silent_nodes.join(", ")} could not be asked, so the counts may be too low.`)
  } />
    <${Table} label="Near a limit" empty="No agent has used 80 % of a rate limit, of its unanswered conversations, or of a budget of messages." heads=${[
    "Agent",
    "Limit",
    "#Used",
    "#Of",
    "Within"
  ]} rows=${
    data?.near.map((/** @type {any} */ one) =>
      html`<tr key=${`${one.agent} ${one.limit} ${one.window_seconds}`}><th scope="row"><${AgentLink} handle=${one.agent} /></th><td>${one.limit}</td>
      <td class="number">${number(one.count)}</td><td class="number">${number(one.value)}</td><td>${
        spanOf(one.window_seconds)
      }</td></tr>`
    ) ?? null
  } />`
}

/** @param {{ limit: any, agent: string, onDone: (text: string) => void, busy: boolean }} props */
const LimitRow = ({ agent, limit, onDone }) => {
  const [value, setValue] = useState(String(limit.value))
  const [hours, setHours] = useState("")
  const { act, busy, said } = useActions()
  const forAll = agent === ""
  // The button is disabled if the value is not a number. It is also disabled if the value is already in force and no
  // duration is given. With a duration, the value in force can be set for that time.
  const idle = !/^\d+$/.test(value) || (hours === "" && Number(value) === limit.value)
  const set = () => {
    if (idle) return
    void act(async () => {
      await call("PUT", `limits/${encodeURIComponent(limit.name)}`, {
        value: Number(value),
        ...forAll ? {} : { agent },
        ...hours === "" ? {} : { until: new Date(Date.now() + Number(hours) * 3_600_000).toISOString() }
      })
      onDone(`${limit.name} is ${value} for ${forAll ? "all" : `@${agent}`}.`)
    })
  }
  return html`<tr><th scope="row"><span>${limit.name}</span><small class="block">${limit.about}</small></th><td>${limit.per}</td>
    <td class="number">${number(limit.default)}</td><td class="number"><strong>${number(limit.value)}</strong></td>
    <td>${
    limit.changes.map((/** @type {any} */ change) =>
      html`<p class="row" key=${change.agent ?? ""}><span>${
        change.agent === null ? "All" : html`<${AgentLink} handle=${change.agent} />`
      }: <strong>${number(change.value)}</strong>
        <small> ${
        change.until === null ? "" : `until ${exactly(change.until)}, `
      }by <bdi>${change.by}</bdi></small></span>
        <${For} role="operator"><button type="button" class="quiet" disabled=${busy} onClick=${() =>
        act(async () => {
          await call(
            "DELETE",
            `limits/${encodeURIComponent(limit.name)}${
              change.agent === null ? "" : `?agent=${encodeURIComponent(change.agent)}`
            }`
          )
          onDone(`${limit.name}: the change is reset.`)
        })}>Take back</button><//></p>`
    )
  }
      ${
    limit.can_change && !may("operator") ?
      null :
      limit.can_change ?
      html`<form class="row" onSubmit=${(/** @type {Event} */ event) => {
        event.preventDefault()
        if (!forAll) set()
      }}><input type="number" min="0" required value=${value} aria-label=${`New value of ${limit.name}`} onInput=${(
        /** @type {any} */ event
      ) => setValue(event.currentTarget.value)} />
        <input type="number" min="0.1" step="any" placeholder="hours" value=${hours} aria-label="For how many hours. If empty, until the change is reset." onInput=${(
        /** @type {any} */ event
      ) => setHours(event.currentTarget.value)} />
        ${
        forAll
          ? html`<${Careful} label="Set" disabled=${
            busy || idle
          } sure=${`Set ${limit.name} to ${value} for all?`} onConfirm=${set} />`
          : html`<button type="submit" disabled=${busy || idle}>Set</button>`
      }</form>` :
      html`<small>Change this limit in the configuration and restart the server.</small>`
  }${said}</td></tr>`
}

export const Limits = () => {
  const [filter, setFilter] = useState(/** @type {Record<string, string>} */ ({ agent: "" }))
  const agent = (filter["agent"] ?? "").replace(/^@/, "")
  const { data, problem, reload } = useRead(agent === "" ? "limits" : `limits?agent=${encodeURIComponent(agent)}`)
  const [said, setSaid] = useState("")
  return html`<div class="title"><h2>Limits</h2><p class="hint">${
    agent === ""
      ? "A change applies to all agents, on every node within a second."
      : html`The limits of @${agent}. A change applies to this agent only.`
  }</p></div>
    ${agent === "" ? html`<${Near} key=${said} /><h3>All limits</h3>` : null}
    <${Filters} value=${filter} onChange=${setFilter} fields=${[{ name: "agent", label: "For one agent (handle)" }]} />
    <${Problem} text=${problem} /><p role="status" aria-live="polite" class=${
    said === "" ? "unseen" : "said"
  }>${said}</p>
    <${Table} label="Limits" empty="No limit applies to this agent." heads=${[
    "Limit",
    "Per",
    "#Default",
    "#In force",
    "Changes"
  ]} rows=${
    data?.limits.map((/** @type {any} */ limit) =>
      html`<${LimitRow} key=${`${limit.name} ${agent} ${limit.value}`} limit=${limit} agent=${agent}
      onDone=${(/** @type {string} */ text) => {
        setSaid(text)
        void reload()
      }} />`
    ) ?? null
  } />`
}
