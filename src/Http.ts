import { AccountsHttp } from "#domain/accounts/AccountsHttp"
import { AttachmentsHttp } from "#domain/attachments/AttachmentsHttp"
import { FilesHttp, upload } from "#domain/attachments/FilesHttp"
import { Auth } from "#domain/auth/Auth"
import { Authorization, AuthorizationEvenSuspended } from "#domain/auth/Authorization"
import { AnonymousBudget, Budgets } from "#domain/auth/Budgets"
import { OptionalAuthorization } from "#domain/auth/OptionalAuthorization"
import { AvatarsHttp } from "#domain/avatars/AvatarsHttp"
import { ContactsHttp } from "#domain/contacts/ContactsHttp"
import { ConversationsHttp } from "#domain/conversations/ConversationsHttp"
import { MessagesHttp } from "#domain/conversations/MessagesHttp"
import { DirectoryBudget } from "#domain/directory/DirectoryBudget"
import { DirectoryHttp } from "#domain/directory/DirectoryHttp"
import { EnforcementWatch } from "#domain/enforcement/EnforcementWatch"
import { GroupsHttp } from "#domain/groups/GroupsHttp"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { MutesHttp } from "#domain/mutes/MutesHttp"
import { GrantsHttp } from "#domain/oauth/GrantsHttp"
import { PresenceHttp } from "#domain/presence/PresenceHttp"
import { ReactionsHttp } from "#domain/reactions/ReactionsHttp"
import { RegistrationHttp } from "#domain/registration/RegistrationHttp"
import { RepliesHttp } from "#domain/replies/RepliesHttp"
import { SearchHttp } from "#domain/search/SearchHttp"
import { WebhooksHttp } from "#domain/webhooks/WebhooksHttp"
import { SharedPoll } from "#infrastructure/database/SharedPoll"
import { BufferedBytes } from "#infrastructure/http/BufferedBytes"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { endpointsOf } from "#infrastructure/http/RouteTable"
import type { SelfContained } from "#infrastructure/http/Routing"
import { ProcessMetrics } from "#infrastructure/platform/ProcessMetrics"
import { UncachedErrors } from "#infrastructure/wire/Uncached"
import { WireErrors } from "#infrastructure/wire/WireErrors"
import { A2aHttp, a2aProtocols } from "#interfaces/a2a/A2aHttp"
import { TaskPushes } from "#interfaces/a2a/TaskPushes"
import { TaskWatches } from "#interfaces/a2a/TaskWatches"
import { ConsoleApi } from "#interfaces/console/ConsoleApi"
import { consoleProtocol } from "#interfaces/console/ConsoleProtocol"
import { WakeWebhookHttp } from "#interfaces/mcp/events/WakeWebhookHttp"
import { McpHttp } from "#interfaces/mcp/McpHttp"
import { mcpProtocols } from "#interfaces/mcp/McpProtocol"
import { Pages } from "#interfaces/pages/Pages"
import { PagesHttp } from "#interfaces/pages/PagesHttp"
import { SocketServer } from "#interfaces/realtime/SocketServer"
import { Waiters } from "#interfaces/realtime/Waiters"
import { apiProtocol } from "#interfaces/service/ApiProtocol"
import { docsOf } from "#interfaces/service/Docs"
import { ServiceHttp } from "#interfaces/service/ServiceHttp"
import { AuthorizeHttp } from "#interfaces/signin/AuthorizeHttp"
import { MetadataHttp } from "#interfaces/signin/MetadataHttp"
import { OAuthLimits } from "#interfaces/signin/OAuthLimits"
import { oauthProtocols } from "#interfaces/signin/OAuthProtocol"
import { RequestsHttp } from "#interfaces/signin/RequestsHttp"
import { TokenHttp } from "#interfaces/signin/TokenHttp"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "./Api.ts"
import { ConsoleHttp, services as consoleServices } from "./Console.ts"

/** The handlers of every group of the Api. */
const modules = Layer.mergeAll(
  RegistrationHttp,
  AccountsHttp,
  AvatarsHttp,
  DirectoryHttp,
  ContactsHttp,
  MessagesHttp,
  ReactionsHttp,
  ConversationsHttp,
  GroupsHttp,
  MutesHttp,
  PresenceHttp,
  WebhooksHttp,
  WakeWebhookHttp,
  AttachmentsHttp,
  RepliesHttp,
  SearchHttp,
  GrantsHttp,
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

/** The routes for signing in by OAuth. */
const oauth = Layer.mergeAll(MetadataHttp, AuthorizeHttp, TokenHttp, RequestsHttp).pipe(
  Layer.provide(UncachedErrors.layer),
  Layer.provide(OAuthLimits.layer)
)

/** All routes, including the pages that document the contract. */
const routes = Layer.mergeAll(
  HttpApiBuilder.layer(Api),
  ConsoleHttp,
  FilesHttp,
  McpHttp,
  A2aHttp,
  PagesHttp,
  oauth,
  docsOf(Api)
).pipe(
  Layer.provide(modules),
  Layer.provide(Pages.layer),
  Layer.provide(middleware),
  Layer.provide(NodeHttpServer.layerHttpServices)
)

/**
 * Listens after all dependencies of the routes are built and `ready` has completed. Needs the modules' services
 * (Services.ts).
 */
export const layerOnce = <E, R>(ready: Effect.Effect<unknown, E, R>) =>
  HttpServer.layer(routes satisfies SelfContained<typeof routes>, {
    endpoints: [...endpointsOf(Api), ...endpointsOf(ConsoleApi), upload],
    protocols: (config) => [
      apiProtocol(config),
      ...mcpProtocols(config),
      ...a2aProtocols(config),
      ...oauthProtocols,
      consoleProtocol
    ],
    ready
  }).pipe(
    Layer.provideMerge(consoleServices),
    Layer.provideMerge(SocketServer),
    Layer.provideMerge(TaskWatches.layer),
    Layer.provideMerge(Waiters.layer),
    Layer.provideMerge(
      Layer.mergeAll(
        Auth.layer,
        Budgets.layer,
        EnforcementWatch.layerRunning,
        ProcessMetrics.layer,
        TaskPushes.layerRunning
      )
    ),
    Layer.provideMerge(Layer.mergeAll(BufferedBytes.layer, SharedPoll.layer))
  )

export const layer = layerOnce(Effect.void)
