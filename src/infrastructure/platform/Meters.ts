import { Effect, type Scope } from "effect"

/**
 * Counters, gauges and histograms in Prometheus's text format. Counting costs one addition. Recording a value in a
 * histogram also searches a dozen bounds. Neither looks up a name or allocates memory. `Metrics.ts` is the catalogue of
 * this process's meters.
 */

/**
 * The labels of a meter, with all values of each label. Undefined stands for a label whose values are known only at run
 * time. There must be few of them.
 */
export type Labels = Readonly<Record<string, ReadonlyArray<string> | undefined>>

export interface Description<L extends Labels = Labels> {
  readonly name: string
  /** What the meter counts or measures, with its unit. */
  readonly help: string
  /** When an operator should act, and how. Empty if the meter only helps to explain other meters. */
  readonly action: string
  readonly labels?: L
  /** Which servers report the meter, if not all of them do. */
  readonly only?: string
}

export type Kind = "counter" | "gauge" | "histogram"

/**
 * How many series a meter may have. Further series are counted together under `other`. A label whose number of values
 * is unbounded is a defect.
 */
const MAX_SERIES = 500
const OTHER = "other"

const quoted = (text: string): string =>
  `"${text.replace(/[\\"\n]/g, (found) => found === "\n" ? "\\n" : `\\${found}`)}"`

const labelText = (names: ReadonlyArray<string>, values: ReadonlyArray<string>): string =>
  names.map((name, i) => `${name}=${quoted(values[i] ?? "")}`).join(",")

const braced = (...texts: ReadonlyArray<string>): string => {
  const given = texts.filter((text) => text !== "")
  return given.length === 0 ? "" : `{${given.join(",")}}`
}

/** Returns all combinations of the labels' values. Returns none if the values of a label are not known in advance. */
const combinations = (labels: ReadonlyArray<ReadonlyArray<string> | undefined>): ReadonlyArray<ReadonlyArray<string>> =>
  labels.reduce<ReadonlyArray<ReadonlyArray<string>>>(
    (made, values) => made.flatMap((one) => (values ?? []).map((value) => [...one, value])),
    [[]]
  )

interface Series {
  readonly lines: (name: string, labels: string) => string
}

/**
 * A metric with all its series. If the values of all labels are known in advance, each series is printed as zero before
 * it is first counted.
 */
export abstract class Meter<S extends Series = Series> {
  abstract readonly kind: Kind
  readonly description: Description
  readonly labelNames: ReadonlyArray<string>
  /** The only series of a meter without labels. It is not printed if the meter has labels. */
  protected readonly own: S
  private readonly make: () => S
  private readonly series = new Map<string, S>()

  constructor(description: Description, make: () => S) {
    this.description = description
    this.labelNames = Object.keys(description.labels ?? {})
    this.make = make
    for (const values of combinations(Object.values(description.labels ?? {}))) this.at(...values)
    this.own = this.labelNames.length === 0 ? this.at() : make()
  }

  /**
   * Returns the series with these label values, in the order of the labels. Hot paths keep the series to avoid this
   * look-up.
   */
  at(...values: ReadonlyArray<string>): S {
    const key = values.length === 1 ? values[0]! : values.join("\u0000")
    const known = this.series.get(key)
    if (known !== undefined) return known
    if (this.series.size >= MAX_SERIES && values.some((value) => value !== OTHER))
      return this.at(...values.map(() => OTHER))
    const made = this.make()
    this.series.set(key, made)
    return made
  }

  /** Returns all series with their label values. */
  all(): ReadonlyArray<readonly [values: ReadonlyArray<string>, series: S]> {
    return Array.from(this.series, ([key, series]) => [this.labelNames.length === 0 ? [] : key.split("\u0000"), series])
  }

  /** Returns the meter in Prometheus's text format. */
  text(): string {
    const { help, name } = this.description
    let text = `# HELP ${name} ${help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")}\n# TYPE ${name} ${this.kind}\n`
    for (const [values, series] of this.all()) text += series.lines(name, labelText(this.labelNames, values))
    return text
  }
}

class Count implements Series {
  value = 0

  add(by = 1): void {
    this.value += by
  }

  lines(name: string, labels: string): string {
    return `${name}${braced(labels)} ${this.value}\n`
  }
}

export type { Count }

/** A number that only grows while the process lives. */
export class Counter extends Meter<Count> {
  readonly kind = "counter"

  constructor(description: Description) {
    super(description, () => new Count())
  }

  /** Only for a counter without labels. */
  add(by = 1): void {
    this.own.value += by
  }

  /** The sum of all series. */
  get total(): number {
    return this.all().reduce((sum, [, { value }]) => sum + value, 0)
  }
}

class GaugeSeries implements Series {
  private value: number | undefined
  private readonly readers = new Set<() => number | undefined>()

  set(value: number | undefined): void {
    this.value = value
  }

  /**
   * Registers a reader, which is called whenever the value is needed. The value of the series is the sum of all
   * readers. The returned function removes the reader.
   */
  reads(read: () => number | undefined): () => void {
    this.readers.add(read)
    return () => void this.readers.delete(read)
  }

  /** Registers a reader until the scope ends. */
  readsIn(read: () => number | undefined): Effect.Effect<void, never, Scope.Scope> {
    return Effect.asVoid(Effect.acquireRelease(Effect.sync(() => this.reads(read)), (end) => Effect.sync(end)))
  }

  /** The current value, or undefined if there is nothing to measure at present. */
  get current(): number | undefined {
    let sum = this.value
    for (const read of this.readers) {
      const value = read()
      if (value !== undefined) sum = (sum ?? 0) + value
    }
    return sum
  }

  lines(name: string, labels: string): string {
    const { current } = this
    return current === undefined ? "" : `${name}${braced(labels)} ${current}\n`
  }
}

/** A number that rises and falls. */
export class Gauge extends Meter<GaugeSeries> {
  readonly kind = "gauge"

  constructor(description: Description) {
    super(description, () => new GaugeSeries())
  }

  /** Only for a gauge without labels. */
  set(value: number | undefined): void {
    this.own.set(value)
  }

  /** Only for a gauge without labels. */
  readsIn(read: () => number | undefined): Effect.Effect<void, never, Scope.Scope> {
    return this.own.readsIn(read)
  }

  /** The sum of all series, or undefined if there is nothing to measure. */
  get current(): number | undefined {
    return this.all().reduce<number | undefined>(
      (sum, [, { current }]) => current === undefined ? sum : (sum ?? 0) + current,
      undefined
    )
  }
}

class HistogramSeries implements Series {
  readonly bounds: ReadonlyArray<number>
  /** The number of values in each bucket, not cumulative. The last bucket is beyond all bounds. */
  readonly counts: Float64Array
  sum = 0

  constructor(bounds: ReadonlyArray<number>) {
    this.bounds = bounds
    this.counts = new Float64Array(bounds.length + 1)
  }

  observe(value: number): void {
    const { bounds, counts } = this
    let i = 0
    while (i < bounds.length && value > bounds[i]!) i++
    counts[i]!++
    this.sum += value
  }

  /** Records a duration in seconds, given in milliseconds. */
  millis(ms: number): void {
    this.observe(ms / 1_000)
  }

  get count(): number {
    return this.counts.reduce((sum, count) => sum + count, 0)
  }

  lines(name: string, labels: string): string {
    let text = ""
    let count = 0
    for (const [i, each] of this.counts.entries()) {
      count += each
      text += `${name}_bucket${braced(labels, `le="${this.bounds[i] ?? "+Inf"}"`)} ${count}\n`
    }
    return `${text}${name}_sum${braced(labels)} ${this.sum}\n${name}_count${braced(labels)} ${count}\n`
  }
}
export type { HistogramSeries }

/**
 * Estimates the value below which this share of the values lies, as Prometheus's `histogram_quantile` does: the values
 * of a bucket count as evenly spread. Values beyond all bounds count as the last bound. Undefined if there is no value.
 */
export const quantile = (
  bounds: ReadonlyArray<number>,
  counts: ReadonlyArray<number>,
  share: number
): number | undefined => {
  const wanted = counts.reduce((sum, count) => sum + count, 0) * share
  if (wanted === 0) return undefined
  let below = 0
  for (const [i, bound] of bounds.entries()) {
    const count = counts[i]!
    const from = bounds[i - 1] ?? 0
    if (below + count >= wanted) return from + (bound - from) * ((wanted - below) / count)
    below += count
  }
  return bounds.at(-1)
}

/** The bounds for durations, in seconds: from half a millisecond to ten seconds. */
const SECONDS: ReadonlyArray<number> = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
/** The bounds for sizes of batches. */
export const SIZES: ReadonlyArray<number> = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]

/** The distribution of a value over buckets. */
export class Histogram extends Meter<HistogramSeries> {
  readonly kind = "histogram"

  constructor(description: Description, bounds: ReadonlyArray<number> = SECONDS) {
    super(description, () => new HistogramSeries(bounds))
  }

  /** Only for a histogram without labels. */
  observe(value: number): void {
    this.own.observe(value)
  }

  /** Only for a histogram without labels. */
  millis(ms: number): void {
    this.own.millis(ms)
  }

  /**
   * The number and the sum of the values of all series. From two readings, the mean of the values between them can be
   * computed.
   */
  get totals(): { readonly count: number; readonly sum: number } {
    return this.all().reduce((all, [, { count, sum }]) => ({ count: all.count + count, sum: all.sum + sum }), {
      count: 0,
      sum: 0
    })
  }
}
