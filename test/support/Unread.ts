import { readFileSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { breath, within } from "./Eventually.ts"
import { measured } from "./Promptly.ts"
import type { Server, TestAgent } from "./Server.ts"

/** Connections that send requests and never read an answer. */
export class UnreadConnections {
  readonly #sockets: Array<Socket> = []

  /** Opens `count` connections and writes bytes on each. */
  async ask(server: Server, count: number, bytes: (i: number) => string): Promise<void> {
    const { hostname, port } = new URL(server.url)
    await Promise.all(Array.from({ length: count }, (_, i) =>
      new Promise<void>((resolve) => {
        const socket = connect(Number(port), hostname)
        // The socket is paused before it connects, so that it never reads anything.
        socket.pause()
        socket.on("error", () => resolve())
        socket.on("connect", () => socket.write(bytes(i), () => resolve()))
        this.#sockets.push(socket)
      })))
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy()
  }
}

/** The head of a request, with what follows it. */
export const getOf = (path: string, key?: string, more: ReadonlyArray<string> = []): string =>
  [
    `GET ${path} HTTP/1.1`,
    "host: 127.0.0.1",
    ...(key === undefined ? [] : [`authorization: Bearer ${key}`]),
    ...more,
    "",
    ""
  ].join("\r\n")

export const postOf = (path: string, body: object, key: string): string => {
  const text = JSON.stringify(body)
  return [
    `POST ${path} HTTP/1.1`,
    "host: 127.0.0.1",
    `authorization: Bearer ${key}`,
    "accept: application/json, text/event-stream",
    `content-length: ${Buffer.byteLength(text)}`,
    "",
    text
  ].join("\r\n")
}

/** The upgrade to a WebSocket that never acknowledges. */
export const upgradeOf = (key: string): string =>
  getOf("/v1/ws", key, [
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
    "x-agentchat-capabilities: ack"
  ])

/** The most memory that a process of the server (one of its nodes) has had, in bytes. */
export const peakMemory = (server: Server): number =>
  Math.max(...[server, ...server.others].map((node) => {
    const status = readFileSync(`/proc/${node.process.pid}/status`, "utf8")
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) * 1_024
  }))

export interface Latencies {
  readonly median: number
  readonly worst: number
  readonly count: number
}

/** Sends so many messages, one after the other; each must be acknowledged. */
export const sending = async (from: TestAgent, to: TestAgent, times: number): Promise<void> => {
  for (let i = 0; i < times; i++) {
    await within(
      "an acknowledgement",
      from.client.sendMessage({ to: to.handle, content: { text: "written while others do not read" } })
    )
  }
}

/**
 * For the long forms. Sends one message after the other for this long; each must be acknowledged. Times are in
 * milliseconds.
 */
export const sendingFor = async (from: TestAgent, to: TestAgent, forMs: number): Promise<Latencies> => {
  const times: Array<number> = []
  const end = measured() + forMs
  while (measured() < end) {
    const began = measured()
    await from.client.sendMessage({ to: to.handle, content: { text: "written while others do not read" } })
    times.push(measured() - began)
    await breath()
  }
  times.sort((a, b) => a - b)
  return { median: times[times.length >> 1]!, worst: times.at(-1)!, count: times.length }
}
