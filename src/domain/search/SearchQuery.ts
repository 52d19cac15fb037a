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

/**
 * Returns how many characters of `wanted` are matched after the character `char`, if `matched` characters were matched
 * before it. `borders[i]` is the length of the longest sequence that both begins and ends the first `i + 1` characters
 * of `wanted`, and is shorter than they are (the algorithm of Knuth, Morris and Pratt).
 */
const advance = (
  wanted: ReadonlyArray<string>,
  borders: ReadonlyArray<number>,
  matched: number,
  char: string
): number => {
  let length = matched
  while (length > 0 && wanted[length] !== char) length = borders[length - 1]!
  return wanted[length] === char ? length + 1 : 0
}

const bordersOf = (wanted: ReadonlyArray<string>): ReadonlyArray<number> => {
  const borders = [0]
  for (let i = 1; i < wanted.length; i++) borders.push(advance(wanted, borders, borders[i - 1]!, wanted[i]!))
  return borders
}

/**
 * Returns the ranges of a word in the runs of a text, in order. Hits that overlap in a run are one range. The time is
 * linear in the length of the text, also if the word and the text repeat one character.
 */
export function* occurrences(
  runs: ReadonlyArray<Run>,
  { isPrefix, isUnspaced, text }: Term
): Generator<Highlight, void> {
  const wanted = isUnspaced ? [...text] : []
  const borders = bordersOf(wanted)
  for (const run of runs) {
    if (run.isUnspaced !== isUnspaced) continue
    if (!isUnspaced) {
      if (run.text === text || (isPrefix && run.text.startsWith(text))) yield rangeOf(run.chars)
      continue
    }
    const { chars } = run
    let matched = 0
    let range: [from: number, to: number] | undefined
    for (let i = 0; i < chars.length; i++) {
      matched = advance(wanted, borders, matched, chars[i]!.char)
      if (matched < wanted.length) continue
      const { from } = chars[i + 1 - matched]!
      const { to } = chars[i]!
      if (range !== undefined && from < range[1]) {
        range[1] = to
        continue
      }
      if (range !== undefined) yield range
      range = [from, to]
    }
    if (range !== undefined) yield range
  }
}

/** Joins ranges that overlap. The ranges must be ordered by their beginnings. */
function* joined(ranges: Iterable<Highlight>): Generator<Highlight, void> {
  let last: Highlight | undefined
  for (const range of ranges) {
    if (last !== undefined && range[0] < last[1]) {
      last = [last[0], Math.max(last[1], range[1])]
      continue
    }
    if (last !== undefined) yield last
    last = range
  }
  if (last !== undefined) yield last
}

/** The ranges of a word that are not merged yet: the first one, and an iterator over the others. */
interface Source {
  readonly first: Highlight
  readonly rest: Iterator<Highlight, void>
}

/** Merges the ranges of several words, ordered by their beginnings. */
function* merged(words: ReadonlyArray<Source>): Generator<Highlight, void> {
  const sources = [...words]
  while (sources.length > 0) {
    let next = 0
    for (let i = 1; i < sources.length; i++) if (sources[i]!.first[0] < sources[next]!.first[0]) next = i
    const { first, rest } = sources[next]!
    yield first
    const after = rest.next()
    if (after.done === true) sources.splice(next, 1)
    else sources[next] = { first: after.value, rest }
  }
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
  const sources: Array<Source> = []
  for (const term of terms) {
    const rest = joined(occurrences(runs, term))
    const first = rest.next()
    if (first.done === true || !isIndexed(term)) return undefined
    sources.push({ first: first.value, rest })
  }
  return joined(merged(sources)).take(MAX_HIGHLIGHTS).toArray()
}
