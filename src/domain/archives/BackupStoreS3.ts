import { clientOf } from "#infrastructure/files/BlobsS3"
import type { Settings } from "#infrastructure/platform/Config"
import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  paginateListObjectsV2,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand
} from "@aws-sdk/client-s3"
import { Clock, Effect } from "effect"
import { createHash } from "node:crypto"
import { createReadStream } from "node:fs"
import { type FileHandle, open, rm } from "node:fs/promises"
import type { Readable } from "node:stream"
import { refusedBy } from "./Backup.ts"
import { type BackupNames, type BackupStore, stagedIn, stageIn } from "./BackupStore.ts"

/** The smallest size of a part of an upload. The client hashes a part at once, on the thread that serves clients. */
const MIN_PART_BYTES = 8 * 1024 * 1024
/** S3 takes 10,000 parts. */
const MAX_PARTS = 9_000
/** How long a request for a backup may take to begin its response, and a connection may be silent, in milliseconds. */
const TIMEOUT_MS = 120_000

/** Ends the name of an object that says that a backup was uploaded and read back. Its content is the SHA-256. */
const DIGEST = ".sha256"

/** The bucket and the prefix of `s3://BUCKET/PREFIX`. The prefix is empty, or ends with a slash. */
export const placeIn = (url: string): { readonly bucket: string; readonly prefix: string } => {
  const [bucket = "", ...folders] = url.slice("s3://".length).split("/").filter((part) => part !== "")
  return { bucket, prefix: folders.map((folder) => `${folder}/`).join("") }
}

const digestOf = async (stream: Readable): Promise<string> => {
  const hash = createHash("sha256")
  for await (const chunk of stream) hash.update(chunk as Buffer)
  return hash.digest("hex")
}

/** Reads the next part of a file; it is shorter than `into` at the end. */
const nextPart = async (handle: FileHandle, into: Buffer): Promise<Buffer> => {
  let length = 0
  while (length < into.length) {
    const { bytesRead } = await handle.read(into, length, into.length - length)
    if (bytesRead === 0) break
    length += bytesRead
  }
  return into.subarray(0, length)
}

interface StoredObject {
  readonly Bucket: string
  readonly Key: string
}

/** A client whose requests end when the signal is given. */
interface Session {
  readonly client: S3Client
  readonly abortSignal: AbortSignal
}

const upload = async ({ abortSignal, client }: Session, object: StoredObject, file: string): Promise<void> => {
  const { UploadId } = await client.send(new CreateMultipartUploadCommand(object), { abortSignal })
  const handle = await open(file, "r")
  try {
    const { size } = await handle.stat()
    const buffer = Buffer.allocUnsafe(Math.max(MIN_PART_BYTES, Math.ceil(size / MAX_PARTS)))
    const Parts: Array<CompletedPart> = []
    for (let part = await nextPart(handle, buffer); part.length > 0; part = await nextPart(handle, buffer)) {
      const PartNumber = Parts.length + 1
      const { ETag } = await client.send(new UploadPartCommand({ ...object, UploadId, PartNumber, Body: part }), {
        abortSignal
      })
      Parts.push({ ETag, PartNumber })
    }
    await client.send(new CompleteMultipartUploadCommand({ ...object, UploadId, MultipartUpload: { Parts } }), {
      abortSignal
    })
  } finally {
    await handle.close()
  }
}

/** Runs requests with a client of their own. An interruption ends them. */
const withClient = <A>(config: Settings, run: (session: Session) => Promise<A>) =>
  Effect.tryPromise({
    try: async (abortSignal) => {
      const client = clientOf(config, config.S3_INTERNAL_ENDPOINT ?? config.S3_ENDPOINT, TIMEOUT_MS)
      try {
        return await run({ client, abortSignal })
      } finally {
        client.destroy()
      }
    },
    catch: refusedBy
  })

/**
 * Keeps backups in an S3 bucket. `folder` is where new ones are written first. A backup counts when the object with its
 * digest is there, which is written after the backup was read back.
 */
export const inBucket = (config: Settings, url: string, folder: string, names: BackupNames): BackupStore => {
  const { bucket, prefix } = placeIn(url)
  const objectOf = (name: string): StoredObject => ({ Bucket: bucket, Key: prefix + name })

  const objects = async ({ abortSignal, client }: Session) => {
    const found = new Map<string, number>()
    for await (
      const page of paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: `${prefix}parley-` }, { abortSignal })
    ) {
      for (const { Key, Size } of page.Contents ?? []) found.set((Key ?? "").slice(prefix.length), Size ?? 0)
    }
    return found
  }

  /** Removes what attempts have left that did not come to their end. Parts of an upload are kept and paid for. */
  const tidy = async (session: Session) => {
    const { abortSignal, client } = session
    const found = await objects(session)
    for (const name of found.keys()) {
      if (names.timeOf(name) !== undefined && !found.has(name + DIGEST))
        await client.send(new DeleteObjectCommand(objectOf(name)), { abortSignal })
    }
    const pending = new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: `${prefix}parley-` })
    // Not every store can list them.
    const uploads = await client.send(pending, { abortSignal }).catch(() => undefined)
    for (const { Key = "", UploadId } of uploads?.Uploads ?? []) {
      if (names.timeOf(Key.slice(prefix.length)) !== undefined)
        await client.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId }), { abortSignal })
    }
  }

  return {
    list: Effect.gen(function*() {
      const found = yield* withClient(config, objects)
      const complete = [...found].filter(([name]) => found.has(name + DIGEST)).map(([name, bytes]) => ({ name, bytes }))
      return names.among(complete, yield* Clock.currentTimeMillis)
    }),
    stage: (name) => Effect.andThen(withClient(config, tidy), stageIn(folder, names)(name)),
    keep: (name) =>
      withClient(config, async (session) => {
        const { abortSignal, client } = session
        const file = stagedIn(folder, name)
        await upload(session, objectOf(name), file)
        const { Body } = await client.send(new GetObjectCommand(objectOf(name)), { abortSignal })
        const [stored, written] = [await digestOf(Body as Readable), await digestOf(createReadStream(file))]
        if (stored !== written) throw new Error(`${url} did not return the bytes of ${name} that it was given`)
        await client.send(new PutObjectCommand({ ...objectOf(name + DIGEST), Body: `${written}\n` }), { abortSignal })
        await rm(file)
      }),
    // Without its digest, a backup counts no more.
    remove: (name) =>
      withClient(config, async ({ abortSignal, client }) => {
        for (const each of [name + DIGEST, name])
          await client.send(new DeleteObjectCommand(objectOf(each)), { abortSignal })
      })
  }
}

/** The bytes of the backup at `s3://BUCKET/KEY`. */
export async function* bytesAt(config: Settings, url: string): AsyncGenerator<Uint8Array> {
  const { bucket, prefix } = placeIn(url)
  const client = clientOf(config, config.S3_INTERNAL_ENDPOINT ?? config.S3_ENDPOINT, TIMEOUT_MS)
  try {
    const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: prefix.replace(/\/$/, "") }))
    yield* Body as Readable
  } finally {
    client.destroy()
  }
}
