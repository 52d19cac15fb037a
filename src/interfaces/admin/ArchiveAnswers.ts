import { AgentPages } from "#domain/archives/AgentPages"
import { backUp } from "#domain/archives/Backup"
import { Database } from "#infrastructure/database/Sql"
import { folderOf } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { AuditLog, withoutAddresses } from "#interfaces/operator/AuditLog"
import { RestoredCounters } from "#interfaces/operator/RestoredCounters"
import { Cause, Effect, Exit, type Schema } from "effect"
import { type Answers, findAgent, refuse } from "./Answers.ts"
import { plain } from "./TextTable.ts"

/** The longest detail of a backup in the audit log, in UTF-16 units. */
const DETAIL_LENGTH = 1_000

/** Why a backup has failed, in a sentence. */
const whyOf = (cause: Cause.Cause<{ readonly message: string }>): string => {
  if (Cause.hasInterruptsOnly(cause)) return "the command ended before the backup was complete"
  return cause.reasons.find(Cause.isFailReason)?.error.message ?? "a defect, which the log of the server has"
}

/** The commands about backups, restored databases and exports. */
export const archiveAnswers = Effect.gen(function*() {
  const agents = yield* AgentAdmin
  const audit = yield* AuditLog
  const config = yield* Config
  const counters = yield* RestoredCounters
  const database = yield* Database
  const pages = yield* AgentPages

  const schema = Effect.map(
    database.query<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`,
    ([row]) => row?.name ?? ""
  )

  const answers: Answers<"Backup" | "Restored" | "Export" | "ExportPage" | "ExportPart"> = {
    Backup: Effect.fnUntraced(function*({ operator, target }) {
      if (database.backup === undefined) {
        return yield* refuse(
          "The database is PostgreSQL: back it up with pg_dump while the servers run, and then the file store with its own tools (docs/operations.md)."
        )
      }
      const noted = (action: string, detail: string) =>
        audit.note({ operator, action, handle: null, detail: withoutAddresses(detail).slice(0, DETAIL_LENGTH) })
      // The backup itself has this row. The row of its outcome comes after its end.
      yield* noted("begin backup", target)
      const store = config.S3_BUCKET === undefined && config.SHARED_DIR === undefined ? folderOf(config) : undefined
      const made = yield* Effect.catchTag(
        backUp({ target, database: database.backup, schema: yield* schema, store }).pipe(
          Effect.onExit((exit) =>
            Effect.catch(
              Exit.isSuccess(exit)
                ? noted("backup", `${target}: ${exit.value.bytes} bytes`)
                : noted("refused backup", `${target}: ${whyOf(exit.cause)}`),
              (error) =>
                Effect.logWarning(`The outcome of the backup ${target} could not be written into the audit log`, error)
            )
          )
        ),
        "BackupRefused",
        ({ message }) => refuse(message)
      )
      const elsewhere = made.files ? "" : " The files are in another store: copy them now, with its own tools."
      return {
        text:
          `${made.file} has the database${made.files ? " and the files" : ""}, ${
            made.bytes.toLocaleString("en")
          } bytes. ` +
          `The backup held up the server for at most ${made.longest_stop_ms} ms at a time.${elsewhere}\nIt contains everything: protect it accordingly.`,
        data: { ...made }
      }
    }),
    Restored: Effect.fnUntraced(function*({ operator }) {
      const moved = yield* counters.moveOn(operator)
      return {
        text:
          `${moved.conversations} conversations and ${moved.inboxes} inboxes now continue above every number of a lost message.`,
        data: moved
      }
    }),
    Export: Effect.fnUntraced(function*({ handle, operator }) {
      const agent = yield* findAgent(agents, handle)
      yield* audit.note({ operator, action: "export", handle: agent.handle, detail: null })
      return { text: agent.handle, data: { agent: agent.id, handle: agent.handle, schema: yield* schema } }
    }),
    ExportPage: Effect.fnUntraced(function*(command) {
      const page = yield* pages.page(command.agent, command.file, command.after)
      return page === undefined
        ? yield* refuse(`An export has no such page of ${plain(command.file)}.`)
        // The rows contain only values that JSON can represent.
        : { text: command.file, data: page as unknown as Schema.Json }
    }),
    ExportPart: Effect.fnUntraced(function*(command) {
      const part = yield* Effect.catchTag(
        pages.part(command.agent, command.file, command.from),
        "StorageUnavailable",
        ({ message }) => refuse(message)
      )
      return { text: command.file, data: part === undefined ? null : { ...part, bytes: part.bytes.toString("base64") } }
    })
  }
  return answers
})
