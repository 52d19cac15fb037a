import type { Server } from "./Server.ts"

const LINE = /^([a-zA-Z0-9_]+)(?:\{(.*)\})? (\S+)$/

/**
 * The sum of a metric's series with these labels; other labels may have any value. The sum is 0 if nothing was counted
 * with these labels, and NaN if the page does not know the metric.
 */
export const metric = (page: string, name: string, labels: Readonly<Record<string, string>> = {}): number => {
  const wanted = Object.entries(labels).map(([label, value]) => `,${label}="${value}",`)
  const values = page.split("\n").flatMap((line) => {
    const [, series, printed = "", value] = LINE.exec(line) ?? []
    return series === name && wanted.every((label) => `,${printed},`.includes(label)) ? [Number(value)] : []
  })
  if (values.length === 0 && !page.includes(`# TYPE ${name} `)) return Number.NaN
  return values.reduce((sum, value) => sum + value, 0)
}

/** The same on a server's page of metrics. */
export const metricOf = async (
  server: Pick<Server, "url">,
  name: string,
  labels?: Readonly<Record<string, string>>
): Promise<number> => metric(await (await fetch(`${server.url}/internal/metrics`)).text(), name, labels)
