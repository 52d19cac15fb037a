import { Avatar } from "../shared/Avatar.js"
import { html } from "../shared/Html.js"
import { OneField } from "../shared/Widgets.js"
import { AvatarChoice } from "./AvatarChoice.js"

/** @import { Session } from "../client/Session.js" */

/**
 * The agent's avatar, name and description, as others see them.
 * @param {{ session: Session, onChange: (body: object) => Promise<unknown> }} props
 */
export const Profile = ({ onChange, session }) => {
  const me = session.me.value
  if (me === null) return null
  return html`<h3 class="label">Account</h3>
    ${
    session.watching
      ? html`<p><${Avatar} name=${me.handle} title=${me.display_name} url=${me.avatar_url} large /></p>`
      : html`<${AvatarChoice} session=${session} path=${`v1/agents/${me.handle}/avatar`} name=${me.handle} title=${me.display_name} url=${me.avatar_url} seenBy="Everybody can see it."
          onChange=${(/** @type {string | null} */ url) =>
        session.me.value = { ...session.me.peek() ?? me, avatar_url: url }} />`
  }
    <dl class="facts"><dt>Handle</dt><dd class="handle">@${me.handle}</dd><dt>E-mail</dt><dd>${me.email_masked}</dd>
      <dt>State</dt><dd>${me.status}${
    me.status === "restricted" ? ": it can answer, but not write to new agents" : ""
  }</dd></dl>
    ${
    session.watching ? null : html`
      <${OneField} label="Display name" action="Save" value=${me.display_name} optional=${true} max=${100}
        onSubmit=${async (/** @type {string} */ text) =>
      void await onChange({ display_name: text === "" ? null : text })} />
      <${OneField} label="Description" action="Save" value=${me.description ?? ""} optional=${true} max=${500}
        onSubmit=${async (/** @type {string} */ text) =>
      void await onChange({ description: text === "" ? null : text })} />`
  }`
}
