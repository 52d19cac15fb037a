import { AnonymousBudget, Budgets } from "#domain/auth/Budgets"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import type { Database } from "#infrastructure/database/Sql"
import { Blobs } from "#infrastructure/files/Blobs"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { endpointsOf } from "#infrastructure/http/RouteTable"
import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { ProcessMetrics } from "#infrastructure/platform/ProcessMetrics"
import { Readiness } from "#infrastructure/platform/Readiness"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { WireErrors } from "#infrastructure/wire/WireErrors"
import { Pages } from "#interfaces/pages/Pages"
import { apiProtocol } from "#interfaces/service/ApiProtocol"
import { docsOf } from "#interfaces/service/Docs"
import { ServiceApi } from "#interfaces/service/ServiceApi"
import { ServiceHttp } from "#interfaces/service/ServiceHttp"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer } from "effect"
import { HttpApi, HttpApiBuilder } from "effect/http-api"
import type { SqlClient } from "effect/sql"
import { Api } from "../../src/Api.ts"

/** The whole contract's id with this one group, so that no other module is needed. */
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
  const context = yield* Layer.build(
    HttpServer.layer(routes, { endpoints: endpointsOf(OnlyService), protocols: (config) => [apiProtocol(config)] })
      .pipe(
        Layer.provideMerge(Layer.merge(Readiness.layer, database)),
        Layer.provide([
          Config.layerTest({ PORT: 0, ...settings }),
          Ids.layer,
          ProcessMetrics.layer,
          Layer.succeed(UpgradeHandler, {
            path: "/v1/ws",
            upgrade: () => {},
            turnAway: () => {},
            welcomeAgain: () => {},
            drain: Effect.void,
            size: () => SOCKETS
          })
        ])
      )
  )
  return { url: Context.get(context, HttpServer).url, context }
})
