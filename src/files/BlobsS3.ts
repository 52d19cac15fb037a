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
import { Readable } from "node:stream"
import { attempt, Blobs, contentDisposition, type Upload, type Verdict } from "./Blobs.ts"
import { Config } from "../platform/Config.ts"

/** Uploads that are read to be checked at the same time. */
const CHECKS = 4

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

/**
 * A bucket. Agents put to `uploads/`, by URLs of the store's own that are signed with
 * the announced length. At its first use a file is read, and the very version that
 * had the announced digest copied to `files/`, which no URL for putting reaches.
 */
export const layer: Layer.Layer<Blobs, never, Config> = Layer.effect(
  Blobs,
  Effect.gen(function*() {
    const config = yield* Config
    const checks = yield* Semaphore.make(CHECKS)
    const bucket = config.S3_BUCKET ?? ""
    const clientAt = (endpoint: string | undefined) =>
      Effect.acquireRelease(
        Effect.sync(() =>
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
            // A checksum of the bytes that are not there yet must not be signed into a URL.
            requestChecksumCalculation: "WHEN_REQUIRED",
            responseChecksumValidation: "WHEN_REQUIRED",
            requestHandler: { connectionTimeout: 3_000, requestTimeout: 20_000 },
            maxAttempts: 3
          })
        ),
        (client) => Effect.sync(() => client.destroy())
      )
    /** Signs and never calls: the host of an address is a part of its signature. */
    const signer = yield* clientAt(config.S3_ENDPOINT)
    const client = yield* clientAt(config.S3_INTERNAL_ENDPOINT ?? config.S3_ENDPOINT)
    // Said at the start, not by the first upload; nobody waits for it. Who may use a bucket need not be allowed to ask for it (403).
    yield* Effect.tryPromise({ try: () => client.send(new HeadBucketCommand({ Bucket: bucket })), catch: (error) => error }).pipe(
      Effect.catch((error) =>
        error instanceof S3ServiceException && error.$metadata.httpStatusCode === 403
          ? Effect.void
          : Effect.logWarning(`The bucket ${bucket} does not answer, or is not there: no files until it is`, error)
      ),
      Effect.forkScoped
    )
    const uploadOf = (id: string) => ({ Bucket: bucket, Key: `uploads/${id}` })
    const fileOf = (id: string) => ({ Bucket: bucket, Key: `files/${id}` })
    const objectOf = (name: string) => ({ Bucket: bucket, Key: name })

    const check = async (upload: Upload): Promise<Verdict> => {
      const stored = await missingIs(client.send(new HeadObjectCommand(fileOf(upload.id))), undefined)
      if (stored !== undefined) return "stored"
      const found = await missingIs(client.send(new GetObjectCommand(uploadOf(upload.id))), undefined)
      if (found === undefined) return "missing"
      // In Node the body is a stream of Node's.
      const body = found.Body as Readable
      if (found.ContentLength !== upload.size) {
        body.destroy()
        return "size"
      }
      const hash = createHash("sha256")
      for await (const chunk of body) hash.update(chunk as Buffer)
      if (hash.digest("hex") !== upload.sha256) return "checksum"
      await client.send(
        new CopyObjectCommand({
          ...fileOf(upload.id),
          CopySource: `${bucket}/uploads/${upload.id}`,
          CopySourceIfMatch: found.ETag
        })
      )
      await client.send(new DeleteObjectCommand(uploadOf(upload.id)))
      return "stored"
    }

    return Blobs.of({
      uploadUrl: ({ id, size }) =>
        Effect.flatMap(Clock.currentTimeMillis, (at) =>
          attempt(() =>
            getSignedUrl(signer, new PutObjectCommand({ ...uploadOf(id), ContentLength: size }), {
              expiresIn: config.UPLOADS_URL_SECONDS,
              signingDate: new Date(at),
              signableHeaders: new Set(["host", "content-length"])
            })
          )),
      verify: (upload) => checks.withPermits(1)(attempt(() => check(upload))),
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
