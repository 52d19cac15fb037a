import { type Bound, BOUNDS, cellsFor, type Cluster, clusterFor, type Habits, knees, type Limits } from "./Model.ts"
import type { Prices } from "./Prices.ts"

const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const [head = [], ...rest] = rows
  return [head, head.map(() => "---"), ...rest].map((row) => `| ${row.join(" | ")} |`).join("\n")
}

/** Formats a number with two significant digits and separated thousands. */
export const round = (value: number): string => {
  if (!Number.isFinite(value)) return "never"
  if (value === 0) return "0"
  const unit = 10 ** (Math.floor(Math.log10(Math.abs(value))) - 1)
  const rounded = Math.round(value / unit) * unit
  return rounded >= 1
    ? Math.round(rounded * 10) / 10 >= 100
      ? Math.round(rounded).toLocaleString("en-US")
      : String(Math.round(rounded * 10) / 10)
    : rounded.toPrecision(2)
}

const bytes = (value: number): string =>
  value >= 1e12 ? `${round(value / 1e12)} TB` : value >= 1e9 ? `${round(value / 1e9)} GB` : `${round(value / 1e6)} MB`

const percent = (share: number): string => share < 0.005 ? "0 %" : `${round(share * 100)} %`

const POPULATIONS = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8]

const rowOf = ({ agents, asked, nodes }: Cluster, cells: number): ReadonlyArray<string> => [
  agents.toLocaleString("en-US"),
  round(asked.sends),
  round(asked.sockets),
  String(nodes),
  percent(asked.node),
  round(asked.database),
  percent(asked.redis),
  bytes(asked.stored),
  String(cells)
]

const HEAD = [
  "agents",
  "sends/s",
  "sockets",
  "nodes",
  "busy",
  "PostgreSQL, processors",
  "Redis",
  "disk, 90 days",
  "cells"
]

/**
 * A table with one cluster for each population. A population that is too large for one cluster gets several cells of
 * equal size.
 */
export const populations = (habits: Habits, prices: Prices, limits: Limits): string =>
  table([
    HEAD,
    ...POPULATIONS.map((agents) => {
      const cells = cellsFor(agents, habits, prices, limits)
      const one = clusterFor(agents / cells, habits, prices, limits)
      const all = {
        ...one,
        agents,
        nodes: one.nodes * cells,
        asked: {
          ...one.asked,
          sends: one.asked.sends * cells,
          sockets: one.asked.sockets * cells,
          database: one.asked.database * cells,
          stored: one.asked.stored * cells
        }
      }
      return rowOf(all, cells)
    })
  ])

const inOrder = (found: ReadonlyMap<Bound, number>): ReadonlyArray<readonly [Bound, number]> =>
  [...found].sort(([, a], [, b]) => a - b)

export interface Variant {
  readonly name: string
  readonly habits: Habits
  readonly pingSeconds?: number
}

/** A table of the number of agents at which each bound is reached, the lowest number first. */
export const kneesTable = (variants: ReadonlyArray<Variant>, prices: Prices, limits: Limits): string => {
  const found = variants.map(({ habits, pingSeconds }) => knees(habits, prices, limits, pingSeconds))
  const [first = new Map<Bound, number>()] = found
  return table([
    ["breaks at so many agents", ...variants.map(({ name }) => name)],
    ...inOrder(first).map((
      [bound]
    ) => [bound, ...found.map((one) => round(one.get(bound) ?? Number.POSITIVE_INFINITY))])
  ])
}

const COLOURS = ["#4878a8", "#e0a040", "#b05050", "#60a070", "#8060a0", "#806040", "#a06080"]
const [LEFT, TOP, WIDTH, HEIGHT] = [60, 30, 560, 360]

/**
 * A plot of each bound's share over the number of agents, both logarithmic. Above the line, the bound no longer holds.
 */
export const svg = (habits: Habits, prices: Prices, limits: Limits): string => {
  const [from, to, low, high] = [3, 8, -4, 1.5]
  const x = (agents: number): number => LEFT + WIDTH * (Math.log10(agents) - from) / (to - from)
  const y = (share: number): number =>
    TOP + HEIGHT * (1 - (Math.min(high, Math.max(low, Math.log10(share))) - low) / (high - low))
  const text = (at: number, line: number, what: string, anchor = "start", more = "") =>
    `<text x="${at.toFixed(1)}" y="${line.toFixed(1)}" text-anchor="${anchor}" ${more}>${
      what.replaceAll("&", "&amp;")
    }</text>`
  const clusters = Array.from(
    { length: 51 },
    (_, i) => clusterFor(10 ** (from + i * (to - from) / 50), habits, prices, limits)
  )
  const bounds = BOUNDS.filter((bound) => bound !== "a node's processor")
  const lines = bounds.map((bound, i) => {
    const points = clusters.map(({ agents, shares }) =>
      `${x(agents).toFixed(1)},${y(Math.max(1e-9, shares[bound])).toFixed(1)}`
    ).join(" ")
    return `<polyline points="${points}" fill="none" stroke="${COLOURS[i]}" stroke-width="2"/>\n` +
      `<rect x="${LEFT + WIDTH + 16}" y="${TOP + i * 20}" width="10" height="10" fill="${COLOURS[i]}"/>` +
      text(LEFT + WIDTH + 32, TOP + i * 20 + 9, bound)
  })
  const grid = [
    ...Array.from({ length: to - from + 1 }, (_, i) => {
      const at = x(10 ** (from + i))
      return `<path d="M${at.toFixed(1)} ${TOP}V${TOP + HEIGHT}" stroke="#ddd"/>` +
        text(at, TOP + HEIGHT + 18, (10 ** (from + i)).toLocaleString("en-US"), "middle")
    }),
    ...[-4, -3, -2, -1, 0, 1].map((power) => {
      const at = y(10 ** power)
      return `<path d="M${LEFT} ${at.toFixed(1)}H${LEFT + WIDTH}" stroke="${power === 0 ? "black" : "#ddd"}"/>` +
        text(LEFT - 6, at + 4, power < -2 ? `${10 ** (power + 2)} %` : `${100 * 10 ** power} %`, "end")
    })
  ]
  const width = LEFT + WIDTH + 370
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${
    TOP + HEIGHT + 50
  }" width="${width}" height="${TOP + HEIGHT + 50}" font-family="sans-serif" font-size="12">\n` +
    `<rect width="100%" height="100%" fill="white"/>\n${
      text(
        LEFT,
        18,
        "One cluster: how much of what it may have each thing takes, by the number of agents",
        "start",
        'font-weight="bold"'
      )
    }\n` +
    `${grid.join("\n")}\n${lines.join("\n")}\n${
      text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "agents", "middle")
    }\n</svg>\n`
}
