import { isAgentTable, Tables } from "#infrastructure/database/Tables"
import { BlobParts } from "#infrastructure/files/BlobParts"
import { objectOfFile, type StorageUnavailable, uploadOfFile } from "#infrastructure/files/Blobs"
import { Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { type ExportedFile, exportedFiles } from "./AgentTables.ts"

/** A position in a file of an export: the key of the last row that was read. */
export type Place = ReadonlyArray<string | number>

export interface Page {
  readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>>
  /** Where the next page begins; null if there is none. */
  readonly next: Place | null
}

/** A part of a file's bytes, with the file's metadata. */
export interface Part {
  readonly name: string
  readonly content_type: string
  readonly sha256: string
  readonly size: number
  readonly bytes: Buffer
}

/** The name with which an agent's picture is requested. All other files are requested by their ids. */
export const AVATAR = "avatar"
const PART_BYTES = 1_048_576

const TIME = /(^|_)(at|until|since|seen|spent)$|^counted_from$/
const AGENT =
  /(^|_)(agent|contact|blocked|reported|sender|initiator|creator|counterparty|invitee|inviter|recipient|caller|target)_id$|^deleted_by$/

const iso = (value: unknown): unknown =>
  typeof value === "number" ? new Date(value).toISOString() : Array.isArray(value) ? value.map(iso) : value

/** Converts a value for the export. `json` contains the columns with JSON text, in the form `messages.content`. */
const shown = (json: ReadonlySet<string>, table: string, column: string, value: unknown): unknown => {
  if (value === null || value === undefined) return null
  if (TIME.test(column)) return iso(value)
  return json.has(`${table}.${column}`) && typeof value === "string" ? JSON.parse(value) as unknown : value
}

const handleName = (column: string): string => `${column.replace(/_id$/, "")}_handle`

/** The select list of a table: its columns and, after each column with an agent's id, the agent's handle. */
const selected = (alias: "t" | "j", columns: ReadonlyArray<string>): ReadonlyArray<string> =>
  columns.flatMap((column) => [
    `${alias}.${column} AS "${alias}.${column}"`,
    ...AGENT.test(column)
      ? [`(SELECT handle FROM agents WHERE id = ${alias}.${column}) AS "${alias}.${handleName(column)}"`]
      : []
  ])

const namesOf = (columns: ReadonlyArray<string>): ReadonlyArray<string> =>
  columns.flatMap((column) => AGENT.test(column) ? [column, handleName(column)] : [column])

/** Selects the agent's first group, from a position on, that has rows for a file with `byGroup`. */
const groupOf = ({ key: [group, inside], table }: ExportedFile, place: boolean): string => `
  SELECT g.group_id FROM group_members g
  WHERE g.agent_id = $1${place ? " AND g.group_id >= $2" : ""} AND EXISTS (
    SELECT FROM ${table} x WHERE x.${group?.[0]} = g.group_id${
  place ? ` AND (g.group_id > $2 OR x.${inside?.[0]} > $3)` : ""
}
  )
  ORDER BY g.group_id LIMIT 1`

/**
 * Makes the two statements for a file: one selects the last key of the slice after a position, and one the agent's rows
 * up to that key.
 */
const statements = (file: ExportedFile) => {
  const { join, mine, slice, table } = file
  const keys = file.key.map(([column]) => `t.${column}`).join(", ")
  const parameters = (from: number) => file.key.map(([, type], i) => `$${from + i}::${type}`).join(", ")
  const after = (from: number) => ` AND (${keys}) > (${parameters(from)})`
  const scope = (place: boolean): string =>
    file.byGroup === true ? `t.${file.key[0]?.[0]} = (${groupOf(file, place)})` : file.whole === true ? "true" : mine
  const last = (place: boolean) => `
    SELECT ${file.key.map(([column]) => `s.${column}`).join(", ")} FROM (
      SELECT ${keys} FROM ${table} t
      WHERE $1::text IS NOT NULL AND ${scope(place)}${place ? after(2) : ""} ORDER BY ${keys} LIMIT ${slice}
    ) s ORDER BY ${file.key.map(([column]) => `s.${column} DESC`).join(", ")} LIMIT 1`
  const rows = (place: boolean) => `
    SELECT ${[...selected("t", file.columns), ...join === undefined ? [] : selected("j", join.columns)].join(", ")}
    FROM ${table} t${join === undefined ? "" : ` LEFT JOIN ${join.table} j ON ${join.on}`}
    WHERE ${mine}${file.byGroup === true ? ` AND t.${file.key[0]?.[0]} = $2` : ""} AND (${keys}) <= (${parameters(2)})${
    place ? after(2 + file.key.length) : ""
  }
    ORDER BY ${keys}`
  return { last, rows }
}

const rowOf = (
  json: ReadonlySet<string>,
  file: ExportedFile,
  row: Readonly<Record<string, unknown>>
): Readonly<Record<string, unknown>> => {
  const { join } = file
  const part = (alias: "t" | "j", table: string, columns: ReadonlyArray<string>) =>
    Object.fromEntries(
      namesOf(columns).map((column) => [column, shown(json, table, column, row[`${alias}.${column}`])])
    )
  return {
    ...part("t", file.table, file.columns),
    ...join === undefined ? {} : { [join.as]: part("j", join.table, join.columns) }
  }
}

/**
 * Reads the data that the service stores about one agent, page by page (docs/operations.md). Each page takes two
 * statements that read a bounded number of rows, so no other work waits long. Pages are read at different moments. A
 * row that changes during the export is read either before or after its change.
 */
export class AgentPages extends Context.Service<AgentPages, {
  /** Returns a page of a file, or undefined if there is no such file. */
  readonly page: (
    agentId: string,
    file: string,
    after: Place | null
  ) => Effect.Effect<Page | undefined, SqlError.SqlError>
  /**
   * Returns bytes of the agent's picture (`AVATAR`), of a file that the agent has uploaded, or of a file that was
   * uploaded for the agent or for one of its groups. Returns undefined if there is no such file, or if the store does
   * not have its bytes.
   */
  readonly part: (
    agentId: string,
    file: string,
    from: number
  ) => Effect.Effect<Part | undefined, SqlError.SqlError | StorageUnavailable>
}>()("parley/archives/AgentPages") {
  static readonly layer = Layer.effect(
    AgentPages,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const blobs = yield* BlobParts
      const tables = yield* Tables
      const files = new Map(exportedFiles(tables).map((file) => [file.name, { file, ...statements(file) }]))
      const json = new Set(
        tables.filter(isAgentTable).flatMap(({ json: columns = [], table }) =>
          columns.map((column) => `${table}.${column}`)
        )
      )

      const avatar = Effect.fnUntraced(function*(agentId: string, from: number) {
        const [row] = yield* sql<
          { readonly key: string | null }
        >`SELECT avatar_key AS key FROM agents WHERE id = ${agentId}`
        if (row === undefined || row.key === null) return undefined
        const part = yield* blobs.read(`avatars/${row.key}`, from, PART_BYTES)
        return part === undefined
          ? undefined
          : { name: "avatar.webp", content_type: "image/webp", sha256: row.key, ...part }
      })

      return AgentPages.of({
        page: Effect.fnUntraced(function*(agentId, name, after) {
          const found = files.get(name)
          if (found === undefined || (after !== null && after.length !== found.file.key.length)) return undefined
          const { file } = found
          const [last] = yield* sql.unsafe<Readonly<Record<string, string | number>>>(found.last(after !== null), [
            agentId,
            ...after ?? []
          ])
          if (last === undefined) return { rows: [], next: null }
          const next = file.key.map(([column]) => last[column] ?? "")
          const rows = yield* sql.unsafe<Readonly<Record<string, unknown>>>(found.rows(after !== null), [
            agentId,
            ...next,
            ...after ?? []
          ])
          return { rows: rows.map((row) => rowOf(json, file, row)), next }
        }),
        part: Effect.fnUntraced(function*(agentId, id, from) {
          if (id === AVATAR) return yield* avatar(agentId, from)
          const [row] = yield* sql<{ readonly name: string; readonly content_type: string; readonly sha256: string }>`
            SELECT filename AS name, content_type, sha256 FROM attachments
            WHERE id = ${id} AND (
              uploader_id = ${agentId} OR recipient_id = ${agentId}
              OR group_id IN (SELECT m.group_id FROM group_members m WHERE m.agent_id = ${agentId} AND m.group_id = attachments.group_id)
            )`
          if (row === undefined) return undefined
          const part = (yield* blobs.read(objectOfFile(id), from, PART_BYTES)) ??
            (yield* blobs.read(uploadOfFile(id), from, PART_BYTES))
          return part === undefined ? undefined : { ...row, ...part }
        })
      })
    })
  )
}
