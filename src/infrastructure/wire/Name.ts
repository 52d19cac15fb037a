import { Schema, SchemaTransformation } from "effect"
import { Text } from "./Text.ts"

/**
 * Characters that affect the text around them: control characters, line and paragraph separators, and bidirectional
 * embeddings, overrides and isolates. Names that contain one are refused.
 */
const CONTROLS = /[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu
/**
 * The JSON Schema pattern of a text without such characters. It avoids `\p`, which some JSON Schema tools do not
 * support.
 */
const NO_CONTROLS = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028-\\u202e\\u2066-\\u2069]*$"

/** Letters whose scripts join neighbouring letters, written as the inside of a character class. */
const CURSIVE = String
  .raw`[[\p{sc=Arabic}\p{sc=Syriac}\p{sc=Mandaic}\p{sc=Nko}\p{sc=Mongolian}\p{sc=Phags_Pa}\p{sc=Adlam}\p{sc=Rohg}]&&\p{L}]`
/**
 * Cursive letters that no letter joins (Unicode Joining_Type U): hamzas, and the presentation forms, which have a fixed
 * shape.
 */
const UNJOINED = String.raw`\u0621\u0674\ufb50-\ufdff\ufe70-\ufeff`
/** Cursive letters that do not join the next letter (Joining_Type R). */
const JOINED_BEFORE =
  String.raw`\u0622-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0673\u0675-\u0677\u0688-\u0699\u06c0\u06c3-\u06cb` +
  String
    .raw`\u06cd\u06cf\u06d2\u06d3\u06d5\u06ee\u06ef\u0710\u0715-\u0719\u071e\u0728\u072a\u072c\u072f\u074d\u0759-\u075b\u076b\u076c` +
  String.raw`\u0771\u0773\u0774\u0778\u0779\u0870-\u0888\u088e\u08aa-\u08ae\u08b1\u08b2\u08b9`
/** Signs that join two consonants of an Indic script (Canonical_Combining_Class 9, virama). */
const VIRAMA = String
  .raw`[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d3b\u0d3c\u0d4d\u0dca\u0e3a\u0eba\u0f84\u1039\u103a\u1714\u1734` +
  String
    .raw`\u17d2\u1a60\u1b44\u1baa\u1bab\u1bf2\u1bf3\u2d7f\ua806\ua8c4\ua953\ua9c0\uaaf6\uabed\u{10a3f}\u{11046}\u{1107f}\u{110b9}\u{11133}` +
  String
    .raw`\u{11134}\u{111c0}\u{11235}\u{112ea}\u{1134d}\u{11442}\u{114c2}\u{115bf}\u{1163f}\u{116b6}\u{1172b}\u{11839}\u{1193d}\u{119e0}` +
  String.raw`\u{11a34}\u{11a47}\u{11a99}\u{11c3f}\u{11d44}\u{11d45}\u{11d97}]`
/** The letters ra. A joiner between such a letter and a virama selects another form of the letter. */
const RA = String.raw`[\u0930\u09b0\u09f0\u0b30\u0c30\u0cb0]`

/**
 * The contexts in which an invisible character changes how the text looks: those of joiners in RFC 5892, appendix A,
 * and those of emoji. Each expression matches the invisible character first and looks back at the preceding text last.
 * The reverse order would take quadratic time on a long run of marks.
 */
const SEEN = [
  // Joiners beside a virama.
  String.raw`\u200d(?<=${VIRAMA}\u200d)`,
  String.raw`\u200d(?<=${RA}\u200d)(?=${VIRAMA})`,
  String.raw`\u200c(?<=${VIRAMA}\u200c)(?=\p{L})`,
  // A non-joiner between two letters that would join.
  String.raw`\u200c(?<=[${CURSIVE}--[${UNJOINED}${JOINED_BEFORE}]]\p{M}*\u200c)(?=\p{M}*[${CURSIVE}--[${UNJOINED}]])`,
  // Variants of Mongolian letters.
  String.raw`[\u180b-\u180f](?<=[\u1820-\u18aa].)`,
  // A joiner between two pictographs.
  String.raw`\u200d(?<=\p{Extended_Pictographic}[\ufe0f\p{Emoji_Modifier}]?\u200d)(?=\p{Extended_Pictographic})`,
  // A variation selector that shows a text character as an emoji (also in keycaps), or an emoji as a text character.
  String.raw`\ufe0f(?<=[\p{Emoji}--\p{Emoji_Presentation}--[0-9#*]]\ufe0f)`,
  String.raw`\ufe0f(?<=[0-9#*]\ufe0f)(?=\u20e3)`,
  String.raw`\ufe0e(?<=\p{Emoji_Presentation}\ufe0e)`,
  // The flags of England, Scotland and Wales.
  ...["gbeng", "gbsct", "gbwls"].map((name) => {
    const tags = `${
      Array.from(name, (letter) => String.fromCodePoint(0xe0000 + letter.charCodeAt(0))).join("")
    }\u{e007f}`
    return String.raw`${tags}(?<=\u{1f3f4}${tags})`
  })
]

/** The direction marks LRM, RLM and ALM. */
const MARKS = String.raw`\u200e\u200f\u061c`
/** Format characters that have a glyph: signs over or under numbers. */
const SHOWN_FORMATS = String.raw`\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u{110bd}\u{110cd}`
/**
 * Characters without a glyph and without a width, except control characters and direction marks. Some of them are not
 * default-ignorable in Unicode: the annotation marks, the object replacement character, the null note head of music,
 * and the joiners of hieroglyphs.
 */
const INVISIBLE = String
  .raw`[[\p{DI}\p{Cf}\p{NChar}\ufffc\u{1d159}\u{13430}-\u{1343f}]--[${MARKS}${SHOWN_FORMATS}\u202a-\u202e\u2066-\u2069]]`
const UNSEEN = new RegExp(`(${SEEN.join("|")})|${INVISIBLE}`, "gv")

/** `RIGHT_TO_LEFT` matches a letter of a right-to-left script. `LEFT_TO_RIGHT` matches a letter of any other script. */
const RIGHT_TO_LEFT = String
  .raw`[[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]&&\p{L}]`
const LEFT_TO_RIGHT = `[\\p{L}--${RIGHT_TO_LEFT}]`
const HAS_RIGHT_TO_LEFT = new RegExp(RIGHT_TO_LEFT, "v")
const ANY_MARK = new RegExp(`[${MARKS}]`, "gv")
const MARKS_IN_A_ROW = new RegExp(`[${MARKS}]{2,}`, "gv")
/**
 * Texts whose direction marks change nothing: marks beside a letter that already has their direction, and marks at the
 * end after a letter or a digit. The combining marks of the letter may stand between.
 */
const IDLE_MARKS = new RegExp(
  [
    String.raw`[\p{L}\p{N}][\p{M}${MARKS}]+$`,
    String.raw`${LEFT_TO_RIGHT}[\p{M}\u200e]+`,
    String.raw`\u200e(?=${LEFT_TO_RIGHT})`,
    String.raw`${RIGHT_TO_LEFT}[\p{M}\u200f\u061c]+`,
    String.raw`[\u200f\u061c](?=${RIGHT_TO_LEFT})`
  ].join("|"),
  "gv"
)

const withoutMarks = (text: string): string => text.replace(ANY_MARK, "")
const withoutIdleMarks = (text: string): string => text.replace(MARKS_IN_A_ROW, "").replace(IDLE_MARKS, withoutMarks)

const BLANKS = /[\s\u2800]+/g
const BLANK_OR_MARK = new RegExp(String.raw`[\s\u2800${MARKS}]`)

/**
 * Removes blanks from both ends of a text, also between direction marks there. A regular expression for the blanks at
 * the end would take quadratic time.
 */
const trimmed = (text: string): string => {
  let [from, to] = [0, text.length]
  while (from < to && BLANK_OR_MARK.test(text[from]!)) from++
  while (from < to && BLANK_OR_MARK.test(text[to - 1]!)) to--
  return text.slice(0, from).replace(BLANKS, "") + text.slice(from, to) + text.slice(to).replace(BLANKS, "")
}

/**
 * Removes blanks at both ends, and invisible characters, so that two names that look the same are the same text.
 * Joiners, variation selectors and tags stay where they change how the text looks, as in emoji and in Persian and Indic
 * words. Direction marks stay only in names with letters of a right-to-left script, and only between characters whose
 * order they can change.
 */
const withoutUnseen = (text: string): string => {
  const seen = trimmed(text.replace(UNSEEN, (_, kept: string | undefined) => kept ?? ""))
  return HAS_RIGHT_TO_LEFT.test(seen) ? withoutIdleMarks(seen) : withoutMarks(seen)
}

/** Whether a text contains a character that is visible by itself: a letter, a digit, a punctuation mark or a symbol. */
const hasGlyph = (text: string): boolean =>
  /[\p{L}\p{N}\p{P}\p{S}\p{Extended_Pictographic}]/u.test(withoutUnseen(text).replaceAll("\u2800", ""))

/**
 * Returns a text in the form in which it is stored as a name. A text without visible characters is returned unchanged,
 * so that validation refuses it instead of treating it as an empty name.
 */
const normalized = (text: string): string => {
  const name = withoutUnseen(text)
  return name === "" ? text : name
}

const withoutControls = (text: string): string => text.replace(CONTROLS, "")

/**
 * Makes a name that can be shown to people from a text that cannot be refused. It removes control characters and
 * invisible characters. Returns the empty string if no visible character is left.
 */
export const plainName = (text: string): string => {
  const name = normalized(withoutControls(text.toWellFormed()))
  return hasGlyph(name) ? name : ""
}

/**
 * A text that is shown on one line next to other texts (wire.md C.2): display names; names of groups, skills and
 * clients; tags; reasons and notes of operators. Decoding removes invisible characters, and blanks at both ends. Then
 * the text must have `min` to `max` code points. Control characters, and texts without a visible character, are
 * refused. If `min` is 0, the empty string is allowed.
 */
export const Name = (min: number, max: number) =>
  Schema.String.check(
    Schema.makeFilter(() => true, { toJsonSchema: () => ({ minLength: min, maxLength: max, pattern: NO_CONTROLS }) })
  ).pipe(
    Schema.decodeTo(
      Text(min, max).check(
        Schema.makeFilter((text) =>
          withoutControls(text) === text ||
          "must hold no line breaks, other control characters, or overrides of the direction of writing"
        ),
        Schema.makeFilter((text) => text === "" || hasGlyph(text) || "must have a character that can be seen")
      ),
      SchemaTransformation.transform({
        // A text that is far too long is refused for its length.
        decode: (text: string) => text.length > 10 * max + 1_000 ? text : normalized(text),
        encode: (text: string) => text
      })
    )
  )
