import type { Exported } from "#domain/archives/AgentExport"
import type { EffectiveSetting } from "#infrastructure/platform/Config"
import { Console, Context, Effect, Option, Schema } from "effect"
import type { Answers } from "./Answers.ts"
import { type ApiCall, OperatorRefused, OTHER_VERSION } from "./ApiCall.ts"
import { lines } from "./TextTable.ts"

/** The output of a command: text for a person, and data for a program. */
export interface Printed {
  readonly text: string
  readonly data: unknown
}

/** Calls the operators' API, of the running server or in this process on the database. */
export class AdminClient extends Context.Service<AdminClient, {
  readonly call: (call: ApiCall) => Effect.Effect<unknown, OperatorRefused>
  /** The schemas of the responses that commands decode. */
  readonly answers: Answers
  /** Calls the running server at this URL. If `server` is null, calls the server of this environment. */
  readonly ask: (call: ApiCall, server: string | null) => Effect.Effect<unknown, OperatorRefused>
  /** The effective settings of the running server or, if there is none, of this environment. */
  readonly config: Effect.Effect<ReadonlyArray<EffectiveSetting>, OperatorRefused>
  /** Writes all data about an agent into a folder or a tar file. A repeated call resumes an interrupted export. */
  readonly exportAgent: (handle: string, target: string) => Effect.Effect<Exported, OperatorRefused>
  /** Restores a backup below itself, reads its database, and removes it again. */
  readonly checkBackup: (file: string) => Effect.Effect<Printed, OperatorRefused>
  /** Restores a backup, a file or `s3://BUCKET/KEY`, into an empty folder, with which a server can then start. */
  readonly restore: (file: string, folder: string) => Effect.Effect<Printed, OperatorRefused>
  /** Rewrites the files of a stopped server's own database without the deleted rows. */
  readonly compact: Effect.Effect<Printed, OperatorRefused>
}>()("parley/admin/AdminClient") {}

/** Decodes a response of the API. */
export const understood = <A>(schema: Schema.Codec<A, unknown>) => {
  const decode = Schema.decodeUnknownEffect(schema)
  return (answer: unknown) => Effect.mapError(decode(answer), () => new OperatorRefused({ message: OTHER_VERSION }))
}

/** Calls the API and decodes the response with the schema that `schemaOf` selects. */
export const call = <A>(
  schemaOf: (answers: Answers) => Schema.Codec<A, unknown>,
  given: ApiCall
): Effect.Effect<A, OperatorRefused, AdminClient> =>
  Effect.flatMap(AdminClient, (client) => Effect.flatMap(client.call(given), understood(schemaOf(client.answers))))

/** Prints a response as `shown` renders it. */
export const print = <A, E, R>(
  asJson: boolean,
  answered: Effect.Effect<A, E, R>,
  shown: (answer: A) => Printed
): Effect.Effect<void, E, R> =>
  Effect.flatMap(answered, (answer) => {
    const { data, text } = shown(answer)
    return Console.log(asJson ? JSON.stringify(data, null, 2) : text)
  })

/** Selects these fields of a response, in this order. */
export const picked = <A>(from: A, names: ReadonlyArray<keyof A & string>): Readonly<Record<string, unknown>> =>
  Object.fromEntries(names.map((name) => [name, from[name]]))

/** Calls a running server and prints the unchanged response. */
export const ask = (
  given: { readonly json: boolean; readonly server: Option.Option<string> },
  asked: ApiCall
): Effect.Effect<void, OperatorRefused, AdminClient> =>
  print(
    given.json,
    Effect.flatMap(AdminClient, (client) => client.ask(asked, Option.getOrNull(given.server))),
    (answer) => ({ text: lines(answer), data: answer })
  )
