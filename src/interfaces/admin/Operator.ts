import { AgentPages } from "#domain/archives/AgentPages"
import { NodeTable } from "#infrastructure/cluster/NodeTable"
import { BlobParts } from "#infrastructure/files/BlobParts"
import { Config, effective, type Settings } from "#infrastructure/platform/Config"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { DeadDeliveries } from "#interfaces/operator/DeadDeliveries"
import { Erasure } from "#interfaces/operator/Erasure"
import { NewAgents } from "#interfaces/operator/NewAgents"
import { Reports } from "#interfaces/operator/Reports"
import { RestoredCounters } from "#interfaces/operator/RestoredCounters"
import { Context, Effect, Layer, Match } from "effect"
import type { SqlError } from "effect/sql"
import { accessAnswers } from "./AccessAnswers.ts"
import { agentAnswers } from "./AgentAnswers.ts"
import { archiveAnswers } from "./ArchiveAnswers.ts"
import { listAnswers } from "./ListAnswers.ts"
import type { OperatorAnswer, OperatorCommand, OperatorRefused } from "./OperatorCommand.ts"
import { table } from "./TextTable.ts"

/** Every setting in effect. Of a secret, it shows only whether it is set. */
export const showConfig = (config: Settings): OperatorAnswer => {
  const rows = effective(config)
  return {
    text: table([
      ["variable", "value", ""],
      ...rows.map(({ isDefault, name, value }) => [name, value, isDefault ? "(default)" : ""])
    ]),
    data: rows.map((row) => ({ ...row }))
  }
}

/**
 * The operators' commands on the database (docs/operations.md). The services of `operator/` carry out the actions and
 * write their audit rows. A command that only reads writes its row before it reads.
 */
export class Operator extends Context.Service<Operator, {
  readonly run: (
    command: OperatorCommand
  ) => Effect.Effect<OperatorAnswer, OperatorRefused | SqlError.SqlError | Unavailable>
}>()("parley/admin/Operator") {
  static readonly layer = Layer.effect(
    Operator,
    Effect.gen(function*() {
      const config = yield* Config
      const run = Match.typeTags<OperatorCommand>()({
        ...yield* agentAnswers,
        ...yield* listAnswers,
        ...yield* accessAnswers,
        ...yield* archiveAnswers,
        Config: () => Effect.succeed(showConfig(config))
      })
      return Operator.of({ run })
    })
  ).pipe(Layer.provide([
    AgentAdmin.layer,
    AuditLog.layer,
    ConsoleAccess.layer,
    DeadDeliveries.layer,
    Erasure.layer,
    NewAgents.layer,
    NodeTable.layer,
    Reports.layer,
    RestoredCounters.layer,
    Layer.provide(AgentPages.layer, BlobParts.layer)
  ]))
}
