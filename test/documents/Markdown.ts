import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"

export const ROOT = join(import.meta.dirname, "../..")

/** What people read, by its path from the root. */
export const DOCUMENTS: ReadonlyArray<string> = [
  "README.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  ...readdirSync(join(ROOT, "docs"), { encoding: "utf8", recursive: true }).filter((name) => name.endsWith(".md")).map((
    name
  ) => `docs/${name}`),
  ...readdirSync(join(ROOT, "verification")).filter((name) => name.endsWith(".md")).map((name) =>
    `verification/${name}`
  )
]

export const read = (document: string): string => readFileSync(join(ROOT, document), "utf8")

/** A fenced block of code. */
export interface Block {
  readonly document: string
  /** Where it begins, from 1. */
  readonly line: number
  readonly language: string
  readonly text: string
  /** The file that the text before it gives to it, if any: the last name that ends in .mjs. */
  readonly file: string | undefined
}

/** The document's text without its blocks of code, and the blocks. */
export const parse = (document: string): { readonly prose: string; readonly blocks: ReadonlyArray<Block> } => {
  const prose: Array<string> = []
  const blocks: Array<Block> = []
  let open: { readonly line: number; readonly language: string; readonly lines: Array<string> } | undefined
  for (const [index, line] of read(document).split("\n").entries()) {
    const fence = /^```(\w*)$/.exec(line)
    if (fence === null) (open?.lines ?? prose).push(line)
    else if (open === undefined) open = { line: index + 1, language: fence[1] ?? "", lines: [] }
    else {
      const file = Array.from(prose.join("\n").matchAll(/`([\w/]+\.mjs)`/g)).at(-1)?.[1]
      blocks.push({ document, line: open.line, language: open.language, text: open.lines.join("\n"), file })
      open = undefined
    }
  }
  if (open !== undefined) throw new Error(`${document}:${open.line}: a block that does not end`)
  return { prose: prose.join("\n"), blocks }
}

/** The names under which GitHub finds the headings of a document. */
export const anchors = (document: string): ReadonlySet<string> => {
  const found = new Set<string>()
  for (const [, heading = ""] of parse(document).prose.matchAll(/^#{1,6} (.+)$/gm)) {
    const text = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/[*`]/g, "")
    const name = text.trim().toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "").replace(/\s/g, "-")
    let anchor = name
    for (let again = 1; found.has(anchor); again++) anchor = `${name}-${again}`
    found.add(anchor)
  }
  return found
}
