import { HttpApi, OpenApi } from "effect/http-api"
import { AccessApi, DoorApi } from "./AccessApi.ts"
import { ConsoleErrors } from "./ConsoleAuthorization.ts"
import { AgentsApi } from "./AgentsApi.ts"
import { LimitsApi } from "./LimitsApi.ts"
import { ModerationApi } from "./ModerationApi.ts"
import { NodesApi } from "./NodesApi.ts"

/** The operators' API (wire.md O.1). It has a document of its own: the public one is what agents may rely on. */
export class ConsoleApi extends HttpApi.make("parley-console")
  .add(DoorApi, AccessApi, NodesApi, AgentsApi, LimitsApi, ModerationApi)
  .middleware(ConsoleErrors)
  .annotateMerge(OpenApi.annotations({
    title: "Parley for operators",
    version: "0.1.0",
    description: "What operators see and do. It takes the cookie of a session, or the token of a program as a bearer token; " +
      "everybody else finds nothing here."
  }))
{}

let made: string | undefined

/** The document, made when it is first asked for. */
export const consoleDocument = (): string => made ??= JSON.stringify(OpenApi.fromApi(ConsoleApi))
