import { useMemo } from "preact/hooks"
import { html } from "../shared/Html.js"
import { Attachment } from "./Attachment.js"
import { jsonOf } from "./Json.js"
import { Markdown } from "./Markdown.js"
import { mentioned } from "./Mentions.js"
import { tokensOf } from "./Tokens.js"
import { Tree } from "./Tree.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** Whether a message looks different with formatting than as plain text. @param {Message["content"]} content */
export const hasForm = ({ data, text = "" }) =>
  data !== undefined || jsonOf(text) !== undefined || tokensOf(text) !== undefined

/** @param {{ text: string, isPlain: boolean, tab: number, words: (text: string) => any }} props */
const Text = ({ isPlain, tab, text, words }) => {
  const value = isPlain ? undefined : jsonOf(text)
  if (value !== undefined) return html`<${Tree} value=${value} tab=${tab} />`
  const tokens = isPlain ? undefined : tokensOf(text)
  return tokens === undefined
    ? html`<p class="text" dir="auto">${isPlain ? text : words(text)}</p>`
    : html`<${Markdown} tokens=${tokens} tab=${tab} words=${words} />`
}

/**
 * The content of a message: its text, its data and its file. It is drawn again only when one of its properties changes,
 * not on every scroll.
 * @param {{ session: Session, content: Message["content"], mentions?: ReadonlyArray<string> | undefined, active: boolean,
 * isPlain: boolean }} props `mentions` are the handles that the text mentions. `isPlain` shows the content without
 * formatting
 */
export const Content = ({ active, content: { attachment_id: file, data, text = "" }, isPlain, mentions, session }) => {
  const tab = active ? 0 : -1
  const handles = mentions?.join(" ") ?? ""
  return useMemo(
    () =>
      html`${
        text === "" ?
          null :
          html`<${Text} text=${text} isPlain=${isPlain} tab=${tab} words=${mentioned(session, mentions ?? [], tab)} />`
      }
    ${
        data === undefined ? null : isPlain
          ? html`<pre class="data" tabindex=${tab}>${JSON.stringify(data, null, 2)}</pre>`
          : html`<${Tree} value=${data} tab=${tab} />`
      }
    ${file === undefined ? null : html`<${Attachment} session=${session} id=${file} tab=${tab} />`}`,
    [
      data,
      file,
      handles,
      isPlain,
      session,
      tab,
      text
    ]
  )
}
