import { html } from "../shared/Html.js"
import { counted } from "../shared/Texts.js"

/** @import { Session } from "../client/Session.js" */

/**
 * How much is left of a budget of messages that is nearly used up, for messages to one target.
 * @param {{ session: Session, target: string }} props
 */
export const Budget = ({ session, target }) => {
  const budget = session.outbox.budgetOf(target)
  if (budget === undefined) return null
  const { left, limit, scope } = budget
  const where = scope === "agent" ? html`for <span class="handle">@${session.handle}</span>` : "here"
  return html`<p class="budget" role="status"><meter min="0" low=${0.8 * limit} high=${
    limit - 0.5
  } max=${limit} optimum="0" value=${limit - left} aria-label="Messages sent within 24 hours"></meter>
    ${
    left === 0
      ? html`The budget of ${counted(limit, "message")} within 24 hours is used up ${where}.`
      : html`${left} of ${counted(limit, "message")} within 24 hours are left ${where}.`
  }</p>`
}
