/** Escapes control and format characters, so that text written by agents cannot control the operator's terminal. */
export const plain = (text: string | null): string =>
  (text ?? "").replace(/[\p{Cc}\p{Cf}]/gu, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`)

/** Formats rows of texts as aligned columns. */
export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)))
  return rows.map((row) => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join("  ").trimEnd()).join("\n")
}

const columnOf = (value: unknown): string =>
  typeof value === "boolean" ? value ? "yes" : "no" : plain(value === null ? null : String(value))

/** Formats rows as a table. A column is a field, or a title and a field. Null is shown as an empty cell. */
export const columns = <Row>(
  shown: ReadonlyArray<(keyof Row & string) | readonly [title: string, field: keyof Row]>,
  rows: ReadonlyArray<Row>
): string => {
  const pairs = shown.map((one) => typeof one === "string" ? [one, one] as const : one)
  return table([
    pairs.map(([title]) => title),
    ...rows.map((row) => pairs.map(([, field]) => columnOf(row[field])))
  ])
}

/** Fields that are useful only for programs or too long for a line. */
const LEFT_OUT = new Set(["history", "next_cursor", "about", "events"])

const isPlainObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const cell = (value: unknown): string => {
  if (value === null || value === undefined) return "-"
  if (typeof value === "string") return plain(value)
  if (Array.isArray(value)) return value.length === 0 ? "-" : value.map(cell).join(", ")
  return isPlainObject(value)
    ? Object.entries(value).filter(([name]) => !LEFT_OUT.has(name)).map(([name, one]) => `${name} ${cell(one)}`).join(
      ", "
    )
    : String(value)
}

const isTable = (value: unknown): value is ReadonlyArray<Readonly<Record<string, unknown>>> =>
  Array.isArray(value) && value.length > 0 && value.every(isPlainObject)

/**
 * Formats a response of the operators' API for a terminal: its fields as rows, and its lists of objects as tables
 * below.
 */
export const lines = (answer: unknown): string => {
  if (!isPlainObject(answer)) return cell(answer)
  const entries = Object.entries(answer).filter(([name]) => !LEFT_OUT.has(name))
  const fields = entries.filter(([, value]) => !isTable(value))
  const tables = entries.flatMap(([name, value]) => {
    if (!isTable(value)) return []
    const columns = Object.keys(value[0]!).filter((column) => !LEFT_OUT.has(column))
    return [`\n${name}\n${table([columns, ...value.map((row) => columns.map((column) => cell(row[column])))])}`]
  })
  return [table(fields.map(([name, value]) => [name, cell(value)])), ...tables].join("\n").trim()
}
