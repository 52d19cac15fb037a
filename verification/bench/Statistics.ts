/** Several measurements of one thing. */
export interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
  readonly count: number
}

/** The middle value, or the mean of the two middle values; NaN if there are no values. */
export const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

export const spreadOf = (values: ReadonlyArray<number>): Spread => ({
  median: median(values),
  min: Math.min(...values),
  max: Math.max(...values),
  count: values.length
})

/**
 * The quotients of values from the same round. A machine that is slower in one round affects both values and not their
 * quotient.
 */
export const ratiosOf = (
  over: ReadonlyMap<number, number>,
  under: ReadonlyMap<number, number>
): ReadonlyArray<number> =>
  [...over].flatMap(([round, value]) => {
    const other = under.get(round)
    return other === undefined || other === 0 ? [] : [value / other]
  })

export interface Quantiles {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

export const quantiles = (values: Float64Array): Quantiles => {
  values.sort()
  const at = (
    q: number
  ) => (values.length === 0 ? 0 : values[Math.min(values.length - 1, Math.floor(q * values.length))]!)
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) }
}
