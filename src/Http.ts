import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { A2aHttp } from "./a2a/A2aHttp.ts"
import { TaskPushes } from "./a2a/TaskPushes.ts"
import { TaskWatches } from "./a2a/TaskWatches.ts"
import { AccountsHttp } from "./accounts/AccountsHttp.ts"
import { AvatarsHttp } from "./avatars/AvatarsHttp.ts"
import { Api } from "./Api.ts"
import { AttachmentsHttp } from "./attachments/AttachmentsHttp.ts"
import { FilesHttp } from "./attachments/FilesHttp.ts"
import { Auth } from "./auth/Auth.ts"
import { Authorization, AuthorizationEvenSuspended } from "./auth/Authorization.ts"
import { AnonymousBudget, Budgets } from "./auth/Budgets.ts"
import { OptionalAuthorization } from "./auth/OptionalAuthorization.ts"
import { ConsoleHttp, services as consoleServices } from "./Console.ts"
import { ContactsHttp } from "./contacts/ContactsHttp.ts"
import { ConversationsHttp } from "./conversations/ConversationsHttp.ts"
import { EnforcementWatch } from "./enforcement/EnforcementWatch.ts"
import { GroupsHttp } from "./groups/GroupsHttp.ts"
import { MessagesHttp } from "./conversations/MessagesHttp.ts"
import { McpHttp } from "./mcp/McpHttp.ts"
import { MutesHttp } from "./mutes/MutesHttp.ts"
import { DirectoryBudget } from "./directory/DirectoryBudget.ts"
import { DirectoryHttp } from "./directory/DirectoryHttp.ts"
import { HeldBytes } from "./http/HeldBytes.ts"
import { HttpServer, type SelfContained } from "./http/HttpServer.ts"
import { Idempotency } from "./idempotency/Idempotency.ts"
import { ProcessMetrics } from "./platform/ProcessMetrics.ts"
import { WireErrors } from "./wire/WireErrors.ts"
import { Pages } from "./pages/Pages.ts"
import { PagesHttp } from "./pages/PagesHttp.ts"
import { PresenceHttp } from "./presence/PresenceHttp.ts"
import { GatewayLive } from "./realtime/GatewayLive.ts"
import { Waiters } from "./realtime/Waiters.ts"
import { RegistrationHttp } from "./registration/RegistrationHttp.ts"
import { RepliesHttp } from "./replies/RepliesHttp.ts"
import { docsOf } from "./service/Docs.ts"
import { ServiceHttp } from "./service/ServiceHttp.ts"
import { WebhooksHttp } from "./webhooks/WebhooksHttp.ts"

/** The handlers of every group of the Api. */
const rooms = Layer.mergeAll(
  RegistrationHttp,
  AccountsHttp,
  AvatarsHttp,
  DirectoryHttp,
  ContactsHttp,
  MessagesHttp,
  ConversationsHttp,
  GroupsHttp,
  MutesHttp,
  PresenceHttp,
  WebhooksHttp,
  AttachmentsHttp,
  RepliesHttp,
  ServiceHttp
)

/** The middleware of the groups and endpoints. */
const middleware = Layer.mergeAll(
  Authorization.layer,
  AuthorizationEvenSuspended.layer,
  OptionalAuthorization.layer,
  DirectoryBudget.layer,
  AnonymousBudget.layer,
  Idempotency.layer,
  WireErrors.layer
)

/** All routes of the contract, and the pages that describe it. */
const routes = Layer.mergeAll(HttpApiBuilder.layer(Api), ConsoleHttp, FilesHttp, McpHttp, A2aHttp, PagesHttp, docsOf(Api)).pipe(
  Layer.provide(rooms),
  Layer.provide(Pages.layer),
  Layer.provide(middleware),
  Layer.provide(NodeHttpServer.layerHttpServices)
)

/** Listens once everything behind the routes is built and `ready` has completed. Needs the rooms' services (Services.ts). */
export const layerOnce = <E, R>(ready: Effect.Effect<unknown, E, R>) =>
  HttpServer.layer(routes satisfies SelfContained<typeof routes>, {}, ready).pipe(
    Layer.provideMerge(consoleServices),
    Layer.provideMerge(GatewayLive),
    Layer.provideMerge(TaskWatches.layer),
    Layer.provideMerge(Waiters.layer),
    Layer.provideMerge(Layer.mergeAll(Auth.layer, Budgets.layer, EnforcementWatch.layerRunning, ProcessMetrics.layer, TaskPushes.layerRunning)),
    Layer.provideMerge(HeldBytes.layer)
  )

export const layer = layerOnce(Effect.void)
