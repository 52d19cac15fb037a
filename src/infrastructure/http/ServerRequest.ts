import type { HttpServerResponse } from "effect/http"
import { IncomingMessage } from "node:http"

/** A limit as the `RateLimit-*` headers describe it. */
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

/** The slot that a request for a large answer holds until the answer has left. */
export interface Reading {
  /**
   * Call it when the answer is encoded, with its bytes. The rows that the answer was made of are no longer in memory.
   */
  readonly encoded: (bytes: number) => void
  /** Call it when the answer is cut off unread. */
  readonly cut: () => void
  /** Call it when the answer has left, or its client has disconnected. */
  readonly left: () => void
}

/**
 * A body may come in this many pieces of any size. A body of more pieces needs `LEAST_PIECE` bytes in a piece on
 * average.
 */
const PIECES = 1_000
const LEAST_PIECE = 128

/** A longer `User-Agent` is shortened to this length. */
const MAX_USER_AGENT = 80

/** A request to this server, with the facts about it that are found outside of its route. */
export class ServerRequest extends IncomingMessage {
  /** The whole body, if it is read before the route runs (RequestBody.ts). */
  body: string | undefined = undefined
  /**
   * The limit that the answer describes: of all limits that the request counts against, the one with the fewest
   * requests remaining.
   */
  limit: ShownLimit | undefined = undefined
  /**
   * The agent for which the bytes count that the request makes this process hold; `undefined` if they count for the IP
   * address.
   */
  agentId: string | undefined = undefined
  /** The request's slot among the large answers of its agent (concurrency/LargeReads.ts). */
  reading: Reading | undefined = undefined
  /** Called with the bytes of the body that have arrived, for a body that is kept while it arrives. */
  onPiece: ((bytes: number) => void) | undefined = undefined
  /**
   * Why the request was refused, for the log. Set for requests without a valid key or refused before their route, and
   * by routes that refuse with a body of their own.
   */
  refused: LoggedRefusal | undefined = undefined
  /** Whether the answer has left, or the client has disconnected. */
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
   * Ends the connection if the body arrives in too many small pieces. Each piece takes time, and some 500 bytes of
   * extra memory.
   */
  override push(piece: Buffer | null, encoding?: BufferEncoding): boolean {
    if (piece !== null) {
      this.#bytes += piece.length
      if (++this.#pieces > PIECES && this.#bytes < this.#pieces * LEAST_PIECE) {
        this.socket.destroy()
        return false
      }
      this.onPiece?.(this.#bytes)
    }
    return super.push(piece, encoding)
  }

  /** Drops the parts that only the route needed. The origin stays, for the headers of the answer. */
  release(): void {
    const { origin } = this.headers
    this.headers = origin === undefined ? {} : { origin }
    this.rawHeaders = []
    this.body = undefined
  }
}
