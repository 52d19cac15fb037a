import type { IncomingMessage } from "node:http"

/**
 * Reads and drops the rest of a body, up to 8 times `maxBytes` in all, so that the client can read the response before
 * the connection closes.
 */
export const discard = (request: IncomingMessage, read: number, maxBytes: number): void => {
  let size = read
  request.on("data", (chunk: Buffer) => {
    size += chunk.length
    if (size > 8 * maxBytes) request.destroy()
  })
}

/** Whether a request announces a body. */
export const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined || (headers["content-length"] !== undefined && headers["content-length"] !== "0")

/**
 * Reads the whole body of a request that is not an upload; `done` gets undefined if it is larger than `maxBytes`. `counts` is called
 * with the bytes that are in memory so far.
 * Callbacks cost half as much as a fiber that waits for the stream, and the request's fiber starts only when the body is complete.
 */
export const readBody = (
  request: IncomingMessage,
  maxBytes: number,
  counts: (bytes: number) => void,
  done: (body: Buffer | undefined) => void
): void => {
  if (!hasBody(request)) return done(Buffer.alloc(0))
  let first: Buffer | undefined
  let rest: Array<Buffer> | undefined
  let size = 0
  const onData = (chunk: Buffer) => {
    size += chunk.length
    if (size > maxBytes) {
      request.off("data", onData)
      request.off("end", onEnd)
      discard(request, size, maxBytes)
      counts(0)
      return done(undefined)
    }
    counts(size)
    if (first === undefined) first = chunk
    else (rest ??= [first]).push(chunk)
  }
  const onEnd = () => {
    const body = rest === undefined ? first ?? Buffer.alloc(0) : Buffer.concat(rest)
    // A request may wait for long, and its listeners stay: they must not keep the body.
    first = rest = undefined
    done(body)
  }
  request.on("data", onData)
  request.on("end", onEnd)
}
