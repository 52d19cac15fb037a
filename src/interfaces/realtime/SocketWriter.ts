import type { CloseReason } from "#domain/agents/Sessions"
import { type BufferAccount, type BufferEntry, progressOf, UNCOUNTED_BYTES } from "#infrastructure/http/BufferedBytes"
import { pushes, slowSockets } from "#infrastructure/platform/Metrics"
import { Effect } from "effect"
import type { Socket } from "node:net"
import type { WebSocket } from "ws"

/** The bounds of the bytes that a socket has not sent yet. */
export interface UnsentBounds {
  /** How many unsent bytes a socket may have before its backlog waits for the client to read (wire.md E.3). */
  readonly backlogBytes: number
  /** How many unsent bytes a socket may have before it is closed (wire.md E.4). */
  readonly unsentBytes: number
  readonly held: BufferAccount
}

/** The stream below a socket, which `ws` does not expose. */
const streamOf = (socket: WebSocket): Socket => (socket as WebSocket & { readonly _socket: Socket })._socket

/**
 * How many bytes of memory each buffered part of a frame takes besides its content. Node reports how many parts wait to
 * be sent.
 */
const PART_BYTES = 256
const partsOf = (stream: Socket): number =>
  (stream as unknown as { readonly _writableState?: { readonly bufferedRequestCount?: number } })._writableState
    ?.bufferedRequestCount ?? 0

const release = (writer: SocketWriter): void => writer.release()

/** Writes frames to one socket, and bounds the bytes that the client has not read yet. */
export class SocketWriter {
  /** Whether the socket is closed or closing. No more frames are written then. */
  closed = false
  private readonly socket: WebSocket
  private readonly agentId: string
  private readonly bounds: UnsentBounds
  private corked: Socket | undefined
  /** The socket's unsent bytes in the account of its agent. */
  private held: BufferEntry | undefined

  constructor(socket: WebSocket, agentId: string, bounds: UnsentBounds) {
    this.socket = socket
    this.agentId = agentId
    this.bounds = bounds
  }

  get unsentBytes(): number {
    return this.socket.bufferedAmount
  }

  /** Writes a frame, unless the socket is closed or has too many unsent bytes. Returns whether it was written. */
  write(frame: string): boolean {
    if (this.closed || this.socket.readyState !== 1) return false
    if (this.unsentBytes > this.bounds.unsentBytes) {
      // The close frame is queued behind the unsent frames. A peer that continues to read in time gets all of them. Any
      // other peer is disconnected.
      slowSockets.add()
      this.close({ code: 1013, text: "too slow: read faster, nothing is lost" })
      return false
    }
    this.cork()
    pushes.add()
    this.socket.send(frame)
    return true
  }

  close(reason: CloseReason): void {
    this.closed = true
    this.socket.close(reason.code, reason.text)
  }

  /** Call it after the socket has closed. */
  ended(): void {
    this.closed = true
    if (this.held !== undefined) this.bounds.held.release(this.held)
  }

  /**
   * Waits while the socket has more unsent bytes than a backlog may queue. If more than half of the node's bound for
   * unsent bytes is used, waits until nearly all bytes of this socket are sent.
   */
  flushed(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { backlogBytes, held } = this.bounds
      if (this.closed || this.unsentBytes <= (held.isTight ? UNCOUNTED_BYTES : backlogBytes)) return Effect.void
      return Effect.andThen(Effect.sleep(20), this.flushed())
    })
  }

  /**
   * Sends the frames of one event-loop tick in one write, because a system call costs as much as all other work for a
   * frame.
   */
  private cork(): void {
    if (this.corked !== undefined) return
    const stream = streamOf(this.socket)
    stream.cork()
    this.corked = stream
    process.nextTick(release, this)
  }

  /** Writes the frames that `cork` has buffered. */
  release(): void {
    this.corked?.uncork()
    this.corked = undefined
    this.count()
  }

  /** Counts the bytes that the kernel has not accepted yet. */
  private count(): void {
    const { bounds: { held }, socket } = this
    if (this.held?.released === false) return held.changed(this.held)
    if (this.closed || socket.bufferedAmount <= UNCOUNTED_BYTES) return
    const stream = streamOf(socket)
    this.held = held.hold(this.agentId, stream, {
      bytes: () => socket.bufferedAmount + partsOf(stream) * PART_BYTES,
      progress: () => progressOf(stream),
      cut: () => {
        slowSockets.add()
        this.closed = true
        socket.terminate()
      }
    })
  }
}
