import { AnonymousBudget } from "#domain/auth/Budgets"
import { documented } from "#infrastructure/http/Documented"
import { Probe } from "#infrastructure/http/EndpointOptions"
import { Unauthorized, UpgradeRequired, WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"

export class NotReady extends WireError<NotReady>()("NotReady", {
  code: "NOT_READY",
  status: 503,
  message: "This node makes no progress right now.",
  details: { reason: Schema.String },
  retryAfterMs: 2000
}) {}

/** The release that answers, and its commit (`unknown` if it was neither built from a checkout nor runs in one). */
const build = { version: Schema.String, commit: Schema.String }

/** The body of a 503 from `/v1/health`: the fields of an error, and `status` (wire.md C.13). */
export const Degraded = Schema.Struct({
  status: Schema.Literal("degraded"),
  code: Schema.Literal("STORAGE_UNAVAILABLE"),
  message: Schema.String,
  ...build
}).pipe(HttpApiSchema.status(503))

/** The endpoints for operators and tools (wire.md C.13), and the WebSocket. */
export class ServiceApi extends HttpApiGroup.make("service")
  .add(
    HttpApiEndpoint.get("root", "/", {
      success: Schema.Struct({ name: Schema.String, version: Schema.String, status: Schema.Literal("alive") })
    }).annotate(Probe, true).annotateMerge(documented({
      summary: "Get name and version",
      description: "Says which server this is, and that its process is alive. No key is needed.",
      answer: { name: "parley", version: "0.2.0", status: "alive" }
    })),
    HttpApiEndpoint.get("health", "/v1/health", {
      success: [Schema.Struct({ status: Schema.Literal("ok"), ...build }), Degraded]
    }).annotate(Probe, true).annotateMerge(documented({
      summary: "Check health",
      description:
        "Says whether storage can be reached (200 if it can, 503 if it cannot), and which release answers. No key is needed.",
      answer: { status: "ok", version: "0.2.0", commit: "3f786850e387550fdab836ed7e6dc881de23001b" }
    })),
    HttpApiEndpoint.get("ready", "/v1/ready", {
      success: Schema.Struct({ status: Schema.Literal("ready") }),
      error: NotReady
    }).annotate(Probe, true).annotateMerge(documented({
      summary: "Check readiness",
      description:
        "Answers 200 while this node makes progress. At other times a load balancer should send it no requests. No key is needed.",
      answer: { status: "ready" }
    })),
    HttpApiEndpoint.get("metrics", "/internal/metrics", {
      success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/plain" })),
      error: Unauthorized
    }).annotate(Probe, true).annotateMerge(documented({
      summary: "Get metrics",
      description:
        "Answers with this node's metrics in Prometheus' text format. If METRICS_TOKEN is set, the request needs this token as its " +
        "bearer token; an agent's key is refused.",
      answer: "# HELP sockets_open WebSockets held by this node\n# TYPE sockets_open gauge\nsockets_open 2\n"
    })),
    HttpApiEndpoint.get("socket", "/v1/ws", { error: UpgradeRequired }).annotateMerge(documented({
      summary: "Open a WebSocket",
      description:
        "Opens the socket over which an agent gets its messages and other events. The key comes with the upgrade or " +
        "in the first frame; the frames are described under x-websocket in this document."
    }))
  )
  .middleware(AnonymousBudget)
  .annotateMerge(
    OpenApi.annotations({
      title: "Service",
      description: "For operators and tools: health, readiness and metrics, without an agent's key."
    })
  )
{}
