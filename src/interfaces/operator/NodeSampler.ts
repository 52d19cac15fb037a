import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { commitTimes, httpRequests, pushes, stored } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { eventLoopDelay } from "#infrastructure/platform/ProcessMetrics"
import { iso } from "#infrastructure/wire/Text"
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import type { Series } from "./Overview.ts"

/**
 * The figures of one second, or the means over one minute. The lag of a minute is the highest value. Rates are per
 * second.
 */
export interface Sample {
  readonly sends: number
  readonly pushes: number
  readonly requests: number
  readonly sockets: number
  readonly cpuPercent: number
  readonly memoryBytes: number
  readonly lagMs: number
}

/** Totals since this process started. */
interface Counters {
  readonly sends: number
  readonly pushes: number
  readonly requests: number
}

const readCounters = (): Counters => ({ sends: stored.total(), pushes: pushes.total, requests: httpRequests.total })

/** How many seconds the short history contains, and how many minutes the long history. */
const MAX_SAMPLES = 60

/** The means of these samples, with the highest lag of all samples. */
export const meanOf = (samples: ReadonlyArray<Sample>): Sample => {
  const mean = (of: (sample: Sample) => number) =>
    samples.reduce((all, one) => all + of(one), 0) / Math.max(1, samples.length)
  return {
    sends: mean(({ sends }) => sends),
    pushes: mean(({ pushes }) => pushes),
    requests: mean(({ requests }) => requests),
    sockets: Math.round(mean(({ sockets }) => sockets)),
    cpuPercent: mean(({ cpuPercent }) => cpuPercent),
    memoryBytes: Math.round(mean(({ memoryBytes }) => memoryBytes)),
    lagMs: Math.max(0, ...samples.map(({ lagMs }) => lagMs))
  }
}

const round = (value: number): number => Math.round(value * 10) / 10

const seriesOf = (samples: ReadonlyArray<Sample>, everySeconds: number, endsAt: number): Series => ({
  every_seconds: everySeconds,
  ends_at: iso(endsAt),
  sends: samples.map(({ sends }) => round(sends)),
  pushes: samples.map(({ pushes }) => round(pushes)),
  requests: samples.map(({ requests }) => round(requests)),
  sockets: samples.map(({ sockets }) => sockets),
  cpu_percent: samples.map(({ cpuPercent }) => round(cpuPercent)),
  memory_bytes: samples.map(({ memoryBytes }) => memoryBytes),
  lag_ms: samples.map(({ lagMs }) => round(lagMs))
})

/**
 * The figures of this process, sampled once a second: the last sample, the seconds of the last minute, and the minutes
 * of the last hour. They are lost on restart. The samples come from the counters of the metrics, so they add no cost to
 * requests.
 */
export class NodeSampler extends Context.Service<NodeSampler, {
  /** The last sample; undefined during the first second. */
  readonly last: () => Sample | undefined
  /** The mean time of a batch's commit in the last minute, in milliseconds; null if there was no commit. */
  readonly batchMs: () => number | null
  readonly history: () => { readonly minute: Series; readonly hour: Series }
}>()("parley/operator/NodeSampler") {
  static readonly layer = Layer.effect(
    NodeSampler,
    Effect.gen(function*() {
      const gateway = yield* UpgradeHandler
      const clock = yield* Clock.Clock
      const now = monotonicMillis(clock)
      const delay = yield* eventLoopDelay(10)
      const seconds: Array<Sample> = []
      /** For each of the last seconds, the number of commits and their total time in seconds so far. */
      const commits = [commitTimes.totals]
      const minutes: Array<Sample> = []
      let minute: Array<Sample> = []
      let endsAt = clock.currentTimeMillisUnsafe()
      let minuteEndsAt = endsAt
      let before = { at: now(), cpu: process.cpuUsage(), counters: readCounters() }

      const push = (kept: Array<Sample>, sample: Sample): void => {
        kept.push(sample)
        if (kept.length > MAX_SAMPLES) kept.shift()
      }
      const take = Effect.sync(() => {
        const at = now()
        const elapsed = Math.max(1, at - before.at) / 1_000
        const cpu = process.cpuUsage(before.cpu)
        const counters = readCounters()
        const p99 = delay.percentile(99) / 1e6
        delay.reset()
        const sample: Sample = {
          sends: (counters.sends - before.counters.sends) / elapsed,
          pushes: (counters.pushes - before.counters.pushes) / elapsed,
          requests: (counters.requests - before.counters.requests) / elapsed,
          sockets: gateway.size(),
          cpuPercent: (cpu.user + cpu.system) / 1e4 / elapsed,
          memoryBytes: process.memoryUsage.rss(),
          lagMs: Number.isNaN(p99) ? 0 : p99
        }
        before = { at, cpu: process.cpuUsage(), counters }
        endsAt = clock.currentTimeMillisUnsafe()
        push(seconds, sample)
        commits.push(commitTimes.totals)
        if (commits.length > MAX_SAMPLES) commits.shift()
        minute.push(sample)
        if (minute.length < MAX_SAMPLES) return
        push(minutes, meanOf(minute))
        minute = []
        minuteEndsAt = endsAt
      })
      yield* Effect.forkScoped(Effect.delay(Effect.repeat(take, Schedule.spaced("1 second")), "1 second"))

      return NodeSampler.of({
        last: () => seconds.at(-1),
        batchMs: () => {
          const [then, now] = [commits[0]!, commitTimes.totals]
          return now.count === then.count
            ? null
            : Math.round((now.sum - then.sum) / (now.count - then.count) * 10_000) / 10
        },
        history: () => ({ minute: seriesOf(seconds, 1, endsAt), hour: seriesOf(minutes, 60, minuteEndsAt) })
      })
    })
  )
}
