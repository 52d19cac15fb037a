import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { FileStore } from "../../verification/faults/FileStore.ts"

const ROOT = resolve(import.meta.dirname, "../..")

const form = (...lines: ReadonlyArray<string>) => ({
  method: "POST",
  headers: { "content-type": "multipart/form-data; boundary=edge" },
  body: ["--edge", ...lines, "--edge--", ""].join("\r\n")
})

describe("the S3 server of the tests", () => {
  it("reads forms without dicer", () => {
    const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
      readonly packages: object
    }
    assert.deepStrictEqual(Object.keys(packages).filter((path) => /(^|\/)dicer$/.test(path)), [])
  })

  it("refuses the form of CVE-2022-24434, and stores the file of a good one", async () => {
    const folder = await mkdtemp(join(tmpdir(), "parley-s3-"))
    const store = await FileStore.start(folder, "127.0.0.1")
    try {
      const url = `${store.url}/parley`
      const refused = await fetch(url, form(' Content-Disposition: form-data; name="key"', "", "x"))
      assert.strictEqual(refused.status, 400, await refused.text())
      const good = form(
        'Content-Disposition: form-data; name="key"',
        "",
        "note.txt",
        "--edge",
        'Content-Disposition: form-data; name="file"; filename="note.txt"',
        "Content-Type: text/plain",
        "",
        "Hello"
      )
      const stored = await fetch(url, good)
      assert.strictEqual(stored.status, 204, await stored.text())
    } finally {
      await store.kill()
      await rm(folder, { recursive: true, force: true })
    }
  })
})
