import type { Refusal } from "#domain/auth/ApiCalls"
import type { Waiters } from "#interfaces/realtime/Waiters"
import type { Context } from "effect"
import type { EventMethods } from "./events/EventMethods.ts"
import type { Note } from "./JsonRpc.ts"
import type { ToolApi } from "./tools/Tool.ts"
import type { ReadyTool, Toolset } from "./Toolset.ts"

/** One request of `/mcp` or `/mcp/join` that may be answered. */
export interface McpRequest {
  readonly context: Context.Context<never>
  /**
   * The services of the agent that sent the request; undefined at `/mcp/join`, which has tools and no resources or
   * prompts.
   */
  readonly api: ToolApi | undefined
  /** The tool of this name; undefined if the request knows no such tool. */
  readonly toolNamed: (name: string) => ReadyTool | undefined
  /** What the request knows. */
  readonly toolset: Pick<Toolset<never>, "constants" | "knows" | "listed" | "listedWithStructure">
  /** What the server says about itself to the client. */
  readonly instructions: () => string
  readonly events: EventMethods
  /** Waits for messages. */
  readonly wait: Waiters["Service"]["wait"]
  /** The refusal of every tool call if the caller has used up its budget of requests; otherwise undefined. */
  readonly refused: Refusal | undefined
  /** Whether the client asked for structured results of tools whose results can hold texts of other agents. */
  readonly structured: boolean
  readonly note: Note
}
