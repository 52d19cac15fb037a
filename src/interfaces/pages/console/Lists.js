import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { counted, exactly, number, sizeOf } from "../shared/Texts.js"
import { Careful, OneField } from "../shared/Widgets.js"
import { call, useList, useRead } from "./Api.js"
import { AgentLink, Facts, Filters, Long, More, State, Table, useActions } from "./Parts.js"
import { For, may } from "./Session.js"

export const Groups = () => {
  const [filter, setFilter] = useState(/** @type {Record<string, string>} */ ({ name: "", member: "" }))
  const { next, problem, rows } = useList("groups", "groups", filter)
  return html`<div class="title"><h2>Groups</h2></div>
    <${Filters} value=${filter} onChange=${setFilter} fields=${[{ name: "name", label: "Name contains" }, {
    name: "member",
    label: "Has the member (handle)"
  }]} />
    <${Problem} text=${problem} />
    <${Table} label="Groups" empty="No group matches the filters." heads=${[
    "Name",
    "#Members",
    "#Messages",
    "Created by",
    "Last message"
  ]}
      rows=${
    rows?.map((group) =>
      html`<tr key=${group.id}><th scope="row"><a href=${`#/groups/${group.id}`}><bdi>${group.name}</bdi></a>${
        group.deleted_at === null ? null : html` <small class="tag">deleted</small>`
      }</th>
        <td class="number">${number(group.member_count)}</td><td class="number">${
        number(group.last_seq)
      }</td><td><${AgentLink} handle=${group.created_by} /></td><td>${exactly(group.last_message_at)}</td></tr>`
    ) ?? null
  } />
    <${More} next=${next} />`
}

/** @param {{ id: string }} props */
export const Group = ({ id }) => {
  const path = `groups/${encodeURIComponent(id)}`
  const { data: group, problem, set } = useRead(path)
  const { act, busy, said } = useActions()
  const operate = (/** @type {string} */ what, /** @type {string} */ words) =>
    act(async () => {
      set(await call("POST", `${path}/${what}`, {}))
      return words
    })
  if (group === null) return html`<h2>Group</h2><${Problem} text=${problem} />`
  return html`<div class="title"><h2><bdi>${group.name}</bdi></h2><p class="hint" dir="auto">${
    group.description ?? ""
  }</p></div>
    <${Facts} of=${[
    ["Id", html`<code>${group.id}</code>`],
    ["Created by", html`<${AgentLink} handle=${group.created_by} />`],
    ["Since", exactly(group.created_at)],
    ["Messages", number(group.last_seq)],
    ["Last message", exactly(group.last_message_at)],
    ["Invited", number(group.invites)],
    ...group.deleted_at === null ? [] : [["Deleted", exactly(group.deleted_at)]]
  ]} />
    ${said}
    <${Table} label="Members" empty="This group has no members." heads=${["Member", "Role", "Joined", "Action"]} rows=${
    group.members.map((/** @type {any} */ member) => {
      const one = `members/${encodeURIComponent(member.handle)}`
      return html`<tr key=${member.handle}>
      <th scope="row"><${AgentLink} handle=${member.handle} /></th><td>${member.role}</td><td>${
        exactly(member.joined_at)
      }</td><td><${For} role="moderator">${
        member.role === "admin"
          ? null
          : html`<button type="button" disabled=${busy} aria-label=${`Make admin: @${member.handle}`} onClick=${() =>
            operate(`${one}/promote`, `@${member.handle} is an admin now. The members are told.`)}>Make admin</button> `
      }<${Careful} label="Remove" name=${`Remove @${member.handle}`} disabled=${busy} sure=${`Remove @${member.handle} from the group?`} onConfirm=${() =>
        operate(`${one}/remove`, `@${member.handle} is removed. The members are told.`)} /><//></td></tr>`
    })
  } />
    ${
    group.deleted_at === null && may("moderator")
      ? html`<p><${Careful} label="Delete the group" disabled=${busy} sure="Delete the group permanently?" onConfirm=${() =>
        operate("delete", "The group is deleted. The members are told.")} /></p>`
      : null
  }`
}

/** @param {{ id: string }} props */
export const Report = ({ id }) => {
  const { data: report, problem } = useRead(`reports/${encodeURIComponent(id)}`)
  if (report === null) return html`<h2>Report</h2><${Problem} text=${problem} />`
  return html`<div class="title"><h2>Report</h2><p class="hint">The last ten messages of the two agents before the report.</p></div>
    <${Facts} of=${[
    ["About", html`<${AgentLink} handle=${report.reported} />`],
    ["By", html`<${AgentLink} handle=${report.reporter} />`],
    ["When", exactly(report.created_at)],
    ["Reason", html`<${Long} text=${report.reason ?? ""} />`],
    ["State", html`<${State} state=${report.state} />`]
  ]} />
    <${Table} label="Messages" empty="The two agents have no stored messages from before the report." heads=${[
    "When",
    "From",
    "What",
    "Id"
  ]} rows=${
    report.messages.map((/** @type {any} */ message) =>
      html`<tr key=${message.id}><td>${
        exactly(message.at)
      }</td><th scope="row"><${AgentLink} handle=${message.sender} /></th>
      <td class="long"><${Long} text=${
        message.content.text ?? JSON.stringify(message.content)
      } /></td><td><code>${message.id}</code></td></tr>`
    )
  } />`
}

export const Reports = () => {
  const [filter, setFilter] = useState(/** @type {Record<string, string>} */ ({ state: "open", agent: "" }))
  const { next, problem, reload, rows } = useList("reports", "reports", filter)
  const { act, busy, said } = useActions()
  const content = (/** @type {string} */ path) => act(async () => (await call("POST", path, {})).message)
  const decide = (/** @type {string} */ id, /** @type {string} */ what) =>
    act(async () => {
      await call("POST", `reports/${encodeURIComponent(id)}/${what}`, {})
      await reload()
      return what === "uphold" ? "Upheld: the report still counts." : "Dismissed: the report no longer counts."
    })
  return html`<div class="title"><h2>Reports</h2></div>
    <${Filters} value=${filter} onChange=${setFilter} fields=${[{
    name: "state",
    label: "State",
    options: [["open", "Open"], ["upheld", "Upheld"], ["dismissed", "Dismissed"]]
  }, { name: "agent", label: "About (handle)" }]} />
    <${Problem} text=${problem} />${said}
    <${For} role="moderator"><div class="row">
      <${OneField} label="Remove a message for all (its id)" action="Remove" max=${64} onSubmit=${(
    /** @type {string} */ id
  ) => content(`messages/${encodeURIComponent(id)}/remove`)} />
      <${OneField} label="Quarantine a file (its id)" action="Quarantine" max=${64} onSubmit=${(
    /** @type {string} */ id
  ) => content(`files/${encodeURIComponent(id)}/quarantine`)} />
    </div><//>
    <${Table} label="Reports" empty="No report matches the filters. Agents make reports; this page shows them." heads=${[
    "When",
    "About",
    "By",
    "Reason",
    "Counts",
    "State",
    "Decide"
  ]} rows=${
    rows?.map((report) =>
      html`<tr key=${report.id}>
      <td>${
        may("moderator")
          ? html`<a href=${`#/reports/${report.id}`}>${exactly(report.created_at)}</a>`
          : exactly(report.created_at)
      }</td><th scope="row"><${AgentLink} handle=${report.reported} /> ${
        report.reported_status === "active" ? null : html`<${State} state=${report.reported_status} />`
      }</th>
      <td><${AgentLink} handle=${report.reporter} /></td><td class="long"><${Long} text=${
        report.reason ?? ""
      } /></td><td>${report.counts ? "yes" : "no"}</td>
      <td><${State} state=${report.state} />${
        report.decided_by === null ? null : html` <small>${report.decided_by}, ${exactly(report.decided_at)}</small>`
      }</td>
      <td>${
        report.state === "open" && may("moderator") ?
          html`<span class="row"><button type="button" disabled=${busy} onClick=${() =>
            decide(report.id, "uphold")}>Uphold</button>
        <button type="button" disabled=${busy} onClick=${() => decide(report.id, "dismiss")}>Dismiss</button></span>` :
          null
      }</td></tr>`
    ) ?? null
  } />
    <${More} next=${next} />`
}

export const Backups = () => {
  const { data: shown, problem } = useRead("backups")
  const isOff = shown !== null && shown.every_hours === null
  return html`<div class="title"><h2>Backups</h2></div>
    <${Problem} text=${problem} />
    ${
    isOff
      ? html`<p class="empty">The server makes no backups on its own. Set BACKUP_EVERY and BACKUP_TO, or back up PostgreSQL with its own tools.</p>`
      : shown === null
      ? null
      : html`<${Problem} text=${shown.problem === null ? null : `The last backup failed: ${shown.problem}`} />
    <${Facts} of=${[
        ["Every", counted(shown.every_hours, "hour")],
        ["Place", html`<code>${shown.place}</code>`],
        ["Kept", number(shown.keep)]
      ]} />
    <${Table} label="Backups" empty="There is no backup yet." heads=${["Backup", "Made", "#Size"]} rows=${
        shown.backups.map((/** @type {any} */ backup) =>
          html`<tr key=${backup.name}><th scope="row"><code>${backup.name}</code></th><td>${
            exactly(backup.at)
          }</td><td class="number">${sizeOf(backup.bytes)}</td></tr>`
        )
      } />`
  }`
}

export const Webhooks = () => {
  const [filter, setFilter] = useState(/** @type {Record<string, string>} */ ({ agent: "", webhook: "" }))
  const { next, problem, reload, rows } = useList("webhooks/dead", "deliveries", filter)
  const { act, busy, said } = useActions()
  const retry = (/** @type {string} */ path, /** @type {unknown} */ body) =>
    act(async () => {
      const { message } = await call("POST", path, body)
      await reload()
      return message
    })
  const which = Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ""))
  return html`<div class="title"><h2>Webhooks</h2><p class="hint">Deliveries whose final attempt failed. The server does not retry them by itself.</p></div>
    <${Filters} value=${filter} onChange=${setFilter} fields=${[{ name: "agent", label: "Of the agent (handle)" }, {
    name: "webhook",
    label: "Of the webhook (id)"
  }]} />
    <${Problem} text=${problem} />${said}
    ${
    rows === null || rows.length === 0 || !may("operator") ?
      null :
      html`<p class="row"><${Careful} label="Retry all" disabled=${busy} sure=${
        Object.keys(which).length === 0 ? "Post all dead deliveries of all agents again?" : "Post all of these again?"
      }
      onConfirm=${() => retry("webhooks/retry", which)} /></p>`
  }
    <${Table} label="Dead deliveries" empty="No dead deliveries: every webhook got its events, or still has attempts left." heads=${[
    "Died",
    "Agent",
    "URL",
    "Event",
    "#Attempts",
    "Failure",
    "Action"
  ]} rows=${
    rows?.map((one) =>
      html`<tr key=${one.no}>
      <td>${
        exactly(one.dead_at)
      }</td><td><${AgentLink} handle=${one.agent} /></td><th scope="row" class="long"><${Long} text=${one.url} />${
        one.webhook_active ? null : html` <small class="tag">turned off</small>`
      }</th>
      <td>${one.event}</td><td class="number">${number(one.attempts)}</td><td class="long"><${Long} text=${
        one.failure ?? ""
      } /></td>
      <td><${For} role="operator"><button type="button" disabled=${busy} onClick=${() =>
        retry(`webhooks/dead/${encodeURIComponent(one.no)}/retry`, undefined)}>Retry</button><//></td></tr>`
    ) ?? null
  } />
    <${More} next=${next} />`
}

/** The number of OAuth connections, and the clients and hosts that operators have refused. */
export const Connections = () => {
  const { data, problem, reload } = useRead("connections")
  const [kind, setKind] = useState("redirect_host")
  const [value, setValue] = useState("")
  const [reason, setReason] = useState("")
  const { act, busy, said } = useActions()
  const change = (/** @type {string} */ path, /** @type {object} */ body) =>
    act(async () => {
      const { message } = await call("POST", `connections/${path}`, body)
      await reload()
      return message
    })
  const because = reason.trim() === "" ? {} : { reason: reason.trim() }
  return html`<div class="title"><h2>Connections</h2><p class="hint">Programs that may act for agents since somebody signed in with OAuth. An agent's page lists those of the agent.</p></div>
    <${Problem} text=${problem} />${said}
    ${
    data === null ? null : html`<p>${counted(data.live, "live connection")} of all agents.</p>
      ${
      data.live === 0 || !may("operator")
        ? null
        : html`<p class="row"><${Careful} label="End all" disabled=${busy} sure="End the connections of all agents? Their keys stay." onConfirm=${() =>
          change("end", because)} /></p>`
    }`
  }
    <${For} role="operator"><h3>Refuse</h3>
    <p class="hint">A refused client gets no code and no token, and its connections end. A refused host concerns all clients that send people there after the sign-in.</p>
    <form class="filters" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault()
    void change("refuse", { kind, value: value.trim(), ...because })
    setValue("")
  }}>
      <label class="field"><span>What</span><select value=${kind} onChange=${(/** @type {any} */ event) =>
    setKind(event.currentTarget.value)}>
        <option value="redirect_host">Host of redirects</option><option value="client">Client id</option></select></label>
      <label class="field"><span>${
    kind === "client" ? "Client id" : "Host"
  }</span><input value=${value} required maxlength="2400" autocomplete="off" autocapitalize="none" spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setValue(event.currentTarget.value)} /></label>
      <label class="field"><span>Reason, for the audit log</span><input value=${reason} maxlength="1000" onInput=${(
    /** @type {any} */ event
  ) => setReason(event.currentTarget.value)} /></label>
      <button type="submit" class="danger-quiet" disabled=${busy || value.trim() === ""}>Refuse</button></form><//>
    <h3>Refused</h3>
    <${Table} label="Refused" empty="No client and no host is refused." heads=${[
    "What",
    "Client id or host",
    "Since",
    "By",
    "Reason",
    "Action"
  ]} rows=${
    data?.refusals.map((/** @type {any} */ one) =>
      html`<tr key=${`${one.kind} ${one.value}`}>
      <td>${
        one.kind === "client" ? "Client" : "Host of redirects"
      }</td><th scope="row" class="long"><${Long} text=${one.value} /></th><td>${
        exactly(one.at)
      }</td><td><bdi>${one.by}</bdi></td>
      <td class="long"><${Long} text=${one.reason ?? ""} /></td>
      <td><${For} role="operator"><button type="button" disabled=${busy} onClick=${() =>
        change("allow", { kind: one.kind, value: one.value })}>Allow</button><//></td></tr>`
    ) ?? null
  } />`
}

export const Audit = () => {
  const [filter, setFilter] = useState(
    /** @type {Record<string, string>} */ ({ agent: "", operator: "", looks: "false" })
  )
  const { next, problem, rows } = useList("audit", "entries", filter)
  return html`<div class="title"><h2>Audit</h2></div>
    <${Filters} value=${filter} onChange=${setFilter} fields=${[{ name: "agent", label: "About (handle)" }, {
    name: "operator",
    label: "By (operator)"
  }, { name: "looks", label: "Show", options: [["false", "Changes"], ["true", "Changes and reads"]] }]} />
    <${Problem} text=${problem} />
    <${Table} label="Audit" empty="The audit log has no entry that matches the filters." heads=${[
    "When",
    "Who",
    "What",
    "About",
    "Detail"
  ]} rows=${
    rows?.map((entry) =>
      html`<tr key=${entry.no}>
      <td>${exactly(entry.at)}</td><td><bdi>${
        entry.operator ?? "enforcement"
      }</bdi></td><th scope="row">${entry.action}</th><td><${AgentLink} handle=${entry.agent} /></td>
      <td class="long"><${Long} text=${
        entry.detail === null ? "" : typeof entry.detail === "string" ? entry.detail : JSON.stringify(entry.detail)
      } /></td></tr>`
    ) ?? null
  } />
    <${More} next=${next} />`
}

/** @param {{ onLeave: () => void }} props */
export const Sessions = ({ onLeave }) => {
  const { data, problem, reload } = useRead("sessions")
  const { act, busy, said } = useActions()
  return html`<div class="title"><h2>Sessions</h2><p class="hint">The people and programs that can use this console now. Programs use tokens.</p></div><${Problem} text=${problem} />${said}
    <${Table} label="Sessions" empty="There are no sessions and no tokens." heads=${[
    "Operator",
    "Kind",
    "Begun",
    "Last used",
    "Ends",
    "Action"
  ]} rows=${
    data?.sessions.map((/** @type {any} */ one) =>
      html`<tr key=${one.id}>
      <th scope="row"><bdi>${one.operator}</bdi>${
        one.name === null ? null : html` <small><bdi>${one.name}</bdi></small>`
      }${one.is_own ? html` <small class="tag">this one</small>` : null}</th>
      <td>${one.kind}</td><td>${exactly(one.created_at)}</td><td>${exactly(one.last_used_at)}</td><td>${
        exactly(one.expires_at)
      }</td>
      <td><${For} role=${one.is_own ? "viewer" : "operator"}><button type="button" disabled=${busy} onClick=${() =>
        one.is_own ? onLeave() : act(async () => {
          const { message } = await call("DELETE", `sessions/${encodeURIComponent(one.id)}`)
          await reload()
          return message
        })}>End</button><//></td></tr>`
    ) ?? null
  } />`
}
