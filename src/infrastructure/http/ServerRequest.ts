import type { HttpServerResponse } from "effect/http"
import { IncomingMessage } from "node:http"

/** A rate limit, as the `RateLimit-*` headers describe it. */
export interface ShownLimit {
  readonly limit: number
  readonly remaining: number
  readonly resetMs: number
}

/** Why a request is refused. */
export interface LoggedRefusal {
  readonly code: string
  readonly why: string
}

/** The slot that a request for a large response occupies until the response has been sent. */
export interface Reading {
  /**
   * Must be called when the response is encoded, with its size in bytes. The rows from which the response was made are
   * no longer in memory then.
   */
  readonly encoded: (bytes: number) => void
  /** Must be called when the connection is cut before the client has read the response. */
  readonly cut: () => void
  /** Must be called when the response has been sent, or its client has disconnected. */
  readonly left: () => void
  /** For how long the statements of the request blocked the process, in milliseconds. Absent if nobody counts it. */
  readonly blocked?: { ms: number }
}

/**
 * How many pieces of any size a body may have. If a body has more pieces, they must have `MIN_CHUNK_BYTES` bytes on
 * average.
 */
const MAX_CHUNKS = 1_000
const MIN_CHUNK_BYTES = 128

/** How many characters of a `User-Agent` are logged. */
const MAX_USER_AGENT = 80

/** A request to this server, with the information about the request that is determined outside of its route. */
export class ServerRequest extends IncomingMessage {
  /** The whole body, if it is read before the route runs (RequestBody.ts). */
  body: string | undefined = undefined
  /**
   * The limit that the headers of the response describe. Of all limits that the request counts against, it is the limit
   * with the fewest requests remaining.
   */
  limit: ShownLimit | undefined = undefined
  /**
   * The agent that is charged for the bytes that the request makes this process hold; `undefined` if the IP address is
   * charged.
   */
  agentId: string | undefined = undefined
  /** The request's slot among the large responses of its agent (concurrency/LargeReads.ts). */
  reading: Reading | undefined = undefined
  /** Called with the number of bytes that have arrived, if the body is kept in memory while it arrives. */
  onPiece: ((bytes: number) => void) | undefined = undefined
  /**
   * Why the request was refused, for the log. It is set for requests without a valid key and for requests that are
   * refused before their route. Routes that refuse with their own body set it, too.
   */
  refused: LoggedRefusal | undefined = undefined
  /** Whether the client sends its body only after `100 Continue`, and did not get that. */
  waitsToSend = false
  /** Whether the rest of the body is read and dropped (RequestBody.ts). */
  isDiscarded = false
  /** Whether the response has been sent, or the client has disconnected. */
  isOver = false
  #pieces = 0
  #bytes = 0
  /** The response, if the router only has to send it. */
  answered: HttpServerResponse.HttpServerResponse | undefined = undefined

  /** The client's `User-Agent`, shortened for the log. */
  get userAgent(): string | undefined {
    return this.headers["user-agent"]?.slice(0, MAX_USER_AGENT)
  }

  /**
   * Ends the connection if the body arrives in too many small pieces. Each piece costs time and some 500 bytes of extra
   * memory.
   */
  override push(piece: Buffer | null, encoding?: BufferEncoding): boolean {
    if (piece !== null) {
      this.#bytes += piece.length
      if (++this.#pieces > MAX_CHUNKS && this.#bytes < this.#pieces * MIN_CHUNK_BYTES) {
        this.socket.destroy()
        return false
      }
      this.onPiece?.(this.#bytes)
    }
    return super.push(piece, encoding)
  }

  /** Drops the parts that only the route needed. The `Origin` header is kept for the headers of the response. */
  release(): void {
    const { origin } = this.headers
    this.headers = origin === undefined ? {} : { origin }
    this.rawHeaders = []
    this.body = undefined
  }
}
