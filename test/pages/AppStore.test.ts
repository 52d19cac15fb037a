import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Browser, Locator } from "playwright-core"
import S3rver from "s3rver"
import { freePort } from "../../runners/local/FreePort.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane } from "./Panes.ts"

const ALL = process.env["PAGES"] === "all"
const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64"
)

/** The rule of docs/operations.md, as S3 takes it. */
const rule = (origin: string): string =>
  `<CORSConfiguration><CORSRule><AllowedOrigin>${origin}</AllowedOrigin><AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>
  <AllowedHeader>*</AllowedHeader><ExposeHeader>Content-Disposition</ExposeHeader></CORSRule></CORSConfiguration>`

/** A server whose files are in a store of another origin. */
class Stored {
  readonly server: Server
  readonly origin: string
  /** What the store was asked: method and headers. */
  readonly asked: Array<{ readonly method: string; readonly headers: Readonly<Record<string, string | undefined>> }>
  private readonly store: S3rver
  private readonly directory: string

  private constructor(server: Server, origin: string, asked: Stored["asked"], store: S3rver, directory: string) {
    this.server = server
    this.origin = origin
    this.asked = asked
    this.store = store
    this.directory = directory
  }

  static async start(hasRule: boolean): Promise<Stored> {
    const directory = await mkdtemp(join(tmpdir(), "parley-store-"))
    const port = String(await freePort())
    const configs = hasRule ? [rule(`http://127.0.0.1:${port}`)] : []
    const store = new S3rver({
      port: 0,
      address: "127.0.0.1",
      silent: true,
      directory,
      configureBuckets: [{ name: "parley", configs }]
    })
    const asked: Array<Stored["asked"][number]> = []
    store.middleware.unshift(async ({ headers, method }, next) => {
      asked.push({ method, headers })
      await next()
    })
    const origin = `http://127.0.0.1:${(await store.run()).port}`
    const server = await startServer({
      env: {
        PORT: port,
        S3_BUCKET: "parley",
        S3_ENDPOINT: origin,
        S3_ACCESS_KEY_ID: "S3RVER",
        S3_SECRET_ACCESS_KEY: "S3RVER",
        S3_FORCE_PATH_STYLE: "on"
      }
    })
    return new Stored(server, origin, asked, store, directory)
  }

  async stop(): Promise<void> {
    await this.server.stop()
    await this.store.close()
    await rm(this.directory, { recursive: true, force: true })
  }
}

describe.skipIf(CHROMIUM === undefined || !ALL)(
  `/app with files in S3${MISSING}${ALL ? "" : " (npm run test:pages)"}`,
  () => {
    let browser: Browser
    let withRule: Stored
    let without: Stored
    beforeAll(async () => {
      ;[browser, withRule, without] = await Promise.all([launch(), Stored.start(true), Stored.start(false)])
    })
    afterAll(async () => {
      await browser?.close()
      await Promise.all([withRule?.stop(), without?.stop()])
    })

    /** The page with two agents that have written to each other, their conversation open on both sides. */
    const open = async ({ origin, server }: Stored) => {
      const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
      for (const [from, to] of [[ada, bob], [bob, ada]] as const) {
        await from.http.post("/v1/messages", {
          to: to.handle,
          client_msg_id: "first",
          content: { text: "Are you there?" }
        })
      }
      const watched = await Watched.open(browser, server.url, {}, [origin])
      const { page } = watched
      await page.goto(`${server.url}/app`)
      await page.getByLabel("Agent's key").fill(`${ada.key} ${bob.key}`)
      await page.getByRole("button", { name: "Sign in", exact: true }).click()
      for (const [me, other] of [[ada, bob], [bob, ada]] as const) {
        await pane(page, me).getByRole("list", { name: "Conversations" }).getByRole("button", { name: other.handle })
          .first().click()
      }
      return { watched, page, ada, bob }
    }
    const attach = async (at: Locator, name: string) => {
      await at.locator("input[type=file]").setInputFiles({ name, mimeType: "image/png", buffer: PNG })
      await at.getByRole("textbox", { name: "Message" }).fill("a picture")
      await at.getByRole("button", { name: "Send", exact: true }).click()
    }

    it("sends and shows a file past the server; the store is the one other origin, and gets no key", async () => {
      const { ada, bob, page, watched } = await open(withRule)
      const policy = (await fetch(`${withRule.server.url}/app`, { headers: { accept: "text/html" } })).headers.get(
        "content-security-policy"
      ) ?? ""
      assert.include(policy, `connect-src 'self' ${withRule.origin};`)
      assert.strictEqual(policy.match(/https?:/g)?.length, 1)
      await attach(pane(page, ada), "a plan – ümläut.png")
      const row = pane(page, bob).getByRole("article").filter({ hasText: "a picture" })
      await row.locator("img").waitFor()
      assert.strictEqual(
        await row.locator("img").evaluate((image) => (image as unknown as { naturalWidth: number }).naturalWidth),
        1
      )
      assert.include(await row.locator(".file-name").textContent(), "a plan – ümläut.png")
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        row.getByRole("button", { name: "Save" }).click()
      ])
      assert.isTrue(PNG.equals(Buffer.concat(await (await download.createReadStream()).toArray() as Array<Buffer>)))
      const byPage = withRule.asked.filter(({ headers }) => headers["origin"] === withRule.server.url)
      assert.includeMembers(byPage.map(({ method }) => method), ["PUT", "GET"])
      for (const { headers } of withRule.asked)
        assert.notMatch(
          JSON.stringify(headers),
          /ac_[\w-]{43}/,
          "an agent's key at the store"
        )
      await watched.accessible()
      await watched.assertGood()
      // Any other origin is refused by the page's policy, and not asked.
      const elsewhere = without.origin
      assert.strictEqual(
        await page.evaluate(`fetch("${elsewhere}/parley").then(() => "reached", () => "refused")`),
        "refused"
      )
      assert.match(String(await page.evaluate("breaches.join()")), new RegExp(`^connect-src: ${elsewhere}`))
      await page.context().close()
    })

    it("says what is wrong where the store has no rule for the page", async () => {
      const { ada, bob, page, watched } = await open(without)
      watched.lenient = true
      await attach(pane(page, ada), "plan.png")
      await pane(page, ada).getByText(
        "The file cannot be sent: the store that the server keeps files in does not answer this page."
      ).waitFor()
      // A file that a program has put there cannot be shown either.
      const announced = (await ada.http.post("/v1/uploads", {
        to: bob.handle,
        filename: "plan.png",
        content_type: "image/png",
        size: PNG.length,
        sha256: createHash("sha256").update(PNG).digest("hex")
      })).body as { readonly attachment_id: string; readonly upload_url: string }
      assert.strictEqual((await fetch(announced.upload_url, { method: "PUT", body: PNG })).status, 200)
      await ada.http.post("/v1/messages", {
        to: bob.handle,
        client_msg_id: "file",
        type: "file",
        content: { text: "by a program", attachment_id: announced.attachment_id }
      })
      const row = pane(page, bob).getByRole("article").filter({ hasText: "by a program" })
      await row.getByText("plan.png").waitFor()
      await row.getByText(
        "The file cannot be fetched: the server, or the store that it keeps files in, does not answer this page."
      ).waitFor()
      await watched.close()
    })
  }
)
