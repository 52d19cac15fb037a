import { fold, isInWord } from "#domain/search/Folding"
import { lexemesOf, vectorOf } from "#domain/search/Lexemes"
import {
  type Highlight,
  highlightsOf,
  lookupsOf,
  MAX_HIGHLIGHTS,
  occurrences,
  type Term,
  termsOf
} from "#domain/search/SearchQuery"
import { MAX_WORD_LENGTH, MAX_WORDS, runsOf, wordsIn } from "#domain/search/Words"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const folded = (text: string): string => fold(text).map(({ char }) => char).join("")

const terms = (q: string): ReadonlyArray<Term> => {
  const found = termsOf(q)
  return "wrong" in found ? assert.fail(`${q} ${found.wrong}`) : found
}

const wrong = (q: string): string => {
  const found = termsOf(q)
  return "wrong" in found ? found.wrong : assert.fail(`${q} is a query`)
}

/** The parts of a text that a query highlights. */
const marked = (q: string, text: string): ReadonlyArray<string> | undefined =>
  highlightsOf(terms(q), text)?.map(([from, to]) => text.slice(from, to))

/** Finds the ranges of the words by a comparison at each position, as a reference for `highlightsOf`. */
const comparedEverywhere = (terms: ReadonlyArray<Term>, text: string): ReadonlyArray<Highlight> | undefined => {
  const runs = runsOf(fold(text))
  const found: Array<Highlight> = []
  for (const term of terms) {
    const length = [...term.text].length
    const ranges = runs.filter(({ isUnspaced }) => isUnspaced === term.isUnspaced).flatMap((run) =>
      run.chars.flatMap((_, at): ReadonlyArray<Highlight> => {
        const part = run.chars.slice(at, at + length)
        if (part.map(({ char }) => char).join("") !== term.text) return []
        return term.isUnspaced || run.text === term.text ? [[part[0]!.from, part.at(-1)!.to]] : []
      })
    )
    if (ranges.length === 0) return undefined
    found.push(...ranges)
  }
  const joined: Array<[number, number]> = []
  for (const [from, to] of found.toSorted((one, other) => one[0] - other[0])) {
    const last = joined.at(-1)
    if (last !== undefined && from < last[1]) last[1] = Math.max(last[1], to)
    else joined.push([from, to])
  }
  return joined.slice(0, MAX_HIGHLIGHTS)
}

/** Texts of many scripts, with compatibility forms, marks, surrogate pairs and Hangul syllables in parts. */
const text = fc.array(
  fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 8 }),
    fc.string({ unit: "binary", maxLength: 4 }),
    fc.constantFrom(
      "straße",
      "STRASSE",
      "ﬁne",
      "e\u0301te\u0301",
      "ｆｕｌｌ",
      "㍿",
      "½",
      "İstanbul",
      "ΟΔΟΣ",
      "οδος",
      "한국어",
      "\u1112\u1161\u11ab",
      "が",
      "か\u3099",
      "हिन्दी",
      "東京都",
      "𝐛𝐨𝐥𝐝",
      "👩‍💻",
      "don't",
      "snake_case",
      "a".repeat(40)
    )
  ),
  { maxLength: 12 }
).map((parts) => parts.join(" "))

describe("fold", () => {
  it("folds case, accents and compatibility forms", () => {
    for (
      const [one, other] of [
        ["Été", "ete"],
        ["E\u0301te\u0301", "ete"],
        ["STRASSE", "strasse"],
        ["Straße", "strasse"],
        ["STRAẞE", "strasse"],
        ["ﬁne", "fine"],
        ["ｆｕｌｌ", "full"],
        ["ΟΔΟΣ", "οδοσ"],
        ["οδος", "οδοσ"],
        ["İstanbul", "istanbul"],
        ["𝐛𝐨𝐥𝐝", "bold"],
        ["\u1112\u1161\u11ab", "한"],
        ["か\u3099", "が"],
        ["①", "1"],
        ["שָׁלוֹם", "שלום"],
        ["مُحَمَّد", "محمد"],
        ["हिन्दी", "हिन्दी"]
      ] as const
    ) assert.strictEqual(folded(one), other, one)
    assert.notStrictEqual(folded("が"), folded("か"))
  })

  it("folds a folded character to itself, and its ranges are ordered pieces of the text", () =>
    fc.assert(fc.property(text, (text) => {
      for (const { char } of fold(text)) assert.strictEqual(folded(char), char)
      let end = 0
      let last = -1
      for (const { from, to } of fold(text)) {
        assert.isTrue(from < to && to <= text.length)
        // Several characters can come of one range.
        assert.isTrue(from >= end || from === last)
        assert.isTrue(text.slice(from, to).isWellFormed() || !text.isWellFormed())
        last = from
        end = to
      }
    })))
})

describe("wordsIn", () => {
  it("splits at everything that is no letter and no digit, and takes scripts without spaces in pairs", () => {
    assert.deepStrictEqual([...wordsIn("Don't use snake_case, v2.0 (or e-mail)!")], [
      "don",
      "t",
      "use",
      "snake",
      "case",
      "v2",
      "0",
      "or",
      "e",
      "mail"
    ])
    assert.deepStrictEqual([...wordsIn("東京都 go言語")], ["東京", "京都", "都", "go", "言語", "語"])
    assert.deepStrictEqual([...wordsIn("💥 … !")], [])
    assert.strictEqual(wordsIn("a".repeat(500)).values().next().value, "a".repeat(MAX_WORD_LENGTH))
    assert.strictEqual(wordsIn(Array.from({ length: 3_000 }, (_, i) => `w${i}`).join(" ")).size, MAX_WORDS)
  })

  it("makes lexemes that need no escape in PostgreSQL", () =>
    fc.assert(fc.property(text, fc.nat(), (text, createdAt) => {
      const lexemes = lexemesOf({
        conversationId: "conv_abcdefgh-_345678",
        senderId: "agt_abcdefgh-_345678",
        recipientId: null,
        createdAt,
        words: wordsIn(text)
      })
      for (const lexeme of lexemes) assert.match(lexeme, /^[-_\p{L}\p{N}\p{M}]+$/u)
      assert.strictEqual(vectorOf(["a", "b"]), "'a' 'b'")
    })))
})

describe("termsOf", () => {
  it("reads words, prefixes and runs of unspaced scripts", () => {
    assert.deepStrictEqual(terms("Hello hello WOR* 東京"), [
      { text: "hello", isPrefix: false, isUnspaced: false },
      { text: "wor", isPrefix: true, isUnspaced: false },
      { text: "東京", isPrefix: false, isUnspaced: true }
    ])
    assert.deepStrictEqual(terms("b wörd *").map(({ isPrefix, text }) => `${text} ${isPrefix}`), [
      "b false",
      "word false"
    ])
  })

  it("refuses a query without words, with too many, and with a short prefix", () => {
    assert.strictEqual(wrong("... !"), "must have a word")
    assert.strictEqual(wrong("a b c d e f g h i"), "must have at most 8 words")
    assert.strictEqual(wrong("wo*"), "must have 3 letters or digits before *")
    assert.strictEqual(terms("a b c d e f g h a").length, 8)
  })
})

describe("highlightsOf", () => {
  it("finds words whole, prefixes, and runs anywhere", () => {
    assert.deepStrictEqual(marked("go", "Go, gone, GO"), ["Go", "GO"])
    assert.deepStrictEqual(marked("gon*", "Go, gone, GONG"), ["gone", "GONG"])
    assert.deepStrictEqual(marked("go gone", "Go, gone, GO"), ["Go", "gone", "GO"])
    assert.isUndefined(marked("go missing", "Go, gone, GO"))
    assert.deepStrictEqual(marked("京都", "東京都の京都"), ["京都", "京都"])
    assert.deepStrictEqual(marked("都", "東京都の"), ["都"])
    assert.isUndefined(marked("東都", "東京都"))
    assert.deepStrictEqual(marked("ete", "l'e\u0301te\u0301, ÉTÉ"), ["e\u0301te\u0301", "ÉTÉ"])
    assert.deepStrictEqual(marked("strasse", "👩‍💻 Straße"), ["Straße"])
    assert.deepStrictEqual(marked("株式会社", "前㍿後"), ["㍿"])
    assert.strictEqual(marked("x", "x ".repeat(100))?.length, MAX_HIGHLIGHTS)
    assert.isUndefined(marked(`${"a".repeat(32)}b`, "a".repeat(40)), "the index shortens words, the answer does not")
  })

  it("finds every word of a text, where it is, by look-ups that the index can answer", () =>
    fc.assert(fc.property(text, fc.nat(1_000), (text, at) => {
      const chars = fold(text)
      const start = at % Math.max(1, chars.length)
      if (chars[start] === undefined || !isInWord(chars[start].char)) return
      let from = start
      let to = start + 1
      while (from > 0 && isInWord(chars[from - 1]!.char)) from--
      while (to < chars.length && isInWord(chars[to]!.char)) to++
      // A character such as ㎧ folds to several words, and a query has it whole.
      if (chars[from - 1]?.from === chars[from]!.from || chars[to]?.from === chars[to - 1]!.from) return
      const q = text.slice(chars[from]!.from, chars[to - 1]!.to)
      const wanted = termsOf(q)
      if ("wrong" in wanted) return
      const found = highlightsOf(wanted, text) ?? assert.fail(`${q} is not in ${text}`)
      const words = [...wordsIn(text)]
      for (const { isPrefix, word } of wanted.flatMap(lookupsOf)) {
        assert.isTrue(words.some((one) => isPrefix ? one.startsWith(word) : one === word))
      }
      let end = 0
      for (const [from, to] of found) {
        assert.isTrue(end <= from && from < to && to <= text.length)
        end = to
        const part = folded(text.slice(from, to))
        assert.isTrue(wanted.some((term) => part.includes(term.text)), `${part} of ${q}`)
      }
    })))

  it("finds the same ranges as a comparison at each position", () => {
    // Two ordinary characters, a surrogate pair, a character that folds to four, a letter and a separator.
    const unit = fc.constantFrom("会", "会", "社", "\u{20000}", "㍿", "a", " ")
    const texts = fc.oneof(
      fc.string({ unit, maxLength: 80 }),
      fc.string({ unit: fc.constantFrom("会", "社"), maxLength: 80 })
    )
    const queries = fc.array(fc.string({ unit, minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 })
    let matches = 0
    fc.assert(
      fc.property(queries, texts, (words, text) => {
        const wanted = termsOf(words.join(" "))
        if ("wrong" in wanted) return
        const found = highlightsOf(wanted, text)
        if (found !== undefined) matches++
        assert.deepStrictEqual(found, comparedEverywhere(wanted, text))
      }),
      { numRuns: 1_000 }
    )
    assert.isAbove(matches, 50)
  })

  it("joins overlapping hits before it counts the ranges", () => {
    assert.strictEqual(marked("会会", "会会会社".repeat(30))?.length, MAX_HIGHLIGHTS)
    // A text is folded to at most 40,000 characters, and each of these characters folds to four.
    assert.deepStrictEqual(highlightsOf(terms("㍿".repeat(200)), "㍿".repeat(10_900)), [[0, 10_000]])
    // The range of the long word contains the first 30 ranges of the short word.
    const long = "会".repeat(30)
    assert.deepStrictEqual(
      highlightsOf(terms(`会 ${long}`), `${long} ${"会 ".repeat(25)}`),
      [[0, 30], ...Array.from({ length: 19 }, (_, i): Highlight => [31 + 2 * i, 32 + 2 * i])]
    )
  })

  it("reads each character of a text once, even if thousands of hits overlap", () => {
    let reads = 0
    const chars = Array.from({ length: 10_000 }, (_, from) => ({
      get char() {
        reads++
        return "会"
      },
      from,
      to: from + 1
    }))
    const term: Term = { text: "会".repeat(800), isPrefix: false, isUnspaced: true }
    const ranges = [...occurrences([{ chars, text: "会".repeat(10_000), isUnspaced: true }], term)]
    assert.deepStrictEqual(ranges, [[0, 10_000]])
    assert.strictEqual(reads, 10_000)
  })
})
