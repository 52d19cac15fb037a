import { readFileSync, writeFileSync } from "node:fs"
import { catalogue, type Chapter } from "../src/platform/Metrics.ts"

/** Writes the tables of metrics in docs/operations.md from the catalogue in the code: `npm run docs`. */

const PAGE = new URL("operations.md", import.meta.url)
const BEGIN = "<!-- These tables are made from the code: change `src/platform/Metrics.ts`, then run `npm run docs`. -->\n"
const END = "<!-- end of the tables -->\n"

/** Text in a cell of a table. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("<", "\\<")

const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

const row = ({ description: { help, look, name, only }, kind, labelNames }: Chapter["metrics"][number]): string => {
  const labels = labelNames.length === 0 ? "" : `{${labelNames.join(",")}}`
  return `| \`${name}${labels}\` | ${kind} | ${cell(capital(help))}${only === undefined ? "" : ` (only: ${only})`} | ${cell(look)} |`
}

const tables = catalogue.map(({ metrics, title }) =>
  [`**${title}**`, "", "| metric | kind | what it measures | when to look, and what to do |", "| --- | --- | --- | --- |", ...metrics.map(row), ""].join("\n"))
  .join("\n")

/** The page with its tables as they should be. */
export const operationsPage = (page: string): string => {
  const from = page.indexOf(BEGIN)
  const to = page.indexOf(END)
  if (from < 0 || to < from) throw new Error("docs/operations.md has no place for the tables of metrics")
  return `${page.slice(0, from + BEGIN.length)}\n${tables}\n${page.slice(to)}`
}

if (import.meta.main) writeFileSync(PAGE, operationsPage(readFileSync(PAGE, "utf8")))
