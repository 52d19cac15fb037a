import { readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { largeCluster } from "./LargeCluster.ts"
import { measure } from "./Measure.ts"
import { HABITS, LIMITS } from "./Model.ts"
import { PRICES } from "./Prices.ts"
import { kneesTable, populations, svg, type Variant } from "./Tables.ts"

const HELP = `npm run scale -- [--measure] [--write] [--large [--nodes 200] [--sockets 5000000]]

Calculates from measured prices (verification/scale/Prices.ts) what so many agents ask
of a cluster, and where what breaks first. Prints two tables.

  --measure  measures instead what a socket, a ping, a comparison of cursors and an
             announcement cost here, the last with two and with twenty nodes
             (two and a half minutes; needs redis-server)
  --large    measures instead one node of a large cluster: a complete node on a PostgreSQL,
             with connections to all others, which announce their sockets to it
             (three minutes and 5 GB of memory)
  --write    puts the tables into docs/scale.md, and the picture into docs/scale.svg
`

export const VARIANTS: ReadonlyArray<Variant> = [
  { name: "as above", habits: HABITS },
  { name: "ping every 120 s", habits: HABITS, pingSeconds: 120 },
  { name: "one agent in ten connected", habits: { ...HABITS, connected: 0.1 } },
  { name: "500 messages a day", habits: { ...HABITS, messagesPerDay: 500 } }
]

/** The calculated parts of docs/scale.md, by the names of their marks. */
export const calculated = (): Readonly<Record<string, string>> => ({
  populations: populations(HABITS, PRICES, LIMITS),
  knees: kneesTable(VARIANTS, PRICES, LIMITS)
})

const mark = (name: string): RegExp => new RegExp(`(<!-- ${name} -->\\n)[\\s\\S]*?(\\n<!-- /${name} -->)`)

/** The document with its calculated parts replaced by current ones. */
export const renewed = (document: string): string =>
  Object.entries(calculated()).reduce((text, [name, part]) => {
    if (!mark(name).test(text)) throw new Error(`docs/scale.md has no marks for ${name}`)
    return text.replace(mark(name), (_, before: string, after: string) => before + part + after)
  }, document)

export const DOCUMENT = join(import.meta.dirname, "../../docs/scale.md")
export const PICTURE = join(import.meta.dirname, "../../docs/scale.svg")
export const picture = (): string => svg(HABITS, PRICES, LIMITS)

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      measure: { type: "boolean" },
      write: { type: "boolean" },
      large: { type: "boolean" },
      nodes: { type: "string", default: "200" },
      sockets: { type: "string", default: "5000000" },
      help: { type: "boolean" }
    }
  })
  if (values.help === true) console.log(HELP)
  else if (values.measure === true) console.log(await measure())
  else if (values.large === true) await largeCluster(Number(values.nodes), Number(values.sockets), console.log)
  else {
    for (const [name, part] of Object.entries(calculated())) console.log(`${name}\n\n${part}\n`)
    if (values.write === true) {
      await writeFile(DOCUMENT, renewed(await readFile(DOCUMENT, "utf8")))
      await writeFile(PICTURE, picture())
    }
  }
}
