import { DateTimeString } from "#infrastructure/wire/Text"
import { Effect, Schema } from "effect"

const Figures = Schema.Array(Schema.NullOr(Schema.Finite))

/** Figures that a node of the previous version does not report. */
const NewFigures = Figures.pipe(Schema.withDecodingDefaultKey(Effect.succeed([])))
const NewFigure = Schema.NullOr(Schema.Finite).pipe(Schema.withDecodingDefaultKey(Effect.succeed(null)))

/**
 * The figures of the last minute, hour or day, the oldest first (wire.md O.1). Rates are per second. Null means
 * unknown.
 */
const totalSeries = <Newer extends Schema.Top>(newer: Newer) => ({
  every_seconds: Schema.Int,
  ends_at: DateTimeString,
  sends: Figures,
  pushes: Figures,
  requests: Figures,
  errors: newer,
  send_p50_ms: newer,
  send_p99_ms: newer,
  sockets: Figures
})
const series = <Newer extends Schema.Top>(newer: Newer) => ({
  ...totalSeries(newer),
  cpu_percent: Figures,
  memory_bytes: Figures,
  lag_ms: Figures
})
const TotalSeries = Schema.Struct(totalSeries(Figures)).annotate({ identifier: "TotalSeries" })
export const Series = Schema.Struct(series(Figures)).annotate({ identifier: "Series" })
export type Series = typeof Series.Type
export type TotalSeries = typeof TotalSeries.Type
const ReportedSeries = Schema.Struct(series(NewFigures))

export const History = Schema.Struct({ minute: Series, hour: Series, day: Schema.optionalKey(Series) })
  .annotate({ identifier: "History" })

export const LogLevelName = Schema.Literals(["debug", "info", "warn", "error"])

const figures = <Newer extends Schema.Top>(newer: Newer) => ({
  sends_per_second: Schema.NullOr(Schema.Finite),
  pushes_per_second: Schema.NullOr(Schema.Finite),
  requests_per_second: Schema.NullOr(Schema.Finite),
  errors_per_second: newer,
  send_p50_ms: newer,
  send_p99_ms: newer,
  cpu_percent: Schema.NullOr(Schema.Finite),
  lag_ms: Schema.NullOr(Schema.Finite),
  disk_free_bytes: newer,
  logged_warnings: newer,
  logged_errors: newer
})

/** A node's report about itself, which it sends to a node that asks. */
export const NodeReport = Schema.Struct({
  role: Schema.Literals(["standalone", "runner", "gateway"]),
  version: Schema.String,
  since: DateTimeString,
  /** Why the node is not ready; empty if it is ready. */
  reasons: Schema.Array(Schema.String),
  drained: Schema.Boolean,
  shards: Schema.Int,
  sockets: Schema.Int,
  ...figures(NewFigure),
  memory_bytes: Schema.Int,
  log_level: LogLevelName,
  history: Schema.optionalKey(
    Schema.Struct({ minute: ReportedSeries, hour: ReportedSeries, day: Schema.optionalKey(ReportedSeries) })
  )
})
export type NodeReport = typeof NodeReport.Type

const orNull = <S extends Schema.Top>(schema: S) => Schema.NullOr(schema)

export const NodeShown = Schema.Struct({
  address: Schema.String,
  is_this: Schema.Boolean,
  state: Schema.Literals(["ready", "not_ready", "drained", "silent"]),
  words: Schema.String,
  role: orNull(NodeReport.fields.role),
  version: orNull(Schema.String),
  since: orNull(DateTimeString),
  shards: orNull(Schema.Int),
  sockets: orNull(Schema.Int),
  ...figures(Schema.NullOr(Schema.Finite)),
  memory_bytes: orNull(Schema.Int),
  log_level: orNull(LogLevelName),
  history: Schema.optionalKey(History)
}).annotate({ identifier: "Node" })
export type NodeShown = typeof NodeShown.Type

export const Part = Schema.Struct({
  state: Schema.Literals(["ok", "slow", "down", "off"]),
  words: Schema.String,
  kind: Schema.String,
  answer_ms: Schema.NullOr(Schema.Finite)
}).annotate({ identifier: "Part" })
export type Part = typeof Part.Type

export const DatabasePart = Schema.Struct({
  ...Part.fields,
  size_bytes: orNull(Schema.Finite),
  connections: orNull(Schema.Int),
  connections_max: orNull(Schema.Int),
  oldest_transaction_seconds: Schema.NullOr(Schema.Finite),
  batch_ms: Schema.NullOr(Schema.Finite)
}).annotate({ identifier: "DatabasePart" })
export type DatabasePart = typeof DatabasePart.Type

export const Totals = Schema.Struct({
  nodes: Schema.Int,
  silent: Schema.Int,
  shards: Schema.Int,
  sockets: Schema.Int,
  sends_per_second: Schema.Finite,
  pushes_per_second: Schema.Finite,
  requests_per_second: Schema.Finite,
  errors_per_second: Schema.Finite,
  send_p50_ms: Schema.NullOr(Schema.Finite),
  send_p99_ms: Schema.NullOr(Schema.Finite),
  history: Schema.optionalKey(Schema.Struct({ minute: TotalSeries, hour: TotalSeries, day: TotalSeries }))
}).annotate({ identifier: "Totals" })

export const Overview = Schema.Struct({
  at: DateTimeString,
  node: Schema.String,
  nodes: Schema.Array(NodeShown),
  totals: Totals,
  database: DatabasePart,
  redis: Part,
  files: Part,
  mail: Part,
  /** The number of live OAuth connections. The events of a stream do not contain it. */
  connections: Schema.optionalKey(Schema.NullOr(Schema.Int))
}).annotate({ identifier: "Overview" })
export type Overview = typeof Overview.Type

/** One node, as an operator sees it. A node without a report is silent, and `silence` is the reason. */
export const nodeShown = (
  address: string,
  isThis: boolean,
  report: NodeReport | undefined,
  silence: string
): NodeShown => {
  if (report === undefined) {
    return {
      address,
      is_this: isThis,
      state: "silent",
      words: silence,
      role: null,
      version: null,
      since: null,
      shards: null,
      sockets: null,
      sends_per_second: null,
      pushes_per_second: null,
      requests_per_second: null,
      errors_per_second: null,
      send_p50_ms: null,
      send_p99_ms: null,
      cpu_percent: null,
      memory_bytes: null,
      lag_ms: null,
      disk_free_bytes: null,
      logged_warnings: null,
      logged_errors: null,
      log_level: null
    }
  }
  const { drained, reasons, ...shown } = report
  return {
    address,
    is_this: isThis,
    state: drained ? "drained" : reasons.length > 0 ? "not_ready" : "ready",
    words: drained
      ? "Drained by an operator: it accepts no sockets, owns nothing that another node can own, and is not ready for the balancer."
      : reasons.length > 0
      ? reasons.join(" ")
      : "Ready.",
    ...shown
  }
}

const sum = (values: ReadonlyArray<number | null>): number => values.reduce<number>((all, one) => all + (one ?? 0), 0)

/** The highest of the values that are known, or null if none is. */
const highest = (values: ReadonlyArray<number | null>): number | null => {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? null : Math.max(...known)
}

/**
 * Adds the series of several nodes, aligned at their ends. The time of sends is that of the slowest node. A value is
 * null only if no node has one.
 */
export const addSeries = (
  all: ReadonlyArray<Series>,
  empty: Pick<Series, "every_seconds" | "ends_at">
): TotalSeries => {
  const added = (
    of: (series: Series) => ReadonlyArray<number | null>,
    join: (values: ReadonlyArray<number | null>) => number | null = sum
  ): Array<number | null> => {
    const length = Math.max(0, ...all.map((series) => of(series).length))
    return Array.from({ length }, (_, i) => {
      const values = all.map((series) => of(series)[of(series).length - length + i] ?? null)
      return values.every((value) => value === null) ? null : join(values)
    })
  }
  return {
    every_seconds: all[0]?.every_seconds ?? empty.every_seconds,
    ends_at: all[0]?.ends_at ?? empty.ends_at,
    sends: added(({ sends }) => sends),
    pushes: added(({ pushes }) => pushes),
    requests: added(({ requests }) => requests),
    errors: added(({ errors }) => errors),
    send_p50_ms: added(({ send_p50_ms }) => send_p50_ms, highest),
    send_p99_ms: added(({ send_p99_ms }) => send_p99_ms, highest),
    sockets: added(({ sockets }) => sockets)
  }
}

/** The sums over all nodes that have responded. */
export const totalsOf = (nodes: ReadonlyArray<NodeShown>, at: string): typeof Totals.Type => {
  const histories = nodes.flatMap(({ history }) => history ?? [])
  return {
    nodes: nodes.length,
    silent: nodes.filter(({ state }) => state === "silent").length,
    shards: sum(nodes.map(({ shards }) => shards)),
    sockets: sum(nodes.map(({ sockets }) => sockets)),
    sends_per_second: sum(nodes.map((node) => node.sends_per_second)),
    pushes_per_second: sum(nodes.map((node) => node.pushes_per_second)),
    requests_per_second: sum(nodes.map((node) => node.requests_per_second)),
    errors_per_second: sum(nodes.map((node) => node.errors_per_second)),
    send_p50_ms: highest(nodes.map((node) => node.send_p50_ms)),
    send_p99_ms: highest(nodes.map((node) => node.send_p99_ms)),
    ...(histories.length === 0 ? {} : {
      history: {
        minute: addSeries(histories.map(({ minute }) => minute), { every_seconds: 1, ends_at: at }),
        hour: addSeries(histories.map(({ hour }) => hour), { every_seconds: 60, ends_at: at }),
        day: addSeries(histories.flatMap(({ day }) => day ?? []), { every_seconds: 300, ends_at: at })
      }
    })
  }
}
