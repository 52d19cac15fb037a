import { AgentSuspended } from "#domain/agents/Agent"
import type { Refusal } from "#domain/auth/ApiCalls"
import { fenced, safeJson } from "#infrastructure/wire/UntrustedText"
import { InternalError } from "#infrastructure/wire/WireError"
import type { WaitRefusal } from "#interfaces/realtime/Listeners"
import type { Waited } from "#interfaces/realtime/Waiters"
import type { CallToolResult } from "@modelcontextprotocol/server"
import { Cause, Effect } from "effect"
import type { Note } from "./JsonRpc.ts"
import type { McpRequest } from "./McpRequest.ts"
import { advice, withoutUnknown } from "./Texts.ts"
import { isWait, type ToolAnswer, type ToolDefinition, type ToolWait } from "./tools/Tool.ts"
import { hasStructure, type ReadyTool, type Toolset } from "./Toolset.ts"

/** Makes a text block for a result or a prompt. */
export const text = (value: string) => ({ type: "text" as const, text: value })

/** The parameters that the functions that make a call's result have in common. */
interface Telling {
  readonly note: Note
  readonly knows: Toolset<never>["knows"]
  readonly structured: boolean
}

const refusalResult = (
  tool: ToolDefinition,
  { code, details, message, retryAfterMs }: Refusal,
  { knows, note }: Telling
): CallToolResult => {
  note({ code, message: `${tool.name}: ${message}` })
  const next = withoutUnknown(advice(code, retryAfterMs) ?? "", knows)
  // The text must not begin with JSON, because Gemini CLI would treat it as structured content and compare it with the
  // output schema.
  const what = `Refused: ${JSON.stringify({ code, message, ...(details === undefined ? {} : { details }) })}`
  return { isError: true, content: [text(next === "" ? what : `${what}\n${next}`)] }
}

const answerResult = (
  tool: ToolDefinition,
  { file, link, value }: ToolAnswer,
  { structured }: Telling
): CallToolResult => ({
  content: [
    text(tool.foreign ? fenced(value) : safeJson(value)),
    ...(file === undefined
      ? []
      : [{
        type: "resource" as const,
        resource: { uri: file.uri, mimeType: file.mimeType, blob: file.bytes.toString("base64") }
      }]),
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

/** Returns the value or the refusal with which an effect ends. A defect is logged and becomes INTERNAL_ERROR. */
export const outcomeOf = <A>(effect: Effect.Effect<A, Refusal>): Effect.Effect<Outcome<A>> =>
  Effect.matchCauseEffect(effect, {
    onFailure: (cause): Effect.Effect<Outcome<A>> => Effect.map(refusalOf(cause), (refusal) => ({ refusal })),
    onSuccess: (value) => Effect.succeed<Outcome<A>>({ value })
  })

/**
 * A call of a tool that still has to wait for messages. `result` makes the call's result from the result of the wait.
 */
export interface WaitingCall extends Pick<ToolWait, "principal" | "limit" | "timeoutMs"> {
  readonly result: (waited: Effect.Effect<Waited, WaitRefusal>) => Effect.Effect<CallToolResult>
}

/** Whether a call has no result yet, because it still has to wait. */
export const isWaiting = (called: CallToolResult | WaitingCall): called is WaitingCall => "timeoutMs" in called

/**
 * This function is outside `callTool`, so that its closure does not keep the whole request in memory during the wait.
 */
const waitingCall = (
  tool: ToolDefinition,
  { answer, limit, principal, timeoutMs }: ToolWait,
  telling: Telling
): WaitingCall => ({
  principal,
  limit,
  timeoutMs,
  result: (waited) =>
    Effect.map(outcomeOf(Effect.map(waited, answer)), (outcome) =>
      outcome.refusal === undefined
        ? answerResult(tool, outcome.value, telling)
        : refusalResult(tool, outcome.refusal, telling))
})

/**
 * Calls a tool. Returns the result, or a wait that the caller must perform to get the result. A refusal becomes a
 * result with `isError`, because models read results but not protocol errors.
 */
export const callTool = (
  { run, tool }: ReadyTool,
  given: unknown,
  { api, note, refused, structured, toolset: { knows } }: Pick<
    McpRequest,
    "api" | "note" | "refused" | "structured" | "toolset"
  >
): Effect.Effect<CallToolResult | WaitingCall> => {
  const telling = { note, knows, structured }
  if (refused !== undefined) return Effect.succeed(refusalResult(tool, refused, telling))
  if (api?.agent.status === "suspended" && tool.name !== "agentchat_get_my_status") {
    return Effect.succeed(refusalResult(tool, new AgentSuspended(), telling))
  }
  return Effect.map(outcomeOf(run(given)), (outcome) =>
    outcome.refusal !== undefined
      ? refusalResult(tool, outcome.refusal, telling)
      : isWait(outcome.value)
      ? waitingCall(tool, outcome.value, telling)
      : answerResult(tool, outcome.value, telling))
}
