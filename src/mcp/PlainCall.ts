import { Predicate } from "effect"
import type { InboundClassificationOutcome } from "@modelcontextprotocol/server"
import type { Headers } from "effect/http"
import { toolNamed } from "./Catalogue.ts"
import { ABOUT, OLDER } from "./McpServer.ts"
import type { Tool } from "./Tool.ts"

/** The revision of 2026, which the library speaks. */
const MODERN = "2026-07-28"

/** A call of a tool that asks nothing of the protocol but an answer. */
export interface PlainCall {
  readonly id: string | number
  readonly tool: Tool
  readonly given: object
  /** What the result has besides the tool's, in the caller's revision. */
  readonly mark: object
}

const MODERN_MARK = { resultType: "complete", _meta: { "io.modelcontextprotocol/serverInfo": ABOUT } }

const PARAMS = new Set(["name", "arguments", "_meta"])

/**
 * The call, if the request is nothing else: a known tool, arguments, no progress asked for, and headers that agree. The
 * library's handlers would answer the same (test/mcp/Protocol.test.ts) at three times the price; what is not plain is theirs,
 * every error included. `kind` is what the library says of the request.
 */
export const plainCallOf = (
  kind: InboundClassificationOutcome,
  headers: Headers.Headers,
  body: { readonly id?: unknown; readonly method?: unknown; readonly params?: unknown }
): PlainCall | undefined => {
  const { id, method, params } = body
  if (method !== "tools/call" || (typeof id !== "string" && typeof id !== "number") || !Predicate.isObject(params)) return undefined
  const { _meta: meta, arguments: given = {}, name } = params
  const tool = typeof name === "string" ? toolNamed(name) : undefined
  if (tool === undefined || !Predicate.isObject(given)) return undefined
  for (const key in params) if (!PARAMS.has(key)) return undefined
  const version = headers["mcp-protocol-version"]
  if (kind.kind === "modern") {
    return kind.messageKind === "request" && kind.classification.revision === MODERN && version === MODERN &&
        headers["mcp-method"] === method && headers["mcp-name"] === name && Predicate.isObject(meta) && !("progressToken" in meta)
      ? { id, tool, given, mark: MODERN_MARK }
      : undefined
  }
  return kind.kind === "legacy" && kind.reason === "no-claim" && meta === undefined && (version === undefined || OLDER.includes(version))
    ? { id, tool, given, mark: {} }
    : undefined
}
