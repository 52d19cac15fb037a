import { registerAgents } from "../../test/support/RegisterAgents.ts"
import type { ServerProcess } from "../../test/support/ServerProcess.ts"
import { cleanUp } from "./CleanUps.ts"
import { probe } from "./Contender.ts"
import { LoadProcess } from "./LoadProcess.ts"
import type { Memory } from "./Probe.ts"
import { nameOf, startRig, type Subject } from "./Rig.ts"

/**
 * How many sockets connect at a time. Connecting more at once would add the memory of connecting to that of the
 * connections.
 */
export const AT_A_TIME = 50

export interface IdleResult {
  readonly sockets: number
  readonly agents: number
  /** Bytes for each socket. */
  readonly rss: number
  readonly heap: number
  readonly external: number
}

/**
 * Measures the memory of an idle authenticated socket, with an agent of its own, in the server's (the first node's)
 * process.
 */
export const weighIdle = async (
  subject: Subject,
  sockets: number,
  say: (text: string) => void
): Promise<IdleResult> => {
  const name = nameOf(subject)
  const rig = await startRig(subject, {}, (text) => say(`${name}: ${text}`))
  say(`${name}: registering ${sockets} agents for idle sockets`)
  const handles = Array.from({ length: sockets }, (_, i) => `idle-${i}`)
  const keys = (await registerAgents(rig.servers[0]!.url, rig.outbox, handles)).map((agent) => agent.key)
  // Memory left over from the registrations would hide the memory of the sockets, so the server is restarted.
  const [server] = await rig.restart()
  if (server === undefined) throw new Error("no server")
  const result = await weighSockets(server, keys)
  await cleanUp()
  return result
}

/** Measures the memory of idle sockets of the agents with these keys, on a server that has just started. */
export const weighSockets = async (server: ServerProcess, keys: ReadonlyArray<string>): Promise<IdleResult> => {
  const load = new LoadProcess()
  const connect = async (some: ReadonlyArray<string>) =>
    load.ask("idle", { host: server.host, port: server.port, keys: some, atATime: AT_A_TIME })
  // A few sockets connect and close first, so that memory of the first use of the code is not counted.
  await connect(keys.slice(0, Math.ceil(keys.length / 10)))
  await load.ask("closeIdle", undefined)
  await settle()
  const before = await probe(server, { probe: "memory" }) as Memory
  await connect(keys)
  await settle()
  const after = await probe(server, { probe: "memory" }) as Memory
  const live = await load.ask("closeIdle", undefined)
  if (live !== keys.length) throw new Error(`of ${keys.length} idle sockets only ${live} stayed open`)
  const each = (kind: "rss" | "heap" | "external") => (after[kind] - before[kind]) / keys.length
  return { sockets: keys.length, agents: keys.length, rss: each("rss"), heap: each("heap"), external: each("external") }
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 3000))
