import { Copy } from "../shared/Copy.js"
import { classes, html } from "../shared/Html.js"
import { Code } from "./Code.js"
import { decoded } from "./Entities.js"
import { linkOf, saysTarget } from "./Links.js"

/** @import { Token, Tokens } from "marked" */

/**
 * The context of an element. `tab` is the tabindex of focusable elements. `inLink` is true inside a link. `words` shows
 * a text outside of code and links.
 * @typedef {{ readonly tab: number, readonly inLink?: boolean, readonly words: (text: string) => any }} Within
 */

/**
 * A link, with its address beside its text. A link that must not be opened is shown as its source text.
 * @param {Tokens.Link | Tokens.Image} token
 * @param {Within} within
 */
const linked = (token, within) => {
  // A picture becomes a link, because fetching the picture would reveal to another server who reads the message and
  // when.
  const words = all(token.tokens, { ...within, inLink: true })
  if (within.inLink) return words
  const link = linkOf(token.href)
  if (link === undefined) return token.raw
  const isEmpty = token.text.trim() === ""
  return html`<a href=${link.href} title=${link.href} target="_blank" rel="noopener noreferrer" tabindex=${within.tab}>
    <bdi>${isEmpty ? link.target : words}</bdi></a>${
    isEmpty || saysTarget(token.text, link)
      ? null
      : html`${" "}<small class="target">(<bdi>${link.target}</bdi>)</small>`
  }`
}

/** @param {Tokens.Code} token @param {Within} within */
const code = ({ lang, text }, { tab }) => {
  const language = decoded(lang ?? "").split(/\s/)[0] ?? ""
  return html`<div class="code">
  <pre tabindex=${tab}><${Code} text=${text} language=${language} /></pre>
  <p><span class="language">${language}</span><${Copy} text=${() => text} label="this code" tab=${tab} /></p></div>`
}

/** @param {Tokens.List} token @param {Within} within */
const list = ({ items, ordered, start }, within) => {
  const rows = items.map((item) =>
    html`<li dir="auto" class=${classes(item.task && "task")}>${all(item.tokens, within)}</li>`
  )
  return ordered ? html`<ol start=${start}>${rows}</ol>` : html`<ul>${rows}</ul>`
}

/** @param {Tokens.Table} token @param {Within} within */
const table = ({ header, rows }, within) => {
  const cells = (/** @type {ReadonlyArray<Tokens.TableCell>} */ row, /** @type {string} */ tag) =>
    row.map(({ align, tokens }) => html`<${tag} dir="auto" class=${classes(align)}>${all(tokens, within)}</${tag}>`)
  return html`<div class="grid" tabindex=${within.tab}><table>
    <thead><tr>${cells(header, "th")}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${cells(row, "td")}</tr>`)}</tbody></table></div>`
}

/**
 * One token as an element or as text. HTML is shown as its source text.
 * @param {Token} given
 * @param {Within} within
 * @returns {any}
 */
const shown = (given, within) => {
  const token = /** @type {any} */ (given)
  switch (token.type) {
    case "space":
      return null
    case "def":
      return html`<p class="definition" dir="auto">${token.raw.trimEnd()}</p>`
    case "paragraph":
      return html`<p dir="auto">${all(token.tokens, within)}</p>`
    case "heading":
      return html`<h3 dir="auto" class=${`depth-${token.depth}`}>${all(token.tokens, within)}</h3>`
    case "blockquote":
      return html`<blockquote>${all(token.tokens, within)}</blockquote>`
    case "list":
      return list(token, within)
    case "table":
      return table(token, within)
    case "code":
      return code(token, within)
    case "hr":
      return html`<hr />`
    case "checkbox":
      return html`<span aria-hidden="true">${token.checked ? "☑ " : "☐ "}</span><span class="unseen">${
        token.checked ? "done: " : "to do: "
      }</span>`
    case "link":
    case "image":
      return linked(token, within)
    case "strong":
      return html`<strong>${all(token.tokens, within)}</strong>`
    case "em":
      return html`<em>${all(token.tokens, within)}</em>`
    case "del":
      return html`<del>${all(token.tokens, within)}</del>`
    case "codespan":
      return html`<code>${token.text}</code>`
    case "br":
      return html`<br />`
    case "html":
      return token.block ? html`<p dir="auto">${token.raw.trimEnd()}</p>` : token.raw
    case "escape":
      return token.text
    case "text":
      return token.tokens !== undefined
        ? all(token.tokens, within)
        : within.inLink
        ? decoded(token.text)
        : within.words(decoded(token.text))
    default:
      return token.raw
  }
}

/** @param {ReadonlyArray<Token>} tokens @param {Within} within @returns {ReadonlyArray<any>} */
const all = (tokens, within) => tokens.map((token) => shown(token, within))

/**
 * A text with its formatting. Nothing in it is parsed as HTML, fetched, or opened without a click.
 * @param {{ tokens: ReadonlyArray<Token>, tab: number, words?: (text: string) => any }} props `words` shows a text
 * outside of code and links
 */
export const Markdown = ({ tab, tokens, words = (text) => text }) =>
  html`<div class="text markdown">${all(tokens, { tab, words })}</div>`
