import { once } from "node:events"
import { createServer } from "node:net"

/**
 * The size and start of this process's range of ports. It is below the ephemeral ports, so that no outgoing connection
 * takes a port before it is listened on. Each worker of a test run has a range of its own, because some time passes
 * between finding a free port and listening on it.
 */
const PORTS = 5_000
const FIRST = 10_000 + PORTS * (Number(process.env["VITEST_POOL_ID"] ?? 0) % 4)

const given = new Set<number>()

/** A port of 127.0.0.1 on which nothing listens right now. A process never gets the same port twice. */
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
