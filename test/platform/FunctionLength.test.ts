import { assert, describe, it } from "@effect/vitest"
import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { parseAst } from "rolldown/parseAst"

/** The most lines of a function, without comments and without the lines of the functions inside it. */
const MAX_OWN_LINES = 70

/** The most lines of a function with all that is inside it. A maker of a service contains the service's methods. */
const MAX_LINES = 200

/** Functions that are longer, and why. */
const EXCEPTIONS: ReadonlyArray<readonly [file: string, line: RegExp, why: string]> = [
  ["src/clients/connect/Steps.ts", /makeSteps/, "the steps of one conversation, each a function inside it"],
  ["src/domain/direct/DirectAppend.ts", /^const appendStatement/, "one SQL statement"],
  ["src/domain/groups/Groups.ts", /Effect\.gen/, "the methods of a service, one for each call of groups"],
  ["src/domain/groups/GroupsRepo.ts", /Effect\.gen/, "the prepared statements of groups"],
  ["src/domain/oauth/Grants.ts", /Effect\.gen/, "the methods of a service"],
  ["src/domain/push/PushRouter.ts", /Effect\.gen/, "the methods of a service"],
  ["src/infrastructure/database/CommitQueue.ts", /makeCommitQueue/, "an object whose methods share its queues"],
  [
    "src/infrastructure/cluster/PeerConnections.ts",
    /Effect\.gen|function\*/,
    "an object whose methods share its peers"
  ],
  ["src/interfaces/a2a/Tasks.ts", /Effect\.gen/, "the methods of a service"],
  ["src/interfaces/mcp/events/EventMethods.ts", /function\*/, "the methods of the extension"],
  ["src/interfaces/service/OpenApiDocument.ts", /./, "one document, from its first field to its last"]
]

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

interface Length {
  readonly first: number
  readonly last: number
  readonly inner: Array<Length>
}

const isNode = (value: unknown): value is Node => typeof value === "object" && value !== null && "type" in value

const childrenOf = (node: Node): ReadonlyArray<Node> =>
  Object.values(node).flatMap((value): ReadonlyArray<unknown> => Array.isArray(value) ? value : [value]).filter(isNode)

const FUNCTIONS = new Set(["FunctionDeclaration", "FunctionExpression", "ArrowFunctionExpression"])

/** The functions of a file, with the functions directly inside each. */
const functionsOf = (text: string): ReadonlyArray<Length> => {
  const starts = [0, ...Array.from(text.matchAll(/\n/g), ({ index }) => index + 1)]
  const lineAt = (offset: number): number => {
    let [low, high] = [0, starts.length - 1] as [number, number]
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if (starts[middle]! <= offset) low = middle
      else high = middle - 1
    }
    return low
  }
  const all: Array<Length> = []
  const visit = (node: Node, outer: Length | undefined): void => {
    let current = outer
    if (FUNCTIONS.has(node.type)) {
      current = { first: lineAt(node.start), last: lineAt(node.end), inner: [] }
      all.push(current)
      outer?.inner.push(current)
    }
    for (const child of childrenOf(node)) visit(child, current)
  }
  visit(parseAst(text, { lang: "ts" }) as unknown as Node, undefined)
  return all
}

const linesOf = ({ first, last }: Length): number => last - first + 1

/** The lines that are blank or only a comment. */
const unwritten = (lines: ReadonlyArray<string>): ReadonlyArray<number> =>
  lines.flatMap((line, i) => /^\s*(?:$|\/\/|\/?\*)/.test(line) ? [i] : [])

/**
 * The lines that are in no function inside it. A function that stands on one line leaves that line to the outer one.
 */
const ownLinesOf = (one: Length, without: ReadonlyArray<number> = []): number => {
  const taken = new Set(without.filter((line) => line >= one.first && line <= one.last))
  for (const inner of one.inner) {
    if (inner.last > inner.first) { for (let line = inner.first; line <= inner.last; line++) taken.add(line) }
  }
  return linesOf(one) - taken.size
}

const ROOT = join(import.meta.dirname, "../..")

describe("functions", () => {
  it("are short enough to be read at once, but for those that are listed with their reason", () => {
    const used = new Set<string>()
    const tooLong = globSync("{src,runners,schema}/**/*.ts", { cwd: ROOT }).sort().flatMap((file) => {
      const text = readFileSync(join(ROOT, file), "utf8")
      const lines = text.split("\n")
      if (lines.length <= MAX_OWN_LINES) return []
      const without = unwritten(lines)
      return functionsOf(text)
        .filter((one) => ownLinesOf(one, without) > MAX_OWN_LINES || linesOf(one) > MAX_LINES)
        .filter(({ first }) => {
          const exception = EXCEPTIONS.find(([name, line]) => name === file && line.test(lines[first]!))
          if (exception !== undefined) used.add(exception[0])
          return exception === undefined
        })
        .map((one) => `${file}:${one.first + 1} has ${ownLinesOf(one, without)} own lines, ${linesOf(one)} in all`)
    })
    assert.deepStrictEqual(tooLong, [])
    assert.deepStrictEqual(EXCEPTIONS.map(([file]) => file).filter((file) => !used.has(file)), [], "no longer needed")
  })

  it("are counted without the functions inside them", () => {
    const [outer, inner] = functionsOf("const f = () => {\n  const g = () => {\n    return 1\n  }\n  return g\n}\n")
    assert.deepStrictEqual([ownLinesOf(outer!), linesOf(outer!), ownLinesOf(inner!)], [3, 6, 3])
  })
})
