import { catalogue, type Chapter } from "#infrastructure/platform/Metrics"
import { writeFileSync } from "node:fs"

/** Writes docs/metrics.md from the catalogue in the code: `npm run docs`. */

const INTRODUCTION = `# Metrics

Each node shows these metrics at \`/internal/metrics\`, in the text format of Prometheus. Sum or compare them over the nodes. A counter starts
at 0 when its process starts. Labels are routes, codes and names from the code, never a handle, an id or an address.
[Operations](operations.md#metrics) names the examples for Prometheus and Grafana.

This page is made from the code: change \`src/infrastructure/platform/Metrics.ts\`, then run \`npm run docs\`.

`

/** Text in a cell of a table. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("<", "\\<")

const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

const row = ({ description: { help, action, name, only }, kind, labelNames }: Chapter["metrics"][number]): string => {
  const labels = labelNames.length === 0 ? "" : `{${labelNames.join(",")}}`
  return `| \`${name}${labels}\` | ${kind} | ${cell(capital(help))}${only === undefined ? "" : ` (only: ${only})`} | ${
    cell(action)
  } |`
}

const chapter = ({ metrics, title }: Chapter): string =>
  [
    `## ${title}`,
    "",
    "| metric | kind | what it measures | when to act, and what to do |",
    "| --- | --- | --- | --- |",
    ...metrics.map(row),
    ""
  ].join("\n")

/** The page as it should be. */
export const metricsPage = (): string => INTRODUCTION + catalogue.map(chapter).join("\n")

if (import.meta.main) writeFileSync(new URL("metrics.md", import.meta.url), metricsPage())
