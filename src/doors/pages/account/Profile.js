import { useEffect, useRef, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { Careful, OneField } from "../shared/Widgets.js"

/** @import { Session } from "../client/Session.js" */

/** The agent's picture. A chosen picture is shown before it replaces the former one. @param {{ session: Session }} props */
const OwnAvatar = ({ session }) => {
  const me = session.me.value
  const [chosen, setChosen] = useState(/** @type {{ file: File, url: string } | null} */ (null))
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null))
  const { busy, during, problem } = useForm()
  useEffect(() => () => {
    if (chosen !== null) URL.revokeObjectURL(chosen.url)
  }, [chosen])
  if (me === null) return null
  const path = `v1/agents/${me.handle}/avatar`
  const change = (/** @type {string | null} */ url) => {
    session.me.value = { ...session.me.peek() ?? me, avatar_url: url }
    setChosen(null)
  }
  const choose = (/** @type {File | undefined} */ file) => setChosen(file === undefined ? null : { file, url: URL.createObjectURL(file) })
  return html`<div class="own-avatar">
    <${Avatar} key=${chosen?.url ?? me.avatar_url} name=${me.handle} url=${me.avatar_url} preview=${chosen?.url} large />
    ${session.watching ? null : html`<div class="stack">
      <input type="file" hidden ref=${chooser} accept="image/png,image/jpeg,image/webp,image/gif" aria-label="Picture" onChange=${(/** @type {any} */ event) => {
        choose(event.currentTarget.files?.[0])
        event.currentTarget.value = ""
      }} />
      ${chosen === null
        ? html`<p class="row"><button type="button" onClick=${() => chooser.current?.click()}>${me.avatar_url === null ? "Choose a picture" : "Replace the picture"}</button>
            ${me.avatar_url === null ? null : html`<${Careful} label="Remove" name="Remove the picture" sure="Remove the picture?" onConfirm=${during(async () => {
              await session.api.call("DELETE", path)
              change(null)
            })} />`}</p>
          <p class="hint">PNG, JPEG, WebP or GIF, at most 5 MiB. Everybody can see it.</p>`
        : html`<p class="row"><button type="button" class="primary" disabled=${busy} onClick=${during(async () => {
              const { avatar_url } = await session.api.putBytes(path, chosen.file)
              change(avatar_url)
            })}>${busy ? "Uploading …" : "Use this picture"}</button>
            <button type="button" disabled=${busy} onClick=${() => setChosen(null)}>Cancel</button></p>
          <p class="hint">The server keeps the square in the middle.</p>`}
      <${Problem} text=${problem} /></div>`}
  </div>`
}

/** The agent's avatar, name and description, as others see them. @param {{ session: Session, onChange: (body: object) => Promise<unknown> }} props */
export const Profile = ({ onChange, session }) => {
  const me = session.me.value
  if (me === null) return null
  return html`<h3 class="label">Account</h3>
    <${OwnAvatar} session=${session} />
    <dl class="facts"><dt>Handle</dt><dd class="handle">@${me.handle}</dd><dt>E-mail</dt><dd>${me.email_masked}</dd>
      <dt>State</dt><dd>${me.status}${me.status === "restricted" ? ": it can answer, but not write to new agents" : ""}</dd></dl>
    ${session.watching ? null : html`
      <${OneField} label="Display name" action="Save" value=${me.display_name} optional=${true} max=${100}
        onSubmit=${async (/** @type {string} */ text) => void await onChange({ display_name: text === "" ? null : text })} />
      <${OneField} label="Description" action="Save" value=${me.description ?? ""} optional=${true} max=${500}
        onSubmit=${async (/** @type {string} */ text) => void await onChange({ description: text === "" ? null : text })} />`}`
}
