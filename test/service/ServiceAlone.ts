import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer } from "effect"
import { HttpApi, HttpApiBuilder } from "effect/http-api"
import type { SqlClient } from "effect/sql"
import { AnonymousBudget, Budgets } from "#domain/auth/Budgets"
import { docsOf } from "#doors/service/Docs"
import { Pages } from "#doors/pages/Pages"
import { ServiceApi } from "#doors/service/ServiceApi"
import { ServiceHttp } from "#doors/service/ServiceHttp"
import type { Database } from "#ground/database/Sql"
import { Blobs } from "#ground/files/Blobs"
import { HttpServer } from "#ground/http/HttpServer"
import { UpgradeHandler } from "#ground/http/UpgradeHandler"
import { Config, type Settings } from "#ground/platform/Config"
import { Ids } from "#ground/platform/Ids"
import { ProcessMetrics } from "#ground/platform/ProcessMetrics"
import { Readiness } from "#ground/platform/Readiness"
import { LargeReads } from "#ground/rates/LargeReads"
import { RateLimits } from "#ground/rates/RateLimits"
import { WireErrors } from "#ground/wire/WireErrors"
import { Api } from "../../src/Api.ts"

/** The whole contract's id with this one group, so that no other room is needed. */
class OnlyService extends HttpApi.make("parley").add(ServiceApi).middleware(WireErrors) {}

const routes = Layer.mergeAll(HttpApiBuilder.layer(OnlyService), docsOf(Api)).pipe(
  Layer.provide(ServiceHttp),
  Layer.provide(Pages.layer),
  Layer.provide(Layer.mock(Blobs)({ signedFiles: undefined })),
  Layer.provide(AnonymousBudget.layer.pipe(
    Layer.provideMerge(Budgets.layer),
    Layer.provide(Layer.mergeAll(LargeReads.layer, RateLimits.layerMemory))
  )),
  Layer.provide(WireErrors.layer),
  Layer.provide(NodeHttpServer.layerHttpServices)
)

/** How many sockets the server says are open. */
export const SOCKETS = 7

/** A server that has the service's routes and the document alone, on a database. */
export const serviceAlone = Effect.fnUntraced(function*<E>(
  database: Layer.Layer<SqlClient.SqlClient | Database, E>,
  settings: Partial<Settings> = {}
) {
  const context = yield* Layer.build(HttpServer.layer(routes).pipe(
    Layer.provideMerge(Layer.merge(Readiness.layer, database)),
    Layer.provide([
      Config.layerTest({ PORT: 0, ...settings }),
      Ids.layer,
      ProcessMetrics.layer,
      Layer.succeed(UpgradeHandler, { upgrade: () => {}, turnAway: () => {}, welcomeAgain: () => {}, drain: Effect.void, size: () => SOCKETS })
    ])
  ))
  return { url: Context.get(context, HttpServer).url, context }
})
