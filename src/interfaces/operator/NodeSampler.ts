import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { quantile } from "#infrastructure/platform/Meters"
import { commitTimes, httpRequests, httpSeconds, pushes, stored } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { eventLoopLag } from "#infrastructure/platform/ProcessMetrics"
import { iso } from "#infrastructure/wire/Text"
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import type { Series } from "./Overview.ts"

/**
 * The figures of one second, or the means over a longer time. The lag of a longer time is the highest value. Rates are
 * per second.
 */
export interface Sample {
  readonly sends: number
  readonly pushes: number
  readonly requests: number
  /** Responses with a status of 500 or above. */
  readonly errors: number
  /** How many sends over HTTP got their response in this time, by the bucket of their duration. */
  readonly durations: ReadonlyArray<number>
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
  readonly errors: number
  readonly durations: ReadonlyArray<number>
}

const sends = httpSeconds.at("POST", "/v1/messages")

const readCounters = (): Counters => ({
  sends: stored.total(),
  pushes: pushes.total,
  requests: httpRequests.total,
  errors: httpRequests.all().reduce((all, [[, status], { value }]) => status === "5xx" ? all + value : all, 0),
  durations: [...sends.counts]
})

/** The means of these samples, with the highest lag of all samples. There is at least one sample. */
export const meanOf = (samples: ReadonlyArray<Sample>): Sample => {
  const mean = (of: (sample: Sample) => number) => samples.reduce((all, one) => all + of(one), 0) / samples.length
  return {
    sends: mean(({ sends }) => sends),
    pushes: mean(({ pushes }) => pushes),
    requests: mean(({ requests }) => requests),
    errors: mean(({ errors }) => errors),
    durations: samples[0]!.durations.map((_, i) => samples.reduce((all, { durations }) => all + durations[i]!, 0)),
    sockets: Math.round(mean(({ sockets }) => sockets)),
    cpuPercent: mean(({ cpuPercent }) => cpuPercent),
    memoryBytes: Math.round(mean(({ memoryBytes }) => memoryBytes)),
    lagMs: Math.max(0, ...samples.map(({ lagMs }) => lagMs))
  }
}

const round = (value: number): number => Math.round(value * 10) / 10

/** The time in milliseconds within which this share of the sends got their response; null if there was no send. */
export const durationOf = ({ durations }: Sample, share: number): number | null => {
  const seconds = quantile(sends.bounds, durations, share)
  return seconds === undefined ? null : round(seconds * 1_000)
}

/** The newest samples of one length, the oldest first. */
class Samples {
  readonly everySeconds: number
  readonly #most: number
  readonly #kept: Array<Sample> = []
  #endsAt: number

  constructor(everySeconds: number, most: number, endsAt: number) {
    this.everySeconds = everySeconds
    this.#most = most
    this.#endsAt = endsAt
  }

  last(): Sample | undefined {
    return this.#kept.at(-1)
  }

  add(sample: Sample, endsAt: number): void {
    this.#kept.push(sample)
    if (this.#kept.length > this.#most) this.#kept.shift()
    this.#endsAt = endsAt
  }

  series(): Series {
    const all = this.#kept
    return {
      every_seconds: this.everySeconds,
      ends_at: iso(this.#endsAt),
      sends: all.map(({ sends }) => round(sends)),
      pushes: all.map(({ pushes }) => round(pushes)),
      requests: all.map(({ requests }) => round(requests)),
      errors: all.map(({ errors }) => Math.round(errors * 1_000) / 1_000),
      send_p50_ms: all.map((sample) => durationOf(sample, 0.5)),
      send_p99_ms: all.map((sample) => durationOf(sample, 0.99)),
      sockets: all.map(({ sockets }) => sockets),
      cpu_percent: all.map(({ cpuPercent }) => round(cpuPercent)),
      memory_bytes: all.map(({ memoryBytes }) => memoryBytes),
      lag_ms: all.map(({ lagMs }) => round(lagMs))
    }
  }
}

/** How many seconds, minutes and five minutes the histories contain. */
const SECONDS = 60
const MINUTES = 60
const FIVE_MINUTES = 288

/**
 * The figures of this process, sampled once a second: the last sample, the seconds of the last minute, the minutes of
 * the last hour, and the last day in steps of five minutes. They are lost on restart. The samples come from the
 * counters of the metrics, so they add no cost to requests.
 */
export class NodeSampler extends Context.Service<NodeSampler, {
  /** The last sample; undefined during the first second. */
  readonly last: () => Sample | undefined
  /** The mean time of a batch's commit in the last minute, in milliseconds; null if there was no commit. */
  readonly batchMs: () => number | null
  readonly history: () => { readonly minute: Series; readonly hour: Series; readonly day: Series }
}>()("parley/operator/NodeSampler") {
  static readonly layer = Layer.effect(
    NodeSampler,
    Effect.gen(function*() {
      const gateway = yield* UpgradeHandler
      const clock = yield* Clock.Clock
      const now = monotonicMillis(clock)
      const lagMs = yield* eventLoopLag
      /** For each of the last seconds, the number of commits and their total time in seconds so far. */
      const commits = [commitTimes.totals]
      const began = clock.currentTimeMillisUnsafe()
      const seconds = new Samples(1, SECONDS, began)
      const minutes = new Samples(60, MINUTES, began)
      const fiveMinutes = new Samples(300, FIVE_MINUTES, began)
      /** The seconds of the current minute, and the minutes of the current five minutes. */
      let ofMinute: Array<Sample> = []
      let ofFiveMinutes: Array<Sample> = []
      let before = { at: now(), cpu: process.cpuUsage(), counters: readCounters() }

      const take = Effect.sync(() => {
        const at = now()
        const elapsed = Math.max(1, at - before.at) / 1_000
        const cpu = process.cpuUsage(before.cpu)
        const counters = readCounters()
        const sample: Sample = {
          sends: (counters.sends - before.counters.sends) / elapsed,
          pushes: (counters.pushes - before.counters.pushes) / elapsed,
          requests: (counters.requests - before.counters.requests) / elapsed,
          errors: (counters.errors - before.counters.errors) / elapsed,
          durations: counters.durations.map((count, i) => count - before.counters.durations[i]!),
          sockets: gateway.size(),
          cpuPercent: (cpu.user + cpu.system) / 1e4 / elapsed,
          memoryBytes: process.memoryUsage.rss(),
          lagMs: lagMs()
        }
        before = { at, cpu: process.cpuUsage(), counters }
        const endsAt = clock.currentTimeMillisUnsafe()
        seconds.add(sample, endsAt)
        commits.push(commitTimes.totals)
        if (commits.length > SECONDS) commits.shift()
        ofMinute.push(sample)
        if (ofMinute.length < 60) return
        const minute = meanOf(ofMinute)
        ofMinute = []
        minutes.add(minute, endsAt)
        ofFiveMinutes.push(minute)
        if (ofFiveMinutes.length < 5) return
        fiveMinutes.add(meanOf(ofFiveMinutes), endsAt)
        ofFiveMinutes = []
      })
      yield* Effect.forkScoped(Effect.delay(Effect.repeat(take, Schedule.spaced("1 second")), "1 second"))

      return NodeSampler.of({
        last: () => seconds.last(),
        batchMs: () => {
          const [then, now] = [commits[0]!, commitTimes.totals]
          return now.count === then.count
            ? null
            : Math.round((now.sum - then.sum) / (now.count - then.count) * 10_000) / 10
        },
        history: () => ({ minute: seconds.series(), hour: minutes.series(), day: fiveMinutes.series() })
      })
    })
  )
}
