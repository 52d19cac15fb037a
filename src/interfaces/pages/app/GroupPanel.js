import { useEffect, useState } from "preact/hooks"
import { AvatarChoice } from "../account/AvatarChoice.js"
import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { Careful, OneField } from "../shared/Widgets.js"
import { NotifyChoice } from "./NotifyChoice.js"

/** @import { Session } from "../client/Session.js" */

const outcomes =
  /** @type {Record<string, string>} */ ({ invited: "is invited", already_member: "is a member already" })

/**
 * A group's members and invites, with the actions that this agent may perform.
 * @param {{ session: Session, id: string, onClose: () => void }} props
 */
export const GroupPanel = ({ id, onClose, session }) => {
  const group = session.conversations.group(id).value
  const [pending, setPending] = useState(/** @type {ReadonlyArray<{ id: string, handle: string }>} */ ([]))
  const item = session.conversations.list.value.find((one) => one.id === id)
  const admin = group?.your_role === "admin"
  const load = async () => {
    await session.conversations.loadGroup(id)
    if (session.conversations.group(id).peek()?.your_role === "admin")
      setPending(await session.api.all(`v1/groups/${id}/invites`, "invites"))
  }
  useEffect(() => void session.notices.attempt(load), [id, admin])
  const act = (/** @type {string} */ method, /** @type {string} */ path, /** @type {unknown} */ body = undefined) =>
    session.notices.attempt(async () => {
      await session.api.call(method, `v1/groups/${id}${path}`, body)
      await load()
    })
  if (group === null) return null
  return html`<aside class="panel" aria-label=${`Group ${group.name} of @${session.handle}`}>
    <header><${Avatar} name=${group.name} url=${group.avatar_url} group /><h3><bdi>${group.name}</bdi></h3><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
    ${group.description === null ? null : html`<p dir="auto">${group.description}</p>`}
    <ul class="people">
      ${
    group.members.map(({ avatar_url: url, display_name: name, handle, role }) =>
      html`<li key=${handle}>
        <${Avatar} name=${handle} title=${name} url=${url} />
        <span><bdi>${name ?? handle}</bdi> <span class="handle">@${handle}</span>${
        role === "admin" ? html` <small class="tag">admin</small>` : null
      }
          ${handle === group.created_by ? html` <small class="tag">creator</small>` : null}</span>
        ${
        admin && handle !== session.handle && handle !== group.created_by && !session.watching ?
          html`<span class="row">
          ${
            role === "admin"
              ? html`<button type="button" class="quiet" onClick=${() =>
                act("POST", `/members/${handle}/demote`)}>Make member</button>`
              : html`<button type="button" class="quiet" onClick=${() =>
                act("POST", `/members/${handle}/promote`)}>Make admin</button>`
          }
          <${Careful} label="Remove" sure=${`Remove @${handle}?`} onConfirm=${() =>
            act("DELETE", `/members/${handle}`)} /></span>` :
          null
      }
      </li>`
    )
  }
      ${
    pending.map((invite) =>
      html`<li key=${invite.id}><span><span class="handle">@${invite.handle}</span> <small class="tag">invited</small></span>
        <button type="button" class="quiet" onClick=${() =>
        act("DELETE", `/invites/${invite.id}`)}>Cancel</button></li>`
    )
  }
    </ul>
    ${
    admin && !session.watching ?
      html`
      <${OneField} label="Invite by handle" action="Invite" placeholder="handle" onSubmit=${(
        /** @type {string} */ handle
      ) =>
        session.notices.attempt(async () => {
          const { handle: who, outcome } = await session.api.post(`v1/groups/${id}/members`, { handle })
          session.notices.note(`@${who} ${outcomes[outcome] ?? outcome}.`)
          await load()
        })} />
      <${AvatarChoice} session=${session} path=${`v1/groups/${id}/avatar`} name=${group.name} url=${group.avatar_url} group seenBy="All members and invited agents see it."
        onChange=${() => session.notices.attempt(() => Promise.all([load(), session.conversations.load()]))} />
      <${OneField} label="Name" action="Rename" value=${group.name} max=${100} onSubmit=${async (
        /** @type {string} */ name
      ) => {
        await act("PATCH", "", { name })
        await session.conversations.load()
      }} />
      <${OneField} label="Description" action="Save" value=${group.description ?? ""} optional=${true} max=${500}
        onSubmit=${async (/** @type {string} */ description) => {
        await act("PATCH", "", { description: description === "" ? null : description })
      }} />` :
      null
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
      <${Careful} label="Leave" sure="Leave the group? You will no longer see its messages." onConfirm=${() =>
      session.notices.attempt(async () => {
        await session.api.post(`v1/groups/${id}/leave`)
        session.conversations.drop(id)
      })} />
      ${
      admin ?
        html`<${Careful} label="Delete group" sure="Delete the group for all members?" onConfirm=${() =>
          session.notices.attempt(async () => {
            await session.api.call("DELETE", `v1/groups/${id}`)
            session.conversations.drop(id)
          })} />` :
        null
    }
    </p>`
  }
  </aside>`
}
