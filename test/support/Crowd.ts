import { assert } from "@effect/vitest"
import { once } from "node:events"
import { Agent, request } from "node:http"
import { connect, type Socket } from "node:net"
import { elapse, eventually } from "./Eventually.ts"
import { metricOf } from "./Metrics.ts"
import { measured } from "./Promptly.ts"
import type { Server, TestAgent } from "./Server.ts"

/** Connections that send nothing. */
export class Crowd {
  private readonly sockets: Array<Socket> = []
  private readonly port: number
  private readonly host: string
  private readonly from: string | undefined

  private constructor(url: string, from: string | undefined) {
    const { hostname, port } = new URL(url)
    this.host = hostname
    this.port = Number(port)
    this.from = from
  }

  /** Opens `count` connections and waits until each is established or has failed. */
  static async gather(url: string, count: number, from?: string): Promise<Crowd> {
    const crowd = new Crowd(url, from)
    await Promise.all(
      crowd.more(count).map((socket) =>
        Promise.race([once(socket, "connect"), once(socket, "close")]).catch(() => undefined)
      )
    )
    return crowd
  }

  /** Opens further connections and does not wait. */
  more(count: number): ReadonlyArray<Socket> {
    const added = Array.from({ length: count }, () => {
      const socket = connect({
        host: this.host,
        port: this.port,
        ...this.from === undefined ? {} : { localAddress: this.from }
      })
      socket.on("error", () => {})
      return socket
    })
    this.sockets.push(...added)
    return added
  }

  /** How many are open still, as far as this side knows. */
  get open(): number {
    return this.sockets.filter(({ closed, destroyed, readyState }) => !closed && !destroyed && readyState === "open")
      .length
  }

  leave(): void {
    for (const socket of this.sockets) socket.destroy()
  }
}

/**
 * Sends a message on a connection of its own, again after 503 as clients do; returns the milliseconds that it took.
 */
export const freshSend = async (from: TestAgent, to: TestAgent, text: string): Promise<number> => {
  const since = measured()
  const agent = new Agent()
  try {
    const body = JSON.stringify({
      to: to.handle,
      client_msg_id: `${text} ${Math.random()}`,
      type: "text",
      content: { text }
    })
    for (let tries = 1;; tries++) {
      const sending = request(`${from.http.base}/v1/messages`, {
        method: "POST",
        agent,
        headers: {
          "authorization": `Bearer ${from.key}`,
          "content-type": "application/json",
          "content-length": Buffer.byteLength(body)
        }
      })
      sending.end(body)
      const [response] = await once(sending, "response")
      response.resume()
      await once(response, "end")
      if (response.statusCode !== 503 || tries === 100) {
        assert.include(tries === 1 ? [201] : [201, 200], response.statusCode, text)
        return measured() - since
      }
      await elapse("the time for which a server that stalled refuses requests", 250)
    }
  } finally {
    agent.destroy()
  }
}

export const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN

/**
 * Waits until a server at its bound has processed all pending connections, which is when it has refused none for a
 * while.
 */
export const untilQuiet = async (server: Server, port: "http" | "nodes"): Promise<void> => {
  let before = -1
  await eventually("the server to turn nobody away", async () => {
    const now = await metricOf(server, "connections_turned_away_total", { port, reason: "gave_way" })
    const quiet = now > 0 && now === before
    before = now
    if (!quiet) await elapse("a time in which connections would be refused", 100)
    return quiet || undefined
  })
}
