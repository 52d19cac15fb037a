import { fileTools } from "./FileTools.ts"
import { groupTools } from "./GroupTools.ts"
import { messageTools } from "./MessageTools.ts"
import { peopleTools } from "./PeopleTools.ts"
import { type ToolName, tools as texts } from "./Texts.ts"
import type { Tool } from "./Tool.ts"

const byName = new Map<string, Tool>([...messageTools, ...fileTools, ...groupTools, ...peopleTools].map((tool) => [tool.name, tool]))

/** All tools of `/mcp`, in the order of their texts. */
export const catalogue: ReadonlyArray<Tool> = (Object.keys(texts) as ReadonlyArray<ToolName>).map((name) => {
  const found = byName.get(name)
  if (found === undefined) throw new Error(`The tool ${name} has texts and no behaviour.`)
  return found
})

export const toolNamed = (name: string): Tool | undefined => byName.get(name)

/**
 * Whether a tool has an output schema and structured results. Hosts show a model the structure in place of the text, so a tool
 * whose results can hold texts of other agents has structure only for a program that asks for it.
 */
export const hasStructure = ({ foreign }: Tool, asked: boolean): boolean => asked || !foreign

const shown = (asked: boolean) =>
  catalogue.map((tool) => ({
    name: tool.name,
    title: tool.title,
    description: tool.description,
    inputSchema: tool.inputSchema,
    ...(hasStructure(tool, asked) ? { outputSchema: tool.outputSchema } : {}),
    annotations: { title: tool.title, ...tool.annotations },
    ...(tool.alwaysLoad ? { _meta: { "anthropic/alwaysLoad": true } } : {})
  }))

/** The tools as `tools/list` shows them: by default, and to a program that asks for structure. */
export const listed = shown(false)
export const listedWithStructure = shown(true)
