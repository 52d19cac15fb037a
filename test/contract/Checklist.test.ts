import { assert, describe, it } from "@effect/vitest"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { serverFrames } from "../../src/realtime/Frames.ts"

const HERE = fileURLToPath(new URL(".", import.meta.url))
const range = (from: number, to: number): ReadonlyArray<number> => Array.from({ length: to - from + 1 }, (_, i) => from + i)

/** The points of the acceptance checklist, wire.md J, that have to be covered. */
const POINTS: ReadonlyArray<number> = [
  ...range(1, 150),
  // Sockets, amended.
  158, 159,
  // Limits under load.
  160, 161, 162
]
/** Where the tests are that cover them: those that need several nodes are not with the others. */
const FOLDERS = [HERE, fileURLToPath(new URL("../cluster/", import.meta.url))]

/** The points that a test's title begins with: "12. …", "125, 126. …", "144 and 146. …", "98–100. …", "21, 22 with …". */
const pointsOf = (title: string): ReadonlyArray<number> => {
  const head = /^\d+(?:(?:, | and |[–-])\d+)*(?=\. | with )/.exec(title)?.[0]
  return (head ?? "").split(/, | and /).flatMap((part) => {
    const [from, to = from] = part.split(/[–-]/).map(Number)
    return from === undefined || part === "" ? [] : range(from, to ?? from)
  })
}

describe("wire.md J", () => {
  it("has a contract test for each of its points", async () => {
    const covered = new Set<number>()
    const files = await Promise.all(FOLDERS.map(async (folder) => (await readdir(folder)).map((name) => join(folder, name))))
    for (const file of files.flat().filter((name) => name.endsWith(".test.ts"))) {
      const text = await readFile(file, "utf8")
      for (const [, title] of text.matchAll(/^ *it(?:\.\w+(?:\([^)]*\))?)?\(\s*["`](.+?)["`],/gm)) {
        for (const point of pointsOf(title ?? "")) covered.add(point)
      }
    }
    assert.deepStrictEqual(POINTS.filter((point) => !covered.has(point)), [])
    assert.deepStrictEqual([...covered].filter((point) => !POINTS.includes(point)), [])
  })

  it("reads titles as they are written", () => {
    assert.deepStrictEqual(
      ["12. a", "125, 126. b", "21, 22 with c", "98–100. d", "144 and 146. e", "E.4: f", "60 at once", "a 12. g"].map(pointsOf),
      [[12], [125, 126], [21, 22], [98, 99, 100], [144, 146], [], [], []]
    )
  })
})

describe("frames/", () => {
  it("has a golden file for each kind of frame that the server sends", async () => {
    const files = (await readdir(new URL("./frames/", import.meta.url))).map((name) => name.replace(/\.json$/, ""))
    const kinds = Object.keys(serverFrames)
    assert.deepStrictEqual(kinds.filter((kind) => !files.includes(kind)), [])
    // A message comes in the forms of wire.md E.4 and E.5.
    for (const form of ["group", "member_joined", "own"]) assert.include(files, `message.new.${form}`)
    const unknown = files.filter((file) => !kinds.some((kind) => file === kind || file.startsWith(`${kind}.`)))
    assert.deepStrictEqual(unknown, [])
    for (const file of files) {
      const { type } = JSON.parse(await readFile(new URL(`./frames/${file}.json`, import.meta.url), "utf8")) as { type: string }
      assert.isTrue(file === type || file.startsWith(`${type}.`), `${file} is a ${type}`)
    }
  })
})
