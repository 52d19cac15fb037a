import { Context, Effect, Layer, type Scope } from "effect"
import type { Readable } from "node:stream"
import { Config } from "../platform/Config.ts"
import { Ids } from "../platform/Ids.ts"
import { Secrets } from "../platform/Secrets.ts"
import { isBlank, withoutControls } from "../wire/Text.ts"
import { type Forbidden, WireError } from "../wire/WireError.ts"

export class StorageUnavailable extends WireError<StorageUnavailable>()("StorageUnavailable", {
  code: "STORAGE_UNAVAILABLE",
  status: 503,
  message: "The file store cannot be reached right now: try again.",
  retryAfterMs: 2000
}) {}

export class SizeMismatch extends WireError<SizeMismatch>()("SizeMismatch", {
  code: "SIZE_MISMATCH",
  status: 400,
  message: "These are not as many bytes as were announced."
}) {}

export class ChecksumMismatch extends WireError<ChecksumMismatch>()("ChecksumMismatch", {
  code: "CHECKSUM_MISMATCH",
  status: 400,
  message: "These bytes do not have the SHA-256 that was announced."
}) {}

export class AlreadyUploaded extends WireError<AlreadyUploaded>()("AlreadyUploaded", {
  code: "ALREADY_UPLOADED",
  status: 409,
  message: "This file has been uploaded already; it does not change any more."
}) {}

/** A file that somebody announced. */
export interface Upload {
  readonly id: string
  readonly size: number
  /** 64 hexadecimal digits. */
  readonly sha256: string
}

/** How a file is given out, whatever it was uploaded as. */
export interface Presentation {
  readonly contentType: string
  readonly filename: string
}

/** What has become of an announced file; `stored` never changes any more. */
export type Verdict = "stored" | "missing" | "size" | "checksum"

/** A file that this server gives out itself. */
export interface Opened {
  readonly stream: Readable
  readonly size: number
  readonly contentType: string
  readonly disposition: string
}

/** What this server does itself where the store has no URLs of its own. */
export interface SignedFiles {
  /** Takes the bytes of an upload: streamed, bounded by the announced size, kept only if they are the announced ones. */
  readonly accept: (
    token: string,
    bytes: Readable,
    announced: number | undefined
  ) => Effect.Effect<void, Forbidden | SizeMismatch | ChecksumMismatch | AlreadyUploaded | StorageUnavailable>
  /** Closed with the scope, read or not. */
  readonly open: (token: string) => Effect.Effect<Opened, Forbidden | StorageUnavailable, Scope.Scope>
}

/**
 * Bytes outside of the database: files of agents, which travel by URLs that are
 * signed for one file and one purpose, and small public objects of the server's
 * own. What `verify` has once called stored is immutable: no URL that was ever
 * handed out can change it. Every operation may be repeated.
 */
export class Blobs extends Context.Service<Blobs, {
  /** Where exactly these bytes may be put with PUT and no key, for 900 s. */
  readonly uploadUrl: (upload: Upload) => Effect.Effect<string, StorageUnavailable>
  readonly verify: (upload: Upload) => Effect.Effect<Verdict, StorageUnavailable>
  /** Where a stored file can be fetched without a key, as often as wanted for 300 s. */
  readonly downloadUrl: (id: string, as: Presentation) => Effect.Effect<string, StorageUnavailable>
  /** Once the upload's URL has expired: removes what was put there after the file was stored. */
  readonly tidy: (id: string) => Effect.Effect<void, StorageUnavailable>
  /** Removes the file and whatever was put for it. */
  readonly remove: (id: string) => Effect.Effect<void, StorageUnavailable>
  /** Stores an object of the server's own; the same name always has the same bytes. */
  readonly putObject: (name: string, bytes: Buffer, contentType: string) => Effect.Effect<void, StorageUnavailable>
  readonly getObject: (name: string) => Effect.Effect<Buffer | undefined, StorageUnavailable>
  readonly removeObject: (name: string) => Effect.Effect<void, StorageUnavailable>
  /** Undefined where the store serves its URLs itself. */
  readonly signedFiles: SignedFiles | undefined
}>()("parley/files/Blobs") {
  /** S3 if a bucket is set, else files in DATA_DIR. The S3 client is loaded only then: it is large. */
  static readonly layer: Layer.Layer<Blobs, never, Config | Ids | Secrets> = Layer.unwrap(Effect.gen(function*() {
    const config = yield* Config
    return config.S3_BUCKET === undefined
      ? (yield* Effect.promise(() => import("./BlobsDisk.ts"))).layer
      : (yield* Effect.promise(() => import("./BlobsS3.ts"))).layer
  }))
}

/** A store that fails is logged, and 503 to the caller. */
export const attempt = <A>(run: () => Promise<A>): Effect.Effect<A, StorageUnavailable> =>
  Effect.catch(
    Effect.tryPromise({ try: run, catch: (error) => error }),
    (error) => Effect.andThen(Effect.logError("The file store failed", error), Effect.fail(new StorageUnavailable()))
  )

/** Of a file whose own name leaves nothing to call it by. */
const NAMELESS = "file"

/** A name to save a file under: of a path its last part that is a name, and nothing in it that is not read. */
const savedAs = (filename: string): string =>
  withoutControls(filename).split(/[/\\]|^[A-Za-z]:/)
    .map((part) => part.trim())
    .findLast((part) => !isBlank(part) && !/^\.+$/.test(part)) ?? NAMELESS

/** The header that makes a browser save a file under its name and never show it (RFC 6266, RFC 8187). */
export const contentDisposition = (filename: string): string => {
  const name = savedAs(filename)
  const plain = name.replace(/[^\x20-\x7e]|["%]/gu, "_")
  const exact = encodeURIComponent(name).replace(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)
  return `attachment; filename="${plain}"; filename*=UTF-8''${exact}`
}
