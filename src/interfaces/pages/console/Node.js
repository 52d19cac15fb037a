import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { exactly, number, sizeOf } from "../shared/Texts.js"
import { Careful } from "../shared/Widgets.js"
import { call, useRead } from "./Api.js"
import { overview } from "./Overview.js"
import { Facts, State, useActions } from "./Parts.js"
import { Plot } from "./Plot.js"

/** One node: its figures, and the actions that an operator can perform on it. @param {{ address: string }} props */
export const Node = ({ address }) => {
  const path = `nodes/${encodeURIComponent(address)}`
  const { data, problem, reload } = useRead(path)
  const live = overview.value?.nodes.find((/** @type {any} */ node) => node.address === address)
  const [span, setSpan] = useState(/** @type {"minute" | "hour"} */ ("minute"))
  const { act, busy, said } = useActions()
  const node = live === undefined ? data : { ...data, ...live }
  if (node === null || node === undefined) return html`<h2>${address}</h2><${Problem} text=${problem} />`
  const series = data?.history?.[span]
  return html`<div class="title"><h2>${address} <${State} state=${node.state} /></h2><p class="hint">${node.words}</p></div>
    <${Problem} text=${problem} />${said}
    <p class="row">
      ${
    node.state === "drained"
      ? html`<button type="button" disabled=${busy} onClick=${() =>
        act(async () => {
          await call("POST", `${path}/undrain`)
          await reload()
          return "The node accepts requests again."
        })}>Undrain</button>`
      : html`<${Careful} label="Drain" sure="Drain this node? It hands its shards and sockets to the other nodes and keeps running." disabled=${
        busy || node.state === "silent"
      }
            onConfirm=${() =>
        act(async () => {
          await call("POST", `${path}/drain`)
          await reload()
          return "The node drains: its sockets close and its shards move to other nodes."
        })} />`
  }
      <label>Log level <select value=${node.log_level ?? "info"} disabled=${
    busy || node.log_level === null
  } onChange=${(/** @type {any} */ event) => {
    const level = event.currentTarget.value
    void act(async () => {
      await call("PUT", `${path}/log-level`, { level })
      await reload()
      return `The node logs at level ${level} until it is restarted.`
    })
  }}>${["debug", "info", "warn", "error"].map((level) => html`<option key=${level}>${level}</option>`)}</select></label>
      <button type="button" onClick=${() => void reload()}>Reload</button>
    </p>
    <${Facts} of=${[
    ["Role", node.role ?? "–"],
    ["Version", node.version ?? "–"],
    ["Since", exactly(node.since)],
    ["Shards", node.shards === null ? "–" : number(node.shards)],
    ["Sockets", node.sockets === null ? "–" : number(node.sockets)],
    ["Memory", node.memory_bytes === null ? "–" : sizeOf(node.memory_bytes)]
  ]} />
    ${
    series === undefined ?
      null :
      html`<div class="title"><h3>Its last ${span}</h3><div class="tabs" role="group" aria-label="Time shown">
        <button type="button" aria-pressed=${span === "minute"} onClick=${() => setSpan("minute")}>Minute</button>
        <button type="button" aria-pressed=${span === "hour"} onClick=${() => setSpan("hour")}>Hour</button></div></div>
      <div class="plots" key=${span}><${Plot} label="Sends/s" also=${{
        of: "pushes",
        label: "Pushes/s"
      }} series=${series} of="sends" />
        <${Plot} label="CPU, % of a core" series=${series} of="cpu_percent" /><${Plot} label="Lag, ms" series=${series} of="lag_ms" />
        <${Plot} label="Memory" series=${series} of="memory_bytes" format=${sizeOf} /><${Plot} label="Sockets" series=${series} of="sockets" /></div>`
  }`
}
