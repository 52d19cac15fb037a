/** A character of a folded text, and the UTF-16 range of the original text from which it was made. */
export interface Folded {
  /** One code point. */
  readonly char: string
  readonly from: number
  to: number
}

/** A letter, a digit, or a mark that belongs to a letter. Any other character separates words. */
const IN_WORD = /^[\p{L}\p{N}\p{M}]$/u
/** A character of a script that is written without spaces between words. */
const UNSPACED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u30fc]$/u
/**
 * Marks that are dropped: accents, which are common to all scripts, and the vowel points of Hebrew and Arabic. The
 * vowel signs of Indic scripts and the voiced marks of kana are kept, because without them a word becomes another word.
 */
const DROPPED_MARKS = /(?![\u3099\u309a])[\p{Script=Inherited}\u0591-\u05c7\u0610-\u061a\u06d6-\u06ed]/gu
/** One code point, or the parts of one Hangul syllable. */
const PIECES = /[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|[\u30a1-\u30fa\u3041-\u3094][\u3099\u309a]|[^]/gu

export const isInWord = (char: string): boolean => IN_WORD.test(char)
export const isUnspaced = (char: string): boolean => UNSPACED.test(char)

const withoutMarks = (text: string): string => text.normalize("NFKD").replace(DROPPED_MARKS, "")

/**
 * Folds a piece of text: compatibility forms (NFKC), lower case, no accents. The intermediate step to upper case also
 * folds `ß` and the final sigma.
 */
const folded = (piece: string): string =>
  withoutMarks(withoutMarks(piece).toLowerCase().toUpperCase().toLowerCase()).normalize("NFC")

/** A cache of folded pieces. It is cleared when it is full. */
const known = new Map<string, string>()
const MAX_CACHED = 4_096

const foldedPiece = (piece: string): string => {
  let result = known.get(piece)
  if (result !== undefined) return result
  result = folded(piece)
  if (known.size >= MAX_CACHED) known.clear()
  known.set(piece, result)
  return result
}

/**
 * After how many folded characters the folding of a text stops. Some characters fold to 18 characters, so a text of 32
 * KiB could become 200,000 characters.
 */
const MAX_FOLDED_LENGTH = 40_000

/**
 * Folds a text for comparison. Each folded character has the range of the characters of `text` from which it was made.
 * A dropped mark belongs to the range of the character before it.
 */
export const fold = (text: string): ReadonlyArray<Folded> => {
  const result: Array<Folded> = []
  let from = 0
  for (const [piece] of text.matchAll(PIECES)) {
    if (result.length >= MAX_FOLDED_LENGTH) break
    const to = from + piece.length
    const chars = foldedPiece(piece)
    const last = result.at(-1)
    if (chars === "" && last !== undefined && last.to === from) last.to = to
    for (const char of chars) result.push({ char, from, to })
    from = to
  }
  return result
}
