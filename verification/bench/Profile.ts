import { readFileSync } from "node:fs"
import { resolve } from "node:path"

const ROOT = resolve(import.meta.dirname, "../..")

interface CpuProfile {
  readonly nodes: ReadonlyArray<{
    readonly id: number
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number }
  }>
  readonly samples: ReadonlyArray<number>
  /** Microseconds since the sample before. */
  readonly timeDeltas: ReadonlyArray<number>
}

export interface Cost {
  readonly name: string
  /** Microseconds for which it was on top of the stack. */
  readonly self: number
}

/** The file that a function belongs to, and its owner: a folder of this repository or a package. */
const placeOf = (url: string, functionName: string): { readonly file: string; readonly owner: string } => {
  if (url === "") {
    return functionName.startsWith("(")
      ? { file: functionName, owner: functionName }
      : { file: "(native)", owner: "(native)" }
  }
  if (url.startsWith("node:")) return { file: url, owner: "node" }
  const path = url.replace(/^file:\/\//, "").replace(`${ROOT}/`, "")
  const inPackage = /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?:dist\/|src\/|lib\/)?(.+)$/.exec(path)
  if (inPackage !== null) return { file: `${inPackage[1]}/${inPackage[2]}`, owner: inPackage[1]! }
  if (path.startsWith("wasm:")) return { file: "(wasm)", owner: "(wasm)" }
  return { file: path, owner: path.split("/").slice(0, path.startsWith("src/") ? 3 : 2).join("/") }
}

const sorted = (costs: ReadonlyMap<string, number>): ReadonlyArray<Cost> =>
  [...costs].map(([name, self]) => ({ name, self })).sort((one, other) => other.self - one.self)

/** Self times of a `.cpuprofile`, by function, by file and by package, without idle time. */
export const readProfile = (file: string): {
  readonly busy: number
  readonly functions: ReadonlyArray<Cost>
  readonly files: ReadonlyArray<Cost>
  readonly owners: ReadonlyArray<Cost>
} => {
  const profile = JSON.parse(readFileSync(file, "utf8")) as CpuProfile
  const nodes = new Map(profile.nodes.map((node) => [node.id, node.callFrame]))
  const functions = new Map<string, number>()
  const files = new Map<string, number>()
  const owners = new Map<string, number>()
  let busy = 0
  for (let i = 0; i < profile.samples.length; i++) {
    const frame = nodes.get(profile.samples[i]!)
    // A sample lasts until the next one.
    const self = profile.timeDeltas[i + 1] ?? 0
    if (frame === undefined || frame.functionName === "(idle)") continue
    busy += self
    const { file, owner } = placeOf(frame.url, frame.functionName)
    const name = frame.functionName === "" ? "(anonymous)" : frame.functionName
    const where = frame.url === "" ? name : `${name} ${file}:${frame.lineNumber + 1}`
    functions.set(where, (functions.get(where) ?? 0) + self)
    files.set(file, (files.get(file) ?? 0) + self)
    owners.set(owner, (owners.get(owner) ?? 0) + self)
  }
  return { busy, functions: sorted(functions), files: sorted(files), owners: sorted(owners) }
}
