import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Budgets } from "#domain/auth/Budgets"
import { AgentAdmin } from "#doors/operator/AgentAdmin"
import { AuditLog } from "#doors/operator/AuditLog"
import { ConnectionAdmin } from "#doors/operator/ConnectionAdmin"
import { ConsoleAccess } from "#doors/operator/ConsoleAccess"
import { DeadDeliveries } from "#doors/operator/DeadDeliveries"
import { Erasure } from "#doors/operator/Erasure"
import { LimitChanges } from "#doors/operator/LimitChanges"
import { Reports } from "#doors/operator/Reports"
import { NO_STORE, UncachedErrors } from "#ground/wire/Uncached"
import { toResponse } from "#ground/wire/WireErrors"
import { AccessHttp, DoorHttp } from "#doors/console/AccessHttp"
import { AgentsHttp } from "#doors/console/AgentsHttp"
import { ConsoleApi } from "#doors/console/ConsoleApi"
import { ConsoleAuthorization, hidden } from "#doors/console/ConsoleAuthorization"
import { OAuthHttp } from "#doors/console/OAuthHttp"
import { OperatedGroups } from "#doors/operator/OperatedGroups"
import { LimitsHttp } from "#doors/console/LimitsHttp"
import { ModerationHttp } from "#doors/console/ModerationHttp"
import { Nodes } from "#doors/operator/Nodes"
import { NodesHttp } from "#doors/console/NodesHttp"
import { NodeSampler } from "#doors/operator/NodeSampler"

/** Answers every other path below `/console/api` with the same 404 as callers get who are no operators. */
const nothing = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const budgets = yield* Budgets
    const response = Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
      Effect.match(budgets.ofAddress(request), {
        onFailure: (refused) => HttpServerResponse.setHeaders(toResponse(refused), NO_STORE),
        onSuccess: () => HttpServerResponse.setHeaders(toResponse(hidden()), NO_STORE)
      }))
    // The pattern also matches `/console/api` without a slash at the end.
    yield* router.add("*", "/console/api/*", response)
  })
)

/** The routes of the operators' API. */
export const ConsoleHttp = Layer.merge(HttpApiBuilder.layer(ConsoleApi), nothing).pipe(
  Layer.provide(Layer.mergeAll(DoorHttp, AccessHttp, NodesHttp, AgentsHttp, LimitsHttp, ModerationHttp, OAuthHttp)),
  Layer.provide(Layer.mergeAll(ConsoleAuthorization.layer, UncachedErrors.layer))
)

/** The services of the operators' API. They also answer the questions of other nodes. */
export const services = Nodes.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(ConnectionAdmin.layer, ConsoleAccess.layer, AuditLog.layer, Erasure.layer, AgentAdmin.layer, Reports.layer, DeadDeliveries.layer)),
  Layer.provideMerge(Layer.mergeAll(OperatedGroups.layer, LimitChanges.layer)),
  Layer.provideMerge(NodeSampler.layer)
)
