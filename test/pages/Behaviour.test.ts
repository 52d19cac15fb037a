import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, Locator, Page } from "playwright-core"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane, send, signIn, talk } from "./Panes.ts"

declare const document: {
  readonly documentElement: { readonly scrollWidth: number }
  readonly activeElement: {
    readonly tagName: string
    readonly textContent: string | null
    readonly getAttribute: (name: string) => string | null
  } | null
}
declare const localStorage: Readonly<Record<string, unknown>>
declare const sessionStorage: Readonly<Record<string, unknown>>

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

let browser: Browser
let server: Server

const keyField = (page: Page) => page.getByLabel("Agent's key")
const view = (at: Locator, name: string) =>
  at.getByRole("group", { name: "Views" }).getByRole("button", { name }).click()
const field = (at: Locator) => at.getByRole("textbox", { name: "Message" })
const open = (at: Locator, name: string | RegExp) =>
  at.getByRole("list", { name: "Conversations" }).getByRole("button", { name }).first().click()
const title = (at: Locator, name: string) => at.getByRole("heading", { name, exact: true, level: 2 }).waitFor()
const message = (at: Locator, text: string) => at.getByRole("article").filter({ hasText: text })
const hash = (page: Page) => new URL(page.url()).hash
const focused = (page: Page) =>
  page.evaluate(() => {
    const element = document.activeElement
    return `${element?.tagName} ${element?.getAttribute("aria-label") ?? element?.textContent?.trim() ?? ""}`
  })
const hasFocus = (page: Page, what: RegExp) =>
  eventually(`the focus on ${what}`, async () => what.test(await focused(page)) ? true : undefined)
/** An agent, and others that have each talked with it. */
const world = async (...names: ReadonlyArray<string>) => {
  const [ada, ...others] = await Promise.all(["ada", ...names].map((name) => newAgent(server, name)))
  const ids: Array<string> = []
  for (const other of others) {
    ids.push(await talk(ada!, other))
  }
  return { ada: ada!, others, ids }
}

describe.skipIf(CHROMIUM === undefined)(`/app behaves like an application${MISSING}`, () => {
  beforeAll(async () => {
    ;[browser, server] = await Promise.all([launch(), sharedServer()])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("has a URL for each agent and conversation; a reload and Back keep agents, threads and drafts, and signing out removes all of it", async () => {
    const { ada, ids, others: [bob, carl] } = await world("bob", "carl")
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada)
    const adas = pane(page, ada)
    await open(adas, bob!.handle)
    await title(adas, bob!.handle)
    assert.strictEqual(hash(page), `#/${ada.handle}/${ids[0]}`)
    await eventually(
      "the title",
      async () => await page.title() === `(1) ${bob!.handle} · @${ada.handle} · Parley` ? true : undefined
    )
    await hasFocus(page, /^TEXTAREA/)
    await field(adas).fill("half a thought")
    await open(adas, carl!.handle)
    await title(adas, carl!.handle)
    assert.strictEqual(await field(adas).inputValue(), "")
    await adas.getByText("draft", { exact: true }).waitFor()
    await adas.getByText(`as @${ada.handle}`).first().waitFor()
    await watched.accessible()

    await page.goBack()
    await title(adas, bob!.handle)
    await eventually("the draft", async () => await field(adas).inputValue() === "half a thought" ? true : undefined)
    await page.goForward()
    await title(adas, carl!.handle)
    await page.goBack()
    await page.reload()
    await title(adas, bob!.handle)
    await message(adas, "I am.").waitFor()
    assert.strictEqual(await field(adas).inputValue(), "half a thought")
    await hasFocus(page, /^TEXTAREA/)
    assert.notInclude(
      await page.evaluate(() => JSON.stringify({ ...localStorage })),
      ada.key,
      "only the tab keeps the key"
    )
    assert.notInclude(page.url(), ada.key)

    await view(adas, "Agent")
    await adas.getByRole("button", { name: "Sign out" }).click()
    await adas.getByRole("button", { name: "Sign out" }).click()
    await keyField(page).waitFor()
    assert.strictEqual(hash(page), "")
    const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))
    assert.notInclude(kept, ada.key)
    assert.notInclude(kept, "half a thought")
    await page.reload()
    await keyField(page).waitFor()
    await watched.close()
  })

  it("Hide asks; what is hidden can be shown again for ten seconds, and is hidden at once when the page is closed", async () => {
    const { ada, ids: [id], others: [bob] } = await world("bob")
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await page.clock.install()
    await signIn(server, page, ada)
    const adas = pane(page, ada)
    const calls: Array<string> = []
    page.on("request", (request) => {
      if (request.method() === "DELETE") calls.push(new URL(request.url()).pathname)
    })
    await open(adas, bob!.handle)
    const row = message(adas, "I am.")
    await row.hover()
    await row.getByRole("button", { name: "More" }).click()
    await row.getByRole("button", { name: "Hide" }).click()
    await row.getByText("Hide the message for this agent?").waitFor()
    await watched.accessible()
    await page.keyboard.press("Escape")
    await hasFocus(page, /^BUTTON Hide/)
    await page.keyboard.press("Enter")
    await hasFocus(page, /^BUTTON Hide/)
    await page.keyboard.press("Enter")
    await row.waitFor({ state: "detached" })
    await hasFocus(page, /^BUTTON Undo/)
    await page.keyboard.press("Enter")
    await row.waitFor()
    assert.deepStrictEqual(calls, [])
    const hide = async () => {
      await row.hover()
      await row.getByRole("button", { name: "More" }).click()
      await row.getByRole("button", { name: "Hide" }).click()
      await row.getByRole("group", { name: "Hide the message" }).getByRole("button", { name: "Hide" }).click()
      await row.waitFor({ state: "detached" })
    }
    await hide()
    await page.reload()
    const texts = async () =>
      ((await ada.http.get(`/v1/messages/${id}`)).body as ReadonlyArray<{ content: { text: string } }>).map((
        { content }
      ) => content.text)
    await eventually("the hidden message", async () => (await texts()).includes("I am.") ? undefined : true)
    // A conversation: from the panel, undone, then for good.
    const hideConversation = async () => {
      await adas.getByRole("button", { name: "About" }).click()
      await adas.getByRole("complementary").getByRole("button", { name: "Hide conversation" }).click()
      await adas.getByRole("complementary").getByRole("group").getByRole("button", { name: "Hide conversation" })
        .click()
      await adas.getByText("The conversation is hidden").waitFor()
    }
    await title(adas, bob!.handle)
    await hideConversation()
    await adas.getByRole("button", { name: "Undo" }).click()
    await title(adas, bob!.handle)
    await hideConversation()
    assert.strictEqual(await adas.getByRole("list", { name: "Conversations" }).getByRole("button").count(), 0)
    const list = adas.getByRole("list", { name: "Conversations" })
    // A message that comes when the server has hidden the conversation, and the page has not heard so yet.
    const answered = new Promise<void>((resolve, reject) => {
      void page.route(`**/v1/conversations/${id}`, async (route) => {
        const response = await route.fetch()
        await send(bob!, { to: ada.handle, content: { text: "Still there?" } })
        await list.getByText("Still there?").waitFor()
        await route.fulfill({ response })
      }).catch(reject)
      page.on("requestfinished", (request) => {
        if (request.method() === "DELETE") resolve()
      })
    })
    await page.clock.runFor(10_500)
    await answered
    assert.strictEqual(calls.at(-1), `/v1/conversations/${id}`)
    await page.clock.runFor(1_000)
    await list.getByText("Still there?").waitFor()
    await list.getByRole("button").click()
    await message(adas, "Still there?").waitFor()
    assert.strictEqual(await message(adas, "I am.").count(), 0)
    await watched.close()
  })

  describe.skipIf(!ALL)(`the rest${ALL ? "" : " (npm run test:pages)"}`, () => {
    it("a link opens a conversation at a message, marks it, and loads what is around it in both directions", async () => {
      const { ada, ids: [id], others: [bob] } = await world("bob")
      for (let i = 3; i <= 260; i++)
        await send(i % 2 === 0 ? ada : bob!, {
          to: i % 2 === 0 ? bob!.handle : ada.handle,
          content: { text: `line ${i}.` }
        })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/app#/${ada.handle}/${id}?at=100`)
      await page.getByText(`This link is for @${ada.handle}`).waitFor()
      await keyField(page).fill(ada.key)
      await page.getByRole("button", { name: "Sign in", exact: true }).click()
      const adas = pane(page, ada)
      await message(adas, "line 100.").waitFor()
      assert.include(await message(adas, "line 100.").getAttribute("class"), "marked")
      await hasFocus(page, /^ARTICLE You/)
      await eventually("the message in view", async () => {
        const [row, box] = [
          await message(adas, "line 100.").boundingBox(),
          await adas.locator(".scroller").boundingBox()
        ]
        return row !== null && box !== null && row.y >= box.y && row.y + row.height <= box.y + box.height
          ? true
          : undefined
      })
      await watched.accessible()
      // Its number is a link to the message itself.
      await message(adas, "line 101.").getByRole("link", { name: "#101" }).click()
      assert.strictEqual(hash(page), `#/${ada.handle}/${id}?at=101`)
      await hasFocus(page, new RegExp(`^ARTICLE @${bob!.handle}`))
      await page.goBack()
      await hasFocus(page, /^ARTICLE You/)
      // Downwards by scrolling, past what was loaded at first.
      const scroller = adas.locator(".scroller")
      await eventually("a later message", async () => {
        await scroller.evaluate((element) => {
          element.scrollTop = element.scrollHeight
        })
        return await message(adas, "line 260.").count() === 1 ? true : undefined
      })
      await page.goto(`${server.url}/app#/${ada.handle}/${id}?at=100`)
      await page.reload()
      await message(adas, "line 100.").waitFor()
      // A message that comes meanwhile is there after the jump to the newest.
      await send(bob!, { to: ada.handle, content: { text: "the newest" } })
      await adas.getByRole("list", { name: "Conversations" }).getByText("the newest").waitFor()
      await adas.getByRole("button", { name: "Newest ↓" }).click()
      await message(adas, "the newest").waitFor()
      assert.strictEqual(hash(page), `#/${ada.handle}/${id}`)
      await page.goto(`${server.url}/app#/${ada.handle}/conv_nothing`)
      await adas.getByText("This conversation is not there").waitFor()
      assert.strictEqual(hash(page), `#/${ada.handle}`)
      await watched.close()
    })

    it("finds messages, shows them with what is around the words, and opens the conversation at one, by keyboard", async () => {
      const { ada, ids: [id, other], others: [bob, carl] } = await world("bob", "carl")
      await send(bob!, {
        to: ada.handle,
        content: { text: `${"Before it. ".repeat(20)}The *harbour* of Lisbon is open. ${"After it. ".repeat(20)}` }
      })
      for (let i = 0; i < 120; i++)
        await send(i % 2 === 0 ? ada : bob!, {
          to: i % 2 === 0 ? bob!.handle : ada.handle,
          content: { text: `line ${i}.` }
        })
      await send(carl!, { to: ada.handle, content: { text: "<b>harbour</b> master" } })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      const asked: Array<string> = []
      // The first answer for the whole word says that the index does not have all messages yet. A busy machine may type so
      // slowly that a part of the word is searched before.
      await page.route("**/v1/messages/search?**", async (route) => {
        const isAnswered = asked.some((q) => q.startsWith("harb"))
        asked.push(new URL(route.request().url()).searchParams.get("q") ?? "")
        const response = await route.fetch()
        const body = await response.json() as { readonly messages: ReadonlyArray<unknown> }
        await route.fulfill({
          response,
          json: !isAnswered
            ? { ...body, messages: body.messages.slice(0, 1), complete: false }
            : { ...body, complete: true }
        })
      })
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      const box = adas.getByRole("searchbox", { name: "Search messages" })
      await box.pressSequentially("harb", { delay: 5 })
      await adas.getByText("Older messages are still being indexed.").waitFor()
      await watched.accessible()
      const hits = adas.getByRole("list", { name: "Found messages" }).getByRole("button")
      await hits.nth(1).waitFor()
      assert.deepStrictEqual(
        asked.filter((q) => q === "harb*"),
        ["harb*", "harb*"],
        "one search for what was typed, and one because it was incomplete"
      )
      await adas.getByText("Older messages are still being indexed.").waitFor({ state: "detached" })
      assert.deepStrictEqual(await hits.locator("mark").allTextContents(), ["harbour", "harbour"])
      assert.include(await hits.first().textContent(), "<b>harbour</b> master")
      assert.include(await hits.nth(1).textContent(), "of Lisbon is open.")
      await page.keyboard.press("ArrowDown")
      await page.keyboard.press("ArrowDown")
      await page.keyboard.press("Enter")
      await title(adas, bob!.handle)
      assert.strictEqual(hash(page), `#/${ada.handle}/${id}?at=3`)
      await hasFocus(page, new RegExp(`^ARTICLE @${bob!.handle}`))
      await page.goBack()
      assert.strictEqual(await box.inputValue(), "harb")
      await hits.first().click()
      await title(adas, carl!.handle)
      assert.isTrue(hash(page).startsWith(`#/${ada.handle}/${other}?at=`))
      await box.fill("no such words anywhere")
      await adas.getByText("No message has all of these words.").waitFor()
      await box.press("Escape")
      await adas.getByRole("list", { name: "Conversations" }).waitFor()
      await hasFocus(page, /^INPUT/)
      await watched.close()
    })

    it("completes a handle after @ by keyboard, and Escape closes what opened last and returns the focus", async () => {
      const { ada, others: [bob, carl] } = await world("bobcat", "carl")
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await open(adas, carl!.handle)
      await hasFocus(page, /^TEXTAREA/)
      await page.keyboard.type(`Ask @${bob!.handle.slice(0, 4)}`)
      const list = adas.getByRole("listbox", { name: "Agents" })
      await list.getByRole("option", { name: `@${bob!.handle}` }).waitFor()
      await watched.accessible()
      await page.keyboard.press("Escape")
      await list.waitFor({ state: "detached" })
      await page.keyboard.type(bob!.handle.slice(4, 5))
      await list.waitFor()
      await page.keyboard.press("Tab")
      assert.strictEqual(await field(adas).inputValue(), `Ask @${bob!.handle} `)
      await hasFocus(page, /^TEXTAREA/)
      await page.keyboard.type("or @")
      await list.getByRole("option").nth(1).waitFor()
      await page.keyboard.press("ArrowDown")
      const second = await list.getByRole("option").nth(1).locator(".handle").textContent()
      await list.getByRole("option", { name: second!, selected: true }).waitFor()
      await page.keyboard.press("Enter")
      await eventually(
        "the second",
        async () => await field(adas).inputValue() === `Ask @${bob!.handle} or ${second} ` ? true : undefined
      )
      // About, then a question in it: Escape closes the question, then About.
      const about = adas.getByRole("button", { name: "About" })
      await about.click()
      await hasFocus(page, /^BUTTON Close/)
      const panel = adas.getByRole("complementary")
      await panel.getByRole("button", { name: "Block" }).click()
      await panel.getByText("Neither can write").waitFor()
      await page.keyboard.press("Escape")
      await panel.getByText("Neither can write").waitFor({ state: "detached" })
      await page.keyboard.press("Escape")
      await panel.waitFor({ state: "detached" })
      await hasFocus(page, /^BUTTON About/)
      // A message that mentions the agent says so. A blocked agent is marked above its thread and in the list.
      await send(carl!, { to: ada.handle, content: { text: `For @${ada.handle}` } })
      await adas.getByText("Mentions you").waitFor()
      await about.click()
      await panel.getByRole("button", { name: "Block" }).click()
      await panel.getByRole("group").getByRole("button", { name: "Block" }).click()
      await adas.locator(".thread-head").getByText("blocked").waitFor()
      await adas.locator(".conversation.open").getByText("blocked").waitFor()
      await watched.accessible()
      await watched.close()
    })

    it("notifications and a sound are off until asked for, and say no text unless asked; the title counts", async () => {
      const { ada, others: [bob, carl] } = await world("bob", "carl")
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.addInitScript(() => {
        const seen: Array<string> = []
        class Fake {
          static requestPermission() {
            seen.push("asked")
            return Promise.resolve("granted")
          }
          click: (() => void) | undefined
          constructor(title: string, { body }: { readonly body: string }) {
            seen.push(`${title}|${body}`)
            Object.assign(globalThis, { newest: this })
          }
          addEventListener(_: string, listener: () => void) {
            this.click = listener
          }
          close() {}
        }
        class Audio {
          currentTime = 0
          destination = {}
          resume() {
            seen.push("sound")
            return Promise.resolve()
          }
          createOscillator() {
            return { frequency: {}, connect: (to: unknown) => to, start() {}, stop() {} }
          }
          createGain() {
            return { gain: { setValueAtTime() {}, exponentialRampToValueAtTime() {} }, connect: (to: unknown) => to }
          }
        }
        Object.assign(globalThis, { seen, Notification: Fake, AudioContext: Audio })
        Object.assign(document, {
          hasFocus: () => (globalThis as unknown as { readonly away?: boolean }).away !== true
        })
      })
      const seen = () => page.evaluate(() => (globalThis as unknown as { readonly seen: ReadonlyArray<string> }).seen)
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await open(adas, carl!.handle)
      const counts = (count: number) =>
        eventually(`the count ${count}`, async () => (await page.title()).startsWith(`(${count}) `) ? true : undefined)
      await counts(1)
      await page.evaluate(() => Object.assign(globalThis, { away: true }))
      await send(bob!, { to: ada.handle, content: { text: "First" } })
      await counts(2)
      assert.deepStrictEqual(await seen(), [])
      await page.getByRole("button", { name: "Notifications and sound: off" }).click()
      await watched.accessible()
      await page.getByLabel("Show notifications").check()
      await page.getByLabel("Play a sound").check()
      assert.deepStrictEqual(await seen(), ["asked", "sound"])
      await page.keyboard.press("Escape")
      await hasFocus(page, /^BUTTON Notifications/)
      await send(bob!, { to: ada.handle, content: { text: "Second" } })
      await eventually("a notification", async () => (await seen()).at(-1)?.includes("|") === true ? true : undefined)
      assert.strictEqual((await seen()).at(-1), `@${bob!.handle} wrote to @${ada.handle}|`)
      await page.getByRole("button", { name: "Notifications and sound: on" }).click()
      await page.getByLabel("With the text of the message").check()
      await send(bob!, { to: ada.handle, content: { text: "Third" } })
      await eventually(
        "its text",
        async () => (await seen()).at(-1) === `@${bob!.handle} wrote to @${ada.handle}|Third` ? true : undefined
      )
      await page.evaluate(() =>
        (globalThis as unknown as { readonly newest: { readonly click: () => void } }).newest.click()
      )
      await title(adas, bob!.handle)
      await watched.close()
    })

    it("shows an invitation, a new group and a group that was left as they are", async () => {
      const { ada, others: [bob] } = await world("bob")
      const { group } = (await ada.http.post("/v1/groups", { name: "Night watch", member_handles: [bob!.handle] }))
        .body as { group: { id: string } }
      await ada.http.patch(`/v1/groups/${group.id}`, { name: "Day watch" })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada, bob!)
      const [adas, bobs] = [pane(page, ada), pane(page, bob!)]
      await bobs.getByText(`@${ada.handle} invites you to Day watch (1 member)`).waitFor()
      await adas.getByText(`@${ada.handle} named the group “Day watch”.`).first().waitFor()
      assert.strictEqual(await adas.getByText("You: System message").count(), 0)
      await bobs.getByRole("button", { name: "Join" }).click()
      await title(bobs, "Day watch")
      await bobs.getByRole("button", { name: "Group", exact: true }).click()
      const panel = bobs.getByRole("complementary")
      await panel.getByRole("button", { name: "None" }).click()
      await panel.getByRole("button", { name: "None", pressed: true }).waitFor()
      await panel.getByRole("button", { name: "Leave" }).click()
      await panel.getByRole("button", { name: "Cancel" }).waitFor()
      await panel.getByRole("group").getByRole("button", { name: "Leave" }).click()
      await panel.waitFor({ state: "detached" })
      await view(bobs, "Agent")
      await bobs.getByText("A group that this agent has left").waitFor()
      await watched.close()
    })

    it("fits 360 px with two agents, who are told apart and can be switched", async () => {
      const { ada, others: [bob] } = await world("bob-with-a-long-name")
      const watched = await Watched.open(browser, server.url, {
        viewport: { width: 360, height: 740 },
        hasTouch: true,
        isMobile: true
      })
      const { page } = watched
      await signIn(server, page, ada, bob!)
      const chip = (agent: TestAgent) =>
        page.getByRole("navigation", { name: "Signed in agents" }).getByRole("button", { name: `@${agent.handle}` })
          .first()
      await open(pane(page, bob!), ada.handle)
      await pane(page, bob!).getByText(`as @${bob!.handle}`).waitFor()
      // A field that takes the focus would open the keyboard.
      await hasFocus(page, /^H2/)
      assert.deepStrictEqual([
        await chip(bob!).getAttribute("aria-current"),
        await chip(ada).getAttribute("aria-current")
      ], ["true", null])
      await chip(ada).click()
      await pane(page, ada).waitFor()
      assert.isFalse(await pane(page, bob!).isVisible())
      assert.strictEqual(hash(page), `#/${ada.handle}`)
      await page.goBack()
      await pane(page, bob!).getByText(`as @${bob!.handle}`).waitFor()
      await pane(page, bob!).getByRole("button", { name: "About" }).click()
      await page.getByRole("button", { name: "Notifications and sound: off" }).click()
      await watched.accessible()
      const out = await page.evaluate(
        `[...document.querySelectorAll("button, input, textarea, h1, h2, h3, p")].filter((element) => {
        const { left, right, width } = element.getBoundingClientRect()
        return width > 1 && (left < 0 || right > 360)
      }).map((element) => element.outerHTML.slice(0, 120))`
      )
      assert.deepStrictEqual(out, [])
      assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360)
      await watched.close()
    })
  })
})
