import { serverFrames } from "#interfaces/realtime/Frames"
import { assert, describe, it } from "@effect/vitest"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const HERE = fileURLToPath(new URL(".", import.meta.url))
const range = (from: number, to: number): ReadonlyArray<number> =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i)

/** The points of the acceptance checklist, docs/wire.md J; those below a heading that says "not yet" are not built. */
const pointsOfContract = async (): Promise<
  { readonly built: ReadonlyArray<number>; readonly later: ReadonlyArray<number> }
> => {
  const contract = await readFile(new URL("../../docs/wire.md", import.meta.url), "utf8")
  const [, checklist = ""] = contract.split(/^## J\. .*$/m)
  const parts = (checklist.split(/^## /m)[0] ?? "").split(/^(?=\*\*)/m)
  const numbers = (part: string) => Array.from(part.matchAll(/^(\d+)\. /gm), ([, no]) => Number(no))
  const isLater = (part: string) => /^\*\*.*\(not yet\b/.test(part)
  return {
    built: parts.filter((part) => !isLater(part)).flatMap(numbers),
    later: parts.filter(isLater).flatMap(numbers)
  }
}
/**
 * Where the tests are that cover them: those that need several nodes, a browser or an operator are not with the others.
 */
const FOLDERS = [
  HERE,
  ...["cluster", "console", "pages"].map((folder) => fileURLToPath(new URL(`../${folder}/`, import.meta.url)))
]

/**
 * The points that a test's title begins with: "12. …", "125, 126. …", "144 and 146. …", "98–100. …", "21, 22 with …".
 */
const pointsOf = (title: string): ReadonlyArray<number> => {
  const head = /^\d+(?:(?:, | and |[–-])\d+)*(?=\. | with )/.exec(title)?.[0]
  return (head ?? "").split(/, | and /).flatMap((part) => {
    const [from, to = from] = part.split(/[–-]/).map(Number)
    return from === undefined || part === "" ? [] : range(from, to ?? from)
  })
}

describe("wire.md J", () => {
  it("has a contract test for each of its points, but for those that are not built yet", async () => {
    const { built, later } = await pointsOfContract()
    const points = [...built, ...later].sort((a, b) => a - b)
    assert.isAtLeast(points.length, 165)
    assert.deepStrictEqual(points, range(1, points.length))
    assert.deepStrictEqual(later, [])
    const covered = new Set<number>()
    const files = await Promise.all(
      FOLDERS.map(async (folder) => (await readdir(folder)).map((name) => join(folder, name)))
    )
    for (const file of files.flat().filter((name) => name.endsWith(".test.ts"))) {
      const text = await readFile(file, "utf8")
      for (const [, title] of text.matchAll(/^ *it(?:\.\w+(?:\([^)]*\))?)?\(\s*["`](.+?)["`],/gm)) {
        for (const point of pointsOf(title ?? "")) covered.add(point)
      }
    }
    assert.deepStrictEqual(built.filter((point) => !covered.has(point)), [])
    assert.deepStrictEqual([...covered].filter((point) => !built.includes(point)), [])
  })

  it("reads titles as they are written", () => {
    assert.deepStrictEqual(
      ["12. a", "125, 126. b", "21, 22 with c", "98–100. d", "144 and 146. e", "E.4: f", "60 at once", "a 12. g"].map(
        pointsOf
      ),
      [[12], [125, 126], [21, 22], [98, 99, 100], [144, 146], [], [], []]
    )
  })
})

describe("frames/", () => {
  it("has a golden file for each kind of frame that the server sends", async () => {
    const files = (await readdir(new URL("./frames/", import.meta.url))).map((name) => name.replace(/\.json$/, ""))
    assert.sameMembers(files, Object.keys(serverFrames))
    for (const file of files) {
      const { type } = JSON.parse(await readFile(new URL(`./frames/${file}.json`, import.meta.url), "utf8")) as {
        type: string
      }
      assert.strictEqual(type, file)
    }
  })
})
