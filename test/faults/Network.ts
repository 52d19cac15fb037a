import { spawnSync } from "node:child_process"
import { readdirSync } from "node:fs"
import { lives } from "./Lives.ts"

const ip = (...args: ReadonlyArray<string>): boolean => spawnSync("ip", args, { stdio: "ignore" }).status === 0

const must = (...args: ReadonlyArray<string>): void => {
  const { status, stderr } = spawnSync("ip", args, { encoding: "utf8" })
  if (status !== 0) throw new Error(`ip ${args.join(" ")}: ${stderr}`)
}

/** Nobody's: what is sent there arrives nowhere. */
const NOBODY = "02:00:00:00:00:01"
const NAME = /^parley-(\d+)-\d+$/

/** What a run that was killed has left behind. */
const sweep = (): void => {
  let names: ReadonlyArray<string> = []
  try {
    names = readdirSync("/run/netns")
  } catch {
    return
  }
  for (const name of names) {
    const pid = Number(NAME.exec(name)?.[1] ?? process.pid)
    if (lives(pid)) continue
    ip("netns", "del", name)
    ip("link", "del", `pf${pid}`)
  }
}

/**
 * A network on one machine in which each node has an address, an interface and tables
 * of its own (network namespaces on a bridge; Linux, and root). A direction is cut by
 * giving the receiver a hardware address that nobody has: packets leave and do not
 * arrive, nobody is told, and the opposite direction is as it was.
 */
export class Network {
  private readonly subnet: string
  private readonly bridge = `pf${process.pid}`
  private readonly nodes: number

  private constructor(nodes: number) {
    this.nodes = nodes
    this.subnet = `10.${100 + (process.pid >> 8) % 100}.${process.pid % 256}`
  }

  /** Undefined where this is not allowed. */
  static open(nodes: number): Network | undefined {
    sweep()
    const network = new Network(nodes)
    process.once("exit", () => network.close())
    try {
      network.build()
      return network
    } catch {
      network.close()
      return undefined
    }
  }

  private build(): void {
    must("link", "add", this.bridge, "type", "bridge")
    must("addr", "add", `${this.outside}/24`, "dev", this.bridge)
    must("link", "set", this.bridge, "up")
    for (let node = 0; node < this.nodes; node++) {
      const name = this.name(node)
      must("netns", "add", name)
      must("link", "add", this.port(node), "type", "veth", "peer", "name", "eth0", "netns", name)
      must("link", "set", this.port(node), "master", this.bridge, "up")
      must("-n", name, "addr", "add", `${this.host(node)}/24`, "dev", "eth0")
      must("-n", name, "link", "set", "eth0", "up")
      must("-n", name, "link", "set", "lo", "up")
    }
  }

  /** The machine's own address, as nodes see it. */
  get outside(): string {
    return `${this.subnet}.1`
  }

  host(node: number): string {
    return `${this.subnet}.${10 + node}`
  }

  private name(node: number): string {
    return `parley-${process.pid}-${node}`
  }

  /** The bridge's end of a node's cable. */
  private port(node: number): string {
    return `pf${process.pid}-${node}`
  }

  /** What a command is run with so that it runs on this node. */
  prefix(node: number): ReadonlyArray<string> {
    return ["ip", "netns", "exec", this.name(node)]
  }

  /** Nothing that one says reaches the other. */
  silence(from: number, to: number): void {
    must("-n", this.name(from), "neigh", "replace", this.host(to), "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
  }

  /** Pulls the cable of a node. */
  unplug(node: number): void {
    must("link", "set", this.port(node), "down")
  }

  heal(): void {
    for (let node = 0; node < this.nodes; node++) {
      must("link", "set", this.port(node), "up")
      must("-n", this.name(node), "neigh", "flush", "all", "nud", "permanent")
    }
  }

  close(): void {
    for (let node = 0; node < this.nodes; node++) {
      ip("link", "del", this.port(node))
      ip("netns", "del", this.name(node))
    }
    ip("link", "del", this.bridge)
  }
}
