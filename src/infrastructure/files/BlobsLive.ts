import type { Secrets } from "#infrastructure/database/Secrets"
import { Config } from "#infrastructure/platform/Config"
import type { Ids } from "#infrastructure/platform/Ids"
import { Effect, Layer } from "effect"
import type { Blobs } from "./Blobs.ts"

/**
 * The store is S3 if S3_BUCKET is set, and a folder (SHARED_DIR or DATA_DIR) otherwise. The S3 client is large, so it
 * is loaded only if needed. The signed URLs of a folder point to paths of this server that begin with `signedUrlsPath`.
 */
export const blobsLive = (signedUrlsPath: string): Layer.Layer<Blobs, never, Config | Ids | Secrets> =>
  Layer.unwrap(Effect.gen(function*() {
    const config = yield* Config
    return config.S3_BUCKET === undefined
      ? (yield* Effect.promise(() => import("./BlobsDisk.ts"))).layer(signedUrlsPath)
      : (yield* Effect.promise(() => import("./BlobsS3.ts"))).layer
  }))
