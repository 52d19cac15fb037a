import type { IncomingMessage } from "node:http"
import type { ServerRequest } from "./ServerRequest.ts"

/** How many bytes of a body every route reads and drops, however small the bodies are that the route accepts. */
const MAX_DISCARDED_BYTES = 8_388_608

/**
 * Reads and drops the rest of a body, up to 8 MiB or 8 times `maxBytes` in all, so that the client can read the
 * response before the connection closes. Does nothing if that has begun.
 */
export const discard = (request: ServerRequest, read: number, maxBytes: number): void => {
  if (request.isDiscarded) return
  request.isDiscarded = true
  let size = read
  request.on("data", (chunk: Buffer) => {
    size += chunk.length
    if (size > Math.max(MAX_DISCARDED_BYTES, 8 * maxBytes)) request.destroy()
  })
}

/** Whether a request announces a body. */
export const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined ||
  (headers["content-length"] !== undefined && headers["content-length"] !== "0")

/** Whether the body of a request is compressed, or encoded in another way. */
export const isEncoded = ({ headers }: IncomingMessage): boolean =>
  headers["content-encoding"]?.split(",").some((coding) => !/^(?:identity)?$/i.test(coding.trim())) === true

/**
 * How many values a JSON body may contain. A value may take a hundred times more memory than its bytes in the body, and
 * the account of held bytes (BufferedBytes.ts) counts the bytes in the body.
 */
export const MAX_VALUES = 20_000

const [QUOTE, BACKSLASH, COMMA, BRACE, BRACKET] = [...'"\\,{['].map((character) => character.charCodeAt(0))

/**
 * Whether a JSON text contains more than `MAX_VALUES` values. The commas and opening brackets outside of its strings
 * are counted.
 */
export const hasTooManyValues = (body: Buffer): boolean => {
  if (body.length <= MAX_VALUES) return false
  let values = 0
  let inString = false
  for (let i = 0; i < body.length; i++) {
    const byte = body[i]
    if (byte === QUOTE) inString = !inString
    else if (inString) {
      if (byte === BACKSLASH) i++
    } else if ((byte === COMMA || byte === BRACE || byte === BRACKET) && ++values > MAX_VALUES) return true
  }
  return false
}

/**
 * Collects bytes as they arrive. Copies small pieces into one buffer, because each piece takes some 500 bytes of memory
 * in addition to its content.
 */
class Gathered {
  size = 0
  #bytes: Buffer | undefined

  add(piece: Buffer): void {
    const size = this.size + piece.length
    if (this.#bytes === undefined) this.#bytes = piece
    else {
      if (size > this.#bytes.length) {
        const larger = Buffer.allocUnsafe(2 * size)
        this.#bytes.copy(larger, 0, 0, this.size)
        this.#bytes = larger
      }
      piece.copy(this.#bytes, this.size)
    }
    this.size = size
  }

  take(): Buffer {
    return this.#bytes?.subarray(0, this.size) ?? Buffer.alloc(0)
  }
}

/**
 * Reads the whole body of a request that is not an upload. If the body is larger than `maxBytes`, `done` gets
 * undefined. `counts` is called with the number of bytes that are in memory so far. Callbacks cost half as much as a
 * fiber that waits for the stream, and the request's fiber starts only when the body is complete.
 */
export const readBody = (
  request: ServerRequest,
  maxBytes: number,
  counts: (bytes: number) => void,
  done: (body: Buffer | undefined) => void
): void => {
  if (!hasBody(request)) return done(Buffer.alloc(0))
  let gathered = new Gathered()
  const onData = (piece: Buffer) => {
    const size = gathered.size + piece.length
    if (size > maxBytes) {
      request.off("data", onData)
      request.off("end", onEnd)
      gathered = new Gathered()
      discard(request, size, maxBytes)
      counts(0)
      return done(undefined)
    }
    gathered.add(piece)
    counts(size)
  }
  const onEnd = () => {
    const body = gathered.take()
    // A request may wait for long. Meanwhile its listeners stay registered and must not keep the body in memory.
    gathered = new Gathered()
    done(body)
  }
  request.on("data", onData)
  request.on("end", onEnd)
}
