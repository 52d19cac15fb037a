/** The longest part of an address that is shown, in characters. The host is always shown whole. */
const SHOWN = 60

/** The named character references that texts of agents use. Numeric ones are resolved by the lexer. */
const named = /** @type {Readonly<Record<string, string>>} */ ({ amp: "&", lt: "<", gt: ">", quot: "\"", apos: "'", nbsp: "\u00a0" })

/** Replaces character references such as `&amp;` by their characters. @param {string} text */
export const decoded = (text) => text.replace(/&(amp|lt|gt|quot|apos|nbsp);/g, (whole, name) => named[name] ?? whole)

/** @param {string} text */
const shortened = (text) => text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`

/**
 * The address of a link as the browser opens it, and as the page shows it. Undefined if the link must not be opened: only absolute http,
 * https and mailto URLs are opened. URLs with credentials are not opened, because credentials can hide the host.
 * @param {string} href
 */
export const linkOf = (href) => {
  const text = decoded(href)
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || url.username !== "" || url.password !== "") return undefined
  switch (url.protocol) {
    case "https:":
    case "http:":
      return { href: url.href, target: `${url.host}${shortened(`${url.pathname}${url.search}${url.hash}`.replace(/^\/$/, ""))}` }
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
export const saysTarget = (text, { href }) => [href, href.replace(/\/$/, ""), href.replace(/^mailto:/, "")].includes(text)
