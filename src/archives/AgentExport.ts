import { Clock, Data, Effect, Schema } from "effect"
import { createHash } from "node:crypto"
import { createReadStream, existsSync } from "node:fs"
import { appendFile, mkdir, open, readdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { createInterface } from "node:readline"
import { TarWriter } from "../files/Tar.ts"
import { AVATAR, type Place } from "./AgentPages.ts"
import { exported } from "./AgentTables.ts"
import { formatText } from "./ExportFormat.ts"

/** An archive cannot be made or read where the operator wants it. */
export class ArchiveRefused extends Data.TaggedError("ArchiveRefused")<{ readonly message: string }> {}

/** Where an export comes from: the server that has the database, or this process. */
export interface ExportSource<E> {
  /** Begins an export, which is audited, and finds the agent. */
  readonly begin: Effect.Effect<unknown, E>
  readonly page: (agent: string, file: string, after: Place | null) => Effect.Effect<unknown, E>
  /** The bytes are base64. */
  readonly part: (agent: string, file: string, from: number) => Effect.Effect<unknown, E>
}

const Begun = Schema.Struct({ agent: Schema.String, handle: Schema.String, schema: Schema.String })
const PlaceSchema = Schema.Array(Schema.Union([Schema.String, Schema.Finite]))
const PageSchema = Schema.Struct({
  rows: Schema.Array(Schema.Record(Schema.String, Schema.Unknown)),
  next: Schema.NullOr(PlaceSchema)
})
const PartSchema = Schema.NullOr(Schema.Struct({
  name: Schema.String,
  content_type: Schema.String,
  sha256: Schema.NullOr(Schema.String),
  size: Schema.Finite,
  bytes: Schema.String
}))

/** How far a file has come: bytes and rows that are valid, and where it goes on; null: it is whole. */
const Progress = Schema.Struct({ rows: Schema.Int, bytes: Schema.Int, next: Schema.NullOr(PlaceSchema), whole: Schema.Boolean })

/** `manifest.json`: what there is, and as long as it is not complete, where to go on. */
const Manifest = Schema.Struct({
  format: Schema.Literal(1),
  agent: Schema.String,
  handle: Schema.String,
  /** The last migration of the database. */
  schema: Schema.String,
  began_at: Schema.String,
  ended_at: Schema.NullOr(Schema.String),
  complete: Schema.Boolean,
  files: Schema.Record(Schema.String, Progress)
})
type Manifest = typeof Manifest.Type

const MANIFEST = "manifest.json"
const FILES = "files.jsonl"
const NOTHING: typeof Progress.Type = { rows: 0, bytes: 0, next: null, whole: false }

const refuse = (message: string) => new ArchiveRefused({ message })

const io = <A>(run: () => Promise<A>): Effect.Effect<A, ArchiveRefused> =>
  Effect.tryPromise({ try: run, catch: (error) => refuse(error instanceof Error ? error.message : String(error)) })

const understood = <A>(schema: Schema.Codec<A, unknown>) => {
  const decode = Schema.decodeUnknownEffect(schema)
  return (answer: unknown) => Effect.mapError(decode(answer), () => refuse("The server is of another version: its answer is not understood."))
}
const decodeBegun = understood(Begun)
const decodePage = understood(PageSchema)
const decodePart = understood(PartSchema)
const decodeManifest = Schema.decodeUnknownEffect(Schema.fromJsonString(Manifest))

/** Writes a text beside a file and puts it in its place, so that there is always a whole one. */
const replace = async (file: string, text: string): Promise<void> => {
  await writeFile(`${file}.new`, text, { mode: 0o600 })
  await rename(`${file}.new`, file)
}

/** The ids of the files that the lines of a file of the export refer to. */
async function* referred(file: string, name: string): AsyncGenerator<string> {
  for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
    const row = JSON.parse(line) as {
      readonly id?: string
      readonly stored_at?: string | null
      readonly content?: { readonly attachment_id?: unknown } | null
      readonly message?: { readonly content?: { readonly attachment_id?: unknown } | null }
    }
    const id = name === "uploads" ? row.stored_at === null ? undefined : row.id : (row.message ?? row).content?.attachment_id
    if (typeof id === "string" && /^\w[\w-]*$/.test(id)) yield id
  }
}

const REFERRING = ["uploads", "messages_sent", "messages_received"]

const sha256Of = async (file: string): Promise<string> => {
  const hash = createHash("sha256")
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer)
  return hash.digest("hex")
}

/** Packs a folder that is whole into a tar file, which appears under its name when it is. */
const pack = async (folder: string, file: string, at: number): Promise<void> => {
  const handle = await open(`${file}.packing`, "w", 0o600)
  try {
    const tar = new TarWriter(handle, at)
    for (const entry of await readdir(folder, { withFileTypes: true })) {
      if (entry.isFile()) await tar.file(entry.name, path.join(folder, entry.name))
    }
    for (const name of await readdir(path.join(folder, "files"))) await tar.file(`files/${name}`, path.join(folder, "files", name))
    await tar.finish()
  } finally {
    await handle.close()
  }
  await rename(`${file}.packing`, file)
}

export interface Exported {
  readonly handle: string
  readonly place: string
  readonly rows: number
  readonly files: number
  readonly missing: number
  readonly bytes: number
  readonly resumed: boolean
}

/**
 * Writes everything that the service holds about an agent into a folder, or, if `target` ends with `.tar`, into a file by way
 * of the folder `….unfinished` beside it. It holds one page at a time. After each page the manifest says how far it has come: the same
 * call again goes on there, and what was written after the last manifest is cut off first.
 */
export const exportAgent = Effect.fnUntraced(function*<E>(target: string, source: ExportSource<E>) {
  const place = path.resolve(target)
  const isFile = place.endsWith(".tar")
  const folder = isFile ? `${place}.unfinished` : place
  const at = (name: string) => path.join(folder, name)
  if (isFile && existsSync(place)) return yield* refuse(`${place} is there already.`)

  const begun = yield* Effect.flatMap(source.begin, decodeBegun)
  const text = existsSync(at(MANIFEST)) ? yield* io(() => readFile(at(MANIFEST), "utf8")) : undefined
  if (text === undefined && existsSync(folder) && (yield* io(() => readdir(folder))).length > 0) {
    return yield* refuse(`${folder} is not empty, and holds no export.`)
  }
  const earlier = text === undefined
    ? undefined
    : yield* Effect.mapError(decodeManifest(text), () => refuse(`${at(MANIFEST)} is not understood: another version of Parley wrote it.`))
  if (earlier !== undefined && earlier.agent !== begun.agent) return yield* refuse(`${folder} holds an export of ${earlier.handle}.`)
  if (earlier?.complete === true && !isFile) return yield* refuse(`${folder} holds a complete export of ${earlier.handle} already.`)
  let manifest: Manifest = earlier ?? {
    format: 1,
    ...begun,
    began_at: new Date(yield* Clock.currentTimeMillis).toISOString(),
    ended_at: null,
    complete: false,
    files: {}
  }
  const save = (changes: Partial<Manifest>) => {
    manifest = { ...manifest, ...changes }
    return io(() => replace(at(MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`))
  }
  const progressOf = (file: string) => manifest.files[file] ?? NOTHING
  const advance = (file: string, progress: typeof Progress.Type) => save({ files: { ...manifest.files, [file]: progress } })
  /** Brings a file to the length that the manifest says. */
  const settle = (file: string) =>
    io(async () => {
      const { bytes } = progressOf(file)
      if (existsSync(at(file))) await truncate(at(file), bytes)
      else await writeFile(at(file), "", { mode: 0o600 })
    })
  const append = Effect.fnUntraced(function*(file: string, rows: ReadonlyArray<unknown>, next: Place | null, whole: boolean) {
    const lines = rows.map((row) => `${JSON.stringify(row)}\n`).join("")
    if (lines !== "") yield* io(() => appendFile(at(file), lines))
    const before = progressOf(file)
    yield* advance(file, { rows: before.rows + rows.length, bytes: before.bytes + Buffer.byteLength(lines), next, whole })
  })

  yield* io(() => mkdir(folder, { recursive: true, mode: 0o700 }))
  yield* save({})
  yield* io(() => mkdir(at("files"), { recursive: true, mode: 0o700 }))
  yield* io(() => replace(at("FORMAT.md"), formatText(begun.handle)))
  for (const { name } of exported) {
    const file = `${name}.jsonl`
    if (progressOf(file).whole) continue
    yield* settle(file)
    while (!progressOf(file).whole) {
      const { next, rows } = yield* Effect.flatMap(source.page(begun.agent, name, progressOf(file).next), decodePage)
      yield* append(file, rows, next, next === null)
    }
  }

  /** Fetches a file's bytes from where an earlier call has stopped. */
  const fetch = Effect.fnUntraced(function*(id: string) {
    const unfinished = at(`files/${id}.part`)
    for (;;) {
      const from = existsSync(unfinished) ? (yield* io(() => stat(unfinished))).size : 0
      const part = yield* Effect.flatMap(source.part(begun.agent, id, from), decodePart)
      if (part === null) return undefined
      const bytes = Buffer.from(part.bytes, "base64")
      yield* io(() => appendFile(unfinished, bytes, { mode: 0o600 }))
      if (from + bytes.length < part.size && bytes.length > 0) continue
      if (part.sha256 !== null && part.sha256 !== (yield* io(() => sha256Of(unfinished)))) {
        yield* io(() => rm(unfinished))
        return yield* refuse(`The bytes of ${id} are not those that were uploaded: the file store has damaged them.`)
      }
      const { bytes: _, ...about } = part
      return about
    }
  })
  const known = new Set<string>()
  const keep = Effect.fnUntraced(function*(id: string, name: string) {
    if (known.has(id)) return
    known.add(id)
    const found = yield* fetch(id)
    if (found === undefined) return id === AVATAR ? undefined : yield* append(FILES, [{ id, missing: true }], null, false)
    yield* io(() => rename(at(`files/${id}.part`), at(name)))
    yield* append(FILES, [{ id, ...found, file: name, missing: false }], null, false)
  })
  if (!progressOf(FILES).whole) {
    yield* settle(FILES)
    // What is in the list is done; a file without its line is fetched again.
    yield* io(async () => {
      for await (const line of createInterface({ input: createReadStream(at(FILES)) })) known.add((JSON.parse(line) as { readonly id: string }).id)
    })
    yield* keep(AVATAR, "files/avatar.webp")
    for (const name of REFERRING) {
      const ids = referred(at(`${name}.jsonl`), name)
      for (;;) {
        const { done, value } = yield* io(() => ids.next())
        if (done === true) break
        yield* keep(value, `files/${value}`)
      }
    }
    yield* append(FILES, [], null, true)
  }
  if (!manifest.complete) yield* save({ complete: true, ended_at: new Date(yield* Clock.currentTimeMillis).toISOString() })

  const rows = exported.reduce((sum, { name }) => sum + progressOf(`${name}.jsonl`).rows, 0)
  let missing = 0
  let bytes = 0
  yield* io(async () => {
    for await (const line of createInterface({ input: createReadStream(at(FILES)) })) {
      const row = JSON.parse(line) as { readonly missing: boolean; readonly size?: number }
      if (row.missing) missing++
      bytes += row.size ?? 0
    }
  })
  if (isFile) {
    yield* io(() => pack(folder, place, Date.parse(manifest.ended_at ?? "")))
    yield* io(() => rm(folder, { recursive: true }))
  }
  const whole: Exported = {
    handle: begun.handle,
    place,
    rows,
    files: progressOf(FILES).rows - missing,
    missing,
    bytes,
    resumed: earlier !== undefined
  }
  return whole
})
