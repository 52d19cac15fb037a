import { isSampled, recordSpan, type TraceContext, traceTime } from "#infrastructure/platform/Tracing"

/** The trace that an item of a batch belongs to, and when the item was submitted (`traceTime`). */
export interface ItemTrace {
  readonly context: TraceContext
  readonly at: number
}

/**
 * Records a batch that has just ended, after `ms` milliseconds, as a span of its first traced item, linked to the
 * traces of the other items. Each traced item also gets a span from its submission to the end of the batch, linked to
 * the batch.
 */
export const traceBatch = (
  queue: string,
  batch: ReadonlyArray<{ readonly trace: ItemTrace | undefined }>,
  ms: number,
  failure: string | undefined
): void => {
  const traced = batch.flatMap(({ trace }) => trace !== undefined && isSampled(trace.context) ? [trace] : [])
  const [first, ...others] = traced
  if (first === undefined) return
  const end = traceTime()
  const whole = recordSpan(first.context, `batch of ${queue}`, end - ms, {
    kind: "client",
    attributes: { "db.system.name": "postgresql", "db.operation.batch.size": batch.length },
    links: others.map(({ context }) => context),
    failure
  }, end)
  const links = whole === undefined ? [] : [whole]
  for (const { at, context } of traced) recordSpan(context, "commit", at, { links, failure }, end)
}
