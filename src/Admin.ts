import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { AgentsRepo } from "#domain/agents/AgentsRepo"
import { Deletions } from "#domain/agents/Deletions"
import { Sessions } from "#domain/agents/Sessions"
import { Skills } from "#domain/agents/Skills"
import { Budgets } from "#domain/auth/Budgets"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { EnforcementRepo } from "#domain/enforcement/EnforcementRepo"
import { Groups } from "#domain/groups/Groups"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { Readiness } from "#infrastructure/platform/Readiness"
import { Limits } from "#infrastructure/rates/Limits"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { AccountRescue } from "#interfaces/operator/AccountRescue"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { Announcements } from "#interfaces/operator/Announcements"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { Backups } from "#interfaces/operator/Backups"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { DeadDeliveries } from "#interfaces/operator/DeadDeliveries"
import { Erasure } from "#interfaces/operator/Erasure"
import { GrantAdmin } from "#interfaces/operator/GrantAdmin"
import { Invitations } from "#interfaces/operator/Invitations"
import { LimitChanges } from "#interfaces/operator/LimitChanges"
import { NearLimits } from "#interfaces/operator/NearLimits"
import { NodeProblems } from "#interfaces/operator/NodeProblems"
import { Nodes } from "#interfaces/operator/Nodes"
import { OperatedGroups } from "#interfaces/operator/OperatedGroups"
import { Removals } from "#interfaces/operator/Removals"
import { Reports } from "#interfaces/operator/Reports"
import { Effect, Layer } from "effect"
import { CommandLineHttp } from "./Console.ts"
import * as Tables from "./Tables.ts"

/**
 * This process has no sockets. The servers poll the rows of accounts and close the sockets themselves
 * (EnforcementWatch).
 */
const nobodyConnected = Layer.succeed(
  Sessions,
  Sessions.of({ disconnect: () => Effect.void, changed: () => Effect.void })
)

/** This process does not run the steps of a deletion. They are queued in the database, and a server's job runs them. */
const leftToServers = Layer.succeed(
  Deletions,
  Deletions.of({ begin: () => Effect.void, sweep: Effect.succeed({ rows: 0, more: false }) })
)

/**
 * This process calls no nodes and serves no clients. A command that needs the other functions of these services calls a
 * running server.
 */
const withoutServer = Layer.mergeAll(
  Layer.mock(Budgets)({ addressOf: () => "" }),
  Layer.mock(AccountRescue)({}),
  Layer.mock(Announcements)({}),
  Layer.mock(GrantAdmin)({ list: () => Effect.succeed([]) }),
  Layer.mock(LimitChanges)({}),
  Layer.mock(Removals)({}),
  Layer.mock(NearLimits)({}),
  Layer.mock(NodeProblems)({}),
  Layer.mock(Nodes)({ self: () => "", agent: () => Effect.succeed({ sockets: [], rates: [], silent: [] }) }),
  Layer.provide(RateLimits.layerMemory, Limits.layer),
  Readiness.layer
)

/** The operators' API directly on the database, in a process that serves no clients. */
export const routes = CommandLineHttp.pipe(
  Layer.provide([
    AgentAdmin.layer,
    Layer.provideMerge(Backups.layer, AuditLog.layer),
    ConsoleAccess.layer,
    DeadDeliveries.layer,
    Erasure.layer,
    Invitations.layer,
    OperatedGroups.layer,
    Reports.layer,
    withoutServer
  ]),
  Layer.provide(Layer.mergeAll(Accounts.layer, Enforcement.layer)),
  Layer.provide(Layer.mergeAll(Agents.layer, leftToServers, nobodyConnected)),
  Layer.provide(
    Layer.mergeAll(
      AgentsRepo.layer,
      Skills.layer,
      EnforcementRepo.layer,
      WebhookSignals.layer,
      Tables.layer,
      Layer.mock(Groups)({})
    )
  )
)
