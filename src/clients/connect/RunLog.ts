import { Clock, Console, Context, Effect, Layer } from "effect"
import { appendFileSync, mkdirSync, readdirSync, rmSync } from "node:fs"
import { join } from "node:path"

/**
 * The fields of a log line besides its event. They contain ids, numbers and reasons, and never the text of a message or
 * reply.
 */
export type Fields = Readonly<Record<string, string | number | boolean | null>>

const DAY_MS = 86_400_000
const FILE = /^(\d{4}-\d\d-\d\d)\.jsonl$/

/** Logs the actions of the connector to standard error and to one file a day. */
export class RunLog extends Context.Service<RunLog, {
  readonly note: (event: string, fields?: Fields) => Effect.Effect<void>
}>()("parley/connect/RunLog") {
  /** Writes only to standard error. */
  static readonly layer = Layer.succeed(RunLog, {
    note: (event, fields = {}) => Console.error(inWords(event, fields))
  })

  /** Also writes to files in this folder, and removes files that are older than `days` days. */
  static readonly layerAt = (folder: string, days: number) =>
    Layer.succeed(RunLog, {
      note: (event, fields = {}) =>
        Effect.gen(function*() {
          yield* Console.error(inWords(event, fields))
          const now = yield* Clock.currentTimeMillis
          const at = new Date(now).toISOString()
          yield* Effect.sync(() => {
            const file = join(folder, `${at.slice(0, 10)}.jsonl`)
            mkdirSync(folder, { recursive: true, mode: 0o700 })
            appendFileSync(file, `${JSON.stringify({ at, event, ...fields })}\n`, { mode: 0o600 })
            const oldest = new Date(now - days * DAY_MS).toISOString().slice(0, 10)
            for (const name of readdirSync(folder))
              if ((FILE.exec(name)?.[1] ?? oldest) < oldest) rmSync(join(folder, name), { force: true })
          })
        })
    })
}

const inWords = (event: string, fields: Fields): string =>
  ["parley connect:", event, ...Object.entries(fields).map(([name, value]) => `${name}=${String(value)}`)].join(" ")
