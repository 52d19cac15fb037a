import { spawnSync } from "node:child_process"
import { readdirSync } from "node:fs"
import { lives } from "./Lives.ts"

const ip = (...args: ReadonlyArray<string>): boolean => spawnSync("ip", args, { stdio: "ignore" }).status === 0

const must = (...args: ReadonlyArray<string>): void => {
  const { status, stderr } = spawnSync("ip", args, { encoding: "utf8" })
  if (status !== 0) throw new Error(`ip ${args.join(" ")}: ${stderr}`)
}

/** The number of addresses for clients that are not the suite's own. */
export const STRANGERS = 8

/** A hardware address that no interface has. Packets to it are lost. */
const NOBODY = "02:00:00:00:00:01"
const NAME = /^parley-(\d+)-\d+$/

/** Removes the namespaces that killed runs have left behind. */
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
 * A network on one machine in which each node has its own address, interface and tables (network namespaces on a
 * bridge). Needs Linux and root. To cut one direction, the sender gets a hardware address for the receiver that no
 * interface has. Its packets are then lost without an error, and the opposite direction still works.
 */
export class Network {
  private readonly subnet: string
  private readonly bridge = `pf${process.pid}`
  private readonly nodes: number

  /**
   * There is one more node than asked for, to be added later. It has an address before and one after those of the other
   * nodes.
   */
  private constructor(nodes: number) {
    this.nodes = nodes + 1
    this.subnet = `10.${100 + (process.pid >> 8) % 100}.${process.pid % 256}`
  }

  static isAllowed(): boolean {
    const network = Network.open(0)
    network?.close()
    return network !== undefined
  }

  /** Creates a network; undefined if this is not allowed. */
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
    for (const host of [this.outside, ...this.strangers]) must("addr", "add", `${host}/24`, "dev", this.bridge)
    must("link", "set", this.bridge, "up")
    for (let node = 0; node < this.nodes; node++) {
      const name = this.name(node)
      must("netns", "add", name)
      must("link", "add", this.port(node), "type", "veth", "peer", "name", "eth0", "netns", name)
      must("link", "set", this.port(node), "master", this.bridge, "up")
      for (const host of this.hosts(node)) must("-n", name, "addr", "add", `${host}/24`, "dev", "eth0")
      must("-n", name, "link", "set", "eth0", "up")
      must("-n", name, "link", "set", "lo", "up")
    }
  }

  /** The machine's own address, as nodes see it. */
  get outside(): string {
    return `${this.subnet}.1`
  }

  /** More addresses of the machine, for clients that are not the suite's own. */
  get strangers(): ReadonlyArray<string> {
    return Array.from({ length: STRANGERS }, (_, i) => `${this.subnet}.${200 + i}`)
  }

  host(node: number): string {
    return `${this.subnet}.${20 + node}`
  }

  /**
   * The node that is added later: its number, and an address that sorts before and one that sorts after those of the
   * others.
   */
  get spare(): { readonly number: number; readonly below: string; readonly above: string } {
    return { number: this.nodes - 1, below: `${this.subnet}.15`, above: `${this.subnet}.30` }
  }

  private hosts(node: number): ReadonlyArray<string> {
    return node === this.spare.number ? [this.spare.below, this.spare.above] : [this.host(node)]
  }

  private name(node: number): string {
    return `parley-${process.pid}-${node}`
  }

  /** The bridge's end of a node's cable. */
  private port(node: number): string {
    return `pf${process.pid}-${node}`
  }

  /** The words before a command with which it runs on this node. */
  prefix(node: number): ReadonlyArray<string> {
    return ["ip", "netns", "exec", this.name(node)]
  }

  /** Cuts the direction from one node to another. */
  silence(from: number, to: number): void {
    for (const host of this.hosts(to)) {
      must("-n", this.name(from), "neigh", "replace", host, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
    }
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
