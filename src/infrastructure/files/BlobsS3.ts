import { Config, type Settings } from "#infrastructure/platform/Config"
import {
  CopyObjectCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  NoSuchKey,
  PutObjectCommand,
  S3Client,
  S3ServiceException
} from "@aws-sdk/client-s3"
import { getSignedUrl } from "@aws-sdk/s3-request-presigner"
import { Clock, Effect, Layer, Redacted, Semaphore } from "effect"
import { createHash } from "node:crypto"
import { addAbortSignal, Readable } from "node:stream"
import {
  attempt,
  type BlobPart,
  Blobs,
  contentDisposition,
  objectOfFile,
  type Upload,
  uploadOfFile,
  type Verdict
} from "./Blobs.ts"

/** How many uploads may be read and checked at once. */
const MAX_CONCURRENT_CHECKS = 4

/** How many uploads with a wrong digest are remembered. */
const MAX_WRONG = 1_000

const isMissing = (error: unknown): boolean =>
  error instanceof NoSuchKey || (error instanceof S3ServiceException && error.$metadata.httpStatusCode === 404)

const missingIs = async <A, B>(run: Promise<A>, other: B): Promise<A | B> => {
  try {
    return await run
  } catch (error) {
    if (isMissing(error)) return other
    throw error
  }
}

/** How long a response may take to begin, and a connection may be silent, in milliseconds. */
const SILENCE_TIMEOUT_MS = 20_000

/** A client of the S3 store in the settings, at this endpoint. A request that takes too long fails. */
export const clientOf = (
  config: Settings,
  endpoint: string | undefined,
  timeoutMs = SILENCE_TIMEOUT_MS
): S3Client =>
  new S3Client({
    region: config.S3_REGION,
    forcePathStyle: config.S3_FORCE_PATH_STYLE === "on",
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(config.S3_ACCESS_KEY_ID === undefined || config.S3_SECRET_ACCESS_KEY === undefined ? {} : {
      credentials: {
        accessKeyId: config.S3_ACCESS_KEY_ID,
        secretAccessKey: Redacted.value(config.S3_SECRET_ACCESS_KEY)
      }
    }),
    // By default the client would sign a checksum into upload URLs, but the bytes are not known yet.
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
    requestHandler: {
      connectionTimeout: 3_000,
      requestTimeout: timeoutMs,
      // Without this, a request that takes too long only leaves a warning.
      throwOnRequestTimeout: true,
      socketTimeout: timeoutMs
    },
    maxAttempts: 3
  })

/** Reads some bytes of an object over a connection of its own (see `BlobParts`). */
export const readPart = async (
  config: Settings,
  name: string,
  from: number,
  length: number
): Promise<BlobPart | undefined> => {
  const client = clientOf(config, config.S3_INTERNAL_ENDPOINT ?? config.S3_ENDPOINT)
  const object = { Bucket: config.S3_BUCKET ?? "", Key: name }
  try {
    const head = await missingIs(client.send(new HeadObjectCommand(object)), undefined)
    const size = head?.ContentLength
    if (size === undefined) return undefined
    if (from >= size) return { size, bytes: Buffer.alloc(0) }
    const last = Math.min(size, from + length) - 1
    const found = await missingIs(
      client.send(new GetObjectCommand({ ...object, Range: `bytes=${from}-${last}` })),
      undefined
    )
    return found?.Body === undefined ? undefined : { size, bytes: Buffer.from(await found.Body.transformToByteArray()) }
  } finally {
    client.destroy()
  }
}

/**
 * Stores files in an S3 bucket. Agents upload to `uploads/` with presigned URLs that fix the announced length. At the
 * first use of a file, the server reads the upload and checks its digest. Then it copies exactly the checked version to
 * `files/`, for which no upload URL exists.
 */
export const layer: Layer.Layer<Blobs, never, Config> = Layer.effect(
  Blobs,
  Effect.gen(function*() {
    const config = yield* Config
    const checks = yield* Semaphore.make(MAX_CONCURRENT_CHECKS)
    const bucket = config.S3_BUCKET ?? ""
    const clientAt = (endpoint: string | undefined) =>
      Effect.acquireRelease(
        Effect.sync(() => clientOf(config, endpoint)),
        (client) => Effect.sync(() => client.destroy())
      )
    /** This client only signs URLs. The signature covers the host, so the host must be the one that clients use. */
    const signer = yield* clientAt(config.S3_ENDPOINT)
    const client = yield* clientAt(config.S3_INTERNAL_ENDPOINT ?? config.S3_ENDPOINT)
    // Warns at startup instead of at the first upload. The start does not wait for this check. A 403 causes no warning,
    // because credentials may be allowed to use a bucket without being allowed HeadBucket.
    yield* Effect.tryPromise({
      try: () => client.send(new HeadBucketCommand({ Bucket: bucket })),
      catch: (error) => error
    }).pipe(
      Effect.catch((error) =>
        error instanceof S3ServiceException && error.$metadata.httpStatusCode === 403
          ? Effect.void
          : Effect.logWarning(
            `The bucket ${bucket} does not respond or does not exist: uploads and downloads fail until it is available`,
            error
          )
      ),
      Effect.forkScoped
    )
    const uploadOf = (id: string) => ({ Bucket: bucket, Key: uploadOfFile(id) })
    const fileOf = (id: string) => ({ Bucket: bucket, Key: objectOfFile(id) })
    const objectOf = (name: string) => ({ Bucket: bucket, Key: name })

    const isStored = async (id: string): Promise<boolean> =>
      await missingIs(client.send(new HeadObjectCommand(fileOf(id))), undefined) !== undefined

    /**
     * The ETags of uploads whose digest is wrong. Such an upload may be used again and again, and each read of its bytes
     * would take the place of another agent's check.
     */
    const wrong = new Map<string, string>()
    const remember = (id: string, tag: string): void => {
      wrong.delete(id)
      wrong.set(id, tag)
      if (wrong.size > MAX_WRONG) wrong.delete(wrong.keys().next().value ?? "")
    }

    const isKnownWrong = async (id: string): Promise<boolean> => {
      const tag = wrong.get(id)
      if (tag === undefined) return false
      return (await missingIs(client.send(new HeadObjectCommand(uploadOf(id))), undefined))?.ETag === tag
    }

    const store = async (upload: Upload, signal: AbortSignal): Promise<Verdict> => {
      if (await isKnownWrong(upload.id)) return "checksum"
      const get = client.send(new GetObjectCommand(uploadOf(upload.id)), { abortSignal: signal })
      const found = await missingIs(get, undefined)
      if (found === undefined) return "missing"
      // On Node.js the body is a Readable.
      const body = found.Body as Readable
      if (found.ContentLength !== upload.size) {
        body.destroy()
        return "size"
      }
      const hash = createHash("sha256")
      for await (const chunk of addAbortSignal(signal, body)) hash.update(chunk as Buffer)
      if (hash.digest("hex") !== upload.sha256) {
        if (found.ETag !== undefined) remember(upload.id, found.ETag)
        return "checksum"
      }
      const copied = await missingIs(
        client.send(
          new CopyObjectCommand({
            ...fileOf(upload.id),
            CopySource: `${bucket}/uploads/${upload.id}`,
            CopySourceIfMatch: found.ETag
          })
        ),
        undefined
      )
      if (copied === undefined) return "missing"
      await client.send(new DeleteObjectCommand(uploadOf(upload.id)))
      return "stored"
    }

    const check = async (upload: Upload, signal: AbortSignal): Promise<Verdict> => {
      if (await isStored(upload.id)) return "stored"
      const verdict = await store(upload, signal)
      // Another check may have stored the file in the meantime and removed the upload.
      return verdict !== "stored" && await isStored(upload.id) ? "stored" : verdict
    }

    return Blobs.of({
      uploadUrl: ({ id, size }) =>
        Effect.flatMap(
          Clock.currentTimeMillis,
          (at) =>
            attempt(() =>
              getSignedUrl(signer, new PutObjectCommand({ ...uploadOf(id), ContentLength: size }), {
                expiresIn: config.UPLOADS_URL_SECONDS,
                signingDate: new Date(at),
                signableHeaders: new Set(["host", "content-length"])
              })
            )
        ),
      verify: (upload) => checks.withPermits(1)(attempt((signal) => check(upload, signal))),
      downloadUrl: (id, { contentType, filename }) =>
        Effect.flatMap(Clock.currentTimeMillis, (at) =>
          attempt(() =>
            getSignedUrl(
              signer,
              new GetObjectCommand({
                ...fileOf(id),
                ResponseContentType: contentType,
                ResponseContentDisposition: contentDisposition(filename)
              }),
              { expiresIn: config.DOWNLOADS_URL_SECONDS, signingDate: new Date(at) }
            )
          )),
      tidy: (id) => attempt(async () => void await client.send(new DeleteObjectCommand(uploadOf(id)))),
      remove: (id) =>
        attempt(async () => {
          await client.send(new DeleteObjectCommand(uploadOf(id)))
          await client.send(new DeleteObjectCommand(fileOf(id)))
        }),
      putObject: (name, bytes, contentType) =>
        attempt(async () =>
          void await client.send(new PutObjectCommand({ ...objectOf(name), Body: bytes, ContentType: contentType }))
        ),
      getObject: (name) =>
        attempt(async () => {
          const found = await missingIs(client.send(new GetObjectCommand(objectOf(name))), undefined)
          return found?.Body === undefined ? undefined : Buffer.from(await found.Body.transformToByteArray())
        }),
      removeObject: (name) => attempt(async () => void await client.send(new DeleteObjectCommand(objectOf(name)))),
      signedFiles: undefined
    })
  })
)
