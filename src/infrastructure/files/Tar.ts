import { Data, Effect, Stream } from "effect"
import { Tar } from "effect/encoding"
import { type FileHandle, open, rename, rm } from "node:fs/promises"
import { unlessMissing } from "./Missing.ts"

const CHUNK_BYTES = 262_144
/** How many files are opened in parallel. */
const READ_BATCH_SIZE = 16
/**
 * After how many written bytes the file is synced. Otherwise all bytes would reach the disk at once, and commits of the
 * database would wait.
 */
const SYNC_EVERY_BYTES = 4_194_304

/** A tar file could not be written, or a file could not be packed into it. */
export class TarFailed extends Data.TaggedError("TarFailed")<{ readonly message: string }> {}

const failed = (error: unknown) => new TarFailed({ message: error instanceof Error ? error.message : String(error) })

const io = <A>(run: () => Promise<A>): Effect.Effect<A, TarFailed> => Effect.tryPromise({ try: run, catch: failed })

/** The entries of a tar file in the order in which they are written. */
export type TarEntries<E = never> = Stream.Stream<Tar.Entry<TarFailed>, TarFailed | E>

/** An open file that is larger than a chunk. `size` is its size when it was opened. */
interface LargeFile {
  readonly handle: FileHandle
  readonly size: number
}

/**
 * Reads `length` bytes, beginning at the offset `at`. If the file has become shorter, the rest is filled with zeros.
 */
const bytesAt = async (handle: FileHandle, at: number, length: number): Promise<Buffer> => {
  const bytes = Buffer.alloc(length)
  for (let read = 0; read < length;) {
    const { bytesRead } = await handle.read(bytes, read, length - read, at + read)
    if (bytesRead === 0) break
    read += bytesRead
  }
  return bytes
}

async function* chunksOf({ handle, size }: LargeFile): AsyncGenerator<Buffer> {
  for (let at = 0; at < size; at += CHUNK_BYTES) yield await bytesAt(handle, at, Math.min(CHUNK_BYTES, size - at))
}

/**
 * Opens a file. A file of at most one chunk is read and closed at once. Returns undefined if the file does not exist.
 */
const openFile = async (path: string): Promise<Buffer | LargeFile | undefined> => {
  const handle = await unlessMissing(open(path, "r"))
  if (handle === undefined) return undefined
  let isLarge = false
  try {
    const { size } = await handle.stat()
    isLarge = size > CHUNK_BYTES
    return isLarge ? { handle, size } : await bytesAt(handle, 0, size)
  } finally {
    if (!isLarge) await handle.close()
  }
}

/**
 * Makes a list with the entry of a file. If the file does not exist and `missing` is "skip", the list is empty. A large
 * file is closed when the scope closes.
 */
const entryAt = (name: string, path: string, missing: "skip" | "fail") =>
  Effect.flatMap(
    Effect.acquireRelease(io(() => openFile(path)), (file) =>
      file === undefined || Buffer.isBuffer(file) ? Effect.void : Effect.promise(() => file.handle.close())),
    (file): Effect.Effect<ReadonlyArray<Tar.Entry<TarFailed>>, TarFailed> => {
      if (Buffer.isBuffer(file))
        return Effect.succeed([Tar.file(name, file)])
      if (file !== undefined)
        return Effect.succeed([Tar.fileStream(name, file.size, Stream.fromAsyncIterable(chunksOf(file), failed))])
      return missing === "skip" ? Effect.succeed([]) : Effect.fail(failed(`${path} is gone`))
    }
  )

/**
 * The entries of files. The size of an entry is the size of its file when it was opened. If a file grows later, its new
 * bytes are left out. Several files are opened in parallel, and the small ones among them are read immediately, because
 * each file operation takes a long time while the event loop is busy.
 */
export const filesAt = (
  named: ReadonlyArray<readonly [name: string, path: string]>,
  missing: "skip" | "fail"
): TarEntries =>
  Stream.fromIterable(named).pipe(
    Stream.grouped(READ_BATCH_SIZE),
    Stream.flatMap((some) =>
      Stream.unwrap(Effect.map(
        Effect.forEach(some, ([name, path]) => entryAt(name, path, missing), { concurrency: "unbounded" }),
        (entries) => Stream.fromIterable(entries.flat())
      ))
    )
  )

/**
 * Writes a tar file that only its owner can read, and returns its size in bytes. It uses at most a few megabytes of
 * memory. The bytes are written to `unfinished` and synced to disk. Then the complete file is renamed to `file`. `at`
 * is the modification time of all entries, in milliseconds.
 */
export const writeTar = <E>(
  file: string,
  unfinished: string,
  at: number,
  entries: TarEntries<E>
): Effect.Effect<number, E | TarFailed> =>
  Effect.scoped(Effect.gen(function*() {
    const handle = yield* Effect.acquireRelease(io(() => open(unfinished, "w", 0o600)), (handle, exit) =>
      Effect.promise(async () => {
        await handle.close()
        if (exit._tag === "Failure")
          await rm(unfinished, { force: true })
      }))
    let bytes = 0
    let unsynced = 0
    yield* entries.pipe(
      Stream.map(({ body, header }): Tar.Entry<TarFailed> => ({
        body,
        header: { ...header, mode: 0o600, mtime: new Date(at) }
      })),
      Stream.pipeThroughChannel(Tar.encode<E | TarFailed, unknown, Tar.Entry<TarFailed>>()),
      // Up to 16 chunks are read while other chunks are being written. The next write takes all of them.
      Stream.buffer({ capacity: 16 }),
      Stream.runForEachArray((chunks) =>
        io(async () => {
          const together = Buffer.concat(chunks)
          await handle.writeFile(together)
          bytes += together.length
          unsynced += together.length
          if (unsynced < SYNC_EVERY_BYTES)
            return
          unsynced = 0
          await handle.datasync()
        })
      ),
      Effect.mapError((error) =>
        Tar.isTarError(error) ? failed(error) : error
      )
    )
    yield* io(async () => {
      await handle.sync()
      await rename(unfinished, file)
    })
    return bytes
  }))
