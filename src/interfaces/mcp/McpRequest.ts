import type { Refusal } from "#domain/auth/ApiCalls"
import type { Waiters } from "#interfaces/realtime/Waiters"
import type { Context } from "effect"
import type { EventMethods } from "./events/EventMethods.ts"
import type { Note } from "./JsonRpc.ts"
import type { ToolApi } from "./tools/Tool.ts"
import type { ReadyTool, Toolset } from "./Toolset.ts"

/** One request to `/mcp` or `/mcp/join` that passed all checks. */
export interface McpRequest {
  readonly context: Context.Context<never>
  /**
   * The services of the agent that sent the request. Undefined at `/mcp/join`, which offers tools but no resources or
   * prompts.
   */
  readonly api: ToolApi | undefined
  /** Returns the tool with this name, or undefined if the request may not use such a tool. */
  readonly toolNamed: (name: string) => ReadyTool | undefined
  /** The tools that the request may use. */
  readonly toolset: Pick<Toolset<never>, "constants" | "knows" | "listed" | "listedWithStructure">
  /** Returns what the server tells the client about itself. */
  readonly instructions: () => string
  readonly events: EventMethods
  /** Waits for messages. */
  readonly wait: Waiters["Service"]["wait"]
  /** The refusal for every tool call if the caller has used up its request budget, and undefined otherwise. */
  readonly refused: Refusal | undefined
  /** Whether the client asked for structured results from tools whose results can contain texts of other agents. */
  readonly structured: boolean
  readonly note: Note
}
