import { Layer } from "effect"
import { PushConfigsRepo } from "./a2a/PushConfigsRepo.ts"
import { TaskPushes } from "./a2a/TaskPushes.ts"
import { Tasks } from "./a2a/Tasks.ts"
import { TasksRepo } from "./a2a/TasksRepo.ts"
import { Accounts } from "./agents/Accounts.ts"
import { ActiveMutes } from "./push/ActiveMutes.ts"
import { LiveAgents, SessionsLive } from "./push/LiveAgents.ts"
import { Agents } from "./agents/Agents.ts"
import { AgentsRepo } from "./agents/AgentsRepo.ts"
import { DeletionsLive } from "./accounts/DeletionsLive.ts"
import { DeletionsRepo } from "./accounts/DeletionsRepo.ts"
import { ErasuresRepo } from "./accounts/ErasuresRepo.ts"
import { Avatars } from "./avatars/Avatars.ts"
import { AvatarsRepo } from "./avatars/AvatarsRepo.ts"
import { PushRouter } from "./push/PushRouter.ts"
import { ColdSlots } from "./push/ColdSlots.ts"
import { Attachments } from "./attachments/Attachments.ts"
import { AttachmentsRepo } from "./attachments/AttachmentsRepo.ts"
import { Contacts } from "./contacts/Contacts.ts"
import { ContactsRepo } from "./contacts/ContactsRepo.ts"
import { ConversationFeed } from "./conversations/ConversationFeed.ts"
import { Conversations } from "./conversations/Conversations.ts"
import { ConversationsRepo } from "./conversations/ConversationsRepo.ts"
import { ReadingRepo } from "./conversations/ReadingRepo.ts"
import { MessageRetention } from "./conversations/MessageRetention.ts"
import { Deliveries } from "./deliveries/Deliveries.ts"
import { DeliveriesRepo } from "./deliveries/DeliveriesRepo.ts"
import { Directory } from "./directory/Directory.ts"
import { DirectoryRepo } from "./directory/DirectoryRepo.ts"
import { Enforcement } from "./enforcement/Enforcement.ts"
import { EnforcementRepo } from "./enforcement/EnforcementRepo.ts"
import { EnforcementWatch } from "./enforcement/EnforcementWatch.ts"
import { Groups } from "./groups/Groups.ts"
import { GroupReads } from "./messages/GroupReads.ts"
import { GroupsRepo } from "./groups/GroupsRepo.ts"
import * as Jobs from "./Jobs.ts"
import { Mutes } from "./mutes/Mutes.ts"
import { MutesRepo } from "./mutes/MutesRepo.ts"
import { Blobs } from "./files/Blobs.ts"
import { IdempotencyRepo } from "./idempotency/IdempotencyRepo.ts"
import { IdempotentIds } from "./idempotency/IdempotentIds.ts"
import { StoredAnswers } from "./idempotency/StoredAnswers.ts"
import { Mailer } from "./platform/Mailer.ts"
import { PresenceRepo } from "./presence/PresenceRepo.ts"
import { Presences } from "./presence/Presences.ts"
import { PresenceStore } from "./presence/PresenceStore.ts"
import { Limits } from "./rates/Limits.ts"
import { LargeReads } from "./rates/LargeReads.ts"
import { RateLimits } from "./rates/RateLimits.ts"
import { Secrets } from "./platform/Secrets.ts"
import { AddressAttemptsRepo } from "./registration/AddressAttemptsRepo.ts"
import { AddressLimits } from "./registration/AddressLimits.ts"
import { Codes } from "./registration/Codes.ts"
import { CodesRepo } from "./registration/CodesRepo.ts"
import { Registration } from "./registration/Registration.ts"
import { Replies } from "./replies/Replies.ts"
import { RepliesRepo } from "./replies/RepliesRepo.ts"
import { Backlog } from "./service/Backlog.ts"
import { ErasedFiles } from "./operator/ErasedFiles.ts"
import { Vacuum } from "./database/Vacuum.ts"
import { EventData } from "./webhooks/EventData.ts"
import { PresencePosts } from "./webhooks/PresencePosts.ts"
import { TaskPosts } from "./webhooks/TaskPosts.ts"
import { WebhookActors } from "./webhooks/WebhookActors.ts"
import { Webhooks } from "./webhooks/Webhooks.ts"
import { WebhookSignals } from "./messages/WebhookSignals.ts"
import { WebhooksRepo } from "./webhooks/WebhooksRepo.ts"

/** The services of the rooms, on a database, a cluster and the platform's small services. */
export const services = Registration.layer.pipe(
  Layer.provideMerge(TaskPushes.layer),
  Layer.provideMerge(Tasks.layer),
  Layer.provideMerge(Accounts.layer),
  Layer.provideMerge(DeletionsLive),
  Layer.provideMerge(Layer.mergeAll(Mutes.layer, Presences.layer, Contacts.layer, Directory.layer, EnforcementWatch.layer)),
  Layer.provideMerge(Conversations.layer),
  Layer.provideMerge(PresencePosts.layer),
  Layer.provideMerge(Layer.mergeAll(Groups.layer, WebhookActors.layer, Webhooks.layer)),
  Layer.provideMerge(Layer.mergeAll(Attachments.layer, Avatars.layer, Replies.layer, StoredAnswers.layer)),
  Layer.provideMerge(Layer.mergeAll(Codes.layer, AddressLimits.layer, Enforcement.layer, EventData.layer)),
  Layer.provideMerge(Deliveries.layer),
  Layer.provideMerge(SessionsLive),
  Layer.provideMerge(LiveAgents.layer),
  Layer.provideMerge(PushRouter.layer),
  Layer.provideMerge(Layer.mergeAll(Agents.layer, Blobs.layer, ConversationFeed.layer, ErasedFiles.layer)),
  Layer.provideMerge(Layer.mergeAll(
    ActiveMutes.layer,
    AddressAttemptsRepo.layer,
    AgentsRepo.layer,
    AttachmentsRepo.layer,
    AvatarsRepo.layer,
    Backlog.layer,
    CodesRepo.layer,
    ColdSlots.layer,
    ContactsRepo.layer,
    ConversationsRepo.layer,
    ReadingRepo.layer,
    DeliveriesRepo.layer,
    DeletionsRepo.layer,
    DirectoryRepo.layer,
    EnforcementRepo.layer,
    ErasuresRepo.layer,
    GroupReads.layer,
    GroupsRepo.layer,
    IdempotencyRepo.layer,
    IdempotentIds.layer,
    Mailer.layer,
    MessageRetention.layer,
    MutesRepo.layer,
    PresenceRepo.layer,
    PushConfigsRepo.layer,
    PresenceStore.layer,
    LargeReads.layer,
    RateLimits.layer,
    RepliesRepo.layer,
    Secrets.layer,
    TaskPosts.layer,
    TasksRepo.layer,
    Vacuum.layer,
    WebhookSignals.layer,
    WebhooksRepo.layer
  )),
  Layer.provideMerge(Limits.layer)
)

/** The services, and the jobs. */
export const layer = Jobs.layer.pipe(Layer.provideMerge(services))
