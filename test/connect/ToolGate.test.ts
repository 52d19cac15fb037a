import { openTools, type ToSend } from "#clients/connect/programs/ToolGate"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"

/** Opens the tools of a run without a server. Returns what the run sent, and the answer to each body. */
const answersTo = (...bodies: ReadonlyArray<string>) =>
  Effect.scoped(Effect.gen(function*() {
    const sent: Array<ToSend> = []
    const tools = yield* openTools({ key: "ac_x", server: "http://127.0.0.1:9" }, (message) =>
      Effect.sync(() => {
        sent.push(message)
        return { text: "Sent.", refused: false }
      }))
    const answers = yield* Effect.forEach(bodies, (body) =>
      Effect.promise(async () => {
        const response = await fetch(tools.url, {
          method: "POST",
          headers: { authorization: `Bearer ${tools.token}` },
          body
        })
        const { error, id } = await response.json() as {
          readonly id: unknown
          readonly error?: { readonly code: number }
        }
        return { status: response.status, id, error: error?.code }
      }))
    return { sent, answers }
  }))

const call = (id: string, more: string): string =>
  `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"agentchat_send_message","arguments":{"to":"bob","text":"Hi"${more}}}}`

it.live("a reply_to of null is an absent one, as at /mcp", () =>
  Effect.gen(function*() {
    const { answers, sent } = yield* answersTo(
      call("1", ""),
      call("2", ',"reply_to":null'),
      call("3", ',"reply_to":"","client_msg_id":null'),
      call("4", ',"reply_to":"msg_1"')
    )
    assert.deepStrictEqual(sent.map(({ replyTo }) => replyTo), [undefined, undefined, undefined, "msg_1"])
    assert.deepStrictEqual(answers, [1, 2, 3, 4].map((id) => ({ status: 200, id, error: undefined })))
  }))

it.live("a number that a double does not hold is refused, as at /mcp", () =>
  Effect.gen(function*() {
    const { answers, sent } = yield* answersTo(
      call("9007199254740993", ""),
      call("7", ',"n":9007199254740993'),
      call('"9007199254740993"', "")
    )
    assert.lengthOf(sent, 1)
    assert.deepStrictEqual(answers, [
      { status: 400, id: null, error: -32600 },
      { status: 200, id: 7, error: -32602 },
      { status: 200, id: "9007199254740993", error: undefined }
    ])
  }))
