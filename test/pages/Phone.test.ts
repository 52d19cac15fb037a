import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, Locator, Page } from "playwright-core"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane, send, signIn, talk } from "./Panes.ts"
import { picture } from "./Pictures.ts"

/** What runs in the page. */
interface Node {
  readonly tagName: string
  readonly textContent: string | null
  readonly getBoundingClientRect: () => { readonly width: number; readonly height: number }
}
declare const document: {
  readonly documentElement: { readonly scrollWidth: number }
  readonly querySelectorAll: (selector: string) => Iterable<Node>
}

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

let browser: Browser
let server: Server

const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true }

/** The buttons, links and fields on the screen that are smaller than 44 × 44 px, except links in a text. */
const tooSmall = (page: Page) =>
  page.evaluate(() =>
    [...document.querySelectorAll(
      "button, a:not(.text a), select, summary, textarea, input:not([type=file], [type=radio], [type=checkbox]), label:has([type=radio], [type=checkbox])"
    )].flatMap(
      (element) => {
        const { height, width } = element.getBoundingClientRect()
        return width <= 1 || height <= 1 || (width >= 44 && height >= 44)
          ? []
          : [`${element.tagName} ${element.textContent?.trim()} ${width} × ${height}`]
      }
    )
  )
const fits = async (page: Page, where: string) => {
  assert.deepStrictEqual(await tooSmall(page), [], where)
  assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360, where)
}
const view = (at: Locator, name: string) => at.getByRole("group", { name: "Views" }).getByRole("button", { name }).tap()
const open = async (at: Locator, other: TestAgent) => {
  await at.getByRole("list", { name: "Conversations" }).getByRole("button", { name: other.handle }).first().tap()
  await at.getByRole("article").first().waitFor()
}

describe.skipIf(CHROMIUM === undefined || !ALL)(
  `/app on a phone${MISSING}${ALL ? "" : " (npm run test:pages)"}`,
  () => {
    beforeAll(async () => {
      ;[browser, server] = await Promise.all([launch(), sharedServer()])
    })
    afterAll(async () => {
      await browser?.close()
      await server?.stop()
    })

    for (const colorScheme of ["light", "dark"] as const) {
      it(`has one row of head with two agents, and targets of 44 px in every view, ${colorScheme}`, async () => {
        const [ada, bob] = await Promise.all([newAgent(server, "ada"), newAgent(server, "bob")])
        await talk(ada, bob)
        for (let i = 0; i < 20; i++)
          await send(ada, {
            to: bob.handle,
            content: { text: `Line ${i} of the offer. ` }
          })
        const watched = await Watched.open(browser, server.url, { ...phone, colorScheme })
        const { page } = watched
        await signIn(server, page, ada, bob)
        const at = pane(page, bob)
        const top = await page.locator(".top").boundingBox()
        assert.isAtMost(top!.height, 60)
        await page.getByRole("button", { name: "Add an agent" }).tap()
        await page.getByRole("dialog", { name: "Add an agent" }).waitFor()
        await fits(page, "the dialog for one more agent")
        await page.keyboard.press("Escape")
        for (const name of ["People", "New", "Agent", "Messages"]) {
          await view(at, name)
          await fits(page, name)
          await watched.accessible()
        }
        await picture(page, `phone-list-${colorScheme}`)
        await open(at, ada)
        await at.getByText("New messages").waitFor()
        await fits(page, "a conversation")
        // Newest is below the messages, and covers none of them.
        const newest = await at.getByRole("button", { name: "Newest" }).boundingBox()
        const list = await at.locator(".scroller").boundingBox()
        assert.isAtLeast(newest!.y, list!.y + list!.height)
        // A message that is touched shows its actions.
        const first = at.getByRole("article").filter({ hasText: "Line 1 of" })
        assert.strictEqual(await first.getByRole("button", { name: "Reply" }).isVisible(), false)
        await first.getByText("Line 1 of").tap()
        await first.getByRole("button", { name: "Reply" }).waitFor()
        await first.getByRole("button", { name: "React" }).waitFor()
        // It follows another message of its sender, so its time is among the actions.
        assert.match(await first.locator("time").getAttribute("title") ?? "", /day.*\d{4}/)
        await first.locator("time").waitFor()
        await first.getByRole("button", { name: "More" }).tap()
        await first.getByText("Only an operator can delete it for everyone.").waitFor()
        await fits(page, "the actions of a message")
        await watched.accessible()
        await picture(page, `phone-thread-${colorScheme}`)
        await at.getByRole("button", { name: "Newest" }).tap()
        await at.getByRole("article").filter({ hasText: "Line 19 " }).waitFor()
        await eventually(
          "the end",
          async () => await at.getByRole("button", { name: "Newest" }).count() === 0 ? true : undefined
        )
        await watched.close()
      })
    }

    it("shows a profile whole, in the conversation and over it", async () => {
      const [ada, bob] = await Promise.all([newAgent(server, "ada"), newAgent(server, "bob")])
      await talk(ada, bob)
      await send(ada, { to: bob.handle, content: { text: `Ask @${bob.handle} and @${ada.handle}.` } })
      const watched = await Watched.open(browser, server.url, phone)
      const { page } = watched
      await signIn(server, page, bob)
      const at = pane(page, bob)
      await open(at, ada)
      await at.getByRole("button", { name: "About" }).tap()
      const panel = at.locator("aside.panel")
      await panel.getByRole("button", { name: "Hide conversation" }).waitFor()
      const whole = () => panel.evaluate(({ clientHeight, scrollHeight }) => scrollHeight - clientHeight)
      await eventually("a panel without scrolling", async () => await whole() <= 0 ? true : undefined)
      await fits(page, "About")
      await watched.accessible()
      await picture(page, "phone-about")
      await panel.getByRole("button", { name: "Close" }).tap()
      await at.locator("a.mention").first().tap()
      const dialog = page.getByRole("dialog", { name: `Profile of @${ada.handle}` })
      await dialog.waitFor()
      await fits(page, "a profile")
      const [close, around] = [
        await dialog.getByRole("button", { name: "Close" }).boundingBox(),
        await dialog.boundingBox()
      ]
      assert.isAtLeast(around!.x + around!.width - close!.x - close!.width, 4, "room for the ring of the focus")
      assert.strictEqual(
        await dialog.locator(".panel").evaluate((element) =>
          (globalThis as unknown as { getComputedStyle: (of: unknown) => { overflow: string } }).getComputedStyle(
            element
          ).overflow
        ),
        "visible"
      )
      await picture(page, "phone-profile")
      await watched.close()
    })
  }
)
