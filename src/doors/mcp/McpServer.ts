import { type CallToolResult, ProtocolError, ProtocolErrorCode, ResourceNotFoundError, Server, type ServerContext } from "@modelcontextprotocol/server"
import { Cause, type Context, Effect } from "effect"
import { AgentSuspended } from "#domain/agents/Agent"
import { InternalError } from "#ground/wire/WireError"
import { VERSION } from "#doors/service/Version"
import type { Refusal } from "#domain/auth/ApiCalls"
import { hasStructure, listed, listedWithStructure, toolNamed } from "./Catalogue.ts"
import { fenced, safeJson } from "./UntrustedText.ts"
import { read, resources, templates } from "./Resources.ts"
import { advice, instructions, type PromptName, prompts, promptText } from "./Texts.ts"
import type { WaitRefusal } from "#doors/realtime/Listeners"
import type { Waited } from "#doors/realtime/Waiters"
import type { Tool, ToolAnswer, ToolCall, ToolWait } from "./Tool.ts"

/** The older revisions that this server supports, newest first. The library itself supports the revision of 2026. */
export const OLDER = ["2025-11-25", "2025-06-18"]

/** The server's name and version, as clients see them. */
export const ABOUT = { name: "parley", title: "Parley", version: VERSION }

/** One authenticated request of `/mcp`. */
export interface McpRequest {
  readonly context: Context.Context<never>
  /** Makes the API that a tool uses for this request. `report` sends progress notifications, if the client asked for them. */
  readonly callFor: (report: Report | undefined) => ToolCall
  /** If it is set, every call of a tool is refused with it: the agent's budget of requests is spent. */
  readonly refused: Refusal | undefined
  /** Whether the client asked for structured results of tools whose results can hold texts of other agents. */
  readonly structured: boolean
  /** Stores why the request, or a call of a tool in it, is refused, for the request's line in the log. */
  readonly note: Note
  /** The agent that sent the request. */
  readonly handle: string
}

export type Note = (refusal: Pick<Refusal, "code" | "message">) => void

/** Sends a progress notification. */
export type Report = (progress: number, total: number, message: string) => Promise<void>

const text = (value: string) => ({ type: "text" as const, text: value })

const refusalResult = (tool: Tool, { code, details, message, retryAfterMs }: Refusal, note: Note): CallToolResult => {
  note({ code, message: `${tool.name}: ${message}` })
  const next = advice(code, retryAfterMs)
  // The text must not begin with JSON: Gemini CLI takes such a text for structured content and compares it with the output schema.
  const what = `Refused: ${JSON.stringify({ code, message, ...(details === undefined ? {} : { details }) })}`
  return { isError: true, content: [text(next === undefined ? what : `${what}\n${next}`)] }
}

const answerResult = (tool: Tool, { file, link, value }: ToolAnswer, structured: boolean): CallToolResult => ({
  content: [
    text(tool.foreign ? fenced(value) : safeJson(value)),
    ...(file === undefined
      ? []
      : [{ type: "resource" as const, resource: { uri: file.uri, mimeType: file.mimeType, blob: file.bytes.toString("base64") } }]),
    ...(link === undefined ? [] : [{ type: "resource_link" as const, ...link }])
  ],
  ...(hasStructure(tool, structured) ? { structuredContent: value as Record<string, unknown> } : {})
})

/** The refusal in a cause. A defect is logged and becomes INTERNAL_ERROR. */
const refusalOf = (cause: Cause.Cause<Refusal>): Effect.Effect<Refusal> => {
  for (const reason of cause.reasons) if (Cause.isFailReason(reason)) return Effect.succeed(reason.error)
  return Cause.hasInterruptsOnly(cause)
    ? Effect.succeed(new InternalError())
    : Effect.as(Effect.logError("A request of /mcp failed", cause), new InternalError())
}

type Outcome<A> = { readonly value: A; readonly refusal?: never } | { readonly refusal: Refusal }

const outcomeOf = <A>(effect: Effect.Effect<A, Refusal>): Effect.Effect<Outcome<A>> =>
  Effect.matchCauseEffect(effect, {
    onFailure: (cause): Effect.Effect<Outcome<A>> => Effect.map(refusalOf(cause), (refusal) => ({ refusal })),
    onSuccess: (value) => Effect.succeed<Outcome<A>>({ value })
  })

/** Turns the refusal of a read of a resource into the protocol's error, with the wire's code in its data. */
const protocolError = ({ code, details, message }: Refusal): ProtocolError =>
  new ProtocolError(ProtocolErrorCode.InternalError, message, { code, message, ...(details === undefined ? {} : { details }) })

/** The parts of a request that a call of a tool needs. */
type CallRequest = Pick<McpRequest, "callFor" | "refused" | "structured" | "note">
/** The parts of a request that the result of a call needs. */
type ResultRequest = Pick<McpRequest, "structured" | "note">

const suspension = (tool: Tool, call: ToolCall, { note }: ResultRequest): CallToolResult | undefined =>
  call.agent.status === "suspended" && tool.name !== "agentchat_get_my_status" ? refusalResult(tool, new AgentSuspended(), note) : undefined

const resultOf = (
  tool: Tool,
  answered: Effect.Effect<ToolAnswer, Refusal>,
  { note, structured }: ResultRequest
): Effect.Effect<CallToolResult> =>
  Effect.map(
    outcomeOf(answered),
    (outcome) => outcome.refusal === undefined ? answerResult(tool, outcome.value, structured) : refusalResult(tool, outcome.refusal, note)
  )

/** Calls a tool. A refusal becomes a tool result with `isError`, because models read results and not protocol errors. */
export const callTool = (
  tool: Tool,
  given: unknown,
  request: CallRequest,
  report?: Report
): Effect.Effect<CallToolResult> => {
  const { callFor, note, refused } = request
  if (refused !== undefined) return Effect.succeed(refusalResult(tool, refused, note))
  const call = callFor(report)
  const refusal = suspension(tool, call, request)
  return refusal === undefined ? resultOf(tool, tool.run(given, call), request) : Effect.succeed(refusal)
}

/** A call of a tool that has run up to its wait. `result` makes the tool result once the wait has ended. */
export interface BegunCall extends Pick<ToolWait, "limit" | "timeoutMs"> {
  readonly result: (waited: Effect.Effect<Waited, WaitRefusal>) => Effect.Effect<CallToolResult>
}

/** Does what `callTool` does up to the wait of a tool. If the call is refused before the wait, returns the refusal as a tool result. */
export const beginCall = (
  tool: Tool,
  begin: NonNullable<Tool["begin"]>,
  given: unknown,
  { callFor, note, refused, structured }: CallRequest
): Effect.Effect<BegunCall | { readonly refusal: CallToolResult }> => {
  const kept = { structured, note }
  if (refused !== undefined) return Effect.succeed({ refusal: refusalResult(tool, refused, note) })
  const call = callFor(undefined)
  const refusal = suspension(tool, call, kept)
  return refusal === undefined ? Effect.map(outcomeOf(begin(given, call)), (outcome) => begun(tool, outcome, kept)) : Effect.succeed({ refusal })
}

/** A function outside of `beginCall`, so that its closure does not keep the whole request in memory during the wait. */
const begun = (tool: Tool, outcome: Outcome<ToolWait>, kept: ResultRequest): BegunCall | { readonly refusal: CallToolResult } => {
  if (outcome.refusal !== undefined) return { refusal: refusalResult(tool, outcome.refusal, kept.note) }
  const { answer, limit, timeoutMs } = outcome.value
  return { limit, timeoutMs, result: (waited) => resultOf(tool, Effect.map(waited, answer), kept) }
}

const reporting = (ctx: ServerContext): Report | undefined => {
  const token = ctx.mcpReq._meta?.progressToken
  return token === undefined
    ? undefined
    : (progress, total, message) =>
      ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken: token, progress, total, message } })
}

const promptList = Object.entries(prompts).map(([name, prompt]) => ({
  name,
  title: prompt.title,
  description: prompt.description,
  arguments: Object.entries(prompt.arguments).map(([name, argument]) => ({ name, ...argument }))
}))

/** Makes the library's server for one request: its capabilities, its instructions and the handlers of its methods. */
export const makeServer = (era: "legacy" | "modern", request: McpRequest): Server => {
  const server = new Server(ABOUT, {
    supportedProtocolVersions: OLDER,
    capabilities: { tools: {}, resources: era === "modern" ? { subscribe: true } : {}, prompts: {} },
    instructions: instructions(request.handle)
  })
  const run = <A>(effect: Effect.Effect<A>, ctx: ServerContext): Promise<A> =>
    Effect.runPromiseWith(request.context)(effect, { signal: ctx.mcpReq.signal })

  // The library's type of a schema is narrower than JSON Schema.
  server.setRequestHandler("tools/list", () => ({ tools: (request.structured ? listedWithStructure : listed) as never }))
  server.setRequestHandler("tools/call", ({ params }, ctx) => {
    const tool = toolNamed(params.name)
    if (tool === undefined) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "There is no tool of this name.")
    return run(callTool(tool, params.arguments ?? {}, request, reporting(ctx)), ctx)
  })

  server.setRequestHandler("resources/list", () => ({ resources }))
  server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: templates }))
  server.setRequestHandler("resources/read", async ({ params: { uri } }, ctx) => {
    const call = request.callFor(undefined)
    if (call.agent.status === "suspended") throw protocolError(new AgentSuspended())
    const outcome = await run(outcomeOf(read(uri, call)), ctx)
    if (outcome.refusal !== undefined) {
      throw /NOT_FOUND$|^GROUP_DELETED$/.test(outcome.refusal.code) ? new ResourceNotFoundError(uri) : protocolError(outcome.refusal)
    }
    return { contents: [{ uri, mimeType: "text/plain", text: fenced(outcome.value) }] }
  })

  server.setRequestHandler("prompts/list", () => ({ prompts: promptList }))
  server.setRequestHandler("prompts/get", ({ params: { arguments: given = {}, name } }) => {
    if (!Object.hasOwn(prompts, name)) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "There is no prompt of this name.")
    const prompt = prompts[name as PromptName]
    for (const [argument, { required }] of Object.entries(prompt.arguments)) {
      if (required && (given[argument] ?? "").trim() === "") {
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, `The argument ${argument} is missing.`)
      }
    }
    return {
      description: prompt.description,
      messages: [{ role: "user", content: text(promptText[name as PromptName](given)) }]
    }
  })
  return server
}
