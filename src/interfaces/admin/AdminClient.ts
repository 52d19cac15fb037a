import { Context, type Effect, type Scope } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { userInfo } from "node:os"
import type { OperatorAnswer, OperatorCommand } from "./OperatorCommand.ts"

/** A call of the operators' API (wire.md O.1). */
export interface ApiRequest {
  readonly method: "GET" | "POST" | "PUT" | "DELETE"
  readonly path: string
  readonly body?: unknown
  readonly operator: string
  /** The server's address; null for the server of this environment. */
  readonly server: string | null
}

/** Carries out commands through the running server, or in this process. */
export class AdminClient extends Context.Service<AdminClient, {
  readonly perform: (command: OperatorCommand) => Effect.Effect<OperatorAnswer, { readonly message: string }>
  /**
   * For many commands. Either the server that runs now carries out all of them, or this process does until the scope
   * ends.
   */
  readonly connect: Effect.Effect<
    (command: OperatorCommand) => Effect.Effect<OperatorAnswer, { readonly message: string }>,
    { readonly message: string },
    Scope.Scope
  >
  /** Restores a backup into an empty folder, on which a server can then start. */
  readonly restore: (
    file: string,
    folder: string,
    operator: string
  ) => Effect.Effect<OperatorAnswer, { readonly message: string }>
  /** Rewrites the files of a stopped server's own database, without the deleted rows. */
  readonly compact: (operator: string) => Effect.Effect<OperatorAnswer, { readonly message: string }>
  /** Calls the operators' API of a running server and returns the body of the answer. */
  readonly ask: (request: ApiRequest) => Effect.Effect<unknown, { readonly message: string }>
}>()("parley/admin/AdminClient") {}

/** The name of the operating system's user; its number if it has none, as in containers. */
export const whoAmI = (): string => {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`
  }
}

export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("Print JSON instead of text"),
  Flag.withDefault(false)
)
export const cursor = Flag.String("cursor").pipe(
  Flag.withDescription("Continues a list: `next_cursor` of the answer before"),
  Flag.optional
)
export const reason = Flag.String("reason").pipe(Flag.withDescription("Why, for the audit log"), Flag.optional)
export const handle = Argument.String("handle").pipe(Argument.withDescription("The agent's handle"))

/** Adds an example to a command; `rest` is what is typed after its name. */
export const example = (description: string, rest = "") =>
  Command.withExamples(({ commandPath }) => [{ command: [...commandPath, rest].join(" ").trimEnd(), description }])
