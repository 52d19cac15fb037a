import { availableParallelism } from "node:os"
import { type Contender, type ContenderOptions, type Measured, type Outcome, startContender } from "./Contender.ts"
import type { Quantiles } from "./Load.ts"
import type { Subject } from "./Rig.ts"

/**
 * Servers that share nothing, each with a database, a Redis and a load of its own, at the same time on this machine. A message costs
 * more here than on one server alone, because the servers compete for caches and processors. Nodes of a cluster on one machine have the
 * same additional cost, besides the cost of their communication.
 */
export const startApart = async (subject: Subject, options: ContenderOptions): Promise<Contender> => {
  const parts: Array<Contender> = []
  for (let n = 0; n < subject.nodes; n++) {
    parts.push((await startContender({ ...subject, nodes: 1, apart: false }, { ...options, onProfile: undefined })).contender)
  }
  const name = apartName(subject)
  const runs: Array<Measured> = []
  return {
    name,
    measure: async (window, round) => {
      const together = merged(await Promise.all(parts.map((part) => part.measure(window, round))))
      runs.push(together)
      return together
    },
    finish: async () => {
      const outcomes: Array<Outcome> = []
      for (const part of parts) outcomes.push(await part.finish())
      const [first] = outcomes
      const sum = (of: (verdict: Outcome["verdict"]) => number) => outcomes.reduce((all, { verdict }) => all + of(verdict), 0)
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

/** One window of all parts together: sums of throughput, means of the cost of a message, and the worst latency. */
const merged = (parts: ReadonlyArray<Measured>): Measured => {
  const [first] = parts as readonly [Measured, ...Array<Measured>]
  const sum = (of: (part: Measured) => number): number => parts.reduce((all, part) => all + of(part), 0)
  const accepted = sum((part) => part.accepted)
  const each = (of: (part: Measured) => number): number => sum((part) => of(part) * part.accepted) / Math.max(1, accepted)
  const eachOf = (of: (part: Measured) => number | undefined): number | undefined =>
    of(first) === undefined ? undefined : each((part) => of(part) ?? 0)
  const worst = (of: (part: Measured) => Quantiles): Quantiles =>
    parts.map(of).reduce((one, other) => Object.fromEntries(
      Object.entries(one).map(([name, value]) => [name, Math.max(value, other[name as keyof Quantiles])])
    ) as unknown as Quantiles)
  const used = ({ accepted, cpu, seconds }: Measured): number =>
    accepted * (cpu.server + (cpu.database ?? 0) + (cpu.redis ?? 0) + cpu.load) / (seconds * availableParallelism() * 1e6)
  return {
    ...first,
    accepted,
    perSecond: sum((part) => part.perSecond),
    framesPerSecond: sum((part) => part.framesPerSecond),
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
    noise: { others: Math.max(0, first.noise.others - sum(used) + used(first)), stolen: first.noise.stolen },
    refused: parts.reduce<Record<string, number>>((all, { refused }) => {
      for (const [code, count] of Object.entries(refused)) all[code] = (all[code] ?? 0) + count
      return all
    }, {})
  }
}
