/** The metrics of a node that the table shows, from /internal/metrics. */
export interface NodeMetrics {
  readonly shards: number
  readonly sockets: number
  /** Messages stored since the node started. */
  readonly stored: number
}

/** The sum of a metric's samples over all labels; 0 if there are none yet. */
const sumOf = (text: string, name: string): number =>
  Array.from(text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? ([0-9.e+-]+)$`, "gm")), ([, value]) => Number(value))
    .reduce((sum, value) => sum + value, 0)

export const parseMetrics = (text: string): NodeMetrics => ({
  shards: sumOf(text, "effect_cluster_shards"),
  sockets: sumOf(text, "sockets_open"),
  stored: sumOf(text, "messages_stored_total")
})

/** A node at one moment. */
export interface NodeView {
  readonly name: string
  readonly pid: number
  readonly url: string
  /** `ready`, `not ready`, `starting`, `silent` (it does not answer), or how it exited. */
  readonly state: string
  /** Undefined while the node does not answer. */
  readonly metrics: NodeMetrics | undefined
  readonly sendsPerSecond: number
}

const HEADS = ["node", "pid", "address", "state", "shards", "sockets", "sends/s"]
const NUMBERS = new Set([1, 4, 5, 6])

const cellsOf = ({ metrics, name, pid, sendsPerSecond, state, url }: NodeView): ReadonlyArray<string> => [
  name,
  String(pid),
  url,
  state,
  ...metrics === undefined
    ? ["-", "-", "-"]
    : [String(metrics.shards), String(metrics.sockets), sendsPerSecond.toFixed(1)]
]

const total = (views: ReadonlyArray<NodeView>, of: (metrics: NodeMetrics) => number): number =>
  views.reduce((sum, { metrics }) => sum + (metrics === undefined ? 0 : of(metrics)), 0)

/** The lines of the table, for a terminal. */
export const tableOf = (views: ReadonlyArray<NodeView>): ReadonlyArray<string> => {
  const ready = views.filter(({ state }) => state === "ready").length
  const rows = [
    HEADS,
    ...views.map(cellsOf),
    [
      "all",
      "",
      "",
      `${ready} ready`,
      String(total(views, ({ shards }) => shards)),
      String(total(views, ({ sockets }) => sockets)),
      views.reduce((sum, { metrics, sendsPerSecond }) => sum + (metrics === undefined ? 0 : sendsPerSecond), 0).toFixed(
        1
      )
    ]
  ]
  const widths = HEADS.map((_, i) => Math.max(...rows.map((row) => (row[i] ?? "").length)))
  return rows.map((row) =>
    row.map((cell, i) => NUMBERS.has(i) ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)).join("  ")
      .trimEnd()
  )
}

/** The table as one line, for a file. */
export const lineOf = (views: ReadonlyArray<NodeView>): string =>
  [
    `shards=${total(views, ({ shards }) => shards)}`,
    ...views.map((view) => {
      const [name, pid, , state, shards, sockets, sends] = cellsOf(view)
      return `${name} pid=${pid} ${state} shards=${shards} sockets=${sockets} sends/s=${sends}`
    })
  ].join("; ")
