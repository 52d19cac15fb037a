import { Tables } from "#infrastructure/database/Tables"
import { filesAt, writeTar } from "#infrastructure/files/Tar"
import { lockFile } from "#infrastructure/platform/disk/DataDir"
import { makeFolder } from "#infrastructure/platform/disk/Folder"
import { Clock, Data, Effect, Schema } from "effect"
import { createHash } from "node:crypto"
import { createReadStream, existsSync, rmSync } from "node:fs"
import { appendFile, mkdir, open, readdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { AVATAR, type Place } from "./AgentPages.ts"
import { exportedFiles } from "./AgentTables.ts"
import { formatText } from "./ExportFormat.ts"

/** An archive cannot be written to, or read from, the place that the operator gave. */
export class ArchiveRefused extends Data.TaggedError("ArchiveRefused")<{ readonly message: string }> {}

/** The source of the data of an export: the server that has opened the database, or this process. */
export interface ExportSource<E> {
  /** Begins an export and finds the agent. This writes an audit row. */
  readonly begin: Effect.Effect<unknown, E>
  readonly page: (agent: string, file: string, after: Place | null) => Effect.Effect<unknown, E>
  /** Returns bytes of a stored file from the offset `from` on, in base64. */
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
  sha256: Schema.String,
  size: Schema.Finite,
  bytes: Schema.String
}))

/**
 * The progress of a file: how many of its rows and bytes are valid, and where the next page begins. `next` is null
 * before the first and after the last page.
 */
const Progress = Schema.Struct({
  rows: Schema.Int,
  bytes: Schema.Int,
  next: Schema.NullOr(PlaceSchema),
  whole: Schema.Boolean
})

/** The contents of `manifest.json`: the files of the export and, as long as it is incomplete, where to resume. */
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
const LOCK = ".lock"
/**
 * Whether a file in the folder belongs to the lock of the folder. Older versions left `.lock-journal` behind when they
 * were killed.
 */
const isLock = (name: string): boolean => name === LOCK || name === `${LOCK}-journal`
const NOTHING: typeof Progress.Type = { rows: 0, bytes: 0, next: null, whole: false }

const refuse = (message: string) => new ArchiveRefused({ message })

const io = <A>(run: () => Promise<A>): Effect.Effect<A, ArchiveRefused> =>
  Effect.tryPromise({ try: run, catch: (error) => refuse(error instanceof Error ? error.message : String(error)) })

const understood = <A>(schema: Schema.Codec<A, unknown>) => {
  const decode = Schema.decodeUnknownEffect(schema)
  return (answer: unknown) =>
    Effect.mapError(decode(answer), () => refuse("The server has another version, so its answer cannot be read."))
}
const decodeBegun = understood(Begun)
const decodePage = understood(PageSchema)
const decodePart = understood(PartSchema)
const decodeManifest = Schema.decodeUnknownEffect(Schema.fromJsonString(Manifest))

const sizeOf = async (file: string): Promise<number | undefined> =>
  existsSync(file) ? (await stat(file)).size : undefined

/** Appends to a file (`a`) or overwrites it (`w`), and syncs it to disk. */
const write = async (file: string, flags: "a" | "w", text: string): Promise<void> => {
  const handle = await open(file, flags, 0o600)
  try {
    await handle.writeFile(text)
    await handle.datasync()
  } finally {
    await handle.close()
  }
}

/** Replaces a file atomically: writes the text to a second file and renames it. */
const replace = async (file: string, text: string): Promise<void> => {
  await write(`${file}.new`, "w", text)
  await rename(`${file}.new`, file)
}

/** Reads the complete lines of a file. Only \n ends a line, because JSON may contain U+2028 and U+2029 unescaped. */
async function* linesOf(file: string): AsyncGenerator<string> {
  let before: Array<Buffer> = []
  for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
    let from = 0
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, from)) {
      yield Buffer.concat([...before, chunk.subarray(from, end)]).toString("utf8")
      before = []
      from = end + 1
    }
    before.push(chunk.subarray(from))
  }
}

/** A line of `files.jsonl`. */
interface FileLine {
  readonly id: string
  /** The path below the folder; undefined if the file is missing. */
  readonly file?: string
  readonly size?: number
  readonly missing: boolean
  readonly damaged?: boolean
}

async function* filesIn(file: string): AsyncGenerator<FileLine> {
  for await (const line of linesOf(file)) yield JSON.parse(line) as FileLine
}

interface Referred {
  readonly id: string
  /** Whether the file is known to have been uploaded. */
  readonly stored: boolean
}

/** Reads which stored files the lines of a file of the export refer to. */
async function* referred(file: string, name: string): AsyncGenerator<Referred> {
  for await (const line of linesOf(file)) {
    const row = JSON.parse(line) as {
      readonly id?: string
      readonly stored_at?: string | null
      readonly content?: { readonly attachment_id?: unknown } | null
      readonly message?: { readonly content?: { readonly attachment_id?: unknown } | null }
    }
    const isUpload = name === "uploads"
    const id = isUpload ? row.id : (row.message ?? row).content?.attachment_id
    if (typeof id === "string" && /^\w[\w-]*$/.test(id)) yield { id, stored: !isUpload || row.stored_at !== null }
  }
}

const REFERRING = ["uploads", "messages_sent", "messages_received"]

const sha256Of = async (file: string): Promise<string> => {
  const hash = createHash("sha256")
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer)
  return hash.digest("hex")
}

/** Packs the folder of a complete export into a tar file. The tar file gets its final name when it is complete. */
const pack = Effect.fnUntraced(function*(folder: string, file: string, at: number) {
  const named = yield* io(async () => {
    const entries = await readdir(folder, { withFileTypes: true })
    const names = entries.filter((entry) => entry.isFile() && !isLock(entry.name)).map(({ name }) => name)
    const files = (await readdir(path.join(folder, "files"))).map((name) => `files/${name}`)
    return [...names, ...files].map((name) => [name, path.join(folder, name)] as const)
  })
  yield* Effect.mapError(
    writeTar(file, `${file}.packing`, at, filesAt(named, "fail")),
    ({ message }) => refuse(message)
  )
})

export interface Exported {
  readonly handle: string
  readonly place: string
  readonly rows: number
  readonly files: number
  readonly missing: number
  /** How many of the missing files are in the store, but with other bytes than announced. */
  readonly damaged: number
  readonly bytes: number
  readonly resumed: boolean
}

/** Locks the folder against other exports until the scope ends. Creates the folder if it does not exist. */
const locked = (folder: string) =>
  Effect.acquireRelease(
    Effect.gen(function*() {
      const file = path.join(folder, LOCK)
      yield* io(async () => makeFolder(folder, 0o700))
      const held = yield* io(async () => lockFile(file, 0))
      // A process removes its lock file when it ends. If that has just happened, this process has locked a deleted
      // file.
      if (held !== undefined && existsSync(file)) return { file, held }
      held?.release()
      return yield* refuse(`Another export writes to ${folder}.`)
    }),
    ({ file, held }) =>
      Effect.sync(() => {
        rmSync(file, { force: true })
        held.release()
      })
  )

/** A folder that an export is written to, and its manifest, which records the progress of each file. */
interface ExportFolder {
  readonly at: (name: string) => string
  readonly manifest: () => Manifest
  readonly save: (changes: Partial<Manifest>) => Effect.Effect<void, ArchiveRefused>
  readonly progressOf: (file: string) => typeof Progress.Type
  /** Truncates a file to the length in the manifest. The file must have at least that length. */
  readonly settle: (file: string) => Effect.Effect<void, ArchiveRefused>
  readonly append: (
    file: string,
    rows: ReadonlyArray<unknown>,
    next: Place | null,
    whole: boolean
  ) => Effect.Effect<void, ArchiveRefused>
}

const makeExportFolder = (folder: string, begun: Manifest): ExportFolder => {
  let manifest = begun
  const at = (name: string) => path.join(folder, name)
  const progressOf = (file: string) => manifest.files[file] ?? NOTHING
  const save = (changes: Partial<Manifest>) => {
    manifest = { ...manifest, ...changes }
    return io(() => replace(at(MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`))
  }
  return {
    at,
    manifest: () => manifest,
    save,
    progressOf,
    settle: (file) =>
      io(async () => {
        const { bytes } = progressOf(file)
        if (bytes === 0) await writeFile(at(file), "", { mode: 0o600 })
        else await truncate(at(file), bytes)
      }),
    append: Effect.fnUntraced(function*(file, rows, next, whole) {
      const lines = rows.map((row) => `${JSON.stringify(row)}\n`).join("")
      if (lines !== "") yield* io(() => write(at(file), "a", lines))
      const before = progressOf(file)
      const progress = {
        rows: before.rows + rows.length,
        bytes: before.bytes + Buffer.byteLength(lines),
        next,
        whole
      }
      yield* save({ files: { ...manifest.files, [file]: progress } })
    })
  }
}

/**
 * Returns the names of the files that are shorter than recorded in the manifest. Includes `files.jsonl` if a file that
 * it lists has another size.
 */
const shortened = async ({ at, manifest, progressOf }: ExportFolder): Promise<ReadonlyArray<string>> => {
  const names: Array<string> = []
  const { files } = manifest()
  for (const [name, { bytes }] of Object.entries(files)) {
    const size = await sizeOf(at(name))
    if (size === undefined || size < bytes) names.push(name)
  }
  if (files[FILES] === undefined || names.includes(FILES)) return names
  await truncate(at(FILES), progressOf(FILES).bytes)
  for await (const { file, size } of filesIn(at(FILES))) {
    if (file !== undefined && await sizeOf(at(file)) !== size) return [...names, FILES]
  }
  return names
}

/** Resets the progress of these files in the manifest, so that they are written again. */
const forget = Effect.fnUntraced(function*(out: ExportFolder, lost: ReadonlyArray<string>) {
  if (lost.includes(FILES)) yield* io(() => rm(out.at("files"), { recursive: true, force: true }))
  const list = out.progressOf(FILES)
  yield* out.save({
    complete: false,
    ended_at: null,
    files: {
      ...out.manifest().files,
      // The listed files are done, but the lost rows may have referred to further files.
      ...list.whole && REFERRING.some((name) => lost.includes(`${name}.jsonl`))
        ? { [FILES]: { ...list, whole: false } }
        : {},
      ...Object.fromEntries(lost.map((name) => [name, NOTHING]))
    }
  })
})

/**
 * Makes the function that fetches a file's bytes from where an earlier call stopped, and checks their hash. The
 * function returns undefined if the store has no such file.
 */
const fetchInto = <E>({ at, manifest }: ExportFolder, source: ExportSource<E>) =>
  Effect.fnUntraced(function*(id: string) {
    const unfinished = at(`files/${id}.part`)
    const drop = io(() => rm(unfinished, { force: true }))
    for (let again = false;;) {
      const from = (yield* io(() => sizeOf(unfinished))) ?? 0
      const part = yield* Effect.flatMap(source.part(manifest().agent, id, from), decodePart)
      if (part === null) {
        yield* drop
        return undefined
      }
      const { bytes: encoded, ...about } = part
      const bytes = Buffer.from(encoded, "base64")
      yield* io(() => appendFile(unfinished, bytes, { mode: 0o600 }))
      if (from + bytes.length < part.size && bytes.length > 0) continue
      if (part.sha256 === (yield* io(() => sha256Of(unfinished)))) {
        yield* io(() => write(unfinished, "a", ""))
        return about
      }
      yield* drop
      // Try once more from the beginning. The part from the earlier call may belong to another picture, or may not have
      // been written to the disk.
      if (again) return "damaged"
      again = true
    }
  })

/** Fetches and lists the files that the export refers to. */
const exportFiles = Effect.fnUntraced(function*<E>(out: ExportFolder, source: ExportSource<E>) {
  const { append, at } = out
  const fetch = fetchInto(out, source)
  const known = new Set<string>()
  /**
   * Fetches and lists one file. If the store does not have the file, lists it as missing if `stored`, and otherwise
   * leaves it out.
   */
  const keep = Effect.fnUntraced(function*(id: string, name: string, stored: boolean) {
    if (known.has(id)) return
    const found = yield* fetch(id)
    if (found === undefined && !stored) return
    known.add(id)
    if (typeof found === "object") yield* io(() => rename(at(`files/${id}.part`), at(name)))
    const line: FileLine = typeof found === "object"
      ? { id, ...found, file: name, missing: false }
      : { id, missing: true, ...found === "damaged" ? { damaged: true } : {} }
    yield* append(FILES, [line], null, false)
  })
  yield* out.settle(FILES)
  // The listed files are done. A file without its line is fetched again.
  yield* io(async () => {
    for await (const { id } of filesIn(at(FILES))) known.add(id)
  })
  yield* keep(AVATAR, "files/avatar.webp", false)
  for (const name of REFERRING) {
    const ids = referred(at(`${name}.jsonl`), name)
    for (;;) {
      const { done, value } = yield* io(() => ids.next())
      if (done === true) break
      yield* keep(value.id, `files/${value.id}`, value.stored)
    }
  }
  yield* append(FILES, [], null, true)
})

/** Writes the export into a folder that this process has locked. Resumes where an earlier call stopped. */
const fill = Effect.fnUntraced(
  function*<E>(place: string, folder: string, begun: typeof Begun.Type, source: ExportSource<E>) {
    const tables = yield* Tables
    const exported = exportedFiles(tables)
    const isFile = place !== folder
    const earlier = yield* earlierManifest(folder)
    if (earlier !== undefined && earlier.agent !== begun.agent)
      return yield* refuse(`${folder} holds an export of ${earlier.handle}.`)
    const out = makeExportFolder(
      folder,
      earlier ?? {
        format: 1,
        ...begun,
        began_at: new Date(yield* Clock.currentTimeMillis).toISOString(),
        ended_at: null,
        complete: false,
        files: {}
      }
    )
    const lost = yield* io(() => shortened(out))
    if (out.manifest().complete && !isFile && lost.length === 0)
      return yield* refuse(`${folder} holds a complete export of ${out.manifest().handle} already.`)
    if (lost.length > 0) yield* forget(out, lost)
    else if (earlier === undefined) yield* out.save({})

    yield* io(() => mkdir(out.at("files"), { recursive: true, mode: 0o700 }))
    yield* io(() => writeFile(out.at("FORMAT.md"), formatText(begun.handle, tables), { mode: 0o600 }))
    for (const { name } of exported) {
      const file = `${name}.jsonl`
      if (out.progressOf(file).whole) continue
      yield* out.settle(file)
      while (!out.progressOf(file).whole) {
        const page = source.page(begun.agent, name, out.progressOf(file).next)
        const { next, rows } = yield* Effect.flatMap(page, decodePage)
        yield* out.append(file, rows, next, next === null)
      }
    }
    if (!out.progressOf(FILES).whole) yield* exportFiles(out, source)
    if (!out.manifest().complete)
      yield* out.save({ complete: true, ended_at: new Date(yield* Clock.currentTimeMillis).toISOString() })

    const { bytes, damaged, missing } = yield* io(() => filesListed(out.at(FILES)))
    if (isFile) {
      yield* pack(folder, place, Date.parse(out.manifest().ended_at ?? ""))
      yield* io(() => rm(folder, { recursive: true }))
    }
    const whole: Exported = {
      handle: begun.handle,
      place,
      rows: exported.reduce((sum, { name }) => sum + out.progressOf(`${name}.jsonl`).rows, 0),
      files: out.progressOf(FILES).rows - missing,
      missing,
      damaged,
      bytes,
      resumed: earlier !== undefined
    }
    return whole
  }
)

/** Reads the manifest that an earlier call left in the folder. Returns undefined if there is none. */
const earlierManifest = Effect.fnUntraced(function*(folder: string) {
  const file = path.join(folder, MANIFEST)
  if (!existsSync(file)) return undefined
  return yield* Effect.mapError(
    decodeManifest(yield* io(() => readFile(file, "utf8"))),
    () => refuse(`${file} is not understood: another version of Parley wrote it.`)
  )
})

const filesListed = async (file: string) => {
  let missing = 0
  let damaged = 0
  let bytes = 0
  for await (const line of filesIn(file)) {
    if (line.missing) missing++
    if (line.damaged === true) damaged++
    bytes += line.size ?? 0
  }
  return { missing, damaged, bytes }
}

/**
 * Writes everything that the service stores about an agent into a folder. If `target` ends with `.tar`, the export is
 * written to a folder `….unfinished` next to it, then packed. Only one page at a time is in memory. Each page is synced
 * to disk. Then the manifest records the progress. A repeated call resumes there, and first truncates the files to the
 * lengths in the manifest. A file that is shorter than recorded in the manifest is written again from the beginning.
 */
export const exportAgent = Effect.fnUntraced(function*<E>(target: string, source: ExportSource<E>) {
  const place = path.resolve(target)
  const isFile = place.endsWith(".tar")
  const folder = isFile ? `${place}.unfinished` : place
  const isThere = () => isFile && existsSync(place) ? refuse(`${place} is there already.`) : Effect.void
  yield* isThere()
  const begun = yield* Effect.flatMap(source.begin, decodeBegun)
  if (!existsSync(path.join(folder, MANIFEST)) && existsSync(folder)) {
    const others = (yield* io(() => readdir(folder))).filter((name) => !isLock(name))
    if (others.length > 0) return yield* refuse(`${folder} is not empty, and holds no export.`)
  }
  return yield* Effect.scoped(Effect.gen(function*() {
    yield* locked(folder)
    yield* isThere()
    return yield* fill(place, folder, begun, source)
  }))
})
