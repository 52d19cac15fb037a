import { codePoints } from "#infrastructure/wire/Text"
import { fold, type Folded } from "./Folding.ts"
import { MAX_WORD_LENGTH, type Run, runsOf, shortened, wordsOf } from "./Words.ts"

export const MAX_TERMS = 8
const MIN_PREFIX_LENGTH = 3
export const MAX_HIGHLIGHTS = 20

/** A word of a query. A message matches the query if it contains all words of the query. */
export interface Term {
  /** The folded text. */
  readonly text: string
  /** Whether longer words that begin with this text match too. */
  readonly isPrefix: boolean
  /** Whether the word belongs to a script without spaces. Such a word matches anywhere in a run. */
  readonly isUnspaced: boolean
}

/** A look-up in the index, for one word or for all words that begin with it. */
export interface Lookup {
  readonly word: string
  readonly isPrefix: boolean
}

/** A range of UTF-16 offsets. The end is exclusive. */
export type Highlight = readonly [from: number, to: number]

/** Returns the words of a query, or an error message if the query is not valid. */
export const termsOf = (q: string): ReadonlyArray<Term> | { readonly wrong: string } => {
  const terms = new Map<string, Term>()
  for (const { chars, isUnspaced, text } of runsOf(fold(q))) {
    const isPrefix = !isUnspaced && q.startsWith("*", chars.at(-1)!.to)
    if (isPrefix && codePoints(text) < MIN_PREFIX_LENGTH)
      return { wrong: `must have ${MIN_PREFIX_LENGTH} letters or digits before *` }
    terms.set(isPrefix ? `${text}*` : text, { text, isPrefix, isUnspaced })
  }
  if (terms.size === 0) return { wrong: "must have a word" }
  if (terms.size > MAX_TERMS) return { wrong: `must have at most ${MAX_TERMS} words` }
  return [...terms.values()]
}

/** The look-ups that find every message with this term. */
export const lookupsOf = ({ isPrefix, isUnspaced, text }: Term): ReadonlyArray<Lookup> => {
  if (!isUnspaced) {
    const word = shortened(text)
    return [{ word, isPrefix: isPrefix && codePoints(word) < MAX_WORD_LENGTH }]
  }
  const chars = [...text]
  if (chars.length === 1) return [{ word: text, isPrefix: true }]
  return [...new Set(chars.slice(1).map((char, i) => chars[i]! + char))].map((word) => ({ word, isPrefix: false }))
}

const rangeOf = (chars: ReadonlyArray<Folded>): Highlight => [chars[0]!.from, chars.at(-1)!.to]

const occurrences = (run: Run, { isPrefix, isUnspaced, text }: Term): ReadonlyArray<Highlight> => {
  if (run.isUnspaced !== isUnspaced) return []
  if (!isUnspaced) return run.text === text || (isPrefix && run.text.startsWith(text)) ? [rangeOf(run.chars)] : []
  const wanted = [...text]
  const found: Array<Highlight> = []
  for (let at = 0; at + wanted.length <= run.chars.length; at++) {
    if (wanted.every((char, i) => run.chars[at + i]!.char === char))
      found.push(rangeOf(run.chars.slice(at, at + wanted.length)))
  }
  return found
}

/** Joins ranges that overlap. */
const joined = (ranges: ReadonlyArray<Highlight>): ReadonlyArray<Highlight> => {
  const result: Array<Highlight> = []
  for (const [from, to] of ranges.toSorted((one, other) => one[0] - other[0] || one[1] - other[1])) {
    const last = result.at(-1)
    if (last !== undefined && from < last[1]) result[result.length - 1] = [last[0], Math.max(last[1], to)]
    else result.push([from, to])
  }
  return result
}

/**
 * Returns where the words of a query occur in a text: the first ranges, in order, without overlaps. Returns undefined
 * if one of the words is missing from the text. This function decides which messages match. The index only finds
 * candidates.
 */
export const highlightsOf = (terms: ReadonlyArray<Term>, text: string): ReadonlyArray<Highlight> | undefined => {
  const runs = runsOf(fold(text))
  const words = wordsOf(runs)
  const isIndexed = (term: Term) =>
    lookupsOf(term).every(({ isPrefix, word }) =>
      words.has(word) || (isPrefix && [...words].some((one) => one.startsWith(word)))
    )
  const found: Array<Highlight> = []
  for (const term of terms) {
    const ranges = runs.flatMap((run) => occurrences(run, term))
    if (ranges.length === 0 || !isIndexed(term)) return undefined
    found.push(...ranges)
  }
  return joined(found).slice(0, MAX_HIGHLIGHTS)
}
