import { Context, Effect, Layer } from "effect"
import { open } from "node:fs/promises"
import * as path from "node:path"
import { Config, type Settings } from "../platform/Config.ts"
import { attempt, type StorageUnavailable } from "./Blobs.ts"

/** Bytes of an object, and how many it has in all. */
export interface BlobPart {
  readonly size: number
  readonly bytes: Buffer
}

/** The folder of the store, if it is one. */
export const folderOf = (config: Settings): string =>
  config.SHARED_DIR === undefined ? path.resolve(config.DATA_DIR, "blobs") : path.resolve(config.SHARED_DIR)

/** Reads objects of the store part by part, and changes nothing: safe beside servers that use the store. */
export class BlobParts extends Context.Service<BlobParts, {
  /** At most `length` bytes from a place on; undefined: there is no such object. */
  readonly read: (name: string, from: number, length: number) => Effect.Effect<BlobPart | undefined, StorageUnavailable>
}>()("parley/files/BlobParts") {
  /** The same store as that of `Blobs`; a client for S3 is made when the first part is read. */
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
  try {
    const handle = await open(file, "r")
    try {
      const { size } = await handle.stat()
      const bytes = Buffer.alloc(Math.max(0, Math.min(length, size - from)))
      const { bytesRead } = await handle.read(bytes, 0, bytes.length, from)
      return { size, bytes: bytes.subarray(0, bytesRead) }
    } finally {
      await handle.close()
    }
  } catch (error) {
    if (Reflect.get(Object(error), "code") === "ENOENT") return undefined
    throw error
  }
}
