import { AgentSuspended } from "#domain/agents/Agent"
import { EventStream } from "#infrastructure/http/DeferredResponse"
import { createMcpHandler, type McpHttpHandler } from "@modelcontextprotocol/server"
import { Effect, Exit, Predicate, Scope } from "effect"
import { type Headers as RequestHeaders, HttpServerResponse } from "effect/http"
import { COMMENT_MS, eventStream } from "./DeferredAnswer.ts"
import { idOf, METHOD_NOT_FOUND, type Note, noteError, rpcError } from "./JsonRpc.ts"
import type { McpRequest } from "./McpRequest.ts"
import { makeServer } from "./McpServer.ts"
import { makeSubscriptions } from "./Subscriptions.ts"
import type { ToolApi } from "./tools/Tool.ts"

/** The parts of a message that decide how the server responds. They have not been checked. */
export interface ModernMessage {
  readonly method?: unknown
  readonly params?:
    | { readonly [name: string]: unknown; readonly name?: unknown; readonly notifications?: unknown }
    | undefined
}

/**
 * Copies the library's output to `stream` as soon as the output is available. Output that the client has not read is
 * then buffered only in `stream`, which is bounded.
 */
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

/**
 * Converts the library's response. Calls `ended` when the event stream of the response has closed, or at once if the
 * response is not an event stream.
 */
const fromWeb = async (response: Response, note: Note, ended: () => void) => {
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

/** Lets the library respond to requests of the 2026 revision, and to those that are invalid in all revisions. */
export const makeModernRequests = Effect.gen(function*() {
  const subscriptions = yield* makeSubscriptions
  const run = Effect.runForkWith(yield* Effect.context<never>())

  const requests = new WeakMap<Request, McpRequest>()
  const factory = ({ requestInfo }: { readonly requestInfo?: Request }) => {
    const request = requestInfo === undefined ? undefined : requests.get(requestInfo)
    if (request === undefined) throw new Error("An unknown request.")
    return makeServer("modern", request)
  }
  const whole = createMcpHandler(factory, { legacy: "reject", keepAliveMs: COMMENT_MS })
  /**
   * Used for calls of tools that wait. The response is an event stream with comments, because proxies close silent
   * connections.
   */
  const streamed = createMcpHandler(factory, { legacy: "reject", keepAliveMs: COMMENT_MS, responseMode: "sse" })

  const fetched = (
    handler: McpHttpHandler,
    given: RequestHeaders.Headers,
    parsedBody: unknown,
    request: McpRequest,
    ended: () => void = () => undefined
  ) =>
    Effect.promise(async (signal) => {
      const headers = new Headers({ "content-type": "application/json", accept: "application/json, text/event-stream" })
      for (const name of ["mcp-protocol-version", "mcp-method", "mcp-name"]) {
        const value = given[name]
        if (value !== undefined) headers.set(name, value)
      }
      const asked = new Request("http://parley/mcp", { method: "POST", headers, signal })
      requests.set(asked, request)
      return fromWeb(await handler.fetch(asked, { parsedBody }), request.note, ended)
    })

  const subscribe = Effect.fnUntraced(function*(
    headers: RequestHeaders.Headers,
    message: ModernMessage,
    request: McpRequest,
    api: ToolApi
  ) {
    if (api.agent.status === "suspended") return yield* new AgentSuspended()
    const scope = yield* Scope.make()
    const end = Scope.close(scope, Exit.void)
    return yield* Effect.gen(function*() {
      const notifications = message.params?.notifications
      const { allowed, handler } = yield* subscriptions.open(notifications, request, api)
      const filtered = Predicate.hasProperty(notifications, "resourceSubscriptions")
        ? {
          ...message,
          params: { ...message.params, notifications: { ...notifications, resourceSubscriptions: allowed } }
        }
        : message
      return yield* fetched(handler, headers, filtered, request, () => void run(end))
    }).pipe(
      Effect.provideService(Scope.Scope, scope),
      Effect.onExit((exit) => Exit.isFailure(exit) ? end : Effect.void)
    )
  })

  return (headers: RequestHeaders.Headers, message: ModernMessage, request: McpRequest) => {
    if (message.method === "subscriptions/listen") {
      return request.api === undefined
        ? Effect.sync(() =>
          rpcError(404, METHOD_NOT_FOUND, "There are no resources here.", request.note, idOf(message))
        )
        : subscribe(headers, message, request, request.api)
    }
    const name = message.params?.name
    const waits = typeof name === "string" && request.toolNamed(name)?.tool.waits === true
    return fetched(waits ? streamed : whole, headers, message, request)
  }
})
