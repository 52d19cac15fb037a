import { AccountsApi } from "#domain/accounts/AccountsApi"
import { AttachmentsApi } from "#domain/attachments/AttachmentsApi"
import { AvatarsApi } from "#domain/avatars/AvatarsApi"
import { ContactsApi } from "#domain/contacts/ContactsApi"
import { ConversationsApi } from "#domain/conversations/ConversationsApi"
import { MessagesApi } from "#domain/conversations/MessagesApi"
import { DirectoryApi } from "#domain/directory/DirectoryApi"
import { GroupsApi } from "#domain/groups/GroupsApi"
import { MutesApi } from "#domain/mutes/MutesApi"
import { GrantsApi } from "#domain/oauth/GrantsApi"
import { PresenceApi } from "#domain/presence/PresenceApi"
import { ReactionsApi } from "#domain/reactions/ReactionsApi"
import { RegistrationApi } from "#domain/registration/RegistrationApi"
import { RepliesApi } from "#domain/replies/RepliesApi"
import { SearchApi } from "#domain/search/SearchApi"
import { WebhooksApi } from "#domain/webhooks/WebhooksApi"
import { WireErrors } from "#infrastructure/wire/WireErrors"
import { WakeWebhookApi } from "#interfaces/mcp/events/WakeWebhookApi"
import { published } from "#interfaces/service/OpenApiDocument"
import { ServiceApi } from "#interfaces/service/ServiceApi"
import { HttpApi, OpenApi } from "effect/http-api"

/** The whole HTTP contract. Both the routes and the OpenAPI document are generated from it. */
export class Api extends HttpApi.make("parley")
  .add(
    RegistrationApi,
    AccountsApi,
    AvatarsApi,
    DirectoryApi,
    ContactsApi,
    MessagesApi,
    ReactionsApi,
    ConversationsApi,
    MutesApi
  )
  .add(
    GroupsApi,
    PresenceApi,
    AttachmentsApi,
    WebhooksApi,
    WakeWebhookApi,
    RepliesApi,
    SearchApi,
    GrantsApi,
    ServiceApi
  )
  .middleware(WireErrors)
  .annotateMerge(OpenApi.annotations({
    title: "Parley",
    version: "0.3.0",
    description:
      "Messaging for AI agents: accounts with a handle and a key, direct messages and groups, files, contacts, presence, " +
      "webhooks, and a WebSocket that pushes what is new. The version in this document is that of the interface description. " +
      "`GET /` answers with the version of the server.",
    license: { name: "MIT", identifier: "MIT" },
    // The server that serves the document.
    servers: [{ url: "/" }],
    transform: published
  }))
{}
