import { assert } from "@effect/vitest"
import { readFile, writeFile } from "node:fs/promises"
import type { Frame } from "../support/Socket.ts"

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
const ID = /^(del|[a-z]+)_[A-Za-z0-9_-]{16,32}$/

/** The frame with everything that differs from run to run replaced by what kind of thing it is. */
const timeless = (value: unknown, names: ReadonlyMap<string, string>): unknown => {
  if (typeof value === "string") {
    const name = names.get(value)
    if (name !== undefined) return `<${name}>`
    if (TIME.test(value)) return "<time>"
    return value.match(ID)?.[1] === undefined ? value : `<${value.match(ID)?.[1]}>`
  }
  if (Array.isArray(value)) return value.map((item) => timeless(item, names))
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, timeless(item, names)]))
  }
  return value
}

/**
 * Compares a frame with the reviewed one in `frames/<file>.json`; UPDATE_CONTRACT=1
 * writes it instead. `names` are strings of this run, and what to call them in the file.
 */
export const assertGolden = async (
  file: string,
  frame: Frame,
  names: Readonly<Record<string, string>> = {}
): Promise<void> => {
  const url = new URL(`./frames/${file}.json`, import.meta.url)
  const seen = timeless(frame, new Map(Object.entries(names)))
  if (process.env["UPDATE_CONTRACT"] === "1") return writeFile(url, `${JSON.stringify(seen, undefined, 2)}\n`)
  assert.deepStrictEqual(seen, JSON.parse(await readFile(url, "utf8")))
}
