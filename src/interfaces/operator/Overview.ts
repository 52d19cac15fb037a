import { DateTimeString } from "#infrastructure/wire/Text"
import { Schema } from "effect"

const Figures = Schema.Array(Schema.NullOr(Schema.Finite))

/** The figures of the last minute or hour, the oldest first (wire.md O.1). Rates are per second. Null means unknown. */
const totalSeries = {
  every_seconds: Schema.Int,
  ends_at: DateTimeString,
  sends: Figures,
  pushes: Figures,
  requests: Figures,
  sockets: Figures
}
const TotalSeries = Schema.Struct(totalSeries).annotate({ identifier: "TotalSeries" })
export const Series = Schema.Struct({ ...totalSeries, cpu_percent: Figures, memory_bytes: Figures, lag_ms: Figures })
  .annotate({ identifier: "Series" })
export type Series = typeof Series.Type
export type TotalSeries = typeof TotalSeries.Type

export const History = Schema.Struct({ minute: Series, hour: Series }).annotate({ identifier: "History" })

export const LogLevelName = Schema.Literals(["debug", "info", "warn", "error"])

const figures = {
  sends_per_second: Schema.NullOr(Schema.Finite),
  pushes_per_second: Schema.NullOr(Schema.Finite),
  requests_per_second: Schema.NullOr(Schema.Finite)
}

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
  ...figures,
  cpu_percent: Schema.NullOr(Schema.Finite),
  memory_bytes: Schema.Int,
  lag_ms: Schema.NullOr(Schema.Finite),
  log_level: LogLevelName,
  history: Schema.optionalKey(History)
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
  ...figures,
  cpu_percent: Schema.NullOr(Schema.Finite),
  memory_bytes: orNull(Schema.Int),
  lag_ms: Schema.NullOr(Schema.Finite),
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
  history: Schema.optionalKey(Schema.Struct({ minute: TotalSeries, hour: TotalSeries }))
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
      cpu_percent: null,
      memory_bytes: null,
      lag_ms: null,
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

/** Adds the series of several nodes, aligned at their ends. A sum is null only if no node has a value. */
export const addSeries = (
  all: ReadonlyArray<Series>,
  empty: Pick<Series, "every_seconds" | "ends_at">
): TotalSeries => {
  const added = (of: (series: Series) => ReadonlyArray<number | null>): Array<number | null> => {
    const length = Math.max(0, ...all.map((series) => of(series).length))
    return Array.from({ length }, (_, i) => {
      const values = all.map((series) => of(series)[of(series).length - length + i] ?? null)
      return values.every((value) => value === null) ? null : sum(values)
    })
  }
  return {
    every_seconds: all[0]?.every_seconds ?? empty.every_seconds,
    ends_at: all[0]?.ends_at ?? empty.ends_at,
    sends: added(({ sends }) => sends),
    pushes: added(({ pushes }) => pushes),
    requests: added(({ requests }) => requests),
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
    ...(histories.length === 0 ? {} : {
      history: {
        minute: addSeries(histories.map(({ minute }) => minute), { every_seconds: 1, ends_at: at }),
        hour: addSeries(histories.map(({ hour }) => hour), { every_seconds: 60, ends_at: at })
      }
    })
  }
}
