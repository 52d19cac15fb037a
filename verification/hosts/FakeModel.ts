import { once } from "node:events"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** A call of one of Parley's tools, by the name that Parley gives it. */
export interface Call {
  readonly tool: string
  readonly args: Readonly<Record<string, unknown>>
  /** The model repeats the call until a request contains this text. */
  readonly until?: string
}

/** A tool in a request, under the name that the host gives it. Codex groups tools into namespaces. */
export interface ShownTool {
  readonly name: string
  readonly namespace?: string
  readonly definition: unknown
}

/** A request of a host's conversation: what the model sees. */
export interface Shown {
  readonly tools: ReadonlyArray<ShownTool>
  readonly body: unknown
}

/** A turn of the model: words, or a call of a tool. */
export type Turn = { readonly say: string } | {
  readonly name: string
  readonly namespace?: string
  readonly args: object
}
/** Decides a turn by the text of a request and its tools. */
type Decide = (text: string, tools: ReadonlyArray<ShownTool>) => Turn
/** Sends one event; its `type`, if it has one, becomes the event's name. */
type Send = (data: { readonly type?: string; readonly [field: string]: unknown } | string) => void
type WriteTurn = (send: Send, turn: Turn, id: string) => void

/** A call that is repeated in vain ends after so many times, so that the host ends too. */
const MOST_REPEATS = 10

const messages: WriteTurn = (send, turn, id) => {
  const usage = { input_tokens: 1, output_tokens: 1 }
  const [block, delta, stop_reason] = "say" in turn
    ? [{ type: "text", text: "" }, { type: "text_delta", text: turn.say }, "end_turn"]
    : [{ type: "tool_use", id, name: turn.name, input: {} }, {
      type: "input_json_delta",
      partial_json: JSON.stringify(turn.args)
    }, "tool_use"]
  const message = {
    id,
    type: "message",
    role: "assistant",
    model: "fake",
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage
  }
  send({ type: "message_start", message })
  send({ type: "content_block_start", index: 0, content_block: block })
  send({ type: "content_block_delta", index: 0, delta })
  send({ type: "content_block_stop", index: 0 })
  send({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage })
  send({ type: "message_stop" })
}

const responses: WriteTurn = (send, turn, id) => {
  const item = "say" in turn
    ? {
      type: "message",
      id,
      role: "assistant",
      status: "completed",
      content: [{ type: "output_text", text: turn.say, annotations: [] }]
    }
    : { type: "function_call", id, call_id: id, ...turn, arguments: JSON.stringify(turn.args) }
  const usage = {
    input_tokens: 1,
    input_tokens_details: null,
    output_tokens: 1,
    output_tokens_details: null,
    total_tokens: 2
  }
  send({
    type: "response.created",
    response: { id: `${id}-response`, object: "response", status: "in_progress", output: [] }
  })
  send({ type: "response.output_item.added", output_index: 0, item })
  send({ type: "response.output_item.done", output_index: 0, item })
  send({
    type: "response.completed",
    response: { id: `${id}-response`, object: "response", status: "completed", output: [item], usage }
  })
}

const streamGenerateContent: WriteTurn = (send, turn, id) => {
  const parts = ["say" in turn ? { text: turn.say } : { functionCall: { id, name: turn.name, args: turn.args } }]
  const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 }
  send({
    candidates: [{ index: 0, content: { role: "model", parts }, finishReason: "STOP" }],
    usageMetadata,
    modelVersion: "fake"
  })
}

const chatCompletions: WriteTurn = (send, turn, id) => {
  const chunk = (delta: object, finish_reason: string | null) =>
    send({
      id,
      object: "chat.completion.chunk",
      created: 1,
      model: "fake",
      choices: [{ index: 0, delta, finish_reason }]
    })
  if ("say" in turn) chunk({ role: "assistant", content: turn.say }, null)
  else {
    const call = { name: turn.name, arguments: JSON.stringify(turn.args) }
    chunk({ role: "assistant", tool_calls: [{ index: 0, id, type: "function", function: call }] }, null)
  }
  chunk({}, "say" in turn ? "stop" : "tool_calls")
  send("[DONE]")
}

const APIS: ReadonlyArray<readonly [path: RegExp, write: WriteTurn]> = [
  [/\/v1\/messages$/, messages],
  [/\/responses$/, responses],
  [/:streamGenerateContent$/, streamGenerateContent],
  [/\/chat\/completions$/, chatCompletions]
]

/** All tools in a request, in the form of any of the four APIs. */
const toolsIn = (value: unknown, namespace?: string): ReadonlyArray<ShownTool> => {
  if (Array.isArray(value)) return value.flatMap((one) => toolsIn(one, namespace))
  if (typeof value !== "object" || value === null) return []
  const { function: inner, functionDeclarations, name, tools, type } = value as Readonly<Record<string, unknown>>
  if (type === "namespace") return toolsIn(tools, String(name))
  if (functionDeclarations !== undefined || inner !== undefined) return toolsIn(functionDeclarations ?? inner)
  return typeof name === "string"
    ? [{ name, definition: value, ...(namespace === undefined ? {} : { namespace }) }]
    : []
}

/**
 * A model that plays a script of tool calls on loopback, one for each request that has tools and speaks of Parley's,
 * and then says that it is done. It answers every other request (a title for the session, for example) with a word.
 */
export class FakeModel {
  readonly shown: Array<Shown> = []
  readonly #script: Array<Call>
  readonly #decide: Decide | undefined
  readonly #server = createServer((request, response) => void this.#answer(request, response))
  #last: Call | undefined
  #repeats = 0
  #searched = ""
  #turns = 0

  private constructor(script: ReadonlyArray<Call>, decide?: Decide) {
    this.#script = [...script]
    this.#decide = decide
  }

  static start(script: ReadonlyArray<Call>): Promise<FakeModel> {
    return FakeModel.#listening(new FakeModel(script))
  }

  /** A model that decides each turn by the request, and that keeps all requests. */
  static answering(decide: Decide): Promise<FakeModel> {
    return FakeModel.#listening(new FakeModel([], decide))
  }

  static async #listening(model: FakeModel): Promise<FakeModel> {
    model.#server.listen(0, "127.0.0.1")
    await once(model.#server, "listening")
    return model
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** How many calls it has not made. */
  get left(): number {
    return this.#script.length
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = ""
    for await (const part of request.setEncoding("utf8")) text += part
    const path = request.url?.replace(/\?.*/, "") ?? ""
    const write = APIS.find(([api]) => api.test(path))?.[1]
    if (write === undefined) {
      response.writeHead(404, { "content-type": "application/json" }).end("{}")
      return
    }
    const body = JSON.parse(text) as { readonly tools?: unknown }
    const tools = toolsIn(body.tools)
    const ours = this.#decide !== undefined || (tools.length > 0 && text.includes("agentchat_"))
    if (ours) this.shown.push({ tools, body })
    response.writeHead(200, { "content-type": "text/event-stream" })
    const send: Send = (data) => {
      const event = typeof data === "string" || data.type === undefined ? "" : `event: ${data.type}\n`
      response.write(`${event}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`)
    }
    write(
      send,
      this.#decide?.(text, tools) ?? (ours ? this.#next(tools, text) : { say: "Fine." }),
      `call-${++this.#turns}`
    )
    response.end()
  }

  #next(tools: ReadonlyArray<ShownTool>, text: string): Turn {
    const { until } = this.#last ?? {}
    const again = until !== undefined && !text.includes(until) && this.#repeats++ < MOST_REPEATS
    const call = again ? this.#last : this.#script[0]
    if (call === undefined) return { say: "Done." }
    const shown = tools.find(({ name }) => name.endsWith(call.tool))
    // A host with a search for tools names the others; a model has to load them first.
    const deferred = new RegExp(`mcp__\\w+__${call.tool}`).exec(text)?.[0]
    if (shown === undefined && deferred !== undefined && deferred !== this.#searched) {
      this.#searched = deferred
      return { name: "ToolSearch", args: { query: `select:${deferred}`, max_results: 1 } }
    }
    if (!again) {
      this.#last = this.#script.shift()
      this.#repeats = 0
    }
    const { definition: _, ...tool } = shown ?? { name: call.tool, definition: undefined }
    return { ...tool, args: call.args }
  }
}
