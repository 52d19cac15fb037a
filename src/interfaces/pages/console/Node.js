import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { exactly, number, sizeOf } from "../shared/Texts.js"
import { Careful } from "../shared/Widgets.js"
import { call, useRead } from "./Api.js"
import { overview } from "./Overview.js"
import { Facts, Long, State, Table, useActions } from "./Parts.js"
import { ErrorAndTimePlots, Plot, SpanChoice } from "./Plot.js"
import { For, may } from "./Session.js"

/** The newest warnings and errors of a node. @param {{ path: string }} props */
const Problems = ({ path }) => {
  const { busy, data, problem, reload } = useRead(`${path}/problems`)
  return html`<div class="title"><h3>Warnings and errors</h3><button type="button" disabled=${busy} onClick=${() =>
    void reload()}>Read again</button></div>
    <${Problem} text=${problem} />
    <${Table} label="Warnings and errors" empty="This node has logged no warning and no error since it started." heads=${[
    "When",
    "Level",
    "What",
    "Detail"
  ]} rows=${
    data?.problems.map((/** @type {any} */ one, /** @type {number} */ index) =>
      html`<tr key=${`${one.at} ${index}`}><td>${exactly(one.at)}</td><td><${State} state=${
        one.level === "error" ? "error" : "warning"
      } /></td><th scope="row" class="long"><${Long} text=${one.message} /></th><td class="long lines"><${Long} text=${one.detail} /></td></tr>`
    ) ?? null
  } />`
}

/** One node: its figures, and the actions that an operator can perform on it. @param {{ address: string }} props */
export const Node = ({ address }) => {
  const path = `nodes/${encodeURIComponent(address)}`
  const { data, problem, reload } = useRead(path)
  const live = overview.value?.nodes.find((/** @type {any} */ node) => node.address === address)
  const [span, setSpan] = useState(/** @type {import("./Plot.js").Span} */ ("minute"))
  const { act, busy, said } = useActions()
  const node = live === undefined ? data : { ...data, ...live }
  if (node === null || node === undefined) return html`<h2>${address}</h2><${Problem} text=${problem} />`
  const history = data?.history
  const series = history?.[span]
  return html`<div class="title"><h2>${address} <${State} state=${node.state} /></h2><p class="hint">${node.words}</p></div>
    <${Problem} text=${problem} />${said}
    <p class="row">
      <${For} role="operator">${
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
  }}>${
    ["debug", "info", "warn", "error"].map((level) => html`<option key=${level}>${level}</option>`)
  }</select></label><//>
      <button type="button" onClick=${() => void reload()}>Reload</button>
    </p>
    <${Facts} of=${[
    ["Role", node.role ?? "–"],
    ["Version", node.version ?? "–"],
    ["Since", exactly(node.since)],
    ["Shards", node.shards === null ? "–" : number(node.shards)],
    ["Sockets", node.sockets === null ? "–" : number(node.sockets)],
    ["Memory", node.memory_bytes === null ? "–" : sizeOf(node.memory_bytes)],
    ["Disk free", typeof node.disk_free_bytes === "number" ? sizeOf(node.disk_free_bytes) : "–"]
  ]} />
    ${
    history === undefined ?
      null :
      html`<div class="title"><h3>Its last ${span}</h3><${SpanChoice} value=${span} onChange=${setSpan} history=${history} /></div>
      <div class="plots" key=${span}><${Plot} label="Sends/s" also=${{
        of: "pushes",
        label: "Pushes/s"
      }} series=${series} of="sends" />
        <${Plot} label="CPU, % of a core" series=${series} of="cpu_percent" /><${Plot} label="Lag, ms" series=${series} of="lag_ms" />
        <${Plot} label="Memory" series=${series} of="memory_bytes" format=${sizeOf} /><${Plot} label="Sockets" series=${series} of="sockets" />
        <${ErrorAndTimePlots} series=${series} /></div>`
  }
    ${node.state === "silent" || !may("operator") ? null : html`<${Problems} path=${path} />`}`
}
