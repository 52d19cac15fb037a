import { Argument, Command, Flag } from "effect/cli"

export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("Print JSON instead of text"),
  Flag.withDefault(false)
)
export const limit = Flag.Int("limit").pipe(
  Flag.withDescription("The most entries to show, the newest first (up to 1000)"),
  Flag.withDefault(50)
)
export const cursor = Flag.String("cursor").pipe(
  Flag.withDescription("Continues a list: `next_cursor` of the answer before"),
  Flag.optional
)
export const reason = Flag.String("reason").pipe(Flag.withDescription("Why, for the audit log"), Flag.optional)
export const handle = Argument.String("handle").pipe(Argument.withDescription("The agent's handle"))
export const server = Flag.String("server").pipe(
  Flag.withDescription(
    "Address of a running server, as http://host:port; by default the one of this environment (HOST, PORT), or any node of its database"
  ),
  Flag.optional
)

/** Adds an example to a command. `rest` is the text after the command's name. */
export const example = (description: string, rest = "") =>
  Command.withExamples(({ commandPath }) => [{ command: [...commandPath, rest].join(" ").trimEnd(), description }])
