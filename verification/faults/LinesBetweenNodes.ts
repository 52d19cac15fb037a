import { setTimeout as pause } from "node:timers/promises"
import type { Direction, Fate } from "../../test/support/Link.ts"
import { again, type Fault, metricOf, remaining, type Scene } from "./Fault.ts"
import type { Site } from "./Site.ts"

/** Faults of the lines between nodes (PeerConnection.ts). */

/** Without TLS, the links between nodes can read frames. */
const PLAIN = { RUNNER_SECRET: "" } as const

export const breakFrames: Fault = {
  name: "break-frames",
  about: "what nodes say to each other is 50 ms late, and their connections break in the middle of frames",
  inject: ({ site }) => {
    for (const link of site.detour()) link.delayMs = 50
  },
  during: (scene) =>
    again(scene, 700, () => {
      // Only one of the two links between two nodes carries their line.
      const links = scene.site.nodes.flatMap((node) => [...node.toPeers.values()]).filter(({ isInUse }) => isInUse)
      links[Math.floor(scene.random() * links.length)]?.cut()
    }),
  heal: ({ site }) => site.reconnect()
}

const TORN_PER_MINUTE = 50

export const tornLines: Fault = {
  name: "torn-lines",
  about: "the line between each two nodes is torn 50 times a minute",
  inject: ({ site }) => void site.detour(),
  during: async (scene) => {
    const { nodes } = scene.site
    const pairs = nodes.flatMap((one, at) => nodes.slice(at + 1).map((other) => scene.site.ways(one, other)))
    let torn = 0
    let turn = 0
    await again(scene, 60_000 / TORN_PER_MINUTE / pairs.length, () => {
      for (const [link] of pairs[turn++ % pairs.length]!) {
        if (link.isInUse) torn++
        link.cut()
      }
    })
    scene.say(`lines were torn ${torn} times`)
    if (torn < turn / 2) scene.problem(`at ${turn - torn} of ${turn} times there was no line that could be torn`)
  },
  heal: ({ site }) => site.reconnect()
}

type Reason = "answer" | "silence" | "connection"

/** The number of lines that have ended for a reason, summed over all nodes. */
const broken = async ({ nodes }: Site, reason: Reason): Promise<number> => {
  const counts = await Promise.all(
    nodes.map((node) => metricOf(node, "remote_call_lines_broken_total", `reason="${reason}"`))
  )
  return counts.reduce((sum, count) => sum + count, 0)
}

/**
 * A fault of single frames. `fate` creates, for each direction between two nodes, the function that decides about each
 * frame.
 */
const ofFrames = (options: {
  readonly name: string
  readonly about: string
  /** The reasons for which lines must not end. */
  readonly never: ReadonlyArray<Reason>
  readonly fate: (scene: Scene) => (hasEntries: boolean) => Fate
}): Fault => {
  const { about, fate, name, never } = options
  return {
    name,
    about,
    settings: PLAIN,
    inject: () => {},
    during: async (scene) => {
      const { problem, say, site } = scene
      const before = await Promise.all(never.map((reason) => broken(site, reason)))
      let frames = 0
      let affected = 0
      for (const link of site.detour()) {
        const fates: Readonly<Record<Direction, (hasEntries: boolean) => Fate>> = {
          there: fate(scene),
          back: fate(scene)
        }
        link.decide((direction, hasEntries) => {
          const decided = fates[direction](hasEntries)
          frames++
          if (decided !== "pass") affected++
          return decided
        })
      }
      await pause(remaining(scene))
      say(`${affected} of ${frames} frames`)
      if (affected === 0) problem("no frame was affected")
      for (const [at, reason] of never.entries()) {
        const count = await broken(site, reason) - before[at]!
        if (count > 0) problem(`${count} lines ended for the reason ${reason}`)
      }
    },
    heal: ({ site }) => site.reconnect()
  }
}

/** Applies `fate` to one frame with entries at random intervals of about `everyMs`. All other frames pass. */
const nowAndThen = ({ random }: Scene, everyMs: number, fate: Fate) => {
  const next = () => performance.now() + everyMs * (0.5 + random())
  let due = next()
  return (hasEntries: boolean): Fate => {
    if (!hasEntries || performance.now() < due) return "pass"
    due = next()
    return fate
  }
}

export const halfFrames: Fault = ofFrames({
  name: "half-frames",
  about: "the line between each two nodes is cut in the middle of a frame, in each direction about every four seconds",
  never: ["answer"],
  fate: (scene) => nowAndThen(scene, 4_000, "half")
})

export const doubleFrames: Fault = ofFrames({
  name: "double-frames",
  about: "one in ten frames between nodes arrives twice",
  never: ["answer", "silence"],
  fate: ({ random }) => () => random() < 0.1 ? "twice" : "pass"
})

export const lateFrames: Fault = ofFrames({
  name: "late-frames",
  about:
    "about every five seconds a frame in each direction between two nodes is 2 s late, and what comes behind it waits",
  never: ["answer", "silence"],
  fate: (scene) => nowAndThen(scene, 5_000, { lateMs: 2_000 })
})

/**
 * Lets the links read the frames from the beginning of each line, so that a fault can begin in the middle of a line.
 */
const readFrames = async (site: Site): Promise<void> => {
  for (const link of site.detour()) link.decide(() => "pass")
}

/** Holds the frames between one node and the others. Greetings pass, so the nodes keep reconnecting their lines. */
const holdFrames = (site: Site, direction: "from" | "to"): void => {
  const node = site.node(1)
  for (const other of site.nodes) {
    if (other === node) continue
    const ways = direction === "from" ? site.ways(node, other) : site.ways(other, node)
    for (const [link, way] of ways) link.holdFrames(way)
  }
}

export const muteNode: Fault = {
  name: "mute-node",
  about: "one node reads what the others say and does not answer: it greets them, and no frame of it arrives",
  atLeast: 15,
  settings: PLAIN,
  prepare: readFrames,
  inject: ({ site }) => holdFrames(site, "from"),
  heal: ({ site }) => site.reconnect()
}

export const deafNode: Fault = {
  name: "deaf-node",
  about: "one node answers and does not read: it greets the others, and no frame of them arrives",
  atLeast: 15,
  settings: PLAIN,
  prepare: readFrames,
  inject: ({ site }) => holdFrames(site, "to"),
  heal: ({ site }) => site.reconnect()
}
