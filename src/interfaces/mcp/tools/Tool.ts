import type { ApiCalls, Refusal } from "#domain/auth/ApiCalls"
import type { CurrentAgent } from "#domain/auth/Authorization"
import type { Principal } from "#domain/auth/Principal"
import { isStorableJson } from "#infrastructure/wire/Text"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { invalid } from "#infrastructure/wire/WireErrors"
import type { Waited } from "#interfaces/realtime/Waiters"
import { Effect, Schema } from "effect"
import { joinTools, tools, type ToolText } from "../Texts.ts"

/** The services that a tool uses for one request of one agent. */
export interface ToolApi extends ApiCalls {
  readonly agent: CurrentAgent["Service"]
  readonly principal: Principal
  /** Makes a random, unique client_msg_id. */
  readonly freshId: () => string
  /** Stores the bytes of an attachment for which `POST /v1/uploads` has reserved an id. */
  readonly fill: (attachmentId: string, bytes: Buffer) => Effect.Effect<void, Refusal>
  /** Reads an attachment. `bytes` is undefined if the file is too large for a result. */
  readonly open: (attachmentId: string) => Effect.Effect<
    {
      readonly filename: string
      readonly contentType: string
      readonly size: number
      readonly bytes: Buffer | undefined
    },
    Refusal
  >
  readonly uploadSeconds: number
}

/** A file in the result of a tool, in addition to the text. */
export interface EmbeddedFile {
  readonly uri: string
  readonly mimeType: string
  readonly bytes: Buffer
}

export interface ToolAnswer<A extends object = object> {
  readonly value: A
  readonly file?: EmbeddedFile
  readonly link?: { readonly uri: string; readonly name: string; readonly mimeType: string; readonly size: number }
}

/**
 * A wait for messages that must follow the work of a tool. `answer` makes the tool's result from the result of the
 * wait.
 */
export interface ToolWait<A extends object = object> {
  /** The agent for whose messages the call waits. */
  readonly principal: Principal
  /** How many messages the result shows at most. */
  readonly limit: number
  readonly timeoutMs: number
  readonly answer: (waited: Waited) => ToolAnswer<A>
}

/** The outcome of a tool's work: the result, or a wait that the caller must perform. */
export type ToolResult<A extends object = object> = ToolAnswer<A> | ToolWait<A>

/** Whether the work of a tool ended with a wait. */
export const isWait = (result: ToolResult): result is ToolWait => "timeoutMs" in result

export interface Hints {
  readonly readOnlyHint: boolean
  readonly destructiveHint: boolean
  readonly idempotentHint: boolean
  readonly openWorldHint: boolean
}

export interface JsonSchema {
  readonly type: "object"
  readonly [key: string]: unknown
}

/** The definition of a tool, as clients and the server use it. */
export interface ToolDefinition {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly inputSchema: JsonSchema
  readonly outputSchema: JsonSchema
  readonly annotations: Hints
  /** Whether the result can contain texts of other agents. */
  readonly foreign: boolean
  /**
   * Whether the result contains a secret. Such a tool returns no structured result, so that the secret appears only
   * once.
   */
  readonly secret: boolean
  /** Whether a host that loads tool definitions only after a search should load this tool at startup. */
  readonly alwaysLoad: boolean
  /** Whether `run` can end with a wait. */
  readonly waits: boolean
}

/** A tool with its behaviour. `Api` is the type of the services that a request provides. */
export interface Tool<Api = ToolApi> extends ToolDefinition {
  readonly run: (given: unknown, api: Api) => Effect.Effect<ToolResult, Refusal>
}

/** What a tool changes. The tool's hints for clients follow from this. */
type Kind =
  /** Changes nothing. */
  | "reads"
  /** Changes something. A repeated call changes nothing more. */
  | "sets"
  /** Adds something with each call. */
  | "adds"
  /** Removes something that the agent cannot easily restore. */
  | "removes"

const hintsOf = (kind: Kind): Hints => ({
  readOnlyHint: kind === "reads",
  destructiveHint: kind === "removes",
  idempotentHint: kind !== "adds",
  openWorldHint: kind === "adds"
})

/** Makes the JSON Schema of a struct, with the descriptions of its fields. */
const schemaOf = (fields: Schema.Struct.Fields, descriptions: Readonly<Record<string, string>>): JsonSchema => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(Schema.Struct(fields))
  const properties = (schema["properties"] ?? {}) as Record<string, object>
  for (const [name, description] of Object.entries(descriptions)) {
    if (Object.hasOwn(properties, name)) properties[name] = { ...properties[name], description }
  }
  const required = schema["required"] as ReadonlyArray<string> | undefined
  return {
    type: "object",
    properties,
    ...(required === undefined || required.length === 0 ? {} : { required }),
    ...(Object.keys(definitions).length === 0 ? {} : { $defs: definitions })
  }
}

/**
 * Corrects the arguments that a model wrote. A text of digits becomes a number where the schema expects one. Fields
 * that are null or unknown are dropped.
 */
const lenient = (given: unknown, schema: JsonSchema): unknown => {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return given
  const properties = schema["properties"] as Readonly<Record<string, { readonly type?: string }>>
  return Object.fromEntries(
    Object.entries(given).filter(([name, value]) => value !== null && Object.hasOwn(properties, name)).map((
      [name, value]
    ) =>
      properties[name]?.type === "integer" && typeof value === "string" && /^-?\d{1,15}$/.test(value)
        ? [name, Number(value)]
        : [name, value]
    )
  )
}

const texts: Readonly<Record<string, ToolText>> = { ...tools, ...joinTools }

/**
 * Returns a function that makes tools from their schemas and behaviour, for requests with these services. The texts of
 * the tools are in Texts.ts.
 */
export const makeTools =
  <Api>() =>
  <const I extends Record<string, Schema.Codec<unknown>>, const O extends Schema.Struct.Fields>(
    name: keyof typeof tools | keyof typeof joinTools,
    spec: {
      readonly kind: Kind
      /** Set if the result cannot contain texts of other agents. */
      readonly own?: true
      readonly secret?: true
      readonly alwaysLoad?: true
      readonly waits?: true
      readonly input: I
      readonly output: O
      readonly run: (
        given: Schema.Struct<I>["Type"],
        api: Api
      ) => Effect.Effect<ToolResult<Schema.Struct<O>["Encoded"]>, Refusal>
    }
  ): Tool<Api> => {
    const { description, title, ...text } = texts[name] as ToolText
    const inputSchema = schemaOf(spec.input, text.arguments)
    const decode = Schema.decodeUnknownEffect(Schema.Struct(spec.input))
    return {
      name,
      title,
      description,
      inputSchema,
      outputSchema: schemaOf(spec.output, {}),
      annotations: hintsOf(spec.kind),
      foreign: spec.own !== true,
      secret: spec.secret === true,
      alwaysLoad: spec.alwaysLoad === true,
      waits: spec.waits === true,
      run: (given, api) =>
        isStorableJson(given)
          ? Effect.flatMap(
            Effect.mapError(decode(lenient(given, inputSchema)), ({ issue }) => invalid(issue, "arguments")),
            (decoded) => spec.run(decoded as Schema.Struct<I>["Type"], api)
          )
          : Effect.fail(
            new ValidationFailed({
              message: "The arguments must nest at most 64 deep and contain no NUL and no lone surrogate."
            })
          )
    }
  }

/** Makes a tool of `/mcp`. */
export const tool = makeTools<ToolApi>()
