import { Secrets } from "#infrastructure/database/Secrets"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { Forbidden } from "#infrastructure/wire/WireError"
import { Clock, Effect, Layer } from "effect"
import { createHash, createHmac, timingSafeEqual } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { Readable } from "node:stream"
import {
  AlreadyUploaded,
  attemptAt,
  Blobs,
  ChecksumMismatch,
  contentDisposition,
  folderOf,
  type Opened,
  type Presentation,
  SizeMismatch,
  StorageUnavailable,
  type Upload
} from "./Blobs.ts"
import { unlessMissing } from "./Missing.ts"

/** The claims of a signed URL. `op` is signed too, so an upload URL cannot be used for a download or the reverse. */
type Grant =
  | ({ readonly op: "put"; readonly until: number } & Upload)
  | ({ readonly op: "get"; readonly until: number; readonly id: string } & Presentation)

/** Reads and discards the rest of an upload, up to 32 MiB, so that the client can read the response. */
const discard = (bytes: Readable): void => {
  let size = 0
  bytes.on("data", (chunk: Buffer) => {
    size += chunk.length
    if (size > 33_554_432) bytes.destroy()
  })
}

const syncFolder = async (folder: string): Promise<void> => {
  const handle = await fs.open(folder, "r")
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/**
 * Opens a file. Returns undefined if it does not exist. The stream of its bytes closes the file when the stream ends or
 * is destroyed.
 */
const openFile = async (
  file: string
): Promise<Pick<Opened, "bytes" | "size"> & { readonly close: () => Promise<void> } | undefined> => {
  const handle = await unlessMissing(fs.open(file, "r"))
  if (handle === undefined) return undefined
  let stream: Readable | undefined
  try {
    return {
      size: (await handle.stat()).size,
      bytes: (part) =>
        stream = handle.createReadStream(part === undefined ? {} : { start: part.first, end: part.last }),
      close: async () => {
        if (stream === undefined) await handle.close()
        else stream.destroy()
      }
    }
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** After how many milliseconds an unfinished upload counts as abandoned. No upload takes a day. */
const ABANDONED_MS = 86_400_000

/** Removes the files in a folder that were last modified before a time. */
const sweep = async (folder: string, before: number): Promise<void> => {
  for (const name of await fs.readdir(folder)) {
    const file = path.join(folder, name)
    if ((await fs.stat(file)).mtimeMs < before) await fs.rm(file, { recursive: true, force: true })
  }
}

/**
 * Stores files in DATA_DIR/blobs, which one process uses, or in SHARED_DIR, which all nodes share. A file appears under
 * its name only after it is complete, checked and synced to disk. Until then it is in `incoming`.
 *
 * At its start, a server removes unfinished uploads of servers that were killed. In DATA_DIR it removes all of them. In
 * SHARED_DIR it removes only those older than a day, because another node may be writing the others. The signed URLs
 * point to paths of this server that begin with `signedUrlsPath`.
 */
export const layer = (signedUrlsPath: string): Layer.Layer<Blobs, never, Config | Ids | Secrets> =>
  Layer.effect(
    Blobs,
    Effect.gen(function*() {
      const config = yield* Config
      const ids = yield* Ids
      const { signedUrls } = yield* Secrets
      const root = folderOf(config)
      const attempt = attemptAt(root)
      const incoming = path.join(root, "incoming")
      const fileOf = (id: string) => path.join(root, "files", id)
      const objectOf = (name: string) => path.join(root, name)

      const abandoned = config.SHARED_DIR === undefined ? Infinity : (yield* Clock.currentTimeMillis) - ABANDONED_MS
      yield* Effect.promise(() => sweep(incoming, abandoned).catch(() => undefined))

      const macOf = (body: string) => createHmac("sha256", signedUrls).update(body).digest()
      const sign = (grant: Grant): string => {
        const body = Buffer.from(JSON.stringify(grant)).toString("base64url")
        return `${publicUrl(config)}${signedUrlsPath}${body}.${macOf(body).toString("base64url")}`
      }
      const read = <Op extends Grant["op"]>(
        token: string,
        op: Op,
        at: number
      ): Extract<Grant, { op: Op }> | undefined => {
        const [body = "", mac = "", ...rest] = token.split(".")
        const given = Buffer.from(mac, "base64url")
        const own = macOf(body)
        if (rest.length > 0 || given.length !== own.length || !timingSafeEqual(given, own)) return undefined
        // Only a text that `sign` made has a valid signature.
        const grant = JSON.parse(Buffer.from(body, "base64url").toString("utf8")) as Grant
        return grant.op === op && grant.until > at ? grant as Extract<Grant, { op: Op }> : undefined
      }
      const forbidden = () =>
        new Forbidden({ message: "The signature of this URL does not allow this request, or the URL has expired." })

      const sizeOf = async (id: string): Promise<number | undefined> => (await unlessMissing(fs.stat(fileOf(id))))?.size

      /**
       * Writes a temporary file, syncs it, and renames it to `target`. If `write` returns a refusal, the temporary file
       * is removed and the refusal is returned.
       */
      const store = async <R>(
        target: string,
        write: (handle: fs.FileHandle) => Promise<R | undefined>
      ): Promise<R | undefined> => {
        await fs.mkdir(incoming, { recursive: true })
        await fs.mkdir(path.dirname(target), { recursive: true })
        const temporary = path.join(incoming, ids.bytes(12).toString("hex"))
        try {
          const handle = await fs.open(temporary, "wx")
          try {
            const refusal = await write(handle)
            if (refusal !== undefined) return refusal
            await handle.sync()
          } finally {
            await handle.close()
          }
          await fs.rename(temporary, target)
          await syncFolder(path.dirname(target))
          return undefined
        } finally {
          await fs.rm(temporary, { force: true })
        }
      }

      const receive = (bytes: Readable, upload: Upload) => async (handle: fs.FileHandle) => {
        const hash = createHash("sha256")
        let size = 0
        let hasFailed = false
        const write = async (chunk: Buffer): Promise<void> => {
          try {
            await handle.writeFile(chunk)
          } catch (error) {
            hasFailed = true
            throw error
          }
        }
        try {
          for await (const chunk of bytes.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
            size += chunk.length
            if (size > upload.size) {
              discard(bytes)
              return new SizeMismatch()
            }
            hash.update(chunk)
            await write(chunk)
          }
        } catch (error) {
          if (hasFailed) discard(bytes)
          // The client disconnected during the upload.
          else if (bytes.errored !== null || bytes.destroyed) return new SizeMismatch()
          throw error
        }
        if (size !== upload.size) return new SizeMismatch()
        return hash.digest("hex") === upload.sha256 ? undefined : new ChecksumMismatch()
      }

      return Blobs.of({
        uploadUrl: ({ id, sha256, size }) =>
          Effect.map(
            Clock.currentTimeMillis,
            (at) => sign({ op: "put", until: at + config.UPLOADS_URL_SECONDS * 1000, id, size, sha256 })
          ),
        verify: ({ id }) => attempt(async () => (await sizeOf(id)) === undefined ? "missing" : "stored"),
        downloadUrl: (id, { contentType, filename }) =>
          Effect.map(
            Clock.currentTimeMillis,
            (at) => sign({ op: "get", until: at + config.DOWNLOADS_URL_SECONDS * 1000, id, contentType, filename })
          ),
        tidy: () => Effect.void,
        remove: (id) => attempt(() => fs.rm(fileOf(id), { force: true })),
        putObject: (name, bytes) => attempt(() => store(objectOf(name), (handle) => handle.writeFile(bytes))),
        getObject: (name) => attempt(() => unlessMissing(fs.readFile(objectOf(name)))),
        removeObject: (name) => attempt(() => fs.rm(objectOf(name), { force: true })),
        signedFiles: {
          accept: Effect.fnUntraced(function*(token, bytes, announced) {
            // Without a listener, a client that disconnects while nothing reads the stream would crash the process.
            bytes.on("error", () => {})
            const upload = read(token, "put", yield* Clock.currentTimeMillis)
            if (upload === undefined) return yield* forbidden()
            if ((yield* attempt(() => sizeOf(upload.id))) !== undefined) return yield* new AlreadyUploaded()
            if (announced !== undefined && announced !== upload.size) return yield* new SizeMismatch()
            const refusal = yield* attempt(() => store(fileOf(upload.id), receive(bytes, upload)))
            if (refusal !== undefined) return yield* refusal
          }),
          open: Effect.fnUntraced(function*(token) {
            const grant = read(token, "get", yield* Clock.currentTimeMillis)
            if (grant === undefined) return yield* forbidden()
            const opened = yield* Effect.acquireRelease(
              attempt(() => openFile(fileOf(grant.id))),
              (opened) => Effect.promise(async () => opened?.close())
            )
            if (opened === undefined)
              return yield* new StorageUnavailable({ message: "The file store does not have this file." })
            const { bytes, size } = opened
            return {
              bytes,
              size,
              etag: `"${grant.id}"`,
              contentType: grant.contentType,
              disposition: contentDisposition(grant.filename)
            }
          })
        }
      })
    })
  )
