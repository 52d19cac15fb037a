import { Config } from "#infrastructure/platform/Config"
import { Context, Effect, Layer } from "effect"
import { open } from "node:fs/promises"
import * as path from "node:path"
import { attempt, type BlobPart, folderOf, type StorageUnavailable } from "./Blobs.ts"
import { unlessMissing } from "./Missing.ts"

/** Reads objects of the store part by part. It changes nothing, so it is safe while servers use the store. */
export class BlobParts extends Context.Service<BlobParts, {
  /** Reads at most `length` bytes, beginning at the offset `from`. Returns undefined if there is no such object. */
  readonly read: (name: string, from: number, length: number) => Effect.Effect<BlobPart | undefined, StorageUnavailable>
}>()("parley/files/BlobParts") {
  /** Reads the same store as `Blobs`. The client for S3 is loaded when the first part is read. */
  static readonly layer = Layer.effect(
    BlobParts,
    Effect.map(Config, (config) =>
      BlobParts.of({
        read: (name, from, length) =>
          attempt(async () =>
            config.S3_BUCKET === undefined
              ? await ofFolder(path.join(folderOf(config), name), from, length)
              : await (await import("./BlobsS3.ts")).readPart(config, name, from, length)
          )
      }))
  )
}

const ofFolder = async (file: string, from: number, length: number): Promise<BlobPart | undefined> => {
  const handle = await unlessMissing(open(file, "r"))
  if (handle === undefined) return undefined
  try {
    const { size } = await handle.stat()
    const bytes = Buffer.alloc(Math.max(0, Math.min(length, size - from)))
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, from)
    return { size, bytes: bytes.subarray(0, bytesRead) }
  } finally {
    await handle.close()
  }
}
