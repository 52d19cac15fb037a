import { sendStatic, staticBody } from "#interfaces/pages/StaticBody"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import { request } from "node:http"
import { brotliDecompressSync, gunzipSync } from "node:zlib"
import { type Server, sharedServer } from "../support/Server.ts"

interface Raw {
  readonly status: number
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly bytes: Buffer
}

describe("bodies that never change", () => {
  let server: Server
  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server?.stop())

  /** Without `fetch`, which decompresses. */
  const get = (path: string, headers: Record<string, string> = {}): Promise<Raw> =>
    new Promise((resolve, reject) => {
      request(`${server.url}${path}`, { headers }, (response) => {
        const chunks: Array<Buffer> = []
        response.on("data", (chunk: Buffer) => chunks.push(chunk))
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, bytes: Buffer.concat(chunks) }))
      }).on("error", reject).end()
    })

  const files = async (): Promise<ReadonlyArray<string>> => {
    const page = (await get("/app")).bytes.toString()
    return ["/docs", "/v1/openapi.json", "/app", "/console", `/${/assets\/[^"]+app\/Main\.js/.exec(page)![0]}`]
  }

  it("are compressed as the client accepts, hold the same bytes in every form, and have Vary", async () => {
    for (const path of await files()) {
      const plain = await get(path)
      assert.isUndefined(plain.headers["content-encoding"], path)
      const gzip = await get(path, { "accept-encoding": "gzip, deflate" })
      assert.strictEqual(gzip.headers["content-encoding"], "gzip", path)
      assert.isTrue(gunzipSync(gzip.bytes).equals(plain.bytes), path)
      const brotli = await get(path, { "accept-encoding": "gzip;q=0.5, BR" })
      assert.strictEqual(brotli.headers["content-encoding"], "br", path)
      assert.isTrue(brotliDecompressSync(brotli.bytes).equals(plain.bytes), path)
      assert.isBelow(brotli.bytes.length, gzip.bytes.length, path)
      assert.isBelow(gzip.bytes.length, plain.bytes.length, path)
      assert.isUndefined(
        (await get(path, { "accept-encoding": "br;q=0, gzip;q=0.0, identity" })).headers["content-encoding"],
        path
      )
      for (const one of [plain, gzip, brotli])
        assert.include(String(one.headers["vary"]).toLowerCase(), "accept-encoding", path)
    }
  })

  it.effect("are sent in another form if one cannot be made", () =>
    Effect.gen(function*() {
      const body = staticBody(Buffer.from("text ".repeat(100)), "text/plain")
      const failing = Effect.fail(new Error("no memory"))
      const accepted = new Request("http://127.0.0.1/", { headers: { "accept-encoding": "gzip, br" } })
      const request = HttpServerRequest.fromWeb(accepted)
      const sent = Effect.fnUntraced(function*(changes: Partial<typeof body>) {
        const { headers, status } = yield* sendStatic(request, { ...body, ...changes }, {})
        return [status, headers["content-encoding"]]
      })
      assert.deepStrictEqual(yield* sent({}), [200, "br"])
      assert.deepStrictEqual(yield* sent({ brotli: failing }), [200, "gzip"])
      assert.deepStrictEqual(yield* sent({ brotli: failing, gzip: failing }), [200, undefined])
    }))

  it("have an ETag, with which they are 304 in every form and hold no body", async () => {
    for (const path of await files()) {
      const { headers: { etag } } = await get(path)
      assert.match(String(etag), /^"[\w-]{22}"$/, path)
      for (const given of [String(etag), `"other", W/${String(etag)}`]) {
        const again = await get(path, { "if-none-match": given, "accept-encoding": "br" })
        assert.deepStrictEqual([again.status, again.bytes.length, again.headers["etag"]], [304, 0, etag], path)
      }
      assert.strictEqual((await get(path, { "if-none-match": '"other"' })).status, 200, path)
    }
  })
})
