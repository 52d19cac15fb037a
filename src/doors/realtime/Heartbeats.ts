import { closeWith, type Connection } from "./Connection.ts"

/** The times of the heartbeats of a socket, in milliseconds. */
export interface HeartbeatTimes {
  /** In which a new socket must authenticate. */
  readonly helloMs: number
  /** From one ping to the next. */
  readonly pingMs: number
  /** In which a client must answer a ping. */
  readonly pongMs: number
}

/** Checks the deadlines of all sockets: a HELLO that did not come, a ping that is due, a pong that did not come. */
export const checkDeadlines = (connections: Iterable<Connection>, at: number, { helloMs, pingMs, pongMs }: HeartbeatTimes): void => {
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
