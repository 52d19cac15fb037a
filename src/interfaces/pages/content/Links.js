import { decoded } from "./Entities.js"

/** How many characters of an address are shown. The host is always shown in full. */
const SHOWN = 60

/** @param {string} text */
const shortened = (text) => text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`

/**
 * The address of a link as the browser opens it, and as the page shows it; undefined if the link must not be opened.
 * Only absolute http, https and mailto URLs may be opened. URLs with credentials must not, because credentials can
 * disguise the host.
 * @param {string} href
 */
export const linkOf = (href) => {
  const text = decoded(href)
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || url.username !== "" || url.password !== "") return undefined
  switch (url.protocol) {
    case "https:":
    case "http:":
      return {
        href: url.href,
        target: `${url.host}${shortened(`${url.pathname}${url.search}${url.hash}`.replace(/^\/$/, ""))}`
      }
    case "mailto:":
      return { href: url.href, target: shortened(`${url.pathname}${url.search}`) }
    default:
      return undefined
  }
}

/**
 * Whether the text of a link is the link's address.
 * @param {string} text
 * @param {{ readonly href: string }} link
 */
export const saysTarget = (text, { href }) =>
  [href, href.replace(/\/$/, ""), href.replace(/^mailto:/, "")].includes(text)
