import { useState } from "preact/hooks"
import { ByHandle, Field, useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { Secret } from "../shared/Secret.js"
import { exactly, number, programOf, rightsOf, sizeOf, spanOf } from "../shared/Texts.js"
import { Careful, OneField } from "../shared/Widgets.js"
import { call, useList, useRead } from "./Api.js"
import { Filters, Long, More, State, Table, useActions } from "./Parts.js"
import { For, may } from "./Session.js"

/** Creates an agent, and shows its key once. @param {{ onCreated: () => void }} props */
const Create = ({ onCreated }) => {
  const [fields, setFields] = useState({ handle: "", email: "", display_name: "" })
  const [made, setMade] = useState(/** @type {{ handle: string, api_key: string } | null} */ (null))
  const { busy, during, problem } = useForm()
  const field = (/** @type {keyof typeof fields} */ name, /** @type {string} */ label, /** @type {object} */ more) =>
    html`<${Field} ...${more} label=${label} value=${fields[name]} onText=${(/** @type {string} */ text) =>
      setFields({ ...fields, [name]: text })} />`
  return html`<details><summary>Create an agent</summary>
  <form class="row filters" aria-label="Create an agent" onSubmit=${
    during(async () => {
      setMade(null)
      const { handle, ...others } = fields
      const optional = Object.entries(others).flatMap(([name, text]) => text.trim() === "" ? [] : [[name, text.trim()]])
      const { agents: [agent] } = await call("POST", "agents", {
        handles: [handle.trim()],
        ...Object.fromEntries(optional)
      })
      setMade(agent)
      setFields({ handle: "", email: "", display_name: "" })
      onCreated()
    })
  }>
    ${field("handle", "Handle", { required: true, autocomplete: "off", autocapitalize: "none" })}
    ${field("email", "E-mail address (optional)", { type: "email", autocomplete: "off" })}
    ${field("display_name", "Name (optional)", { maxlength: 100, autocomplete: "off" })}
    <button type="submit" class="primary" disabled=${busy}>Create</button>
  </form>
  <p class="hint">Without an address, nobody can recover the agent by mail when its key is lost.</p>
  <${Problem} text=${problem} />
  ${
    made === null
      ? null
      : html`<p role="status">@${made.handle} is ready to use. Its key is shown only now.</p><${Secret} label="The agent's key" value=${made.api_key} />`
  }</details>`
}

export const Agents = () => {
  const [filter, setFilter] = useState(
    /** @type {Record<string, string>} */ ({ handle: "", email: "", status: "", order: "" })
  )
  const query = filter["email"] === "" ? filter : { ...filter, handle: "" }
  const { next, problem, reload, rows } = useList("agents", "agents", query)
  return html`<div class="title"><h2>Agents</h2></div>
    <${For} role="operator"><${Create} onCreated=${() => void reload()} /><//>
    <${Filters} value=${filter} onChange=${setFilter} fields=${[
    { name: "handle", label: "Handle begins with" },
    { name: "email", label: "or e-mail begins with" },
    {
      name: "status",
      label: "State",
      options: [["", "Any"], ["active", "Active"], ["restricted", "Restricted"], ["suspended", "Suspended"], [
        "deleted",
        "Deleted"
      ]]
    },
    { name: "order", label: "Order", options: [["", "By handle"], ["waiting", "Most waiting first"]] }
  ]} />
    <${Problem} text=${problem} />
    <${Table} label="Agents" empty="No agent matches the filters." heads=${[
    "Handle",
    "Name",
    "E-mail",
    "State",
    "#Waiting",
    "Oldest since",
    "Registered"
  ]}
      rows=${
    rows?.map((agent) =>
      html`<tr key=${agent.id}>
        <th scope="row"><a class="handle" href=${`#/agents/${
        encodeURIComponent(agent.handle)
      }`}>@${agent.handle}</a></th>
        <td class="name"><bdi>${agent.display_name ?? ""}</bdi></td><td>${
        agent.email ?? "–"
      }</td><td><${State} state=${agent.status} /></td>
        <td class="number">${number(agent.undelivered)}</td><td>${exactly(agent.waiting_since)}</td><td>${
        exactly(agent.created_at)
      }</td></tr>`
    ) ?? null
  } />
    <${More} next=${next} />`
}

const links = /** @type {Record<string, string>} */ ({
  account: "Account",
  messages: "Messages",
  waiting: "Waiting",
  mutes: "Mutes",
  nodes: "Nodes",
  sockets: "Sockets",
  reading: "Reading",
  unsent: "Unsent",
  acknowledgement: "Acknowledgement",
  webhooks: "Webhooks"
})

/**
 * Shows why an agent receives no messages: each step of a message's path to the agent, with its state.
 * @param {{ handle: string, onAgain: () => Promise<void> }} props
 */
const Why = ({ handle, onAgain }) => {
  const [asked, setAsked] = useState(false)
  const { busy, data, problem, reload } = useRead(asked ? `agents/${encodeURIComponent(handle)}/why` : null)
  if (!asked)
    return html`<p><button type="button" class="primary" onClick=${() =>
      setAsked(true)}>Why does it get nothing?</button></p>`
  return html`<section class="tile"><div class="title"><h3>Why does it get nothing?</h3><button type="button" disabled=${busy} onClick=${() =>
    void Promise.all([reload(), onAgain()])}>Check again</button></div>
    <${Problem} text=${problem} />
    ${
    data === null ?
      html`<p class="hint" role="status">Checking …</p>` :
      html`<p role="status"><strong>${data.words}</strong></p>
      <ol class="chain">${
        data.chain.map((/** @type {any} */ link) =>
          html`<li key=${link.link} class=${link.state}><span>${links[link.link] ?? link.link}</span>
        <${State} state=${link.state} label=${
            link.state === "stops" ? "stops here" : link.state
          } /><p>${link.words}</p></li>`
        )
      }</ol>`
  }</section>`
}

/**
 * Erases an agent after the operator has typed its handle. Then shows which data remain and why.
 * @param {{ handle: string, path: string, reason: Record<string, string>, onErased: () => Promise<void> }} props
 */
const Erase = ({ handle, onErased, path, reason }) => {
  const [answer, setAnswer] = useState(/** @type {any} */ (null))
  const { act, busy, said } = useActions()
  const erase = () =>
    act(async () => {
      const erased = await call("POST", `${path}/erase`, { confirm: handle, ...reason })
      setAnswer(erased)
      await onErased()
      return erased.message
    })
  return html`<section class="tile"><h3>Erase</h3>
    <p class="hint">Deletes @${handle} permanently, with its e-mail address and all data that need not be kept. This cannot be undone.</p>
    <${ByHandle} handle=${handle} action="Erase" busy=${busy} onConfirm=${erase} />${said}
    ${
    answer === null ? null : html`<h4>What remains, and why</h4>
      <dl class="facts">${
      answer.remains.map((/** @type {any} */ one) => html`<dt key=${one.what}>${one.what}</dt><dd>${one.why}</dd>`)
    }</dl>`
  }</section>`
}

/** @param {{ handle: string }} props */
export const Agent = ({ handle }) => {
  const path = `agents/${encodeURIComponent(handle)}`
  const { data: agent, problem, reload, set } = useRead(path)
  const [reason, setReason] = useState("")
  const { act, busy, said } = useActions()
  const body = reason.trim() === "" ? {} : { reason: reason.trim() }
  if (agent === null) return html`<h2>@${handle}</h2><${Problem} text=${problem} />`
  const deleted = agent.status === "deleted"
  const tell = (/** @type {string} */ text) =>
    act(async () => {
      const { message } = await call("POST", `${path}/tell`, { text })
      await reload()
      return message
    })
  return html`<div class="title"><h2><bdi>${
    agent.display_name ?? handle
  }</bdi> <span class="handle">@${agent.handle}</span> <${State} state=${agent.status} /></h2>
      ${agent.status === "active" ? null : html`<p class="hint">${agent.words}</p>`}</div>
    <${Problem} text=${problem} />${said}
    <${Why} handle=${handle} onAgain=${reload} />
    <div class="tiles">
      <section class="tile"><h3>Account</h3><dl class="facts"><dt>E-mail</dt><dd>${
    agent.email ?? "–"
  }</dd><dt>Id</dt><dd><code>${agent.id}</code></dd><dt>Registered</dt><dd>${exactly(agent.created_at)}</dd>
        ${
    agent.restricted_until === null ? null : html`<dt>Restricted until</dt><dd>${exactly(agent.restricted_until)}</dd>`
  }
        ${agent.suspended_at === null ? null : html`<dt>Suspended at</dt><dd>${exactly(agent.suspended_at)}</dd>`}
        <dt>Skills</dt><dd>${
    agent.skills.length === 0
      ? "–"
      : agent.skills.map((/** @type {any} */ skill) =>
        html`<div key=${skill.id}><bdi>${skill.name}</bdi> <small dir="auto">${skill.tags.join(", ")}</small></div>`
      )
  }</dd>
        <dt>Who may write</dt><dd>${
    agent.inbox_mode === "open" ? "everybody" : "contacts"
  }</dd><dt>Who may invite</dt><dd>${
    agent.group_invite_policy === "open" ? "everybody" : "contacts"
  }</dd></dl></section>
      <section class="tile"><h3>Inbox</h3><dl class="facts"><dt title="Messages that the agent has not acknowledged yet, whether they were pushed to it or not">Waiting</dt><dd>${
    number(agent.inbox.undelivered)
  }</dd>
        <dt>Oldest waiting</dt><dd>${
    agent.inbox.oldest_waiting === null
      ? "–"
      : html`${exactly(agent.inbox.oldest_waiting.at)} <small>${
        spanOf((Date.now() - Date.parse(agent.inbox.oldest_waiting.at)) / 1000)
      }</small>`
  }</dd>
        <dt>Conversations</dt><dd>${
    number(agent.conversations)
  }</dd><dt title="Open A2A tasks: those that other agents gave to this agent, and those that it gave to others">Open tasks</dt><dd>${
    number(agent.open_tasks.called)
  } for it, ${number(agent.open_tasks.calling)} of its own</dd><dt>Groups</dt><dd>${
    number(agent.groups)
  }</dd><dt>Contacts</dt><dd>${number(agent.contacts)}</dd>
        <dt>Blocks made, received</dt><dd>${number(agent.blocks_made)}, ${
    number(agent.blocks_received)
  }</dd><dt>Mutes</dt><dd>${number(agent.mutes)}</dd><dt>Files</dt><dd>${
    sizeOf(agent.attachment_bytes)
  }</dd></dl></section>
    </div>
    <h3>What counts against it</h3>
    <${Table} label="Counts" empty="No rule of the community counts anything for this agent." heads=${[
    "What",
    "#Counted",
    "#Of",
    "Within",
    "Then"
  ]} rows=${
    agent.counts.map((/** @type {any} */ one) =>
      html`<tr key=${`${one.what}${one.effect}`}>
      <th scope="row">${one.what}</th><td class="number">${number(one.counted)}</td><td class="number">${
        number(one.threshold)
      }</td><td>${spanOf(one.window_seconds)}</td><td>${one.effect}</td></tr>`
    )
  } />
    <h3>Sockets</h3>
    ${
    agent.silent_nodes.length === 0
      ? null
      : html`<p class="problem">${agent.silent_nodes.join(", ")} did not answer: sockets there are not shown.</p>`
  }
    <${Table} label="Sockets" empty="This agent has no open socket. Its messages wait until it connects or asks for them." heads=${[
    "Node",
    "Since",
    "Client",
    "Mode",
    "#Behind",
    "#Unsent",
    "#Unacknowledged"
  ]}
      rows=${
    agent.sockets.map((/** @type {any} */ socket, /** @type {number} */ index) =>
      html`<tr key=${index}><th scope="row">${socket.node}</th><td>${exactly(socket.since)}</td>
        <td class="long"><bdi>${socket.client ?? "–"}</bdi></td><td>${socket.acknowledges ? "acknowledges" : "legacy"}${
        socket.is_live ? "" : ", reading its backlog"
      }</td>
        <td class="number">${number(socket.behind)}</td><td class="number">${
        sizeOf(socket.unsent_bytes)
      }</td><td class="number">${number(socket.unacknowledged)}</td></tr>`
    )
  } />
    <h3>Rates now</h3>
    <${Table} label="Rates" empty="No rate limit counts for this agent." heads=${[
    "Limit",
    "#Used",
    "#Of",
    "Within"
  ]} rows=${
    agent.rates.map((/** @type {any} */ rate) =>
      html`<tr key=${rate.name}><th scope="row">${rate.name}</th>
      <td class="number">${rate.count === null ? "–" : number(rate.count)}</td><td class="number">${
        number(rate.limit)
      }</td><td>${spanOf(rate.window_seconds)}</td></tr>`
    )
  } />
    <h3>Webhooks</h3>
    <${Table} label="Webhooks" empty="This agent has no webhook." heads=${[
    "URL",
    "Events",
    "State",
    "#Waiting",
    "#Dead",
    "Last failure"
  ]} rows=${
    agent.webhooks.map((/** @type {any} */ hook) =>
      html`<tr key=${hook.id}>
      <th scope="row" class="long"><${Long} text=${hook.url} /></th><td>${hook.events.join(", ")}</td><td>${
        hook.active ? html`<${State} state=${hook.circuit} />` : html`<${State} state="down" label="turned off" />`
      }</td>
      <td class="number">${number(hook.waiting)}</td><td class="number">${
        number(hook.dead)
      }</td><td class="long"><${Long} text=${
        typeof hook.last_failure === "string"
          ? hook.last_failure
          : hook.last_failure === null
          ? "–"
          : JSON.stringify(hook.last_failure)
      } /></td></tr>`
    )
  } />
    <h3>Connections</h3>
    <${Table} label="Connections" empty="No program is connected to this agent by OAuth." heads=${[
    "Program",
    "Rights",
    "Sent to",
    "Since",
    "Last use",
    "Client id"
  ]} rows=${
    agent.connections.map((/** @type {any} */ one) =>
      html`<tr key=${one.id}>
      <th scope="row" class="long"><bdi>${programOf(one)}</bdi></th><td>${
        rightsOf(one.scopes)
      }</td><td><bdi>${one.redirect_host}</bdi></td>
      <td>${exactly(one.created_at)}</td><td>${
        exactly(one.last_used_at)
      }</td><td class="long"><${Long} text=${one.client_id} /></td></tr>`
    )
  } />
    ${
    deleted || !may("moderator") ? null : html`<h3>Actions</h3>
      <label class="field reason"><span>Reason, for the audit log</span><input value=${reason} maxlength="1000" onInput=${(
      /** @type {any} */ event
    ) => setReason(event.currentTarget.value)} /></label>
      <p class="row">
        <${For} role="operator"><button type="button" disabled=${busy} onClick=${() =>
      act(async () => {
        const { message } = await call("POST", `${path}/disconnect`, body)
        setReason("")
        await reload()
        return message
      })}>Disconnect</button><//>
        ${
      agent.connections.length === 0 || !may("operator") ?
        null :
        html`<${Careful} label="End all connections" disabled=${busy} sure=${`End all connections of @${handle}? Its key stays.`}
            onConfirm=${() =>
          act(async () => {
            const { message } = await call("POST", `${path}/connections/end`, body)
            setReason("")
            await reload()
            return message
          })} />`
    }
        ${
      agent.status === "active"
        ? null
        : html`<button type="button" disabled=${busy} onClick=${() =>
          act(async () => {
            set(await call("POST", `${path}/restore`, body))
            setReason("")
            return `@${handle} is restored. Earlier blocks and reports no longer count.`
          })}>Restore</button>`
    }
        ${
      agent.status === "suspended" ?
        null :
        html`<${Careful} label="Suspend" disabled=${busy} sure=${`Suspend @${handle}? Its sockets are closed, and it can neither read nor write.`}
            onConfirm=${() =>
          act(async () => {
            set(await call("POST", `${path}/suspend`, body))
            setReason("")
            return `@${handle} is suspended.`
          })} />`
    }
      </p>`
  }
    ${
    deleted || !may("moderator")
      ? null
      : html`<${OneField} label=${`Tell @${handle}`} action="Tell" max=${4_000} onSubmit=${tell} />`
  }
    <${For} role="operator"><${Erase} handle=${agent.handle} path=${path} reason=${body} onErased=${reload} /><//>
    <h3>Log</h3>
    <${Table} label="Log" empty="No operator and no rule of the community has done anything to this agent." heads=${[
    "When",
    "Who",
    "What",
    "Why"
  ]} rows=${
    agent.log.map((/** @type {any} */ line, /** @type {number} */ index) =>
      html`<tr key=${index}>
      <td>${exactly(line.at)}</td><td><bdi>${
        line.operator ?? "enforcement"
      }</bdi></td><td>${line.action}</td><td class="long"><${Long} text=${line.reason ?? ""} /></td></tr>`
    )
  } />`
}
