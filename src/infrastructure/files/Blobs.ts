import type { Settings } from "#infrastructure/platform/Config"
import { FullDisk, isNoSpace } from "#infrastructure/platform/disk/DiskSpace"
import { plainName } from "#infrastructure/wire/Name"
import { type Forbidden, WireError } from "#infrastructure/wire/WireError"
import { Context, Effect, type Scope } from "effect"
import * as path from "node:path"
import type { Readable } from "node:stream"

export class StorageUnavailable extends WireError<StorageUnavailable>()("StorageUnavailable", {
  code: "STORAGE_UNAVAILABLE",
  status: 503,
  message: "The file store cannot be reached right now: try again.",
  retryAfterMs: 2000
}) {}

export class SizeMismatch extends WireError<SizeMismatch>()("SizeMismatch", {
  code: "SIZE_MISMATCH",
  status: 400,
  message: "The number of bytes is not the announced size."
}) {}

export class ChecksumMismatch extends WireError<ChecksumMismatch>()("ChecksumMismatch", {
  code: "CHECKSUM_MISMATCH",
  status: 400,
  message: "These bytes do not have the SHA-256 that was announced."
}) {}

export class AlreadyUploaded extends WireError<AlreadyUploaded>()("AlreadyUploaded", {
  code: "ALREADY_UPLOADED",
  status: 409,
  message: "This file was uploaded already, and cannot be changed."
}) {}

export class RangeNotSatisfiable extends WireError<RangeNotSatisfiable>()("RangeNotSatisfiable", {
  code: "RANGE_NOT_SATISFIABLE",
  status: 416,
  message: "The file does not contain the bytes of this Range. Content-Range gives the size of the file."
}) {}

/** A file whose size and SHA-256 an agent announced before uploading it. */
export interface Upload {
  readonly id: string
  readonly size: number
  /** 64 hexadecimal digits. */
  readonly sha256: string
}

/** The content type and the file name that a download reports. They are independent of the upload. */
export interface Presentation {
  readonly contentType: string
  readonly filename: string
}

/**
 * The state of an announced file. `size` and `checksum` mean that the uploaded bytes do not match the announcement.
 * `missing` means that nothing was uploaded. `stored` is final.
 */
export type Verdict = "stored" | "missing" | "size" | "checksum"

/** An open file that this server itself sends to the client. */
export interface Opened {
  /**
   * Returns the bytes of the file, or only those from `first` to `last`, both included. Must be called at most once.
   */
  readonly bytes: (part?: { readonly first: number; readonly last: number }) => Readable
  readonly size: number
  /** The ETag of the file, which is constant because a stored file never changes. */
  readonly etag: string
  readonly contentType: string
  readonly disposition: string
}

/** Some bytes of an object, and the size of the whole object. */
export interface BlobPart {
  readonly size: number
  readonly bytes: Buffer
}

/** Uploads and downloads that this server handles itself, for a store that cannot serve signed URLs. */
export interface SignedFiles {
  /**
   * Receives an upload as a stream of at most the announced size. The file is stored only if its size and SHA-256
   * match. `announced` is the Content-Length.
   */
  readonly accept: (
    token: string,
    bytes: Readable,
    announced: number | undefined
  ) => Effect.Effect<void, Forbidden | SizeMismatch | ChecksumMismatch | AlreadyUploaded | StorageUnavailable>
  /** Opens a file for download. The file is closed when the scope closes. */
  readonly open: (token: string) => Effect.Effect<Opened, Forbidden | StorageUnavailable, Scope.Scope>
}

/** Returns the folder of the store. Only for a store that is a folder. */
export const folderOf = (config: Settings): string =>
  config.SHARED_DIR === undefined ? path.resolve(config.DATA_DIR, "blobs") : path.resolve(config.SHARED_DIR)

/** How long an upload that began just before its URL expired may take, in milliseconds. */
export const LAST_BYTES_MS = 300_000

/** Returns the name of the object that holds a stored file. */
export const objectOfFile = (id: string): string => `files/${id}`

/**
 * Returns the name of the object that holds an uploaded file before its first use, in a store that does not check
 * uploads on arrival.
 */
export const uploadOfFile = (id: string): string => `uploads/${id}`

/**
 * The store for bytes outside the database. It contains files of agents and small public objects of the server. Agents
 * upload and download files by signed URLs; each URL is valid for one file and one purpose. After `verify` has returned
 * `stored`, no signed URL can change the file. Every operation is idempotent.
 */
export class Blobs extends Context.Service<Blobs, {
  /** Makes a URL to which exactly these bytes can be uploaded with PUT, without an API key, for UPLOADS_URL_SECONDS. */
  readonly uploadUrl: (upload: Upload) => Effect.Effect<string, StorageUnavailable>
  /** Compares the uploaded bytes with the announced size and SHA-256. If they match, the file is stored for good. */
  readonly verify: (upload: Upload) => Effect.Effect<Verdict, StorageUnavailable>
  /**
   * Makes a URL from which a stored file can be downloaded without an API key, any number of times, for
   * DOWNLOADS_URL_SECONDS.
   */
  readonly downloadUrl: (id: string, as: Presentation) => Effect.Effect<string, StorageUnavailable>
  /**
   * Removes bytes that were uploaded again after the file was stored. Must be called after the upload's URL has
   * expired.
   */
  readonly tidy: (id: string) => Effect.Effect<void, StorageUnavailable>
  /** Removes the file and its upload. */
  readonly remove: (id: string) => Effect.Effect<void, StorageUnavailable>
  /** Stores an object of the server. Every call with the same name must store the same bytes. */
  readonly putObject: (name: string, bytes: Buffer, contentType: string) => Effect.Effect<void, StorageUnavailable>
  readonly getObject: (name: string) => Effect.Effect<Buffer | undefined, StorageUnavailable>
  readonly removeObject: (name: string) => Effect.Effect<void, StorageUnavailable>
  /** Undefined if the store itself serves its signed URLs. */
  readonly signedFiles: SignedFiles | undefined
}>()("parley/files/Blobs") {}

/**
 * Makes a function that runs an operation of the store at `place`. The signal that the operation gets is aborted when
 * the caller is interrupted. A failure is logged and becomes `StorageUnavailable`
 * (503). If the disk is full, the log line names the place.
 */
export const attemptAt =
  (place: string) => <A>(run: (signal: AbortSignal) => Promise<A>): Effect.Effect<A, StorageUnavailable> =>
    Effect.catch(
      Effect.tryPromise({ try: run, catch: (error) => error }),
      (error) =>
        isNoSpace(error)
          ? Effect.flatMap(FullDisk, (disks) =>
            Effect.andThen(
              disks.report("files", `no space left on ${place}`),
              Effect.fail(new StorageUnavailable({ message: "The file store has no space left: try again later." }))
            ))
          : Effect.andThen(Effect.logError("The file store failed", error), Effect.fail(new StorageUnavailable()))
    )

/** Runs an operation of a store that is not a folder. */
export const attempt = attemptAt("the file store")

/** The file name that is used if no part of the given name is usable. */
const NAMELESS = "file"

/**
 * Returns the name under which a download saves a file. It is the last usable part of the given path, without control
 * characters and invisible characters.
 */
export const savedAs = (filename: string): string =>
  filename.split(/[/\\]|^[A-Za-z]:/)
    .map(plainName)
    .findLast((part) => !/^\.*$/.test(part)) ?? NAMELESS

/**
 * Returns the Content-Disposition header that makes a browser save a file under its name instead of showing it (RFC
 * 6266, RFC 8187).
 */
export const contentDisposition = (filename: string): string => {
  const name = savedAs(filename)
  const plain = name.replace(/[^\x20-\x7e]|["%]/gu, "_")
  const exact = encodeURIComponent(name).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`
  )
  return `attachment; filename="${plain}"; filename*=UTF-8''${exact}`
}
