import { signal } from "@preact/signals"
import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { counted, exactly, number, sizeOf, spanOf } from "../shared/Texts.js"
import { call, streamUrl, textOf } from "./Api.js"
import { State, Table } from "./Parts.js"
import { ErrorAndTimePlots, Plot, SpanChoice } from "./Plot.js"

const MOST = 60

/**
 * The latest overview. An event stream of the server keeps it current.
 * @type {import("@preact/signals").Signal<any>}
 */
export const overview = signal(null)
/**
 * The totals of the last minute, hour and day. The stream adds values only to the minute.
 * @type {import("@preact/signals").Signal<any>}
 */
const history = signal(null)
/** The number of live OAuth connections; null if it is not known. The stream does not contain this number. */
const connections = signal(/** @type {number | null} */ (null))
const trouble = signal(/** @type {string | null} */ (null))

/** @param {any} at */
const add = (at) => {
  const before = history.peek()
  if (before === null) return
  const { totals } = at
  const { minute } = before
  // A server of the version before sends fewer figures.
  /** @param {string} name @param {number | null | undefined} value */
  const put = (name, value) => [...minute[name] ?? [], value ?? null].slice(-MOST)
  history.value = {
    ...before,
    minute: {
      ...minute,
      ends_at: at.at,
      sends: put("sends", totals.sends_per_second),
      pushes: put("pushes", totals.pushes_per_second),
      requests: put("requests", totals.requests_per_second),
      errors: put("errors", totals.errors_per_second),
      send_p50_ms: put("send_p50_ms", totals.send_p50_ms),
      send_p99_ms: put("send_p99_ms", totals.send_p99_ms),
      sockets: put("sockets", totals.sockets)
    }
  }
}

/** Keeps the overview current and reconnects its stream. Returns a function that stops it. */
export const follow = () => {
  let ended = false
  /** @type {EventSource | undefined} */
  let source
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer
  const read = async () => {
    try {
      const all = await call("GET", "overview")
      overview.value = all
      history.value = all.totals.history ?? null
      connections.value = all.connections ?? null
      trouble.value = null
    } catch (error) {
      trouble.value = textOf(error)
    }
  }
  const connect = async () => {
    await read()
    if (ended) return
    source = new EventSource(streamUrl())
    source.addEventListener("overview", (event) => {
      const at = JSON.parse(event.data)
      trouble.value = null
      overview.value = at
      add(at)
    })
    source.addEventListener("end", () => again())
    source.addEventListener("error", () => again())
  }
  const again = () => {
    source?.close()
    if (ended || timer !== undefined) return
    trouble.value = "The server does not answer. The page tries again automatically. Until then, its figures are old."
    timer = setTimeout(() => {
      timer = undefined
      void connect()
    }, 1000 + Math.random() * 2000)
  }
  void connect()
  // The server adds a value to the hour once a minute, and to the day every five. The stream does not contain these
  // values.
  const hourly = setInterval(() => void read(), 60_000)
  return () => {
    ended = true
    source?.close()
    clearTimeout(timer)
    clearInterval(hourly)
  }
}

/** @param {number | null} value */
const figure = (value) => value === null ? "–" : number(Math.round(value * 10) / 10)
/** @param {string | null} at */
const since = (at) =>
  at === null
    ? "–"
    : html`<time datetime=${at} title=${exactly(at)}>${spanOf((Date.now() - Date.parse(at)) / 1000)}</time>`

const parts = /** @type {ReadonlyArray<readonly [string, string]>} */ ([["database", "Database"], ["redis", "Redis"], [
  "files",
  "Files"
], ["mail", "Mail"]])

/** @param {{ name: string, part: any }} props */
const Part = ({ name, part }) =>
  html`<section class="tile"><h3>${name} <small>${part.kind}</small> <${State} state=${part.state} /></h3>
  <p>${part.words}</p>
  <dl class="facts">${part.answer_ms === null ? null : html`<dt>answers in</dt><dd>${figure(part.answer_ms)} ms</dd>`}
    ${
    part.size_bytes === undefined || part.size_bytes === null
      ? null
      : html`<dt>size</dt><dd>${sizeOf(part.size_bytes)}</dd>`
  }
    ${
    part.connections === undefined || part.connections === null
      ? null
      : html`<dt>connections</dt><dd>${part.connections}${
        part.connections_max === null ? "" : ` of ${part.connections_max}`
      }</dd>`
  }
    ${
    part.oldest_transaction_seconds === undefined || part.oldest_transaction_seconds === null
      ? null
      : html`<dt>oldest transaction</dt><dd>${spanOf(part.oldest_transaction_seconds)}</dd>`
  }
    ${
    part.batch_ms === undefined || part.batch_ms === null
      ? null
      : html`<dt>commit of messages</dt><dd>${figure(part.batch_ms)} ms</dd>`
  }</dl></section>`

/** How many problems of each level a node remembers. */
const MAX_PROBLEMS = 100

/** How many errors and warnings a node has logged in the last hour. @param {any} node */
const loggedBy = ({ logged_errors: errors, logged_warnings: warnings }) => {
  const text = [[errors, "error"], [warnings, "warning"]].flatMap(([count, what]) =>
    count > 0 ? [`${count >= MAX_PROBLEMS ? "at least " : ""}${counted(count, what)}`] : []
  ).join(", ")
  return text === "" ? null : html` <small>${text} in the last hour</small>`
}

export const Overview = () => {
  const now = overview.value
  const [span, setSpan] = useState(/** @type {import("./Plot.js").Span} */ ("minute"))
  const series = history.value?.[span]
  if (now === null)
    return html`<${Problem} text=${trouble.value} />${
      trouble.value === null ? html`<p class="hint">Reading …</p>` : null
    }`
  const { totals } = now
  return html`<${Problem} text=${trouble.value} />
    <div class="title"><h2>Overview</h2><p class="hint" role="status">${counted(totals.nodes, "node")}${
    totals.silent === 0 ? "" : `, ${totals.silent} silent`
  } · ${counted(totals.sockets, "socket")} · ${figure(totals.sends_per_second)} sends/s · ${
    figure(totals.pushes_per_second)
  } pushes/s${
    connections.value === null ? null : html` · <a href="#/connections">${counted(connections.value, "connection")}</a>`
  }</p>
      <${SpanChoice} value=${span} onChange=${setSpan} history=${history.value} /></div>
    <div class="plots" key=${span}>
      <${Plot} label="Sends/s" also=${{ of: "pushes", label: "Pushes/s" }} series=${series} of="sends" />
      <${Plot} label="Requests/s" series=${series} of="requests" />
      <${Plot} label="Sockets" series=${series} of="sockets" />
      <${ErrorAndTimePlots} series=${series} />
    </div>
    <${Table} label="Nodes" empty="No node answered. The page asks again automatically." heads=${[
    "Node",
    "State",
    "Version",
    "Up",
    "#Shards",
    "#Sockets",
    "#Sends/s",
    "#Pushes/s",
    "#CPU",
    "#Memory",
    "#Lag",
    "#Disk free"
  ]}
      rows=${
    now.nodes.map((/** @type {any} */ node) =>
      html`<tr key=${node.address}>
        <th scope="row"><a href=${`#/nodes/${encodeURIComponent(node.address)}`}>${node.address}</a>${
        node.is_this ? html` <small class="tag">answers you</small>` : null
      }</th>
        <td class=${node.state === "ready" ? "" : "long"}><${State} state=${node.state} />${
        node.state === "ready" ? null : html` <small>${node.words}</small>`
      }${loggedBy(node)}</td>
        <td>${node.version ?? "–"}</td><td>${since(node.since)}</td>
        <td class="number">${figure(node.shards)}</td><td class="number">${figure(node.sockets)}</td>
        <td class="number">${figure(node.sends_per_second)}</td><td class="number">${
        figure(node.pushes_per_second)
      }</td>
        <td class="number">${node.cpu_percent === null ? "–" : `${Math.round(node.cpu_percent)} %`}</td>
        <td class="number">${node.memory_bytes === null ? "–" : sizeOf(node.memory_bytes)}</td>
        <td class="number">${node.lag_ms === null ? "–" : `${figure(node.lag_ms)} ms`}</td>
        <td class="number">${typeof node.disk_free_bytes === "number" ? sizeOf(node.disk_free_bytes) : "–"}</td></tr>`
    )
  } />
    <div class="tiles">${
    parts.map(([name, label]) => html`<${Part} key=${name} name=${label} part=${now[name]} />`)
  }</div>`
}
