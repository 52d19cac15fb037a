import { read } from "../documents/Markdown.ts"

const row = /^- \*\*Reserved handles\*\*: (.*)$/m.exec(read("docs/wire.md"))?.[1] ?? ""

/** The handles that wire.md D reserves. The words in backticks inside parentheses are the lists. */
export const RESERVED: ReadonlyArray<string> = Array.from(
  row.matchAll(/\(`([^`]+)`\)/g),
  ([, words = ""]) => words.split(" ")
).flat()
