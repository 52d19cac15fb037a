import type { HttpServerResponse } from "effect/http"
import { IncomingMessage } from "node:http"

/** A limit as the `RateLimit-*` headers describe it. */
export interface ShownLimit {
  readonly limit: number
  readonly remaining: number
  readonly resetMs: number
}

/** Why a request is refused. */
export interface Refused {
  readonly code: string
  readonly why: string
}

/** What a request holds until its answer has left. */
export interface Reading {
  /** The answer is encoded and has so many bytes: what it was made of is no longer in memory. */
  readonly encoded: (bytes: number) => void
  /** The answer is cut off unread. */
  readonly cut: () => void
  /** The answer has left, or its client is gone. */
  readonly left: () => void
}

/** A body may come in this many pieces, however small. Beyond that they have to be of `LEAST_PIECE` bytes on average. */
const PIECES = 1_000
const LEAST_PIECE = 128

/** A request to this server, with what becomes known of it before and beside its route. */
export class Asked extends IncomingMessage {
  /** The whole body, where it is read before the route is (RequestBody.ts). */
  body: string | undefined = undefined
  /** The limit that its answer describes: of all that the request counts against, the one with the fewest requests remaining. */
  limit: ShownLimit | undefined = undefined
  /** Who is answerable for what the request makes this process hold: the agent's id, or undefined for its IP address. */
  agentId: string | undefined = undefined
  /** Its slot among the large answers of its agent (rates/LargeReads.ts). */
  reading: Reading | undefined = undefined
  /** Called with the bytes of the body that have come, where the body is kept as it comes. */
  onPiece: ((bytes: number) => void) | undefined = undefined
  /** Why it is refused, for the log; known of requests to `/mcp`, of those without a live key, and of those refused before their route. */
  refused: Refused | undefined = undefined
  /** Its answer has left, or its client is gone. */
  isOver = false
  #pieces = 0
  #bytes = 0
  /** The response, where the router has nothing left to do but to send it. */
  answered: HttpServerResponse.HttpServerResponse | undefined = undefined

  /** Ends the connection of a body in very many small pieces: each takes time, and some 500 bytes of memory besides its own. */
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

  /** Lets go of what only its route needed; the origin stays, for the headers of the answer. */
  release(): void {
    const { origin } = this.headers
    this.headers = origin === undefined ? {} : { origin }
    this.rawHeaders = []
    this.body = undefined
  }
}
