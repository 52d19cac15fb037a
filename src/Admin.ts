import { Effect, Layer, Schema } from "effect"
import { Accounts } from "./agents/Accounts.ts"
import { Agents } from "./agents/Agents.ts"
import { AgentsRepo } from "./agents/AgentsRepo.ts"
import { AddressBooks } from "./contacts/AddressBooks.ts"
import { ContactsRepo } from "./contacts/ContactsRepo.ts"
import { Deliveries } from "./deliveries/Deliveries.ts"
import { DeliveriesRepo } from "./deliveries/DeliveriesRepo.ts"
import { Enforcement } from "./enforcement/Enforcement.ts"
import { EnforcementRepo } from "./enforcement/EnforcementRepo.ts"
import { Departures } from "./groups/Departures.ts"
import { Operator, OperatorRefused } from "./operator/Operator.ts"
import { OperatorCommand } from "./operator/OperatorCommand.ts"
import { Sessions } from "./realtime/Gateway.ts"
import { Subscriptions } from "./webhooks/Subscriptions.ts"
import { WebhooksRepo } from "./webhooks/WebhooksRepo.ts"

/** No sockets are here: the servers see the rows, and close theirs (EnforcementWatch). */
const nobodyConnected = Layer.succeed(Sessions, Sessions.of({ disconnect: () => Effect.void }))

/** The operator's commands on a database alone, in a process that serves nobody. */
export const layer = Operator.layer.pipe(
  Layer.provide(Layer.mergeAll(Accounts.layer, Enforcement.layer)),
  Layer.provide(Layer.mergeAll(AddressBooks.layer, Subscriptions.layer, Deliveries.layerInboxes, Departures.layer, nobodyConnected)),
  Layer.provide(Agents.layer),
  Layer.provide(Layer.mergeAll(
    AgentsRepo.layer,
    ContactsRepo.layer,
    DeliveriesRepo.layer,
    EnforcementRepo.layer,
    WebhooksRepo.layer
  ))
)

const decode = Schema.decodeUnknownEffect(Schema.toType(OperatorCommand))

/** What the shell gave, checked as the server checks it. */
export const checked = (command: OperatorCommand): Effect.Effect<OperatorCommand, OperatorRefused> =>
  Effect.mapError(decode(command), (error) => new OperatorRefused({ message: error.message }))
