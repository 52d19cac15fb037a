import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Browser, Locator } from "playwright-core"
import { begin, connect, get, message as a2aMessage, sending, stateOf } from "../a2a/A2a.ts"
import { connected } from "../support/Connected.ts"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane, send, signIn } from "./Panes.ts"
import { picture } from "./Pictures.ts"

/** What runs in the page. */
interface Node {
  readonly tagName: string
  readonly textContent: string | null
  readonly dataset: Readonly<Record<string, string>>
  readonly getAttribute: (name: string) => string | null
  readonly closest: (selector: string) => Node | null
  readonly getBoundingClientRect: () => { readonly top: number; readonly bottom: number }
}
declare const document: {
  readonly cookie: string
  readonly documentElement: { readonly scrollWidth: number }
  readonly elementFromPoint: (x: number, y: number) => Node | null
}
declare const location: { readonly href: string }
declare const requestAnimationFrame: (run: (now: number) => void) => number

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

/** Markup and script in every shape; if any of it runs, `ran` is set. */
const EVIL = `<img src=x onerror="ran=1"><script>ran=1</script>"><svg onload=ran=1>{{7*7}}javascript:ran=1`

/** Fields whose texts a client compares or sends back; all others are shown. */
const KEPT =
  /^(id|type|kind|status|state|role|presence|inbox_mode|group_invite_policy|next_cursor|event|api_key|client_msg_id|metadata)$|_(id|at|status|kind|url)$/

/** Every text that the server says, with markup behind it. */
const spoilt = (value: unknown, key = ""): unknown =>
  typeof value === "string"
    ? KEPT.test(key) || /^\d{4}-\d\d-\d\dT/.test(value) ? value : `${value}${EVIL}`
    : Array.isArray(value)
    ? value.map((one) => spoilt(one, key))
    : typeof value === "object" && value !== null
    ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, KEPT.test(name) ? one : spoilt(one, name)]))
    : value

let browser: Browser
let server: Server
let dataDir: string
let database: string

const view = (at: Locator, name: string) =>
  at.getByRole("group", { name: "Views" }).getByRole("button", { name }).click()
const write = async (at: Locator, text: string) => {
  const field = at.getByRole("textbox", { name: "Message" })
  await field.fill(text)
  await field.press("Enter")
}
const writeTo = async (at: Locator, handle: string, text: string) => {
  await view(at, "New")
  await at.getByLabel("Name or handle").fill(`@${handle}`)
  await at.getByRole("button", { name: "Write" }).click()
  await write(at, text)
}
const open = (at: Locator, name: string | RegExp) =>
  at.getByRole("list", { name: "Conversations" }).getByRole("button", { name }).first().click()
const message = (at: Locator, text: string) => at.getByRole("article").filter({ hasText: text })
const texts = async (at: Locator) => (await at.locator("article .text").allTextContents()).map((text) => text.trim())
/** The text of one of very many messages: every third has formatting. */
const lineOf = (number: number) =>
  number % 3 === 0
    ? `line ${number}, **bold**\n\n- one \`a\`\n- [two](https://example.com/${number})\n\n| a | b |\n| - | - |\n| ${number} | 2 |\n\n\`\`\`js\nlet x = ${number}\n\`\`\``
    : `line ${number} ${"and more ".repeat(number % 30)}`
/** Two agents that have each written once. */
const pair = async (a = "ada", b = "bob") => {
  const [ada, bob] = await Promise.all([newAgent(server, a), newAgent(server, b)])
  const { conversation_id: id } = await send(ada, { to: bob.handle, content: { text: "Are you there?" } })
  await send(bob, { to: ada.handle, content: { text: "I am." } })
  return { ada, bob, id }
}

describe.skipIf(CHROMIUM === undefined)(`/app${MISSING}`, () => {
  beforeAll(async () => {
    database = await freshDatabase()
    dataDir = await mkdtemp(join(tmpdir(), "parley-app-"))
    ;[browser, server] = await Promise.all([
      launch(),
      startServer({ dataDir, env: { PORT: "0", DATABASE_URL: database } })
    ])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
    await rm(dataDir, { recursive: true, force: true })
  })

  it("165. two agents talk side by side: live, in order, with unread counts, states and replies, and markup is text", async () => {
    const [ada, bob] = [
      await newAgent(server, "ada", { display_name: "Ada" }),
      await newAgent(server, "bob", { display_name: EVIL.slice(0, 99) })
    ]
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada, bob)
    const [adas, bobs] = [pane(page, ada), pane(page, bob)]
    await writeTo(adas, bob.handle, "Hello, Bob!")
    await bobs.getByText("Hello, Bob!").waitFor()
    await bobs.getByText("1 unread").waitFor()
    await open(bobs, /Ada/)
    await message(bobs, "Hello, Bob!").waitFor()
    await message(adas, "Hello, Bob!").getByText("Read", { exact: true }).waitFor()
    for (const [its, { handle }] of [[adas, ada], [bobs, bob]] as const)
      await its.getByText(`as @${handle}`).first().waitFor()
    await bobs.locator(".conversation .count").waitFor({ state: "detached" })
    await message(bobs, "Hello, Bob!").hover()
    await message(bobs, "Hello, Bob!").getByRole("button", { name: "Reply" }).click()
    await write(bobs, EVIL)
    await message(adas, "{{7*7}}").getByText("You:").waitFor()
    for (const text of ["one", "two", "three"]) await write(bobs, text)
    await message(adas, "three").waitFor()
    assert.deepStrictEqual(await texts(adas), ["Hello, Bob!", EVIL, "one", "two", "three"])
    assert.strictEqual(
      ((await bob.http.get("/v1/messages/sync")).body as ReadonlyArray<unknown>).length,
      0,
      "what was shown is acknowledged"
    )
    const kept = await page.evaluate(() =>
      JSON.stringify({ ...localStorage, url: location.href, cookie: document.cookie })
    )
    assert.notInclude(kept, ada.key, "only the tab keeps the key")
    await watched.accessible()
    await watched.close()
  })

  it("165. while the server is away it says so, keeps what is written, and goes on by itself: everything once, in order", async () => {
    const { ada, bob, id } = await pair()
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada)
    const adas = pane(page, ada)
    await open(adas, bob.handle)
    await message(adas, "I am.").waitFor()
    const port = new URL(server.url).port
    await server.stop()
    watched.lenient = true
    await adas.getByText("The page reconnects automatically.").waitFor()
    await write(adas, "written meanwhile, 1")
    await write(adas, "written meanwhile, 2")
    await message(adas, "written meanwhile, 1").getByText("Waiting").waitFor()
    server = await startServer({ dataDir, env: { PORT: port, DATABASE_URL: database } })
    const bobNow = server.http(bob.key)
    await eventually("the messages", async () => {
      const history = (await bobNow.get(`/v1/messages/${id}?after_seq=2`)).body as ReadonlyArray<
        { readonly content: { readonly text: string } }
      >
      return history.length === 2 && history[0]?.content.text === "written meanwhile, 1" ? true : undefined
    })
    await adas.getByText("The page reconnects automatically.").waitFor({ state: "detached" })
    await bobNow.post("/v1/messages", { to: ada.handle, client_msg_id: "after", content: { text: "and after" } })
    await message(adas, "and after").waitFor()
    assert.deepStrictEqual(await texts(adas), [
      "Are you there?",
      "I am.",
      "written meanwhile, 1",
      "written meanwhile, 2",
      "and after"
    ])
    await watched.close()
  })

  describe.skipIf(!ALL)(`the rest${ALL ? "" : " (npm run test:pages)"}`, () => {
    it("shows the outcome of a message beside its state, live and from the history, with its reason", async () => {
      const { ada, bob } = await pair()
      const sent = await send(ada, { to: bob.handle, content: { text: "Please count the ships." } })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await open(adas, bob.handle)
      const row = message(adas, "Please count the ships.")
      await row.waitFor()
      const report = async (body: object) =>
        assert.strictEqual((await bob.http.post(`/v1/messages/${sent.id}/read`, body)).status, 200)
      await report({ outcome: "working" })
      await row.getByText("working", { exact: true }).waitFor()
      await row.getByText("Read", { exact: true }).waitFor()
      await report({ outcome: "refused", reason: EVIL })
      await row.getByText("refused", { exact: true }).waitFor()
      await row.getByText(EVIL, { exact: true }).waitFor()
      await watched.accessible()
      await watched.close()
      // Read from the history: the recipient's own outcome, and the sender's view of it.
      const later = await Watched.open(browser, server.url)
      await signIn(server, later.page, ada, bob)
      for (const [agent, other] of [[ada, bob], [bob, ada]] as const) {
        await open(pane(later.page, agent), other.handle)
        const shown = message(pane(later.page, agent), "Please count the ships.")
        await shown.getByText("refused", { exact: true }).waitFor()
      }
      await later.close()
    })

    it("registers an agent by a mailed code, shows its key once, and keeps it only if asked", async () => {
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/app`)
      await picture(page, "app-sign-in")
      await watched.accessible()
      await page.getByRole("button", { name: "Register" }).click()
      const handle = `newcomer-${Date.now().toString(36)}`
      await page.getByLabel("E-mail address").fill(`${handle}@example.com`)
      await page.getByLabel("Handle").fill(handle)
      await page.getByRole("button", { name: "Mail me a code" }).click()
      await page.getByLabel("Code").fill("000000")
      await page.getByRole("button", { name: "Continue" }).click()
      await page.getByRole("alert").waitFor()
      await page.getByLabel("Code").fill(await server.code(`${handle}@example.com`))
      await page.getByRole("button", { name: "Continue" }).click()
      const key = (await page.getByLabel("The agent's key", { exact: true }).textContent()) ?? ""
      assert.match(key, /^ac_[\w-]{43}$/)
      await page.getByText(`This is the key of @${handle}.`).waitFor()
      await page.getByLabel("Keep the key in this browser too").check()
      await page.getByRole("button", { name: "Continue" }).click()
      await page.getByRole("region", { name: `Agent @${handle}` }).waitFor()
      assert.include(await page.evaluate(() => localStorage.getItem("parley.keys")), key)
      await page.reload()
      const again = page.getByRole("region", { name: `Agent @${handle}` })
      await again.waitFor()
      await view(again, "Agent")
      await again.getByRole("button", { name: "Sign out" }).click()
      await again.getByRole("button", { name: "Sign out" }).click()
      await page.getByLabel("Agent's key").waitFor()
      assert.isNull(await page.evaluate(() => localStorage.getItem("parley.keys")))
      await page.getByLabel("Agent's key").fill(`ac_${"x".repeat(43)}`)
      await page.getByRole("button", { name: "Sign in", exact: true }).click()
      await page.getByText("The server does not know this key").waitFor()
      await watched.close()
    })

    it("only watching acknowledges nothing and marks nothing as read", async () => {
      const { ada, bob } = await pair()
      await send(ada, { to: bob.handle, content: { text: "one more" } })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/app`)
      await page.getByLabel("Only watch").check()
      await page.getByLabel("Agent's key").fill(bob.key)
      await page.getByRole("button", { name: "Sign in", exact: true }).click()
      await open(pane(page, bob), ada.handle)
      await message(pane(page, bob), "one more").waitFor()
      await pane(page, bob).getByText("Only watching").waitFor()
      const waiting = (await bob.http.get("/v1/messages/sync")).body as ReadonlyArray<unknown>
      assert.strictEqual(waiting.length, 2)
      await watched.close()
    })

    it("a refused message is shown with its reason, and sent again as the same message", async () => {
      const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await writeTo(adas, bob.handle, "first")
      await message(adas, "first").getByText("Stored").waitFor()
      await write(adas, "second")
      const failed = message(adas, "second")
      await failed.getByText("Not sent").waitFor()
      const tried: Array<string> = []
      page.on("request", (request) => {
        if (request.method() === "POST" && request.url().endsWith("/v1/messages"))
          tried.push((request.postDataJSON() as { client_msg_id: string }).client_msg_id)
      })
      await failed.getByRole("button", { name: "Try again" }).click()
      await failed.getByText("Not sent").waitFor()
      await send(bob, { to: ada.handle, content: { text: "Back again." } })
      await message(adas, "Back again.").waitFor()
      await failed.getByRole("button", { name: "Try again" }).click()
      await failed.getByText("Stored").waitFor()
      assert.strictEqual(tried.length, 2)
      assert.strictEqual(new Set(tried).size, 1)
      await watched.close()
    })

    it("165. a message that is a task is shown as one on both sides, with its state as it changes, and no other message is", async () => {
      const { ada, bob } = await pair()
      const client = await connect(server, ada, bob, "JSONRPC")
      const cancelled = await begin(client, "Never mind the draft.")
      assert.strictEqual(
        stateOf(await client.cancelTask({ tenant: "", id: cancelled.id, metadata: undefined })),
        "CANCELED"
      )
      const task = await begin(client, "Are the figures ready?")
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      const shows = (at: Locator, text: string, state: string) =>
        message(at, text).getByText(`Task: ${state}`, { exact: true }).waitFor()
      await open(adas, bob.handle)
      await shows(adas, "Are the figures ready?", "submitted")
      await shows(adas, "Never mind the draft.", "cancelled")
      // Bob gets it, and answers as an agent that knows about tasks.
      await page.getByRole("button", { name: "Add an agent" }).click()
      await page.getByLabel("Agent's key").fill(bob.key)
      await page.getByRole("button", { name: "Sign in", exact: true }).click()
      const bobs = pane(page, bob)
      await open(bobs, ada.handle)
      await shows(adas, "Are the figures ready?", "working")
      await send(bob, {
        to: ada.handle,
        content: { text: "Which quarter?" },
        metadata: { a2a: { task_id: task.id, state: "INPUT_REQUIRED" } }
      })
      for (const at of [adas, bobs]) await shows(at, "Are the figures ready?", "needs an answer")
      await client.sendMessage(sending(a2aMessage("The third.", { taskId: task.id }), true))
      await send(bob, { to: ada.handle, content: { text: "Here they are." }, metadata: { reply_to: task.id } })
      for (const at of [adas, bobs]) await shows(at, "Are the figures ready?", "completed")
      assert.strictEqual(stateOf(await get(client, task.id)), "COMPLETED")
      for (const at of [adas, bobs])
        assert.deepStrictEqual(await at.getByText(/^Task: /).allTextContents(), ["Task: cancelled", "Task: completed"])
      await watched.accessible()
      await watched.close()
    })

    it("sends files, shows a picture at once, names every file before it is fetched, and saves it under its name", async () => {
      const { ada, bob } = await pair()
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada, bob)
      const [adas, bobs] = [pane(page, ada), pane(page, bob)]
      await open(adas, bob.handle)
      await open(bobs, ada.handle)
      const png = Buffer.from(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "base64"
      )
      const name = `<img src=x onerror=ran=1>.png`
      await adas.locator("input[type=file]").setInputFiles({ name, mimeType: "image/png", buffer: png })
      await write(adas, "a picture")
      const row = message(bobs, "a picture")
      await row.locator("img").waitFor()
      assert.strictEqual(
        await row.locator("img").evaluate((image) => (image as unknown as { naturalWidth: number }).naturalWidth),
        1
      )
      const [picture, buttons] = [
        await row.locator("img").boundingBox(),
        await row.locator(".file-actions").boundingBox()
      ]
      assert.isAtLeast(picture!.y, buttons!.y + buttons!.height, "a small picture is below its name, too")
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        row.getByRole("button", { name: "Save" }).click()
      ])
      const saved = createHash("sha256").update(
        await (await download.createReadStream()).toArray().then((parts) => Buffer.concat(parts as Array<Buffer>))
      ).digest("hex")
      assert.strictEqual(saved, createHash("sha256").update(png).digest("hex"))
      assert.include(await row.locator(".file-name").textContent(), name)
      await row.getByRole("button", { name: "Hide", exact: true }).first().click()
      await row.locator("img").waitFor({ state: "detached" })
      const fetched: Array<string> = []
      page.on("request", (request) => fetched.push(new URL(request.url()).pathname))
      await adas.locator("input[type=file]").setInputFiles({
        name: "notes.md",
        mimeType: "text/markdown",
        buffer: Buffer.from("# Notes")
      })
      await write(adas, "some notes")
      const notes = message(bobs, "some notes")
      await notes.getByText("notes.md").waitFor()
      await notes.getByText("text/markdown, 7 B").waitFor()
      assert.strictEqual(await notes.getByRole("button", { name: "Show" }).count(), 0)
      assert.deepStrictEqual(
        fetched.filter((path) => /attachments\/[^/]+$/.test(path)),
        [],
        "nobody asked for the file itself"
      )
      await watched.accessible()
      await adas.locator("input[type=file]").setInputFiles({
        name: "x.exe",
        mimeType: "application/x-msdownload",
        buffer: png
      })
      await adas.getByText("Files of this type cannot be sent").waitFor()
      await watched.close()
    })

    it("makes a group, invites, talks in it, and shows what its name contains as text", async () => {
      const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada, bob)
      const [adas, bobs] = [pane(page, ada), pane(page, bob)]
      await view(adas, "New")
      await adas.getByLabel("Name", { exact: true }).fill(EVIL.slice(0, 100))
      await adas.getByLabel("Members").fill(`@${bob.handle}`)
      await adas.getByLabel("Members").press(",")
      await adas.getByRole("button", { name: `Remove @${bob.handle}` }).waitFor()
      await adas.getByRole("button", { name: "Make the group" }).click()
      await bobs.getByRole("button", { name: "Join" }).click()
      await message(adas, `@${bob.handle} joined.`).waitFor()
      await write(bobs, "hello all")
      await message(adas, "hello all").waitFor()
      await adas.getByRole("button", { name: "Group", exact: true }).click()
      const panel = adas.getByRole("complementary")
      await panel.getByText(`@${bob.handle}`).waitFor()
      await watched.accessible()
      await panel.getByLabel("Name").fill("Plans")
      await panel.getByRole("button", { name: "Rename" }).click()
      await bobs.getByRole("heading", { name: "Plans" }).waitFor()
      await panel.getByRole("button", { name: "Remove" }).click()
      await panel.getByRole("group").getByRole("button", { name: "Remove" }).click()
      await message(adas, `@${ada.handle} removed @${bob.handle}.`).waitFor()
      await watched.close()
    })

    it("165. every text from the server is shown as text in every view: names, handles, notes, notices, refusals", async () => {
      const { ada, bob, id } = await pair()
      const { group } = (await ada.http.post("/v1/groups", {
        name: "Plans",
        description: "What is planned",
        member_handles: [bob.handle]
      })).body as { group: { id: string } }
      await bob.http.patch(`/v1/contacts/${ada.handle}`, { notes: "an agent" })
      await send(ada, { conversation_id: group.id, content: { text: "to all" } })
      await send(bob, { to: ada.handle, type: "structured", content: { data: { key: "value" } } })
      await ada.http.post("/v1/mutes", { target_kind: "agent", target_handle: bob.handle })
      const { conversation_id } = await send(bob, {
        to: (await newAgent(server, "cleo")).handle,
        content: { text: "cold" }
      })
      assert.notStrictEqual(conversation_id, id)
      const watched = await Watched.open(browser, server.url, { viewport: { width: 2400, height: 1000 } })
      const { page } = watched
      watched.lenient = true
      await page.route("**/v1/**", async (route) => {
        const response = await route.fetch()
        if (!(response.headers()["content-type"] ?? "").startsWith("application/json"))
          return route.fulfill({ response })
        await route.fulfill({ response, json: spoilt(await response.json()) })
      })
      await page.routeWebSocket("**/v1/ws", (socket) => {
        const upstream = socket.connectToServer()
        upstream.onMessage((frame) => socket.send(JSON.stringify(spoilt(JSON.parse(String(frame))))))
      })
      await page.goto(`${server.url}/app`)
      await page.getByLabel("Agent's key").fill(`${ada.key} ${bob.key}`)
      await page.getByRole("button", { name: "Sign in", exact: true }).click()
      const panes = page.locator("section.pane")
      await panes.nth(1).waitFor()
      const clean = async (what: string) => {
        await page.getByText("{{7*7}}").first().waitFor()
        assert.strictEqual(
          await page.locator("section.pane img, section.pane script, section.pane iframe, [onload], [onerror]").count(),
          0,
          what
        )
        await watched.assertGood()
      }
      for (const at of [panes.first(), panes.nth(1)]) {
        await at.getByRole("list", { name: "Conversations" }).getByRole("button").first().waitFor()
        const rows = at.getByRole("list", { name: "Conversations" }).locator(".conversation")
        for (let i = 0; i < await rows.count(); i++) {
          await rows.nth(i).click()
          await at.getByRole("region", { name: /^Conversation of/ }).waitFor()
          await at.locator("article").first().waitFor()
          await at.getByRole("button", { name: /^(Group|About)$/ }).click()
          await at.getByRole("complementary").waitFor()
          await clean(`conversation ${i}`)
          await at.getByRole("complementary").getByRole("button", { name: "Close" }).click()
        }
        await view(at, "People")
        await at.getByRole("searchbox").fill(bob.handle.slice(0, 5))
        await at.getByRole("heading", { name: "Directory" }).waitFor()
        await clean("people")
        await view(at, "Agent")
        await clean("agent")
        await view(at, "New")
        await at.getByLabel("Name or handle").fill(EVIL)
        await at.getByRole("button", { name: "Write" }).click()
        await clean("new")
      }
      // What comes by the socket meanwhile.
      await send(bob, { to: ada.handle, content: { text: "live" } })
      await page.getByText("live<img").first().waitFor()
      await clean("live")
      await watched.close()
    })

    it("shows and changes contacts, the directory, presence, mutes and blocks", async () => {
      const { ada, bob } = await pair()
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada, bob)
      const [adas, bobs] = [pane(page, ada), pane(page, bob)]
      await view(bobs, "Agent")
      await bobs.getByLabel("Shown to contacts as").selectOption("busy")
      await bobs.getByLabel("Status message").fill(EVIL)
      await bobs.getByLabel("Status message").press("Enter")
      await view(adas, "People")
      await adas.locator(".dot.busy").waitFor()
      await adas.getByText("{{7*7}}").first().waitFor()
      await adas.getByRole("searchbox").fill(bob.handle.slice(0, 6))
      await adas.getByRole("heading", { name: "Directory" }).waitFor()
      await watched.accessible()
      await adas.getByRole("button", { name: `About @${bob.handle}` }).click()
      const about = adas.getByRole("complementary")
      await about.getByRole("button", { name: "Mute" }).click()
      await about.getByRole("button", { name: "Unmute" }).waitFor()
      await about.getByRole("button", { name: "Block" }).click()
      await about.getByRole("group").getByRole("button", { name: "Block" }).click()
      await about.getByRole("button", { name: "Unblock" }).waitFor()
      await view(adas, "Agent")
      await adas.getByRole("button", { name: "Unmute" }).waitFor()
      await watched.accessible()
      await adas.getByRole("button", { name: "Unblock" }).click()
      await adas.getByRole("button", { name: "Unblock" }).waitFor({ state: "detached" })
      assert.deepStrictEqual(
        ((await ada.http.get("/v1/contacts/blocks")).body as { blocks: ReadonlyArray<unknown> }).blocks,
        []
      )
      await watched.close()
    })

    it("lists the programs that are connected, a name as text that nobody has checked, and disconnects one", async () => {
      const ada = await newAgent(server, "ada")
      await connected(server, ada)
      const named = await connected(server, ada, EVIL)
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await view(adas, "Agent")
      await adas.getByText("host.example", { exact: true }).first().waitFor()
      const row = adas.getByRole("listitem").filter({ hasText: "calls itself" })
      await row.getByText("{{7*7}}").waitFor()
      await row.getByText("not used yet").waitFor()
      await watched.accessible()
      await row.getByRole("button", { name: "Disconnect" }).click()
      await row.getByRole("group").getByRole("button", { name: "Disconnect" }).click()
      await row.waitFor({ state: "detached" })
      const { connections } = (await ada.http.get("/v1/connections")).body as {
        connections: ReadonlyArray<{ id: string }>
      }
      assert.notInclude(connections.map(({ id }) => id), named)
      await watched.close()
    })

    it("with 10,000 messages it loads upwards, stays where one reads, scrolls without standing still, and draws few", async () => {
      const { ada, bob, id } = await pair()
      let next = 0
      await Promise.all(Array.from({ length: 40 }, async () => {
        while (next < 9_998) {
          const number = next++
          await send(number % 2 === 0 ? ada : bob, {
            to: number % 2 === 0 ? bob.handle : ada.handle,
            content: { text: lineOf(number) }
          })
        }
      }))
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await open(adas, bob.handle)
      // It opens at the first unread message. The newest are read meanwhile.
      await message(adas, "I am.").getByText("New messages").waitFor()
      await adas.getByRole("button", { name: "Newest" }).click()
      await adas.getByRole("feed").getByText("line 9", { exact: false }).first().waitFor()
      const scroller = adas.locator(".scroller")
      const known = () => adas.getByRole("article").first().getAttribute("aria-setsize")
      // Upwards to the first message.
      await eventually("the first message", async () => {
        await scroller.evaluate((element) => element.scrollTop = 0)
        return await known() === "10000" && await message(adas, "Are you there?").count() === 1 ? true : undefined
      })
      await eventually("the top", async () => {
        await scroller.evaluate((element) => element.scrollTop = 0)
        return await adas.getByRole("article").first().getAttribute("aria-posinset") === "1" ? true : undefined
      })
      assert.isBelow(await adas.getByRole("article").count(), 80)
      // Down again in steps of most of a screen, one each frame.
      const frames = await scroller.evaluate(async (element) => {
        const gaps: Array<number> = []
        let before = performance.now()
        let empty = 0
        for (let i = 0; i < 200; i++) {
          element.scrollTop += element.clientHeight * 0.8
          await new Promise(requestAnimationFrame)
          const now = performance.now()
          gaps.push(now - before)
          before = now
          const box = element.getBoundingClientRect()
          if (
            document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2)?.closest("article") === null
          ) empty++
        }
        gaps.sort((a, b) => a - b)
        return { median: gaps[100], p95: gaps[190], empty }
      })
      console.info(
        `10,000 messages, 200 frames: median ${frames.median?.toFixed(1)} ms, p95 ${
          frames.p95?.toFixed(1)
        } ms, ${frames.empty} without a message at the centre`
      )
      // A message that comes while one reads above does not move what is read.
      const seen = async () =>
        scroller.evaluate((element) => {
          const top = element.getBoundingClientRect().top
          const first = [...element.querySelectorAll("article")].find((row) =>
            row.getBoundingClientRect().bottom > top + 50
          )
          return `${first?.dataset["key"]} ${Math.round((first?.getBoundingClientRect().top ?? 0) - top)}`
        })
      const before = await seen()
      await send(bob, { to: ada.handle, content: { text: "the very last" } })
      await eventually("its notice", async () => (await adas.getByText("the very last").count()) > 0 ? true : undefined)
      assert.strictEqual(await seen(), before)
      await adas.getByRole("button", { name: "Newest" }).click()
      await message(adas, "the very last").waitFor()
      const history = (await ada.http.get(`/v1/messages/${id}?limit=1`)).body as ReadonlyArray<{ seq: number }>
      assert.strictEqual(history[0]?.seq, 10_001)
      await watched.close()
    })

    it("shows what an agent answers in another conversation, how often agents answered in a row, and a thread", async () => {
      const { ada, bob, id } = await pair()
      const cleo = await newAgent(server, "cleo")
      const asked = await send(ada, { to: bob.handle, content: { text: "Who repairs the boat?" } })
      await send(cleo, { to: bob.handle, content: { text: "I have time today." } })
      const inquiry = await send(bob, {
        to: cleo.handle,
        content: { text: "Can you repair a boat?" },
        metadata: { caused_by: asked.id }
      })
      const yes = await send(cleo, {
        to: bob.handle,
        content: { text: "I can." },
        metadata: { caused_by: inquiry.id, reply_to: inquiry.id }
      })
      await send(bob, {
        to: ada.handle,
        content: { text: "Cleo does." },
        metadata: { caused_by: yes.id, reply_to: asked.id }
      })
      await send(ada, { to: bob.handle, content: { text: "Not a part of it." } })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, bob)
      const bobs = pane(page, bob)
      await open(bobs, ada.handle)
      const answer = message(bobs, "Cleo does.").first()
      await answer.getByText("3 in a row").waitFor()
      assert.strictEqual(await answer.getByText("In answer to").count(), 0, "the other conversation is not loaded")
      await open(bobs, cleo.handle)
      const question = message(bobs, "Can you repair a boat?").first()
      const cause = question.getByRole("link", { name: `@${ada.handle}: Who repairs the boat?` })
      await cause.waitFor()
      await watched.accessible()
      await cause.click()
      await eventually("the conversation of the cause", () => page.url().includes(`${id}?at=`) || undefined)
      // Both conversations are loaded now.
      await answer.getByRole("link", { name: `@${cleo.handle}: I can.` }).waitFor()
      await answer.hover()
      await answer.getByRole("button", { name: "Answers" }).click()
      const thread = bobs.getByRole("complementary", { name: "Answers" })
      await thread.getByText("Cleo does.").first().waitFor()
      assert.deepStrictEqual(await texts(thread), ["Who repairs the boat?", "Cleo does."])
      await watched.accessible()
      // What is said while it is open joins it.
      await send(ada, { to: bob.handle, content: { text: "Thank you." }, metadata: { reply_to: asked.id } })
      await thread.getByText("Thank you.").waitFor()
      // What is written beside the answers is one of them.
      for (const text of ["You are welcome.", "Any time."]) {
        await bobs.locator(".chip").getByText(`@${ada.handle}`).waitFor()
        await write(bobs, text)
        await thread.getByText(text).waitFor()
      }
      await page.setViewportSize({ width: 360, height: 740 })
      await watched.accessible()
      await page.keyboard.press("Escape")
      await thread.waitFor({ state: "detached" })
      assert.strictEqual(await bobs.locator(".chip").count(), 0)
      await watched.close()
    })

    it("shows reactions as they are given, gives them and takes them back", async () => {
      const { ada, bob } = await pair()
      const said = await send(bob, { to: ada.handle, content: { text: "The boat is repaired." } })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await signIn(server, page, ada)
      const adas = pane(page, ada)
      await open(adas, bob.handle)
      const row = message(adas, "The boat is repaired.").first()
      await row.hover()
      await row.getByRole("button", { name: "React", exact: true }).click()
      await watched.accessible()
      await row.getByRole("button", { name: "thanks", exact: true }).click()
      const reactions = row.getByRole("list", { name: "Reactions" })
      await reactions.getByRole("button", { name: "thanks, 1, yours too" }).waitFor()
      await bob.http.request("PUT", `/v1/messages/${said.id}/reactions/thanks`)
      await bob.http.request("PUT", `/v1/messages/${said.id}/reactions/${encodeURIComponent("⛵")}`)
      await reactions.getByRole("button", { name: "thanks, 2, yours too" }).waitFor()
      await reactions.getByRole("button", { name: "⛵, 1" }).waitFor()
      assert.deepStrictEqual(await reactions.getByRole("button").allTextContents(), ["🙏 2", "⛵ 1"])
      await page.setViewportSize({ width: 360, height: 740 })
      await watched.accessible()
      await reactions.getByRole("button", { name: "thanks, 2, yours too" }).click()
      await reactions.getByRole("button", { name: "thanks, 1", exact: true }).waitFor()
      await watched.close()
    })

    it("is used by keyboard alone: sign in, write, walk through messages, reply", async () => {
      const { ada, bob } = await pair()
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(`${server.url}/app`)
      await watched.tabTo(/^INPUT .*password/)
      await page.keyboard.type(ada.key)
      await page.keyboard.press("Enter")
      await pane(page, ada).waitFor()
      await pane(page, ada).getByText("I am.").first().waitFor()
      await watched.tabTo(new RegExp(`BUTTON.*${bob.handle}`, "s"))
      await page.keyboard.press("Enter")
      await message(pane(page, ada), "I am.").waitFor()
      await watched.tabTo(/^ARTICLE/)
      await page.keyboard.press("ArrowUp")
      await eventually(
        "the message above",
        async () => (await watched.focused()).startsWith("ARTICLE You") ? true : undefined
      )
      await page.keyboard.press("End")
      await eventually(
        "the newest",
        async () => (await watched.focused()).startsWith(`ARTICLE @${bob.handle}`) ? true : undefined
      )
      await page.keyboard.press("r")
      await eventually("the field", async () => (await watched.focused()).startsWith("TEXTAREA") ? true : undefined)
      await page.keyboard.type("By keyboard.")
      await page.keyboard.press("Enter")
      await message(pane(page, ada), "By keyboard.").getByText("I am.").waitFor()
      await watched.close()
    })

    it("fits 360 px, dark and light, and everything can be reached", async () => {
      const { ada, bob } = await pair()
      await send(ada, {
        to: bob.handle,
        content: { text: "https://example.com/a/very/long/address/that/has/no/space/in/it/at/all/and/goes/on/and/on" }
      })
      for (const colorScheme of ["dark", "light"] as const) {
        const watched = await Watched.open(browser, server.url, {
          viewport: { width: 360, height: 740 },
          colorScheme,
          hasTouch: true
        })
        const { page } = watched
        await signIn(server, page, ada, bob)
        const bobs = pane(page, bob)
        await bobs.waitFor()
        assert.isFalse(await pane(page, ada).isVisible())
        await watched.accessible()
        await open(bobs, ada.handle)
        await message(bobs, "https://").waitFor()
        await write(bobs, `from a ${colorScheme} phone`)
        await message(bobs, `from a ${colorScheme} phone`).waitFor()
        assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360)
        await watched.accessible()
        if (colorScheme === "dark") await picture(page, "app-phone")
        await bobs.getByRole("button", { name: "Back" }).click()
        await bobs.getByRole("list", { name: "Conversations" }).waitFor()
        await watched.close()
      }
    })

    it("other origins cannot frame it, and the welcome page is accessible", async () => {
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.goto(server.url)
      await page.getByRole("link", { name: /Messages/ }).waitFor()
      await watched.accessible()
      await picture(page, "welcome")
      await watched.close()
      const context = await browser.newContext()
      const foreign = await context.newPage()
      await foreign.setContent(
        `<iframe src="${server.url}/app"></iframe><iframe src="${server.url}/"></iframe><iframe src="${server.url}/console"></iframe>`
      )
      await foreign.waitForTimeout(1_000)
      for (const frame of foreign.frames().slice(1)) assert.notInclude(frame.url(), server.url)
      await context.close()
    })

    it("draws a picture for the documentation", async () => {
      const ada = await newAgent(server, "planner", { display_name: "Planner" })
      const bob = await newAgent(server, "research", { display_name: "Research" })
      const cleo = await newAgent(server, "writer", { display_name: "Writer" })
      await send(ada, {
        to: bob.handle,
        content: { text: "Which of the three suppliers ships to Lisbon within a week?" }
      })
      const asked = await send(bob, {
        to: ada.handle,
        content: {
          text:
            "Two of them: Norte and Casco. Norte is cheaper, Casco has a warehouse there. Sources are in the table that I put into the group."
        }
      })
      await send(ada, {
        to: bob.handle,
        content: { text: "Take Casco then. Please write down what a delay would cost us." },
        metadata: { reply_to: asked.id }
      })
      await send(bob, {
        to: ada.handle,
        content: { data: { supplier: "Casco", days: 4, cost_of_delay_per_day: 120 } },
        type: "structured"
      })
      await send(cleo, { to: ada.handle, content: { text: "The draft of the offer is ready for a look." } })
      const { group } =
        (await ada.http.post("/v1/groups", { name: "Lisbon offer", member_handles: [bob.handle, cleo.handle] }))
          .body as { group: { id: string } }
      for (const agent of [bob, cleo]) {
        const [invite] = (await agent.http.get("/v1/groups/invites")).body as ReadonlyArray<{ id: string }>
        await agent.http.post(`/v1/groups/invites/${invite?.id}/accept`)
      }
      await send(cleo, { conversation_id: group.id, content: { text: "I have everything that I need." } })
      for (const colorScheme of ["light", "dark"] as const) {
        const watched = await Watched.open(browser, server.url, { colorScheme, viewport: { width: 1440, height: 860 } })
        const { page } = watched
        await signIn(server, page, ada, bob)
        await open(pane(page, ada), /Research/)
        await open(pane(page, bob), /Planner/)
        await message(pane(page, bob), "Casco").first().waitFor()
        if (colorScheme === "light") await write(pane(page, bob), "A day costs 120. The figures are above.")
        await message(pane(page, ada), "A day costs 120.").waitFor()
        await page.waitForTimeout(1_500)
        await watched.accessible()
        await picture(page, `app-${colorScheme}`)
        await watched.close()
      }
    })
  })
})
