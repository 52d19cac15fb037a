/**
 * The only definition of a mention (wire.md I): `@handle` in the prose of a text. Code, URLs, addresses and package
 * names are not prose. Code is recognised as in CommonMark: fenced blocks, indented blocks outside of lists, and spans.
 * For any text, each character is read a bounded number of times, because the texts are not trusted.
 */

/** How many mentions of a text count. */
const MAX_MENTIONS = 50

const TAB = 9
const NEWLINE = 10
const SPACE = 32
const HASH = 35
const OPEN = 40
const CLOSE = 41
const STAR = 42
const PLUS = 43
const HYPHEN = 45
const DOT = 46
const SLASH = 47
const ONE = 49
const COLON = 58
const LESS = 60
const EQUALS = 61
const GREATER = 62
const QUESTION = 63
const AT = 64
const OPEN_BRACKET = 91
const BACKSLASH = 92
const CLOSE_BRACKET = 93
const UNDERSCORE = 95
const BACKTICK = 96
const PIPE = 124
const TILDE = 126

const isDigit = (code: number): boolean => code >= 48 && code <= 57
const isLetter = (code: number): boolean => (code >= 65 && code <= 90) || (code >= 97 && code <= 122)
const isAlphanumeric = (code: number): boolean => isLetter(code) || isDigit(code)
const isBlank = (code: number): boolean => code === SPACE || code === TAB || code === 13

/**
 * Characters beyond ASCII that belong to a word with a handle before or after them: those of the scripts whose words
 * are separated by spaces and may contain letters of ASCII, and combining marks. A word in Chinese or Japanese may stand
 * beside a mention without a space.
 */
const WORD = String.raw`[\p{sc=Latin}\p{sc=Greek}\p{sc=Cyrillic}\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\ufe20-\ufe2f]`
const WORD_AFTER = new RegExp(`^${WORD}`, "u")
const WORD_BEFORE = new RegExp(`${WORD}$`, "u")

/** Whether a word continues with the character that begins at this position. */
const continuesWord = (text: string, at: number): boolean => {
  const code = text.charCodeAt(at)
  return code < 128 ? isAlphanumeric(code) : WORD_AFTER.test(text.slice(at, at + 2))
}

/** Whether the character that ends at this position belongs to a word. */
const endsWord = (text: string, at: number): boolean => {
  const code = text.charCodeAt(at)
  return code < 128 ? isAlphanumeric(code) : WORD_BEFORE.test(text.slice(Math.max(0, at - 1), at + 1))
}

/** Characters beyond ASCII that end a URL: spaces, and the punctuation of Latin and East Asian scripts. */
const isWidePunctuation = (code: number): boolean =>
  code === 0xa0 || code === 0xab || code === 0xbb || (code >= 0x2000 && code <= 0x206f) ||
  (code >= 0x3000 && code <= 0x303f) ||
  (code >= 0xff01 && code <= 0xff0f) || (code >= 0xff1a && code <= 0xff20) || (code >= 0xff3b && code <= 0xff40) ||
  (code >= 0xff5b && code <= 0xff65)

/** A range of a text. `from` is inclusive and `to` is exclusive. */
interface Range {
  readonly from: number
  readonly to: number
}

interface Fence {
  readonly mark: number
  readonly length: number
  /** How many quotes contain the fence. The fence ends when the innermost quote ends. */
  readonly quotes: number
  /** Whether the fence is in a list. If it is, the closing line may have any indentation. */
  readonly inList: boolean
}

/** Returns the end of the run of equal characters that begins at `from`. */
const runEnd = (text: string, from: number, to: number): number => {
  const code = text.charCodeAt(from)
  let at = from
  while (at < to && text.charCodeAt(at) === code) at++
  return at
}

/** Whether a line contains only blanks from `from` on. */
const isEmpty = (text: string, from: number, to: number): boolean => {
  for (let at = from; at < to; at++) if (!isBlank(text.charCodeAt(at))) return false
  return true
}

const has = (text: string, code: number, from: number, to: number): boolean => {
  for (let at = from; at < to; at++) if (text.charCodeAt(at) === code) return true
  return false
}

/**
 * Returns the position after the marker of a list item that begins at `from`, or -1 if no list item begins there. An
 * item that interrupts a paragraph must not be empty, and its number must be 1.
 */
const afterListMark = (text: string, from: number, to: number, interrupts: boolean): number => {
  const code = text.charCodeAt(from)
  let at = from
  if (code === HYPHEN || code === STAR || code === PLUS) at++
  else {
    while (at < to && at - from < 9 && isDigit(text.charCodeAt(at))) at++
    if (at === from || at === to || (text.charCodeAt(at) !== DOT && text.charCodeAt(at) !== CLOSE)) return -1
    if (interrupts && (at > from + 1 || code !== ONE)) return -1
    at++
  }
  if (interrupts && isEmpty(text, at, to)) return -1
  return at === to || isBlank(text.charCodeAt(at)) ? at : -1
}

/** Whether a line consists of one run of `=` or `-` from `from` on, which makes a heading of the paragraph above it. */
const isUnderline = (text: string, from: number, to: number): boolean => {
  const code = text.charCodeAt(from)
  return (code === EQUALS || code === HYPHEN) && isEmpty(text, runEnd(text, from, to), to)
}

/**
 * Makes the function that says whether a line is a thematic break from a position on: three or more equal marks with
 * blanks between them. Calls must be made with ascending positions.
 */
const makeBreaks = (text: string, to: number): (from: number) => boolean => {
  /** The first character after the marks that were read before. */
  let refuted = 0
  return (from) => {
    const mark = text.charCodeAt(from)
    if (from < refuted || (mark !== HYPHEN && mark !== STAR && mark !== UNDERSCORE)) return false
    let marks = 0
    for (refuted = from; refuted < to; refuted++) {
      const code = text.charCodeAt(refuted)
      if (code === mark) marks++
      else if (!isBlank(code)) return false
    }
    return marks >= 3
  }
}

/**
 * Skips up to `most` markers of quotes and the blanks around them. Returns the position after them, the number of
 * markers, and the columns of indentation that follow.
 */
const unquoted = (text: string, from: number, to: number, most: number) => {
  let at = from
  let quotes = 0
  let columns = 0
  for (; at < to; at++) {
    const code = text.charCodeAt(at)
    if (code === SPACE) columns++
    else if (code === TAB) columns += 4 - columns % 4
    else if (code === GREATER && columns < 4 && quotes < most) {
      quotes++
      columns = 0
      if (at + 1 < to && text.charCodeAt(at + 1) === SPACE) at++
    } else break
  }
  return { at, columns, quotes }
}

/**
 * Skips the markers of the list items that begin at `from`. Returns the position after them, and whether prose may
 * follow there.
 */
const listItems = (
  text: string,
  from: number,
  to: number,
  interrupts: boolean,
  isBreak: (from: number) => boolean
) => {
  let at = from
  let isProse = true
  for (
    let next = afterListMark(text, at, to, interrupts);
    next >= 0 && isProse;
    next = afterListMark(text, at, to, false)
  ) {
    const item = unquoted(text, next, to, 0)
    at = item.at
    // One space belongs to the marker of the item.
    isProse = item.columns <= 4 && !isBreak(at)
  }
  return { at, isProse }
}

/**
 * Calls `visit` with each paragraph, heading, item, row or other run of lines that is not code and begins at or before
 * `last`.
 */
const eachBlock = (text: string, last: number, visit: (block: Range) => void): void => {
  let fence: Fence | undefined
  let begin = -1
  let end = 0
  let inList = false
  let quoted = 0
  const close = (): void => {
    if (begin >= 0) visit({ from: begin, to: end })
    begin = -1
  }
  for (let from = 0, to = 0; from <= last || (begin >= 0 && from <= text.length); from = to + 1) {
    const newline = text.indexOf("\n", from)
    to = newline < 0 ? text.length : newline
    if (fence !== undefined) {
      const { at, columns, quotes } = unquoted(text, from, to, fence.quotes)
      if (quotes >= fence.quotes) {
        const stop = text.charCodeAt(at) === fence.mark ? runEnd(text, at, to) : at
        if (stop - at >= fence.length && (columns < 4 || fence.inList) && isEmpty(text, stop, to)) fence = undefined
        continue
      }
      fence = undefined
    }
    const line = unquoted(text, from, to, Number.MAX_SAFE_INTEGER)
    let at = line.at
    if (isEmpty(text, at, to)) {
      close()
      continue
    }
    // A line without the markers of a quote may continue the quote's paragraph.
    if (line.quotes > quoted || (line.quotes < quoted && begin < 0)) {
      close()
      inList = false
      quoted = line.quotes
    }
    // A line with this indentation is code, or continues its paragraph. The lines of list items are indented anyway.
    if (line.columns >= 4 && !inList) {
      if (begin >= 0) end = to
      continue
    }
    if (line.columns === 0 && begin < 0) inList = false
    const continues = begin >= 0 && line.quotes === quoted && (!inList || line.columns > 1)
    if (continues && isUnderline(text, at, to)) {
      close()
      continue
    }
    const isBreak = makeBreaks(text, to)
    if (isBreak(at)) {
      close()
      if (line.columns < 2 || line.quotes < quoted) inList = false
      quoted = line.quotes
      continue
    }
    const items = listItems(text, at, to, continues, isBreak)
    if (items.at > at) {
      close()
      inList = true
    }
    if (!items.isProse) continue
    at = items.at
    const first = at < to ? text.charCodeAt(at) : NEWLINE
    if (first === BACKTICK || first === TILDE) {
      const stop = runEnd(text, at, to)
      if (stop - at >= 3 && (first === TILDE || !has(text, BACKTICK, stop, to))) {
        close()
        fence = { mark: first, length: stop - at, quotes: line.quotes, inList }
        continue
      }
    }
    if (first === HASH || first === PIPE) close()
    if (begin < 0) begin = at
    end = to
    if (first === HASH) close()
  }
  close()
}

/**
 * Makes the function that finds the end of a code span in a block. `from` is the first backtick of the block. Calls
 * must be made with ascending starts.
 */
const makeSpans = (text: string, from: number, to: number): (start: number, length: number) => number => {
  /** For each length, the starts of the runs of backticks, and how many of these runs have been passed. */
  const runs = new Map<number, { readonly starts: Array<number>; passed: number }>()
  for (let at = from, stop = from; at >= 0 && at < to; at = text.indexOf("`", stop)) {
    stop = runEnd(text, at, to)
    const known = runs.get(stop - at)
    if (known === undefined) runs.set(stop - at, { starts: [at], passed: 0 })
    else known.starts.push(at)
  }
  return (start, length) => {
    const known = runs.get(length)
    if (known === undefined) return -1
    while (known.passed < known.starts.length && known.starts[known.passed]! < start + length) known.passed++
    const closing = known.starts[known.passed]
    return closing === undefined ? -1 : closing + length
  }
}

const endsUrl = (code: number): boolean =>
  code <= SPACE || code === LESS || code === GREATER || code === 34 || code === BACKTICK || code === PIPE ||
  isWidePunctuation(code)

/**
 * Returns the end of the URL that continues at `from`. A closing bracket without an opening one in the URL ends the
 * URL.
 */
const urlEnd = (text: string, from: number, to: number): number => {
  let round = 0
  let square = 0
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at)
    if (endsUrl(code)) return at
    if (code === OPEN) round++
    else if (code === OPEN_BRACKET) square++
    else if (code === CLOSE && --round < 0) return at
    else if (code === CLOSE_BRACKET && --square < 0) return at
  }
  return to
}

/** Whether a host name with a dot follows, as in the address `@bob:example.com`. */
const isHostAt = (text: string, from: number, to: number): boolean => {
  let at = from
  while (at < to && (text.charCodeAt(at) === HYPHEN || continuesWord(text, at))) at++
  return at > from && at + 1 < to && text.charCodeAt(at) === DOT && continuesWord(text, at + 1)
}

/** Whether the part of a URL after its host begins at this colon: `://`, or a port and a slash. */
const beginsUrl = (text: string, colon: number, to: number): boolean => {
  let at = colon + 1
  if (at + 1 < to && text.charCodeAt(at) === SLASH) return text.charCodeAt(at + 1) === SLASH
  while (at < to && at - colon <= 5 && isDigit(text.charCodeAt(at))) at++
  return at > colon + 1 && at < to && text.charCodeAt(at) === SLASH
}

/** Whether `:registry` ends here, as in npm's setting `@scope:registry`. */
const isRegistry = (text: string, colon: number, to: number): boolean =>
  text.slice(colon + 1, colon + 9) === "registry" && (colon + 9 >= to || !isAlphanumeric(text.charCodeAt(colon + 9)))

/** Whether an `@` after this position can begin a mention. */
const mayPrecede = (text: string, before: number): boolean => {
  if (before < 0) return true
  const code = text.charCodeAt(before)
  if (code === UNDERSCORE || code === HYPHEN || code === AT || code === DOT || code === SLASH || endsWord(text, before))
    return false
  // `](` begins the address of a link.
  const bracket = code === LESS ? before - 1 : before
  return !(bracket > 0 && text.charCodeAt(bracket) === OPEN && text.charCodeAt(bracket - 1) === CLOSE_BRACKET)
}

/** Whether a handle that ends here is a whole name, and not the beginning of a path, an address or a longer name. */
const mayFollow = (text: string, at: number, to: number): boolean => {
  if (at >= to) return true
  const code = text.charCodeAt(at)
  if (code === UNDERSCORE || code === SLASH || code === AT || continuesWord(text, at)) return false
  if (code === DOT || code === HYPHEN) return at + 1 >= to || !continuesWord(text, at + 1)
  return code !== COLON || !(isHostAt(text, at + 1, to) || isRegistry(text, at, to))
}

/** Returns the end of the name that begins at `from`: letters, digits, and single hyphens between them. */
const nameEnd = (text: string, from: number, to: number): number => {
  let at = from
  while (at < to) {
    const code = text.charCodeAt(at)
    if (
      !isAlphanumeric(code) && !(code === HYPHEN && at > from && at + 1 < to && isAlphanumeric(text.charCodeAt(at + 1)))
    ) break
    at++
  }
  return at
}

/**
 * Makes the function that finds a character at or after a position. It returns Infinity if there is none. Calls must be
 * made with ascending positions.
 */
const makeFinder = (text: string, character: string): (from: number) => number => {
  let found = -1
  return (from) => {
    if (found < from) found = text.indexOf(character, from)
    return found < 0 ? found = Number.POSITIVE_INFINITY : found
  }
}

/**
 * Makes the function that adds the mentions in a block to `found`, up to `MAX_MENTIONS`. Calls must be made in the
 * order of the blocks.
 */
const makeSearch = (text: string, found: Set<string>): (block: Range) => void => {
  const nextAt = makeFinder(text, "@")
  const nextBacktick = makeFinder(text, "`")

  /** Returns the beginning of the next word with `@` or a backtick, or `to` if the block contains no further `@`. */
  const nextWord = (from: number, to: number): number => {
    const mention = nextAt(from)
    if (mention >= to) return to
    let at = Math.min(mention, nextBacktick(from))
    while (at > from && text.charCodeAt(at - 1) > SPACE) at--
    return at
  }

  return ({ from, to }) => {
    let spanEnd: ReturnType<typeof makeSpans> | undefined
    /** Whether the word before this position contains a dot, like a host name. */
    let dotted = false
    /** Whether this word contains a slash before this position, like a path. */
    let slashed = false
    let at = nextWord(from, to)
    while (at < to && found.size < MAX_MENTIONS) {
      const code = text.charCodeAt(at)
      const before = at > from ? text.charCodeAt(at - 1) : NEWLINE
      if (isAlphanumeric(code) || code === HYPHEN || code === UNDERSCORE) {
        at = !isAlphanumeric(before) && text.slice(at, at + 4).toLowerCase() === "www." ? urlEnd(text, at, to) : at + 1
        continue
      }
      if (code === DOT) {
        dotted = true
        at++
        continue
      }
      if (code === COLON && isAlphanumeric(before)) {
        at = beginsUrl(text, at, to) ? urlEnd(text, at + 1, to) : at + 1
        continue
      }
      // A host name with a path, or a path with a query.
      const isUrl: boolean = (code === SLASH && dotted && isAlphanumeric(before)) ||
        (slashed && (code === QUESTION || code === EQUALS))
      dotted = false
      slashed = code === SLASH || (slashed && !isUrl && !endsUrl(code))
      if (isUrl) at = urlEnd(text, at, to)
      else if (code <= SPACE) at = nextWord(at + 1, to)
      else if (
        code === BACKSLASH && at + 1 < to &&
        (text.charCodeAt(at + 1) === BACKTICK || text.charCodeAt(at + 1) === BACKSLASH)
      ) at += 2
      else if (code === BACKTICK) {
        const stop = runEnd(text, at, to)
        spanEnd ??= makeSpans(text, at, to)
        const end = spanEnd(at, stop - at)
        at = end < 0 ? stop : end
      } else if (code === AT && mayPrecede(text, at - 1)) {
        const end = nameEnd(text, at + 1, to)
        const length = end - at - 1
        if (length >= 3 && length <= 30 && isLetter(text.charCodeAt(at + 1)) && mayFollow(text, end, to)) {
          found.add(text.slice(at + 1, end).toLowerCase())
        }
        at = Math.max(end, at + 1)
      } else at++
    }
  }
}

/** Returns the handles that a text mentions: in lower case, without repeats, in order, at most 50. */
export const mentionsOf = (text: string | undefined): ReadonlyArray<string> => {
  if (text === undefined || !text.includes("@")) return []
  const found = new Set<string>()
  eachBlock(text, text.lastIndexOf("@"), makeSearch(text, found))
  return [...found]
}

/** Returns the handles that a message mentions. `content` is JSON text. */
export const mentionsIn = (content: string): ReadonlyArray<string> =>
  content.includes("@") ? mentionsOf((JSON.parse(content) as { readonly text?: string }).text) : []
