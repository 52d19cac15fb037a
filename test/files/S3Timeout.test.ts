import { clientOf } from "#infrastructure/files/BlobsS3"
import { Config } from "#infrastructure/platform/Config"
import { HeadObjectCommand } from "@aws-sdk/client-s3"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { once } from "node:events"
import { type AddressInfo, createServer } from "node:net"
import { within } from "../support/Eventually.ts"

it.live("a request to a store that takes it and never answers fails", () =>
  Effect.gen(function*() {
    const silent = createServer((socket) => void socket.on("error", () => {}).resume())
    yield* Effect.promise(() => once(silent.listen(0, "127.0.0.1"), "listening"))
    yield* Effect.addFinalizer(() => Effect.sync(() => silent.close()))
    const config = yield* Config.pipe(Effect.provide(Config.layerTest({
      S3_ACCESS_KEY_ID: "key",
      S3_SECRET_ACCESS_KEY: Redacted.make("secret")
    })))
    const client = clientOf(config, `http://127.0.0.1:${(silent.address() as AddressInfo).port}`, 50)
    const asked = client.send(new HeadObjectCommand({ Bucket: "files", Key: "one" }))
    const error = yield* Effect.promise(() =>
      within("the failure", asked.then(() => undefined, (error: Error) => error))
    )
    assert.match(error?.message ?? "it succeeded", /requestTimeout|timed out/)
    client.destroy()
  }).pipe(Effect.scoped))
