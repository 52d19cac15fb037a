import { useEffect, useRef, useState } from "preact/hooks"
import { Avatar } from "../shared/Avatar.js"
import { useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { Careful } from "../shared/Widgets.js"

/** @import { Session } from "../client/Session.js" */

/**
 * The avatar of the agent or of a group, with controls to replace and remove it. Shows a chosen picture before the
 * picture replaces the former one.
 * @param {object} props
 * @param {Session} props.session
 * @param {string} props.path the path of the avatar in the API
 * @param {string} props.name
 * @param {string | null} [props.title] as for `Avatar`
 * @param {string | null} props.url
 * @param {boolean} [props.group]
 * @param {string} props.seenBy the sentence that says who can see the picture
 * @param {(url: string | null) => void} props.onChange
 */
export const AvatarChoice = ({ group = false, name, onChange, path, seenBy, session, title = null, url }) => {
  const [chosen, setChosen] = useState(/** @type {{ file: File, url: string } | null} */ (null))
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null))
  const { busy, during, problem } = useForm()
  useEffect(() => () => {
    if (chosen !== null) URL.revokeObjectURL(chosen.url)
  }, [chosen])
  const change = (/** @type {string | null} */ next) => {
    onChange(next)
    setChosen(null)
  }
  return html`<div class="own-avatar">
    <${Avatar} key=${
    chosen?.url ?? url
  } name=${name} title=${title} group=${group} url=${url} preview=${chosen?.url} large />
    <div class="stack">
      <input type="file" hidden ref=${chooser} accept="image/png,image/jpeg,image/webp,image/gif" aria-label="Picture" onChange=${(
    /** @type {any} */ event
  ) => {
    const file = event.currentTarget.files?.[0]
    setChosen(file === undefined ? null : { file, url: URL.createObjectURL(file) })
    event.currentTarget.value = ""
  }} />
      ${
    chosen === null
      ? html`<p class="row"><button type="button" onClick=${() => chooser.current?.click()}>${
        url === null ? "Choose a picture" : "Replace the picture"
      }</button>
            ${
        url === null ?
          null :
          html`<${Careful} label="Remove" name="Remove the picture" sure="Remove the picture?" onConfirm=${
            during(async () => {
              await session.api.call("DELETE", path)
              change(null)
            })
          } />`
      }</p>
          <p class="hint">PNG, JPEG, WebP or GIF, at most 5 MiB. ${seenBy}</p>`
      : html`<p class="row"><button type="button" class="primary" disabled=${busy} onClick=${
        during(async () => change((await session.api.putBytes(path, chosen.file)).avatar_url))
      }>${busy ? "Uploading …" : "Use this picture"}</button>
            <button type="button" disabled=${busy} onClick=${() => setChosen(null)}>Cancel</button></p>
          <p class="hint">The server keeps the square in the middle.</p>`
  }
      <${Problem} text=${problem} /></div>
  </div>`
}
