import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, Locator } from "playwright-core"
import sharp from "sharp"
import { connected } from "../support/Connected.ts"
import { eventually } from "../support/Eventually.ts"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane, signIn } from "./Panes.ts"

const ALL = process.env["PAGES"] === "all"

const EVIL = `<img src=x onerror="ran=1"><script>ran=1</script>`

let browser: Browser
let server: Server

const view = (at: Locator, name: string) =>
  at.getByRole("group", { name: "Views" }).getByRole("button", { name }).click()
const open = (at: Locator, name: string) =>
  at.getByRole("list", { name: "Conversations" }).getByRole("button", { name }).first().click()
const write = (from: TestAgent, to: TestAgent, text: string) =>
  from.http.post("/v1/messages", { to: to.handle, client_msg_id: text, content: { text } })
/** Two agents that have each written once. */
const pair = async () => {
  const [ada, bob] = await Promise.all([newAgent(server, "ada"), newAgent(server, "bob")])
  await write(ada, bob, "Are you there?")
  await write(bob, ada, "I am.")
  return { ada, bob }
}
const square = (background: string): Promise<Buffer> =>
  sharp({ create: { width: 200, height: 200, channels: 3, background } }).png().toBuffer()
/** Waits for a picture and asserts that the browser has drawn it. */
const drawn = async (at: Locator) => {
  await at.locator("img").first().waitFor()
  await at.locator("img").first().evaluate((image) =>
    (image as unknown as { readonly decode: () => Promise<void> }).decode()
  )
}

describe.skipIf(CHROMIUM === undefined || !ALL)(
  `One's own account in /app${MISSING}${ALL ? "" : " (npm run test:pages)"}`,
  () => {
    beforeAll(async () => {
      ;[browser, server] = await Promise.all([launch(), startServer({ env: { WEBHOOK_ALLOW_PRIVATE: "loopback" } })])
    })
    afterAll(async () => {
      await browser?.close()
      await server?.stop()
    })

    it("an avatar is chosen, seen before it is used, shown everywhere, replaced and removed", async () => {
      const { ada, bob } = await pair()
      const { group } = (await ada.http.post("/v1/groups", { name: "Plans", member_handles: [bob.handle] })).body as {
        group: { id: string }
      }
      // A picture of a group may be anywhere. The page loads those of this server only.
      await ada.http.patch(`/v1/groups/${group.id}`, { avatar_url: "https://elsewhere.example/v1/picture.png" })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await view(adas, "Agent")
      const own = adas.locator(".own-avatar")
      const choose = async (name: string, buffer: Buffer) => {
        await own.locator("input[type=file]").setInputFiles({ name, mimeType: "image/png", buffer })
        await own.getByRole("button", { name: "Use this picture" }).waitFor()
      }
      await choose("me.png", await square("red"))
      await drawn(own)
      await watched.accessible()
      await own.getByRole("button", { name: "Cancel" }).click()
      await own.locator("img").waitFor({ state: "detached" })
      await choose("none.png", Buffer.from("no picture"))
      await own.getByRole("button", { name: "Use this picture" }).click()
      await own.getByRole("alert").waitFor()
      await choose("me.png", await square("red"))
      await own.getByRole("button", { name: "Use this picture" }).click()
      await own.getByRole("button", { name: "Replace the picture" }).waitFor()
      await drawn(page.locator(".agent-chip"))
      const address = () => own.locator("img").getAttribute("src")
      const first = await address()
      assert.match(first ?? "", new RegExp(`^${server.url}/v1/avatars/[0-9a-f]{64}$`))
      await choose("other.png", await square("blue"))
      await own.getByRole("button", { name: "Use this picture" }).click()
      await own.getByRole("button", { name: "Replace the picture" }).waitFor()
      assert.notStrictEqual(await address(), first)

      const others = await Watched.open(browser, server.url)
      await signIn(server, others.page, bob)
      const bobs = pane(others.page, bob)
      await drawn(bobs.getByRole("list", { name: "Conversations" }).getByRole("button", { name: ada.handle }))
      await open(bobs, ada.handle)
      await drawn(bobs.locator(".thread-head"))
      await bobs.getByRole("button", { name: "About", exact: true }).click()
      await drawn(bobs.getByRole("complementary").locator("header"))
      await view(bobs, "People")
      await drawn(bobs.locator(".people"))
      await view(bobs, "Messages")
      await bobs.getByRole("button", { name: "Join" }).click()
      await bobs.getByRole("button", { name: "Group", exact: true }).click()
      await drawn(bobs.getByRole("complementary").getByRole("listitem").filter({ hasText: ada.handle }))
      await others.accessible()
      await others.close()

      await own.getByRole("button", { name: "Remove the picture" }).click()
      await own.getByRole("group").getByRole("button", { name: "Remove" }).click()
      await own.getByRole("button", { name: "Choose a picture" }).waitFor()
      assert.strictEqual(await page.locator("img").count(), 0)
      await watched.close()
    })

    it("a budget of messages is set, shown when it is nearly used up, and ends a conversation with a sentence", async () => {
      const { ada, bob } = await pair()
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await view(adas, "Agent")
      const field = adas.getByLabel("Messages to one conversation")
      const save = adas.locator("form").filter({ has: page.getByLabel("Messages to one conversation") }).getByRole(
        "button",
        { name: "Save" }
      )
      for (const wrong of ["0", "100001", "many"]) {
        await field.fill(wrong)
        await save.click()
        await adas.getByText("A budget is a whole number from 1 to 100000, or empty.").first().waitFor()
      }
      await field.fill("6")
      await save.click()
      await eventually("the budget", async () => {
        const { settings } = (await ada.http.get("/v1/agents/me")).body as {
          readonly settings: { readonly budget: object }
        }
        return JSON.stringify(settings.budget) === '{"per_conversation_per_day":6,"per_day":null}' || undefined
      })
      await watched.accessible()
      await view(adas, "Messages")
      await open(adas, bob.handle)
      const message = adas.getByRole("textbox", { name: "Message" })
      for (let i = 1; i <= 7; i++) {
        await message.fill(`number ${i}`)
        await message.press("Enter")
        if (i <= 6) await adas.getByRole("article").filter({ hasText: `number ${i}` }).waitFor()
        if (i === 4) assert.strictEqual(await adas.locator(".budget").count(), 0)
        if (i === 5) await adas.getByText("1 of 6 messages within 24 hours are left here.").waitFor()
      }
      await adas.getByText("The budget of 6 messages within 24 hours is used up here.").waitFor()
      await adas.getByText("You have sent 6 messages to this conversation within 24 hours").waitFor()
      await watched.accessible()
      await watched.close()
    })

    it("an admin chooses the avatar of a group, and members see it", async () => {
      const { ada, bob } = await pair()
      await ada.http.post("/v1/groups", { name: "Plans", member_handles: [bob.handle] })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada, bob)
      const [adas, bobs] = [pane(page, ada), pane(page, bob)]
      await bobs.getByRole("button", { name: "Join" }).click()
      await bobs.getByRole("button", { name: "Group", exact: true }).click()
      await bobs.getByRole("complementary").waitFor()
      assert.strictEqual(await bobs.locator(".own-avatar").count(), 0)
      await open(adas, "Plans")
      await adas.getByRole("button", { name: "Group", exact: true }).click()
      const choice = adas.locator(".own-avatar")
      await choice.locator("input[type=file]").setInputFiles({
        name: "plans.png",
        mimeType: "image/png",
        buffer: await square("green")
      })
      await choice.getByRole("button", { name: "Use this picture" }).click()
      await drawn(adas.locator(".thread-head"))
      await drawn(bobs.getByRole("complementary").locator("header"))
      await watched.accessible()
      await choice.getByRole("button", { name: "Remove the picture" }).click()
      await choice.getByRole("group").getByRole("button", { name: "Remove" }).click()
      await adas.locator(".thread-head img").waitFor({ state: "detached" })
      await watched.close()
    })

    it("the key is replaced: the new one is shown once, the page goes on with it, and sockets of the former one end", async () => {
      const { ada, bob } = await pair()
      await connected(server, ada)
      const program = await Socket.hello(server, ada.key)
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/app`)
      await page.getByLabel("Keep the key in this browser").check()
      await page.getByLabel("Agent's key").fill(ada.key)
      await page.getByRole("button", { name: "Sign in", exact: true }).click()
      const adas = pane(page, ada)
      await view(adas, "Agent")
      const replace = adas.getByRole("button", { name: "Replace the key" })
      await replace.click()
      await adas.getByText("Nothing changes before you enter it.").waitFor()
      await adas.getByRole("button", { name: "Mail a code" }).click()
      await adas.getByLabel("Code").fill("000000")
      await replace.click()
      await adas.getByRole("alert").waitFor()
      await watched.accessible()
      await adas.getByLabel("Code").fill(await server.code(ada.email))
      await replace.click()
      const shown = adas.getByLabel("The agent's key", { exact: true })
      await shown.waitFor()
      const key = (await shown.textContent()) ?? ""
      assert.match(key, /^ac_[\w-]{43}$/)
      assert.notStrictEqual(key, ada.key)
      assert.strictEqual((await program.closed).code, 1008)
      assert.strictEqual((await ada.http.get("/v1/agents/me")).status, 401)
      await adas.getByText("No program is connected.").waitFor()
      await watched.accessible()
      await adas.getByRole("button", { name: "Done" }).click()
      await shown.waitFor({ state: "detached" })
      // It sends and receives.
      await view(adas, "Messages")
      await open(adas, bob.handle)
      const field = adas.getByRole("textbox", { name: "Message" })
      await field.fill("With the new key.")
      await field.press("Enter")
      await write(bob, ada, "I see.")
      await adas.getByRole("article").filter({ hasText: "I see." }).waitFor()
      await adas.getByRole("article").filter({ hasText: "With the new key." }).getByText("Stored").waitFor()
      const stored = await page.evaluate("JSON.stringify({ ...localStorage })") as string
      assert.include(stored, key)
      assert.notInclude(stored, ada.key)
      await page.reload()
      await pane(page, ada).waitFor()
      await watched.close()
    })

    it("webhooks are added with a secret that is shown once, listed with their state, and removed", async () => {
      const { ada, bob } = await pair()
      const receiver = await Receiver.start()
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await view(adas, "Agent")
      await adas.getByRole("button", { name: "Add a webhook" }).click()
      const form = adas.getByRole("form", { name: "New webhook" })
      await form.getByLabel("URL").fill("http://10.0.0.1/")
      await form.getByLabel("A group is deleted").check()
      await form.getByRole("button", { name: "Add" }).click()
      await form.getByRole("alert").waitFor()
      await watched.accessible()
      await form.getByLabel("URL").fill(receiver.url("/hook"))
      await form.getByRole("button", { name: "Add" }).click()
      const secret = adas.getByLabel("The webhook's secret", { exact: true })
      await secret.waitFor()
      assert.match((await secret.textContent()) ?? "", /^[0-9a-f]{64}$/)
      const row = adas.getByRole("listitem").filter({ hasText: receiver.url("/hook") })
      await row.getByText("message.new, group.deleted").waitFor()
      await row.getByText("active", { exact: true }).waitFor()
      await watched.accessible()
      await write(bob, ada, "for the webhook")
      await receiver.data("/hook", "message.new")
      await adas.getByRole("button", { name: "Done" }).click()
      await secret.waitFor({ state: "detached" })
      await page.route("**/v1/webhooks?*", async (route) => {
        const response = await route.fetch()
        const { webhooks, ...rest } = await response.json() as { readonly webhooks: ReadonlyArray<object> }
        await route.fulfill({
          response,
          json: { webhooks: webhooks.map((one) => ({ ...one, active: false })), ...rest }
        })
      })
      await view(adas, "Messages")
      await view(adas, "Agent")
      await row.getByText("turned off", { exact: true }).waitFor()
      await watched.accessible()
      await row.getByRole("button", { name: "Remove" }).click()
      await row.getByRole("group").getByRole("button", { name: "Remove" }).click()
      await row.waitFor({ state: "detached" })
      assert.deepInclude((await ada.http.get("/v1/webhooks")).body as object, { total: 0 })
      receiver.stop()
      await watched.close()
    })

    it("skills are added, changed and removed, and shown to others", async () => {
      const { ada, bob } = await pair()
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada, bob)
      const [adas, bobs] = [pane(page, ada), pane(page, bob)]
      await view(adas, "Agent")
      await adas.getByRole("button", { name: "Add a skill" }).click()
      const form = adas.getByRole("form", { name: "New skill" })
      await form.getByLabel("Name of the skill").fill("Message")
      await form.getByLabel("What it does").fill(EVIL)
      await form.getByLabel("Tags").fill(Array.from({ length: 9 }, (_, i) => `tag ${i}`).join(", "))
      await form.getByLabel("Examples").fill("Translate this.\n\nAnd this.")
      await form.getByRole("button", { name: "Save the skill" }).click()
      await form.getByRole("alert").waitFor()
      await form.getByLabel("Tags").fill(`Übersetzung, ${ada.handle},`)
      await watched.accessible()
      await form.getByRole("button", { name: "Save the skill" }).click()
      await form.waitFor({ state: "detached" })
      const own = async () => ((await ada.http.get("/v1/agents/me")).body as { readonly skills: unknown }).skills
      const skill = {
        id: "message-2",
        name: "Message",
        description: EVIL,
        tags: ["Übersetzung", ada.handle],
        examples: ["Translate this.", "And this."]
      }
      assert.deepStrictEqual(await own(), [skill])

      await view(bobs, "People")
      await bobs.getByRole("button", { name: `About @${ada.handle}` }).click()
      const about = bobs.getByRole("complementary")
      await about.getByText(EVIL).waitFor()
      await about.getByText("2 examples").click()
      await about.getByText("And this.").waitFor()
      await watched.accessible()
      await about.getByRole("button", { name: ada.handle, exact: true }).click()
      await bobs.getByRole("button", { name: `About @${ada.handle}` }).waitFor()
      assert.strictEqual(await bobs.getByRole("searchbox").inputValue(), `#${ada.handle}`)

      await adas.getByRole("button", { name: "Change Message" }).click()
      await adas.getByRole("form").getByLabel("Name of the skill").fill("Translation")
      await adas.getByRole("form").getByLabel("Examples").fill("")
      await adas.getByRole("form").getByRole("button", { name: "Save the skill" }).press("Enter")
      await adas.getByRole("button", { name: "Change Translation" }).waitFor()
      const { examples: _, ...rest } = skill
      assert.deepStrictEqual(await own(), [{ ...rest, name: "Translation" }])
      await adas.getByRole("button", { name: "Remove Translation" }).click()
      await adas.getByRole("group").getByRole("button", { name: "Remove" }).click()
      await adas.getByText("None. Others find the agent").waitFor()
      assert.deepStrictEqual(await own(), [])
      await watched.close()
    })

    it("people are found: contacts by any part of a name, others by the beginning of a handle or by a tag", async () => {
      const tag = `tag ${Date.now()}`
      const names = ["Caroline Øst", "Marek", "Lin"]
      const [ada, caroline, marek, lin] = await Promise.all([
        newAgent(server, "ada"),
        ...names.map((name, i) => newAgent(server, `person-${i}`, { display_name: name }))
      ])
      for (const one of [caroline, marek]) await ada!.http.post("/v1/contacts", { handle: one!.handle })
      await ada!.http.patch(`/v1/contacts/${marek!.handle}`, { notes: "draws MAPS" })
      const skill = { id: "maps", name: "Maps", description: "Draws them.", tags: [tag, "b", "c", "d", "e"] }
      for (const one of [marek, lin]) await one!.http.patch(`/v1/agents/${one!.handle}`, { skills: [skill] })
      const watched = await Watched.open(browser, server.url, {
        viewport: { width: 360, height: 740 },
        colorScheme: "dark"
      })
      const { page } = watched
      const asked: Array<string> = []
      page.on("request", (request) => {
        if (request.url().includes("/v1/directory")) asked.push(decodeURIComponent(new URL(request.url()).search))
      })
      await signIn(server, page, ada!)
      const adas = pane(page, ada!)
      await view(adas, "People")
      const field = adas.getByRole("searchbox")
      const shown = async () =>
        (await adas.locator(".people bdi").allTextContents()).filter((text) => names.includes(text))
      const becomes = (what: string, ...people: ReadonlyArray<string>) =>
        eventually(what, async () => (await shown()).join() === people.join() || undefined)
      await becomes("all contacts", "Caroline Øst", "Marek")
      assert.deepStrictEqual(
        await adas.locator(".people .avatar").allInnerTexts(),
        ["C", "M"],
        "the letters of their names, not of their handles"
      )
      await field.fill("øst")
      await becomes("a part of a name", "Caroline Øst")
      await field.fill("maps")
      await becomes("a part of a note", "Marek")
      await adas.getByText("No other handle begins with these letters.").waitFor()
      await field.fill(`@${lin!.handle.slice(0, 8)}`)
      await adas.getByRole("heading", { name: "Directory" }).waitFor()
      await becomes("the beginning of a handle", "Lin")
      assert.isAtMost(await page.evaluate("document.documentElement.scrollWidth") as number, 360)
      await watched.accessible()
      // By keyboard, from a text to its tag.
      await field.focus()
      await field.fill(tag)
      await watched.tabTo(/^BUTTON Find agents with the tag/)
      await page.keyboard.press("Enter")
      await becomes("those with the tag", "Marek", "Lin")
      assert.strictEqual(await field.inputValue(), `#${tag}`)
      assert.isAtMost(await page.evaluate("document.documentElement.scrollWidth") as number, 360)
      await watched.accessible()
      await field.fill("#no such tag")
      await adas.getByText("No agent has exactly this tag.").waitFor()
      // Only what was typed to its end is asked for, because each search counts.
      assert.deepStrictEqual(asked.map((query) => query.split("&")[0]), [
        "?q=maps",
        `?q=${lin!.handle.slice(0, 8)}`,
        `?tag=${tag}`,
        "?tag=no such tag"
      ])
      await watched.close()
    })

    it("the account is deleted once its handle is typed, on a dark phone and by keyboard", async () => {
      const { ada, bob } = await pair()
      const watched = await Watched.open(browser, server.url, {
        viewport: { width: 360, height: 740 },
        colorScheme: "dark"
      })
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await view(adas, "Agent")
      await adas.getByRole("button", { name: "Add a webhook" }).click()
      await adas.getByRole("button", { name: "Replace the key" }).click()
      const ask = adas.getByRole("button", { name: "Delete the account" })
      await ask.focus()
      await page.keyboard.press("Enter")
      const form = adas.getByRole("group", { name: `Delete @${ada.handle}` })
      await form.getByText("This cannot be undone.").waitFor()
      assert.isAtMost(
        await page.evaluate(
          "Math.max(...[...document.querySelectorAll('.list-body, html')].map((one) => one.scrollWidth))"
        ) as number,
        360
      )
      await watched.accessible()
      await form.getByLabel("Type its handle").focus()
      await page.keyboard.type(bob.handle)
      assert.isTrue(await ask.isDisabled())
      await page.keyboard.press("Control+A")
      await page.keyboard.type(`@${ada.handle}`)
      await page.keyboard.press("Enter")
      await page.getByLabel("Agent's key").waitFor()
      assert.strictEqual((await ada.http.get("/v1/agents/me")).status, 401)
      assert.strictEqual((await bob.http.get(`/v1/agents/${ada.handle}`)).status, 404)
      await watched.close()
    })
  }
)
