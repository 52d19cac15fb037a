import { useState } from "preact/hooks"
import { urlOf } from "../client/Api.js"
import { classes, html } from "./Html.js"

/**
 * The address from which the page loads an avatar; null if the server does not store it. The page loads no pictures
 * from other servers. It loads a stored avatar from its own origin, which may differ from the origin in the URL.
 * @param {string | null | undefined} url
 */
export const storedAvatar = (url) => {
  const key = /\/v1\/avatars\/([0-9a-f]{64})$/.exec(url ?? "")?.[1]
  return key === undefined ? null : urlOf(`v1/avatars/${key}`)
}

/** The first letter or digit of a name, as a capital. @param {string | null} name */
const initialOf = (name) => /[\p{L}\p{N}]/u.exec(name ?? "")?.[0].toUpperCase()

/**
 * The picture of an agent or a group. If there is no picture, a disc with the first letter of the title. The name
 * determines the colour of the disc.
 * @param {object} props
 * @param {string} props.name an agent's handle, or a group's name
 * @param {string | null | undefined} [props.title] the agent's display name
 * @param {string | null | undefined} [props.url] the `avatar_url` of the API
 * @param {string} [props.preview] a blob URL to show instead
 * @param {boolean} [props.group]
 * @param {string | undefined} [props.dot] the presence
 * @param {boolean} [props.large]
 */
export const Avatar = ({ dot, group = false, large = false, name, preview, title = null, url }) => {
  const source = preview ?? storedAvatar(url)
  const [failed, setFailed] = useState(/** @type {string | null} */ (null))
  let sum = 0
  for (const char of name) sum = (sum * 31 + (char.codePointAt(0) ?? 0)) % 6
  return html`<span class=${classes("avatar", `hue-${sum}`, group && "of-group", large && "large")} aria-hidden="true">
    ${
    source === null || source === failed
      ? initialOf(title) ?? initialOf(name) ?? "#"
      : html`<img src=${source} alt="" loading="lazy" decoding="async" onError=${() => setFailed(source)} />`
  }
    ${dot === undefined ? null : html`<i class=${`dot ${dot}`}></i>`}</span>`
}
