import { AgentRecord } from "#domain/agents/Agent"
import { account } from "#domain/agents/AgentsExamples"
import { NodeHttpServer, NodeRuntime } from "@effect/platform-node"
import { Config, Effect, Layer } from "effect"
import { HttpRouter } from "effect/http"
import { HttpApi, HttpApiBuilder, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { createServer } from "node:http"

/**
 * The server that `GET /v1/agents/me` is compared with. Its HttpApi endpoint returns the same record without any key,
 * limiter, request id or look-up.
 */
class Bare extends HttpApi.make("bare").add(
  HttpApiGroup.make("agents").add(HttpApiEndpoint.get("me", "/v1/agents/me", { success: AgentRecord }))
) {}

const handlers = HttpApiBuilder.group(Bare, "agents", (group) =>
  group.handle("me", () =>
    Effect.succeed({
      ...account,
      id: "agt_AAAAAAAAAAAAAAAA",
      handle: "bench-0",
      email: "bench-0@agents.example",
      email_masked: "b****@agents.example",
      display_name: "bench-0",
      description: null
    })))

const server = Layer.unwrap(
  Effect.map(
    Config.Port("PORT"),
    (port) =>
      HttpRouter.serve(HttpApiBuilder.layer(Bare).pipe(Layer.provide(handlers)), { disableLogger: true }).pipe(
        Layer.provide(NodeHttpServer.layer(createServer, { port, host: "127.0.0.1" }))
      )
  )
)

NodeRuntime.runMain(Layer.launch(server))
