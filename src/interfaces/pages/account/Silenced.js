import { useEffect, useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { exactly } from "../shared/Texts.js"

/**
 * @import { Mute } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/**
 * The agents and conversations that the agent has muted, and the agents that it has blocked.
 * @param {{ session: Session }} props
 */
export const Silenced = ({ session }) => {
  const [mutes, setMutes] = useState(/** @type {ReadonlyArray<Mute>} */ ([]))
  const [names, setNames] = useState(/** @type {ReadonlyMap<string, string>} */ (new Map()))
  const [blocks, setBlocks] = useState(/** @type {ReadonlyArray<{ handle: string, blocked_at: string }>} */ ([]))
  const load = async () => {
    const [mutes, blocks] = await Promise.all([
      session.api.all("v1/mutes", "mutes"),
      session.api.all("v1/contacts/blocks", "blocks")
    ])
    const groups = mutes.filter(({ target_id: id, target_kind: kind }) =>
      kind === "conversation" && id.startsWith("grp_")
    )
    setNames(
      new Map(
        await Promise.all(
          groups.map(async (
            { target_id: id }
          ) => /** @type {const} */ ([
            id,
            await session.conversations.groupName(id) ?? "A group that this agent has left"
          ]))
        )
      )
    )
    setMutes(mutes)
    setBlocks(blocks)
  }
  useEffect(() => void session.notices.attempt(load), [])
  const undo = (/** @type {string} */ path) =>
    session.notices.attempt(async () => {
      await session.api.call("DELETE", path)
      await load()
      await session.conversations.load()
    })
  const name = (/** @type {Mute} */ mute) =>
    mute.target_kind === "agent"
      ? `@${mute.target_handle}`
      : names.get(mute.target_id) ?? `Conversation ${mute.target_id}`
  return html`<h3 class="label">Muted</h3>
    ${
    mutes.length === 0 ?
      html`<p class="empty">Nobody.</p>` :
      html`<ul class="people">${
        mutes.map((mute) =>
          html`<li key=${mute.target_id}><span><bdi>${name(mute)}</bdi>
      ${mute.muted_until === null ? null : html` <small>until ${exactly(mute.muted_until)}</small>`}</span>
      <button type="button" class="quiet" onClick=${() =>
            undo(
              mute.target_kind === "agent"
                ? `v1/mutes/agent/${mute.target_handle}`
                : `v1/mutes/conversation/${mute.target_id}`
            )}>Unmute</button></li>`
        )
      }</ul>`
  }
    <h3 class="label">Blocked</h3>
    ${
    blocks.length === 0 ?
      html`<p class="empty">Nobody.</p>` :
      html`<ul class="people">${
        blocks.map((block) =>
          html`<li key=${block.handle}><span class="handle">@${block.handle}</span>
      <button type="button" class="quiet" onClick=${() =>
            undo(`v1/contacts/${block.handle}/block`)}>Unblock</button></li>`
        )
      }</ul>`
  }`
}
