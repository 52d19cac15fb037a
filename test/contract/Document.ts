import { Ajv2020 } from "ajv/dist/2020.js"
import type { Answer } from "../support/Http.ts"

/** The part of JSON Schema that the document uses for what callers send. */
export interface JsonSchema {
  readonly $ref?: string
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly enum?: ReadonlyArray<unknown>
  readonly examples?: ReadonlyArray<unknown>
  readonly type?: string
  readonly format?: string
  readonly pattern?: string
  readonly minLength?: number
  readonly maxLength?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly minItems?: number
  readonly maxItems?: number
  readonly items?: JsonSchema
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: ReadonlyArray<string>
}

interface Parameter {
  readonly $ref?: string
  readonly name: string
  readonly in: "path" | "query" | "header"
  readonly required?: boolean
  readonly schema: JsonSchema
}

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema: JsonSchema }>>
}

interface DescribedOperation {
  readonly parameters?: ReadonlyArray<Parameter>
  readonly requestBody?: Content & { readonly required?: boolean }
  readonly responses: Readonly<Record<string, Content>>
  readonly security: ReadonlyArray<Readonly<Record<string, unknown>>>
}

export interface OpenApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> }
  readonly "x-websocket": { readonly send: Readonly<Record<string, JsonSchema>> }
}

/** An operation of the document. */
export interface Operation {
  /** Method and path, as `GET /v1/groups/{id}`. */
  readonly name: string
  readonly method: string
  readonly path: string
  readonly pathParameters: ReadonlyArray<string>
  readonly query: ReadonlyArray<Parameter>
  readonly takesIdempotencyKey: boolean
  /** The schema of a JSON body. */
  readonly body: JsonSchema | undefined
  /** Whether the body is bytes that no schema describes. */
  readonly raw: boolean
  readonly needsKey: boolean
  readonly statuses: ReadonlyArray<string>
}

export const operationsOf = (document: OpenApiDocument): ReadonlyArray<Operation> =>
  Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]): Operation => {
      const parameters = operation.parameters ?? []
      const content = operation.requestBody?.content ?? {}
      return {
        name: `${method.toUpperCase()} ${path}`,
        method: method.toUpperCase(),
        path,
        pathParameters: parameters.filter((p) => p.in === "path").map((p) => p.name),
        query: parameters.filter((p) => p.in === "query"),
        takesIdempotencyKey: parameters.some((p) => p.$ref === "#/components/parameters/IdempotencyKey"),
        body: content["application/json"]?.schema,
        raw: content["application/octet-stream"] !== undefined,
        needsKey: operation.security.length > 0 && operation.security.every((way) => "bearer" in way),
        statuses: Object.keys(operation.responses)
      }
    })
  )

const escaped = (step: string): string => encodeURIComponent(step.replaceAll("~", "~0").replaceAll("/", "~1"))

/** Holds answers against what the document says about them. */
export class Promises {
  private readonly document: OpenApiDocument
  private readonly ajv: Ajv2020

  constructor(document: OpenApiDocument) {
    this.document = document
    // Not strict: the document's own keywords (paths, components) are none of JSON Schema's.
    this.ajv = new Ajv2020({ strict: false, allErrors: true })
    this.ajv.addFormat("date-time", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    this.ajv.addFormat("email", /^[^@\s]+@[^@\s]+$/)
    this.ajv.addFormat("binary", true)
    this.ajv.addSchema(document, "parley")
  }

  /** What is wrong with this answer, if anything. */
  problem(operation: Operation, answer: Answer): string | undefined {
    const status = String(answer.status)
    const response = this.document.paths[operation.path]?.[operation.method.toLowerCase()]?.responses[status]
    if (response === undefined) return `status ${status} is not documented`
    const [[type] = []] = Object.entries(response.content ?? {})
    if (type === undefined) return answer.text === "" ? undefined : "a body where none is documented"
    if (!(answer.header("content-type") ?? "").startsWith(type)) {
      return `content-type ${answer.header("content-type")} instead of ${type}`
    }
    if (type !== "application/json") return undefined
    const steps = [
      "paths",
      operation.path,
      operation.method.toLowerCase(),
      "responses",
      status,
      "content",
      type,
      "schema"
    ]
    return this.mismatch(steps, answer.body)
  }

  /** How a value differs from the schema at this place of the document, if it does. */
  mismatch(steps: ReadonlyArray<string>, value: unknown): string | undefined {
    const $ref = `parley#/${steps.map(escaped).join("/")}`
    const validate = this.ajv.getSchema($ref) ?? this.ajv.compile({ $ref })
    return validate(value) === true ? undefined : this.ajv.errorsText(validate.errors, { dataVar: "body" })
  }
}
