import { Lexer, Tokenizer } from "marked"
import { decoded } from "./Entities.js"

/** @import { Token } from "marked" */

/**
 * How many characters a run of text, such as a paragraph, heading or table cell, may have. A longer run is not parsed
 * for formatting.
 */
const LONGEST_RUN = 4_000
/**
 * How deep quotes and lists may be nested, and how deep emphasis and links may be nested. Deeper elements are shown as
 * their source text.
 */
const DEEPEST = 10
/** How many tokens besides plain text a message with formatting may have. Each token becomes an element of the page. */
const MOST_TOKENS = 5_000
/**
 * The most work for one message, which takes about 0.1 s. Each step of the lexer adds the length of the remaining text.
 * A character of a run counts `RUN_WEIGHT` times, because parsing emphasis is about that much slower.
 */
const MOST_WORK = 60_000_000
const RUN_WEIGHT = 16
/** For how many texts the tokens are cached. */
const KEPT = 500

/** A lexer that throws if a text requires too much work. */
class BoundedLexer extends Lexer {
  work = 0
  depth = 0

  constructor() {
    super({ gfm: true, tokenizer: new BoundedTokenizer() })
  }

  /** Adds the work of one step. @param {number} work */
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
 * The tokenizer of `BoundedLexer`. The lexer calls `space` at the beginning of each step through blocks, and `escape`
 * at the beginning of each step through a run.
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
 * How many tokens besides plain text these tokens and all their parts are.
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
 * The Markdown tokens of a text; undefined if the text has no formatting or takes too much work to format. Such a text
 * is shown unformatted.
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
 * The results of `lexed` for the most recently used texts, the least recently used first.
 * @type {Map<string, ReadonlyArray<Token> | undefined>}
 */
const kept = new Map()

/** Does the same as `lexed`, with a cache of the most recently used texts. @param {string} text */
export const tokensOf = (text) => {
  const tokens = kept.has(text) ? kept.get(text) : lexed(text)
  kept.delete(text)
  kept.set(text, tokens)
  if (kept.size > KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value))
  return tokens
}
