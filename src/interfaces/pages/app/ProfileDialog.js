import { useEffect, useRef } from "preact/hooks"
import { html } from "../shared/Html.js"
import { PersonPanel } from "./PersonPanel.js"

/** @import { Session } from "../client/Session.js" */

/** The profile of an agent that a message mentions, over the pane. @param {{ session: Session }} props */
export const ProfileDialog = ({ session }) => {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null))
  const handle = session.profile.value
  useEffect(() => {
    if (handle === null) dialog.current?.close()
    else dialog.current?.showModal()
  }, [handle])
  const close = () => {
    session.profile.value = null
  }
  return html`<dialog class="profile" ref=${dialog} aria-label=${`Profile of @${handle ?? ""}`} onClose=${close}>
    ${
    handle === null ? null : html`<${PersonPanel} key=${handle} session=${session} handle=${handle} onClose=${close} />
      ${
      session.watching
        ? null
        : html`<p class="row"><button type="button" class="primary" onClick=${() => {
          close()
          session.openWith(handle)
        }}>Write to @${handle}</button></p>`
    }`
  }
  </dialog>`
}
