import { availableParallelism } from "node:os"
import { type Contender, type ContenderOptions, type Measured, type Outcome, startContender } from "./Contender.ts"
import { cpuOf, cpuOfTree } from "./CpuTime.ts"
import type { Processes } from "./Load.ts"
import type { Subject } from "./Rig.ts"
import type { Quantiles } from "./Statistics.ts"
import type { Window } from "./Window.ts"

/**
 * Servers that share nothing, each with a database, a Redis and a load of its own, at the same time on this machine. A
 * message costs more here than on one server alone, because the servers compete for caches and processors. Nodes of a
 * cluster on one machine have the same additional cost, besides the cost of their communication.
 *
 * With one message at a time, one message is under way in all servers together, as it is in a cluster. The servers are
 * measured in turn, and the processor time that the idle servers use meanwhile counts as well.
 */
export const startApart = async (subject: Subject, options: ContenderOptions): Promise<Contender> => {
  const servers: Array<{ readonly contender: Contender; readonly pids: Processes }> = []
  for (let n = 0; n < subject.nodes; n++) {
    servers.push(await startContender({ ...subject, nodes: 1, apart: false }, { ...options, onProfile: undefined }))
  }
  const parts = servers.map(({ contender }) => contender)
  const atOnce = async (window: Window, round: number) =>
    merged(await Promise.all(parts.map((part) => part.measure(window, round))))
  const inTurn = async (window: Window, round: number) => {
    const measured: Array<Measured> = []
    for (const { contender, pids } of servers) {
      const others = servers.filter((server) => server.pids !== pids).map(({ pids }) => pids)
      const [begin, before] = [performance.now(), usedBy(others)]
      const found = await contender.measure(window, round)
      const [seconds, after] = [(performance.now() - begin) / 1000, usedBy(others)]
      measured.push(withIdle(found, (name) => (after[name] - before[name]) / seconds / found.perSecond))
    }
    return merged(measured, measured.length)
  }
  const name = apartName(subject)
  const runs: Array<Measured> = []
  return {
    name,
    takes: () => true,
    measure: async (window, round) => {
      const together = await (window.pace.kind === "alone" ? inTurn : atOnce)(window, round)
      runs.push(together)
      return together
    },
    finish: async () => {
      const outcomes: Array<Outcome> = []
      for (const part of parts) outcomes.push(await part.finish())
      const [first] = outcomes
      const sum = (of: (verdict: Outcome["verdict"]) => number) =>
        outcomes.reduce((all, { verdict }) => all + of(verdict), 0)
      return {
        ...first!,
        name,
        subject,
        runs,
        verdict: {
          accepted: sum(({ accepted }) => accepted),
          stored: sum(({ stored }) => stored),
          delivered: sum(({ delivered }) => delivered),
          echoed: sum(({ echoed }) => echoed),
          problems: outcomes.flatMap(({ verdict }) => verdict.problems)
        },
        memory: outcomes.flatMap(({ memory }) => memory),
        stopped: outcomes.flatMap(({ stopped }) => stopped),
        disk: undefined,
        databaseFloor: undefined
      }
    }
  }
}

export const apartName = ({ checkout, nodes }: Pick<Subject, "checkout" | "nodes">): string =>
  `${nodes} servers that share nothing${checkout.commit === undefined ? "" : `, at ${checkout.commit}`}`

/** Microseconds of processor time that servers, their databases and their Redis have used. */
const usedBy = (servers: ReadonlyArray<Processes>) => {
  const sum = (of: (pids: Processes) => number): number => servers.reduce((all, pids) => all + of(pids), 0)
  return {
    server: sum(({ servers }) => servers.reduce((all, pid) => all + cpuOf(pid), 0)),
    database: sum(({ database }) => database === undefined ? 0 : cpuOfTree(database)),
    redis: sum(({ redis }) => redis === undefined ? 0 : cpuOf(redis))
  }
}

/** Adds to a window the processor time that idle servers used for each of its messages. */
const withIdle = (measured: Measured, idle: (name: keyof ReturnType<typeof usedBy>) => number): Measured => {
  const { cpu } = measured
  const plus = (used: number | undefined, name: "database" | "redis") =>
    used === undefined ? undefined : used + idle(name)
  return {
    ...measured,
    cpu: {
      ...cpu,
      server: cpu.server + idle("server"),
      database: plus(cpu.database, "database"),
      redis: plus(cpu.redis, "redis")
    }
  }
}

/**
 * One window of all parts together: sums of throughput, means of the cost of a message, and the worst latency. `turns`
 * is the number of turns in which the parts were measured.
 */
const merged = (parts: ReadonlyArray<Measured>, turns = 1): Measured => {
  const [first] = parts as readonly [Measured, ...Array<Measured>]
  const sum = (of: (part: Measured) => number): number => parts.reduce((all, part) => all + of(part), 0)
  const accepted = sum((part) => part.accepted)
  const each = (of: (part: Measured) => number): number =>
    sum((part) => of(part) * part.accepted) / Math.max(1, accepted)
  const eachOf = (of: (part: Measured) => number | undefined): number | undefined =>
    of(first) === undefined ? undefined : each((part) => of(part) ?? 0)
  const worst = (of: (part: Measured) => Quantiles): Quantiles =>
    parts.map(of).reduce((one, other) =>
      Object.fromEntries(
        Object.entries(one).map(([name, value]) => [name, Math.max(value, other[name as keyof Quantiles])])
      ) as unknown as Quantiles
    )
  const used = ({ accepted, cpu, seconds }: Measured): number =>
    accepted * (cpu.server + (cpu.database ?? 0) + (cpu.redis ?? 0) + cpu.load) /
    (seconds * availableParallelism() * 1e6)
  return {
    ...first,
    accepted,
    perSecond: sum((part) => part.perSecond) / turns,
    framesPerSecond: sum((part) => part.framesPerSecond) / turns,
    toSocket: worst(({ toSocket }) => toSocket),
    toAnswer: worst(({ toAnswer }) => toAnswer),
    cpu: {
      server: each(({ cpu }) => cpu.server),
      nodes: parts.map(({ cpu }) => cpu.server),
      kernel: each(({ cpu }) => cpu.kernel),
      database: eachOf(({ cpu }) => cpu.database),
      redis: eachOf(({ cpu }) => cpu.redis),
      balancer: undefined,
      load: each(({ cpu }) => cpu.load)
    },
    // Each part counts the other parts as noise, so their use is subtracted.
    noise: {
      others: turns > 1 ? first.noise.others : Math.max(0, first.noise.others - sum(used) + used(first)),
      stolen: first.noise.stolen
    },
    refused: parts.reduce<Record<string, number>>((all, { refused }) => {
      for (const [code, count] of Object.entries(refused)) all[code] = (all[code] ?? 0) + count
      return all
    }, {})
  }
}
