import { useMemo } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Attachment } from "./Attachment.js"
import { jsonOf } from "./Json.js"
import { Markdown } from "./Markdown.js"
import { tokensOf } from "./Tokens.js"
import { Tree } from "./Tree.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** Whether a message looks different with formatting than as plain text. @param {Message["content"]} content */
export const hasForm = ({ data, text = "" }) =>
  data !== undefined || jsonOf(text) !== undefined || tokensOf(text) !== undefined

/** @param {{ text: string, isPlain: boolean, tab: number }} props */
const Text = ({ isPlain, tab, text }) => {
  const value = isPlain ? undefined : jsonOf(text)
  if (value !== undefined) return html`<${Tree} value=${value} tab=${tab} />`
  const tokens = isPlain ? undefined : tokensOf(text)
  return tokens === undefined
    ? html`<p class="text" dir="auto">${text}</p>`
    : html`<${Markdown} tokens=${tokens} tab=${tab} />`
}

/**
 * The content of a message: its text, its data and its file. It is drawn again only when one of its properties changes,
 * not on every scroll.
 * @param {{ session: Session, content: Message["content"], active: boolean, isPlain: boolean }} props `isPlain` shows
 * the content without formatting
 */
export const Content = ({ active, content: { attachment_id: file, data, text = "" }, isPlain, session }) => {
  const tab = active ? 0 : -1
  return useMemo(() =>
    html`${text === "" ? null : html`<${Text} text=${text} isPlain=${isPlain} tab=${tab} />`}
    ${
      data === undefined ? null : isPlain
        ? html`<pre class="data" tabindex=${tab}>${JSON.stringify(data, null, 2)}</pre>`
        : html`<${Tree} value=${data} tab=${tab} />`
    }
    ${file === undefined ? null : html`<${Attachment} session=${session} id=${file} tab=${tab} />`}`, [
    data,
    file,
    isPlain,
    session,
    tab,
    text
  ])
}
