import { settings } from "#infrastructure/platform/Config"
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"

const ROOT = new URL("../..", import.meta.url).pathname

/** Matches source text that makes an entry point: a server, or a stream of events. */
const OPENS =
  /\bcreateServer\(|new WebSocketServer\(|new EventStream\(|HttpServerResponse\.stream\(|\bnew Server\(\{ allow/

/** The rows of the table in a section of docs/architecture.md, without its head. */
const tableOf = (heading: string): ReadonlyArray<ReadonlyArray<string>> => {
  const text = readFileSync(join(ROOT, "docs/architecture.md"), "utf8")
  const section = text.split("\n## ").find((part) => part.startsWith(`${heading}\n`)) ?? ""
  return section.split("\n").filter((line) => line.startsWith("| ")).slice(2).map((line) =>
    line.slice(2, -2).split(" | ")
  )
}
const table = () => tableOf("What a peer can make a node hold")

const filesIn = (text: string): ReadonlyArray<string> =>
  Array.from(text.matchAll(/`([\w/]+\.ts)`/g), ([, file = ""]) => file)

const numberOf = (text: string): number => Number(text.replaceAll(",", "").replaceAll("_", ""))

/**
 * Asserts that the figures after names of settings and constants in a row are those of the code. Returns how many names
 * there are. `subject` is the first cell of the row. A constant is in a file that the subject names, unless the text
 * names another file beside the figure.
 */
const assertFigures = (subject: string, text: string): number => {
  const named = [...text.matchAll(/`([A-Z_]+)`(?: \(([\d,]+)(?: in `([\w/]+\.ts)`)?\))?/g)]
  for (const [, name = "", figure, file] of named) {
    if (name in settings) {
      const { fallback } = settings[name as keyof typeof settings]
      if (figure === undefined)
        assert.isUndefined(fallback, `${subject}: ${name} has a default, which the table must give`)
      else assert.strictEqual(numberOf(figure), fallback, `${subject}: ${name}`)
    } else {
      const files = file === undefined ? filesIn(subject) : [file]
      const constant = new RegExp(`const ${name} = ([\\d_]+)$`, "m")
      const value = files.map((file) => constant.exec(readFileSync(join(ROOT, file), "utf8"))?.[1]).find((found) =>
        found !== undefined
      )
      assert.isDefined(value, `${subject}: ${name} is no setting, and a constant of none of ${files.join(", ")}`)
      assert.strictEqual(numberOf(figure ?? ""), numberOf(value ?? ""), `${subject}: ${name}`)
    }
  }
  return named.length
}

describe("the table of what a peer can make a node hold (docs/architecture.md)", () => {
  it("has every entry point", () => {
    const doors = table().map(([door = ""]) => door.replace(/ \(.*/, ""))
    assert.deepStrictEqual(doors, [
      "Connections",
      "HTTP requests",
      "HTTP answers",
      "Large answers",
      "Searches",
      "Uploads and downloads",
      "Pictures",
      "Event streams",
      "Long polls",
      "Sockets, out",
      "Sockets, in",
      "Commits",
      "Budgets of messages",
      "Webhooks",
      "Mail",
      "Peer connections",
      "Console streams",
      "Operators' socket",
      "Caches"
    ])
    const named = new Set(table().flatMap(([door = ""]) => filesIn(door)))
    for (const file of named) assert.isNotEmpty(readFileSync(join(ROOT, file), "utf8"))
    // What is in clients/ runs on other machines than the nodes.
    const opening = readdirSync(join(ROOT, "src"), { encoding: "utf8", recursive: true }).map((file) => `src/${file}`)
      .filter((file) =>
        file.endsWith(".ts") && !file.startsWith("src/clients/") && OPENS.test(readFileSync(join(ROOT, file), "utf8"))
      )
    assert.isAbove(opening.length, 6)
    assert.deepStrictEqual(
      opening.filter((file) => !named.has(file)),
      [],
      "files that open an entry point which the table does not name"
    )
  })

  it("has a bound of the peer and one of the node in each row, and the figures of the settings and the code", () => {
    let figures = 0
    for (const [door = "", keeps = "", peer = "", node = "", ...more] of table()) {
      assert.deepStrictEqual(more, [], door)
      for (const cell of [keeps, peer, node]) assert.isNotEmpty(cell, door)
      figures += assertFigures(door, `${peer}; ${node}`)
    }
    assert.isAbove(figures, 40)
  })
})

describe("the table of reads of more than 256 kB (docs/architecture.md)", () => {
  it("names a limit of each read, files that exist, and the figures of the settings and the code", () => {
    const rows = tableOf("Reads of more than 256 kB")
    assert.isAbove(rows.length, 10)
    let [files, figures] = [0, 0]
    for (const [read = "", through = "", limit = "", ...more] of rows) {
      assert.deepStrictEqual(more, [], read)
      for (const cell of [through, limit]) assert.isNotEmpty(cell, read)
      for (const file of filesIn(`${read} ${through} ${limit}`)) {
        assert.isNotEmpty(readFileSync(join(ROOT, file), "utf8"), read)
        files++
      }
      figures += assertFigures(read, `${through}; ${limit}`)
    }
    assert.isAbove(files, 10)
    assert.isAbove(figures, 5)
  })
})
