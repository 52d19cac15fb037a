import type { Socket } from "node:net"
import type { ServerResponse } from "./ServerResponse.ts"

/** How many requests a client may send on a connection before it has received the response to the first request. */
const MAX_PIPELINED = 64

/**
 * Ends a connection in the middle of a packet. Without the change of the parser, Node would parse the rest of the
 * packet and make a request and a response for each request in it. Node's parser stops where `onIncoming` returns 2,
 * which means that another protocol follows.
 */
const cut = (socket: Socket & { parser?: { onIncoming: unknown } | null }): void => {
  if (socket.parser) socket.parser.onIncoming = () => 2
  socket.destroy()
}

/**
 * Counts a response that waits behind earlier responses of its connection. If too many responses wait, it cuts the
 * connection and returns `false`.
 */
export type QueueBehind = (response: ServerResponse) => boolean

/** Bounds how many responses of a connection wait behind earlier responses. */
export const makePipelining = (): QueueBehind => {
  /** The number of responses of each connection that wait behind earlier responses. */
  const behind = new WeakMap<Socket, number>()
  return (response) => {
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
