import { type ToolName, tools as texts } from "../Texts.ts"
import { fileTools } from "./FileTools.ts"
import { groupTools } from "./GroupTools.ts"
import { messageTools, showMessages } from "./MessageTools.ts"
import { peopleTools } from "./PeopleTools.ts"
import type { Tool } from "./Tool.ts"
import { wakeTools } from "./WakeTools.ts"

/** The sets of which each tool is in exactly one (wire.md M). */
type Home = "core" | "people" | "groups" | "files"

/** The tools of a host that only talks. */
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
 * The names of the sets that a client can ask for. `read` has tools of the first four, `answer` has tools of `core`,
 * and `all` has all tools.
 */
export const SETS = ["core", "people", "groups", "files", "read", "answer", "all"] as const
export type SetName = (typeof SETS)[number]

/** The tool as the set `read` has it; undefined if it is not in this set. A wait acknowledges nothing there. */
const reading = (tool: Tool): Tool | undefined =>
  tool.name === showMessages.name ? showMessages : tool.annotations.readOnlyHint ? tool : undefined

/**
 * Whether the set `answer` has this tool of `core`. Another program receives and acknowledges the messages that are
 * answered.
 */
const answering = ({ name, waits }: Tool): boolean => !waits && name !== "agentchat_mark_read"

/** The tools of these sets together. */
export const toolsOf = (sets: ReadonlySet<SetName>): ReadonlyArray<Tool> =>
  entries.flatMap(({ home, tool }) => {
    if (sets.has("all") || sets.has(home) || (sets.has("answer") && home === "core" && answering(tool))) return tool
    return sets.has("read") ? reading(tool) ?? [] : []
  })
