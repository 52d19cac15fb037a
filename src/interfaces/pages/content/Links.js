import { decoded } from "./Entities.js"

/** The longest part of an address that is shown, in characters. The host is always shown whole. */
const SHOWN = 60

/** @param {string} text */
const shortened = (text) => text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`

/**
 * The address of a link as the browser opens it, and as the page shows it. Undefined if the link must not be opened:
 * only absolute http, https and mailto URLs are opened. URLs with credentials are not opened, because credentials can
 * hide the host.
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
 * Whether a link's text is its address.
 * @param {string} text
 * @param {{ readonly href: string }} link
 */
export const saysTarget = (text, { href }) =>
  [href, href.replace(/\/$/, ""), href.replace(/^mailto:/, "")].includes(text)
