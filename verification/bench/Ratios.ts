import type { Measured, Outcome } from "./Contender.ts"
import { EJABBERD, FLOOR, type SceneKind } from "./Scene.ts"
import { median, ratiosOf } from "./Statistics.ts"
import { HALF, ONE_AT_A_TIME, TEN } from "./Window.ts"

/** A figure that has a goal, or that compares subjects. */
export interface Figure {
  readonly what: string
  readonly unit: "×" | "ms" | "/s" | "bytes" | "MB" | "kB" | "µs"
  /** One value for each round or measurement. */
  readonly values: ReadonlyArray<number>
  readonly goal?: Goal
}

export interface Goal {
  readonly most?: number
  readonly least?: number
  /** Whether every value must reach the goal, and not only the median. */
  readonly always?: boolean
}

export type Compared = Pick<Outcome, "name" | "subject" | "runs" | "disk" | "databaseFloor" | "memory" | "verdict">

export const isReached = ({ goal, values }: Figure): boolean | undefined => {
  if (goal === undefined) return undefined
  const { always = false, least = -Infinity, most = Infinity } = goal
  return (always ? values : [median(values)]).every((value) => value >= least && value <= most)
}

/** Processor time of a message in the servers, the database and Redis together, without the balancer. */
const whole = ({ cpu }: Measured): number => cpu.server + (cpu.database ?? 0) + (cpu.redis ?? 0)

const byRound = ({ runs }: Compared, label: string, value: (run: Measured) => number): ReadonlyMap<number, number> =>
  new Map(runs.filter((run) => run.label === label).map((run) => [run.round, value(run)]))

/** With fewer messages, half-filled pages would dominate the disk space per message. */
const ENOUGH_FOR_DISK = 10_000

const NODES: Readonly<Record<number, number>> = { 2: 1.3, 3: 1.4 }
const BALANCED: Readonly<Record<number, number>> = { 2: 1.15 }

/** The figures that compare the outcomes of one run. `load` is the label of the window with the greatest load. */
export const figuresOf = (outcomes: ReadonlyArray<Compared>, scene: SceneKind, load: string): ReadonlyArray<Figure> => {
  const figures: Array<Figure> = []
  const add = (what: string, unit: Figure["unit"], values: ReadonlyArray<number>, goal?: Goal) => {
    if (values.length > 0) figures.push({ what, unit, values, ...(goal === undefined ? {} : { goal }) })
  }
  const compare = (
    what: string,
    one: Compared,
    other: Compared,
    label: string,
    value: (run: Measured) => number,
    goal?: Goal
  ) => add(what, "×", ratiosOf(byRound(one, label, value), byRound(other, label, value)), goal)

  const floor = outcomes.find(({ name }) => name === FLOOR)
  const ejabberd = outcomes.find(({ name }) => name === EJABBERD)
  for (const one of outcomes) {
    const { name, subject } = one
    if (subject === undefined) continue
    const { apart, balancer, checkout: { commit }, database, nodes, stored, traced } = subject
    const like = (nodes: number, stored = 0) =>
      outcomes.find(({ subject }) =>
        subject?.database === database && subject.nodes === nodes && subject.stored === stored &&
        subject.balancer === undefined && subject.traced === undefined && subject.apart !== true &&
        subject.checkout.commit === commit
      )
    if (floor !== undefined && nodes === 0 && database === "postgres") {
      compare(`${name}, ${load}: server against the bare floor`, one, floor, load, ({ cpu }) => cpu.server, {
        most: 1.8
      })
      const least = median(one.databaseFloor ?? [])
      if (least > 0) {
        const costs = [...byRound(one, load, ({ cpu }) => cpu.database ?? NaN).values()]
        add(`${name}, ${load}: database against its floor`, "×", costs.map((cost) => cost / least), { most: 2.5 })
        add(`${name}: the database's floor`, "µs", one.databaseFloor ?? [])
      }
    }
    if (ejabberd !== undefined && database === "postgres") {
      for (const label of new Set(ejabberd.runs.map((run) => run.label))) {
        compare(`${name}, ${label}: messages/s against ejabberd`, one, ejabberd, label, (run) => run.perSecond, {
          least: 3
        })
        compare(`${name}, ${label}: CPU against ejabberd`, one, ejabberd, label, whole, { most: 0.3 })
      }
    }
    const standalone = like(0, stored)
    if (nodes === 1 && balancer === undefined && standalone !== undefined) {
      compare(`${name}, ${load}: with Redis, against standalone`, one, standalone, load, whole, { most: 1.2 })
    }
    const alone = like(1, stored)
    if (apart === true) {
      if (alone !== undefined) compare(`${name}, ${load} for each: against one node`, one, alone, load, whole)
      continue
    }
    const apartly = outcomes.find(({ subject }) =>
      subject?.apart === true && subject.nodes === nodes && subject.checkout.commit === commit
    )
    if (apartly !== undefined && stored === 0 && traced === undefined && balancer === undefined) {
      for (const label of [load, HALF, ONE_AT_A_TIME])
        compare(`${name}, ${label}: against as many that share nothing`, one, apartly, label, whole)
    }
    if (nodes > 1 && alone !== undefined) {
      const most = balancer === undefined ? NODES[nodes] : balancer === "header" ? BALANCED[nodes] : undefined
      compare(
        `${name}, ${load} for each: against one node`,
        one,
        alone,
        load,
        whole,
        most === undefined ? undefined : { most }
      )
    }
    const empty = like(nodes)
    if (stored > 0 && empty !== undefined) {
      compare(`${name}, ${load}: against an empty database`, one, empty, load, whole, { most: 1.1 })
      compare(
        `${name}, ${ONE_AT_A_TIME}: against an empty database`,
        one,
        empty,
        ONE_AT_A_TIME,
        whole,
        { most: 1.1 }
      )
    }
    const untraced = traced === undefined ?
      undefined :
      outcomes.find(({ subject: other }) =>
        other !== undefined && other.traced === undefined && other.checkout.commit === commit &&
        other.database === database &&
        other.nodes === nodes && other.stored === stored && other.balancer === balancer && other.apart !== true
      )
    if (untraced !== undefined) {
      compare(`${name}, ${load}: CPU against no traces`, one, untraced, load, whole)
      compare(`${name}, ${load}: messages/s against no traces`, one, untraced, load, (run) => run.perSecond)
    }
    const before = commit !== undefined ?
      undefined :
      outcomes.find(({ subject: other }) =>
        other !== undefined && other.checkout.commit !== undefined && other.database === database &&
        other.nodes === nodes &&
        other.stored === stored && other.balancer === balancer && other.apart !== true
      )
    if (before !== undefined) {
      const then = `against ${before.subject?.checkout.commit}`
      for (const label of new Set(one.runs.map((run) => run.label))) {
        compare(
          `${name}, ${label}: CPU ${then}`,
          one,
          before,
          label,
          whole,
          label === ONE_AT_A_TIME ? { most: 0.5 } : undefined
        )
        if (label === load) {
          compare(
            `${name}, ${label}: messages/s ${then}`,
            one,
            before,
            label,
            (run) => run.perSecond,
            database === "pglite" ? { least: 1.3 } : undefined
          )
        }
      }
    }
    const half = one.runs.filter(({ label }) => label === HALF)
    for (const [quantile, most] of [["p50", 5], ["p95", 20], ["p99", 50]] as const) {
      add(`${name}, ${HALF}: ${quantile} to the socket`, "ms", half.map(({ toSocket }) => toSocket[quantile]), {
        most,
        always: true
      })
    }
    if (scene === "hot") {
      add(`${name}, one conversation`, "/s", [...byRound(one, load, (run) => run.perSecond).values()], { least: 6000 })
    }
    if (scene === "group") {
      add(`${name}, ${TEN}: p99 to the last socket`, "ms", [
        ...byRound(one, TEN, ({ toSocket }) => toSocket.p99).values()
      ], { most: 20 })
      add(`${name}: messages on sockets when saturated`, "/s", [
        ...byRound(one, load, (run) => run.framesPerSecond).values()
      ])
    }
    if (one.disk !== undefined && scene !== "group" && one.verdict.stored >= ENOUGH_FOR_DISK)
      add(`${name}: disk for each stored message`, "bytes", [one.disk.bytesPerMessage], { most: 600 })
    add(`${name}: resident after ${one.verdict.accepted} messages`, "MB", one.memory.map(({ found }) => found / 1e6), {
      most: 250,
      always: true
    })
  }
  return figures
}
