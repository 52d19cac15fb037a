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

/** No sockets are here: the servers see the rows, and close theirs (EnforcementWatch). */
const nobodyConnected = Layer.succeed(Sessions, Sessions.of({ disconnect: () => Effect.void, changed: () => Effect.void }))

/** What is left to do for an account that ended is in the database, and a server's job. */
const leftToServers = Layer.succeed(
  Deletions,
  Deletions.of({ begin: () => Effect.void, sweep: Effect.succeed({ rows: 0, more: false }) })
)

/** The operator's commands on a database alone, in a process that serves nobody. */
export const layer = Operator.layer.pipe(
  Layer.provide(Layer.mergeAll(Accounts.layer, Enforcement.layer)),
  Layer.provide(Layer.mergeAll(Agents.layer, leftToServers, nobodyConnected)),
  Layer.provide(Layer.mergeAll(AgentsRepo.layer, EnforcementRepo.layer))
)

const decode = Schema.decodeUnknownEffect(Schema.toType(OperatorCommand))

/** What the shell gave, checked as the server checks it. */
export const checked = (command: OperatorCommand): Effect.Effect<OperatorCommand, OperatorRefused> =>
  Effect.mapError(decode(command), (error) => new OperatorRefused({ message: error.message }))
