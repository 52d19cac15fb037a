import type { WebSocket } from "ws"
import type { CloseReason } from "#domain/agents/Sessions"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import type { FrameSource } from "./ClientFrames.ts"
import type { SocketSession } from "./SocketSession.ts"

/** A socket from its upgrade to its end. */
export interface Connection extends FrameSource {
  readonly socket: WebSocket
  /** The client's name from the upgrade request. */
  readonly client: string | null
  session: SocketSession | undefined
  /** Its slot among its agent's sockets, from the check of its key until it is closed. */
  slot: SocketSlot | undefined
  /** The hash of its key, set when the session begins. */
  keyHash: string
  /** Frames that arrived while the key or the slot is checked. Undefined at any other time. */
  early: Array<string> | undefined
  /** When a HELLO or a pong is due, on the monotonic clock. */
  deadline: number
  nextPing: number
  awaitingPong: boolean
}

/** A new socket, whose HELLO is due at `deadline`. */
export const makeConnection = (
  socket: WebSocket,
  requestId: string | undefined,
  client: string | null,
  deadline: number
): Connection => ({
  socket,
  requestId,
  client,
  session: undefined,
  slot: undefined,
  keyHash: "",
  early: undefined,
  deadline,
  nextPing: Number.POSITIVE_INFINITY,
  awaitingPong: false,
  frames: undefined,
  refusals: undefined,
  slowed: false,
  lookups: 0,
  waiting: undefined,
  holds: 0,
  reads: undefined
})

/** Closes a socket whether or not it has a session. */
export const closeWith = (connection: Connection, reason: CloseReason): void => {
  connection.early = undefined
  connection.socket.close(reason.code, reason.text)
}
