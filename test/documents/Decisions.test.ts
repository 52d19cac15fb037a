import { assert, describe, it } from "@effect/vitest"
import { readdirSync } from "node:fs"
import { join } from "node:path"
import { read, ROOT } from "./Markdown.ts"

const FOLDER = "docs/decisions"
const INDEX = `${FOLDER}/README.md`
const MOST_IN_A_PAGE = 450
const MOST_IN_ALL = 6_400

const files = readdirSync(join(ROOT, FOLDER)).filter((name) => name !== "README.md").sort()

/** Words of a text, without marks that stand alone as in a table. */
const wordsOf = (text: string): number => text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length

describe("the decisions", () => {
  it("are pages with a number, a title and a date, numbered without a gap", () => {
    const wrong = files.filter((name, i) => {
      const number = String(i + 1).padStart(4, "0")
      const [title = "", , dates = ""] = read(`${FOLDER}/${name}`).split("\n")
      return !name.startsWith(`${number}-`) || !title.startsWith(`# ${number}: `) || !/^20\d\d-\d\d-\d\d/.test(dates)
    })
    assert.deepStrictEqual(wrong, [])
    assert.isAbove(files.length, 30)
  })

  it("are short, each page and all together", () => {
    const words = files.map((name) => ({ name, words: wordsOf(read(`${FOLDER}/${name}`)) }))
    assert.deepStrictEqual(words.filter(({ words }) => words > MOST_IN_A_PAGE), [])
    assert.isAtMost(words.reduce((sum, { words }) => sum + words, 0), MOST_IN_ALL)
  })

  it("have one line each in the index, in order", () => {
    const listed = Array.from(
      read(INDEX).matchAll(/^- \[(\d{4})\]\((.+?)\): .+\.$/gm),
      ([, number = "", file = ""]) => {
        assert.isTrue(file.startsWith(`${number}-`), file)
        return file
      }
    )
    assert.deepStrictEqual(listed, files)
  })
})
