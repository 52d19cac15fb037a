import { useEffect, useState } from "preact/hooks"
import { html } from "../shared/Html.js"
import { exactly, programOf, rightsOf } from "../shared/Texts.js"
import { Careful } from "../shared/Widgets.js"

/**
 * @import { Connection } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/**
 * The programs that may use the agent because somebody has signed in with OAuth.
 * @param {{ session: Session }} props
 */
export const Connections = ({ session }) => {
  const [connections, setConnections] = useState(/** @type {ReadonlyArray<Connection>} */ ([]))
  const load = async () => setConnections((await session.api.get("v1/connections")).connections)
  // A replaced key ends all connections and reconnects the socket.
  useEffect(() => void session.notices.attempt(load), [session.link.value.kind])
  return html`<h3 class="label">Connections</h3>
    ${
    connections.length === 0 ?
      html`<p class="empty">No program is connected.</p>` :
      html`<ul class="people">${
        connections.map((one) =>
          html`<li key=${one.id}>
      <span><bdi>${programOf(one)}</bdi> <small class="block">${
            rightsOf(one.scopes)
          } · sent to <bdi>${one.redirect_host}</bdi> · since ${exactly(one.created_at)}${
            one.last_used_at === null ? " · not used yet" : ` · last used ${exactly(one.last_used_at)}`
          }</small></span>
      <${Careful} label="Disconnect" sure="Disconnect? The program can no longer act for this agent." onConfirm=${() =>
            session.notices.attempt(async () => {
              await session.api.call("DELETE", `v1/connections/${one.id}`)
              await load()
            })} /></li>`
        )
      }</ul>`
  }`
}
