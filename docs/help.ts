import { Console, Effect } from "effect"
import { writeFileSync } from "node:fs"
import { stripVTControlCharacters } from "node:util"
import { commandPaths, run } from "../runners/CommandLine.ts"

/**
 * Writes runners/help.txt, the help of every command for a Node that is too old to run Parley (runners/any-node.js):
 * `npm run docs`.
 */

const helpOf = (path: ReadonlyArray<string>): Effect.Effect<string> => {
  let text = ""
  const written: Console.Console = Object.assign(Object.create(console), { log: (line: string) => text += `${line}\n` })
  return run([...path, "--help"], { typed: (command) => command, width: 80 }).pipe(
    Effect.provideService(Console.Console, written),
    Effect.map(() => `### ${["parley", ...path].join(" ")}\n${stripVTControlCharacters(text)}`)
  )
}

/** The whole file. Each text has its command in the line before it. */
export const helpFile = (): Promise<string> =>
  Effect.runPromise(Effect.map(Effect.forEach([[], ...commandPaths], helpOf), (texts) => texts.join("")))

if (import.meta.main) writeFileSync(new URL("../runners/help.txt", import.meta.url), await helpFile())
