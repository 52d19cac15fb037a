import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser } from "playwright-core"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import { newLink } from "../support/Operating.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { picture } from "./Pictures.ts"

const ALL = process.env["PAGES"] === "all"
const EVIL = `<img src=x onerror="ran=1"><script>ran=1</script>`

let browser: Browser
let server: Server

describe.skipIf(CHROMIUM === undefined || !ALL)(`/console${MISSING}${ALL ? "" : " (npm run test:pages)"}`, () => {
  beforeAll(async () => {
    ;[browser, server] = await Promise.all([launch(), startServer()])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("nobody gets in without a link, and a link's token leaves the address and works once", async () => {
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await page.goto(`${server.url}/console`)
    await page.getByText("npm run admin -- console").waitFor()
    await watched.accessible()
    const token = await newLink(server)
    await page.goto(`${server.url}/console#${token}`)
    await page.getByRole("heading", { name: "Overview" }).waitFor()
    assert.notInclude(page.url(), "opl_")
    assert.notInclude(await page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage })"), "op")
    assert.strictEqual(await page.evaluate("document.cookie"), "")
    await page.getByRole("button", { name: "Sign out" }).click()
    await page.getByText("npm run admin -- console").waitFor()
    await page.goto(`${server.url}/console#${token}`)
    await page.getByText("This link was used already").waitFor()
    await watched.close()
  })

  it("every page: live figures, agents and why one gets nothing, groups, reports, webhooks, limits, audit, a node", async () => {
    const [ada, bob] = [await newAgent(server, "ada", { display_name: EVIL }), await newAgent(server, "bob")]
    await ada.http.post("/v1/messages", { to: bob.handle, client_msg_id: "1", content: { text: "never shown here" } })
    await ada.http.post("/v1/groups", { name: EVIL, description: EVIL, member_handles: [bob.handle] })
    await bob.http.post(`/v1/contacts/${ada.handle}/report`, { reason: EVIL })
    const watched = await Watched.open(browser, server.url, { viewport: { width: 1440, height: 900 } })
    const { page } = watched
    const go = (name: string) => page.getByRole("navigation", { name: "Console" }).getByRole("link", { name }).click()
    await page.goto(`${server.url}/console#${await newLink(server)}`)
    await page.getByRole("region", { name: "Nodes" }).getByText("ready").waitFor()
    await page.waitForTimeout(4_000)
    assert.strictEqual(await page.getByRole("alert").count(), 0)
    await watched.accessible()
    await picture(page, "console-overview")

    await go("Agents")
    await page.getByLabel("Handle begins with").fill("bob-")
    await page.getByRole("button", { name: "Find" }).click()
    await page.getByRole("link", { name: `@${bob.handle}` }).click()
    await page.getByRole("button", { name: "Why does it get nothing?" }).click()
    await page.getByText("stops here").first().waitFor()
    await watched.accessible()
    await picture(page, "console-agent")
    await page.getByLabel("Reason, for the audit log").fill(EVIL)
    await page.getByRole("button", { name: "Suspend" }).click()
    await page.getByRole("group").getByRole("button", { name: "Suspend" }).click()
    await page.getByText("is suspended.").first().waitFor()
    assert.strictEqual((await bob.http.get("/v1/contacts")).status, 403)
    await page.getByRole("button", { name: "Restore" }).click()
    await page.getByText("is restored").waitFor()
    assert.strictEqual((await bob.http.get("/v1/contacts")).status, 200)

    await go("Groups")
    await page.getByRole("link", { name: EVIL }).first().click()
    await page.getByRole("region", { name: "Members" }).waitFor()
    await watched.accessible()

    await go("Reports")
    await page.getByText(EVIL).first().waitFor()
    await watched.accessible()
    await page.getByRole("button", { name: "Dismiss" }).first().click()
    await page.getByText("it counts no more").waitFor()

    await go("Webhooks")
    await page.getByText("None is dead.").waitFor()
    await watched.accessible()

    await go("Limits")
    await page.getByRole("row").filter({ hasText: "LIMITS_" }).first().waitFor()
    await watched.accessible()
    await picture(page, "console-limits")

    await go("Audit")
    await page.getByRole("region", { name: "Audit" }).getByText(EVIL).first().waitFor()
    await watched.accessible()

    await go("Sessions")
    await page.getByText("this one").waitFor()
    await watched.accessible()

    await go("Overview")
    await page.getByRole("region", { name: "Nodes" }).getByRole("link").first().click()
    await page.getByLabel("Log level").selectOption("warn")
    await page.getByText("It logs from warn on").waitFor()
    await page.getByLabel("Log level").selectOption("debug")
    await watched.accessible()
    assert.notInclude(await page.content(), "never shown here")
    await watched.close()
  })

  it("360 px and dark: nothing sticks out", async () => {
    const watched = await Watched.open(browser, server.url, { viewport: { width: 360, height: 740 }, colorScheme: "dark" })
    const { page } = watched
    await page.goto(`${server.url}/console#${await newLink(server)}`)
    await page.getByRole("region", { name: "Nodes" }).getByText("ready").waitFor()
    assert.isAtMost(await page.evaluate("document.documentElement.scrollWidth"), 360)
    await watched.accessible()
    await watched.close()
  })
})
