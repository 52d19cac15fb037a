import type { Context, Effect } from "effect"
import type { Refusal } from "#domain/auth/ApiCalls"
import type { Principal } from "#domain/auth/Principal"
import type { WaitRefusal } from "#doors/realtime/Listeners"
import type { Waited } from "#doors/realtime/Waiters"
import type { Note } from "./JsonRpc.ts"
import type { ToolApi } from "./tools/Tool.ts"

/** One authenticated request of `/mcp`. */
export interface McpRequest {
  readonly context: Context.Context<never>
  readonly principal: Principal
  /** The services for a tool. Their `agent` is the agent that sent the request. */
  readonly api: ToolApi
  /** Waits for messages to the principal. */
  readonly wait: (limit: number, timeoutMs: number) => Effect.Effect<Waited, WaitRefusal>
  /** The refusal of every tool call if the agent has used up its budget of requests; otherwise undefined. */
  readonly refused: Refusal | undefined
  /** Whether the client asked for structured results of tools whose results can hold texts of other agents. */
  readonly structured: boolean
  readonly note: Note
}
