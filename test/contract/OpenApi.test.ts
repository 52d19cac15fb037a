import { assert, describe, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { readFileSync, writeFileSync } from "node:fs"
import { Api } from "../../src/Api.ts"
import { clientFrames, serverFrames } from "../../src/realtime/Frames.ts"

const kept = new URL("./openapi.json", import.meta.url)

interface Schema {
  readonly $ref?: string
  readonly anyOf?: ReadonlyArray<Schema>
  readonly properties?: Record<string, { readonly type?: string; readonly enum?: ReadonlyArray<string> }>
  readonly required?: ReadonlyArray<string>
  readonly additionalProperties?: boolean
}

interface Response {
  readonly description: string
  readonly content?: Record<string, { readonly schema: Schema }>
}

interface Operation {
  readonly description?: string
  readonly security: ReadonlyArray<unknown>
  readonly responses: Record<string, Response>
}

interface Document {
  readonly openapi: string
  readonly info: { readonly version: string }
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: { readonly schemas: Record<string, Schema>; readonly responses: Record<string, Response> }
  readonly "x-websocket": { readonly receive: Record<string, Schema>; readonly send: Record<string, Schema> }
}

const text = `${JSON.stringify(OpenApi.fromApi(Api), null, 2)}\n`
const document = JSON.parse(text) as Document

const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const)
)

/** The schemas behind a reference or a choice. */
const choices = (schema: Schema): ReadonlyArray<Schema> => {
  if (schema.anyOf !== undefined) return schema.anyOf.flatMap(choices)
  if (schema.$ref === undefined) return [schema]
  const found = document.components.schemas[schema.$ref.replace("#/components/schemas/", "")]
  if (found === undefined) throw new Error(`nothing at ${schema.$ref}`)
  return choices(found)
}

const codesOf = (response: Response | undefined): ReadonlyArray<string> =>
  choices(response?.content?.["application/json"]?.schema ?? {}).flatMap((schema) => schema.properties?.["code"]?.enum ?? [])

describe("the OpenAPI document", () => {
  it("is the one that was reviewed (UPDATE_CONTRACT=1 keeps a new one)", () => {
    if (process.env["UPDATE_CONTRACT"] === "1") writeFileSync(kept, text)
    assert.strictEqual(text, readFileSync(kept, "utf8"))
  })

  it("names the version of the contract", () => {
    assert.match(document.openapi, /^3\.1/)
    assert.strictEqual(document.info.version, "0.3.0")
  })

  it("holds no reference to nothing", () => {
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

  it("describes every route", () => {
    for (const [name, operation] of operations) assert.isNotEmpty(operation.description, name)
  })

  it("gives every error that a route can answer its code and exact body", () => {
    for (const [name, operation] of operations) {
      const has = (status: number, code: string) =>
        assert.include(codesOf(operation.responses[status]), code, `${name} ${status}`)
      has(400, "VALIDATION_ERROR")
      has(413, "PAYLOAD_TOO_LARGE")
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
    for (const [type, frame] of Object.entries({ ...document["x-websocket"].receive, ...document["x-websocket"].send })) {
      assert.deepStrictEqual(frame.properties?.["type"]?.enum, [type])
    }
  })
})
