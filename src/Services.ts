import { DeletionsLive } from "#domain/accounts/DeletionsLive"
import { DeletionsRepo } from "#domain/accounts/DeletionsRepo"
import { ErasuresRepo } from "#domain/accounts/ErasuresRepo"
import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { AgentsRepo } from "#domain/agents/AgentsRepo"
import { Skills } from "#domain/agents/Skills"
import { Attachments } from "#domain/attachments/Attachments"
import { AttachmentsRepo } from "#domain/attachments/AttachmentsRepo"
import { SIGNED_URLS } from "#domain/attachments/FilesHttp"
import { Avatars } from "#domain/avatars/Avatars"
import { AvatarsRepo } from "#domain/avatars/AvatarsRepo"
import { Contacts } from "#domain/contacts/Contacts"
import { ContactsRepo } from "#domain/contacts/ContactsRepo"
import { Conversations } from "#domain/conversations/Conversations"
import { HistoryRepo } from "#domain/conversations/HistoryRepo"
import { MessageRetention } from "#domain/conversations/MessageRetention"
import { SendBudgets } from "#domain/conversations/SendBudgets"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { DeliveriesRepo } from "#domain/deliveries/DeliveriesRepo"
import { Outcomes } from "#domain/deliveries/Outcomes"
import { OutcomesRepo } from "#domain/deliveries/OutcomesRepo"
import { DirectConversations } from "#domain/direct/DirectConversations"
import { DirectFeed } from "#domain/direct/DirectFeed"
import { DirectRepo } from "#domain/direct/DirectRepo"
import { SystemMessages } from "#domain/direct/SystemMessages"
import { Directory } from "#domain/directory/Directory"
import { DirectoryRepo } from "#domain/directory/DirectoryRepo"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { EnforcementRepo } from "#domain/enforcement/EnforcementRepo"
import { EnforcementWatch } from "#domain/enforcement/EnforcementWatch"
import { Groups } from "#domain/groups/Groups"
import { GroupsRepo } from "#domain/groups/GroupsRepo"
import { IdempotencyRepo } from "#domain/idempotency/IdempotencyRepo"
import { IdempotentIds } from "#domain/idempotency/IdempotentIds"
import { StoredAnswers } from "#domain/idempotency/StoredAnswers"
import { GroupReads } from "#domain/memberships/GroupReads"
import { Participations } from "#domain/memberships/Participations"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { Mutes } from "#domain/mutes/Mutes"
import { MutesRepo } from "#domain/mutes/MutesRepo"
import { AuthorizationRequests } from "#domain/oauth/AuthorizationRequests"
import { Clients } from "#domain/oauth/Clients"
import { Grants } from "#domain/oauth/Grants"
import { GrantsRepo } from "#domain/oauth/GrantsRepo"
import { Refusals } from "#domain/oauth/Refusals"
import { RequestsRepo } from "#domain/oauth/RequestsRepo"
import { PresenceRepo } from "#domain/presence/PresenceRepo"
import { Presences } from "#domain/presence/Presences"
import { PresenceStore } from "#domain/presence/PresenceStore"
import { ActiveMutes } from "#domain/push/ActiveMutes"
import { ColdSlots } from "#domain/push/ColdSlots"
import { LiveAgents, SessionsLive } from "#domain/push/LiveAgents"
import { PushRouter } from "#domain/push/PushRouter"
import { Reactions } from "#domain/reactions/Reactions"
import { ReactionsRepo } from "#domain/reactions/ReactionsRepo"
import { AddressAttemptsRepo } from "#domain/registration/AddressAttemptsRepo"
import { AddressLimits } from "#domain/registration/AddressLimits"
import { Admissions } from "#domain/registration/Admissions"
import { Codes } from "#domain/registration/Codes"
import { CodesRepo } from "#domain/registration/CodesRepo"
import { InvitationsRepo } from "#domain/registration/InvitationsRepo"
import { PublicRegistration } from "#domain/registration/PublicRegistration"
import { Registration } from "#domain/registration/Registration"
import { Replies } from "#domain/replies/Replies"
import { RepliesRepo } from "#domain/replies/RepliesRepo"
import { MessageSearch } from "#domain/search/MessageSearch"
import { SearchRepo } from "#domain/search/SearchRepo"
import { WordIndex } from "#domain/search/WordIndex"
import { EventData } from "#domain/webhooks/EventData"
import { PostSources } from "#domain/webhooks/PostSources"
import { PresencePosts } from "#domain/webhooks/PresencePosts"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { WebhooksRepo } from "#domain/webhooks/WebhooksRepo"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import { Secrets } from "#infrastructure/database/Secrets"
import { Vacuum } from "#infrastructure/database/Vacuum"
import { blobsLive } from "#infrastructure/files/BlobsLive"
import { Mailer, MailQueue } from "#infrastructure/platform/Mailer"
import { Limits } from "#infrastructure/rates/Limits"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { PushConfigsRepo } from "#interfaces/a2a/PushConfigsRepo"
import { TaskPushes } from "#interfaces/a2a/TaskPushes"
import { Tasks } from "#interfaces/a2a/Tasks"
import { TasksRepo } from "#interfaces/a2a/TasksRepo"
import { Callbacks } from "#interfaces/mcp/events/Callbacks"
import { EventFeed } from "#interfaces/mcp/events/EventFeed"
import { EventSubscriptions } from "#interfaces/mcp/events/EventSubscriptions"
import { EventSubscriptionsRepo } from "#interfaces/mcp/events/EventSubscriptionsRepo"
import { Announcements } from "#interfaces/operator/Announcements"
import { ErasedFiles } from "#interfaces/operator/ErasedFiles"
import { BacklogGauges } from "#interfaces/service/BacklogGauges"
import { Layer } from "effect"
import * as Jobs from "./Jobs.ts"
import * as Tables from "./Tables.ts"

/** The services of all modules. They need a database, a cluster and the basic services of the platform. */
export const services = Layer.mergeAll(PublicRegistration.layer, AuthorizationRequests.layer).pipe(
  Layer.provideMerge(Registration.layer),
  Layer.provideMerge(EventSubscriptions.layer),
  Layer.provideMerge(Layer.mergeAll(Callbacks.layer, EventFeed.layer)),
  Layer.provideMerge(TaskPushes.layer),
  Layer.provideMerge(Layer.mergeAll(Tasks.layer, Announcements.layer)),
  Layer.provideMerge(Accounts.layer),
  Layer.provideMerge(DeletionsLive),
  Layer.provideMerge(
    Layer.mergeAll(
      MessageSearch.layer,
      Mutes.layer,
      Reactions.layer,
      Presences.layer,
      Contacts.layer,
      Directory.layer,
      EnforcementWatch.layer
    )
  ),
  Layer.provideMerge(Conversations.layer),
  Layer.provideMerge(Layer.mergeAll(PresencePosts.layer, SystemMessages.layer)),
  Layer.provideMerge(Layer.mergeAll(DirectConversations.layer, Groups.layer, WebhookActors.layer, Webhooks.layer)),
  Layer.provideMerge(
    Layer.mergeAll(Attachments.layer, Avatars.layer, Replies.layer, StoredAnswers.layer, Grants.layer)
  ),
  Layer.provideMerge(
    Layer.mergeAll(Admissions.layer, Codes.layer, AddressLimits.layer, Enforcement.layer, EventData.layer)
  ),
  Layer.provideMerge(Layer.provideMerge(Deliveries.layer, Outcomes.layer)),
  Layer.provideMerge(SessionsLive),
  Layer.provideMerge(LiveAgents.layer),
  Layer.provideMerge(PushRouter.layer),
  Layer.provideMerge(
    Layer.mergeAll(
      Agents.layer,
      blobsLive(SIGNED_URLS),
      Clients.layer,
      DirectFeed.layer,
      ErasedFiles.layer,
      WordIndex.layer
    )
  ),
  Layer.provideMerge(Layer.mergeAll(
    ActiveMutes.layer,
    AddressAttemptsRepo.layer,
    AgentsRepo.layer,
    AttachmentsRepo.layer,
    AvatarsRepo.layer,
    BacklogGauges.layer,
    CodesRepo.layer,
    ColdSlots.layer,
    GrantsRepo.layer,
    InvitationsRepo.layer,
    ContactsRepo.layer,
    DirectRepo.layer,
    HistoryRepo.layer,
    DeliveriesRepo.layer,
    OutcomesRepo.layer,
    DeletionsRepo.layer,
    DirectoryRepo.layer,
    EnforcementRepo.layer,
    ErasuresRepo.layer,
    EventSubscriptionsRepo.layer,
    GroupReads.layer,
    GroupsRepo.layer,
    IdempotencyRepo.layer,
    IdempotentIds.layer,
    Layer.provideMerge(MailQueue.layer, Mailer.layer),
    MessageRetention.layer,
    MutesRepo.layer,
    ReactionsRepo.layer,
    Participations.layer,
    PresenceRepo.layer,
    PushConfigsRepo.layer,
    PresenceStore.layer,
    LargeReads.layer,
    RateLimits.layer,
    Refusals.layer,
    RepliesRepo.layer,
    RequestsRepo.layer,
    SearchRepo.layer,
    Secrets.layer,
    SendBudgets.layer,
    Skills.layer,
    PostSources.layer,
    TasksRepo.layer,
    Vacuum.layer,
    WebhookSignals.layer,
    WebhooksRepo.layer
  )),
  Layer.provideMerge(Layer.mergeAll(Limits.layer, Tables.layer))
)

/** The services and the jobs. */
export const layer = Jobs.layer.pipe(Layer.provideMerge(services))
