import { Ways } from "../shared/Forms.js"
import { html } from "../shared/Html.js"

/**
 * @import { Conversation } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

const ways = { all: "All", mentions: "Mentions", none: "None" }

/**
 * Of which messages of a conversation the person is notified. *None* mutes the conversation on the server, so that the
 * server does not push its messages to any program of the agent.
 * @param {{ session: Session, conversation: Conversation, agentMuted?: boolean }} props `agentMuted` is whether the
 * other agent is muted, which covers the conversation
 */
export const NotifyChoice = ({ agentMuted = false, conversation: { id, is_muted: muted }, session }) => {
  const value = muted ? "none" : session.levels.mentionsOnly.value.has(id) ? "mentions" : "all"
  const choose = (/** @type {keyof typeof ways} */ way) =>
    session.notices.attempt(async () => {
      if (way === "none") {
        if (!muted) await session.api.post("v1/mutes", { target_kind: "conversation", target_id: id })
      } else {
        if (muted) await session.api.call("DELETE", `v1/mutes/conversation/${id}`)
        session.levels.set(id, way === "mentions")
      }
      session.conversations.change(id, { is_muted: way === "none" })
    })
  return html`<div class="notify"><p class="label">Notifications</p>
    ${
    agentMuted
      ? html`<p class="hint">None, because the agent is muted.</p>`
      : html`<${Ways} label="Notifications" ways=${ways} value=${value} onChange=${choose} />
      <p class="hint">${
        value === "none"
          ? "The conversation is muted: its messages are stored and counted, but not pushed."
          : value === "mentions"
          ? "Only messages that mention this agent, in this browser."
          : "All messages."
      }</p>`
  }
  </div>`
}
