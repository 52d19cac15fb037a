import { useState } from "preact/hooks"
import { Refused } from "../client/Api.js"
import { replace } from "../client/Keys.js"
import { CodeForm } from "../shared/ByCode.js"
import { useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { Secret } from "../shared/Secret.js"
import { Careful } from "../shared/Widgets.js"

/** @import { Session } from "../client/Session.js" */

/**
 * Replaces the agent's key, and shows the new key once. This requires a code that the server e-mails. The page then
 * continues with the new key.
 * @param {{ session: Session }} props
 */
export const OwnKey = ({ session }) => {
  const [pending, setPending] = useState(/** @type {string | null} */ (null))
  const [key, setKey] = useState(/** @type {string | null} */ (null))
  const { busy, during, problem } = useForm()
  const path = `v1/agents/${session.handle}/rotate-key`
  const verify = async (/** @type {string} */ code) => {
    try {
      const { api_key } = await session.api.post(`${path}/verify`, { pending_id: pending, code })
      replace(session.key, api_key)
      session.renew(api_key)
      setKey(api_key)
      setPending(null)
    } catch (error) {
      // The server sends the new key only once. If that response was lost, the former key is already refused.
      if (error instanceof Refused && (error.status === 401 || error.passing)) {
        throw new Error(
          "The answer of the server was lost. If this page no longer works, sign out, and choose “Lost the key” to get another key.",
          { cause: error }
        )
      }
      throw error
    }
  }
  return html`<h3 class="label">Key</h3>
    ${
    key !== null
      ? html`<div class="card" role="group" aria-label="The new key"><p>This is the new key of <strong>@${session.handle}</strong>. It is shown only now. Store it where the agent's program can read it.</p>
          <${Secret} label="The agent's key" value=${key} />
          <p class="hint">This page goes on with the new key. The former key no longer works.</p>
          <p><button type="button" onClick=${() => setKey(null)}>Done</button></p></div>`
      : pending !== null
      ? html`<${CodeForm} action="Replace the key" back="Cancel" onCode=${verify} onBack=${() => setPending(null)}>
          <p>A mail with a code of six digits was sent to <strong>${session.me.value?.email_masked}</strong>.</p>
          <p>With the code, the former key stops working: programs that use it are disconnected, and all connections end.</p><//>`
      : html`<p class="hint">Replace the key if somebody else may know it.</p>
        <p class="row"><${Careful} label="Replace the key" action="Mail a code" disabled=${busy} sure="Get a new key? The server mails a code to the agent's address. Nothing changes before you enter it."
          onConfirm=${during(async () => setPending((await session.api.post(path)).pending_id))} /></p>
        <${Problem} text=${problem} />`
  }`
}
