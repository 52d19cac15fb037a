import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Budgets } from "./auth/Budgets.ts"
import { AuditLog } from "./operator/AuditLog.ts"
import { ConsoleAccess } from "./operator/ConsoleAccess.ts"
import { Erasure } from "./operator/Erasure.ts"
import { toResponse } from "./wire/WireErrors.ts"
import { AccessHttp, DoorHttp } from "./console/AccessHttp.ts"
import { AgentsHttp } from "./console/AgentsHttp.ts"
import { AgentsLookRepo } from "./console/AgentsLookRepo.ts"
import { ConsoleApi } from "./console/ConsoleApi.ts"
import { ConsoleAuthorization, ConsoleErrors, hidden, NO_STORE } from "./console/ConsoleAuthorization.ts"
import { LimitChanges } from "./console/LimitChanges.ts"
import { LimitsHttp } from "./console/LimitsHttp.ts"
import { ModerationHttp } from "./console/ModerationHttp.ts"
import { ModerationRepo } from "./console/ModerationRepo.ts"
import { Nodes } from "./console/Nodes.ts"
import { NodesHttp } from "./console/NodesHttp.ts"
import { NodeSampler } from "./console/NodeSampler.ts"
import { Parts } from "./console/Parts.ts"

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
  Layer.provide(Layer.mergeAll(DoorHttp, AccessHttp, NodesHttp, AgentsHttp, LimitsHttp, ModerationHttp)),
  Layer.provide(Layer.mergeAll(ConsoleAuthorization.layer, ConsoleErrors.layer))
)

/** The services of the operators' API. They also answer the questions of other nodes. */
export const services = Nodes.layer.pipe(
  Layer.provideMerge(Parts.layer),
  Layer.provideMerge(Layer.mergeAll(ConsoleAccess.layer, AuditLog.layer, Erasure.layer, AgentsLookRepo.layer, LimitChanges.layer, ModerationRepo.layer)),
  Layer.provideMerge(NodeSampler.layer)
)
