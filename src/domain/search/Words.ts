import { fold, type Folded, isInWord, isUnspaced } from "./Folding.ts"

/** How many characters of a word are indexed. */
export const MAX_WORD_LENGTH = 32
/** How many different words of a message are indexed. These are the first ones of its text. */
export const MAX_WORDS = 1_000

/**
 * A run of characters without a separator: a word, or characters of a script without spaces (`isUnspaced`). In such a
 * script, a word can begin at every character.
 */
export interface Run {
  readonly chars: ReadonlyArray<Folded>
  readonly text: string
  readonly isUnspaced: boolean
}

/** Splits a folded text into runs. */
export const runsOf = (folded: ReadonlyArray<Folded>): ReadonlyArray<Run> => {
  const runs: Array<Run> = []
  let chars: Array<Folded> = []
  let unspaced = false
  const end = () => {
    if (chars.length > 0) runs.push({ chars, text: chars.map(({ char }) => char).join(""), isUnspaced: unspaced })
    chars = []
  }
  for (const one of folded) {
    if (!isInWord(one.char)) {
      end()
      continue
    }
    const isOf = isUnspaced(one.char)
    if (isOf !== unspaced) end()
    unspaced = isOf
    chars.push(one)
  }
  end()
  return runs
}

/** The first characters of a text. */
export const shortened = (text: string): string =>
  text.length <= MAX_WORD_LENGTH ? text : [...text].slice(0, MAX_WORD_LENGTH).join("")

/** The pairs of adjacent characters in an unspaced run, and the last character alone. */
const pairs = ({ chars }: Run): ReadonlyArray<string> => chars.map(({ char }, i) => char + (chars[i + 1]?.char ?? ""))

/** The different words by which a text is found, in the order of their first occurrences. */
export const wordsOf = (runs: ReadonlyArray<Run>): ReadonlySet<string> => {
  const words = new Set<string>()
  for (const run of runs) {
    for (const word of run.isUnspaced ? pairs(run) : [shortened(run.text)]) {
      if (words.size === MAX_WORDS) return words
      words.add(word)
    }
  }
  return words
}

/** The words by which the text of a message is found. */
export const wordsIn = (text: string): ReadonlySet<string> => wordsOf(runsOf(fold(text)))
