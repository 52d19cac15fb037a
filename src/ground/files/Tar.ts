import { type FileHandle, open } from "node:fs/promises"

const BLOCK = 512
const CHUNK = 262_144
/** How many small files are read at once. */
const AT_ONCE = 16
/** The file is synced after this many bytes. Otherwise the disk would get all bytes at once, and commits of the database would wait. */
const SYNC = 4_194_304
/** The largest number of 11 octal digits. */
const MAX_SIZE = 8 ** 11 - 1

const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`

/** Splits a path into the header's two fields: up to 100 bytes at the end, and up to 155 before them. */
const fieldsOf = (name: string): readonly [prefix: string, name: string] => {
  if (Buffer.byteLength(name) <= 100) return ["", name]
  for (let slash = name.indexOf("/"); slash !== -1; slash = name.indexOf("/", slash + 1)) {
    if (Buffer.byteLength(name.slice(slash + 1)) <= 100 && slash <= 155) return [name.slice(0, slash), name.slice(slash + 1)]
  }
  throw new Error(`${name} is too long a path for a tar file`)
}

const sumOf = (header: Buffer): number => {
  let sum = 8 * 32
  for (let i = 0; i < BLOCK; i++) if (i < 148 || i >= 156) sum += header[i] ?? 0
  return sum
}

/** The header of a file of `size` bytes that was last changed at `at`, in milliseconds. */
export const headerOf = (path: string, size: number, at: number): Buffer => {
  const [prefix, name] = fieldsOf(path)
  const header = Buffer.alloc(BLOCK)
  header.write(name, 0)
  header.write(octal(0o600, 8), 100)
  header.write(octal(0, 8), 108)
  header.write(octal(0, 8), 116)
  if (size <= MAX_SIZE) header.write(octal(size, 12), 124)
  else {
    // The form of GNU tar and others: the first bit is set, and the size is in binary.
    header[124] = 0x80
    header.writeBigUInt64BE(BigInt(size), 128)
  }
  header.write(octal(Math.floor(at / 1_000), 12), 136)
  header.write("0", 156)
  header.write("ustar\x0000", 257, "latin1")
  header.write(prefix, 345)
  header.write(octal(sumOf(header), 7), 148)
  header.write(" ", 155)
  return header
}

const paddingOf = (size: number): Buffer => Buffer.alloc((BLOCK - size % BLOCK) % BLOCK)

const openOrGone = async (path: string): Promise<FileHandle | undefined> => {
  try {
    return await open(path, "r")
  } catch (error) {
    if (Reflect.get(Object(error), "code") === "ENOENT") return undefined
    throw error
  }
}

/** The bytes of a file of at most one chunk, or undefined if the file is longer. */
const readSmall = async (path: string): Promise<Buffer | "gone" | undefined> => {
  const source = await openOrGone(path)
  if (source === undefined) return "gone"
  try {
    // If one byte more than a chunk can be read, the file is longer.
    const chunk = Buffer.allocUnsafe(CHUNK + 1)
    let read = 0
    for (;;) {
      const { bytesRead } = await source.read(chunk, read, chunk.length - read, read)
      read += bytesRead
      if (read > CHUNK) return undefined
      if (bytesRead === 0) return Buffer.from(chunk.subarray(0, read))
    }
  } finally {
    await source.close()
  }
}

/** Writes a tar file (POSIX ustar) from its beginning to its end, with a few megabytes in memory at most. */
export class TarWriter {
  readonly #handle: FileHandle
  readonly #at: number
  #unsynced = 0
  bytes = 0
  entries = 0

  /** `at` is the time of all entries, in milliseconds. */
  constructor(handle: FileHandle, at: number) {
    this.#handle = handle
    this.#at = at
  }

  async #write(bytes: Buffer): Promise<void> {
    if (bytes.length === 0) return
    await this.#handle.writeFile(bytes)
    this.bytes += bytes.length
    this.#unsynced += bytes.length
    if (this.#unsynced < SYNC) return
    this.#unsynced = 0
    await this.#handle.datasync()
  }

  async text(name: string, content: string): Promise<void> {
    const bytes = Buffer.from(content)
    await this.#write(Buffer.concat([headerOf(name, bytes.length, this.#at), bytes, paddingOf(bytes.length)]))
    this.entries++
  }

  /** Adds a file (see `files`). Throws if the file does not exist. */
  async file(name: string, path: string): Promise<void> {
    if (await this.files([[name, path]]) === 0) throw new Error(`${path} is gone`)
  }

  /**
   * Adds files, each with the size that it has when it is opened, and returns how many it has added. Skips files that do not exist any
   * more. If a file grows meanwhile, its new bytes are left out. If it becomes shorter, zeros fill the rest. Several small files are read
   * at once and written together, because a busy event loop takes long for each step of a file.
   */
  async files(named: ReadonlyArray<readonly [name: string, path: string]>): Promise<number> {
    const before = this.entries
    for (let at = 0; at < named.length; at += AT_ONCE) {
      const some = named.slice(at, at + AT_ONCE)
      const read = await Promise.all(some.map(([, path]) => readSmall(path)))
      let together: Array<Buffer> = []
      for (const [i, [name, path]] of some.entries()) {
        const bytes = read[i]
        if (bytes === "gone") continue
        if (bytes instanceof Buffer) {
          together.push(headerOf(name, bytes.length, this.#at), bytes, paddingOf(bytes.length))
          this.entries++
        } else {
          await this.#write(Buffer.concat(together))
          together = []
          await this.#large(name, path)
        }
      }
      await this.#write(Buffer.concat(together))
    }
    return this.entries - before
  }

  async #large(name: string, path: string): Promise<void> {
    const source = await openOrGone(path)
    if (source === undefined) return
    try {
      const { size } = await source.stat()
      await this.#write(headerOf(name, size, this.#at))
      for (let at = 0; at < size;) {
        const chunk = Buffer.alloc(Math.min(CHUNK, size - at))
        let read = 0
        while (read < chunk.length) {
          const { bytesRead } = await source.read(chunk, read, chunk.length - read, at + read)
          if (bytesRead === 0) break
          read += bytesRead
        }
        await this.#write(chunk)
        at += chunk.length
      }
      await this.#write(paddingOf(size))
      this.entries++
    } finally {
      await source.close()
    }
  }

  /** Writes the end, and syncs the file to disk. */
  async finish(): Promise<void> {
    await this.#write(Buffer.alloc(2 * BLOCK))
    await this.#handle.sync()
  }
}

/** An entry of a tar file. `chunks` must be read to its end before the next entry is read. */
export interface TarEntry {
  readonly name: string
  readonly size: number
  readonly chunks: () => AsyncGenerator<Buffer>
}

const textAt = (header: Buffer, from: number, length: number): string => {
  const end = header.indexOf(0, from)
  return header.toString("utf8", from, end === -1 || end > from + length ? from + length : end)
}

/** Whether a path is relative and never leads upwards. `TarWriter` writes only such paths. */
const isInside = (name: string): boolean => name !== "" && !name.startsWith("/") && !name.split("/").includes("..") && !name.includes("\\")

/** The entries of a tar file that `TarWriter` has made. Throws if the file is of another kind, or ends too soon. */
export async function* entriesOf(handle: FileHandle): AsyncGenerator<TarEntry> {
  const exactly = async (at: number, length: number): Promise<Buffer> => {
    const buffer = Buffer.alloc(length)
    for (let read = 0; read < length;) {
      const { bytesRead } = await handle.read(buffer, read, length - read, at + read)
      if (bytesRead === 0) throw new Error("the file ends too soon")
      read += bytesRead
    }
    return buffer
  }
  for (let at = 0;;) {
    const header = await exactly(at, BLOCK)
    if (header.every((byte) => byte === 0)) return
    if (textAt(header, 257, 5) !== "ustar" || parseInt(textAt(header, 148, 6), 8) !== sumOf(header)) throw new Error("it is no tar file, or damaged")
    const prefix = textAt(header, 345, 155)
    const name = `${prefix === "" ? "" : `${prefix}/`}${textAt(header, 0, 100)}`
    if (!isInside(name)) throw new Error(`it has an entry ${name}`)
    const size = header[124] === 0x80 ? Number(header.readBigUInt64BE(128)) : parseInt(textAt(header, 124, 11), 8)
    const from = at + BLOCK
    yield {
      name,
      size,
      chunks: async function*() {
        for (let read = 0; read < size;) {
          const chunk = await exactly(from + read, Math.min(CHUNK, size - read))
          read += chunk.length
          yield chunk
        }
      }
    }
    at = from + Math.ceil(size / BLOCK) * BLOCK
  }
}
