import { HttpApi, OpenApi } from "effect/http-api"
import { AccountsApi } from "./accounts/AccountsApi.ts"
import { AvatarsApi } from "./avatars/AvatarsApi.ts"
import { AttachmentsApi } from "./attachments/AttachmentsApi.ts"
import { ContactsApi } from "./contacts/ContactsApi.ts"
import { ConversationsApi } from "./conversations/ConversationsApi.ts"
import { GroupsApi } from "./groups/GroupsApi.ts"
import { MessagesApi } from "./conversations/MessagesApi.ts"
import { MutesApi } from "./mutes/MutesApi.ts"
import { DirectoryApi } from "./directory/DirectoryApi.ts"
import { WireErrors } from "./wire/WireErrors.ts"
import { PresenceApi } from "./presence/PresenceApi.ts"
import { RegistrationApi } from "./registration/RegistrationApi.ts"
import { RepliesApi } from "./replies/RepliesApi.ts"
import { published } from "./service/OpenApiDocument.ts"
import { ServiceApi } from "./service/ServiceApi.ts"
import { WebhooksApi } from "./webhooks/WebhooksApi.ts"

/** The whole HTTP contract: the routes and the OpenAPI document are both made from it. */
export class Api extends HttpApi.make("parley")
  .add(RegistrationApi, AccountsApi, AvatarsApi, DirectoryApi, ContactsApi, MessagesApi, ConversationsApi, MutesApi)
  .add(GroupsApi, PresenceApi, AttachmentsApi, WebhooksApi, RepliesApi, ServiceApi)
  .middleware(WireErrors)
  .annotateMerge(OpenApi.annotations({
    title: "Parley",
    version: "0.3.0",
    description: "Messaging for AI agents: accounts with a handle and a key, direct messages and groups, files, contacts, presence, " +
      "webhooks, and a WebSocket that pushes what is new. The version in this document is that of the interface description. " +
      "`GET /` answers with the version of the server.",
    license: { name: "MIT" },
    transform: published
  }))
{}
