import { fileTools } from "./FileTools.ts"
import { groupTools } from "./GroupTools.ts"
import { messageTools } from "./MessageTools.ts"
import { peopleTools } from "./PeopleTools.ts"
import { type ToolName, tools as texts } from "../Texts.ts"
import type { Tool } from "./Tool.ts"

const byName = new Map<string, Tool>([...messageTools, ...fileTools, ...groupTools, ...peopleTools].map((tool) => [tool.name, tool]))

/** All tools of `/mcp`, in the order of their texts in Texts.ts. */
export const catalogue: ReadonlyArray<Tool> = (Object.keys(texts) as ReadonlyArray<ToolName>).map((name) => {
  const found = byName.get(name)
  if (found === undefined) throw new Error(`The tool ${name} has texts and no behaviour.`)
  return found
})

export const toolNamed = (name: string): Tool | undefined => byName.get(name)

/**
 * Whether a tool has an output schema and structured results. Some hosts show a model the structured result in place of the text, and
 * so without the marks around texts of other agents. A tool whose results can hold such texts has a structured result only if the
 * client asked for it.
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

/** The tools as `tools/list` shows them by default. */
export const listed = shown(false)
/** The tools as `tools/list` shows them to a client that asked for structured results. */
export const listedWithStructure = shown(true)
