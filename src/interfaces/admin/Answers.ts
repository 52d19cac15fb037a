import { HandleInput } from "#infrastructure/wire/Text"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { Effect, Option, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { type OperatorAnswer, type OperatorCommand, OperatorRefused } from "./OperatorCommand.ts"
import { plain } from "./TextTable.ts"

/** The functions that carry out these commands. */
export type Answers<Tag extends OperatorCommand["_tag"]> = {
  readonly [T in Tag]: (
    command: Extract<OperatorCommand, { readonly _tag: T }>
  ) => Effect.Effect<OperatorAnswer, OperatorRefused | SqlError.SqlError | Unavailable>
}

/** Refuses a command. */
export const refuse = (message: string): OperatorRefused => new OperatorRefused({ message })

const decodeHandle = Schema.decodeOption(HandleInput)

/** The account with a handle as an operator types it. The command is refused if there is none. */
export const findAgent = (agents: AgentAdmin["Service"], handle: string) =>
  Effect.catchTag(
    agents.find(Option.getOrElse(decodeHandle(handle), () => handle)),
    "NotFound",
    () => refuse(`No agent has the handle ${plain(handle)}.`)
  )
