import { bearerOf } from "#infrastructure/wire/Bearer"
import { exactId, inexactNumber, numberRefused } from "#infrastructure/wire/InexactNumber"
import { Effect, Option, Schema } from "effect"
import { randomBytes, timingSafeEqual } from "node:crypto"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** The URL of Parley's tools over MCP for one run. The token is valid only for this run. */
export interface Tools {
  readonly url: string
  readonly token: string
}

/** A message that a run wants to send. */
export interface ToSend {
  readonly to: string
  readonly text: string
  readonly replyTo: string | undefined
}

/** The result of a tool. */
export interface ToolAnswer {
  readonly text: string
  readonly refused: boolean
}

const MAX_BODY_BYTES = 1_048_576
const REQUEST_TIMEOUT_MS = 30_000
const SEND = "agentchat_send_message"

/**
 * The methods that are forwarded. Subscriptions and events are not forwarded, because a run does not wait for messages.
 */
const METHODS = /^(?:initialize|ping|server\/discover|tools\/(?:list|call)|notifications\/\w+)$/
/** The request headers that are forwarded to the server. The run's token is not forwarded. */
const HEADERS = ["accept", "content-type", "user-agent", "mcp-protocol-version", "mcp-method", "mcp-name"]
const MODERN = "2026-07-28"

const Rpc = Schema.Struct({
  method: Schema.String,
  id: Schema.optionalKey(Schema.Union([Schema.String, Schema.Number])),
  params: Schema.optionalKey(Schema.Unknown)
})
const SendCall = Schema.Struct({
  name: Schema.Literal(SEND),
  arguments: Schema.Struct({
    to: Schema.NonEmptyString,
    text: Schema.NonEmptyString,
    reply_to: Schema.optionalKey(Schema.NullOr(Schema.String))
  })
})
const decodeRpc = Schema.decodeUnknownOption(Schema.fromJsonString(Rpc))
const decodeSend = Schema.decodeUnknownOption(SendCall)

const nameIn = (params: unknown): unknown =>
  typeof params === "object" && params !== null ? Reflect.get(params, "name") : undefined

const bodyOf = async (request: IncomingMessage): Promise<string | undefined> => {
  const parts: Array<Buffer> = []
  let size = 0
  for await (const part of request as AsyncIterable<Buffer>) {
    size += part.length
    if (size > MAX_BODY_BYTES) return undefined
    parts.push(part)
  }
  return Buffer.concat(parts).toString("utf8")
}

const isSame = (given: string, wanted: string): boolean => {
  const [one, other] = [Buffer.from(given), Buffer.from(wanted)]
  return one.length === other.length && timingSafeEqual(one, other)
}

const json = (response: ServerResponse, body: unknown, status = 200): void => {
  response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" }).end(
    JSON.stringify(body)
  )
}

/**
 * Opens a port on 127.0.0.1 that gives one run access to `/mcp` until the scope ends. The run gets a token for this
 * port and never the agent's key. It gets the tools of the set `answer` (wire.md M), which neither wait for messages
 * nor acknowledge them. The connector itself runs `agentchat_send_message` with `send`. All other calls are forwarded
 * to the server.
 */
export const openTools = Effect.fnUntraced(function*(
  { key, server }: { readonly key: string; readonly server: string },
  send: (message: ToSend) => Effect.Effect<ToolAnswer>
) {
  const token = randomBytes(32).toString("base64url")
  const run = Effect.runPromiseWith(yield* Effect.context<never>())

  const forward = async (request: IncomingMessage, body: string, response: ServerResponse): Promise<void> => {
    const headers = Object.fromEntries(
      HEADERS.flatMap((name) => typeof request.headers[name] === "string" ? [[name, request.headers[name]]] : [])
    )
    const answer = await fetch(`${server}/mcp?tools=answer`, {
      method: "POST",
      headers: { ...headers, authorization: `Bearer ${key}` },
      body,
      redirect: "error",
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS)
    })
    const text = await answer.text()
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "application/json" }).end(
      text
    )
  }

  const handle = async (request: IncomingMessage, response: ServerResponse, port: number): Promise<void> => {
    if (request.headers.host !== `127.0.0.1:${port}` || !isSame(bearerOf(request.headers.authorization), token)) {
      return void response.writeHead(401).end()
    }
    if (request.method !== "POST") return void response.writeHead(405).end()
    const body = await bodyOf(request)
    const rpc = Option.getOrUndefined(decodeRpc(body))
    if (body === undefined || rpc === undefined) return void response.writeHead(400).end()
    const { id, method, params } = rpc
    const inexact = inexactNumber(body)
    if (inexact !== undefined) {
      const { message } = numberRefused(inexact)
      const exact = exactId(id)
      return exact === undefined
        ? json(response, { jsonrpc: "2.0", id: null, error: { code: -32600, message } }, 400)
        : json(response, { jsonrpc: "2.0", id: exact, error: { code: -32602, message } })
    }
    const fail = (code: number, message: string) =>
      id === undefined
        ? void response.writeHead(202).end()
        : json(response, { jsonrpc: "2.0", id, error: { code, message } })
    if (!METHODS.test(method)) return fail(-32601, "Method not found")
    if (method !== "tools/call" || nameIn(params) !== SEND) return forward(request, body, response)
    const call = Option.getOrUndefined(decodeSend(params))
    if (call === undefined) return fail(-32602, `${SEND} needs to and text`)
    const { reply_to: replyTo, text, to } = call.arguments
    const answer = await run(send({ to, text, replyTo: replyTo === null || replyTo === "" ? undefined : replyTo }))
    const result = { content: [{ type: "text", text: answer.text }], isError: answer.refused }
    json(response, {
      jsonrpc: "2.0",
      id,
      result: request.headers["mcp-protocol-version"] === MODERN ? { ...result, resultType: "complete" } : result
    })
  }

  const listening = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const gate = createServer((request, response) => {
        const { port } = gate.address() as AddressInfo
        handle(request, response, port).catch(() =>
          response.headersSent ? response.destroy() : response.writeHead(502).end()
        )
      })
      gate.once("error", (error) => resume(Effect.die(error)))
      gate.listen(0, "127.0.0.1", () => resume(Effect.succeed(gate)))
    }),
    (gate) =>
      Effect.sync(() => {
        gate.close()
        gate.closeAllConnections()
      })
  )
  const tools: Tools = { url: `http://127.0.0.1:${(listening.address() as AddressInfo).port}/mcp`, token }
  return tools
})
