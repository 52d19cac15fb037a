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

/** As `tools/list` shows them. */
export const listed = catalogue.map(({ annotations, description, inputSchema, name, outputSchema, title }) => ({
  name,
  title,
  description,
  inputSchema,
  outputSchema,
  annotations: { title, ...annotations }
}))
