import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import type { Browser, Locator } from "playwright-core"
import sharp from "sharp"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { pane, signIn } from "./Panes.ts"
import { picture } from "./Pictures.ts"

/** What runs in the page. */
interface Transfer {
  readonly items: { readonly add: (file: object) => void }
}
type OfEvent = new(type: string, options: object) => object
declare const document: { readonly documentElement: { readonly scrollWidth: number } }
declare const DataTransfer: new() => Transfer
declare const DragEvent: OfEvent
declare const ClipboardEvent: OfEvent

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

let browser: Browser
let server: Server
let png: Buffer

const field = (at: Locator) => at.getByRole("textbox", { name: "Message" })
const chosen = (at: Locator) => at.getByRole("list", { name: "Files to send" }).getByRole("listitem")
const message = (at: Locator, text: string) => at.getByRole("article").filter({ hasText: text })
const sendButton = (at: Locator) => at.getByRole("button", { name: "Send", exact: true })
const choose = (at: Locator, ...files: ReadonlyArray<{ name: string; mimeType: string; buffer: Buffer }>) =>
  at.locator(".composer input[type=file]").setInputFiles([...files])
const send = (from: TestAgent, to: TestAgent, text: string) =>
  from.http.post("/v1/messages", { to: to.handle, client_msg_id: `t-${Math.random()}`, content: { text } })
const notes = (name: string, text = "notes") => ({ name, mimeType: "text/plain", buffer: Buffer.from(text) })

/** Two agents that have each written once, and the page of the first with their conversation open. */
const opened = async (options: Parameters<typeof Watched.open>[2] = {}) => {
  const [ada, bob] = await Promise.all([newAgent(server, "ada"), newAgent(server, "bob")])
  await send(ada, bob, "Are you there?")
  await send(bob, ada, "I am.")
  const watched = await Watched.open(browser, server.url, options)
  const { page } = watched
  await signIn(server, page, ada)
  const at = pane(page, ada)
  await at.getByRole("list", { name: "Conversations" }).getByRole("button", { name: bob.handle }).first().click()
  await message(at, "I am.").waitFor()
  return { ada, bob, at, page, watched }
}

/** Uploads a picture for another agent. */
const upload = async (from: TestAgent, to: TestAgent, bytes: Buffer) => {
  const { body } = await from.http.post("/v1/uploads", {
    to: to.handle,
    filename: "plan.png",
    content_type: "image/png",
    size: bytes.length,
    sha256: createHash("sha256").update(bytes).digest("hex")
  })
  const created = body as { readonly attachment_id: string; readonly upload_url: string }
  assert.strictEqual((await fetch(created.upload_url, { method: "PUT", body: bytes })).ok, true)
  return created
}

/** Drops or pastes files, as the browser does. */
const give = (at: Locator, type: "drop" | "paste", files: ReadonlyArray<readonly [name: string, type: string]>) =>
  at.evaluate((element, [type, files]) => {
    const data = new DataTransfer()
    for (const [name, mime] of files) data.items.add(new File([`the text of ${name}`], name, { type: mime }))
    const options = { bubbles: true, cancelable: true }
    const event = type === "drop"
      ? new DragEvent("drop", { ...options, dataTransfer: data })
      : new ClipboardEvent("paste", { ...options, clipboardData: data })
    ;(element as unknown as { readonly dispatchEvent: (event: object) => void }).dispatchEvent(event)
  }, [type, files] as const)

describe.skipIf(CHROMIUM === undefined || !ALL)(`files on /app${MISSING}${ALL ? "" : " (npm run test:pages)"}`, () => {
  beforeAll(async () => {
    ;[browser, server, png] = await Promise.all([
      launch(),
      sharedServer(),
      sharp({ create: { width: 64, height: 64, channels: 3, background: "#6fc9b0" } }).png().toBuffer()
    ])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("several are chosen, dropped and pasted, shown before they are sent, removed, and sent in order with the text first", async () => {
    const { at, bob, page, watched } = await opened()
    await choose(at, { name: "plan.png", mimeType: "image/png", buffer: png }, notes("notes.txt", "n".repeat(1536)))
    await chosen(at).filter({ hasText: "plan.png" }).locator("img").waitFor()
    assert.strictEqual(
      await chosen(at).first().locator("img").evaluate((image) =>
        (image as unknown as { naturalWidth: number }).naturalWidth
      ),
      64
    )
    await chosen(at).filter({ hasText: "notes.txt" }).getByText("1.5 KiB").waitFor()
    await give(at.locator(".thread-head"), "drop", [["dropped.csv", "text/csv"], ["other.md", "text/markdown"]])
    await give(field(at), "paste", [["pasted.json", "application/json"]])
    assert.strictEqual(await field(at).inputValue(), "", "no file name is pasted as text")
    await at.getByText("Sent as 5 messages, in this order.").waitFor()
    await watched.accessible()
    await picture(page, "files-light")
    await at.getByRole("button", { name: "Do not send other.md" }).click()
    await field(at).fill("Four files")
    await at.getByText("The text is sent with the first file.").waitFor()
    await field(at).press("Enter")
    await message(at, "pasted.json").getByText(/Stored|Delivered/).waitFor()
    assert.strictEqual(await chosen(at).count(), 0)
    const conversation = ((await bob.http.get("/v1/conversations")).body as {
      conversations: ReadonlyArray<{ id: string }>
    }).conversations[0]!.id
    const stored = ((await bob.http.get(`/v1/messages/${conversation}?after_seq=2`)).body as ReadonlyArray<
      { content: { text?: string; attachment_id: string } }
    >).map(({ content }) => content)
    assert.deepStrictEqual(stored.map(({ text }) => text), ["Four files", undefined, undefined, undefined])
    const names = await Promise.all(
      stored.map(async ({ attachment_id: id }) =>
        ((await bob.http.get(`/v1/attachments/${id}/info`)).body as { filename: string }).filename
      )
    )
    assert.deepStrictEqual(names, ["plan.png", "notes.txt", "dropped.csv", "pasted.json"])
    const name = message(at, "notes.txt").locator(".file-name")
    await name.locator("small").waitFor()
    assert.match(await name.textContent() ?? "", /^notes\.txt text\/plain, 1\.5 KiB$/, "a gap is between name and type")
    await watched.close()
  })

  it("an upload shows its progress and is cancelled by keyboard; what was chosen stays and is sent by the next try", async () => {
    const { at, page, watched } = await opened()
    const puts: Array<string> = []
    /** Whether uploads are answered. */
    let answers = false
    await page.route(/\/v1\/files\//, async (route) => {
      puts.push(route.request().url())
      await eventually("the permission to answer", () => answers || undefined)
      await route.continue().catch(() => undefined)
    })
    await choose(at, notes("first.txt"), notes("second.txt"))
    await field(at).fill("Two files")
    await field(at).press("Enter")
    await at.getByRole("progressbar", { name: "Upload of first.txt" }).waitFor()
    await at.getByText("Uploading file 1 of 2").waitFor()
    await eventually("the upload", () => puts.length === 1 || undefined)
    assert.isTrue(await at.getByRole("button", { name: "Do not send first.txt" }).isDisabled())
    await watched.accessible()
    await watched.tabTo(/^BUTTON Cancel the upload/)
    await page.keyboard.press("Enter")
    await sendButton(at).waitFor()
    assert.strictEqual(await at.getByRole("progressbar").count(), 0)
    assert.strictEqual(await at.locator(".pending").count(), 0, "nothing is sent")
    assert.deepStrictEqual([await chosen(at).count(), await field(at).inputValue()], [2, "Two files"])
    answers = true
    assert.match(await watched.focused(), /^TEXTAREA/)
    await page.keyboard.press("Enter")
    await message(at, "second.txt").getByText(/Stored|Delivered/).waitFor()
    assert.strictEqual(await message(at, "Two files").count(), 1)
    await watched.close()
  })

  it("that cannot be sent say why, and several at once wait for the first answer of a stranger", async () => {
    const { ada, at, watched } = await opened()
    await choose(at, { name: "x.exe", mimeType: "application/x-msdownload", buffer: png }, notes("empty.txt", ""))
    await chosen(at).filter({ hasText: "x.exe" }).getByText("Files of this type cannot be sent").waitFor()
    await chosen(at).filter({ hasText: "empty.txt" }).getByText("This file is empty.").waitFor()
    assert.isTrue(await sendButton(at).isDisabled())
    for (const name of ["x.exe", "empty.txt"]) await at.getByRole("button", { name: `Do not send ${name}` }).click()
    await choose(at, ...Array.from({ length: 11 }, (_, index) => notes(`${index}.txt`)))
    await at.getByText("You can send at most 10 files at once.").waitFor()
    assert.strictEqual(await chosen(at).count(), 10)
    const eve = await newAgent(server, "eve")
    await at.getByRole("group", { name: "Views" }).getByRole("button", { name: "New" }).click()
    await at.getByLabel("Name or handle").fill(eve.handle)
    await at.getByRole("button", { name: "Write" }).click()
    await at.getByRole("heading", { name: eve.handle }).first().waitFor()
    await choose(at, notes("one.txt"), notes("two.txt"))
    await at.getByText("You can send only one message before the agent replies.").waitFor()
    assert.isTrue(await sendButton(at).isDisabled())
    await at.getByRole("button", { name: "Do not send two.txt" }).click()
    await sendButton(at).click()
    await message(at, "one.txt").getByText(/Stored|Delivered/).waitFor()
    assert.strictEqual(((await eve.http.get("/v1/messages/sync")).body as ReadonlyArray<unknown>).length, 1, ada.handle)
    await watched.close()
  })

  it("fit 360 px on a dark phone", async () => {
    const { at, page, watched } = await opened({ viewport: { width: 360, height: 700 }, colorScheme: "dark" })
    await choose(
      at,
      { name: "plan.png", mimeType: "image/png", buffer: png },
      notes(`${"a-very-long-name-".repeat(8)}.txt`),
      notes("x.exe")
    )
    await chosen(at).nth(2).waitFor()
    await picture(page, "files-phone-dark")
    assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360)
    await sendButton(at).waitFor()
    const box = await sendButton(at).boundingBox()
    assert.isAtMost(box!.x + box!.width, 360)
    await watched.accessible()
    await watched.close()
  })

  it("the list stays at its end while a picture loads, and a picture keeps its place", async () => {
    const { ada, at, bob, page, watched } = await opened()
    for (let i = 0; i < 30; i++) await send(bob, ada, `line ${i}.`)
    await message(at, "line 29.").waitFor()
    const wide = await sharp({ create: { width: 600, height: 240, channels: 3, background: "#6fc9b0" } }).png()
      .toBuffer()
    const { attachment_id } = await upload(bob, ada, wide)
    let release = () => {}
    const held = new Promise<void>((resolve) => release = resolve)
    await page.route(`**/v1/attachments/${attachment_id}`, async (route) => {
      await held
      await route.continue()
    })
    const body = {
      to: ada.handle,
      client_msg_id: "picture",
      type: "file",
      content: { attachment_id, text: "a picture" }
    }
    await bob.http.post("/v1/messages", body)
    const place = message(at, "a picture").locator(".file-picture > span")
    const isAtEnd = async () => {
      await at.locator(".scroller").evaluate(async ({ clientHeight, scrollHeight, scrollTop }) => {
        if (scrollHeight - scrollTop - clientHeight > 1)
          throw new Error(`${scrollHeight - scrollTop - clientHeight} px`)
      })
      assert.strictEqual(await at.getByRole("button", { name: "Newest" }).count(), 0)
    }
    await place.waitFor()
    assert.strictEqual((await place.boundingBox())?.height, 288)
    await eventually("the end", () => isAtEnd().then(() => true, () => undefined))
    release()
    const shown = place.locator("img")
    await shown.waitFor()
    await eventually("the end", () => isAtEnd().then(() => true, () => undefined))
    const box = await place.boundingBox()
    assert.closeTo(box!.width / box!.height, 600 / 240, 0.01)
    await picture(page, "files-picture")
    await shown.click()
    const large = page.getByRole("dialog", { name: "Picture plan.png" })
    await large.locator("img").waitFor()
    assert.strictEqual((await large.locator("img").boundingBox())?.width, 600)
    await watched.accessible()
    // It stays when the message's row is not drawn any more.
    const scroller = at.locator(".scroller")
    // A list that is drawn meanwhile stays where it was.
    await eventually("the row to go", async () => {
      await scroller.evaluate((element) => element.scrollTop = 0)
      return await shown.count() === 0 || undefined
    })
    assert.isTrue(await large.isVisible())
    await page.keyboard.press("Escape")
    await large.waitFor({ state: "detached" })
    // Drawn again after scrolling, it has its final size before its bytes are there.
    await at.getByRole("button", { name: "Newest" }).click()
    await place.waitFor()
    assert.deepStrictEqual([(await place.boundingBox())?.width, (await place.boundingBox())?.height], [
      box!.width,
      box!.height
    ])
    await shown.waitFor()
    await isAtEnd()
    await watched.close()
  })
})
