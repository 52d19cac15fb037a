import { appendFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { type Block, parse, read } from "../../test/documents/Markdown.ts"
import { type Call, FakeModel, type Shown } from "./FakeModel.ts"
import type { Host } from "./Hosts.ts"
import { type Ended, pathWith, run } from "./Install.ts"

/** A host may try the network, which can be closed: it has this long for everything. */
const LIMIT_MS = 180_000
const CLIENTS = "docs/clients.md"

/** One run of a host with a fresh HOME. */
export interface Session extends Ended {
  /** The requests of the conversation, in their order. */
  readonly shown: ReadonlyArray<Shown>
  /** How many calls of the script were not made. */
  readonly left: number
  readonly seconds: number
}

/** The part of docs/clients.md about a host: its text, and its blocks of code. */
export const entryOf = (name: string): { readonly text: string; readonly blocks: ReadonlyArray<Block> } => {
  const lines = read(CLIENTS).split("\n")
  const from = lines.indexOf(`### ${name}`)
  const to = lines.findIndex((line, index) => index > from && /^##+ /.test(line))
  if (from < 0) throw new Error(`${CLIENTS} has no entry for ${name}`)
  return {
    text: lines.slice(from, to).join("\n"),
    blocks: parse(CLIENTS).blocks.filter(({ line }) => line > from && line <= to)
  }
}

/** Does what docs/clients.md says for this host, with this server and key, while its model plays the script. */
export const runSession = async (
  { host, folder }: { readonly host: Host; readonly folder: string },
  parley: { readonly url: string; readonly key: string },
  script: ReadonlyArray<Call>
): Promise<Session> => {
  const model = await FakeModel.start(script)
  const home = await mkdtemp(join(tmpdir(), `parley-${host.program}-`))
  const began = performance.now()
  try {
    const here = (text: string): string =>
      text.replaceAll("https://your-server", parley.url).replaceAll("ac_…", parley.key)
    const blocks = entryOf(host.name).blocks.map(({ language, text }) => ({ language, text: here(text) }))
    const { env, files = {} } = host.settings(model.url)
    for (const [name, text] of Object.entries(files)) {
      await mkdir(dirname(join(home, name)), { recursive: true })
      await writeFile(join(home, name), text)
    }
    for (const { text } of blocks.filter(({ language }) => language === "toml"))
      await appendFile(join(home, host.toml ?? ""), text)
    const shell = ["set -eu", ...blocks.filter(({ language }) => language === "sh").map(({ text }) => text)].join("\n")
    const [work, temporary] = [join(home, "work"), join(home, "tmp")]
    for (const made of [work, temporary]) await mkdir(made)
    const ended = await run("sh", ["-c", shell], {
      cwd: work,
      env: { ...env, HOME: home, NO_COLOR: "1", PATH: pathWith(folder), TMPDIR: temporary },
      limitMs: LIMIT_MS
    })
    return { ...ended, shown: model.shown, left: model.left, seconds: (performance.now() - began) / 1_000 }
  } finally {
    model.close()
    await rm(home, { recursive: true, force: true, maxRetries: 3 })
  }
}
