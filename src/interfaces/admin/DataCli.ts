import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { resolve } from "node:path"
import { AdminClient, ask, call, print } from "./AdminClient.ts"
import { naming } from "./AgentsCli.ts"
import { get, post } from "./ApiCall.ts"
import { example, handle, json, server } from "./Flags.ts"

const amount = (n: number, one: string, many: string): string => `${n.toLocaleString("en")} ${n === 1 ? one : many}`

/** The command that exports the data of an agent. */
export const exportCommand = Command.make("export", {
  handle,
  target: Argument.String("target").pipe(Argument.withDescription("A new folder, or a file whose name ends with .tar")),
  json
}, ({ handle, json, target }) => {
  const done = naming(handle)(Effect.flatMap(AdminClient, (client) => client.exportAgent(handle, target)))
  return print(json, done, (exported) => {
    const damaged = exported.damaged === 0
      ? ""
      : `, ${exported.damaged.toLocaleString("en")} of them because the bytes are damaged`
    const missing = exported.missing === 0
      ? ""
      : ` The file store lacks ${amount(exported.missing, "further file", "further files")}${damaged}.`
    return {
      text: `${exported.place} contains all data about ${exported.handle}: ${amount(exported.rows, "row", "rows")}, ${
        amount(exported.files, "file", "files")
      } of ${amount(exported.bytes, "byte", "bytes")}.${missing}\nIt contains messages: protect it accordingly.`,
      data: exported
    }
  })
}).pipe(
  Command.withDescription(
    "Write all data about an agent, its messages and files included, into a folder or a tar file; run the command again to resume an interrupted export"
  ),
  Command.withShortDescription("Write all data about an agent into a folder or file"),
  example("For ada, who asked for it", "ada ada.tar")
)

/** The command that backs up a standalone server. */
export const backup = Command.make(
  "backup",
  {
    file: Argument.String("file").pipe(Argument.withDescription("The tar file to make, on the machine of the server")),
    json
  },
  ({ file, json }) =>
    print(json, call(({ BackedUp }) => BackedUp, post("/backups", { target: resolve(file) })), (made) => {
      const elsewhere = made.files ? "" : " The files are in another store: copy them now, with its own tools."
      return {
        text:
          `${made.file} contains the database${made.files ? " and the files" : ""}, ${
            made.bytes.toLocaleString("en")
          } bytes. ` +
          `The backup paused the server for at most ${made.longest_stop_ms} ms at a time.${elsewhere}\nIt contains everything: protect it accordingly.`,
        data: made
      }
    })
).pipe(
  Command.withDescription(
    "Back up a server with its database in DATA_DIR, its files included, into a tar file; the server may run and be used meanwhile"
  ),
  Command.withShortDescription("Back up a server with its database in DATA_DIR; it may run meanwhile"),
  example("Every night", "/var/backups/parley-$(date +%F).tar")
)

/** The command that lists the backups that the server makes on its own. */
export const backups = Command.make("backups", { server, json }, (given) => ask(given, get("/backups"))).pipe(
  Command.withDescription("Show the backups that the server makes on its own, and why the last attempt failed"),
  example("All of them")
)

/** The command that checks a backup. */
export const checkBackup = Command.make(
  "check-backup",
  {
    file: Argument.String("file").pipe(
      Argument.withDescription("The tar file that `backup` made; beside it there must be room for its contents")
    ),
    json
  },
  ({ file, json }) =>
    print(json, Effect.flatMap(AdminClient, (client) => client.checkBackup(file)), (printed) => printed)
).pipe(
  Command.withDescription(
    "Restore a backup into a folder beside it, read all rows of its database, and remove the folder again; a server may run meanwhile"
  ),
  Command.withShortDescription("Check that a backup can be restored"),
  example("Last night's", "/var/backups/parley-2026-11-22.tar")
)

/** The command that restores a backup. */
export const restore = Command.make(
  "restore",
  {
    file: Argument.String("file").pipe(
      Argument.withDescription("The tar file that `backup` made, or s3://BUCKET/KEY with the S3_ settings")
    ),
    folder: Argument.String("folder").pipe(
      Argument.withDescription("An empty folder, or a new one: the DATA_DIR of the restored server")
    ),
    json
  },
  ({ file, folder, json }) =>
    print(json, Effect.flatMap(AdminClient, (client) => client.restore(file, folder)), (printed) => printed)
).pipe(
  Command.withDescription(
    "Restore a backup into an empty folder, with all counters moved forward so that no number is assigned twice; then start a server on the folder"
  ),
  Command.withShortDescription("Restore a backup into an empty folder"),
  example("And start it", "parley-2026-11-22.tar /var/lib/parley")
)

/** The command that frees the disk space of deleted rows and removes their bytes while the server is stopped. */
export const compact = Command.make(
  "compact",
  { json },
  ({ json }) => print(json, Effect.flatMap(AdminClient, (client) => client.compact), (printed) => printed)
).pipe(
  Command.withDescription(
    "Rewrite the files of a stopped server's database in DATA_DIR, so that no file contains deleted or erased data, and their disk space is free again. The command may be interrupted and run again"
  ),
  Command.withShortDescription("Free the disk space of deleted rows, while the server is stopped"),
  example("After stopping the server")
)
