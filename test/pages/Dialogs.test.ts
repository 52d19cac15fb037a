import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, Locator, Page } from "playwright-core"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane, send, signIn, talk } from "./Panes.ts"

declare const document: { readonly documentElement: { readonly scrollWidth: number } }

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

let browser: Browser
let server: Server

const open = (at: Locator, name: string | RegExp) =>
  at.getByRole("list", { name: "Conversations" }).getByRole("button", { name }).first().click()
const message = (at: Locator, text: string) => at.getByRole("article").filter({ hasText: text })
const fits = async (page: Page) => assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360)
const hasFocus = (watched: Watched, what: RegExp) =>
  eventually(`the focus on ${what}`, async () => what.test(await watched.focused()) ? true : undefined)
/** A button or an option can be hit with a thumb. */
const isLarge = async (target: Locator) => {
  const box = await target.boundingBox()
  assert.isAtLeast(Math.min(box!.width, box!.height), 43.9, await target.innerText())
}

describe.skipIf(CHROMIUM === undefined || !ALL)(`dialogs of /app${MISSING}`, () => {
  beforeAll(async () => {
    ;[browser, server] = await Promise.all([launch(), sharedServer()])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("the menu of a message has Hide, and says that nobody can edit a message or delete it for everyone", async () => {
    const [ada, bob] = await Promise.all(["ada", "bob"].map((name) => newAgent(server, name)))
    await talk(ada!, bob!)
    await send(ada!, { to: bob!.handle, content: { text: "With a tpyo" } })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    await open(adas, bob!.handle)
    const own = message(adas, "With a tpyo")
    await own.focus()
    await watched.tabTo(/^BUTTON More/)
    await page.keyboard.press("Enter")
    const menu = own.getByRole("group", { name: "More actions" })
    await menu.getByText("cannot be edited").waitFor()
    await menu.getByText("delete it for everyone").waitFor()
    await watched.accessible()
    await page.keyboard.press("Tab")
    await hasFocus(watched, /^BUTTON Hide/)
    await page.keyboard.press("Enter")
    await page.keyboard.press("Escape")
    await menu.getByRole("button", { name: "Hide" }).waitFor()
    await page.keyboard.press("Escape")
    await menu.waitFor({ state: "detached" })
    await hasFocus(watched, /^BUTTON More/)

    await page.setViewportSize({ width: 360, height: 740 })
    const others = message(adas, "I am.")
    await others.hover()
    await others.getByRole("button", { name: "More" }).click()
    const text = others.getByText("Hide removes the message for this agent only.")
    await text.waitFor()
    assert.notInclude(await text.textContent(), "edited")
    await isLarge(others.getByRole("button", { name: "Hide" }))
    await fits(page)
    await watched.accessible()
    await watched.close()
  })
})
