import { Socket } from "node:net"

/**
 * Runs in a node's process before the node's own modules, when the fault suite starts it. It redirects the node's
 * connections to other nodes through the suite's proxies. This cannot be done outside of the process, because nodes
 * know each other by the addresses at which they listen.
 */

/** The addresses to which connections are redirected, by their original addresses, both as `host:port`. */
export type Detours = Readonly<Record<string, string>>

let detours = JSON.parse(process.env["FAULTS_DETOURS"] ?? "{}") as Detours

interface Target {
  host?: string
  port?: number | string
}

/** Connections to other nodes, with their original addresses. */
const open = new Map<Socket, string>()
const peers = new Set((process.env["FAULTS_PEERS"] ?? "").split(","))

const connect: (...args: Array<never>) => Socket = Socket.prototype.connect
Socket.prototype.connect = function(this: Socket, ...args: Array<unknown>): Socket {
  // net.connect passes its arguments on as one array, tls.connect the options themselves.
  const target: unknown = Array.isArray(args[0]) ? args[0][0] : args[0]
  if (typeof target === "object" && target !== null) {
    const to = target as Target
    const wanted = `${to.host}:${to.port}`
    const detour = detours[wanted]
    if (detour !== undefined) [to.host, to.port] = detour.split(":") as [string, string]
    if (peers.has(wanted)) {
      open.set(this, wanted)
      this.once("close", () => open.delete(this))
    }
  }
  return Reflect.apply(connect, this, args)
}

process.on("message", (given: Detours) => {
  detours = given
  for (const socket of open.keys()) socket.destroy()
})
// The node ends with the suite that started it.
process.on("disconnect", () => process.exit(1))
