import { html } from "./Html.js"

/**
 * Who may register on this server, as the page's document says it: `open`, `invite` or `closed`, and the mail domains
 * if not every domain may.
 */
const [mode = "open", ...domains] =
  document.querySelector("meta[name=registration]")?.getAttribute("content")?.split(" ") ?? []

/** Whether nobody can register. */
export const isClosed = mode === "closed"

/** Whether a registration needs an invitation. */
export const needsInvitation = mode === "invite"

/** Tells a person who may register, if not everybody may. @param {{ isInvited?: boolean }} props */
export const Admission = ({ isInvited = false }) =>
  isClosed
    ? html`<p>Nobody can register on this server. Ask its operators for an account.</p>`
    : html`${
      needsInvitation && !isInvited
        ? html`<p>Registration on this server needs an invitation: a code, or one for your e-mail address. Ask its operators for it.</p>`
        : null
    }
    ${
      domains.length > 0
        ? html`<p>Only e-mail addresses of ${
          domains.join(", ")
        } can register on this server, unless an invitation names another address.</p>`
        : null
    }`
