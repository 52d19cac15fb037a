import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser } from "playwright-core"
import { say } from "../contract/Talk.ts"
import { newLink } from "../support/Operating.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"

const ALL = process.env["PAGES"] === "all"

describe.skipIf(CHROMIUM === undefined || !ALL)(
  `Moderation${MISSING}${ALL ? "" : " (npm run test:pages)"}`,
  () => {
    let browser: Browser
    let server: Server
    beforeAll(async () => {
      ;[browser, server] = await Promise.all([launch(), startServer()])
    })
    afterAll(async () => {
      await browser?.close()
      await server?.stop()
    })

    it("an operator acts on a group, a message and all agents in the console, and /app shows it", async () => {
      const [ada, ben] = await Promise.all(["ada", "ben"].map((prefix) => newAgent(server, prefix))) as [
        TestAgent,
        TestAgent
      ]
      const made = await ada.http.post("/v1/groups", { name: "Night watch", member_handles: [ben.handle] })
      const { add_results: [added], group } = made.body as {
        readonly group: { readonly id: string }
        readonly add_results: ReadonlyArray<{ readonly invite_id: string }>
      }
      assert.strictEqual((await ben.http.post(`/v1/groups/invites/${added!.invite_id}/accept`)).status, 200)
      const said = await say(ada, ben, { content: { text: "an unspeakable secret" } })

      const app = await Watched.open(browser, server.url)
      await app.page.goto(`${server.url}/app`)
      await app.page.getByLabel("Agent's key").fill(ben.key)
      await app.page.getByRole("button", { name: "Sign in", exact: true }).click()
      await app.page.getByRole("list", { name: "Conversations" }).getByRole("button", { name: ada.handle }).click()
      await app.page.getByText("an unspeakable secret").first().waitFor()

      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/console#${await newLink(server)}`)
      await ben.http.post(`/v1/contacts/${ada.handle}/report`, { reason: "secrets" })
      await page.getByRole("link", { name: "Reports" }).click()
      await page.getByRole("row").filter({ hasText: "secrets" }).getByRole("link").first().click()
      await page.getByRole("row").filter({ hasText: said.id }).getByText("an unspeakable secret").waitFor()
      await watched.accessible()
      await page.getByRole("link", { name: "Reports" }).click()
      await page.getByLabel("Remove a message for all (its id)").fill(said.id)
      await page.getByRole("button", { name: "Remove" }).click()
      await page.getByText("The message is removed.").waitFor()
      await watched.accessible()
      await app.page.getByText("An operator of the server removed this message.").waitFor()
      const list = app.page.getByRole("list", { name: "Conversations" })
      await list.getByText("an unspeakable secret").waitFor({ state: "detached" })
      assert.strictEqual(await app.page.getByRole("article").getByText("an unspeakable secret").count(), 0)

      await page.getByRole("link", { name: "Announcements" }).click()
      await page.getByLabel("To all agents").fill("Down on Sunday")
      await page.getByRole("button", { name: "Announce" }).click()
      await page.getByText("The agents are told, one after the other.").waitFor()
      await page.getByRole("row").filter({ hasText: "Down on Sunday" }).waitFor()
      await watched.accessible()
      await app.page.getByText("Down on Sunday").first().waitFor()

      await page.getByRole("link", { name: "Groups" }).click()
      await page.getByRole("link", { name: "Night watch" }).click()
      await page.getByRole("button", { name: `Make admin: @${ben.handle}` }).click()
      await page.getByText(`@${ben.handle} is an admin now.`).waitFor()
      await page.getByRole("button", { name: `Remove @${ada.handle}` }).click()
      await page.getByRole("group").getByRole("button", { name: "Remove" }).click()
      await page.getByText(`@${ada.handle} is removed.`).waitFor()
      await watched.accessible()
      await page.getByRole("button", { name: "Delete the group" }).click()
      await page.getByRole("group").getByRole("button", { name: "Delete the group" }).click()
      await page.getByText("The group is deleted.").waitFor()
      assert.strictEqual((await ben.http.get(`/v1/groups/${group.id}`)).status, 410)
      await watched.close()
      await app.close()
    })
  }
)
