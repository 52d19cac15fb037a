import { answerConstant, constantRequestOf } from "#interfaces/mcp/ConstantAnswer"
import { assert, it } from "@effect/vitest"
import {
  classifyInboundRequest,
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  PROTOCOL_VERSION_META_KEY
} from "@modelcontextprotocol/server"
import { Effect } from "effect"
import { Headers, HttpServerResponse } from "effect/http"

const textOf = ({ body }: HttpServerResponse.HttpServerResponse): unknown =>
  body._tag === "Uint8Array" ? JSON.parse(Buffer.from(body.body).toString()) : undefined

it.effect("the library answers once for each key of a set of tools, and a refusal is not kept", () =>
  Effect.gen(function*() {
    const set = { toolset: { constants: new Map<string, Buffer>() } }
    let made = 0
    const ask = (key: string, id: string | number, status = 200) =>
      Effect.map(
        answerConstant({ id, key, message: { jsonrpc: "2.0", id, method: "tools/list" } }, set, (message) =>
          Effect.sync(() => {
            made++
            const answer = status === 200 ? { result: { tools: [key] } } : { error: { code: -1, message: "no" } }
            return HttpServerResponse.jsonUnsafe({ ...answer, jsonrpc: "2.0", id: message.id }, { status })
          })),
        textOf
      )
    yield* ask("refused", 1, 400)
    yield* ask("refused", 2, 400)
    assert.strictEqual(made, 2)
    for (const id of [1, "two", '"3"', -4]) {
      assert.deepStrictEqual(yield* ask("one", id), { result: { tools: ["one"] }, jsonrpc: "2.0", id })
    }
    assert.deepStrictEqual(yield* ask("other", 5), { result: { tools: ["other"] }, jsonrpc: "2.0", id: 5 })
    assert.strictEqual(made, 4)
  }))

const MODERN = "2026-07-28"
const meta = {
  [PROTOCOL_VERSION_META_KEY]: MODERN,
  [CLIENT_INFO_META_KEY]: { name: "test", version: "1" },
  [CLIENT_CAPABILITIES_META_KEY]: {}
}

it.effect("the library answers a list once, whatever else a request for its first page has", () =>
  Effect.gen(function*() {
    const set = { toolset: { constants: new Map<string, Buffer>() } }
    let made = 0
    const ask = (method: string, params: object, more: Readonly<Record<string, string>>) => {
      const body = { jsonrpc: "2.0", id: 1, method, params } as const
      const isModern = "_meta" in params
      const headers = isModern ? { "mcp-protocol-version": MODERN, "mcp-method": method, ...more } : more
      const kind = classifyInboundRequest({
        httpMethod: "POST",
        ...(isModern ? { protocolVersionHeader: MODERN, mcpMethodHeader: method } : {}),
        ...(more["mcp-name"] === undefined ? {} : { mcpNameHeader: more["mcp-name"] }),
        body
      })
      const constant = constantRequestOf(kind, Headers.fromInput(headers), body, false)
      assert.isDefined(constant, JSON.stringify([body, more]))
      return answerConstant(constant!, set, ({ id }) =>
        Effect.sync(() => {
          made++
          return HttpServerResponse.jsonUnsafe({ result: {}, jsonrpc: "2.0", id })
        }))
    }
    const methods = ["tools/list", "resources/list", "resources/templates/list", "prompts/list", "events/list"]
    for (const method of methods) {
      for (const revision of [{}, { _meta: meta }]) {
        for (const cursor of [{}, { cursor: "" }, { cursor: null }]) {
          for (const headers of [{}, { "mcp-name": "x" }]) yield* ask(method, { ...revision, ...cursor }, headers)
        }
      }
    }
    assert.strictEqual(made, 2 * methods.length)
    const body = { jsonrpc: "2.0", id: 1, method: "tools/list", params: { cursor: "page-2" } } as const
    const kind = classifyInboundRequest({ httpMethod: "POST", body })
    assert.isUndefined(constantRequestOf(kind, Headers.empty, body, false))
  }))
