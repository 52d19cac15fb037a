import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "./Api.ts"
import { HttpServer } from "./platform/HttpServer.ts"
import { WireErrors } from "./platform/WireErrors.ts"
import { Docs } from "./service/Docs.ts"
import { notYet } from "./service/NotYet.ts"
import { ServiceHttp } from "./service/ServiceHttp.ts"

/** Every room's handlers; what they need from their rooms is provided in `runners/`. */
const rooms = Layer.mergeAll(
  notYet("registration"),
  notYet("agents"),
  notYet("messages"),
  notYet("conversations"),
  ServiceHttp
)

/** All routes of the contract, and the pages that describe it. */
export const routes = Layer.mergeAll(HttpApiBuilder.layer(Api), Docs).pipe(
  Layer.provide(rooms),
  Layer.provide(WireErrors.layer),
  Layer.provide(NodeHttpServer.layerHttpServices)
)

/** Listens once everything behind the routes is there. */
export const layer = HttpServer.layer(routes)
