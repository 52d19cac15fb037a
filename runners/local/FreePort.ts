import { once } from "node:events"
import { createServer } from "node:net"

/**
 * Below what systems give to outgoing connections, so that none has the port when it is first listened on, or again.
 * Each worker of a test run has a part of them to itself: a port that one has found free is not listened on at once.
 */
const PORTS = 5_000
const FIRST = 10_000 + PORTS * (Number(process.env["VITEST_POOL_ID"] ?? 0) % 4)

const given = new Set<number>()

/** A port of 127.0.0.1 on which nobody listens right now; a process is given each of them once. */
export const freePort = async (): Promise<number> => {
  for (let tries = 0; tries < PORTS; tries++) {
    const port = FIRST + Math.floor(Math.random() * PORTS)
    if (!given.has(port) && await isFree(port)) {
      given.add(port)
      return port
    }
  }
  throw new Error("no port is free")
}

const isFree = async (port: number): Promise<boolean> => {
  const server = createServer()
  const listens = await new Promise<boolean>((resolve) => {
    server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true))
  })
  if (!listens) return false
  server.close()
  await once(server, "close")
  return true
}
