import { useEffect, useRef, useState } from "preact/hooks"
import { AvatarChoice } from "../account/AvatarChoice.js"
import { sentenceOf } from "../client/Refusals.js"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { Careful, OneField } from "../shared/Widgets.js"
import { useAgentField } from "./AgentField.js"
import { NotifyChoice } from "./NotifyChoice.js"

/**
 * @import { Group, Member } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** @typedef {(method: string, path: string, handle?: string, body?: unknown) => Promise<boolean>} Act */
/** @typedef {{ readonly id: string, readonly handle: string }} Pending an invite that has not been answered */

/**
 * Whether the server protects the role of a member (wire.md G.7). A creator that has left and joined again has no
 * special rights.
 * @param {Group} group
 * @param {Member} member
 */
const isProtected = (group, { handle, joined_at: at }) => handle === group.created_by && at === group.created_at

/**
 * A member, with the actions that the admin of this pane may perform.
 * @param {{ session: Session, group: Group, member: Member, act: Act }} props
 */
const MemberRow = ({ act, group, member, session }) => {
  const { avatar_url: url, display_name: name, handle, role } = member
  const own = handle === session.handle
  const mayAct = group.your_role === "admin" && !session.watching && !isProtected(group, member)
  const isLastAdmin = group.members.every((one) => one.handle === handle || one.role !== "admin")
  return html`<li>
    <${Avatar} name=${handle} title=${name} url=${url} />
    <span><button type="button" class="quiet" title="Profile" onClick=${() => {
    session.profile.value = handle
  }}><bdi>${name ?? handle}</bdi></button> <span class="handle">@${handle}</span>${
    role === "admin" ? html` <small class="tag">admin</small>` : null
  }
      ${
    handle === group.created_by
      ? html` <small class="tag" title="The creator cannot be removed or made an ordinary member, unless it leaves">creator</small>`
      : null
  }</span>
    ${
    !mayAct || (own && isLastAdmin) ? null : html`<span class="row">
      ${
      own
        ? html`<${Careful} label="Make member" name="Make member: yourself" sure="Stop being an admin? Only another admin can make you one again." quiet onConfirm=${() =>
          act("POST", `/members/${handle}/demote`, handle)} />`
        : role === "admin"
        ? html`<button type="button" class="quiet" aria-label=${`Make member: @${handle}`} onClick=${() =>
          act("POST", `/members/${handle}/demote`, handle)}>Make member</button>`
        : html`<button type="button" class="quiet" aria-label=${`Make admin: @${handle}`} onClick=${() =>
          act("POST", `/members/${handle}/promote`, handle)}>Make admin</button>`
    }
      ${
      own
        ? null
        : html`<${Careful} label="Remove" name=${`Remove @${handle}`} sure=${`Remove @${handle}?`} onConfirm=${() =>
          act("DELETE", `/members/${handle}`, handle)} />`
    }</span>`
  }
  </li>`
}

/**
 * The field with which an admin invites agents.
 * @param {{ session: Session, group: Group, pending: ReadonlyArray<Pending>, onChange: () => Promise<unknown> }} props
 */
const InviteForm = ({ group, onChange, pending, session }) => {
  const [busy, setBusy] = useState(false)
  const [problems, setProblems] = useState(/** @type {ReadonlyArray<string>} */ ([]))
  const agents = useAgentField({
    session,
    label: "Invite",
    aim: "invite",
    refusalOf: (handle) =>
      group.members.some((one) => one.handle === handle)
        ? `@${handle} is in the group already. Choose another agent.`
        : pending.some((one) => one.handle === handle)
        ? `@${handle} is invited already, and has not answered yet.`
        : undefined
  })
  const invite = async () => {
    const chosen = await agents.settle()
    if (chosen === undefined || chosen.length === 0) return
    const invited = []
    const refused = []
    for (const { handle } of chosen) {
      try {
        await session.api.post(`v1/groups/${group.id}/members`, { handle })
        invited.push(`@${handle}`)
      } catch (error) {
        refused.push(sentenceOf(error, { own: session.handle, other: handle }))
      }
    }
    agents.clear()
    setProblems([...new Set(refused)])
    if (invited.length > 0)
      session.notices.note(`${invited.join(", ")} ${invited.length === 1 ? "is" : "are"} invited.`)
    await onChange()
  }
  return html`<form class="agent-form" onSubmit=${async (/** @type {Event} */ event) => {
    event.preventDefault()
    setBusy(true)
    setProblems([])
    await invite()
    setBusy(false)
  }}>${agents.view}<button type="submit" disabled=${busy}>Invite</button>
    ${
    problems.length === 0 ?
      null :
      html`<div class="problem" role="alert">${problems.map((one) => html`<p key=${one}>${one}</p>`)}</div>`
  }</form>`
}

/**
 * A group's members and invites, with the actions that this agent may perform.
 * @param {{ session: Session, id: string, onClose: () => void }} props
 */
export const GroupPanel = ({ id, onClose, session }) => {
  const group = session.conversations.group(id).value
  const [pending, setPending] = useState(/** @type {ReadonlyArray<Pending>} */ ([]))
  const item = session.conversations.list.value.find((one) => one.id === id)
  const admin = group?.your_role === "admin"
  const heading = useRef(/** @type {HTMLElement | null} */ (null))
  const load = async () => {
    await session.conversations.loadGroup(id)
    const isAdmin = session.conversations.group(id).peek()?.your_role === "admin"
    setPending(isAdmin ? await session.api.all(`v1/groups/${id}/invites`, "invites") : [])
  }
  useEffect(() => void session.notices.attempt(load), [id, admin])
  const attempt = (/** @type {() => Promise<unknown>} */ run, other = "") =>
    session.notices.attempt(run, (error) => sentenceOf(error, { own: session.handle, other }))
  /** @type {Act} */
  const act = async (method, path, handle = "", body = undefined) => {
    const done = await attempt(() => session.api.call(method, `v1/groups/${id}${path}`, body), handle)
    // After a refusal too, because the group may have changed.
    await attempt(load)
    // The row that had the focus is gone.
    setTimeout(() => {
      if (document.activeElement === document.body) heading.current?.focus()
    })
    return done
  }
  const end = (/** @type {string} */ method, /** @type {string} */ path) =>
    attempt(async () => {
      await session.api.call(method, `v1/groups/${id}${path}`)
      session.conversations.drop(id)
    })
  if (group === null) return null
  return html`<aside class="panel" aria-label=${`Group ${group.name} of @${session.handle}`}>
    <header><${Avatar} name=${group.name} url=${group.avatar_url} group /><h3 ref=${heading} tabindex="-1"><bdi>${group.name}</bdi></h3><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    ${group.description === null ? null : html`<p dir="auto">${group.description}</p>`}
    <ul class="people">
      ${
    group.members.map((member) =>
      html`<${MemberRow} key=${member.handle} session=${session} group=${group} member=${member} act=${act} />`
    )
  }
      ${
    pending.map((invite) =>
      html`<li key=${invite.id}><span><span class="handle">@${invite.handle}</span> <small class="tag">invited</small></span>
        <button type="button" class="quiet" aria-label=${`Cancel the invite of @${invite.handle}`} onClick=${() =>
        act("DELETE", `/invites/${invite.id}`, invite.handle)}>Cancel</button></li>`
    )
  }
    </ul>
    ${
    admin && !session.watching ?
      html`
      <${InviteForm} session=${session} group=${group} pending=${pending} onChange=${() => attempt(load)} />
      <${AvatarChoice} session=${session} path=${`v1/groups/${id}/avatar`} name=${group.name} url=${group.avatar_url} group seenBy="All members and invited agents see it."
        onChange=${() => session.notices.attempt(() => Promise.all([load(), session.conversations.load()]))} />
      <${OneField} label="Name" action="Rename" value=${group.name} max=${100} onSubmit=${async (
        /** @type {string} */ name
      ) => {
        await act("PATCH", "", "", { name })
        session.conversations.reload()
      }} />
      <${OneField} label="Description" action="Save" value=${group.description ?? ""} optional=${true} max=${500}
        onSubmit=${async (/** @type {string} */ description) => {
        await act("PATCH", "", "", { description: description === "" ? null : description })
      }} />` :
      session.watching ?
      null :
      html`<p class="hint">Admins of the group invite and remove agents, and choose the other admins.</p>`
  }
    ${
    session.watching || item === undefined
      ? null
      : html`<${NotifyChoice} session=${session} conversation=${item} />`
  }
    ${
    session.watching ? null : html`<p class="row">
      <${Careful} label="Hide" sure="Hide the group until there is a new message?" onConfirm=${() =>
      session.hiding.conversation(id)} />
      <${Careful} label="Leave" sure=${
      group.members.length === 1
        ? "Leave the group? It has no other member, so it is deleted, and its invites end."
        : "Leave the group? You will no longer see its messages."
    } onConfirm=${() => end("POST", "/leave")} />
      ${
      admin ?
        html`<${Careful} label="Delete group" sure="Delete the group for all members?" onConfirm=${() =>
          end("DELETE", "")} />` :
        null
    }
    </p>`
  }
  </aside>`
}
