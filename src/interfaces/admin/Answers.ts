import { Sessions } from "#interfaces/console/AccessApi"
import { AgentDetail, AgentsPage, CreatedAgents, Erased } from "#interfaces/console/AgentsApi"
import { BackedUp, Link, MovedCounters, ProgramToken } from "#interfaces/console/CommandsApi"
import { InvitationRow, InvitationsPage, NewInvitation } from "#interfaces/console/InvitationsApi"
import { AuditPage } from "#interfaces/console/LimitsApi"
import { DeadDeliveriesPage, ReportsPage } from "#interfaces/console/ModerationApi"

/**
 * The schemas of the responses that commands decode. They are in a file of their own, because importing the schemas
 * loads the operators' API and much of the server's code. Commands get the schemas from `AdminClient`, whose layer is
 * loaded only when a command runs. So the help of a command loads none of this code.
 */
export const answers = {
  AgentDetail,
  AgentsPage,
  AuditPage,
  BackedUp,
  CreatedAgents,
  DeadDeliveriesPage,
  Erased,
  InvitationRow,
  InvitationsPage,
  Link,
  MovedCounters,
  NewInvitation,
  ProgramToken,
  ReportsPage,
  Sessions
}
export type Answers = typeof answers
