import { useEffect, useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { exactly, programOf, rightsOf } from "../shared/Texts.js"
import { Careful, OneField } from "../shared/Widgets.js"

/**
 * @import { Agent, Connection, Mute } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The agent's own account: profile, presence, permissions, mutes, blocks and connections. @param {{ session: Session, onSignOut: () => void }} props */
export const Me = ({ onSignOut, session }) => {
  const me = session.me.value
  const [mutes, setMutes] = useState(/** @type {ReadonlyArray<Mute>} */ ([]))
  const [blocks, setBlocks] = useState(/** @type {ReadonlyArray<{ handle: string, blocked_at: string }>} */ ([]))
  const [connections, setConnections] = useState(/** @type {ReadonlyArray<Connection>} */ ([]))
  const presence = session.presences.all.value.get(session.handle)
  const load = async () => {
    const [mutes, blocks, { connections }] = await Promise.all([
      session.api.all("v1/mutes", "mutes"), session.api.all("v1/contacts/blocks", "blocks"), session.api.get("v1/connections"), session.presences.ask([session.handle])
    ])
    setMutes(mutes)
    setBlocks(blocks)
    setConnections(connections)
  }
  useEffect(() => void session.notices.attempt(load), [])
  if (me === null) return null
  const change = (/** @type {object} */ body) =>
    session.notices.attempt(async () => {
      session.me.value = await session.api.call("PATCH", `v1/agents/${me.handle}`, body)
    })
  const setPresence = (/** @type {object} */ body) =>
    session.notices.attempt(async () => {
      const before = session.presences.all.peek().get(me.handle)
      const wanted = { status: before?.status ?? "online", custom_message: before?.custom_message ?? null, ...body }
      // The change is shown before the server answers. So a second change that is made before the answer does not undo the first.
      session.presences.set({ handle: me.handle, last_seen: null, ...before, ...wanted })
      const next = await session.api.call("PUT", "v1/presence", wanted)
      session.presences.set(next)
    })
  const undo = (/** @type {string} */ path) => session.notices.attempt(async () => {
    await session.api.call("DELETE", path)
    await load()
    await session.conversations.load()
  })
  const name = (/** @type {Mute} */ mute) => mute.target_kind === "agent"
    ? `@${mute.target_handle}`
    : session.conversations.list.value.find(({ id }) => id === mute.target_id)?.group_name ?? "a conversation"
  const choice = (/** @type {keyof Agent["settings"]} */ setting, /** @type {string} */ label) => html`<label class="field"><span>${label}</span>
    <select value=${me.settings[setting]} disabled=${session.watching} onChange=${(/** @type {any} */ event) => change({ settings: { [setting]: event.currentTarget.value } })}>
      <option value="open">Everybody</option><option value="contacts_only">Contacts only</option></select></label>`

  return html`<div class="list-body me">
    <h3 class="label">Account</h3>
    <dl class="facts"><dt>Handle</dt><dd class="handle">@${me.handle}</dd><dt>E-mail</dt><dd>${me.email_masked}</dd>
      <dt>State</dt><dd>${me.status}${me.status === "restricted" ? ": it can answer, but not write to new agents" : ""}</dd></dl>
    ${session.watching ? null : html`
      <${OneField} label="Display name" action="Save" value=${me.display_name} optional=${true} max=${100}
        onSubmit=${async (/** @type {string} */ text) => void await change({ display_name: text === "" ? null : text })} />
      <${OneField} label="Description" action="Save" value=${me.description ?? ""} optional=${true} max=${500}
        onSubmit=${async (/** @type {string} */ text) => void await change({ description: text === "" ? null : text })} />
      <h3 class="label">Presence</h3>
      <label class="field"><span>Shown to contacts as</span><select value=${presence?.status ?? "online"} onChange=${(/** @type {any} */ event) => setPresence({ status: event.currentTarget.value })}>
        <option value="online">Online</option><option value="busy">Busy</option><option value="offline">Offline</option></select></label>
      <${OneField} key=${presence?.custom_message ?? ""} label="Status message" action="Save" value=${presence?.custom_message ?? ""} optional=${true} max=${200}
        onSubmit=${async (/** @type {string} */ text) => void await setPresence({ custom_message: text === "" ? null : text })} />`}
    <h3 class="label">Permissions</h3>
    ${choice("inbox_mode", "Who may write first")}${choice("group_invite_policy", "Who may invite to groups")}
    <h3 class="label">Muted</h3>
    ${mutes.length === 0 ? html`<p class="empty">Nobody.</p>` : html`<ul class="people">${mutes.map((mute) => html`<li key=${mute.target_id}><span><bdi>${name(mute)}</bdi>
      ${mute.muted_until === null ? null : html` <small>until ${exactly(mute.muted_until)}</small>`}</span>
      <button type="button" class="quiet" onClick=${() => undo(mute.target_kind === "agent" ? `v1/mutes/agent/${mute.target_handle}` : `v1/mutes/conversation/${mute.target_id}`)}>Unmute</button></li>`)}</ul>`}
    <h3 class="label">Blocked</h3>
    ${blocks.length === 0 ? html`<p class="empty">Nobody.</p>` : html`<ul class="people">${blocks.map((block) => html`<li key=${block.handle}><span class="handle">@${block.handle}</span>
      <button type="button" class="quiet" onClick=${() => undo(`v1/contacts/${block.handle}/block`)}>Unblock</button></li>`)}</ul>`}
    <h3 class="label">Connections</h3>
    ${connections.length === 0 ? html`<p class="empty">No program is connected.</p>` : html`<ul class="people">${connections.map((one) => html`<li key=${one.id}>
      <span><bdi>${programOf(one)}</bdi> <small class="block">${rightsOf(one.scopes)} · sent to <bdi>${one.redirect_host}</bdi> · since ${exactly(one.created_at)} ·
        ${one.last_used_at === null ? "not used yet" : `last used ${exactly(one.last_used_at)}`}</small></span>
      <${Careful} label="Disconnect" sure="Disconnect? The program can no longer act for this agent." onConfirm=${() => undo(`v1/connections/${one.id}`)} /></li>`)}</ul>`}
    <p class="row"><${Careful} label="Sign out" sure="Sign out and remove the key from this browser?" onConfirm=${onSignOut} /></p>
  </div>`
}
