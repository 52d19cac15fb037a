/** One bar, in parts. */
export interface Bar {
  readonly label: string
  readonly parts: ReadonlyArray<number>
  /** The least and the greatest total over several measurements. */
  readonly from: number
  readonly to: number
  readonly note: string
}

export interface Plot {
  readonly title: string
  /** The names of the parts of each bar. */
  readonly parts: ReadonlyArray<string>
  readonly bars: ReadonlyArray<Bar>
}

const COLOURS = ["#4878a8", "#e0a040", "#b05050", "#60a070"]
const LABELS = 380
const WIDTH = 480
const NOTES = 240
const ROW = 22
const MARGIN = 16
const LEGEND = 24

const escape = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")

const text = (x: number, y: number, what: string, anchor: "start" | "end" = "start"): string =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}">${escape(what)}</text>`

const rect = (x: number, y: number, width: number, height: number, colour: string): string =>
  `<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${width.toFixed(1)}" height="${
    height.toFixed(1)
  }" fill="${colour}"/>`

/** The bars of one plot below each other, on a scale of their own, from `top` on. */
const draw = ({ bars, parts, title }: Plot, top: number): ReadonlyArray<string> => {
  const most = Math.max(1e-9, ...bars.flatMap((bar) => [bar.to, bar.parts.reduce((sum, part) => sum + part, 0)]))
  const scale = WIDTH / most
  const left = MARGIN + LABELS
  const legend = parts.flatMap((part, i) => [
    rect(left + i * 120, top + ROW - 8, 10, 10, COLOURS[i % COLOURS.length]!),
    text(left + i * 120 + 14, top + ROW, part)
  ])
  const rows = bars.flatMap((bar, row) => {
    const y = top + LEGEND + ROW * (row + 0.4)
    let x = left
    const drawn = bar.parts.map((part, i) => {
      const piece = rect(x, y, part * scale, ROW - 8, COLOURS[i % COLOURS.length]!)
      x += part * scale
      return piece
    })
    const middle = y + (ROW - 8) / 2
    const spread = bar.to > bar.from
      ? [
        `<path d="M${(left + bar.from * scale).toFixed(1)} ${middle.toFixed(1)}H${
          (left + bar.to * scale).toFixed(1)
        }" stroke="black"/>`
      ]
      : []
    return [
      text(left - 8, y + 11, bar.label, "end"),
      ...drawn,
      ...spread,
      text(Math.max(x, left + bar.to * scale) + 8, y + 11, bar.note)
    ]
  })
  return [`<text x="${MARGIN}" y="${top + ROW}" font-weight="bold">${escape(title)}</text>`, ...legend, ...rows]
}

/** All plots below each other, as one picture. */
export const svg = (plots: ReadonlyArray<Plot>): string => {
  let top = MARGIN
  const drawn: Array<string> = []
  for (const plot of plots) {
    drawn.push(...draw(plot, top))
    top += LEGEND + ROW * (plot.bars.length + 1)
  }
  const width = 2 * MARGIN + LABELS + WIDTH + NOTES
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top}" width="${width}" height="${top}" font-family="sans-serif" font-size="12">\n` +
    `<rect width="${width}" height="${top}" fill="white"/>\n${drawn.join("\n")}\n</svg>\n`
}
