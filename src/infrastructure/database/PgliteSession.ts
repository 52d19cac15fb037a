import type { PGlite } from "@electric-sql/pglite"
import { DatabaseFault, encode, type Outcome, parserOf } from "./SqlValues.ts"

/** Writes messages of the PostgreSQL protocol into a buffer that is reused for the next statement. */
class MessageWriter {
  #buffer = Buffer.allocUnsafe(64 * 1024)
  #length = 0
  #start = 0

  #room(bytes: number): void {
    if (this.#length + bytes <= this.#buffer.length) return
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + bytes))
    this.#buffer.copy(larger, 0, 0, this.#length)
    this.#buffer = larger
  }

  reset(): this {
    if (this.#buffer.length > 4 * 1024 * 1024) this.#buffer = Buffer.allocUnsafe(64 * 1024)
    this.#length = 0
    return this
  }

  begin(type: string): this {
    this.#room(5)
    this.#buffer[this.#length] = type.charCodeAt(0)
    this.#start = this.#length + 1
    this.#length += 5
    return this
  }

  end(): this {
    this.#buffer.writeUInt32BE(this.#length - this.#start, this.#start)
    return this
  }

  byte(value: string): this {
    this.#room(1)
    this.#buffer[this.#length++] = value.charCodeAt(0)
    return this
  }

  int16(value: number): this {
    this.#room(2)
    this.#length = this.#buffer.writeUInt16BE(value, this.#length)
    return this
  }

  int32(value: number): this {
    this.#room(4)
    this.#length = this.#buffer.writeInt32BE(value, this.#length)
    return this
  }

  /** Writes a text followed by a zero byte. */
  text(value: string): this {
    this.#room(value.length * 3 + 1)
    this.#length += this.#buffer.write(value, this.#length)
    this.#buffer[this.#length++] = 0
    return this
  }

  /** Writes a value preceded by its length in bytes. */
  sized(value: string | Buffer): this {
    this.#room(4 + (typeof value === "string" ? value.length * 3 : value.length))
    const bytes = typeof value === "string"
      ? this.#buffer.write(value, this.#length + 4)
      : value.copy(this.#buffer, this.#length + 4)
    this.#buffer.writeInt32BE(bytes, this.#length)
    this.#length += 4 + bytes
    return this
  }

  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#length)
  }
}

interface Column {
  readonly name: string
  readonly parse: (text: string) => unknown
}

const cstringEnd = (buffer: Buffer, from: number): number => buffer.indexOf(0, from)

/** PostgreSQL's response to one buffer of messages. */
export interface Answer {
  readonly columns: ReadonlyArray<Column> | undefined
  readonly rows: ReadonlyArray<ReadonlyArray<unknown>>
  readonly tag: string
}

/**
 * The exports of PGlite's module that run PostgreSQL's main loop. A siglongjmp out of the loop throws an exception with
 * the status LONGJMP.
 */
interface MainLoop {
  _PostgresMainLoopOnce: () => void
  stackRestore: (pointer: number) => void
}

const LONGJMP = 100

/**
 * A database session on PGlite's protocol interface. PGlite's own `query` takes five protocol round trips and plans the
 * statement every time. This class sends a statement in one buffer, and a named statement keeps its plan. Every call is
 * synchronous, so statements cannot interleave. The layer above reserves the session when several statements must run
 * in a row.
 *
 * A PANIC, a WebAssembly trap or a stack overflow ends the session, as a crash ends a PostgreSQL server. Committed data
 * are in the files, and another session can recover them. (PGlite itself would continue in an undefined state, or loop
 * forever.)
 */
export class PgliteSession {
  readonly #pg: PGlite
  readonly #writer = new MessageWriter()
  readonly #named = new Map<string, ReadonlyArray<Column>>()
  #received = Buffer.allocUnsafe(256 * 1024)
  #length = 0
  #status = "I"
  #crash: unknown

  constructor(pg: PGlite) {
    this.#pg = pg
    // PGlite's types omit the exports of Emscripten.
    const loop = pg.Module as unknown as MainLoop
    const once = loop._PostgresMainLoopOnce
    loop._PostgresMainLoopOnce = () => {
      try {
        once()
      } catch (error) {
        if (Reflect.get(Object(error), "status") !== LONGJMP) {
          this.#crash = error
          // PGlite swallows exceptions of its loop and calls `stackRestore` next.
          loop.stackRestore = () => {
            throw error
          }
        }
        throw error
      }
    }
  }

  get inTransaction(): boolean {
    return this.#crash === undefined && this.#status !== "I"
  }

  /** Whether the session has crashed. In a crashed session every statement fails. */
  get hasCrashed(): boolean {
    return this.#crash !== undefined
  }

  /** Closes PGlite, which then writes a last checkpoint. Does nothing if PGlite has crashed. */
  async close(): Promise<void> {
    if (!this.hasCrashed) await this.#pg.close()
  }

  /** A dump from which another in-memory database can start. */
  snapshot(): Promise<Blob> {
    return this.#pg.dumpDataDir("none")
  }

  /**
   * Runs one statement and returns its result. Without parameters the text may contain several statements, and the
   * result of the last statement is returned. Throws `DatabaseFault`.
   */
  query(text: string, params: ReadonlyArray<unknown>): Answer {
    const writer = this.#writer.reset()
    if (params.length === 0) return this.#exchange(writer.begin("Q").text(text).end(), undefined)
    writer.begin("P").text("").text(text).int16(0).end()
    this.#bind("", params)
    writer.begin("D").byte("P").text("").end()
    return this.#exchange(this.#execute(), undefined)
  }

  /** Runs a statement that is parsed only once, under its name. */
  prepared(name: string, text: string, params: ReadonlyArray<unknown>): Answer {
    let columns = this.#named.get(name)
    if (columns === undefined) {
      const writer = this.#writer.reset()
      writer.begin("P").text(name).text(text).int16(0).end()
      writer.begin("D").byte("S").text(name).end()
      columns = this.#exchange(writer.begin("S").end(), undefined).columns ?? []
      this.#named.set(name, columns)
    }
    this.#writer.reset()
    this.#bind(name, params)
    return this.#exchange(this.#execute(), columns)
  }

  /**
   * Drops all prepared statements, because the next user of the session may give the same names to other statements.
   */
  deallocate(): void {
    this.query("DEALLOCATE ALL", [])
    this.#named.clear()
  }

  #bind(name: string, params: ReadonlyArray<unknown>): void {
    const values = params.map(encode)
    const writer = this.#writer.begin("B").text("").text(name).int16(values.length)
    for (const value of values) writer.int16(Buffer.isBuffer(value) ? 1 : 0)
    writer.int16(values.length)
    for (const value of values) {
      if (value === null) writer.int32(-1)
      else writer.sized(value)
    }
    writer.int16(0).end()
  }

  #execute(): MessageWriter {
    return this.#writer.begin("E").text("").int32(0).end().begin("S").end()
  }

  #exchange(message: MessageWriter, columns: ReadonlyArray<Column> | undefined): Answer {
    this.#length = 0
    if (this.#crash === undefined) {
      const done = this.#pg.execProtocolRawStream(message.bytes, { syncToFs: false, onRawData: this.#receive })
      // Everything has run synchronously by now. The wrapped main loop has recorded a crash if there was one.
      done.catch(() => {})
    }
    return this.#read(columns)
  }

  readonly #receive = (bytes: Uint8Array): void => {
    if (this.#length + bytes.length > this.#received.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#received.length * 2, this.#length + bytes.length))
      this.#received.copy(larger, 0, 0, this.#length)
      this.#received = larger
    }
    this.#received.set(bytes, this.#length)
    this.#length += bytes.length
  }

  #read(known: ReadonlyArray<Column> | undefined): Answer {
    const buffer = this.#received
    let columns = known
    let rows: Array<ReadonlyArray<unknown>> = []
    let tag = ""
    let fault: DatabaseFault | undefined
    let ready = false
    for (let at = 0; at < this.#length;) {
      const next = at + 1 + buffer.readUInt32BE(at + 1)
      switch (buffer[at]) {
        case 0x44: // D, a row
          rows.push(this.#row(at + 5, columns ?? []))
          break
        case 0x54: // T, the columns
          columns = this.#columns(at + 5)
          rows = []
          break
        case 0x43: // C, complete
          tag = buffer.toString("latin1", at + 5, next - 1)
          break
        case 0x45: // E, an error
          fault ??= this.#fault(at + 5)
          break
        case 0x5a: // Z, ready
          this.#status = String.fromCharCode(buffer[at + 5] ?? 0x49)
          ready = true
          break
      }
      at = next
    }
    if (buffer.length > 4 * 1024 * 1024) this.#received = Buffer.allocUnsafe(256 * 1024)
    if (this.#crash !== undefined || !ready) {
      this.#crash ??= new Error("no answer")
      throw new DatabaseFault({ code: "57P02", message: `PGlite crashed: ${fault?.message ?? String(this.#crash)}` })
    }
    if (fault !== undefined) throw fault
    return { columns, rows, tag }
  }

  #row(from: number, columns: ReadonlyArray<Column>): ReadonlyArray<unknown> {
    const buffer = this.#received
    const values: Array<unknown> = []
    let at = from + 2
    for (const column of columns) {
      const length = buffer.readInt32BE(at)
      at += 4
      if (length < 0) {
        values.push(null)
      } else {
        values.push(column.parse(buffer.toString("utf8", at, at + length)))
        at += length
      }
    }
    return values
  }

  #columns(from: number): ReadonlyArray<Column> {
    const buffer = this.#received
    const columns: Array<Column> = []
    let at = from + 2
    for (let left = buffer.readUInt16BE(from); left > 0; left--) {
      const end = cstringEnd(buffer, at)
      columns.push({ name: buffer.toString("utf8", at, end), parse: parserOf(buffer.readUInt32BE(end + 7)) })
      at = end + 19
    }
    return columns
  }

  #fault(from: number): DatabaseFault {
    const buffer = this.#received
    const names: Record<string, string> = {
      C: "code",
      M: "message",
      P: "position",
      n: "constraint",
      t: "table",
      c: "column"
    }
    const fields: Record<string, string> = {}
    for (let at = from; buffer[at] !== 0;) {
      const end = cstringEnd(buffer, at + 1)
      const name = names[String.fromCharCode(buffer[at] ?? 0)]
      if (name !== undefined) fields[name] = buffer.toString("utf8", at + 1, end)
      at = end + 1
    }
    return new DatabaseFault(fields)
  }
}

/** Converts a response into an outcome, whose rows are objects. */
export const outcomeOf = (answer: Answer): Outcome => {
  const columns = answer.columns ?? []
  const [command = "", ...rest] = answer.tag.split(" ")
  const count = Number(rest.at(-1))
  return {
    command,
    rowCount: rest.length === 0 || Number.isNaN(count) ? null : count,
    rows: answer.rows.map((values) => {
      const row: Record<string, unknown> = {}
      for (let i = 0; i < columns.length; i++) row[columns[i]?.name ?? ""] = values[i]
      return row
    })
  }
}
