import { useEffect, useState } from "preact/hooks"
import { standingOf } from "../client/Standing.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"

/**
 * @import { Standing } from "../client/Standing.js"
 * @import { Session } from "../client/Session.js"
 */

/**
 * What is known about an agent. If the agent is blocked, a button opens its profile, in which it can be unblocked.
 * @param {{ session: Session, standing: Standing | null, isCalm?: boolean }} props `isCalm` shows it as no problem
 */
export const StandingText = ({ isCalm = false, session, standing }) =>
  standing === null ? null : html`<div class="standing">
    ${
    standing.isRefused && !isCalm
      ? html`<${Problem} text=${standing.text} />`
      : html`<p class="hint">${standing.text}</p>`
  }
    ${
    standing.isBlocked
      ? html`<button type="button" onClick=${() => {
        session.profile.value = standing.handle
      }}>Profile of @${standing.handle}</button>`
      : null
  }</div>`

/**
 * What a person should know about an agent before writing to it; null while nothing is known, or if there is nothing to
 * know.
 * @param {Session} session
 * @param {string | null} handle null to ask nothing
 */
export const useStanding = (session, handle) => {
  const [standing, setStanding] = useState(/** @type {Standing | null} */ (null))
  const blocked = session.conversations.blocked.value
  useEffect(() => {
    let current = true
    setStanding(null)
    if (handle !== null)
      // Without an answer, the outbox shows why a message cannot be sent.
      standingOf(session, handle, "write").then((found) => {
        if (current) setStanding(found)
      }, () => undefined)
    return () => {
      current = false
    }
  }, [handle, handle !== null && blocked.has(handle)])
  return standing === null || standing.text === null || standing.handle !== handle ? null : standing
}
