import { readFileSync } from "node:fs"
import { setTimeout as pause } from "node:timers/promises"
import type { Load, LoadAgent, LoadStats } from "./Load.ts"
import type { Site, SiteNode } from "./Site.ts"

/** The cluster under load, as a fault sees it. */
export interface Scene {
  readonly site: Site
  /** A random number from 0 to 1. The sequence depends only on the seed. */
  readonly random: () => number
  /** The time at which the fault should end, on the clock of `performance.now()`. */
  readonly until: number
  /** Reports something that must not happen. */
  readonly problem: (what: string) => void
  /** Prints a line for the person who watches the run. */
  readonly say: (what: string) => void
  /** The statistics of the load so far. */
  readonly stats: () => LoadStats
  readonly load: Load
}

/** A fault that is caused in a cluster under load and then healed. */
export interface Fault {
  readonly name: string
  /** A description for readers of the table. */
  readonly about: string
  /** The shortest duration in seconds with which the fault is meaningful. */
  readonly atLeast?: number
  /** Seconds within which every conversation must accept messages again. */
  readonly resumesWithin?: number
  /** Whether no send of the published client may fail. */
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
  /** The node that answers nobody during the fault, although connections to it stay open. */
  readonly silences?: (site: Site) => SiteNode
  /** Additional settings of the nodes. The nodes are restarted for them. */
  readonly settings?: Readonly<Record<string, string>>
  /** Prepares what the fault needs, before the load's sends are timed. */
  readonly prepare?: (site: Site) => Promise<void>
  readonly inject: (scene: Scene) => Promise<void> | void
  /** Runs while the fault lasts. Without it, the fault just lasts until `until`. */
  readonly during?: (scene: Scene) => Promise<void>
  readonly heal: (scene: Scene) => Promise<void> | void
}

export const remaining = ({ until }: Scene): number => Math.max(0, until - performance.now())

export const isOver = (scene: Scene): boolean => remaining(scene) === 0

/** Repeats an action until the fault is over. */
export const again = async (scene: Scene, everyMs: number, what: () => Promise<unknown> | unknown): Promise<void> => {
  while (!isOver(scene)) {
    await what()
    await pause(Math.min(everyMs, remaining(scene)))
  }
}

/** Sends one request as an agent. */
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

/** Runs an action for each element, a few at a time. */
export const each = async <A>(all: ReadonlyArray<A>, what: (one: A, at: number) => Promise<unknown>): Promise<void> => {
  let next = 0
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let at = next++; at < all.length; at = next++) await what(all[at]!, at)
  }))
}

/** Bytes of memory that a node's process holds now, including shared memory, or the most that it has held. */
export const memoryOf = (node: SiteNode, what: "now" | "most"): number => {
  if (node.pid === undefined) return 0
  const line = new RegExp(`${what === "now" ? "VmRSS" : "VmHWM"}:\\s+(\\d+) kB`).exec(
    readFileSync(`/proc/${node.pid}/status`, "utf8")
  )
  return Number(line?.[1] ?? 0) * 1024
}

/** Returns a function for the seconds that the nodes have since waited for a processor, per second that they ran. */
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

/** The sum of a metric over all its lines, or over those with this label; 0 if the node does not answer. */
export const metricOf = async (node: SiteNode, name: string, label = ""): Promise<number> => {
  const answer = fetch(`${node.url}/internal/metrics`, { signal: AbortSignal.timeout(2_000) })
  const text = await answer.then((response) => response.text()).catch(() => "")
  return [...text.matchAll(new RegExp(`^${name}(?:\\{([^}]*)\\})? (\\d+)`, "gm"))]
    .reduce((sum, [, labels = "", count]) => labels.includes(label) ? sum + Number(count) : sum, 0)
}
