import { checkDeadlines, type Connection, makeConnection } from "#interfaces/realtime/Connection"
import type { SocketSession } from "#interfaces/realtime/SocketSession"
import { assert, it } from "@effect/vitest"
import type { WebSocket } from "ws"

const TIMES = { helloMs: 5_000, pingMs: 30_000, pongMs: 10_000 }

/** A socket that was opened at 1,000 ms, what the server does to it, and the check of its deadlines. */
const opened = () => {
  const done: Array<string> = []
  const socket: Partial<WebSocket> = {
    close: (code) => void done.push(`close ${code}`),
    ping: () => void done.push("ping"),
    terminate: () => void done.push("terminate")
  }
  const connection = makeConnection(socket as WebSocket, undefined, null, "192.0.2.1", 1_000 + TIMES.helloMs)
  const at = (time: number): ReadonlyArray<string> => {
    checkDeadlines([connection], time, TIMES)
    return done.splice(0)
  }
  return { connection, at }
}

/** Begins the session of a socket, whose first ping is due at `nextPing`. */
const welcome = (connection: Connection, nextPing: number): Array<number> => {
  const closed: Array<number> = []
  const session: Partial<SocketSession> = { close: ({ code }) => void closed.push(code) }
  connection.session = session as SocketSession
  connection.nextPing = nextPing
  return closed
}

it("a socket without a HELLO stays open for 5 s, and is then closed once (wire.md E.1)", () => {
  const { at } = opened()
  assert.deepStrictEqual(at(5_999), [])
  assert.deepStrictEqual(at(6_000), ["close 1013"])
  assert.deepStrictEqual(at(60_000), [])
})

it("a socket whose HELLO has come, and whose key is being checked, is not closed", () => {
  const { at, connection } = opened()
  connection.early = []
  assert.deepStrictEqual(at(6_000), [])
})

it("a socket is pinged when its ping is due, and ended if its pong is overdue", () => {
  const { at, connection } = opened()
  const closed = welcome(connection, 31_000)
  assert.deepStrictEqual(at(30_999), [])
  assert.deepStrictEqual(at(31_000), ["ping"])
  assert.deepStrictEqual(at(40_999), [])
  connection.awaitingPong = false
  assert.deepStrictEqual(at(60_999), [])
  assert.deepStrictEqual(at(61_000), ["ping"])
  assert.deepStrictEqual(at(70_999), [])
  assert.deepStrictEqual(closed, [])
  assert.deepStrictEqual(at(71_000), ["terminate"])
  assert.deepStrictEqual(closed, [1001])
})
