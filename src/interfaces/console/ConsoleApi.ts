import { UncachedErrors } from "#infrastructure/wire/Uncached"
import { HttpApi, OpenApi } from "effect/http-api"
import { AccessApi, SignInApi } from "./AccessApi.ts"
import { AgentsApi } from "./AgentsApi.ts"
import { AnnouncementsApi } from "./AnnouncementsApi.ts"
import { InvitationsApi } from "./InvitationsApi.ts"
import { LimitsApi } from "./LimitsApi.ts"
import { ModerationApi } from "./ModerationApi.ts"
import { NodesApi } from "./NodesApi.ts"
import { OAuthApi } from "./OAuthApi.ts"

/**
 * The operators' API (wire.md O.1). It has its own OpenAPI document, because clients may rely on everything in the
 * public document.
 */
export class ConsoleApi extends HttpApi.make("parley-console")
  .add(SignInApi, AccessApi, NodesApi, AgentsApi, InvitationsApi, LimitsApi, ModerationApi, AnnouncementsApi, OAuthApi)
  .middleware(UncachedErrors)
  .annotateMerge(OpenApi.annotations({
    title: "Parley for operators",
    version: "0.2.0",
    description:
      "The API for operators. It needs the cookie of a session, or the token of a program as a bearer token. " +
      "All other callers get 404."
  }))
{}

let made: string | undefined

/** The OpenAPI document as JSON. It is generated at the first call. */
export const consoleDocument = (): string => made ??= JSON.stringify(OpenApi.fromApi(ConsoleApi))
