import { Secrets } from "#infrastructure/database/Secrets"
import { BlobParts } from "#infrastructure/files/BlobParts"
import { attemptAt, Blobs, contentDisposition, type Upload } from "#infrastructure/files/Blobs"
import { blobsLive } from "#infrastructure/files/BlobsLive"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { FullDisk, FullDisks } from "#infrastructure/platform/disk/DiskSpace"
import { Ids } from "#infrastructure/platform/Ids"
import { isWireFailure } from "#infrastructure/wire/WireError"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Fiber, Layer, Logger, Redacted } from "effect"
import { createHash } from "node:crypto"
import { mkdtemp, readdir, readlink, rm } from "node:fs/promises"
import { createServer, type IncomingMessage, request as httpRequest, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { constants, tmpdir } from "node:os"
import { join } from "node:path"
import { PassThrough, Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import S3rver from "s3rver"
import { eventually } from "../support/Eventually.ts"

const folder = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "parley-blobs-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

const layerOf = (settings: Partial<Settings>) =>
  Layer.provideMerge(
    Layer.merge(blobsLive("/v1/files/"), BlobParts.layer),
    Layer.mergeAll(
      Config.layerTest(settings),
      Ids.layer,
      Layer.succeed(Secrets, {
        conversationIds: Buffer.alloc(32, 1),
        deliveryIds: Buffer.alloc(32, 2),
        signedUrls: Buffer.alloc(32, 3),
        tokens: Buffer.alloc(32, 4),
        clients: [Buffer.alloc(32, 5)]
      })
    )
  )

/** What answers the URLs that are signed on disk, as FilesHttp does. */
const serve = (blobs: Blobs["Service"], request: IncomingMessage, response: ServerResponse): Effect.Effect<void> =>
  Effect.gen(function*() {
    const token = (request.url ?? "").replace("/v1/files/", "")
    const files = blobs.signedFiles ?? assert.fail("this store serves its URLs itself")
    if (request.method === "PUT") {
      const length = request.headers["content-length"]
      yield* files.accept(token, request, length === undefined ? undefined : Number(length))
      response.end()
    } else {
      const { bytes, contentType, disposition, size } = yield* files.open(token)
      response.writeHead(200, {
        "content-type": contentType,
        "content-disposition": disposition,
        "content-length": size
      })
      yield* Effect.promise(() => pipeline(bytes(), response))
    }
  }).pipe(
    Effect.scoped,
    Effect.catch((error) =>
      Effect.sync(() => {
        response.writeHead(isWireFailure(error) ? error.status : 500).end(isWireFailure(error) ? error.code : "")
      })
    )
  )

const onDisk = Layer.unwrap(Effect.gen(function*() {
  const DATA_DIR = yield* folder
  const server = createServer()
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void))),
    () => Effect.sync(() => (server.closeAllConnections(), server.close()))
  )
  const { port } = server.address() as AddressInfo
  const answering = Layer.effectDiscard(Effect.gen(function*() {
    const blobs = yield* Blobs
    const run = Effect.runForkWith(yield* Effect.context<never>())
    server.on("request", (request, response) => void run(serve(blobs, request, response)))
  }))
  return Layer.provideMerge(answering, layerOf({ DATA_DIR, PUBLIC_URL: `http://127.0.0.1:${port}` }))
}))

/** Runs when a request has been carried out, before it is answered. It may replace the answer. */
type BeforeAnswer = (method: string, path: string, answer: { body: unknown; length: number }) => Promise<unknown>

const layerS3 = (settings: Partial<Settings>, beforeAnswer?: BeforeAnswer) =>
  Layer.unwrap(Effect.gen(function*() {
    const directory = yield* folder
    const store = new S3rver({
      port: 0,
      address: "127.0.0.1",
      silent: true,
      directory,
      configureBuckets: [{ name: "parley" }]
    })
    if (beforeAnswer !== undefined) {
      store.middleware.unshift(async ({ method, path, response }, next) => {
        try {
          await next()
        } finally {
          await beforeAnswer(method, path, response)
        }
      })
    }
    const { port } = yield* Effect.promise(() => store.run())
    yield* Effect.addFinalizer(() => Effect.promise(() => store.close()))
    return layerOf({
      S3_BUCKET: "parley",
      S3_INTERNAL_ENDPOINT: `http://127.0.0.1:${port}`,
      S3_ENDPOINT: `http://127.0.0.1:${port}`,
      S3_ACCESS_KEY_ID: "S3RVER",
      S3_SECRET_ACCESS_KEY: Redacted.make("S3RVER"),
      S3_FORCE_PATH_STYLE: "on",
      ...settings
    })
  }))

const onS3 = layerS3({ S3_INTERNAL_ENDPOINT: undefined })

let serial = 0
const uploadOf = (bytes: Buffer): Upload => ({
  id: `att_${String(serial++).padStart(16, "0")}`,
  size: bytes.length,
  sha256: createHash("sha256").update(bytes).digest("hex")
})

const put = (url: string, bytes: Buffer) =>
  Effect.promise(async () => {
    const response = await fetch(url, { method: "PUT", body: new Uint8Array(bytes) })
    return { status: response.status, text: await response.text() }
  })

const get = (url: string) =>
  Effect.promise(async () => {
    const response = await fetch(url)
    return {
      status: response.status,
      type: response.headers.get("content-type"),
      disposition: response.headers.get("content-disposition"),
      bytes: Buffer.from(await response.arrayBuffer())
    }
  })

const TEXT = { contentType: "text/plain", filename: "a.txt" }

/** As if the URL had been signed so long ago. */
const signedBefore = <A, E, R>(seconds: number, effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(Clock.Clock, (clock) =>
    Effect.provideService(effect, Clock.Clock, {
      ...clock,
      currentTimeMillis: Effect.map(clock.currentTimeMillis, (at) => at - seconds * 1000),
      currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() - seconds * 1000
    }))

for (const [name, store] of [["disk", onDisk], ["S3", onS3]] as const) {
  describe(`Blobs on ${name}`, () => {
    it.live("a file goes in and out by signed URLs, which need no key and are good more than once", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const bytes = Buffer.from("the bytes\0\r\n\xff", "latin1")
        const upload = uploadOf(bytes)
        const url = yield* blobs.uploadUrl(upload)
        assert.strictEqual(yield* blobs.verify(upload), "missing")
        assert.strictEqual((yield* put(url, bytes)).status, 200)
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        const filename = 'Größe "50%"; é😀.txt'
        const from = yield* blobs.downloadUrl(upload.id, { contentType: "text/markdown", filename })
        for (let i = 0; i < 2; i++) {
          const got = yield* get(from)
          assert.deepStrictEqual(got, {
            status: 200,
            type: "text/markdown",
            disposition: contentDisposition(filename),
            bytes
          })
        }
      }).pipe(Effect.provide(store)))

    it.live("a file that was uploaded under a path is given out under its last part", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const upload = uploadOf(Buffer.from("bytes"))
        yield* put(yield* blobs.uploadUrl(upload), Buffer.from("bytes"))
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        const got = yield* get(
          yield* blobs.downloadUrl(upload.id, { ...TEXT, filename: "../../\r\netc\\gr\u00fc\u202etxt" })
        )
        assert.strictEqual(got.disposition, "attachment; filename=\"gr_txt\"; filename*=UTF-8''gr%C3%BCtxt")
      }).pipe(Effect.provide(store)))

    it.live("a stored file does not change, whatever is put again", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const upload = uploadOf(Buffer.from("first"))
        const url = yield* blobs.uploadUrl(upload)
        yield* put(url, Buffer.from("first"))
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        const again = yield* put(url, Buffer.from("other"))
        if (name === "disk") assert.deepStrictEqual(again, { status: 409, text: "ALREADY_UPLOADED" })
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        const from = yield* blobs.downloadUrl(upload.id, TEXT)
        assert.strictEqual((yield* get(from)).bytes.toString(), "first")
        yield* blobs.tidy(upload.id)
        assert.strictEqual((yield* get(from)).bytes.toString(), "first")
      }).pipe(Effect.provide(store)))

    it.live("bytes other than the announced ones are never stored, and the right ones may follow", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const upload = uploadOf(Buffer.from("right"))
        const url = yield* blobs.uploadUrl(upload)
        const other = yield* put(url, Buffer.from("wrong"))
        if (name === "disk") assert.deepStrictEqual(other, { status: 400, text: "CHECKSUM_MISMATCH" })
        assert.strictEqual(yield* blobs.verify(upload), name === "disk" ? "missing" : "checksum")
        assert.strictEqual((yield* put(url, Buffer.from("right"))).status, 200)
        assert.strictEqual(yield* blobs.verify(upload), "stored")
      }).pipe(Effect.provide(store)))

    it.live("a URL is good for its length only, for its file only, and for its purpose only", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const [one, two] = [uploadOf(Buffer.from("one's")), uploadOf(Buffer.from("two's"))]
        const url = yield* blobs.uploadUrl(one)
        for (const bytes of ["one", "one's and more"]) {
          const refused = yield* put(url, Buffer.from(bytes))
          if (name === "disk") assert.deepStrictEqual(refused, { status: 400, text: "SIZE_MISMATCH" })
          // The length is a part of the signature, which a store would check; s3rver does not, and the bytes are not
          // taken.
          else assert.strictEqual(new URL(url).searchParams.get("X-Amz-SignedHeaders"), "content-length;host")
          assert.strictEqual(yield* blobs.verify(one), name === "disk" ? "missing" : "size")
        }
        yield* put(yield* blobs.uploadUrl(two), Buffer.from("two's"))
        assert.strictEqual(yield* blobs.verify(two), "stored")
        const from = yield* blobs.downloadUrl(two.id, TEXT)
        if (name === "S3") {
          for (const [signed, path] of [[url, `uploads/${one.id}`], [from, `files/${two.id}`]] as const) {
            assert.strictEqual(new URL(signed).pathname, `/parley/${path}`)
            assert.isNotEmpty(new URL(signed).searchParams.get("X-Amz-Signature"))
          }
          return
        }
        // Neither can be bent to the other's use, nor to another file.
        assert.strictEqual((yield* get(yield* blobs.uploadUrl(two))).status, 403)
        assert.strictEqual((yield* put(from, Buffer.from("two's"))).status, 403)
        const [grant = "", mac = ""] = from.slice(from.lastIndexOf("/") + 1).split(".")
        for (
          const [part, other] of [["get", "put"], [two.id, one.id], ["text/plain", "text/html"], ["a.txt", "b.txt"]]
        ) {
          const bent = Buffer.from(Buffer.from(grant, "base64url").toString().replace(part ?? "", other ?? ""))
            .toString("base64url")
          assert.notStrictEqual(bent, grant)
          for (const method of [get, (at: string) => put(at, Buffer.from("one's"))]) {
            assert.strictEqual((yield* method(from.replace(grant, bent))).status, 403)
          }
        }
        for (const other of ["", mac.slice(1), `${mac}A`, `${mac}.${mac}`]) {
          assert.strictEqual((yield* get(from.replace(mac, other))).status, 403)
        }
        assert.strictEqual(yield* blobs.verify(one), "missing")
      }).pipe(Effect.provide(store)))

    it.live("a URL expires: after 900 s for putting, after 300 s for getting", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const bytes = Buffer.from("late")
        const upload = uploadOf(bytes)
        assert.strictEqual((yield* put(yield* signedBefore(905, blobs.uploadUrl(upload)), bytes)).status, 403)
        assert.strictEqual((yield* put(yield* signedBefore(870, blobs.uploadUrl(upload)), bytes)).status, 200)
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        assert.strictEqual((yield* get(yield* signedBefore(305, blobs.downloadUrl(upload.id, TEXT)))).status, 403)
        assert.strictEqual((yield* get(yield* signedBefore(270, blobs.downloadUrl(upload.id, TEXT)))).status, 200)
      }).pipe(Effect.provide(store)))

    it.live("a file can be removed, with and without bytes, and again", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const upload = uploadOf(Buffer.from("gone"))
        yield* blobs.remove(upload.id)
        yield* put(yield* blobs.uploadUrl(upload), Buffer.from("gone"))
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        yield* blobs.remove(upload.id)
        yield* blobs.remove(upload.id)
        assert.strictEqual(yield* blobs.verify(upload), "missing")
      }).pipe(Effect.provide(store)))

    it.live("the server stores, reads and removes objects of its own", () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        assert.isUndefined(yield* blobs.getObject("avatars/abc"))
        for (let i = 0; i < 2; i++) yield* blobs.putObject("avatars/abc", Buffer.from("picture"), "image/webp")
        assert.strictEqual((yield* blobs.getObject("avatars/abc"))?.toString(), "picture")
        const parts = yield* BlobParts
        for (const [from, length, text] of [[0, 3, "pic"], [3, 10, "ture"], [7, 10, ""]] as const) {
          const part = yield* parts.read("avatars/abc", from, length)
          assert.deepStrictEqual([part?.size, part?.bytes.toString()], [7, text])
        }
        assert.isUndefined(yield* parts.read("avatars/abd", 0, 3))
        for (let i = 0; i < 2; i++) yield* blobs.removeObject("avatars/abc")
        assert.isUndefined(yield* blobs.getObject("avatars/abc"))
      }).pipe(Effect.provide(store)))
  })
}

describe("Blobs on disk", () => {
  it.effect("a store whose disk quota is used up says so, as one whose disk is full does", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      for (const error of [{ code: "ENOSPC" }, { code: "Unknown system error", errno: -constants.errno.EDQUOT }]) {
        const failed = yield* attemptAt("/files")(() => Promise.reject(error)).pipe(
          Effect.flip,
          Effect.provideService(FullDisk, new FullDisks()),
          Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
        )
        assert.strictEqual(failed.message, "The file store has no space left: try again later.")
      }
      const line = "The file store cannot write, and uploads get 503: no space left on /files"
      assert.deepStrictEqual(lines, [line, line])
    }))

  it.live("an upload without a length is stopped at the announced size, and leaves nothing", () =>
    Effect.gen(function*() {
      const blobs = yield* Blobs
      const config = yield* Config
      const upload = uploadOf(Buffer.alloc(100_000, 7))
      const url = new URL(yield* blobs.uploadUrl(upload))
      const send = (body: Readable) =>
        Effect.promise(() =>
          new Promise<number | undefined>((resolve, reject) => {
            const request = httpRequest(url, { method: "PUT" }, (response) => {
              response.resume()
              resolve(response.statusCode)
            })
            request.on("error", reject)
            body.pipe(request)
          })
        )
      const chunks = (n: number) => Readable.from(Array.from({ length: n }, () => Buffer.alloc(10_000, 7)))
      assert.strictEqual(yield* send(chunks(11)), 400)
      assert.strictEqual(yield* send(chunks(9)), 400)
      assert.strictEqual(yield* blobs.verify(upload), "missing")
      assert.deepStrictEqual(yield* Effect.promise(() => readdir(join(config.DATA_DIR, "blobs", "incoming"))), [])
      assert.strictEqual(yield* send(chunks(10)), 200)
      assert.strictEqual(yield* blobs.verify(upload), "stored")
    }).pipe(Effect.provide(onDisk)))

  it.live("a peer that goes away in the middle leaves nothing", () =>
    Effect.gen(function*() {
      const blobs = yield* Blobs
      const config = yield* Config
      const upload = uploadOf(Buffer.alloc(1_000, 7))
      const token = (yield* blobs.uploadUrl(upload)).replace(/^.*\//, "")
      const broken = new Readable({ read() {} })
      broken.push(Buffer.alloc(500, 7))
      setImmediate(() => broken.destroy(new Error("reset")))
      const files = blobs.signedFiles ?? assert.fail()
      assert.strictEqual((yield* Effect.flip(files.accept(token, broken, undefined)))._tag, "SizeMismatch")
      assert.strictEqual(yield* blobs.verify(upload), "missing")
      assert.deepStrictEqual(yield* Effect.promise(() => readdir(join(config.DATA_DIR, "blobs", "incoming"))), [])
    }).pipe(Effect.provide(onDisk)))

  it.live.skipIf(process.platform !== "linux")(
    "a file is closed if its reader does not read it, or goes away while it is being opened (seen in /proc: on Linux alone)",
    () =>
      Effect.gen(function*() {
        const blobs = yield* Blobs
        const files = blobs.signedFiles ?? assert.fail()
        const upload = uploadOf(Buffer.alloc(1_000_000, 7))
        yield* files.accept(
          (yield* blobs.uploadUrl(upload)).replace(/^.*\//, ""),
          Readable.from([Buffer.alloc(1_000_000, 7)]),
          undefined
        )
        const token = (yield* blobs.downloadUrl(upload.id, TEXT)).replace(/^.*\//, "")
        const open = Effect.promise(async () => {
          const names = await readdir("/proc/self/fd")
          const files = await Promise.all(names.map((name) => readlink(`/proc/self/fd/${name}`).catch(() => "")))
          return files.filter((file) => file.endsWith(upload.id)).length
        })
        yield* Effect.scoped(Effect.gen(function*() {
          yield* files.open(token)
          assert.strictEqual(yield* open, 1)
        }))
        for (let turns = 0; turns < 20; turns++) {
          const opening = yield* Effect.forkChild(Effect.scoped(files.open(token)), { startImmediately: true })
          for (let turn = 0; turn < turns; turn++) yield* Effect.yieldNow
          yield* Fiber.interrupt(opening)
        }
        yield* Effect.promise(() =>
          eventually("the file to be closed", async () => await Effect.runPromise(open) === 0 || undefined)
        )
      }).pipe(Effect.provide(onDisk))
  )
})

it.live("a store that clients reach elsewhere than the servers has both addresses", () =>
  Effect.gen(function*() {
    const blobs = yield* Blobs
    yield* blobs.putObject("a", Buffer.from("bytes"), "text/plain")
    assert.deepStrictEqual(yield* blobs.getObject("a"), Buffer.from("bytes"))
    const upload = uploadOf(Buffer.from("bytes"))
    for (const url of [yield* blobs.uploadUrl(upload), yield* blobs.downloadUrl(upload.id, TEXT)]) {
      assert.match(url, /^https:\/\/files\.example\.invalid\/parley\//)
    }
  }).pipe(Effect.provide(layerS3({ S3_ENDPOINT: "https://files.example.invalid" }))))

describe("a file on S3 that is checked twice at once", () => {
  for (
    const [step, method, place] of [["looked for the file", "HEAD", "files"], [
      "read the upload",
      "GET",
      "uploads"
    ]] as const
  ) {
    it.live(`is stored for both checks, when one comes to its end after the other has ${step}`, () => {
      let between: (() => Promise<unknown>) | undefined
      const store = layerS3({ S3_INTERNAL_ENDPOINT: undefined }, async (given, path) => {
        if (between === undefined || given !== method || !path.startsWith(`/parley/${place}/`)) return
        const other = between
        between = undefined
        await other()
      })
      return Effect.gen(function*() {
        const blobs = yield* Blobs
        const upload = uploadOf(Buffer.from("bytes"))
        yield* put(yield* blobs.uploadUrl(upload), Buffer.from("bytes"))
        const other = yield* Deferred.make<string, unknown>()
        between = () => Effect.runPromise(Deferred.complete(other, blobs.verify(upload)))
        assert.strictEqual(yield* blobs.verify(upload), "stored")
        assert.strictEqual(yield* Deferred.await(other), "stored")
      }).pipe(Effect.provide(store))
    })
  }
})

it.live("an upload on S3 with wrong bytes is read once for all of its uses, and again after another upload", () => {
  let reads = 0
  const store = layerS3({ S3_INTERNAL_ENDPOINT: undefined }, async (method, path) => {
    if (method === "GET" && path.startsWith("/parley/uploads/")) reads++
  })
  return Effect.gen(function*() {
    const blobs = yield* Blobs
    const upload = uploadOf(Buffer.from("right"))
    const url = yield* blobs.uploadUrl(upload)
    for (const [i, bytes] of ["wrong", "worse"].entries()) {
      yield* put(url, Buffer.from(bytes))
      for (let use = 0; use < 3; use++) assert.strictEqual(yield* blobs.verify(upload), "checksum")
      assert.strictEqual(reads, i + 1)
    }
    yield* put(url, Buffer.from("right"))
    assert.strictEqual(yield* blobs.verify(upload), "stored")
  }).pipe(Effect.provide(store))
})

it.live("a check on S3 that is interrupted ends its read of the upload, and gives up its place", () => {
  const bodies: Array<PassThrough> = []
  const store = layerS3({ S3_INTERNAL_ENDPOINT: undefined }, async (method, path, answer) => {
    if (method !== "GET" || !path.startsWith("/parley/uploads/")) return
    // Half of the bytes, and no end.
    const body = new PassThrough()
    body.write("by")
    answer.body = body
    answer.length = 5
    bodies.push(body)
  })
  return Effect.gen(function*() {
    const blobs = yield* Blobs
    const upload = uploadOf(Buffer.from("bytes"))
    yield* put(yield* blobs.uploadUrl(upload), Buffer.from("bytes"))
    // More than may read at once.
    for (let i = 0; i < 6; i++) {
      const checking = yield* Effect.forkChild(blobs.verify(upload))
      const body = yield* Effect.promise(() => eventually(`read ${i}`, () => bodies[i]))
      yield* Fiber.interrupt(checking)
      yield* Effect.promise(() => eventually(`the end of read ${i}`, () => body.destroyed || undefined))
    }
  }).pipe(Effect.provide(store))
})

it.live("a missing bucket is reported at startup", () =>
  Effect.gen(function*() {
    const told = yield* Deferred.make<string>()
    const logger = Logger.make(({ message }) => Deferred.doneUnsafe(told, Effect.succeed(String(message))))
    const start = Layer.build(Layer.fresh(layerS3({ S3_BUCKET: "elsewhere" })))
    yield* Effect.provide(start, Logger.layer([logger]))
    assert.match(yield* Deferred.await(told), /^The bucket elsewhere does not respond or does not exist/)
  }).pipe(Effect.scoped))

it("a filename cannot end its header, or say anything else in it", () => {
  const hostile = contentDisposition('a"; x="\r\nset-cookie: y=1%\u202e.txt')
  assert.strictEqual(
    hostile,
    'attachment; filename="a_; x=_set-cookie: y=1_.txt"; ' +
      "filename*=UTF-8''a%22%3B%20x%3D%22set-cookie%3A%20y%3D1%25.txt"
  )
})

it("a file is saved under a name, never under a path, and there is nothing in it that is not read", () => {
  for (
    const [given, saved] of [
      ["notes.md", "notes.md"],
      ["../../etc/passwd", "passwd"],
      ["/etc/passwd", "passwd"],
      ["..\\..\\Windows\\win.ini", "win.ini"],
      ["C:\\temp\\a.txt", "a.txt"],
      ["C:a.txt", "a.txt"],
      ["a/b\\c.txt", "c.txt"],
      ["folder/", "folder"],
      ["a/..", "a"],
      ["  spaced out.txt ", "spaced out.txt"],
      [".gitignore", ".gitignore"],
      ["..", "file"],
      ["../", "file"],
      ["///", "file"],
      ["\r\n\t", "file"],
      ["\u2003\u200b", "file"],
      ["a\r\nb\u0085c\u001b[2J.txt", "abc[2J.txt"],
      ["..\u0000/\u0007..", "file"],
      ["photo\u202egnp.exe", "photognp.exe"],
      ["one\u2028two\u2029.txt", "onetwo.txt"],
      ["\u05d0\u200e(1).txt", "\u05d0\u200e(1).txt"]
    ] as const
  ) {
    const exact = contentDisposition(given).replace(
      /^attachment; filename="[\x20-\x7e]+"; filename\*=UTF-8''(?=[\w.~!%-]+$)/,
      ""
    )
    assert.strictEqual(decodeURIComponent(exact), saved, JSON.stringify(given))
  }
})
