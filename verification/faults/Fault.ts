import { readFileSync } from "node:fs"
import { setTimeout as pause } from "node:timers/promises"
import type { Load, LoadAgent, LoadStats } from "./Load.ts"
import type { Site, SiteNode } from "./Site.ts"

/** What a fault has to work on. */
export interface Scene {
  readonly site: Site
  /** From 0 to 1, the same for the same seed. */
  readonly random: () => number
  /** How long the fault should last, as `performance.now()` counts. */
  readonly until: number
  /** Tells the suite of something that must not be. */
  readonly problem: (what: string) => void
  /** Tells whoever looks on. */
  readonly say: (what: string) => void
  /** Of the load, up to now. */
  readonly stats: () => LoadStats
  readonly load: Load
}

/** Something that happens to a cluster under load, and its end. */
export interface Fault {
  readonly name: string
  /** What is done, for who reads the table. */
  readonly about: string
  /** Seconds that it needs to mean anything. */
  readonly atLeast?: number
  /** Seconds within which every conversation must take messages again. */
  readonly resumesWithin?: number
  /** Whether the published client must not notice. */
  readonly failsNoSend?: true
  /** Whether every node must be ready all the time. */
  readonly keepsReady?: true
  /** Whether PostgreSQL has to have a disk of its own. */
  readonly needsDisk?: true
  /** Whether each node has to have a network of its own. */
  readonly needsNetwork?: true
  /** Whether the load's sends must be answered about as fast as before. */
  readonly keepsSpeed?: true
  /** The most sends of the load per second until the fault has ended. */
  readonly rate?: number
  /** The limit of open files (`ulimit -n`) of each node; the nodes are restarted for it. */
  readonly openFiles?: number
  /** What the nodes are set to besides; they are started anew for it. */
  readonly settings?: Readonly<Record<string, string>>
  /** Prepares what the fault needs, before the load's sends are timed. */
  readonly prepare?: (site: Site) => Promise<void>
  readonly inject: (scene: Scene) => Promise<void> | void
  /** What goes on while it lasts; without it, nothing more until `until`. */
  readonly during?: (scene: Scene) => Promise<void>
  readonly heal: (scene: Scene) => Promise<void> | void
}

export const remaining = ({ until }: Scene): number => Math.max(0, until - performance.now())

export const isOver = (scene: Scene): boolean => remaining(scene) === 0

/** Does something over and over until the fault is over. */
export const again = async (scene: Scene, everyMs: number, what: () => Promise<unknown> | unknown): Promise<void> => {
  while (!isOver(scene)) {
    await what()
    await pause(Math.min(everyMs, remaining(scene)))
  }
}

/** One request, as an agent. */
export const ask = async (
  node: SiteNode,
  agent: LoadAgent,
  method: string,
  path: string,
  body?: unknown
): Promise<{ readonly status: number; readonly body: Readonly<Record<string, unknown>> }> => {
  const answer = await fetch(`${node.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${agent.key}` },
    ...(body === undefined ? {} : { body: JSON.stringify(body) })
  })
  return { status: answer.status, body: await answer.json() as Readonly<Record<string, unknown>> }
}

const AT_ONCE = 16

/** Does something with each of many, a few at a time. */
export const each = async <A>(all: ReadonlyArray<A>, what: (one: A, at: number) => Promise<unknown>): Promise<void> => {
  let next = 0
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let at = next++; at < all.length; at = next++) await what(all[at]!, at)
  }))
}

/** Bytes of memory that a node's process holds right now, shared ones included, or the most that it has held. */
export const memoryOf = (node: SiteNode, what: "now" | "most"): number => {
  if (node.pid === undefined) return 0
  const line = new RegExp(`${what === "now" ? "VmRSS" : "VmHWM"}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${node.pid}/status`, "utf8"))
  return Number(line?.[1] ?? 0) * 1024
}

/** Returns a function that tells how long the nodes have waited for a processor since, for each second that they ran. */
export const contentionOf = (nodes: ReadonlyArray<SiteNode>): () => number => {
  const times = (): readonly [ran: number, waited: number] =>
    nodes.reduce(([ran, waited], { pid }) => {
      if (pid === undefined) return [ran, waited] as const
      const [more = 0, longer = 0] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ").map(Number)
      return [ran + more, waited + longer] as const
    }, [0, 0] as readonly [number, number])
  const [ran, waited] = times()
  return () => {
    const [ranNow, waitedNow] = times()
    return (waitedNow - waited) / (ranNow - ran)
  }
}

/** The sum of a metric over its labels, or over those lines that have this label; 0 if the node gives no answer. */
export const metricOf = async (node: SiteNode, name: string, label = ""): Promise<number> => {
  const answer = fetch(`${node.url}/internal/metrics`, { signal: AbortSignal.timeout(2_000) })
  const text = await answer.then((response) => response.text()).catch(() => "")
  return [...text.matchAll(new RegExp(`^${name}(?:\\{([^}]*)\\})? (\\d+)`, "gm"))]
    .reduce((sum, [, labels = "", count]) => labels.includes(label) ? sum + Number(count) : sum, 0)
}
