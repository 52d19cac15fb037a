import { classifyInboundRequest, type JSONRPCRequest } from "@modelcontextprotocol/server"
import { Cause, Effect } from "effect"
import { type HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { Attachments } from "#domain/attachments/Attachments"
import { makeApiCalls } from "#domain/auth/ApiCalls"
import { Auth } from "#domain/auth/Auth"
import type { CurrentAgent } from "#domain/auth/Authorization"
import { Budgets } from "#domain/auth/Budgets"
import type { Principal } from "#domain/auth/Principal"
import { hostIsOwn } from "#ground/http/Origins"
import { mcpOrigins } from "./McpProtocol.ts"
import { Config } from "#ground/platform/Config"
import { Ids } from "#ground/platform/Ids"
import { type LargeAnswer, LargeReads } from "#ground/rates/LargeReads"
import { Waiters } from "#doors/realtime/Waiters"
import { bearerOf } from "#ground/wire/Bearer"
import { Forbidden } from "#ground/wire/WireError"
import { answer, toResponse } from "#ground/wire/WireErrors"
import { MAX_INLINE } from "./tools/FileTools.ts"
import { idOf, INVALID_REQUEST, noteOf, PARSE_ERROR, refusalBody, rpcError } from "./JsonRpc.ts"
import type { McpRequest } from "./McpRequest.ts"
import { makeModernRequests, type ModernMessage } from "./ModernRequest.ts"
import { answerOlder } from "./OlderRequest.ts"
import { makePlainCalls, plainCallOf } from "./PlainCall.ts"
import type { ToolApi } from "./tools/Tool.ts"

/** The memory for a file in a result: the file itself, and its base64 text in the result, in the result's JSON and in the sent bytes. */
const INLINE_FILE: LargeAnswer = { usual: 1, max: 1, bytes: 5 * MAX_INLINE }

/** Whether the request asks for structured results of every tool. If the query has no `structured`, the header decides. */
const asksForStructure = ({ headers, url }: HttpServerRequest.HttpServerRequest): boolean => {
  const query = url.indexOf("?")
  const asked = query < 0 ? null : new URLSearchParams(url.slice(query)).get("structured")
  return (asked ?? headers["x-mcp-structured"])?.toLowerCase() === "on"
}

/** Whether the request is of the revision of 2026, of an older revision, or invalid in all of them. */
const kindOf = (request: HttpServerRequest.HttpServerRequest, body: unknown) =>
  classifyInboundRequest({
    httpMethod: "POST",
    protocolVersionHeader: request.headers["mcp-protocol-version"],
    mcpMethodHeader: request.headers["mcp-method"],
    mcpNameHeader: request.headers["mcp-name"],
    body
  } as Parameters<typeof classifyInboundRequest>[0])

/**
 * The handler of `POST /mcp` (wire.md M). It authenticates and counts a request, and then answers it in one of three ways: a plain call
 * of a tool by itself, and other requests by the library, for older revisions (OlderRequest.ts) or for the revision of 2026
 * (ModernRequest.ts). It keeps no sessions: every request carries its key, and any node can answer it.
 */
export const makeMcpHandler = (router: HttpRouter.HttpRouter) =>
  Effect.gen(function*() {
    const attachments = yield* Attachments
    const auth = yield* Auth
    const budgets = yield* Budgets
    const config = yield* Config
    const ids = yield* Ids
    const reads = yield* LargeReads
    const waiters = yield* Waiters
    const answerModern = yield* makeModernRequests
    const answerPlain = yield* makePlainCalls
    const app = router.asHttpEffect()
    const allowed = mcpOrigins(config)

    const toolApi = (request: HttpServerRequest.HttpServerRequest, agent: CurrentAgent["Service"], principal: Principal): ToolApi => ({
      ...makeApiCalls(app, request, principal),
      agent,
      freshId: () => `mcp-${ids.bytes(16).toString("hex")}`,
      uploadSeconds: config.UPLOADS_URL_SECONDS,
      fill: (id, bytes) => attachments.fill(agent.id, id, bytes),
      open: (id) => reads.ofAgent(agent.id, INLINE_FILE, attachments.open(agent.id, id, MAX_INLINE))
    })

    /** Refuses the request, or returns the effect that answers it. So a wait keeps nothing in memory that only the checks needed. */
    const admit = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const note = noteOf(request)
      const origin = request.headers["origin"]
      if (origin !== undefined && allowed(origin) === "") {
        return yield* new Forbidden({ message: "Pages of this origin may not call this server: see ALLOWED_ORIGINS." })
      }
      if (!hostIsOwn(config, request.headers["host"])) {
        return yield* new Forbidden({ message: "This server does not have this host name: see PUBLIC_URL." })
      }
      const check = auth.authenticate(bearerOf(request.headers["authorization"]))
      const agent = yield* Effect.catchTag(check, "Unauthorized", () => budgets.unauthorized(request))
      const counted = yield* Effect.match(budgets.ofAgent(request, agent.id), { onFailure: (failure) => failure, onSuccess: () => undefined })

      const text = yield* Effect.orDie(request.text)
      let body: unknown
      try {
        body = JSON.parse(text)
      } catch {
        return Effect.succeed(rpcError(400, PARSE_ERROR, "The body is not valid JSON.", note))
      }
      if (Array.isArray(body)) {
        return Effect.succeed(rpcError(400, INVALID_REQUEST, "Batches are not supported: send one message in each request.", note))
      }
      if (typeof body !== "object" || body === null) {
        return Effect.succeed(rpcError(400, INVALID_REQUEST, "The body is not a JSON-RPC message.", note))
      }
      const { method } = body as ModernMessage
      if (counted !== undefined && method !== "tools/call") return Effect.succeed(toResponse(counted, undefined, refusalBody(note, idOf(body))))
      const principal: Principal = { agentId: agent.id, check }
      const admitted: McpRequest = {
        context: yield* Effect.context<never>(),
        principal,
        api: toolApi(request, agent, principal),
        wait: (limit, timeoutMs) => waiters.wait(principal, limit, timeoutMs),
        refused: counted,
        structured: asksForStructure(request),
        note
      }
      const kind = kindOf(request, body)
      const plain = plainCallOf(kind, request.headers, body)
      if (plain !== undefined) return answerPlain(plain, admitted)
      if (kind.kind !== "legacy") return answerModern(request.headers, body, admitted)
      // Notifications and responses of the older revisions have no effect, because the server keeps no state between requests.
      return idOf(body) !== null && typeof method === "string"
        ? answerOlder(request.headers["mcp-protocol-version"], body as JSONRPCRequest, admitted)
        : Effect.succeed(HttpServerResponse.empty({ status: 202 }))
    })

    return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
      Effect.catchCause(Effect.flatten(admit(request)), (cause) => Cause.hasInterruptsOnly(cause) ? Effect.interrupt : answer(cause, refusalBody(noteOf(request)))))
  })
