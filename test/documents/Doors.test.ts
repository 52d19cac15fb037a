import { settings } from "#infrastructure/platform/Config"
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"

const ROOT = new URL("../..", import.meta.url).pathname

/** Matches source text that makes an entry point: a server, or a stream of events. */
const OPENS =
  /\bcreateServer\(|new WebSocketServer\(|new EventStream\(|HttpServerResponse\.stream\(|\bnew Server\(\{ allow/

const table = (): ReadonlyArray<ReadonlyArray<string>> => {
  const text = readFileSync(join(ROOT, "docs/architecture.md"), "utf8")
  const section = text.slice(
    text.indexOf("## What a peer can make a node hold"),
    text.indexOf("## Reads of more than 256 kB")
  )
  return section.split("\n").filter((line) =>
    line.startsWith("| ") && !line.startsWith("| entry point") && !line.startsWith("| ---")
  )
    .map((line) => line.slice(2, -2).split(" | "))
}

const numberOf = (text: string): number => Number(text.replaceAll(",", "").replaceAll("_", ""))

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
    const named = new Set(
      table().flatMap(([door = ""]) => [...door.matchAll(/`([\w/]+\.ts)`/g)].map(([, file]) => file))
    )
    for (const file of named) assert.isNotEmpty(readFileSync(join(ROOT, file!), "utf8"))
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
      for (
        const [, name = "", figure, file] of `${peer}; ${node}`.matchAll(
          /`([A-Z_]+)`(?: \(([\d,]+)(?: in `([\w/]+\.ts)`)?\))?/g
        )
      ) {
        if (name in settings) {
          const { fallback } = settings[name as keyof typeof settings]
          if (figure === undefined)
            assert.isUndefined(fallback, `${door}: ${name} has a default, which the table must give`)
          else assert.strictEqual(numberOf(figure), fallback, `${door}: ${name}`)
        } else {
          // A constant is in a file of its entry point, unless the cell names another file.
          const files = file === undefined
            ? Array.from(door.matchAll(/`([\w/]+\.ts)`/g), ([, own = ""]) => own)
            : [file]
          const constant = new RegExp(`const ${name} = ([\\d_]+)$`, "m")
          const value = files.map((file) => constant.exec(readFileSync(join(ROOT, file), "utf8"))?.[1]).find((found) =>
            found !== undefined
          )
          assert.isDefined(value, `${door}: ${name} is no setting, and a constant of none of ${files.join(", ")}`)
          assert.strictEqual(numberOf(figure ?? ""), numberOf(value ?? ""), `${door}: ${name}`)
        }
        figures++
      }
    }
    assert.isAbove(figures, 40)
  })
})
