import { answerConstant } from "#interfaces/mcp/ConstantAnswer"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"

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
