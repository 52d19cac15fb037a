// For `node --import`: this process's connections to the ports in NO_WAY_TO are refused, as by a firewall on its machine.
import { Socket } from "node:net"

const ports = new Set((process.env.NO_WAY_TO ?? "").split(",").map(Number))
const { connect } = Socket.prototype

Socket.prototype.connect = function(...given) {
  const options = Array.isArray(given[0]) ? given[0][0] : given[0]
  if (!ports.has(Number(options?.port ?? options))) return connect.apply(this, given)
  queueMicrotask(() => this.destroy(Object.assign(new Error("no way out"), { code: "ECONNREFUSED" })))
  return this
}
