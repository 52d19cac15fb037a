import type { Agent } from "#domain/agents/Agent"
import { Attachments } from "#domain/attachments/Attachments"
import { type ApiCalls, makeApiCalls } from "#domain/auth/ApiCalls"
import { Auth } from "#domain/auth/Auth"
import type { CurrentAgent } from "#domain/auth/Authorization"
import { Budgets } from "#domain/auth/Budgets"
import type { Principal } from "#domain/auth/Principal"
import { ByModel } from "#domain/conversations/SendBudgets"
import { challenge, offersOAuth } from "#domain/oauth/Discovery"
import { Grants } from "#domain/oauth/Grants"
import { type OAuthScope, permits, SCOPES } from "#domain/oauth/Scopes"
import { isAccessToken } from "#domain/oauth/Tokens"
import { type LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { uncheckedText } from "#infrastructure/http/BufferedRequest"
import { hostIsOwn } from "#infrastructure/http/Origins"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { queryOf } from "#infrastructure/wire/AbsoluteUrl"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { exactId, inexactNumber, numberRefused } from "#infrastructure/wire/InexactNumber"
import { MAX_RPC_ID } from "#infrastructure/wire/RpcId"
import {
  Forbidden,
  MethodNotAllowed,
  type RateLimited,
  type Unauthorized,
  type Unavailable
} from "#infrastructure/wire/WireError"
import { answer, toResponse } from "#infrastructure/wire/WireErrors"
import { Waiters } from "#interfaces/realtime/Waiters"
import { classifyInboundRequest, type JSONRPCRequest } from "@modelcontextprotocol/server"
import { Cause, Effect } from "effect"
import { type HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { answerConstant, constantRequestOf } from "./ConstantAnswer.ts"
import { makeEventMethods } from "./events/EventMethods.ts"
import {
  idOf,
  INVALID_PARAMS,
  INVALID_REQUEST,
  type Note,
  noteOf,
  PARSE_ERROR,
  refusalBody,
  rpcError
} from "./JsonRpc.ts"
import { MCP, mcpOrigins } from "./McpProtocol.ts"
import type { McpRequest } from "./McpRequest.ts"
import { makeModernRequests, type ModernMessage } from "./ModernRequest.ts"
import { answerOlder } from "./OlderRequest.ts"
import { makePlainCalls, plainCallOf } from "./PlainCall.ts"
import { InvalidParams, withReadParams } from "./RequestParams.ts"
import { instructions, joinInstructions, withoutUnknown } from "./Texts.ts"
import { SETS } from "./tools/Catalogue.ts"
import { MAX_INLINE } from "./tools/FileTools.ts"
import type { JoinApi } from "./tools/JoinTools.ts"
import type { ToolApi } from "./tools/Tool.ts"
import { readyTool, setsIn, type Toolset, toolsetOf, toolsToJoin } from "./Toolset.ts"

/**
 * The memory for a file in a result: the file itself, its base64 text, the JSON of the result, and the bytes that are
 * sent.
 */
const INLINE_FILE: LargeAnswer = { usual: 1, max: 1, bytes: 5 * MAX_INLINE }

/**
 * How long a body may be, in characters, that is parsed only because the refusal of a request beyond the budget depends
 * on its method and id.
 */
const MAX_REFUSED = 131_072

/**
 * Returns the value of a query parameter, or else of a header. Returns the empty string if the request contains
 * neither.
 */
const askedBy = (parameter: string, header: string, { headers, url }: HttpServerRequest.HttpServerRequest): string =>
  queryOf(url).get(parameter) ?? headers[header] ?? ""

/** Whether the request asks for structured results from every tool. */
const asksForStructure = (request: HttpServerRequest.HttpServerRequest): boolean =>
  askedBy("structured", "x-mcp-structured", request).toLowerCase() === "on"

/** The sender of a request, and the tools that the request may use. */
interface Caller extends Pick<McpRequest, "api" | "instructions" | "toolNamed" | "toolset"> {
  readonly scopes: ReadonlyArray<OAuthScope>
  /** The refusal of the request, if the caller has used up its request budget. */
  readonly refused: RateLimited | undefined
  /** The name of a tool set that does not exist, if the client asked for one. */
  readonly unknownSet: string | undefined
}

const knowing = <Api>(
  toolset: Toolset<Api>,
  api: Api,
  paragraphs: ReadonlyArray<string>
): Pick<Caller, "instructions" | "toolNamed" | "toolset"> => ({
  toolset,
  toolNamed: (name) => readyTool(toolset, api, name),
  instructions: () =>
    paragraphs.map((text) => withoutUnknown(text, toolset.knows)).filter((text) => text !== "").join("\n\n")
})

/**
 * Returns the scope that a message needs (wire.md P). Three kinds of message need `agent:act`: a call of a tool that
 * changes something, a wait that acknowledges messages first, and a subscription that posts the texts of messages to a
 * URL.
 */
const needed = ({ method, params }: ModernMessage, toolNamed: Caller["toolNamed"]): OAuthScope => {
  const { arguments: given, name } = (typeof params === "object" && params !== null ? params : {}) as {
    readonly arguments?: { readonly acknowledge_through?: unknown; readonly include_text?: unknown } | null
    readonly name?: unknown
  }
  if (method === "events/subscribe") return given?.include_text === true ? "agent:act" : "agent:read"
  if (method !== "tools/call") return "agent:read"
  const tool = typeof name === "string" ? toolNamed(name)?.tool : undefined
  if (tool === undefined || tool.annotations.readOnlyHint) return "agent:read"
  const through = given?.acknowledge_through ?? ""
  return tool.waits && through === "" ? "agent:read" : "agent:act"
}

/** The account and the rights that a credential gives. */
interface Granted {
  readonly agent: Agent
  /** The OAuth connection, or undefined for a key. */
  readonly connectionId: string | undefined
  readonly scopes: ReadonlyArray<OAuthScope>
}

/** Returns the refusal if the request budget is used up, and undefined otherwise. */
const spent = (counted: Effect.Effect<unknown, RateLimited>): Effect.Effect<RateLimited | undefined> =>
  Effect.match(counted, { onFailure: (failure) => failure, onSuccess: () => undefined })

/** The API for a model, whose sends have a budget of their own (wire.md G.19). */
const byModel = ({ call }: ApiCalls): ApiCalls["call"] => (method, path, body) =>
  Effect.provideService(call(method, path, body), ByModel, true)

/** Whether the request uses the 2026 revision, an older revision, or is invalid in all of them. */
const kindOf = (request: HttpServerRequest.HttpServerRequest, body: unknown) =>
  classifyInboundRequest(
    {
      httpMethod: "POST",
      protocolVersionHeader: request.headers["mcp-protocol-version"],
      mcpMethodHeader: request.headers["mcp-method"],
      mcpNameHeader: request.headers["mcp-name"],
      body
    } as Parameters<typeof classifyInboundRequest>[0]
  )

/**
 * The handlers of `POST /mcp`, for agents, and `POST /mcp/join`, for programs without a key (wire.md M). The two differ
 * in their callers and their tools. A handler identifies the caller and counts the request. Then it responds in one of
 * four ways:
 *
 * - It executes a plain tool call by itself (PlainCall.ts).
 * - It responds to a list that never changes from memory (ConstantAnswer.ts).
 * - It lets the library respond to other requests of older revisions (OlderRequest.ts).
 * - It lets the library respond to other requests of the 2026 revision (ModernRequest.ts).
 *
 * The handlers keep no sessions, so any node can respond to a request.
 */
export const makeMcpHandler = (router: HttpRouter.HttpRouter) =>
  Effect.gen(function*() {
    const attachments = yield* Attachments
    const auth = yield* Auth
    const budgets = yield* Budgets
    const config = yield* Config
    const connections = yield* Grants
    const ids = yield* Ids
    const reads = yield* LargeReads
    const waiters = yield* Waiters
    const events = yield* makeEventMethods
    const answerModern = yield* makeModernRequests
    const answerPlain = yield* makePlainCalls
    const app = router.asHttpEffect()
    const allowed = mcpOrigins(config)

    const toolApi = (
      request: HttpServerRequest.HttpServerRequest,
      agent: CurrentAgent["Service"],
      principal: Principal
    ): ToolApi => ({
      call: byModel(makeApiCalls(app, request, principal)),
      agent,
      principal,
      freshId: () => `mcp-${ids.bytes(16).toString("hex")}`,
      uploadSeconds: config.UPLOADS_URL_SECONDS,
      fill: (id, bytes) => attachments.fill(agent.id, id, bytes),
      open: (id) => reads.ofAgent(agent.id, INLINE_FILE, attachments.open(agent.id, id, MAX_INLINE))
    })

    /**
     * Returns the account, the OAuth connection and the scopes of a credential. The credential is an OAuth access token
     * or a key. A key permits everything.
     */
    const granted = (credential: string): Effect.Effect<Granted, Unauthorized | Unavailable> =>
      offersOAuth(config) && isAccessToken(credential)
        ? connections.authenticate(credential)
        : Effect.map(auth.authenticate(credential), (agent) => ({ agent, connectionId: undefined, scopes: SCOPES }))

    const agentOf = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const credential = bearerOf(request.headers["authorization"])
      const grant = granted(credential)
      const { agent, connectionId, scopes } = yield* Effect.catchTag(grant, "Unauthorized", () =>
        budgets.unauthorized(request))
      const refused = yield* spent(budgets.ofAgent(request, agent.id))
      const api = toolApi(request, agent, {
        agentId: agent.id,
        check: Effect.map(grant, ({ agent }) =>
          agent),
        endsUnnoticed: isAccessToken(credential),
        connectionId
      })
      const { sets, unknown } = setsIn(askedBy("tools", "x-mcp-toolsets", request))
      const caller: Caller = {
        api,
        refused,
        scopes,
        unknownSet: unknown,
        ...knowing(toolsetOf(sets), api, instructions(agent.handle))
      }
      return caller
    })

    const guestOf = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const refused = yield* spent(budgets.ofAddress(request))
      const api: JoinApi = { ...makeApiCalls(app, request, undefined), mcpUrl: publicUrl(config) + MCP }
      const caller: Caller = {
        api: undefined,
        refused,
        scopes: SCOPES,
        unknownSet: undefined,
        ...knowing(toolsToJoin, api, joinInstructions)
      }
      return caller
    })

    /** Returns the effect that responds to a message: directly, from a stored constant, or through the library. */
    const answerOf = (
      request: HttpServerRequest.HttpServerRequest,
      message: ModernMessage,
      admitted: McpRequest
    ) => {
      const kind = kindOf(request, message)
      const plain = plainCallOf(kind, request.headers, message, admitted.toolNamed)
      if (plain !== undefined)
        return answerPlain(plain, admitted)
      const version = request.headers["mcp-protocol-version"]
      const constant = constantRequestOf(kind, request.headers, message, admitted.structured)
      if (constant !== undefined) {
        return answerConstant(constant, admitted, (listed) =>
          kind.kind === "legacy"
            ? answerOlder(version, listed, admitted)
            : answerModern(request.headers, listed, admitted))
      }
      if (kind.kind !== "legacy")
        return answerModern(request.headers, message, admitted)
      // Notifications and responses in the older revisions have no effect, because the server keeps no state between
      // requests.
      return idOf(message) !== null && typeof message.method === "string"
        ? answerOlder(version, message as JSONRPCRequest, admitted)
        : Effect.succeed(HttpServerResponse.empty({ status: 202 }))
    }

    /**
     * Refuses the request, or returns the effect that responds to it. The effect is separate, so that a wait does not
     * keep in memory what only the checks needed.
     */
    const admit = Effect.fnUntraced(function*<E>(
      request: HttpServerRequest.HttpServerRequest,
      callerOf: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<Caller, E>
    ) {
      const note = noteOf(request)
      const origin = request.headers["origin"]
      if (origin !== undefined && allowed(origin) === "") {
        return yield* new Forbidden({ message: "Pages of this origin may not call this server: see ALLOWED_ORIGINS." })
      }
      if (!hostIsOwn(config, request.headers["host"])) {
        return yield* new Forbidden({ message: "This server does not have this host name: see PUBLIC_URL." })
      }
      const { scopes, unknownSet, ...caller } = yield* callerOf(request)

      const text = yield* uncheckedText(request)
      const { refused } = caller
      if (refused !== undefined && text.length > MAX_REFUSED)
        return Effect.succeed(toResponse(refused, undefined, refusalBody(note)))
      const body = bodyOf(text, note)
      if (HttpServerResponse.isHttpServerResponse(body))
        return Effect.succeed(body)
      const { method } = body as ModernMessage
      if (refused !== undefined && method !== "tools/call")
        return Effect.succeed(toResponse(refused, undefined, refusalBody(note, idOf(body))))
      // Only a request gets a response, so only the parameters of a request can be refused.
      const message = idOf(body) !== null && typeof method === "string"
        ? withReadParams<ModernMessage>(body)
        : body as ModernMessage
      if (unknownSet !== undefined) {
        const message = `There is no set of tools with the name ${
          JSON.stringify(unknownSet.slice(0, 40))
        }. The sets are ${SETS.join(", ")}.`
        return Effect.succeed(rpcError(400, INVALID_PARAMS, message, note, idOf(body)))
      }
      if (message instanceof InvalidParams)
        return Effect.succeed(rpcError(200, INVALID_PARAMS, message.message, note, idOf(body)))
      if (!permits(scopes, needed(message, caller.toolNamed))) {
        const failure = new Forbidden({
          message: "This connection may only read. To write, the person who made it has to connect again and permit it."
        })
        return Effect.succeed(
          toResponse(
            failure,
            { "www-authenticate": challenge(config, request.url, "insufficient_scope") },
            refusalBody(note, idOf(body))
          )
        )
      }
      const admitted: McpRequest = {
        context: yield* Effect.context<never>(),
        ...caller,
        events,
        wait: waiters.wait,
        structured: asksForStructure(request),
        note
      }
      return answerOf(request, message, admitted)
    })

    /** Adds a header that tells a caller without a valid credential where to find out how to sign in. */
    const challenging = <E, R>(handled: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
      Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers, url }) =>
        Effect.map(handled, (response) =>
          response.status === 401
            ? HttpServerResponse.setHeader(
              response,
              "www-authenticate",
              challenge(config, url, headers["authorization"] === undefined ? undefined : "invalid_token")
            )
            : response))

    const handler = <E>(callerOf: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<Caller, E>) =>
      Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
        Effect.catchCause(Effect.flatten(admit(request, callerOf)), (cause) =>
          Cause.hasInterruptsOnly(cause) ? Effect.interrupt : answer(cause, refusalBody(noteOf(request)))))

    const agents = handler(agentOf)
    return {
      agents: offersOAuth(config) ? challenging(agents) : agents,
      join: handler(guestOf),
      others: challenging(Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
        agentOf(request).pipe(
          Effect.andThen(Effect.fail(new MethodNotAllowed())),
          Effect.catchCause((cause) =>
            answer(cause, refusalBody(noteOf(request)))
          ),
          Effect.map((response) =>
            response.status === 405 ? HttpServerResponse.setHeader(response, "allow", "POST, OPTIONS") : response
          )
        )))
    }
  })

/** Returns the message in a body, or the response that refuses the body. */
const bodyOf = (text: string, note: Note): object | HttpServerResponse.HttpServerResponse => {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    return rpcError(400, PARSE_ERROR, "The body is not valid JSON.", note)
  }
  if (Array.isArray(body))
    return rpcError(400, INVALID_REQUEST, "Batches are not supported: send one message in each request.", note)
  if (typeof body !== "object" || body === null)
    return rpcError(400, INVALID_REQUEST, "The body is not a JSON-RPC message.", note)
  const given = idOf(body)
  if (typeof given === "string" && given.length > MAX_RPC_ID)
    return rpcError(400, INVALID_REQUEST, `The id must have at most ${MAX_RPC_ID} characters.`, note)
  const inexact = inexactNumber(text)
  if (inexact === undefined) return body
  const id = exactId(given)
  const { message } = numberRefused(inexact)
  return id === undefined
    ? rpcError(400, INVALID_REQUEST, message, note)
    : rpcError(200, INVALID_PARAMS, message, note, id)
}
