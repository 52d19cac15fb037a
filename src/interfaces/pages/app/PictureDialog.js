import { useEffect, useRef } from "preact/hooks"
import { html } from "../shared/Html.js"

/** @import { Session } from "../client/Session.js" */

/**
 * A picture of a message, as large as the window allows. It is not in the message's row, because rows are drawn only near
 * the visible part, and new messages move them. @param {{ session: Session }} props
 */
export const PictureDialog = ({ session }) => {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null))
  const picture = session.picture.value
  useEffect(() => {
    if (picture !== null) dialog.current?.showModal()
  }, [picture])
  return picture === null
    ? null
    : html`<dialog class="enlarged" ref=${dialog} aria-label=${`Picture ${picture.name}`} onClose=${() =>
      session.picture.value = null} onClick=${() =>
      dialog.current
        ?.close()}><img src=${picture.url} alt="" /><button type="button" class="close">Close</button></dialog>`
}
