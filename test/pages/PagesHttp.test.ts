import { wantsPage } from "#interfaces/pages/Pages"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { type Server, sharedServer } from "../support/Server.ts"

const BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
let server: Server

beforeAll(async () => {
  server = await sharedServer()
})
afterAll(() => server?.stop())

const page = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${server.url}${path}`, { headers: { accept: BROWSER, ...headers }, redirect: "manual" })

/** The file at a path of the import map, or one of the files in a folder: the languages of code. */
const fileOf = (path = ""): string => path.endsWith("/") ? `${path}js.js` : path

/** Everything that a page's HTML names, and the import map's modules. */
const filesOf = (html: string): ReadonlyArray<string> => [
  ...Array.from(html.matchAll(/(?:src|href)="(assets\/[^"]+)"/g), ([, path]) => path ?? ""),
  ...Array.from(html.matchAll(/":"\.\/(assets\/[^"]+)"/g), ([, path]) => fileOf(path))
]

describe("pages", () => {
  it("165. / is a page for browsers, and JSON for programs as ever", async () => {
    const shown = await page("/")
    assert.strictEqual(shown.headers.get("content-type"), "text/html; charset=utf-8")
    const html = await shown.text()
    for (const link of ["app", "console", "docs"]) assert.include(html, `href="${link}"`)
    for (const accept of ["*/*", "application/json", "application/json, text/plain, */*", ""]) {
      const answer = await fetch(`${server.url}/`, { headers: { accept } })
      assert.include(answer.headers.get("vary") ?? "", "Accept")
      assert.deepInclude(await answer.json(), { name: "parley", status: "alive" })
    }
  })

  it("a client that prefers JSON to a page gets JSON", () => {
    assert.isTrue(wantsPage(BROWSER))
    assert.isTrue(wantsPage("text/html"))
    assert.isTrue(wantsPage("text/html, application/json"))
    for (
      const accept of [
        undefined,
        "*/*",
        "application/json",
        "application/json, text/html",
        "text/html;q=0, */*",
        "text/html;q=0.5, application/json"
      ]
    ) {
      assert.isFalse(wantsPage(accept), accept)
    }
  })

  it("every page forbids inline script, eval, other origins and frames", async () => {
    for (const path of ["/", "/app", "/console", "/oauth/sign-in?request=orq_any"]) {
      const answer = await page(path)
      assert.strictEqual(answer.status, 200, path)
      const policy = answer.headers.get("content-security-policy") ?? ""
      assert.match(policy, /^default-src 'none'; script-src 'self'( 'sha256-[\w+/]+=')?; style-src 'self';/, path)
      assert.notMatch(policy, /unsafe|\*|https?:\/\/(?!127\.0\.0\.1)/, path)
      for (
        const rule of [
          "frame-ancestors 'none'",
          "base-uri 'none'",
          "form-action 'none'",
          "require-trusted-types-for 'script'"
        ]
      ) assert.include(policy, rule, path)
      assert.strictEqual(answer.headers.get("x-content-type-options"), "nosniff")
      assert.strictEqual(answer.headers.get("referrer-policy"), "no-referrer")
      assert.strictEqual(answer.headers.get("x-frame-options"), "DENY")
      const html = await answer.text()
      const inline = Array.from(html.matchAll(/<script(?![^>]*\bsrc=)([^>]*)>([\s\S]*?)<\/script>/g))
      for (const [, attributes, text] of inline) {
        assert.include(attributes, "importmap")
        assert.include(policy, createHash("sha256").update(text ?? "").digest("base64"))
      }
      assert.strictEqual(inline.length, path === "/" ? 0 : 1)
      assert.notMatch(html, /\son\w+=|style=/, path)
    }
  })

  it("the OAuth sign-in page is never stored, keeps the opener of a pop-up, and finds its files one level up", async () => {
    const answer = await page("/oauth/sign-in?request=orq_any")
    assert.strictEqual(answer.headers.get("cache-control"), "no-store")
    assert.strictEqual(answer.headers.get("cross-origin-opener-policy"), "unsafe-none")
    for (const path of ["/", "/app", "/console"])
      assert.strictEqual((await page(path)).headers.get("cross-origin-opener-policy"), "same-origin", path)
    const files = Array.from(
      (await answer.text()).matchAll(/(?:src="|href="|":"\.\/)(\.\.\/[^"]+)"/g),
      ([, path]) => fileOf(path)
    )
    assert.isAbove(files.length, 8)
    for (const path of files)
      assert.strictEqual((await page(new URL(path, `${server.url}/oauth/sign-in`).pathname)).status, 200, path)
    const slash = await page("/oauth/sign-in/?request=orq_any")
    assert.deepStrictEqual([slash.status, slash.headers.get("location")], [308, "../sign-in?request=orq_any"])
  })

  it("pages are revalidated, and their assets never are", async () => {
    const answer = await page("/app")
    const etag = answer.headers.get("etag") ?? ""
    assert.strictEqual(answer.headers.get("cache-control"), "no-cache")
    assert.strictEqual((await page("/app", { "if-none-match": etag })).status, 304)
    const files = filesOf(await answer.text())
    assert.isAbove(files.length, 8)
    for (const path of files) {
      const file = await page(`/${path}`)
      assert.strictEqual(file.status, 200, path)
      assert.strictEqual(file.headers.get("cache-control"), "public, max-age=31536000, immutable", path)
      assert.strictEqual(file.headers.get("x-content-type-options"), "nosniff", path)
      assert.match(
        file.headers.get("content-type") ?? "",
        /^(text\/(javascript|css); charset=utf-8|image\/svg\+xml)$/,
        path
      )
      const bytes = Buffer.from(await file.arrayBuffer())
      const plain = await page(`/${path}`, { "accept-encoding": "identity" })
      assert.isNull(plain.headers.get("content-encoding"))
      assert.isTrue(bytes.equals(Buffer.from(await plain.arrayBuffer())), path)
      assert.strictEqual(
        (await page(`/${path}`, { "if-none-match": file.headers.get("etag") ?? "" })).status,
        304,
        path
      )
    }
  })

  it("a file of another version is answered and not cached, and an unknown file is 404", async () => {
    const other = await page("/assets/another/shared/style.css")
    assert.strictEqual(other.status, 200)
    assert.strictEqual(other.headers.get("cache-control"), "no-store")
    for (
      const path of [
        "/assets/x/shared/Nothing.js",
        "/assets/x/app/Wire.ts",
        "/assets/x/../Pages.ts",
        "/assets/x/%2e%2e/Pages.ts",
        "/assets/x/app/../../Pages.ts",
        "/assets/x/"
      ]
    ) {
      assert.strictEqual((await page(path)).status, 404, path)
    }
    const slash = await page("/app/")
    assert.deepStrictEqual([slash.status, slash.headers.get("location")], [308, "../app"])
  })
})
