import { Context, Effect, Layer } from "effect"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { cpuSeconds, heapBytes, lagSeconds, residentBytes, uptimeSeconds } from "./Metrics.ts"

/**
 * How often the delay of the event loop is measured, in milliseconds. Each measurement wakes the process: every 10 and
 * 20 ms, two of them took a quarter of the processor time of an idle node.
 */
const RESOLUTION_MS = 50

/**
 * Measures how late the event loop is while the scope is open. The returned function gives the 99th percentile since its
 * last call, in milliseconds.
 */
export const eventLoopLag = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => {
      const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
      delay.enable()
      return delay
    }),
    (delay) => Effect.sync(() => delay.disable())
  ),
  (delay) => (): number => {
    // The values are the times between two measurements. Without a measurement, the percentile is NaN.
    const p99 = delay.percentile(99) / 1e6
    delay.reset()
    return Number.isNaN(p99) ? 0 : Math.max(0, p99 - RESOLUTION_MS)
  }
)

/** Metrics of the process that are measured when they are scraped. */
export class ProcessMetrics extends Context.Service<ProcessMetrics, {
  readonly refresh: () => void
}>()("parley/platform/ProcessMetrics") {
  static readonly layer = Layer.effect(
    ProcessMetrics,
    Effect.map(eventLoopLag, (lagMs) =>
      ProcessMetrics.of({
        refresh: () => {
          const memory = process.memoryUsage()
          const cpu = process.cpuUsage()
          residentBytes.set(memory.rss)
          heapBytes.set(memory.heapUsed)
          cpuSeconds.set((cpu.user + cpu.system) / 1e6)
          uptimeSeconds.set(process.uptime())
          lagSeconds.set(lagMs() / 1_000)
        }
      }))
  )
}
