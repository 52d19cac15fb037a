import { type CallToolResult, classifyInboundRequest, createMcpHandler, type JSONRPCRequest } from "@modelcontextprotocol/server"
import { Cause, Effect, Exit, Scope } from "effect"
import { type HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { AgentSuspended } from "#domain/agents/Agent"
import { Attachments } from "#domain/attachments/Attachments"
import { Auth } from "#domain/auth/Auth"
import type { CurrentAgent } from "#domain/auth/Authorization"
import { Budgets } from "#domain/auth/Budgets"
import { Asked } from "#ground/http/Asked"
import { EventStream, later } from "#ground/http/DeferredResponse"
import { hostIsOwn, mcpOrigins } from "#ground/http/Origins"
import { Config } from "#ground/platform/Config"
import { Ids } from "#ground/platform/Ids"
import { type LargeAnswer, LargeReads } from "#ground/rates/LargeReads"
import { Waiters } from "#doors/realtime/Waiters"
import { bearerOf } from "#ground/wire/Bearer"
import { Forbidden, type WireFailure } from "#ground/wire/WireError"
import { answer, rpcBody, toResponse } from "#ground/wire/WireErrors"
import { makeApiCalls } from "#domain/auth/ApiCalls"
import { toolNamed } from "./Catalogue.ts"
import { COMMENT_MS, exchange, type Exchanged } from "./Exchange.ts"
import { MAX_INLINE } from "./FileTools.ts"
import { eventStream, DeferredAnswer } from "./DeferredAnswer.ts"
import { beginCall, type BegunCall, callTool, makeServer, type McpRequest, type Note, OLDER, type Report } from "./McpServer.ts"
import { type PlainCall, plainCallOf } from "./PlainCall.ts"
import { makeSubscriptions } from "./Subscriptions.ts"
import { waiting } from "./Texts.ts"
import type { ToolCall } from "./Tool.ts"

/** Milliseconds between two progress notifications of a wait. */
const PROGRESS_MS = 5_000

/** The memory for a file in a result: the file itself, and its base64 text in the result, in the result's JSON and in the sent bytes. */
const INLINE_FILE: LargeAnswer = { usual: 1, max: 1, bytes: 5 * MAX_INLINE }

const PARSE_ERROR = -32_700
const INVALID_REQUEST = -32_600
const UNSUPPORTED = -32_000

type Id = string | number | null

/** The function keeps a reference to `source` alone, which lives as long as a wait anyway, and not to the whole request. */
const noteOf = ({ source }: HttpServerRequest.HttpServerRequest): Note => {
  const asked = source instanceof Asked ? source : undefined
  return ({ code, message }) => {
    if (asked !== undefined) asked.refused ??= { code, why: message }
  }
}

/** Notes a JSON-RPC error for the log, if the message is one. */
const noteError = (message: unknown, note: Note): void => {
  const error = (message as { readonly error?: { readonly code: number; readonly message: string } } | null)?.error
  if (error !== undefined) note({ code: String(error.code), message: error.message })
}

const rpcError = (status: number, code: number, message: string, note: Note, id: Id = null) => {
  const body = { jsonrpc: "2.0", error: { code, message }, id }
  noteError(body, note)
  return HttpServerResponse.jsonUnsafe(body, { status })
}

/** Makes and notes the body with which a request is refused before it reaches the protocol. */
const refusalBody = (note: Note, id: Id = null) => (failure: WireFailure) => {
  note(failure)
  return rpcBody(failure, id)
}

const fromExchange = (exchanged: Exchanged, note: Note) => {
  if (exchanged._tag === "Events") return eventStream(exchanged.stream)
  noteError(exchanged.message, note)
  return HttpServerResponse.jsonUnsafe(exchanged.message)
}

const messageOf = ({ id, mark }: Pick<PlainCall, "id" | "mark">, result: CallToolResult) => ({ result: { ...result, ...mark }, jsonrpc: "2.0", id })

/** Reads the library's output as soon as it is there. Unread output then waits only in `stream`, which has a bound. */
const copyTo = async (stream: EventStream, reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> => {
  stream.once("close", () => void reader.cancel().catch(() => undefined))
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (stream.destroyed) return
      stream.push(done ? null : value)
      if (done) return
    }
  } catch (error) {
    stream.destroy(error instanceof Error ? error : undefined)
  }
}

/** Converts the library's response. Calls `ended` when its event stream has closed, or at once if the response is no event stream. */
const fromWeb = async (response: Response, note: Note, ended: () => void = () => undefined) => {
  const contentType = response.headers.get("content-type") ?? undefined
  if (response.body !== null && contentType?.startsWith("text/event-stream") === true) {
    const stream = new EventStream()
    stream.once("close", ended)
    void copyTo(stream, response.body.getReader())
    return eventStream(stream)
  }
  ended()
  const text = await response.text()
  if (text.includes(`"error":{`)) noteError(JSON.parse(text), note)
  return text === ""
    ? HttpServerResponse.empty({ status: response.status })
    : HttpServerResponse.text(text, { status: response.status, ...(contentType === undefined ? {} : { contentType }) })
}


/** Whether the request asks for structured results of every tool. If the query has no `structured`, the header decides. */
const asksForStructure = ({ headers, url }: HttpServerRequest.HttpServerRequest): boolean => {
  const query = url.indexOf("?")
  const asked = query < 0 ? null : new URLSearchParams(url.slice(query)).get("structured")
  return (asked ?? headers["x-mcp-structured"])?.toLowerCase() === "on"
}

const idOf = (body: unknown): Id => {
  const id = (body as { readonly id?: unknown } | null)?.id
  return typeof id === "string" || typeof id === "number" ? id : null
}

interface Rpc {
  readonly method?: unknown
  readonly params?: { readonly name?: unknown; readonly notifications?: unknown }
}

/**
 * The handler of `POST /mcp` (wire.md M). It authenticates and counts a request, then passes it to the protocol's library. It keeps no
 * sessions: every request carries its key, and any node can answer it.
 */
export const makeMcpHandler = (router: HttpRouter.HttpRouter) =>
  Effect.gen(function*() {
    const attachments = yield* Attachments
    const auth = yield* Auth
    const budgets = yield* Budgets
    const config = yield* Config
    const ids = yield* Ids
    const reads = yield* LargeReads
    const subscriptions = yield* makeSubscriptions
    const waiters = yield* Waiters
    const app = router.asHttpEffect()
    const allowed = mcpOrigins(config)
    const run = Effect.runForkWith(yield* Effect.context<never>())

    const requests = new WeakMap<Request, McpRequest>()
    const factory = ({ requestInfo }: { readonly requestInfo?: Request }) => {
      const request = requestInfo === undefined ? undefined : requests.get(requestInfo)
      if (request === undefined) throw new Error("A request without an agent.")
      return makeServer("modern", request)
    }
    const modern = createMcpHandler(factory, { legacy: "reject", keepAliveMs: COMMENT_MS })
    /** For calls of tools that wait. The answer is an event stream with comments, because proxies close silent connections. */
    const modernEvents = createMcpHandler(factory, { legacy: "reject", keepAliveMs: COMMENT_MS, responseMode: "sse" })

    const callFor = (request: HttpServerRequest.HttpServerRequest, agent: CurrentAgent["Service"], key: string) => {
      const api = makeApiCalls(app, request)
      return (report: Report | undefined): ToolCall => ({
        ...api,
        agent,
        freshId: () => `mcp-${ids.bytes(16).toString("hex")}`,
        uploadSeconds: config.UPLOADS_URL_SECONDS,
        fill: (id, bytes) => attachments.fill(agent.id, id, bytes),
        open: (id) => reads.ofAgent(agent.id, INLINE_FILE, attachments.open(agent.id, id, MAX_INLINE)),
        wait: (limit, timeoutMs) => {
          const waited = waiters.wait(agent.id, key, limit, timeoutMs)
          if (report === undefined) return waited
          let elapsed = 0
          const tell = Effect.suspend(() => Effect.ignore(Effect.tryPromise(() => report(elapsed / 1_000, timeoutMs / 1_000, waiting))))
          const ticking = Effect.andThen(
            Effect.sleep(PROGRESS_MS),
            Effect.suspend(() => {
              elapsed = Math.min(elapsed + PROGRESS_MS, timeoutMs)
              return tell
            })
          )
          return Effect.raceFirst(waited, Effect.andThen(tell, Effect.forever(ticking)))
        }
      })
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

    const serveModern = Effect.fnUntraced(function*(
      request: HttpServerRequest.HttpServerRequest,
      body: Rpc,
      mine: McpRequest,
      agent: CurrentAgent["Service"],
      key: string
    ) {
      const fetched = (handler: typeof modern, parsedBody: unknown, ended?: () => void) =>
        Effect.promise(async (signal) => {
          const headers = new Headers({ "content-type": "application/json", accept: "application/json, text/event-stream" })
          for (const name of ["mcp-protocol-version", "mcp-method", "mcp-name"]) {
            const value = request.headers[name]
            if (value !== undefined) headers.set(name, value)
          }
          const asked = new Request("http://parley/mcp", { method: "POST", headers, signal })
          requests.set(asked, mine)
          return fromWeb(await handler.fetch(asked, { parsedBody }), mine.note, ended)
        })
      if (body.method !== "subscriptions/listen") {
        const name = body.params?.name
        const waits = typeof name === "string" && toolNamed(name)?.begin !== undefined
        return yield* fetched(waits ? modernEvents : modern, body)
      }
      if (agent.status === "suspended") return yield* new AgentSuspended()
      const scope = yield* Scope.make()
      const end = Scope.close(scope, Exit.void)
      return yield* Effect.gen(function*() {
        const notifications = body.params?.notifications
        const { allowed, handler } = yield* subscriptions.open(agent, key, notifications, mine)
        const asked = typeof notifications === "object" && notifications !== null && "resourceSubscriptions" in notifications
          ? { ...body, params: { ...body.params, notifications: { ...notifications, resourceSubscriptions: allowed } } }
          : body
        return yield* fetched(handler, asked, () => void run(end))
      }).pipe(
        Effect.provideService(Scope.Scope, scope),
        Effect.onExit((exit) => Exit.isFailure(exit) ? end : Effect.void)
      )
    })

    const serveOlder = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest, body: JSONRPCRequest, mine: McpRequest) {
      const version = request.headers["mcp-protocol-version"]
      if (version !== undefined && body.method !== "initialize" && !OLDER.includes(version)) {
        return rpcError(400, UNSUPPORTED, `Unsupported protocol version; these are supported: ${OLDER.join(", ")}.`, mine.note, body.id)
      }
      const exchanged = yield* Effect.promise((signal) => exchange(makeServer("legacy", mine), body, signal))
      return fromExchange(exchanged, mine.note)
    })

    const servePlain = (call: PlainCall, mine: McpRequest, agentId: string, key: string) =>
      call.tool.begin === undefined
        ? Effect.map(callTool(call.tool, call.given, mine), (result) => HttpServerResponse.jsonUnsafe(messageOf(call, result)))
        : Effect.map(beginCall(call.tool, call.tool.begin, call.given, mine), (begun) =>
          "refusal" in begun ? HttpServerResponse.jsonUnsafe(messageOf(call, begun.refusal)) : later(waitOf(call, begun, agentId, key)))

    /** The parameters are all that a wait keeps in memory. It does not keep its request. */
    const waitOf = ({ id, mark }: PlainCall, { limit, result, timeoutMs }: BegunCall, agentId: string, key: string) =>
      new DeferredAnswer((settled) => {
        const wait = waiters.begin(agentId, key, limit, timeoutMs, (exit) =>
          void run(Effect.catchDefect(
            Effect.map(result(exit), (result) => settled(messageOf({ id, mark }, result))),
            (defect) => Effect.andThen(Effect.logError("The answer of a wait could not be made", Cause.die(defect)), Effect.sync(() => settled(undefined)))
          )))
        return () => waiters.cancel(wait)
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
      const key = bearerOf(request.headers["authorization"])
      const agent = yield* Effect.catchTag(auth.authenticate(key), "Unauthorized", () => budgets.unauthorized(request))
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
      const { method } = body as Rpc
      if (counted !== undefined && method !== "tools/call") return Effect.succeed(toResponse(counted, undefined, refusalBody(note, idOf(body))))
      const mine: McpRequest = {
        context: yield* Effect.context<never>(),
        callFor: callFor(request, agent, key),
        refused: counted,
        structured: asksForStructure(request),
        note,
        handle: agent.handle
      }
      const kind = kindOf(request, body)
      const plain = plainCallOf(kind, request.headers, body)
      if (plain !== undefined) return servePlain(plain, mine, agent.id, key)
      if (kind.kind !== "legacy") return serveModern(request, body as Rpc, mine, agent, key)
      // Notifications and responses of the older revisions have no effect, because the server keeps no state between requests.
      return idOf(body) !== null && typeof method === "string"
        ? serveOlder(request, body as JSONRPCRequest, mine)
        : Effect.succeed(HttpServerResponse.empty({ status: 202 }))
    })

    return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
      Effect.catchCause(Effect.flatten(admit(request)), (cause) => Cause.hasInterruptsOnly(cause) ? Effect.interrupt : answer(cause, refusalBody(noteOf(request)))))
  })
