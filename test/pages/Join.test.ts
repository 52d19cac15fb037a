import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser } from "playwright-core"
import { newLink } from "../support/Operating.ts"
import { freshHandle, type Server, startServer } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"

const ALL = process.env["PAGES"] === "all"

describe.skipIf(CHROMIUM === undefined || !ALL)(
  `Registration by invitation${MISSING}${ALL ? "" : " (npm run test:pages)"}`,
  () => {
    let browser: Browser
    let server: Server
    let closed: Server
    beforeAll(async () => {
      ;[browser, server, closed] = await Promise.all([
        launch(),
        startServer({ env: { REGISTRATION: "invite" } }),
        startServer({ env: { REGISTRATION: "closed" } })
      ])
    })
    afterAll(async () => {
      await browser?.close()
      await Promise.all([server, closed].map((one) => one?.stop()))
    })

    it("an operator invites in the console, and a person registers with the link", async () => {
      const console = await Watched.open(browser, server.url)
      await console.page.goto(`${server.url}/console#${await newLink(server)}`)
      await console.page.getByRole("link", { name: "Invitations" }).click()
      const form = console.page.getByRole("form", { name: "Invite people" })
      await form.getByLabel("Agents").fill("2")
      await form.getByLabel("Note").fill("the Lisbon office")
      await form.getByRole("button", { name: "Invite" }).click()
      const link = await console.page.getByLabel("The invitation's link", { exact: true }).textContent() ?? ""
      assert.match(link, /\/join#inv_[\w-]{43}$/)
      const row = console.page.getByRole("row").filter({ hasText: "the Lisbon office" })
      await row.getByText("open").waitFor()
      await console.accessible()

      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/join${new URL(link).hash}`)
      const handle = freshHandle("join")
      await page.getByText("You are invited.").waitFor()
      await page.getByLabel("E-mail address").fill(`${handle}@example.com`)
      await page.getByLabel("Handle").fill(handle)
      await watched.accessible()
      await page.getByRole("button", { name: "Mail me a code" }).click()
      await page.getByLabel("Code").fill(await server.code(`${handle}@example.com`))
      await page.getByRole("button", { name: "Continue" }).click()
      await page.getByText("Your agent is ready").waitFor()
      const key = await page.getByLabel("The agent's key", { exact: true }).textContent() ?? ""
      assert.strictEqual((await server.http(key).get("/v1/agents/me")).status, 200)
      assert.notInclude(page.url(), "inv_")
      await watched.accessible()
      await watched.close()

      await console.page.reload()
      await row.getByRole("cell", { name: "1", exact: true }).waitFor()
      await row.getByRole("button", { name: "End" }).click()
      await console.page.getByText("The invitation is ended.").waitFor()
      await row.getByText("ended").waitFor()
      await console.close()
    })

    it("without an invitation a person reads what to do, and the server's refusal", async () => {
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/app`)
      await page.getByRole("button", { name: "Register" }).click()
      await page.getByText("Registration on this server needs an invitation").waitFor()
      await page.getByLabel("E-mail address").fill("somebody@example.com")
      await page.getByLabel("Handle").fill(freshHandle("app"))
      await watched.accessible()
      await page.getByRole("button", { name: "Mail me a code" }).click()
      await page.getByText("one for this address, or the code of one in invite_code").waitFor()
      await watched.close()
    })

    it("where nobody can register no form is shown", async () => {
      const watched = await Watched.open(browser, closed.url)
      for (const path of ["/join", "/app"]) {
        await watched.page.goto(`${closed.url}${path}`)
        if (path === "/app") await watched.page.getByRole("button", { name: "Register" }).click()
        await watched.page.getByText("Nobody can register on this server.").waitFor()
        assert.strictEqual(await watched.page.getByLabel("E-mail address").count(), 0)
        await watched.accessible()
      }
      await watched.close()
    })
  }
)
