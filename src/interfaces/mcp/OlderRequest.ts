import { EventStream } from "#infrastructure/http/DeferredResponse"
import type { JSONRPCMessage, JSONRPCRequest, Transport } from "@modelcontextprotocol/server"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Readable } from "node:stream"
import { COMMENT, COMMENT_MS, eventOf, eventStream } from "./DeferredAnswer.ts"
import { noteError, rpcError, UNSUPPORTED } from "./JsonRpc.ts"
import type { McpRequest } from "./McpRequest.ts"
import { makeServer, OLDER } from "./McpServer.ts"

const isAnswer = (message: JSONRPCMessage): boolean => "id" in message && !("method" in message)

/**
 * Lets the library respond to a request of an older revision. The response is JSON if the first message of the library
 * is the final one and comes within COMMENT_MS. Otherwise it is an event stream that ends with the final message. If
 * the client closes the stream, the request is cancelled. The library's own transport for these revisions would take
 * eight times the processor time.
 */
const exchange = (message: JSONRPCRequest, request: McpRequest) =>
  Effect.callback<HttpServerResponse.HttpServerResponse>((resume) => {
    let stream: Readable | undefined
    let over = false
    const events = (): Readable => {
      if (stream !== undefined) return stream
      stream = new EventStream()
      stream.once("close", end)
      resume(Effect.succeed(eventStream(stream)))
      return stream
    }
    const timer = setInterval(() => events().push(COMMENT), COMMENT_MS)
    const end = (): void => {
      if (over) return
      over = true
      clearInterval(timer)
      resume(Effect.die(new Error("The request ended before its answer.")))
      transport.onclose?.()
    }
    const answer = (message: JSONRPCMessage): void => {
      if (stream === undefined) {
        noteError(message, request.note)
        resume(Effect.succeed(HttpServerResponse.jsonUnsafe(message)))
      } else {
        stream.push(eventOf(message))
        stream.push(null)
      }
      end()
    }
    const transport: Transport = {
      start: async () => undefined,
      close: async () => end(),
      send: async (message) => {
        if (over) return
        if (isAnswer(message)) answer(message)
        else events().push(eventOf(message))
      }
    }
    makeServer("legacy", request).connect(transport).then(
      () => transport.onmessage?.(message),
      (defect) => resume(Effect.die(defect))
    )
    return Effect.sync(end)
  })

/**
 * Lets the library respond to a request of an older revision. Refuses the request if its header names a revision that
 * this server does not support.
 */
export const answerOlder = (
  version: string | undefined,
  message: JSONRPCRequest,
  request: McpRequest
): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
  version !== undefined && message.method !== "initialize" && !OLDER.includes(version)
    ? Effect.sync(() =>
      rpcError(
        400,
        UNSUPPORTED,
        `Unsupported protocol version; these are supported: ${OLDER.join(", ")}.`,
        request.note,
        message.id
      )
    )
    : exchange(message, request)
