import type { CloseReason } from "#domain/agents/Sessions"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import type { WebSocket } from "ws"
import type { FrameSource } from "./ClientFrames.ts"
import type { SocketSession } from "./SocketSession.ts"

/** A socket, from its upgrade to its close. */
export interface Connection extends FrameSource {
  readonly socket: WebSocket
  /** The client's name from the upgrade request. */
  readonly client: string | null
  /** The client's IP address as rate limits count it (`addressKey`). */
  readonly address: string
  session: SocketSession | undefined
  /** The slot that the socket takes among its agent's sockets, from the check of its key until it is closed. */
  slot: SocketSlot | undefined
  /** The hash of the socket's key. Set when the session begins. */
  keyHash: string
  /** Frames that have arrived while the key or the slot is being checked. Undefined at any other time. */
  early: Array<string> | undefined
  /** When a HELLO or a pong is due, on the monotonic clock. */
  deadline: number
  nextPing: number
  awaitingPong: boolean
}

/** Makes the connection of a new socket, whose HELLO is due at `deadline`. */
export const makeConnection = (
  socket: WebSocket,
  requestId: string | undefined,
  client: string | null,
  address: string,
  deadline: number
): Connection => ({
  socket,
  requestId,
  client,
  address,
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

/** The deadlines and the interval of a socket's heartbeats, in milliseconds. */
export interface HeartbeatTimes {
  /** How long a new socket may take to authenticate. */
  readonly helloMs: number
  /** How often the server pings a socket. */
  readonly pingMs: number
  /** How long a client may take to respond to a ping. */
  readonly pongMs: number
}

/**
 * Checks the deadlines of all sockets. Closes a socket whose HELLO or pong is overdue, and sends pings that are due.
 */
export const checkDeadlines = (
  connections: Iterable<Connection>,
  at: number,
  { helloMs, pingMs, pongMs }: HeartbeatTimes
): void => {
  for (const connection of connections) {
    if (connection.session === undefined) {
      if (connection.early === undefined && at >= connection.deadline) {
        closeWith(connection, { code: 1013, text: `no HELLO within ${helloMs / 1_000} seconds` })
        connection.deadline = Number.POSITIVE_INFINITY
      }
    } else if (connection.awaitingPong) {
      if (at >= connection.deadline) {
        connection.session.close({ code: 1001, text: "no pong" })
        connection.socket.terminate()
      }
    } else if (at >= connection.nextPing) {
      connection.nextPing = at + pingMs
      connection.awaitingPong = true
      connection.deadline = at + pongMs
      connection.socket.ping()
    }
  }
}
