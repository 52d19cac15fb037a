import { saysNoSpace } from "#infrastructure/platform/disk/DiskSpace"
import { SqlError } from "effect/sql"
import { getTypeParser } from "pg-types"

/**
 * Planner settings of every session. A prepared statement is often planned while its tables are empty, and keeps that
 * plan. In PGlite, which has no autovacuum, the statement keeps the plan forever. Therefore sequential scans are
 * discouraged. JIT compilation is off, because a plan without sequential scans can look so expensive that PostgreSQL
 * would compile it.
 */
export const PLANNER_SETTINGS = { enable_seqscan: "off", jit: "off" }

/**
 * How long a statement may run. This time and a few seconds for the response together are less than the 30 s that a
 * request with an Idempotency-Key has by default (wire.md C.0).
 */
export const STATEMENT_TIMEOUT_MILLIS = 20_000

/**
 * The result of a statement. `command` is the first word of its tag, for example `ROLLBACK` for the COMMIT of a failed
 * transaction.
 */
export interface Outcome<Row = Record<string, unknown>> {
  readonly command: string
  readonly rowCount: number | null
  readonly rows: ReadonlyArray<Row>
}

const TEXT_ESCAPES = /[\\"]/g

const element = (value: unknown): string => {
  if (value === null || value === undefined) return "NULL"
  if (Array.isArray(value)) return arrayLiteral(value)
  const encoded = encode(value)
  if (Buffer.isBuffer(encoded)) return `"\\\\x${encoded.toString("hex")}"`
  return typeof value === "number" || typeof value === "bigint"
    ? String(encoded)
    : `"${String(encoded).replace(TEXT_ESCAPES, "\\$&")}"`
}

/** Whether an array literal and JSON write an element in the same way, unless JSON escapes something in it. */
const isPlain = (value: unknown): boolean =>
  typeof value === "string" || (typeof value === "number" && Number.isFinite(value))

const arrayLiteral = (values: ReadonlyArray<unknown>): string => {
  // This path is three times as fast, and the commit of a batch of messages passes a dozen such arrays.
  if (values.every(isPlain)) {
    const json = JSON.stringify(values)
    if (!json.includes("\\")) return `{${json.slice(1, -1)}}`
  }
  let text = "{"
  for (let i = 0; i < values.length; i++) text += i === 0 ? element(values[i]) : `,${element(values[i])}`
  return text + "}"
}

/**
 * Encodes a parameter for PostgreSQL's protocol, in the same way for both drivers. Bytes are encoded as binary,
 * everything else as text. An array becomes an array literal, and any other object becomes JSON.
 */
export const encode = (value: unknown): string | Buffer | null => {
  switch (typeof value) {
    case "string":
      return value
    case "undefined":
      return null
    case "object":
      if (value === null) return null
      if (Buffer.isBuffer(value)) return value
      if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength)
      if (value instanceof Date) return value.toISOString()
      return Array.isArray(value) ? arrayLiteral(value) : JSON.stringify(value)
    default:
      return String(value)
  }
}

const INT8 = 20
const INT8_ARRAY = 1016

const numbers = (text: string): Array<number | null> =>
  text === "{}" ? [] : text.slice(1, -1).split(",").map((n) => n === "NULL" ? null : Number(n))

/**
 * Returns the parser of a column's text. 64-bit integers become numbers, `numeric` stays text, and all other types are
 * parsed as `pg` parses them.
 */
export const parserOf = (oid: number): (text: string) => unknown =>
  oid === INT8 ? Number : oid === INT8_ARRAY ? numbers : getTypeParser(oid, "text")

const field = (cause: object, name: string): string | undefined => {
  const value: unknown = Reflect.get(cause, name)
  return typeof value === "string" && value !== "" ? value : undefined
}

const SQLSTATE = /^[0-9A-Z]{5}$/

/**
 * An error of the database or of the connection to it. It omits the fields that may quote rows or parameters (detail,
 * hint, where), so that it may be logged.
 */
export class DatabaseFault extends Error {
  override readonly name = "DatabaseFault"
  /** The SQLSTATE, or undefined if the connection failed. */
  readonly code: string | undefined
  readonly constraint: string | undefined
  readonly table: string | undefined
  readonly column: string | undefined
  readonly position: string | undefined

  constructor(cause: object) {
    const code = field(cause, "code")
    const message = field(cause, "message") ?? "unknown failure"
    // Data exceptions (class 22) quote the value after a colon.
    super(code?.startsWith("22") ? message.replace(/: ".*$/s, "") : message)
    this.code = code !== undefined && SQLSTATE.test(code) ? code : undefined
    this.constraint = field(cause, "constraint")
    this.table = field(cause, "table")
    this.column = field(cause, "column")
    this.position = field(cause, "position")
  }
}

/** The SQLSTATE of a full disk. */
const DISK_FULL = "53100"

/** The message of an error that reports that the disk of the database is full; undefined for every other error. */
export const noSpace = ({ reason: { cause } }: SqlError.SqlError): string | undefined => {
  if (!(cause instanceof DatabaseFault) || (cause.code !== DISK_FULL && !saysNoSpace(cause.message))) return undefined
  // PostgreSQL may write its messages in another language.
  return saysNoSpace(cause.message) ? cause.message : `no space left on the database's disk (${cause.message})`
}

const reason = (cause: DatabaseFault, operation: string): SqlError.SqlErrorReason => {
  const props = { cause, message: cause.message, operation }
  const code = cause.code
  if (code === undefined) return new SqlError.ConnectionError(props)
  switch (code) {
    case "23505":
      return new SqlError.UniqueViolation({ ...props, constraint: cause.constraint ?? "unknown" })
    case "40P01":
      return new SqlError.DeadlockError(props)
    case "40001":
      return new SqlError.SerializationError(props)
    case "55P03":
      return new SqlError.LockTimeoutError(props)
    case "57014":
      return new SqlError.StatementTimeoutError(props)
    case "42501":
      return new SqlError.AuthorizationError(props)
    case "25P03":
    case "53300":
    case "57P01":
    case "57P02":
    case "57P03":
    case "57P05":
      return new SqlError.ConnectionError(props)
  }
  switch (code.slice(0, 2)) {
    case "08":
      return new SqlError.ConnectionError(props)
    case "23":
      return new SqlError.ConstraintError(props)
    case "28":
      return new SqlError.AuthenticationError(props)
    case "42":
      return new SqlError.SqlSyntaxError(props)
  }
  return new SqlError.UnknownError(props)
}

/** Classifies an error of either driver in the same way. */
export const sqlError = (cause: unknown, operation: string): SqlError.SqlError => {
  const fault = cause instanceof DatabaseFault
    ? cause
    : new DatabaseFault(typeof cause === "object" && cause !== null ? cause : new Error(String(cause)))
  return new SqlError.SqlError({ reason: reason(fault, operation) })
}
