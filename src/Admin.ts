import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { AgentsRepo } from "#domain/agents/AgentsRepo"
import { Deletions } from "#domain/agents/Deletions"
import { Sessions } from "#domain/agents/Sessions"
import { Skills } from "#domain/agents/Skills"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { EnforcementRepo } from "#domain/enforcement/EnforcementRepo"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { Operator } from "#interfaces/admin/Operator"
import { OperatorCommand, OperatorRefused } from "#interfaces/admin/OperatorCommand"
import { Effect, Layer, Schema } from "effect"
import * as Tables from "./Tables.ts"

/** This process has no sockets. The servers poll the accounts' rows and close their own sockets (EnforcementWatch). */
const nobodyConnected = Layer.succeed(
  Sessions,
  Sessions.of({ disconnect: () => Effect.void, changed: () => Effect.void })
)

/** The steps of a deletion are queued in the database, where a server's job finds them. */
const leftToServers = Layer.succeed(
  Deletions,
  Deletions.of({ begin: () => Effect.void, sweep: Effect.succeed({ rows: 0, more: false }) })
)

/** The operator's commands directly on the database, in a process that serves no clients. */
export const layer = Operator.layer.pipe(
  Layer.provide(Layer.mergeAll(Accounts.layer, Enforcement.layer)),
  Layer.provide(Layer.mergeAll(Agents.layer, leftToServers, nobodyConnected)),
  Layer.provide(
    Layer.mergeAll(AgentsRepo.layer, Skills.layer, EnforcementRepo.layer, WebhookSignals.layer, Tables.layer)
  )
)

const decode = Schema.decodeUnknownEffect(OperatorCommand)

/** Checks a command from the shell as the server does. */
export const checked = (command: OperatorCommand): Effect.Effect<OperatorCommand, OperatorRefused> =>
  Effect.mapError(decode(command), (error) => new OperatorRefused({ message: error.message }))
