import type { Refusal } from "#domain/auth/ApiCalls"
import type { Effect } from "effect"
import { withoutUnknown } from "./Texts.ts"
import { type SetName, SETS, toolsOf } from "./tools/Catalogue.ts"
import { joinTools } from "./tools/JoinTools.ts"
import type { JsonSchema, Tool, ToolApi, ToolDefinition, ToolResult } from "./tools/Tool.ts"

/** The tools that a request may use. Their texts name no other tools. */
export interface Toolset<Api> {
  readonly tools: ReadonlyMap<string, Tool<Api>>
  /** The tools as `tools/list` shows them by default. */
  readonly listed: ReadonlyArray<object>
  /** The tools as `tools/list` shows them to a client that asked for structured results. */
  readonly listedWithStructure: ReadonlyArray<object>
  /**
   * The beginnings of responses that are always the same for this toolset, up to the id of the request
   * (ConstantAnswer.ts).
   */
  readonly constants: Map<string, Buffer>
  /**
   * Whether a text may contain this name: a tool of the set, or `acknowledge_through` if a wait in the set takes this
   * argument.
   */
  readonly knows: (name: string) => boolean
}

/** A tool that is ready to be called for one request. */
export interface ReadyTool {
  readonly tool: ToolDefinition
  readonly run: (given: unknown) => Effect.Effect<ToolResult, Refusal>
}

/**
 * Returns the tool with this name, ready for a request with these services. Returns undefined if the toolset does not
 * contain it.
 */
export const readyTool = <Api>({ tools }: Toolset<Api>, api: Api, name: string): ReadyTool | undefined => {
  const tool = tools.get(name)
  return tool === undefined ? undefined : { tool, run: (given) => tool.run(given, api) }
}

/**
 * Whether a tool has an output schema and structured results. Some hosts show a model the structured result in place of
 * the text, and so without the marks around texts of other agents. So a tool whose results can contain such texts
 * returns a structured result only if the client asked for it.
 */
export const hasStructure = ({ foreign, secret }: ToolDefinition, asked: boolean): boolean =>
  !secret && (asked || !foreign)

const shown = (tools: Iterable<ToolDefinition>, asked: boolean) =>
  Array.from(tools, (tool) => ({
    name: tool.name,
    title: tool.title,
    description: tool.description,
    inputSchema: tool.inputSchema,
    ...(hasStructure(tool, asked) ? { outputSchema: tool.outputSchema } : {}),
    annotations: { title: tool.title, ...tool.annotations },
    ...(tool.alwaysLoad ? { _meta: { "anthropic/alwaysLoad": true } } : {})
  }))

interface Property {
  readonly description?: string
}

const propertiesOf = (schema: JsonSchema) => schema["properties"] as Readonly<Record<string, Property>>

const makeToolset = <Api>(given: ReadonlyArray<Tool<Api>>): Toolset<Api> => {
  const acknowledges = given.some(({ inputSchema }) => Object.hasOwn(propertiesOf(inputSchema), "acknowledge_through"))
  const names = new Set([...given.map(({ name }) => name), ...(acknowledges ? ["acknowledge_through"] : [])])
  const knows = (name: string): boolean => names.has(name)
  const known = ({ description = "", ...property }: Property) => ({
    ...property,
    description: withoutUnknown(description, knows)
  })
  const tools = new Map(given.map((tool) => [tool.name, {
    ...tool,
    description: withoutUnknown(tool.description, knows),
    inputSchema: {
      ...tool.inputSchema,
      properties: Object.fromEntries(
        Object.entries(propertiesOf(tool.inputSchema)).map(([name, property]) => [name, known(property)])
      )
    }
  }]))
  return {
    tools,
    listed: shown(tools.values(), false),
    listedWithStructure: shown(tools.values(), true),
    constants: new Map(),
    knows
  }
}

/**
 * The toolsets that clients asked for, by the names of their sets in the order of SETS. There is at most one for each
 * combination of sets.
 */
const made = new Map<string, Toolset<ToolApi>>()

/** Returns the tools of these sets together. */
export const toolsetOf = (sets: ReadonlySet<SetName>): Toolset<ToolApi> => {
  const key = SETS.filter((set) => sets.has(set)).join()
  const known = made.get(key) ?? makeToolset(toolsOf(sets))
  made.set(key, known)
  return known
}

/** All tools of `/mcp`. */
export const allTools = toolsetOf(new Set(["all"]))

/** The tools of `/mcp/join`. */
export const toolsToJoin = makeToolset(joinTools)

/**
 * Parses a list of sets, separated by commas. Returns the sets, or all tools if the list is empty. Also returns the
 * first name in the list that is not a set.
 */
export const setsIn = (list: string): { readonly sets: ReadonlySet<SetName>; readonly unknown: string | undefined } => {
  const asked = list.toLowerCase().split(",").map((name) => name.trim()).filter((name) => name !== "")
  return {
    sets: new Set(asked.length === 0 ? ["all"] : SETS.filter((name) => asked.includes(name))),
    unknown: asked.find((name) => !SETS.some((set) => set === name))
  }
}
