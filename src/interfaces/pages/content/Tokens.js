import { Lexer, Tokenizer } from "marked"
import { decoded } from "./Entities.js"

/** @import { Token } from "marked" */

/** A paragraph, heading, table cell or other run of text with more characters is not searched for formatting. */
const LONGEST_RUN = 4_000
/**
 * How deep quotes and lists may be nested, and how deep emphasis and links. Deeper ones are shown as their source text.
 */
const DEEPEST = 10
/** The most tokens of a message with formatting, apart from plain text, because each becomes an element of the page. */
const MOST_TOKENS = 5_000
/**
 * The most work for one message, about 0.1 s: the sum, over all steps of the lexer, of the length of the text that is
 * still to be read. A character of a run counts `RUN_WEIGHT` times, because the search for emphasis reads it about that
 * much more slowly.
 */
const MOST_WORK = 60_000_000
const RUN_WEIGHT = 16
/** The number of messages whose tokens are kept. */
const KEPT = 500

/** A lexer that throws if a text costs it too much work. */
class BoundedLexer extends Lexer {
  work = 0
  depth = 0

  constructor() {
    super({ gfm: true, tokenizer: new BoundedTokenizer() })
  }

  /** Counts a step. @param {number} work */
  step(work) {
    this.work += work
    if (this.work > MOST_WORK) throw new RangeError("This text costs too much work.")
  }

  /**
   * @override
   * @param {string} src
   * @param {Array<Token>} [tokens]
   */
  inlineTokens(src, tokens = []) {
    if (src.length > LONGEST_RUN || this.depth >= DEEPEST) {
      tokens.push({ type: "text", raw: src, text: src })
      return tokens
    }
    return this.deeper(() => super.inlineTokens(src, tokens))
  }

  /** @template T @param {() => T} run */
  deeper(run) {
    this.depth++
    try {
      return run()
    } finally {
      this.depth--
    }
  }
}

/**
 * The tokenizer of `BoundedLexer`. The lexer calls `space` first in each step over blocks, and `escape` first in each
 * step over a run.
 */
class BoundedTokenizer extends Tokenizer {
  get bounds() {
    return /** @type {BoundedLexer} */ (this.lexer)
  }

  /** @override @param {string} src */
  space(src) {
    this.bounds.step(src.length)
    return super.space(src)
  }

  /** @override @param {string} src */
  escape(src) {
    this.bounds.step(src.length * RUN_WEIGHT)
    return super.escape(src)
  }

  /** @override @param {string} src */
  blockquote(src) {
    return this.bounds.depth < DEEPEST ? this.bounds.deeper(() => super.blockquote(src)) : undefined
  }

  /** @override @param {string} src */
  list(src) {
    return this.bounds.depth < DEEPEST ? this.bounds.deeper(() => super.list(src)) : undefined
  }
}

/**
 * The tokens that a token consists of.
 * @param {any} token
 * @returns {ReadonlyArray<Token>}
 */
const partsOf = (token) =>
  token.type === "table"
    ? [token.header, ...token.rows].flatMap((row) => row.flatMap((/** @type {any} */ cell) => [cell, ...cell.tokens]))
    : token.items ?? token.tokens ?? []

/**
 * The number of these tokens with all their parts, without plain text.
 * @param {ReadonlyArray<Token>} tokens
 * @returns {number}
 */
const countOf = (tokens) =>
  tokens.reduce(
    (sum, token) => sum + (token.type === "text" || token.type === "space" ? 0 : 1) + countOf(partsOf(token)),
    0
  )

/** Whether a token and all its parts look the same as their source text. @param {Token} token @returns {boolean} */
const isLiteral = (token) =>
  token.type === "space" || token.type === "html" || token.type === "def" ||
  (token.type === "paragraph" && partsOf(token).every(isLiteral)) ||
  (token.type === "text" && token.raw === token.text && decoded(token.raw) === token.raw)

/**
 * The Markdown tokens of a text; undefined if the text has no formatting, or is too costly to format. Such a text is
 * shown as it is.
 * @param {string} text
 * @returns {ReadonlyArray<Token> | undefined}
 */
export const lexed = (text) => {
  try {
    const tokens = new BoundedLexer().lex(text)
    return tokens.every(isLiteral) || countOf(tokens) > MOST_TOKENS ? undefined : tokens
  } catch {
    return undefined
  }
}

/**
 * The results of `lexed` for the texts that were used last, the oldest first.
 * @type {Map<string, ReadonlyArray<Token> | undefined>}
 */
const kept = new Map()

/** As `lexed`, with a cache of the texts that were used last. @param {string} text */
export const tokensOf = (text) => {
  const tokens = kept.has(text) ? kept.get(text) : lexed(text)
  kept.delete(text)
  kept.set(text, tokens)
  if (kept.size > KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value))
  return tokens
}
