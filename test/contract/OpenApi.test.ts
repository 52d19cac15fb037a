import { clientFrames, serverFrames } from "#interfaces/realtime/Frames"
import { assert, describe, it } from "@effect/vitest"
import { Exit, Schema } from "effect"
import { HttpApi, OpenApi } from "effect/http-api"
import { readFileSync, writeFileSync } from "node:fs"
import { Api } from "../../src/Api.ts"
import { type OpenApiDocument, Promises } from "./Document.ts"
import * as Shapes from "./Shapes.ts"

const kept = new URL("./openapi.json", import.meta.url)

interface JsonSchema {
  readonly $ref?: string
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly properties?: Record<string, { readonly type?: string; readonly enum?: ReadonlyArray<string> }>
  readonly required?: ReadonlyArray<string>
  readonly additionalProperties?: boolean
}

type Content = Record<string, { readonly schema: JsonSchema; readonly example?: unknown }>

interface Response {
  readonly description: string
  readonly content?: Content
}

interface Parameter {
  readonly name: string
  readonly in: "path" | "query"
  readonly required: boolean
  readonly example?: unknown
}

interface Operation {
  readonly operationId: string
  readonly summary?: string
  readonly description?: string
  readonly parameters: ReadonlyArray<Parameter | { readonly $ref: string }>
  readonly requestBody?: { readonly content: Content }
  readonly security: ReadonlyArray<unknown>
  readonly responses: Record<string, Response>
}

interface Document {
  readonly openapi: string
  readonly info: { readonly version: string; readonly license: Readonly<Record<string, string>> }
  readonly servers?: ReadonlyArray<{ readonly url: string }>
  readonly tags: ReadonlyArray<{ readonly name: string; readonly description?: string }>
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: { readonly schemas: Record<string, JsonSchema>; readonly responses: Record<string, Response> }
  readonly "x-websocket": { readonly receive: Record<string, JsonSchema>; readonly send: Record<string, JsonSchema> }
}

const text = `${JSON.stringify(OpenApi.fromApi(Api), null, 2)}\n`
const document = JSON.parse(text) as Document

const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const)
)

/** The schemas behind a reference or a choice. */
const choices = (schema: JsonSchema): ReadonlyArray<JsonSchema> => {
  if (schema.anyOf !== undefined) return schema.anyOf.flatMap(choices)
  if (schema.$ref === undefined) return [schema]
  const found = document.components.schemas[schema.$ref.replace("#/components/schemas/", "")]
  if (found === undefined) throw new Error(`nothing at ${schema.$ref}`)
  return choices(found)
}

/** A place in the document where an example belongs: what it is, where its schema is, and the example. */
interface Place {
  readonly name: string
  readonly kind: "parameter" | "request" | "answer"
  readonly operationId: string
  readonly schemaAt: ReadonlyArray<string>
  readonly example: unknown
}

/** Every required parameter, every JSON body that is sent, and every JSON body that a success answers with. */
const places = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).flatMap(([method, operation]): ReadonlyArray<Place> => {
    const name = `${method.toUpperCase()} ${path}`
    const { operationId } = operation
    const at = ["paths", path, method]
    const ofBody = (
      kind: Place["kind"],
      steps: ReadonlyArray<string>,
      content: Content | undefined
    ): ReadonlyArray<Place> => {
      const json = content?.["application/json"]
      return json === undefined ? [] : [{
        name: `${name} ${steps.join(" ")}`,
        kind,
        operationId,
        schemaAt: [...at, ...steps, "content", "application/json", "schema"],
        example: json.example
      }]
    }
    return [
      ...operation.parameters.flatMap((parameter, index): ReadonlyArray<Place> =>
        "$ref" in parameter || !parameter.required && parameter.example === undefined ? [] : [{
          name: `${name} ${parameter.name}`,
          kind: "parameter",
          operationId,
          schemaAt: [...at, "parameters", String(index), "schema"],
          example: parameter.example
        }]
      ),
      ...ofBody("request", ["requestBody"], operation.requestBody?.content),
      ...Object.entries(operation.responses)
        .filter(([status]) => status.startsWith("2"))
        .flatMap(([status, response]) => ofBody("answer", ["responses", status], response.content))
    ]
  })
)

/** Every field of an example that holds text, at any depth, with its name; the items of an array have the array's. */
const fieldsOf = (value: unknown, name: string): ReadonlyArray<readonly [name: string, text: string]> => {
  if (typeof value === "string") return [[name, value]]
  if (Array.isArray(value)) return value.flatMap((item) => fieldsOf(item, name))
  if (typeof value !== "object" || value === null) return []
  return Object.entries(value).flatMap(([key, inner]) => fieldsOf(inner, key))
}

const codesOf = (response: Response | undefined): ReadonlyArray<string> =>
  choices(response?.content?.["application/json"]?.schema ?? {}).flatMap((schema) =>
    schema.properties?.["code"]?.enum ?? []
  )

describe("the OpenAPI document", () => {
  it("is the one that was reviewed (UPDATE_CONTRACT=1 keeps a new one)", () => {
    if (process.env["UPDATE_CONTRACT"] === "1") writeFileSync(kept, text)
    assert.strictEqual(text, readFileSync(kept, "utf8"))
  })

  it("names the version of the contract", () => {
    assert.match(document.openapi, /^3\.1/)
    assert.strictEqual(document.info.version, "0.3.0")
  })

  it("has no reference to a missing schema", () => {
    const references = Array.from(text.matchAll(/"\$ref": "#\/([^"]+)"/g), (match) => match[1] ?? "")
    assert.isAbove(references.length, 100)
    for (const reference of references) {
      const found = reference.split("/").reduce<unknown>(
        (at, step) => (at as Record<string, unknown> | undefined)?.[step],
        document
      )
      assert.isDefined(found, reference)
    }
  })

  // What swagger-parser and redocly found (`npm run test:openapi` runs them).
  it("says its license and its server, and no two of its paths are identical", () => {
    assert.deepStrictEqual(document.info.license, { name: "MIT", identifier: "MIT" })
    assert.deepStrictEqual(document.servers, [{ url: "/" }])
    const templates = Object.keys(document.paths).map((path) => path.replace(/\{[^}]*\}/g, "{}"))
    assert.deepStrictEqual(templates.filter((path, at) => templates.indexOf(path) !== at), [])
    for (const [name, { parameters }] of operations) {
      const named = parameters.flatMap((parameter) => "$ref" in parameter ? [] : [`${parameter.in} ${parameter.name}`])
      assert.deepStrictEqual(named.filter((one, at) => named.indexOf(one) !== at), [], name)
      const inPath = Array.from(name.matchAll(/\{([^}]*)\}/g), (match) => `path ${match[1]}`)
      assert.sameMembers(named.filter((one) => one.startsWith("path ")), inPath, name)
      const required = parameters.flatMap((parameter) =>
        "$ref" in parameter || parameter.in !== "path" ? [] : [parameter.required]
      )
      assert.notInclude(required, false, name)
    }
  })

  it("lists every operation by what it does, and describes it in sentences", () => {
    for (const [name, { description, operationId, summary }] of operations) {
      assert.match(summary ?? "", /^[A-Z][a-z]+( [A-Za-z'-]+){1,4}$/, `${name}: two to five words`)
      assert.match(description ?? "", /^[A-Z].+\.$/, name)
      assert.match(operationId, /^[a-z]+\.[A-Za-z]+$/, name)
    }
    assert.strictEqual(new Set(operations.map(([, { summary }]) => summary)).size, operations.length)
    assert.strictEqual(new Set(operations.map(([, { operationId }]) => operationId)).size, operations.length)
    for (const { description, name } of document.tags) assert.match(description ?? "", /^[A-Z].+\.$/, name)
  })

  it("gives each parameter that is required, each body and each answer of success an example that its schema accepts", () => {
    const promises = new Promises(document as unknown as OpenApiDocument)
    assert.deepStrictEqual(places.filter(({ example }) => example === undefined).map(({ name }) => name), [])
    for (const { example, name, schemaAt } of places) assert.isUndefined(promises.mismatch(schemaAt, example), name)
  })

  it("gives examples that the routes' own schemas accept, without a field that they do not know", () => {
    let tried = 0
    HttpApi.reflect(Api, {
      onGroup: () => undefined,
      onEndpoint: ({ endpoint, group }) => {
        const accepts = (schemas: Iterable<Schema.Top>, example: unknown): boolean =>
          Array.from(schemas).some((schema) =>
            // The schemas of the routes need no services to be read.
            Exit.isSuccess(
              Schema.decodeUnknownExit(schema as Schema.Codec<unknown>)(example, { onExcessProperty: "error" })
            )
          )
        for (const { example, kind, name, operationId } of places) {
          if (operationId !== `${group.identifier}.${endpoint.identifier}` || kind === "parameter") continue
          const taken = Array.from(endpoint.payload.values()).flatMap(({ schemas }) => schemas)
          assert.isTrue(accepts(kind === "request" ? taken : endpoint.success, example), name)
          tried++
        }
      }
    })
    assert.strictEqual(tried, places.filter(({ kind }) => kind !== "parameter").length)
  })

  it("gives examples whose ids, handles, keys and times look as the contract says", () => {
    const { ApiKey, DeliveryId, Handle, Id, Time } = Shapes
    const anyId = Schema.Union([Id("(agt|msg|conv|grp|gri|att|whk|pnd|con)"), DeliveryId])
    const shapeOf = (field: string): Schema.Codec<string> | undefined => {
      if (field === "client_msg_id" || field === "session_id") return undefined
      if (field === "id" || field.endsWith("_id") || field === "after") return anyId
      if (/(^|_)handles?$|^(to|sender|created_by|mentions)$/.test(field)) return Handle
      if (/_(at|until|seen|since)$/.test(field)) return Time
      return field === "api_key" ? ApiKey : undefined
    }
    /** The ids of skills are the agents' own. */
    const withoutSkills = (example: unknown): unknown =>
      JSON.parse(JSON.stringify(example, (key, value: unknown) => key === "skills" ? [] : value))
    let tried = 0
    for (const { example, name } of places) {
      for (const [field, value] of fieldsOf(withoutSkills(example), name.split(" ").at(-1) ?? "")) {
        const shape = shapeOf(field)
        if (shape === undefined) continue
        assert.isTrue(Schema.is(shape)(value), `${name}: ${field} ${value}`)
        tried++
      }
    }
    assert.isAbove(tried, 200)
  })

  it("gives every error that a route can answer its code and exact body", () => {
    for (const [name, operation] of operations) {
      const has = (status: number, code: string) =>
        assert.include(codesOf(operation.responses[status]), code, `${name} ${status}`)
      has(400, "VALIDATION_ERROR")
      has(413, "PAYLOAD_TOO_LARGE")
      has(415, "UNSUPPORTED_ENCODING")
      has(429, "RATE_LIMITED")
      has(500, "INTERNAL_ERROR")
      if (operation.security.length > 0) {
        has(401, "UNAUTHORIZED")
        has(503, "UNAVAILABLE")
        if (name !== "GET /v1/agents/me") has(403, "AGENT_SUSPENDED")
      }
      for (const [status, response] of Object.entries(operation.responses)) {
        if (Number(status) < 400) continue
        assert.isNotEmpty(codesOf(response), `${name} ${status}`)
        for (const schema of choices(response.content?.["application/json"]?.schema ?? {})) {
          assert.includeMembers([...schema.required ?? []], ["code", "message"], `${name} ${status}`)
          assert.strictEqual(schema.additionalProperties, false, `${name} ${status}`)
          assert.strictEqual(schema.properties?.["code"]?.enum?.length, 1, `${name} ${status}`)
        }
      }
    }
    assert.deepStrictEqual(codesOf(document.components.responses["MethodNotAllowed"]), ["METHOD_NOT_ALLOWED"])
    assert.deepStrictEqual(codesOf(document.components.responses["RouteNotFound"]), ["NOT_FOUND"])
    assert.deepStrictEqual(codesOf(document.paths["/v1/ws"]?.["get"]?.responses["426"]), ["UPGRADE_REQUIRED"])
    assert.deepStrictEqual(codesOf(document.paths["/v1/health"]?.["get"]?.responses["503"]), ["STORAGE_UNAVAILABLE"])
  })

  it("describes every frame of the socket beside the routes", () => {
    assert.deepStrictEqual(Object.keys(document["x-websocket"].receive), Object.keys(serverFrames))
    assert.deepStrictEqual(Object.keys(document["x-websocket"].send), Object.keys(clientFrames))
    for (
      const [type, frame] of Object.entries({ ...document["x-websocket"].receive, ...document["x-websocket"].send })
    ) {
      assert.deepStrictEqual(frame.properties?.["type"]?.enum, [type])
    }
  })
})
