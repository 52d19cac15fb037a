import { decoded } from "./Entities.js"
import { tokensOf } from "./Tokens.js"

/**
 * @import { Token } from "marked"
 * @import { Message } from "../client/Wire.ts"
 */

/** How many characters of a text are read for its line. A line of a list shows fewer. */
const READ = 600

/** What a system message says, from its data. @param {Readonly<Record<string, unknown>>} data */
export const eventText = (data) => {
  const at = (/** @type {string} */ name) =>
    data[name] === "system"
      ? "An operator of the server"
      : typeof data[name] === "string"
      ? `@${data[name]}`
      : "somebody"
  switch (data["event"]) {
    case "member_joined":
      return `${at("agent_handle")} joined.`
    case "member_left":
      return `${at("agent_handle")} left.`
    case "member_removed":
      return `${at("actor_handle")} removed ${at("agent_handle")}.`
    case "admin_promoted":
      return data["actor_handle"] === null
        ? `${at("agent_handle")} is an admin now.`
        : `${at("actor_handle")} made ${at("agent_handle")} an admin.`
    case "admin_demoted":
      return `${at("actor_handle")} made ${at("agent_handle")} a plain member.`
    case "name_changed":
      return `${at("actor_handle")} named the group “${String(data["new_name"])}”.`
    case "description_changed":
      return `${at("actor_handle")} changed the description.`
    case "avatar_changed":
      return `${at("actor_handle")} changed the picture.`
    case "group_deleted":
      return `${at("actor_handle")} deleted the group.`
    default:
      return "Something about the group changed."
  }
}

/**
 * The words of a token, without its formatting.
 * @param {Token} given
 * @returns {string}
 */
const wordsOf = (given) => {
  const token = /** @type {any} */ (given)
  switch (token.type) {
    case "space":
    case "def":
    case "hr":
      return " "
    case "br":
      return " "
    case "code":
    case "codespan":
    case "escape":
      return token.text
    case "checkbox":
      return token.checked ? "☑ " : "☐ "
    case "table":
      return [token.header, ...token.rows].flat().map(({ tokens }) => wordsOfAll(tokens)).join(" ")
    case "list":
      return token.items.map((/** @type {any} */ item) => wordsOfAll(item.tokens)).join(" ")
    case "text":
      return token.tokens === undefined ? decoded(token.text) : wordsOfAll(token.tokens)
    default:
      return token.tokens === undefined ? token.raw : wordsOfAll(token.tokens)
  }
}

/** Whether a token begins a new line. @param {Token} token */
const isBlock = ({ type }) => ["paragraph", "heading", "blockquote", "list", "table", "code"].includes(type)

/** @param {ReadonlyArray<Token>} tokens @returns {string} */
const wordsOfAll = (tokens) => tokens.map((token) => isBlock(token) ? `${wordsOf(token)} ` : wordsOf(token)).join("")

/**
 * A text in one line, without the marks of Markdown. A text that consists of marks only stays as it is.
 * @param {string} text
 */
export const plainOf = (text) => {
  const begin = text.slice(0, READ)
  const tokens = tokensOf(begin)
  const plain = (tokens === undefined ? begin : wordsOfAll(tokens)).replace(/\s+/g, " ").trim()
  return plain === "" ? begin.replace(/\s+/g, " ").trim() : plain
}

/**
 * What the list of conversations shows for a message without a text of its own.
 * @type {Readonly<Record<Message["type"], string>>}
 */
export const labels = { text: "Message", structured: "Structured message", file: "File", system: "The group changed" }

/**
 * A message in one line, for the list of conversations.
 * @param {Pick<Message, "type" | "content">} message
 * @param {string | undefined} [filename] the name of the message's file, if it is known
 */
export const lineOf = ({ content, type }, filename) => {
  if (Object.keys(content).length === 0) return "A removed message"
  const text = plainOf(content.text ?? "")
  if (text !== "") return text
  if (type === "system") return eventText(content.data ?? {})
  return content.attachment_id === undefined ? labels[type] : filename ?? labels.file
}
