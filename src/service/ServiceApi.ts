import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Unauthorized, UpgradeRequired, WireError } from "../wire/WireError.ts"

export class NotReady extends WireError<NotReady>()("NotReady", {
  code: "NOT_READY",
  status: 503,
  message: "This node makes no progress right now.",
  details: { reason: Schema.String },
  retryAfterMs: 2000
}) {}

/** Health answers with `status` beside the error's fields (wire.md C.13). */
export const Degraded = Schema.Struct({
  status: Schema.Literal("degraded"),
  code: Schema.Literal("STORAGE_UNAVAILABLE"),
  message: Schema.String
}).pipe(HttpApiSchema.status(503))

/** What operators and tools ask (wire.md C.13), and where the socket is. */
export class ServiceApi extends HttpApiGroup.make("service")
  .add(
    HttpApiEndpoint.get("root", "/", {
      success: Schema.Struct({ name: Schema.String, version: Schema.String, status: Schema.Literal("alive") })
    }).annotate(OpenApi.Description, "Name and version."),
    HttpApiEndpoint.get("health", "/v1/health", {
      success: [Schema.Struct({ status: Schema.Literal("ok") }), Degraded]
    }).annotate(OpenApi.Description, "Whether storage can be reached."),
    HttpApiEndpoint.get("ready", "/v1/ready", {
      success: Schema.Struct({ status: Schema.Literal("ready") }),
      error: NotReady
    }).annotate(OpenApi.Description, "200 only while this node makes progress."),
    HttpApiEndpoint.get("metrics", "/internal/metrics", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/plain" })),
      error: Unauthorized
    }).annotate(OpenApi.Description, "Prometheus metrics."),
    HttpApiEndpoint.get("socket", "/v1/ws", { error: UpgradeRequired }).annotate(
      OpenApi.Description,
      "The WebSocket. Its frames are described under x-websocket in this document."
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Service", description: "For operators and tools; without a key." }))
{}
