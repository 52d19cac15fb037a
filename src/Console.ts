import { Budgets } from "#domain/auth/Budgets"
import { NO_STORE, UncachedErrors } from "#infrastructure/wire/Uncached"
import { toResponse } from "#infrastructure/wire/WireErrors"
import { AccessHttp, DoorHttp } from "#interfaces/console/AccessHttp"
import { AgentsHttp } from "#interfaces/console/AgentsHttp"
import { AnnouncementsHttp } from "#interfaces/console/AnnouncementsHttp"
import { CommandsApi } from "#interfaces/console/CommandsApi"
import { CommandsHttp } from "#interfaces/console/CommandsHttp"
import { ConsoleApi } from "#interfaces/console/ConsoleApi"
import { ConsoleAuthorization, hidden } from "#interfaces/console/ConsoleAuthorization"
import { InvitationsHttp } from "#interfaces/console/InvitationsHttp"
import { LimitsHttp } from "#interfaces/console/LimitsHttp"
import { ModerationHttp } from "#interfaces/console/ModerationHttp"
import { NodesHttp } from "#interfaces/console/NodesHttp"
import { OAuthHttp } from "#interfaces/console/OAuthHttp"
import { AccountRescue } from "#interfaces/operator/AccountRescue"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { Backups } from "#interfaces/operator/Backups"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { DeadDeliveries } from "#interfaces/operator/DeadDeliveries"
import { Erasure } from "#interfaces/operator/Erasure"
import { GrantAdmin } from "#interfaces/operator/GrantAdmin"
import { Invitations } from "#interfaces/operator/Invitations"
import { LimitChanges } from "#interfaces/operator/LimitChanges"
import { NearLimits } from "#interfaces/operator/NearLimits"
import { NodeProblems } from "#interfaces/operator/NodeProblems"
import { Nodes } from "#interfaces/operator/Nodes"
import { NodeSampler } from "#interfaces/operator/NodeSampler"
import { OperatedGroups } from "#interfaces/operator/OperatedGroups"
import { Removals } from "#interfaces/operator/Removals"
import { Reports } from "#interfaces/operator/Reports"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { changeableLimits } from "./Limits.ts"

/** Responds to every other path below `/console/api` with the same 404 that callers get who are not operators. */
const nothing = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const budgets = yield* Budgets
    const response = Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
      Effect.match(budgets.ofAddress(request), {
        onFailure: (refused) =>
          HttpServerResponse.setHeaders(toResponse(refused), NO_STORE),
        onSuccess: () => HttpServerResponse.setHeaders(toResponse(hidden()), NO_STORE)
      }))
    // The pattern also matches `/console/api` without a trailing slash.
    yield* router.add("*", "/console/api/*", response)
  })
)

const groups = Layer.mergeAll(
  DoorHttp,
  AccessHttp,
  NodesHttp,
  AgentsHttp,
  AnnouncementsHttp,
  InvitationsHttp,
  LimitsHttp,
  ModerationHttp,
  OAuthHttp
)
const middleware = Layer.mergeAll(ConsoleAuthorization.layer, UncachedErrors.layer)

/** The routes of the operators' API. */
export const ConsoleHttp = Layer.merge(HttpApiBuilder.layer(ConsoleApi), nothing).pipe(
  Layer.provide(groups),
  Layer.provide(middleware)
)

/**
 * The routes of the operators' API for the command line. They include the endpoints that only the command line may
 * call.
 */
export const CommandLineHttp = HttpApiBuilder.layer(ConsoleApi.add(CommandsApi)).pipe(
  Layer.provide([groups, CommandsHttp]),
  Layer.provide(middleware),
  Layer.provide(NodeHttpServer.layerHttpServices)
)

/** The services of the operators' API. They also respond to queries of other nodes. */
export const services = Nodes.layer.pipe(
  Layer.provideMerge(
    Layer.mergeAll(
      GrantAdmin.layer,
      ConsoleAccess.layer,
      Layer.provideMerge(Backups.layer, AuditLog.layer),
      Erasure.layer,
      Invitations.layer,
      AccountRescue.layer,
      Removals.layer,
      AgentAdmin.layer,
      Reports.layer,
      DeadDeliveries.layer
    )
  ),
  Layer.provideMerge(
    Layer.mergeAll(OperatedGroups.layer, NearLimits.layer, NodeProblems.layer, LimitChanges.layer(changeableLimits))
  ),
  Layer.provideMerge(NodeSampler.layer)
)
