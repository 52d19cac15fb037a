import { exportAgent } from "#domain/archives/AgentExport"
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { resolve } from "node:path"
import { AdminClient, example, handle, json, reason, whoAmI } from "./AdminClient.ts"
import type { OperatorAnswer } from "./OperatorCommand.ts"

const amount = (n: number, one: string, many: string): string => `${n.toLocaleString("en")} ${n === 1 ? one : many}`

/** Exports the data of an agent. */
export const exportCommand = Command.make("export", {
  handle,
  target: Argument.String("target").pipe(Argument.withDescription("A new folder, or a file whose name ends with .tar")),
  json
}, (given) =>
  Effect.scoped(Effect.gen(function*() {
    const run = yield* Effect.flatMap(AdminClient, (client) => client.connect)
    const data = (command: Parameters<typeof run>[0]) => Effect.map(run(command), (answer) => answer.data)
    const exported = yield* exportAgent(given.target, {
      begin: data({ _tag: "Export", handle: given.handle, operator: whoAmI() }),
      page: (agent, file, after) => data({ _tag: "ExportPage", agent, file, after }),
      part: (agent, file, from) => data({ _tag: "ExportPart", agent, file, from })
    })
    const damaged = exported.damaged === 0
      ? ""
      : `, ${exported.damaged.toLocaleString("en")} of them because the bytes are damaged`
    const missing = exported.missing === 0
      ? ""
      : ` The store does not have ${amount(exported.missing, "file", "files")} more${damaged}.`
    yield* Console.log(
      given.json
        ? JSON.stringify(exported, null, 2)
        : `${exported.place} has what is held about ${exported.handle}: ${amount(exported.rows, "row", "rows")}, ${
          amount(exported.files, "file", "files")
        } of ${amount(exported.bytes, "byte", "bytes")}.${missing}\nIt contains messages: protect it accordingly.`
    )
  }))).pipe(
    Command.withDescription(
      "Write everything that the service holds about an agent, its messages and files too, into a folder or a tar file; run again, it resumes where it was interrupted"
    ),
    Command.withShortDescription("Write everything that is held about an agent into a folder or file"),
    example("For ada, who asked for it", "ada ada.tar")
  )

const printed = (asJson: boolean) => ({ data, text }: OperatorAnswer) =>
  Console.log(asJson ? JSON.stringify(data, null, 2) : text)

/** Backs up a standalone server. */
export const backup = Command.make(
  "backup",
  {
    file: Argument.String("file").pipe(Argument.withDescription("The tar file to make, on the machine of the server")),
    json
  },
  (given) =>
    Effect.flatMap(
      AdminClient,
      (client) => client.perform({ _tag: "Backup", target: resolve(given.file), operator: whoAmI() })
    ).pipe(
      Effect.flatMap(printed(given.json))
    )
).pipe(
  Command.withDescription(
    "Back up a server that has its database in DATA_DIR, with its files, into a tar file; it may run and be used meanwhile"
  ),
  Command.withShortDescription("Back up a server with its database in DATA_DIR, which may run meanwhile"),
  example("Every night", "/var/backups/parley-$(date +%F).tar")
)

/** Restores a backup. */
export const restore = Command.make("restore", {
  file: Argument.String("file").pipe(Argument.withDescription("The tar file that `backup` made")),
  folder: Argument.String("folder").pipe(
    Argument.withDescription("An empty folder, or a new one: the DATA_DIR of the restored server")
  ),
  json
}, (given) =>
  Effect.flatMap(AdminClient, (client) => client.restore(given.file, given.folder, whoAmI())).pipe(
    Effect.flatMap(printed(given.json))
  )).pipe(
    Command.withDescription(
      "Restore a backup into an empty folder, with all counters moved forward so that no number is assigned twice; then start a server on the folder"
    ),
    Command.withShortDescription("Restore a backup into an empty folder"),
    example("And start it", "parley-2026-11-22.tar /var/lib/parley")
  )

/** Frees the disk space of deleted rows, and removes their bytes, while the server is stopped. */
export const compact = Command.make(
  "compact",
  { json },
  (given) => Effect.flatMap(AdminClient, (client) => client.compact(whoAmI())).pipe(Effect.flatMap(printed(given.json)))
).pipe(
  Command.withDescription(
    "Rewrite the files of a stopped server's database in DATA_DIR, so that no file has deleted or erased data, and their disk space is free again. The command may be interrupted and run again"
  ),
  Command.withShortDescription("Free the disk space of deleted rows, while the server is stopped"),
  example("After stopping the server")
)

/** Erases an agent. */
export const erase = Command.make("erase", {
  handle,
  yes: Flag.Boolean("yes").pipe(
    Flag.withDescription("Confirm the erasure, which cannot be undone"),
    Flag.withDefault(false)
  ),
  reason,
  json
}, (given) =>
  given.yes
    ? Effect.flatMap(AdminClient, (client) =>
      client.perform({
        _tag: "Erase",
        handle: given.handle,
        operator: whoAmI(),
        reason: Option.getOrNull(given.reason)
      })).pipe(
        Effect.flatMap(({ data, text }) => Console.log(given.json ? JSON.stringify(data, null, 2) : text))
      )
    : Effect.fail({
      message: `Nothing was done. Run the command with --yes to erase ${given.handle}. An erasure cannot be undone.`
    })).pipe(
    Command.withDescription(
      "Delete an agent for good, with its address and other data that is not needed; says what remains, and why"
    ),
    Command.withShortDescription("Delete an agent and erase its data"),
    example("Ada, who asked for it", 'ada --yes --reason "asked by mail"')
  )
