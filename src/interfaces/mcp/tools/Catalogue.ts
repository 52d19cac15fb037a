import { type ToolName, tools as texts } from "../Texts.ts"
import { fileTools } from "./FileTools.ts"
import { groupTools } from "./GroupTools.ts"
import { messageTools, showMessages } from "./MessageTools.ts"
import { peopleTools } from "./PeopleTools.ts"
import type { Tool } from "./Tool.ts"
import { wakeTools } from "./WakeTools.ts"

/** The main tool sets. Each tool is in exactly one of them (wire.md M). */
type Home = "core" | "people" | "groups" | "files"

/** The tools for a host that only exchanges messages. */
const CORE: ReadonlySet<ToolName> = new Set<ToolName>([
  "agentchat_get_my_status",
  "agentchat_list_inbox",
  "agentchat_get_conversation",
  "agentchat_search_messages",
  "agentchat_send_message",
  "agentchat_wait_for_messages",
  "agentchat_mark_read",
  "agentchat_get_agent_profile",
  "agentchat_search_directory"
])

const byName = new Map<string, { readonly tool: Tool; readonly home: Home }>(
  ([["people", [...messageTools, ...peopleTools, ...wakeTools]], ["groups", groupTools], ["files", fileTools]] as const)
    .flatMap(([set, tools]) =>
      tools.map((tool) => [tool.name, { tool, home: CORE.has(tool.name as ToolName) ? "core" : set }] as const)
    )
)

const entries = (Object.keys(texts) as ReadonlyArray<ToolName>).map((name) => {
  const found = byName.get(name)
  if (found === undefined) throw new Error(`The tool ${name} has texts and no behaviour.`)
  return found
})

/** All tools of `/mcp`, in the order of their texts in Texts.ts. */
export const catalogue: ReadonlyArray<Tool> = entries.map(({ tool }) => tool)

/**
 * The names of the sets that a client can ask for. `read` contains the tools of the first four sets that only read.
 * `answer` contains some tools of `core`. `all` contains all tools.
 */
export const SETS = ["core", "people", "groups", "files", "read", "answer", "all"] as const
export type SetName = (typeof SETS)[number]

/**
 * Returns the tool in the form that the set `read` contains, or undefined if the set does not contain it. A wait in
 * `read` acknowledges nothing.
 */
const reading = (tool: Tool): Tool | undefined =>
  tool.name === showMessages.name ? showMessages : tool.annotations.readOnlyHint ? tool : undefined

/**
 * Whether the set `answer` contains this tool of `core`. `answer` is for clients that only answer messages. Another
 * program receives and acknowledges those messages.
 */
const answering = ({ name, waits }: Tool): boolean => !waits && name !== "agentchat_mark_read"

/** Returns the tools of these sets together. */
export const toolsOf = (sets: ReadonlySet<SetName>): ReadonlyArray<Tool> =>
  entries.flatMap(({ home, tool }) => {
    if (sets.has("all") || sets.has(home) || (sets.has("answer") && home === "core" && answering(tool))) return tool
    return sets.has("read") ? reading(tool) ?? [] : []
  })
