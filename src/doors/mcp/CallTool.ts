import type { CallToolResult } from "@modelcontextprotocol/server"
import { Cause, Effect } from "effect"
import { AgentSuspended } from "#domain/agents/Agent"
import { InternalError } from "#ground/wire/WireError"
import type { Refusal } from "#domain/auth/ApiCalls"
import type { WaitRefusal } from "#doors/realtime/Listeners"
import type { Waited } from "#doors/realtime/Waiters"
import { hasStructure } from "./tools/Catalogue.ts"
import type { Note } from "./JsonRpc.ts"
import type { McpRequest } from "./McpRequest.ts"
import { advice } from "./Texts.ts"
import { isWait, type Tool, type ToolAnswer, type ToolWait } from "./tools/Tool.ts"
import { fenced, safeJson } from "./UntrustedText.ts"

/** A text block of a result or prompt. */
export const text = (value: string) => ({ type: "text" as const, text: value })

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

const refusalOf = (cause: Cause.Cause<Refusal>): Effect.Effect<Refusal> => {
  for (const reason of cause.reasons) if (Cause.isFailReason(reason)) return Effect.succeed(reason.error)
  return Cause.hasInterruptsOnly(cause)
    ? Effect.succeed(new InternalError())
    : Effect.as(Effect.logError("A request of /mcp failed", cause), new InternalError())
}

type Outcome<A> = { readonly value: A; readonly refusal?: never } | { readonly refusal: Refusal }

/** The value or the refusal that an effect ends with. A defect is logged and becomes INTERNAL_ERROR. */
export const outcomeOf = <A>(effect: Effect.Effect<A, Refusal>): Effect.Effect<Outcome<A>> =>
  Effect.matchCauseEffect(effect, {
    onFailure: (cause): Effect.Effect<Outcome<A>> => Effect.map(refusalOf(cause), (refusal) => ({ refusal })),
    onSuccess: (value) => Effect.succeed<Outcome<A>>({ value })
  })

/** A call of a tool whose work is done up to a wait. `result` makes the call's result from the result of the wait. */
export interface WaitingCall extends Pick<ToolWait, "limit" | "timeoutMs"> {
  readonly result: (waited: Effect.Effect<Waited, WaitRefusal>) => Effect.Effect<CallToolResult>
}

/** Whether a call has no result yet, because its wait is still to do. */
export const isWaiting = (called: CallToolResult | WaitingCall): called is WaitingCall => "timeoutMs" in called

/** A function outside of `callTool`, so that its closure does not keep the whole request in memory during the wait. */
const waitingCall = (tool: Tool, { answer, limit, timeoutMs }: ToolWait, note: Note, structured: boolean): WaitingCall => ({
  limit,
  timeoutMs,
  result: (waited) =>
    Effect.map(outcomeOf(Effect.map(waited, answer)), (outcome) =>
      outcome.refusal === undefined
        ? answerResult(tool, outcome.value, structured)
        : refusalResult(tool, outcome.refusal, note))
})

/**
 * Calls a tool. Returns the result, or a wait that the caller must do to get the result. A refusal becomes a result with `isError`,
 * because models read results and not protocol errors.
 */
export const callTool = (
  tool: Tool,
  given: unknown,
  { api, note, refused, structured }: Pick<McpRequest, "api" | "note" | "refused" | "structured">
): Effect.Effect<CallToolResult | WaitingCall> => {
  if (refused !== undefined) return Effect.succeed(refusalResult(tool, refused, note))
  if (api.agent.status === "suspended" && tool.name !== "agentchat_get_my_status") {
    return Effect.succeed(refusalResult(tool, new AgentSuspended(), note))
  }
  return Effect.map(outcomeOf(tool.run(given, api)), (outcome) =>
    outcome.refusal !== undefined
      ? refusalResult(tool, outcome.refusal, note)
      : isWait(outcome.value)
      ? waitingCall(tool, outcome.value, note, structured)
      : answerResult(tool, outcome.value, structured))
}
