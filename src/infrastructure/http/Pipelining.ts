import type { Socket } from "node:net"
import type { ServerResponse } from "./ServerResponse.ts"

/** The most requests that a client may send on a connection before it has the response to the first. */
const MAX_PIPELINED = 64

/**
 * Ends a connection in the middle of a packet. Otherwise Node would parse the rest of the packet and make a request and
 * a response for everything in it. Node's parser stops where `onIncoming` returns 2, which means that another protocol
 * follows.
 */
const cut = (socket: Socket & { parser?: { onIncoming: unknown } | null }): void => {
  if (socket.parser) socket.parser.onIncoming = () => 2
  socket.destroy()
}

/**
 * Bounds the responses of a connection that wait behind others. The returned function counts such a response. It
 * returns `false`, and cuts the connection, if too many wait.
 */
export const makePipelining = () => {
  /** The number of responses of each connection that wait behind others. */
  const behind = new WeakMap<Socket, number>()
  return (response: ServerResponse): boolean => {
    const { socket } = response.req
    const before = behind.get(socket) ?? 0
    if (socket.destroyed || before >= MAX_PIPELINED) {
      cut(socket)
      return false
    }
    behind.set(socket, before + 1)
    response.once("close", () => behind.set(socket, (behind.get(socket) ?? 1) - 1))
    return true
  }
}
