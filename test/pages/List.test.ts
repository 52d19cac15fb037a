import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import type { Browser, Locator, Page } from "playwright-core"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { groupOf, pane, send, signIn, talk } from "./Panes.ts"

declare const document: { readonly documentElement: { readonly scrollWidth: number } }
declare const localStorage: {
  readonly getItem: (name: string) => string | null
  readonly setItem: (name: string, value: string) => void
}

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

let browser: Browser
let server: Server

const rows = (at: Locator) => at.getByRole("list", { name: "Conversations" }).getByRole("button")
const sendFile = async (from: TestAgent, to: string, filename: string, text?: string) => {
  const bytes = Buffer.from(`The file ${filename}`)
  const { body } = await from.http.post("/v1/uploads", {
    to,
    filename,
    content_type: "text/plain",
    size: bytes.length,
    sha256: createHash("sha256").update(bytes).digest("hex")
  })
  const { attachment_id, upload_url } = body as { readonly attachment_id: string; readonly upload_url: string }
  assert.strictEqual((await fetch(upload_url, { method: "PUT", body: bytes })).ok, true)
  return send(from, { to, type: "file", content: { attachment_id, ...text === undefined ? {} : { text } } })
}
const shows = (row: Locator, text: string) =>
  eventually(
    `“${text}”`,
    async () => (await row.locator(".conversation-preview .ellipsis").textContent()) === text ? true : undefined
  )
const fits = async (page: Page) => assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360)

describe.skipIf(CHROMIUM === undefined || !ALL)(`/app from day to day${MISSING}`, () => {
  beforeAll(async () => {
    ;[browser, server] = await Promise.all([launch(), sharedServer()])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("the list shows what was said last, after a reload too, and tells mentions from other unread messages", async () => {
    const names = ["ada", "bob", "carl", "dora", "ed"]
    const [ada, bob, carl, dora, ed] = await Promise.all(names.map((name) => newAgent(server, name)))
    for (const other of [bob!, carl!, dora!, ed!]) await talk(ada!, other)
    const lab = await groupOf(ada!, "Old name", ed!)
    await ada!.http.patch(`/v1/groups/${lab}`, { name: "Lab" })
    await ada!.http.post("/v1/groups", { name: "Nobody yet" })
    await send(bob!, { to: ada!.handle, content: { text: "## Status\n\n- **green**, see `main`" } })
    await send(bob!, { to: ada!.handle, content: { text: `Ask @${ada!.handle}. **Now**` } })
    await sendFile(carl!, ada!.handle, "harbour map.txt")
    await sendFile(dora!, ada!.handle, "plan.txt", "The *new* plan")
    const crew = await groupOf(ada!, "Crew", bob!)
    await send(bob!, { conversation_id: crew, content: { text: "Nothing for anybody" } })

    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    const row = (name: string) => rows(adas).filter({ has: page.locator(".conversation-title", { hasText: name }) })
    const check = async () => {
      await shows(row("Lab"), `@${ada!.handle} named the group “Lab”.`)
      await shows(row("Nobody yet"), "No messages")
      await shows(row(bob!.handle), `Ask @${ada!.handle}. Now`)
      await shows(row(carl!.handle), "harbour map.txt")
      await shows(row(dora!.handle), "The new plan")
      await shows(row(ed!.handle), "I am.")
      await shows(row("Crew"), `@${bob!.handle}: Nothing for anybody`)
      await row(bob!.handle).getByText("3 unread, 1 with a mention of you").waitFor()
      assert.notInclude(await row("Crew").textContent(), "mention")
    }
    await check()
    assert.strictEqual(await rows(adas).locator(".count:not(.plain)").count(), 1)
    await watched.accessible()
    await page.emulateMedia({ colorScheme: "dark" })
    await watched.accessible()
    await page.reload()
    await check()

    // What is pushed is shown at once: a mention in the group, a file, a member who leaves.
    await send(bob!, { conversation_id: crew, content: { text: `@${ada!.handle} _look_` } })
    await shows(row("Crew"), `@${bob!.handle}: @${ada!.handle} look`)
    await row("Crew").getByText("1 with a mention of you").waitFor()
    await sendFile(carl!, ada!.handle, "second.txt")
    await shows(row(carl!.handle), "second.txt")
    await ed!.http.post(`/v1/groups/${lab}/leave`)
    await shows(row("Lab"), `@${ed!.handle} left.`)
    await row("Crew").click()
    await row("Crew").locator(".count").waitFor({ state: "detached" })
    await page.setViewportSize({ width: 360, height: 740 })
    await page.goBack()
    await row("Lab").waitFor()
    await fits(page)
    await watched.close()
  })

  it("a mention of the agent is highlighted, and one of another agent opens its profile, but not in code", async () => {
    const [ada, bob, carl] = await Promise.all(["ada", "bob", "carl"].map((name) => newAgent(server, name)))
    const id = await talk(ada!, bob!)
    const [a, c] = [`@${ada!.handle}`, `@${carl!.handle}`]
    await send(bob!, { to: ada!.handle, content: { text: `Plain ${a}, ask ${c}: <b>now</b>` } })
    await send(bob!, {
      to: ada!.handle,
      content: { text: `**${a}** and ${c}, not \`${a}\` or [${c}](https://e.example)` }
    })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada!)
    await page.goto(`${server.url}/app#/${ada!.handle}/${id}`)
    const adas = pane(page, ada!)
    const message = (text: string) => adas.getByRole("article").filter({ hasText: text })
    await message("and").locator("strong mark", { hasText: a }).waitFor()
    assert.deepStrictEqual(await message("ask @").locator(".text .mention").allTextContents(), [a, c])
    assert.deepStrictEqual(await message("not").locator(".text .mention").allTextContents(), [a, c])
    assert.strictEqual(await message("ask @").locator(".text").textContent(), `Plain ${a}, ask ${c}: <b>now</b>`)
    await watched.accessible()
    await page.emulateMedia({ colorScheme: "dark" })
    await watched.accessible()

    // By keyboard: from the message to the link in it, to the profile and back.
    await message("ask @").focus()
    await watched.tabTo(new RegExp(`^A ${c}`))
    await page.keyboard.press("Enter")
    const profile = page.getByRole("dialog", { name: `Profile of ${c}` })
    await profile.getByRole("button", { name: "Add to contacts" }).waitFor()
    await watched.accessible()
    await page.keyboard.press("Escape")
    await profile.waitFor({ state: "hidden" })
    await watched.tabTo(new RegExp(`^A ${c}`))
    await page.setViewportSize({ width: 360, height: 740 })
    await fits(page)
    await message("ask @").getByRole("link", { name: c }).click()
    await fits(page)
    await profile.getByRole("button", { name: `Write to ${c}` }).click()
    await adas.getByRole("heading", { name: carl!.handle, level: 2 }).waitFor()
    await watched.close()
  })

  it("a search is limited to a conversation, a sender and days, and finds files by their names", async () => {
    const [ada, bob, carl] = await Promise.all(["ada", "bob", "carl"].map((name) => newAgent(server, name)))
    const id = await talk(ada!, bob!)
    await talk(ada!, carl!)
    for (const from of [bob!, carl!]) await send(from, { to: ada!.handle, content: { text: "The harbour is open." } })
    await send(ada!, { to: bob!.handle, content: { text: "Which harbour?" } })
    await sendFile(bob!, ada!.handle, "harbour map.txt")
    const watched = await Watched.open(browser, server.url, { viewport: { width: 360, height: 740 } })
    const { page } = watched
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    const found = adas.getByRole("list", { name: "Found messages" }).getByRole("button")
    const count = (count: number) =>
      eventually(`${count} messages`, async () => await found.count() === count ? true : undefined)
    // Without an open conversation, the search begins with all conversations.
    await adas.getByRole("searchbox", { name: "Search messages" }).fill("harbour")
    await count(3)
    await adas.getByRole("button", { name: "Limits" }).click()
    await adas.getByLabel("Sender").fill(`@${bob!.handle}`)
    await count(1)
    await fits(page)
    await watched.accessible()
    await adas.getByLabel("Sender").fill(ada!.handle)
    await eventually(
      "its own",
      async () => (await found.textContent())?.includes("Which harbour?") === true || undefined
    )
    await adas.getByLabel("To", { exact: true }).fill("2020-01-01")
    await adas.getByText("No message within these limits has all of these words.").waitFor()
    await adas.getByRole("button", { name: "Without limits" }).click()
    await count(3)

    // The button of an open conversation leads to the search in it, on a phone too.
    await page.goto(`${server.url}/app#/${ada!.handle}/${id}`)
    await adas.getByRole("button", { name: "Search in this conversation" }).click()
    await eventually("the search field", async () => /search/.test(await watched.focused()) ? true : undefined)
    assert.strictEqual(await adas.locator(".search-limits select").inputValue(), id)
    await adas.getByRole("searchbox", { name: "Search messages" }).fill("harbour")
    await count(2)
    await fits(page)
    await adas.getByRole("button", { name: "Without limits" }).click()
    await count(3)

    // Ctrl-K, also while typing, leads to the search in the open conversation.
    await page.setViewportSize({ width: 1280, height: 800 })
    await page.goto(`${server.url}/app#/${ada!.handle}/${id}`)
    await adas.getByRole("textbox", { name: "Message" }).focus()
    await page.keyboard.press("Control+k")
    const switcher = page.getByRole("dialog", { name: "Go to" })
    await switcher.getByRole("combobox").pressSequentially("in this")
    await switcher.getByRole("option", { name: "Search in this conversation", selected: true }).waitFor()
    await page.keyboard.press("Enter")
    await switcher.waitFor({ state: "hidden" })
    await eventually("the search field", async () => /search/.test(await watched.focused()) ? true : undefined)
    await count(2)
    await adas.getByRole("list", { name: "Found files" }).getByRole("button", { name: "harbour map.txt" }).click()
    await eventually(
      "the message of the file",
      () => Promise.resolve(/\?at=\d+$/.test(new URL(page.url()).hash) ? true : undefined)
    )
    await watched.accessible()
    await watched.close()
  })

  it("Ctrl-K goes to conversations, people and commands, and ? shows the shortcuts, but not while typing", async () => {
    const [ada, bob, carl, dora] = await Promise.all(
      ["ada", "bob", "carl", "dora"].map((name) => newAgent(server, name))
    )
    await talk(ada!, bob!)
    await talk(ada!, carl!)
    await ada!.http.post("/v1/contacts", { handle: dora!.handle })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await page.goto(`${server.url}/app`)
    await page.getByLabel("Agent's key").waitFor()
    await page.keyboard.press("Control+k")
    assert.strictEqual(await page.getByRole("dialog").count(), 0, "nobody is signed in")
    await signIn(server, page, ada!, bob!)
    await page.getByRole("navigation").getByRole("button", { name: `@${ada!.handle}` }).first().click()
    const adas = pane(page, ada!)
    const switcher = page.getByRole("dialog", { name: "Go to" })
    const field = switcher.getByRole("combobox")
    const option = (name: string) => switcher.getByRole("option", { name })
    const title = (name: string) => adas.getByRole("heading", { name, exact: true, level: 2 }).waitFor()
    await page.keyboard.press("Control+k")
    await option(bob!.handle).first().waitFor()
    await watched.accessible()
    await field.fill(carl!.handle.slice(0, 5))
    await page.keyboard.press("Enter")
    await title(carl!.handle)
    const message = adas.getByRole("textbox", { name: "Message" })
    await message.pressSequentially("really?")
    assert.strictEqual(await message.inputValue(), "really?")
    await page.keyboard.press("Control+k")
    await field.fill(`@${dora!.handle}`)
    await option(dora!.handle).waitFor()
    await page.keyboard.press("Enter")
    await title(dora!.handle)
    await page.keyboard.press("Control+k")
    await field.fill("nothing-of-this-name")
    await switcher.getByText("Nothing has this name.").waitFor()
    await field.fill("")
    await page.keyboard.press("ArrowUp")
    await option(`Switch to @${bob!.handle}`).and(switcher.locator("[aria-selected=true]")).waitFor()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Escape")
    await switcher.waitFor({ state: "hidden" })

    // The list of shortcuts opens by ? outside of fields, and by its command.
    await adas.getByRole("heading", { name: dora!.handle, level: 2 }).focus()
    await page.keyboard.press("?")
    const help = page.getByRole("dialog", { name: "Keyboard shortcuts" })
    await help.getByText("Begin a new line in the message").waitFor()
    await watched.accessible()
    await page.keyboard.press("Escape")
    await help.waitFor({ state: "hidden" })
    await page.keyboard.press("Control+k")
    await field.fill("keyb")
    await page.keyboard.press("Enter")
    await help.getByRole("button", { name: "Close" }).click()
    await help.waitFor({ state: "hidden" })
    await page.setViewportSize({ width: 360, height: 740 })
    await page.keyboard.press("Control+k")
    await option(bob!.handle).first().waitFor()
    await fits(page)
    await field.fill("new")
    await page.keyboard.press("Enter")
    await adas.getByText("Make a group").waitFor()
    await watched.close()
  })

  it("a conversation notifies of all messages, of mentions or of none; the browser keeps mentions only", async () => {
    const [ada, bob] = await Promise.all(["ada", "bob"].map((name) => newAgent(server, name)))
    const id = await groupOf(ada!, "Crew", bob!)
    await send(bob!, { conversation_id: id, content: { text: "First" } })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await page.addInitScript(() => {
      const seen: Array<string> = []
      class Fake {
        static requestPermission() {
          return Promise.resolve("granted")
        }
        constructor(_: string, { body }: { readonly body: string }) {
          seen.push(body)
        }
        addEventListener() {}
        close() {}
      }
      Object.assign(globalThis, { seen, Notification: Fake })
      Object.assign(document, { hasFocus: () => false })
      localStorage.setItem("parley.alerts", JSON.stringify({ notify: true, texts: true, sound: false }))
    })
    const seen = () => page.evaluate(() => (globalThis as unknown as { readonly seen: ReadonlyArray<string> }).seen)
    const says = (text: string) => send(bob!, { conversation_id: id, content: { text } })
    const notified = (text: string) =>
      eventually(`a notification of ${text}`, async () => (await seen()).at(-1) === text ? true : undefined)
    const unread = (count: number) =>
      eventually(
        `${count} in the title`,
        async () =>
          (await page.title()).startsWith("(") === (count > 0) &&
            (count === 0 || (await page.title()).startsWith(`(${count}) `)) ?
            true :
            undefined
      )
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    const choose = async (name: string) => {
      const way = adas.getByRole("group", { name: "Notifications" }).getByRole("button", { name })
      await way.click()
      await adas.getByRole("group", { name: "Notifications" }).getByRole("button", { name, pressed: true }).waitFor()
    }
    await rows(adas).filter({ hasText: "Crew" }).click()
    await says("Second")
    await notified("Second")
    await adas.getByRole("button", { name: "Group", exact: true }).click()
    await choose("Mentions")
    await watched.accessible()
    await unread(0)
    await says("Third")
    await says(`Fourth, @${ada!.handle}`)
    await notified(`Fourth, @${ada!.handle}`)
    assert.notInclude(await seen(), "Third")
    await unread(1)
    await page.reload()
    await adas.locator(".conversation").getByText("mentions", { exact: true }).waitFor()
    await says("Fifth")
    await adas.getByRole("article").filter({ hasText: "Fifth" }).waitFor()
    assert.deepStrictEqual(await seen(), [])
    await adas.getByRole("button", { name: "Group", exact: true }).click()
    await choose("None")
    assert.strictEqual((await ada!.http.get(`/v1/mutes/conversation/${id}`)).status, 200)
    await choose("All")
    assert.strictEqual((await ada!.http.get(`/v1/mutes/conversation/${id}`)).status, 404)
    await says("Sixth")
    await notified("Sixth")
    await choose("Mentions")
    await adas.getByRole("button", { name: "Close" }).click()
    await adas.getByRole("group", { name: "Views" }).getByRole("button", { name: "Agent" }).click()
    for (let i = 0; i < 2; i++) await adas.getByRole("button", { name: "Sign out" }).click()
    await page.getByLabel("Agent's key").waitFor()
    assert.isNull(await page.evaluate(() => localStorage.getItem("parley.mentions-only")))
    await watched.close()
  })
})
