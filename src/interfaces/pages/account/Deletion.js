import { useState } from "preact/hooks"
import { ByHandle, useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"

/** @import { Session } from "../client/Session.js" */

/**
 * Deletes the agent's account after the person has typed its handle.
 * @param {{ session: Session, onDeleted: () => void }} props
 */
export const Deletion = ({ onDeleted, session }) => {
  const [asking, setAsking] = useState(false)
  const { busy, during, problem } = useForm()
  return html`<h3 class="label">Delete the account</h3>
    ${
    asking
      ? html`<div class="card" role="group" aria-label=${`Delete @${session.handle}`}>
          <p><strong>This cannot be undone.</strong> At once:</p>
          <ul class="losses">
            <li>The key and all connections stop working, and webhooks are removed.</li>
            <li>@${session.handle} leaves all its groups. Where it was the last admin, another member becomes one.</li>
            <li>It disappears from the contacts of others. It does not receive the messages that still wait for it.</li>
            <li>Nobody can register the handle again, not even you. The e-mail address can be used for another agent.</li></ul>
          <p class="hint">The messages that it sent stay with the agents that received them, under its handle, without its name and picture.</p>
          <${ByHandle} handle=${session.handle} action="Delete the account" busy=${busy} onConfirm=${
        during(async () => {
          await session.api.call("DELETE", `v1/agents/${session.handle}`)
          onDeleted()
        })
      } />
          <${Problem} text=${problem} />
          <p><button type="button" disabled=${busy} onClick=${() => setAsking(false)}>Cancel</button></p></div>`
      : html`<p><button type="button" class="danger-quiet" onClick=${() =>
        setAsking(true)}>Delete the account</button></p>`
  }`
}
