import { clientOf } from "#infrastructure/files/BlobsS3"
import type { Settings } from "#infrastructure/platform/Config"
import {
  AbortMultipartUploadCommand,
  type CompletedPart,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  paginateListObjectsV2,
  type S3Client,
  UploadPartCommand
} from "@aws-sdk/client-s3"
import { Effect } from "effect"
import { createHash } from "node:crypto"
import { createReadStream, createWriteStream } from "node:fs"
import { type FileHandle, open, rm } from "node:fs/promises"
import type { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { backupsAmong, type BackupStore, refusedBy, stagedIn, stageIn } from "./BackupStore.ts"

/** The size of a part of an upload. S3 takes 10,000 parts, so a backup may have 640 GB. */
const PART_BYTES = 64 * 1024 * 1024

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

/** Reads the next part of a file; it is shorter than PART_BYTES at the end. */
const nextPart = async (handle: FileHandle, into: Buffer): Promise<Buffer> => {
  let length = 0
  while (length < into.length) {
    const { bytesRead } = await handle.read(into, length, into.length - length)
    if (bytesRead === 0) break
    length += bytesRead
  }
  return into.subarray(0, length)
}

const upload = async (
  client: S3Client,
  object: { readonly Bucket: string; readonly Key: string },
  file: string
): Promise<void> => {
  const { UploadId } = await client.send(new CreateMultipartUploadCommand(object))
  const handle = await open(file, "r")
  try {
    const buffer = Buffer.allocUnsafe(PART_BYTES)
    const Parts: Array<CompletedPart> = []
    for (let part = await nextPart(handle, buffer); part.length > 0; part = await nextPart(handle, buffer)) {
      const PartNumber = Parts.length + 1
      const { ETag } = await client.send(new UploadPartCommand({ ...object, UploadId, PartNumber, Body: part }))
      Parts.push({ ETag, PartNumber })
    }
    await client.send(new CompleteMultipartUploadCommand({ ...object, UploadId, MultipartUpload: { Parts } }))
  } catch (error) {
    // The parts of an upload that is not complete would be kept, and paid for.
    await client.send(new AbortMultipartUploadCommand({ ...object, UploadId })).catch(() => undefined)
    throw error
  } finally {
    await handle.close()
  }
}

const withClient = <A>(config: Settings, run: (client: S3Client) => Promise<A>) =>
  Effect.tryPromise({
    try: async () => {
      const client = clientOf(config, config.S3_INTERNAL_ENDPOINT ?? config.S3_ENDPOINT)
      try {
        return await run(client)
      } finally {
        client.destroy()
      }
    },
    catch: refusedBy
  })

/** Keeps backups in an S3 bucket. `folder` is where new ones are written first. */
export const inBucket = (config: Settings, url: string, folder: string): BackupStore => {
  const { bucket, prefix } = placeIn(url)
  const objectOf = (name: string) => ({ Bucket: bucket, Key: prefix + name })
  return {
    list: withClient(config, async (client) => {
      const files: Array<{ readonly name: string; readonly bytes: number }> = []
      for await (const page of paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: `${prefix}parley-` })) {
        for (const { Key, Size } of page.Contents ?? [])
          files.push({ name: (Key ?? "").slice(prefix.length), bytes: Size ?? 0 })
      }
      return backupsAmong(files)
    }),
    stage: stageIn(folder),
    keep: (name) =>
      withClient(config, async (client) => {
        const file = stagedIn(folder, name)
        await upload(client, objectOf(name), file)
        const { Body } = await client.send(new GetObjectCommand(objectOf(name)))
        const [stored, written] = [await digestOf(Body as Readable), await digestOf(createReadStream(file))]
        if (stored !== written) {
          await client.send(new DeleteObjectCommand(objectOf(name)))
          throw new Error(`${url} did not return the bytes of ${name} that it was given`)
        }
        await rm(file)
      }),
    remove: (name) =>
      withClient(config, async (client) => void await client.send(new DeleteObjectCommand(objectOf(name))))
  }
}

/** Copies a backup from `s3://BUCKET/KEY` into a new file. */
export const download = (config: Settings, url: string, file: string) =>
  withClient(config, async (client) => {
    const { bucket, prefix } = placeIn(url)
    const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: prefix.replace(/\/$/, "") }))
    await pipeline(Body as Readable, createWriteStream(file, { mode: 0o600, flags: "wx" }))
  })
