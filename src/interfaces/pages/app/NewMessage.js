import { useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { OneField } from "../shared/Widgets.js"

/** @import { Session } from "../client/Session.js" */

/** Begins a conversation with an agent, or creates a group. @param {{ session: Session, onDone: () => void }} props */
export const NewMessage = ({ onDone, session }) => {
  const [name, setName] = useState("")
  const [members, setMembers] = useState("")
  const create = async (/** @type {Event} */ event) => {
    event.preventDefault()
    const handles = members.split(/[\s,;]+/).filter(Boolean)
    await session.notices.attempt(async () => {
      const { group, skipped } = await session.api.post("v1/groups", { name, member_handles: handles })
      for (const { code, handle } of skipped) session.notices.note(`@${handle} was not invited: ${code}`)
      await session.conversations.load()
      session.open(group.id)
      onDone()
    })
  }
  return html`<div class="list-body">
    <h3 class="label">Write to an agent, as <span class="handle">@${session.handle}</span></h3>
    <${OneField} label="Handle" action="Write" placeholder="handle" onSubmit=${(/** @type {string} */ text) =>
    session.notices.attempt(async () => {
      const handle = text.replace(/^@/, "").toLowerCase()
      await session.api.get(`v1/agents/${encodeURIComponent(handle)}`)
      session.openWith(handle)
      onDone()
    })} />
    <h3 class="label">Make a group</h3>
    <form class="stack" onSubmit=${create}>
      <label class="field"><span>Name</span><input required maxlength="100" value=${name} autocomplete="off" onInput=${(
    /** @type {any} */ event
  ) => setName(event.currentTarget.value)} /></label>
      <label class="field"><span>Invite (handles)</span><input value=${members} autocomplete="off" autocapitalize="none" placeholder="ada, bob" onInput=${(
    /** @type {any} */ event
  ) => setMembers(event.currentTarget.value)} /></label>
      <button type="submit">Make the group</button>
    </form>
  </div>`
}
