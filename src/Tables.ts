import { accountsTables } from "#domain/accounts/AccountsTables"
import { agentsTables } from "#domain/agents/AgentsTables"
import { attachmentsTables } from "#domain/attachments/AttachmentsTables"
import { avatarsTables } from "#domain/avatars/AvatarsTables"
import { contactsTables } from "#domain/contacts/ContactsTables"
import { hiddenMessagesTables } from "#domain/conversations/ConversationsTables"
import { deliveriesTables } from "#domain/deliveries/DeliveriesTables"
import { enforcementTables } from "#domain/enforcement/EnforcementTables"
import { groupsTables } from "#domain/groups/GroupsTables"
import { idempotencyTables } from "#domain/idempotency/IdempotencyTables"
import { messagesTables } from "#domain/messages/MessagesTables"
import { mutesTables } from "#domain/mutes/MutesTables"
import { oauthTables } from "#domain/oauth/OAuthTables"
import { presenceTables } from "#domain/presence/PresenceTables"
import { pushTables } from "#domain/push/PushTables"
import { reactionsTables } from "#domain/reactions/ReactionsTables"
import { registrationTables } from "#domain/registration/RegistrationTables"
import { repliesTables } from "#domain/replies/RepliesTables"
import { searchTables } from "#domain/search/SearchTables"
import { webhooksTables } from "#domain/webhooks/WebhooksTables"
import { clusterTables } from "#infrastructure/cluster/NodeTable"
import { migrationsTables } from "#infrastructure/database/Migrations"
import { secretsTables } from "#infrastructure/database/Secrets"
import { type OwnedTable, Tables } from "#infrastructure/database/Tables"
import { a2aTables } from "#interfaces/a2a/A2aTables"
import { eventTables } from "#interfaces/mcp/events/EventTables"
import { limitChangesTables } from "#interfaces/operator/LimitChanges"
import { operatorTables } from "#interfaces/operator/OperatorTables"
import { Layer } from "effect"

/**
 * The tables of all modules. An erasure processes them in this order, and an export lists the tables that it leaves out
 * in this order.
 */
export const tables: ReadonlyArray<OwnedTable> = [
  migrationsTables,
  secretsTables,
  limitChangesTables,
  agentsTables,
  registrationTables,
  idempotencyTables,
  hiddenMessagesTables,
  messagesTables,
  reactionsTables,
  pushTables,
  deliveriesTables,
  avatarsTables,
  attachmentsTables,
  groupsTables,
  webhooksTables,
  presenceTables,
  mutesTables,
  repliesTables,
  enforcementTables,
  contactsTables,
  searchTables,
  oauthTables,
  accountsTables,
  a2aTables,
  eventTables,
  operatorTables,
  clusterTables
].flat()

export const layer = Layer.succeed(Tables, tables)
