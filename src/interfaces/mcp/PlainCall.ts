import { deferred } from "#infrastructure/http/DeferredResponse"
import { Waiters } from "#interfaces/realtime/Waiters"
import type { CallToolResult, InboundClassificationOutcome } from "@modelcontextprotocol/server"
import { Cause, Effect, Predicate } from "effect"
import { type Headers, HttpServerResponse } from "effect/http"
import { callTool, isWaiting, type WaitingCall } from "./CallTool.ts"
import { DeferredAnswer } from "./DeferredAnswer.ts"
import type { McpRequest } from "./McpRequest.ts"
import { ABOUT, OLDER } from "./McpServer.ts"
import type { ReadyTool } from "./Toolset.ts"

/** The revision of 2026, which the library implements. */
const MODERN = "2026-07-28"

/** A tool call that uses no other feature of the protocol, such as progress notifications. */
export interface PlainCall {
  readonly id: string | number
  readonly tool: ReadyTool
  readonly given: object
  /** The fields that the caller's revision adds to the result of a tool. */
  readonly mark: object
}

const MODERN_MARK = { resultType: "complete", _meta: { "io.modelcontextprotocol/serverInfo": ABOUT } }

/** Whether a request uses an older revision that this server supports. */
export const isOlder = (kind: InboundClassificationOutcome, headers: Headers.Headers): boolean => {
  const version = headers["mcp-protocol-version"]
  return kind.kind === "legacy" && kind.reason === "no-claim" && (version === undefined || OLDER.includes(version))
}

/** Whether a request uses the 2026 revision and its headers match its method. */
export const isPlainModern = (kind: InboundClassificationOutcome, headers: Headers.Headers, method: string): boolean =>
  kind.kind === "modern" && kind.messageKind === "request" && kind.classification.revision === MODERN &&
  headers["mcp-protocol-version"] === MODERN && headers["mcp-method"] === method

/** Whether the token for progress notifications is absent or valid. */
export const progressTokenIsValid = ({ progressToken: token }: { readonly progressToken?: unknown }): boolean =>
  token === undefined || typeof token === "string" || Number.isInteger(token)

/**
 * Returns the call if the request is a plain call, and undefined otherwise. A plain call contains a known tool,
 * arguments, and headers that match the body, and asks for no progress notifications. The library would give the same
 * response (test/mcp/Protocol.test.ts) but take three times the processor time. The library responds to all other
 * requests, including every invalid one. `kind` is the library's classification of the request.
 */
export const plainCallOf = (
  kind: InboundClassificationOutcome,
  headers: Headers.Headers,
  body: { readonly id?: unknown; readonly method?: unknown; readonly params?: unknown },
  toolNamed: McpRequest["toolNamed"]
): PlainCall | undefined => {
  const { id, method, params } = body
  if (method !== "tools/call" || (typeof id !== "string" && typeof id !== "number") || !Predicate.isObject(params))
    return undefined
  const { _meta: meta, arguments: given = {}, name } = params
  const tool = typeof name === "string" ? toolNamed(name) : undefined
  if (tool === undefined || !Predicate.isObject(given)) return undefined
  if (kind.kind === "modern") {
    return isPlainModern(kind, headers, method) && headers["mcp-name"] === name && Predicate.isObject(meta) &&
        !("progressToken" in meta)
      ? { id, tool, given, mark: MODERN_MARK }
      : undefined
  }
  return isOlder(kind, headers) && meta === undefined ? { id, tool, given, mark: {} } : undefined
}

const messageOf = ({ id, mark }: Pick<PlainCall, "id" | "mark">, result: CallToolResult) => ({
  result: { ...result, ...mark },
  jsonrpc: "2.0",
  id
})

/**
 * Executes plain calls without the library. If a call has to wait, its response is sent later, and no fiber runs until
 * the result of the wait is there.
 */
export const makePlainCalls = Effect.gen(function*() {
  const waiters = yield* Waiters
  const run = Effect.runForkWith(yield* Effect.context<never>())

  /** A wait keeps only these parameters in memory, not the request. */
  const answerLater = ({ id, mark }: PlainCall, { limit, principal, result, timeoutMs }: WaitingCall) =>
    new DeferredAnswer((settled) => {
      const wait = waiters.begin(principal, limit, timeoutMs, (exit) =>
        void run(Effect.catchDefect(
          Effect.map(result(exit), (result) => settled(messageOf({ id, mark }, result))),
          (defect) =>
            Effect.andThen(
              Effect.logError("A call on /mcp that waited for messages failed and got no response", Cause.die(defect)),
              Effect.sync(() => settled(undefined))
            )
        )))
      return () => waiters.cancel(wait)
    })

  return (call: PlainCall, request: McpRequest): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
    Effect.map(callTool(call.tool, call.given, request), (called) =>
      isWaiting(called)
        ? deferred(answerLater(call, called))
        : HttpServerResponse.jsonUnsafe(messageOf(call, called)))
})
