import type { Measured, Outcome } from "./Contender.ts"
import type { IdleResult } from "./IdleSockets.ts"
import type { Plot } from "./Plot.ts"
import { type Cost, readProfile } from "./Profile.ts"
import { type Figure, isReached } from "./Ratios.ts"
import type { Quantiles } from "./Statistics.ts"
import { median, spreadOf } from "./Statistics.ts"

export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows.map((row) =>
    row.map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!))).join("  ")
      .trimEnd()
  ).join("\n")
}

export const percent = (share: number) => `${(share * 100).toFixed(0)} %`
export const json = (value: unknown) =>
  JSON.stringify(value, (_, part: unknown) => (typeof part === "number" ? Math.round(part * 1000) / 1000 : part))

const digits = (value: number): string => value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0)
const kB = (bytes: number) => `${(bytes / 1e3).toFixed(1)} kB`
const MB = (bytes: number) => `${(bytes / 1e6).toFixed(0)} MB`
const batchText = (batch: Readonly<Record<string, number>>) =>
  Object.entries(batch).map(([name, mean]) => `${name} ${mean.toFixed(1)}`).join(", ") || "n/a"

/** A median as text, with the least and the greatest value if there are several. */
const spreadText = (values: ReadonlyArray<number>, show: (value: number) => string = digits): string => {
  const { count, max, median, min } = spreadOf(values)
  return count === 1 ? show(median) : `${show(median)} (${show(min)}–${show(max)})`
}

const whole = (value: number) => value.toFixed(0)

const micros = (values: ReadonlyArray<number | undefined>): string => {
  const known = values.filter((value) => value !== undefined)
  return known.length === 0 ? "n/a" : spreadText(known, whole)
}

const quantiles = (runs: ReadonlyArray<Quantiles>, pick: (values: ReadonlyArray<number>) => number): string =>
  (["p50", "p95", "p99"] as const).map((quantile) => digits(pick(runs.map((run) => run[quantile])))).join(" / ")

const medians = (runs: ReadonlyArray<Quantiles>): string => quantiles(runs, median)

const latency = (runs: ReadonlyArray<Quantiles>): string =>
  runs.length === 1 ? medians(runs) : `${medians(runs)}, most ${quantiles(runs, (values) => Math.max(...values))}`

/** The rounds of each window. */
const byLabel = (runs: ReadonlyArray<Measured>): ReadonlyMap<string, ReadonlyArray<Measured>> =>
  Map.groupBy(runs, ({ label }) => label)

export const printOutcome = (outcome: Outcome, setting: string): void => {
  const { databaseFloor, disk, memory, runs, subject, verdict } = outcome
  console.log(
    `\n${outcome.name}${outcome.version === undefined ? "" : ` (PostgreSQL ${outcome.version})`}, ${setting}, ` +
      `payload 70 to 256 bytes${
        outcome.syncMs === undefined ? "" : `; a sync of 8 kB takes ${outcome.syncMs.toFixed(2)} ms here`
      }`
  )
  const rounds = Math.max(...runs.map(({ round }) => round)) + 1
  if (rounds > 1) console.log(`medians of ${rounds} rounds (least–most)`)
  const windows = [...byLabel(runs)]
  const redis = runs.some(({ cpu }) => cpu.redis !== undefined)
  const balancer = runs.some(({ cpu }) => cpu.balancer !== undefined)
  console.log(table([
    [
      "",
      "msgs/s",
      "accepted",
      "to socket ms p50/p95/p99",
      "to answer ms p50/p95/p99",
      "CPU µs server",
      "in kernel",
      "database",
      ...redis ? ["Redis"] : [],
      ...balancer ? ["HAProxy"] : [],
      "load",
      "others",
      "stolen"
    ],
    ...windows.map(([label, some]) => [
      label,
      spreadText(some.map(({ perSecond }) => perSecond), whole),
      String(some.reduce((sum, { accepted }) => sum + accepted, 0)),
      latency(some.map(({ toSocket }) => toSocket)),
      latency(some.map(({ toAnswer }) => toAnswer)),
      micros(some.map(({ cpu }) => cpu.server)),
      micros(some.map(({ cpu }) => cpu.kernel)),
      micros(some.map(({ cpu }) => cpu.database)),
      ...redis ? [micros(some.map(({ cpu }) => cpu.redis))] : [],
      ...balancer ? [micros(some.map(({ cpu }) => cpu.balancer))] : [],
      micros(some.map(({ cpu }) => cpu.load)),
      percent(median(some.map(({ noise }) => noise.others))),
      percent(median(some.map(({ noise }) => noise.stolen)))
    ])
  ]))
  for (const [label, some] of windows) {
    const [last] = some.slice(-1)
    if (last === undefined || subject === undefined) continue
    if (subject.nodes > 1) {
      console.log(
        `each node, ${label}: CPU µs ${last.cpu.nodes.map(whole).join(" and ")}; ` +
          `${percent(last.crossed.calls)} of the sends called another node, ${
            last.crossed.pushes.toFixed(2)
          } pushes a message went to one`
      )
    }
    console.log(`mean batch, ${label}: ${batchText(last.batch)}`)
    for (const { refused } of some)
      if (Object.keys(refused).length > 0) console.log(`refused, ${label}: ${JSON.stringify(refused)}`)
  }
  for (const { found, heap, rss } of memory) {
    console.log(
      `memory of ${memory.length === 1 ? "the server" : "a node"} after all that: ${MB(found)} resident, ` +
        `after a collection ${MB(rss)}, ${MB(heap)} of them heap`
    )
  }
  if (disk !== undefined) {
    console.log(
      `disk after a vacuum: ${whole(disk.bytesPerMessage)} bytes for each message (` +
        `${Object.entries(disk.tables).map(([name, bytes]) => `${name} ${whole(bytes)}`).join(", ")})`
    )
  }
  if (databaseFloor !== undefined)
    console.log(`the database's floor in batches of the same size: ${micros(databaseFloor)} µs`)
  console.log(
    `accepted ${verdict.accepted}, stored ${verdict.stored}, delivered ${verdict.delivered}, echoed ${verdict.echoed}` +
      (outcome.stopped.length === 0 ? "" : `; the server ended with ${outcome.stopped.join(" and ")}`)
  )
  for (const problem of verdict.problems) console.log(`  PROBLEM ${problem}`)
}

export const printIdle = (name: string, idle: IdleResult): void =>
  console.log(
    `${name}: an idle socket, ${idle.sockets} of them with an agent each: ${kB(idle.heap)} of heap, ` +
      `${kB(idle.external)} outside it, ${kB(idle.rss)} resident`
  )

export const printFigures = (figures: ReadonlyArray<Figure>): void => {
  if (figures.length === 0) return
  const toReach = ({ goal }: Figure) =>
    goal === undefined ? "" : goal.most !== undefined ? `≤ ${goal.most}` : `≥ ${goal.least}`
  const reached = (figure: Figure) => {
    const yes = isReached(figure)
    return yes === undefined ? "" : yes ? "reached" : "not reached"
  }
  console.log(`\n${
    table([
      ["within this run", "median", "least", "most", "", "to reach", ""],
      ...figures.map((figure) => {
        const { max, median, min } = spreadOf(figure.values)
        return [figure.what, digits(median), digits(min), digits(max), figure.unit, toReach(figure), reached(figure)]
      })
    ])
  }`)
}

/** Processor time and latency of each window, as bars. */
export const plotsOf = (outcomes: ReadonlyArray<Outcome>): ReadonlyArray<Plot> => {
  const windows = outcomes.flatMap(({ name, runs }) =>
    [...byLabel(runs)].map(([label, some]) => ({ label: `${name}, ${label}`, some }))
  )
  const bar = (
    label: string,
    some: ReadonlyArray<Measured>,
    parts: (run: Measured) => ReadonlyArray<number>,
    note: string
  ) => {
    const all = some.map(parts)
    const wholes = all.map((values) => values.reduce((sum, value) => sum + value, 0))
    return {
      label,
      parts: all[0]!.map((_, i) => median(all.map((values) => values[i]!))),
      from: Math.min(...wholes),
      to: Math.max(...wholes),
      note
    }
  }
  return [
    {
      title: "CPU µs for each message",
      parts: ["server", "database", "Redis", "HAProxy"],
      bars: windows.map(({ label, some }) =>
        bar(
          label,
          some,
          ({ cpu }) => [cpu.server, cpu.database ?? 0, cpu.redis ?? 0, cpu.balancer ?? 0],
          `${median(some.map(({ perSecond }) => perSecond)).toFixed(0)} messages/s`
        )
      )
    },
    {
      title: "ms to the socket: p95, and p50 / p95 / p99",
      parts: [],
      bars: windows.map(({ label, some }) =>
        bar(label, some, ({ toSocket }) => [toSocket.p95], medians(some.map(({ toSocket }) => toSocket)))
      )
    }
  ]
}

/** Prints which code used the processor time of a message or request. `micros` is this time in microseconds. */
export const printProfile = (title: string, file: string, micros: number): void => {
  const { busy, files, functions, owners } = readProfile(file)
  // The profiler samples by the clock, so its times include those in which another process ran, often after a write
  // that woke that process. Therefore only the shares are taken from the profile and applied to the measured processor
  // time.
  const each = (
    cost: Cost
  ) => [`${((cost.self / busy) * micros).toFixed(1)} µs`, `${((cost.self / busy) * 100).toFixed(1)} %`]
  const show = (kind: string, costs: ReadonlyArray<Cost>, count: number) =>
    console.log(
      `\n${title}: ${micros.toFixed(0)} µs each, self time by ${kind}\n` +
        table(costs.slice(0, count).map((cost) => [cost.name, ...each(cost)]))
    )
  show("package", owners, 16)
  show("file", files, 30)
  show("function", functions, 45)
}
