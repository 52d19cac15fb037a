import type { IncomingMessage } from "node:http"

/** Reads on without keeping anything, so that the peer reads its answer before the connection goes, within reason. */
export const discard = (request: IncomingMessage, read: number, maxBytes: number): void => {
  let size = read
  request.on("data", (chunk: Buffer) => {
    size += chunk.length
    if (size > 8 * maxBytes) request.destroy()
  })
}

/**
 * The body of a request that is no upload, whole: a fiber is not spent on it
 * before it is there, and reading it by callback costs half of what a fiber
 * waiting for the stream does. Undefined is one that is too large.
 */
export const readBody = (request: IncomingMessage, maxBytes: number, done: (body: Buffer | undefined) => void): void => {
  const { "content-length": length, "transfer-encoding": encoding } = request.headers
  if (encoding === undefined && (length === undefined || length === "0")) return done(Buffer.alloc(0))
  let first: Buffer | undefined
  let rest: Array<Buffer> | undefined
  let size = 0
  const onData = (chunk: Buffer) => {
    size += chunk.length
    if (size > maxBytes) {
      request.off("data", onData)
      request.off("end", onEnd)
      discard(request, size, maxBytes)
      return done(undefined)
    }
    if (first === undefined) first = chunk
    else (rest ??= [first]).push(chunk)
  }
  const onEnd = () => done(rest === undefined ? first ?? Buffer.alloc(0) : Buffer.concat(rest))
  request.on("data", onData)
  request.on("end", onEnd)
}
