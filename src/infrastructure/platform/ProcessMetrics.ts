import { Context, Effect, Layer } from "effect"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { cpuSeconds, heapBytes, lagSeconds, residentBytes, uptimeSeconds } from "./Metrics.ts"

/** Measures delays of the event loop while the scope is open. */
export const eventLoopDelay = (resolution: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const delay = monitorEventLoopDelay({ resolution })
      delay.enable()
      return delay
    }),
    (delay) => Effect.sync(() => delay.disable())
  )

/** Metrics of the process that are measured when they are scraped. */
export class ProcessMetrics extends Context.Service<ProcessMetrics, {
  readonly refresh: () => void
}>()("parley/platform/ProcessMetrics") {
  static readonly layer = Layer.effect(
    ProcessMetrics,
    Effect.map(eventLoopDelay(20), (delay) =>
      ProcessMetrics.of({
        refresh: () => {
          const memory = process.memoryUsage()
          const cpu = process.cpuUsage()
          residentBytes.set(memory.rss)
          heapBytes.set(memory.heapUsed)
          cpuSeconds.set((cpu.user + cpu.system) / 1e6)
          uptimeSeconds.set(process.uptime())
          lagSeconds.set(Number.isNaN(delay.percentile(99)) ? 0 : delay.percentile(99) / 1e9)
          delay.reset()
        }
      }))
  )
}
