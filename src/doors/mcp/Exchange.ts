import type { JSONRPCMessage, JSONRPCRequest, Server, Transport } from "@modelcontextprotocol/server"
import type { Readable } from "node:stream"
import { EventStream } from "#ground/http/DeferredResponse"

/** The answer to one request of an older revision: a JSON message, or an event stream that ends with it. */
export type Exchanged =
  | { readonly _tag: "Json"; readonly message: JSONRPCMessage }
  | { readonly _tag: "Events"; readonly stream: Readable }

/** Milliseconds between two comments in an event stream. Without comments, proxies close a silent stream (wire.md M). */
export const COMMENT_MS = 20_000

const isAnswer = (message: JSONRPCMessage): boolean => "id" in message && !("method" in message)

/**
 * Lets a server answer one request. The answer is JSON if it is the server's first message and comes within COMMENT_MS. Otherwise it is
 * an event stream that ends with the answer. Closing the stream cancels the request. Before there is a stream, `signal` cancels it.
 */
export const exchange = async (server: Server, request: JSONRPCRequest, signal: AbortSignal): Promise<Exchanged> => {
  let settle: (exchanged: Exchanged) => void
  let fail: (error: Error) => void
  const exchanged = new Promise<Exchanged>((resolve, reject) => {
    settle = resolve
    fail = reject
  })
  let stream: Readable | undefined
  let over = false
  const events = (): Readable => {
    if (stream !== undefined) return stream
    stream = new EventStream()
    stream.once("close", end)
    settle({ _tag: "Events", stream })
    return stream
  }
  const timer = setInterval(() => events().push(": waiting\n\n"), COMMENT_MS)
  const end = (): void => {
    if (over) return
    over = true
    clearInterval(timer)
    signal.removeEventListener("abort", end)
    fail(new Error("The request ended before its answer."))
    transport.onclose?.()
  }
  const transport: Transport = {
    start: () => Promise.resolve(),
    close: () => {
      end()
      return Promise.resolve()
    },
    send: (message) => {
      if (over) return Promise.resolve()
      if (!isAnswer(message)) {
        events().push(`event: message\ndata: ${JSON.stringify(message)}\n\n`)
      } else if (stream === undefined) {
        settle({ _tag: "Json", message })
        end()
      } else {
        stream.push(`event: message\ndata: ${JSON.stringify(message)}\n\n`)
        stream.push(null)
        end()
      }
      return Promise.resolve()
    }
  }
  signal.addEventListener("abort", end)
  if (signal.aborted) end()
  await server.connect(transport)
  transport.onmessage?.(request)
  return exchanged
}
