import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane, send, signIn } from "./Panes.ts"
import { picture } from "./Pictures.ts"

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

let browser: Browser
let server: Server

const enter = async (page: Page, agent: TestAgent) => {
  await signIn(server, page, agent)
  return pane(page, agent)
}
const open = (at: Locator, name: string) =>
  at.getByRole("list", { name: "Conversations" }).getByRole("button", { name }).first().click()
const message = (at: Locator, text: string) => at.getByRole("article").filter({ hasText: text })
/** How many messages of its only conversation an agent has not read, and the first of them. */
const unreadOf = async (agent: TestAgent) => {
  const { conversations } = (await agent.http.get("/v1/conversations")).body as {
    readonly conversations: ReadonlyArray<
      { readonly unread_count: number; readonly oldest_unread_seq: number | null }
    >
  }
  return [conversations[0]?.unread_count, conversations[0]?.oldest_unread_seq] as const
}
/** Where a row begins below the top of the list, and the height of the list. */
const place = async (at: Locator, row: Locator) => {
  const [list, box] = [await at.locator(".scroller").boundingBox(), await row.boundingBox()]
  return list === null || box === null
    ? undefined
    : { top: box.y - list.y, bottom: box.y + box.height - list.y, height: list.height }
}
/** Ada has read ten messages of Bob, and has not read those after them. */
const world = async (unread: number) => {
  const [ada, bob] = await Promise.all([newAgent(server, "ada"), newAgent(server, "bob")])
  const { conversation_id: id } = await send(ada, { to: bob.handle, content: { text: "Are you there?" } })
  for (let i = 1; i <= 10; i++) await send(bob, { to: ada.handle, content: { text: `read ${i}.` } })
  await send(ada, { to: bob.handle, content: { text: "Go on." } })
  const history = (await ada.http.get(`/v1/messages/${id}?limit=50`)).body as ReadonlyArray<
    { readonly id: string; readonly sender: string }
  >
  for (const one of history)
    if (one.sender === bob.handle) await ada.http.post(`/v1/messages/${one.id}/read`)
  for (let i = 1; i <= unread; i++)
    await send(bob, { to: ada.handle, content: { text: `unread ${i}. ${"And more. ".repeat(i % 5)}` } })
  return { ada, bob, id, firstUnread: 13 }
}
const phone: BrowserContextOptions = { viewport: { width: 360, height: 740 }, hasTouch: true }

describe.skipIf(CHROMIUM === undefined)(`/app shows what is new${MISSING}`, () => {
  beforeAll(async () => {
    ;[browser, server] = await Promise.all([launch(), sharedServer()])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("opens a conversation at the first unread message, and marks as read only what was on the screen", async () => {
    const { ada, bob, firstUnread } = await world(80)
    assert.deepStrictEqual(await unreadOf(ada), [80, firstUnread])
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    const adas = await enter(page, ada)
    await open(adas, bob.handle)
    const first = message(adas, "unread 1.")
    await first.getByText("New messages").waitFor()
    await eventually("the first unread message in view", async () => {
      const at = await place(adas, first)
      return at !== undefined && at.top > 0 && at.bottom < at.height ? true : undefined
    })
    await eventually("some are read", async () => (await unreadOf(ada))[0] === 80 ? undefined : true)
    await eventually("the state of the server as shown", async () => {
      const [count] = await unreadOf(ada)
      return await adas.getByRole("button", { name: `Newest ↓ ${count} unread` }).count() === 1 ? true : undefined
    })
    const [left, next] = await unreadOf(ada)
    assert.isAbove(left!, 50)
    assert.strictEqual(next, firstUnread + 80 - left!)
    await watched.accessible()
    await picture(page, "app-unread")
    // To the newest: what is in between stays unread, and can be reached.
    await adas.getByRole("button", { name: "Newest" }).click()
    await message(adas, "unread 80.").waitFor()
    await eventually("the newest are read", async () => {
      const [count] = await unreadOf(ada)
      return await adas.getByRole("button", { name: `First unread ↑ ${count} unread` }).count() === 1 && count! < left!
        ? true
        : undefined
    })
    assert.strictEqual((await unreadOf(ada))[1], next)
    await watched.accessible()
    await adas.getByRole("button", { name: "First unread" }).press("Enter")
    await eventually(
      "the focus on it",
      async () => (await watched.focused()).includes("first new message") ? true : undefined
    )
    // By scrolling down all of them become read, and the line stays where it was.
    await eventually("all are read", async () => {
      await adas.locator(".scroller").evaluate((element) => element.scrollTop += 200)
      return (await unreadOf(ada))[0] === 0 ? true : undefined
    })
    await adas.getByRole("button", { name: "First unread" }).waitFor({ state: "detached" })
    await watched.close()
  })

  describe.skipIf(!ALL)(`the rest${ALL ? "" : " (npm run test:pages)"}`, () => {
    it("only watching opens at the first unread message, and marks nothing as read", async () => {
      const { ada, bob } = await world(30)
      const watched = await Watched.open(browser, server.url)
      const adas = pane(watched.page, ada)
      await watched.page.goto(`${server.url}/app`)
      await watched.page.getByLabel("Only watch").check()
      await watched.page.getByLabel("Agent's key").fill(ada.key)
      await watched.page.getByRole("button", { name: "Sign in", exact: true }).click()
      await adas.waitFor()
      await open(adas, bob.handle)
      await message(adas, "unread 1.").getByText("New messages").waitFor()
      await adas.getByRole("button", { name: "Newest" }).click()
      await message(adas, "unread 30.").waitFor()
      await adas.getByRole("button", { name: "First unread" }).waitFor()
      assert.strictEqual(await adas.getByRole("button", { name: "Mark all as read" }).count(), 0)
      assert.deepStrictEqual(await unreadOf(ada), [30, 13])
      await watched.close()
    })

    it("a message that comes while one reads above is counted beside Newest, and has the line before it", async () => {
      const { ada, bob } = await world(0)
      for (let i = 0; i < 20; i++) await send(ada, { to: bob.handle, content: { text: `own ${i}.` } })
      for (const colorScheme of ["dark", "light"] as const) {
        const watched = await Watched.open(browser, server.url, { ...phone, colorScheme })
        const { page } = watched
        const adas = await enter(page, ada)
        await open(adas, bob.handle)
        await message(adas, "own 19.").waitFor()
        await adas.locator(".scroller").evaluate((element) => element.scrollTop = 0)
        await adas.getByRole("button", { name: "Newest ↓", exact: true }).waitFor()
        await send(bob, { to: ada.handle, content: { text: `one ${colorScheme}` } })
        await send(bob, { to: ada.handle, content: { text: `two ${colorScheme}` } })
        await adas.getByRole("button", { name: "Newest ↓ 2 unread" }).waitFor()
        await watched.accessible()
        await picture(page, `app-phone-unread-${colorScheme}`)
        await adas.getByRole("button", { name: "Newest" }).click()
        await message(adas, `one ${colorScheme}`).getByText("New messages").waitFor()
        await eventually("they are read", async () => (await unreadOf(ada))[0] === 0 ? true : undefined)
        await watched.close()
      }
    })

    it("what the same agent reads elsewhere, and what comes to a muted conversation, is shown within half a minute", async () => {
      const { ada, bob, id } = await world(5)
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.clock.install()
      const adas = await enter(page, ada)
      const row = adas.getByRole("list", { name: "Conversations" }).getByRole("button", { name: bob.handle }).first()
      await row.locator(".count").getByText("5").waitFor()
      const history = (await ada.http.get(`/v1/messages/${id}?limit=5`)).body as ReadonlyArray<{ readonly id: string }>
      for (const one of history) await ada.http.post(`/v1/messages/${one.id}/read`)
      assert.strictEqual((await unreadOf(ada))[0], 0)
      await page.clock.fastForward(31_000)
      await row.locator(".count").waitFor({ state: "detached" })
      await ada.http.post("/v1/mutes", { target_kind: "conversation", target_id: id })
      await send(bob, { to: ada.handle, content: { text: "In silence." } })
      await page.clock.fastForward(31_000)
      await row.getByText("In silence.").waitFor()
      await open(adas, bob.handle)
      await message(adas, "In silence.").waitFor()
      await eventually("it is read", async () => (await unreadOf(ada))[0] === 0 ? true : undefined)
      await send(bob, { to: ada.handle, content: { text: "In the open conversation." } })
      await page.clock.fastForward(31_000)
      await message(adas, "In the open conversation.").waitFor()
      await watched.close()
    })

    it("all can be marked as read at once, by keyboard", async () => {
      const { ada, bob } = await world(120)
      const watched = await Watched.open(browser, server.url, phone)
      const adas = await enter(watched.page, ada)
      await open(adas, bob.handle)
      await message(adas, "unread 1.").getByText("New messages").waitFor()
      await adas.getByRole("button", { name: "Newest" }).click()
      await adas.getByRole("button", { name: "Mark all as read" }).press("Enter")
      await eventually("all are read", async () => (await unreadOf(ada))[0] === 0 ? true : undefined)
      await eventually(
        "the focus on a message",
        async () => (await watched.focused()).startsWith("ARTICLE") ? true : undefined
      )
      await watched.close()
    })
  })
})
