import { Effect, Layer, Schema } from "effect"
import { Accounts } from "./agents/Accounts.ts"
import { Agents } from "./agents/Agents.ts"
import { AgentsRepo } from "./agents/AgentsRepo.ts"
import { Deletions } from "./agents/Deletions.ts"
import { Enforcement } from "./enforcement/Enforcement.ts"
import { EnforcementRepo } from "./enforcement/EnforcementRepo.ts"
import { Operator, OperatorRefused } from "./operator/Operator.ts"
import { OperatorCommand } from "./operator/OperatorCommand.ts"
import { Sessions } from "./agents/Sessions.ts"

/** This process has no sockets. The servers poll the accounts' rows and close their own sockets (EnforcementWatch). */
const nobodyConnected = Layer.succeed(Sessions, Sessions.of({ disconnect: () => Effect.void, changed: () => Effect.void }))

/** The steps of a deletion are queued in the database, where a server's job finds them. */
const leftToServers = Layer.succeed(
  Deletions,
  Deletions.of({ begin: () => Effect.void, sweep: Effect.succeed({ rows: 0, more: false }) })
)

/** The operator's commands directly on the database, in a process that serves no clients. */
export const layer = Operator.layer.pipe(
  Layer.provide(Layer.mergeAll(Accounts.layer, Enforcement.layer)),
  Layer.provide(Layer.mergeAll(Agents.layer, leftToServers, nobodyConnected)),
  Layer.provide(Layer.mergeAll(AgentsRepo.layer, EnforcementRepo.layer))
)

const decode = Schema.decodeUnknownEffect(Schema.toType(OperatorCommand))

/** Checks a command from the shell as the server does. */
export const checked = (command: OperatorCommand): Effect.Effect<OperatorCommand, OperatorRefused> =>
  Effect.mapError(decode(command), (error) => new OperatorRefused({ message: error.message }))
