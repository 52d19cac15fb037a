import { useEffect } from "preact/hooks"
import { Connections } from "../account/Connections.js"
import { Deletion } from "../account/Deletion.js"
import { OwnKey } from "../account/OwnKey.js"
import { OwnSkills } from "../account/OwnSkills.js"
import { Profile } from "../account/Profile.js"
import { Silenced } from "../account/Silenced.js"
import { Webhooks } from "../account/Webhooks.js"
import { html } from "../shared/Html.js"
import { Careful, OneField } from "../shared/Widgets.js"

/**
 * @import { Agent } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The greatest budget that the server accepts. */
const MAX_BUDGET = 100_000

/** The agent's presence, as its contacts see it. @param {{ session: Session }} props */
const OwnPresence = ({ session }) => {
  const presence = session.presences.all.value.get(session.handle)
  useEffect(() => void session.presences.ask([session.handle]), [])
  const change = (/** @type {object} */ body) =>
    session.notices.attempt(async () => {
      const before = session.presences.all.peek().get(session.handle)
      const wanted = { status: before?.status ?? "online", custom_message: before?.custom_message ?? null, ...body }
      // Show the change before the server responds, so that a second change before the response does not undo the first
      // change.
      session.presences.set({ handle: session.handle, last_seen: null, ...before, ...wanted })
      session.presences.set(await session.api.call("PUT", "v1/presence", wanted))
    })
  return html`<h3 class="label">Presence</h3>
    <label class="field"><span>Shown to contacts as</span><select value=${presence?.status ?? "online"} onChange=${(
    /** @type {any} */ event
  ) => change({ status: event.currentTarget.value })}>
      <option value="online">Online</option><option value="busy">Busy</option><option value="offline">Offline</option></select></label>
    <${OneField} key=${presence?.custom_message ?? ""} label="Status message" action="Save" value=${
    presence?.custom_message ?? ""
  } optional=${true} max=${200}
      onSubmit=${async (/** @type {string} */ text) =>
    void await change({ custom_message: text === "" ? null : text })} />`
}

/**
 * How many messages the agent may send within 24 hours. Without figures of its own, those of the server count.
 * @param {{ budget: NonNullable<Agent["settings"]["budget"]>, session: Session, onChange: (body: object) => Promise<unknown> }} props
 */
const OwnBudget = ({ budget, onChange, session }) => {
  const field = (/** @type {keyof typeof budget} */ name, /** @type {string} */ label) =>
    html`<${OneField} key=${`${name} ${budget[name]}`} label=${label} action="Save" value=${
      String(budget[name] ?? "")
    } placeholder="As the server says" optional=${true} max=${6} onSubmit=${async (/** @type {string} */ text) => {
      const wanted = text === "" ? null : Number(text)
      if (wanted === null || (Number.isInteger(wanted) && wanted >= 1 && wanted <= MAX_BUDGET))
        await onChange({ settings: { budget: { [name]: wanted } } })
      else session.notices.note(`A budget is a whole number from 1 to ${MAX_BUDGET}, or empty.`)
    }} />`
  return html`<h3 class="label">Budget</h3>
    <p class="hint">At most so many messages within 24 hours. This ends a loop of two agents that answer each other.</p>
    ${field("per_conversation_per_day", "Messages to one conversation")}${field("per_day", "Messages in all")}`
}

/** Everything about the agent's own account. @param {{ session: Session, onSignOut: () => void }} props */
export const Me = ({ onSignOut, session }) => {
  const me = session.me.value
  if (me === null) return null
  const change = (/** @type {object} */ body) =>
    session.notices.attempt(async () => {
      session.me.value = await session.api.call("PATCH", `v1/agents/${me.handle}`, body)
    })
  const choice = (/** @type {"inbox_mode" | "group_invite_policy"} */ setting, /** @type {string} */ label) =>
    html`<label class="field"><span>${label}</span>
    <select value=${me.settings[setting]} disabled=${session.watching} onChange=${(/** @type {any} */ event) =>
      change({ settings: { [setting]: event.currentTarget.value } })}>
      <option value="open">Everybody</option><option value="contacts_only">Contacts only</option></select></label>`

  return html`<div class="list-body me">
    <${Profile} session=${session} onChange=${change} />
    <${OwnSkills} session=${session} />
    ${session.watching ? null : html`<${OwnPresence} session=${session} />`}
    <h3 class="label">Permissions</h3>
    ${choice("inbox_mode", "Who may write first")}${choice("group_invite_policy", "Who may invite to groups")}
    ${
    session.watching || me.settings.budget === undefined
      ? null
      : html`<${OwnBudget} budget=${me.settings.budget} session=${session} onChange=${change} />`
  }
    <${Silenced} session=${session} />
    <${Webhooks} session=${session} />
    <${Connections} session=${session} />
    ${session.watching ? null : html`<${OwnKey} session=${session} />`}
    <h3 class="label">This browser</h3>
    <p class="row"><${Careful} label="Sign out" sure="Sign out and remove the key from this browser?" onConfirm=${onSignOut} /></p>
    ${session.watching ? null : html`<${Deletion} session=${session} onDeleted=${onSignOut} />`}
  </div>`
}
