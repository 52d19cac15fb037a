import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, Locator, Page } from "playwright-core"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { HOSTILE } from "./Hostile.ts"
import { picture } from "./Pictures.ts"

interface Row {
  readonly dataset: Readonly<Record<string, string>>
  readonly getAttribute: (name: string) => string | null
  readonly querySelector: (what: string) => { readonly click: () => void } | null
  readonly scrollIntoView: () => void
}
declare const requestAnimationFrame: (run: (now: number) => void) => number
declare const document: { readonly documentElement: { readonly scrollWidth: number } }
declare const navigator: { readonly clipboard: { readonly readText: () => Promise<string> } }
declare const PerformanceObserver: new(
  see: (list: { getEntries: () => ReadonlyArray<{ duration: number }> }) => void
) => { observe: (options: object) => void }

const ALL = process.env["PAGES"] === "all"
/** The largest content of a message, in bytes, with some to spare. */
const MOST = 32_600

const REPORT = `# Suppliers in Lisbon

The *second* one is **cheaper**, see [their list](https://example.com/list?of=prices) and https://example.org/warehouse.

1. Norte: ~~9~~ 7 days
2. Casco: 4 days, with \`stock\`

- [x] asked both
- [ ] signed

> Who pays for a delay?

| supplier | days | price per pallet and the conditions that come with it, in the words of the supplier |
| :------- | :--: | ---: |
| Norte | 7 | 120 |
| Casco | 4 | 150 |

\`\`\`js
const cost = (days) => days * 120 // ${"a long line ".repeat(12)}
\`\`\`

![the warehouse](https://example.com/warehouse.png)`

let browser: Browser
let server: Server

const sendable = (text: string) => {
  let rest = text
  while (JSON.stringify({ text: rest }).length > MOST) rest = rest.slice(0, rest.length * 0.9)
  return rest
}
const send = async (from: TestAgent, to: TestAgent, content: object, type = "text") => {
  const answer = await from.http.post("/v1/messages", {
    to: to.handle,
    client_msg_id: `t-${Math.random()}`,
    type,
    content
  })
  return answer.status
}
const open = async (page: Page, agent: TestAgent, other: TestAgent): Promise<Locator> => {
  await page.goto(`${server.url}/app`)
  await page.getByLabel("Agent's key").fill(agent.key)
  await page.getByRole("button", { name: "Sign in", exact: true }).click()
  const pane = page.getByRole("region", { name: `Agent @${agent.handle}` })
  await pane.getByRole("list", { name: "Conversations" }).getByRole("button", { name: other.handle }).first().click()
  await pane.getByRole("article").first().waitFor()
  return pane
}

describe.skipIf(CHROMIUM === undefined || !ALL)(
  `contents of messages in /app${MISSING}${ALL ? "" : " (npm run test:pages)"}`,
  () => {
    let ada: TestAgent
    let bob: TestAgent
    beforeAll(async () => {
      ;[browser, server] = await Promise.all([launch(), startServer()])
    })
    afterAll(async () => {
      await browser?.close()
      await server?.stop()
    })
    const pair = async () => {
      ;[ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
      await send(ada, bob, { text: "Are you there?" })
      await send(bob, ada, { text: "I am." })
    }

    it("show formatting, with a copy, the plain text and links as they are; in dark, on a phone, and accessible", async () => {
      await pair()
      await send(bob, ada, { text: REPORT })
      for (
        const options of [{}, { viewport: { width: 360, height: 740 }, colorScheme: "dark", hasTouch: true }] as const
      ) {
        const watched = await Watched.open(browser, server.url, options)
        const { page } = watched
        await page.context().grantPermissions(["clipboard-read", "clipboard-write"])
        const row = (await open(page, ada, bob)).getByRole("article").filter({ hasText: "Casco" })
        await row.getByRole("heading", { name: "Suppliers in Lisbon" }).waitFor()
        await watched.accessible()
        assert.isAtMost(
          await page.evaluate(() => document.documentElement.scrollWidth),
          options.viewport?.width ?? 1280
        )
        for (const link of await row.locator(".markdown").getByRole("link").all()) {
          assert.deepStrictEqual([await link.getAttribute("rel"), await link.getAttribute("target")], [
            "noopener noreferrer",
            "_blank"
          ])
        }
        await row.getByRole("link", { name: "the warehouse" }).waitFor()
        const cell = await row.getByRole("cell", { name: "Norte" }).boundingBox()
        assert.isAtMost(cell!.height, 40, "a wide table scrolls, and its words stay whole")
        await row.getByText("(example.com/list?of=prices)").waitFor()
        assert.strictEqual(await row.locator("img").count(), 0)
        await picture(page, options.viewport === undefined ? "app-text" : "app-text-phone")
        await row.getByRole("button", { name: "Copy: this code" }).click()
        await row.getByRole("button", { name: "Copied: this code" }).waitFor()
        assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^const cost = /)
        await row.getByRole("button", { name: "Plain text" }).click()
        assert.strictEqual(await row.locator(".text").textContent(), REPORT)
        await watched.accessible()
        await row.getByRole("button", { name: "Plain text" }).click()
        await row.getByRole("heading").waitFor()
        await watched.close()
      }
    })

    it("colour code in a known language, with its text as it was; code that is too long for it stays plain", async () => {
      await pair()
      const code = [
        ["js", "const cost = (days) => days * 120 // per day\nthrow new Error(`${cost(3)} <b>`)"],
        ["Python", "def cost(days):\n    return days * 120  # per day"],
        ["json", `{"supplier": "Norte", "days": [1, null, true]}`],
        ["diff", "@@ -1 +1 @@\n-old\n+new"],
        ["sh", 'for f in *.txt; do cat "$f"; done'],
        ["nonsense", "const a = 1"],
        ["js", "const a = 1\n".repeat(400)]
      ] as const
      for (const [language, text] of code) await send(bob, ada, { text: `\`\`\`${language}\n${text}\n\`\`\`` })
      for (const colorScheme of ["light", "dark"] as const) {
        const watched = await Watched.open(browser, server.url, {
          colorScheme,
          viewport: { width: 1280, height: 1600 }
        })
        const { page } = watched
        const pane = await open(page, ada, bob)
        for (const [language, text] of code.slice(0, 5)) {
          const block = pane.locator("pre code").filter({ hasText: text.split("\n")[0]! }).first()
          await block.locator("span").first().waitFor()
          assert.strictEqual(await block.textContent(), text, language)
        }
        await pane.locator(".code-kwd", { hasText: "const" }).first().waitFor()
        await pane.locator(".code-cmnt", { hasText: "# per day" }).waitFor()
        await pane.locator(".code-insert", { hasText: "+new" }).waitFor()
        for (const plain of [code[5][1], "const a = 1\nconst a = 1"]) {
          const block = pane.locator("pre code").filter({ hasText: plain }).last()
          assert.strictEqual(await block.locator("span").count(), 0, plain)
        }
        await watched.accessible()
        await picture(page, `app-code-${colorScheme}`)
        await watched.close()
      }
    })

    it("show data and JSON as a tree: a small one open, a large one by and by, each as plain text too", async () => {
      await pair()
      const large = {
        offer: { supplier: "Norte", days: [1, 2, { late: true }] },
        rows: Array.from({ length: 250 }, (_, no) => ({ no }))
      }
      await send(
        bob,
        ada,
        { data: { supplier: "Casco", cost: { per_day: 120, "<img src=x onerror=ran=1>": null } } },
        "structured"
      )
      await send(bob, ada, { text: JSON.stringify(large) })
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.context().grantPermissions(["clipboard-read", "clipboard-write"])
      const pane = await open(page, ada, bob)
      const small = pane.getByRole("article").filter({ hasText: "Casco" })
      await small.getByText("per_day").waitFor()
      assert.include(await small.locator(".tree").innerText(), "per_day: 120", "a name and its value are one line")
      await small.locator("summary").first().click()
      await small.getByText("per_day").waitFor({ state: "hidden" })
      const tree = pane.getByRole("article").filter({ hasText: "rows" })
      assert.strictEqual(await tree.getByText("Norte").count(), 0)
      await tree.locator("summary", { hasText: "offer" }).click()
      await tree.getByText("Norte").waitFor()
      await tree.locator("summary", { hasText: "rows" }).click()
      await tree.getByRole("button", { name: "150 more" }).click()
      await tree.getByRole("button", { name: "50 more" }).click()
      await tree.getByText("249:").waitFor()
      await watched.accessible()
      await tree.getByRole("button", { name: "Copy: this data" }).click()
      await tree.getByRole("button", { name: "Copied: this data" }).waitFor()
      assert.deepStrictEqual(JSON.parse(await page.evaluate(() => navigator.clipboard.readText())), large)
      await tree.getByRole("button", { name: "Plain text" }).click()
      assert.strictEqual(await tree.locator(".text").textContent(), JSON.stringify(large))
      await watched.close()
    })

    it("show 200 hostile texts without running or fetching anything or breaking the page's policy", async () => {
      await pair()
      for (const text of HOSTILE) {
        const status = await send(bob, ada, { text: sendable(text) })
        if (!/\0|\ud800/.test(text)) assert.strictEqual(status, 201, text.slice(0, 80))
      }
      const watched = await Watched.open(browser, server.url)
      const { page } = watched
      await page.addInitScript(() => {
        const slow: Array<number> = []
        Object.assign(globalThis, { slow })
        new PerformanceObserver((list) => slow.push(...list.getEntries().map(({ duration }) => duration))).observe({
          type: "longtask"
        })
      })
      const pane = await open(page, ada, bob)
      const scroller = pane.locator(".scroller")
      const first = pane.getByRole("article").first()
      await eventually("the first message", async () => {
        await scroller.evaluate((element) => element.scrollTop = 0)
        const isComplete = await pane.getByText("Scroll up to load older messages.").count() === 0
        return isComplete && await first.getAttribute("aria-posinset") === "1" ? true : undefined
      })
      // Downwards, with each message in its two forms.
      const seen = await scroller.evaluate(async (element) => {
        const keys = new Set<string>()
        for (let steps = 0; steps < 1_000; steps++) {
          const rows = [
            ...(element as unknown as { querySelectorAll: (what: string) => Iterable<Row> }).querySelectorAll("article")
          ]
          const fresh = rows.filter(({ dataset }) => !keys.has(dataset["key"] ?? ""))
          for (const { dataset } of fresh) keys.add(dataset["key"] ?? "")
          for (let clicks = 0; clicks < 2; clicks++) {
            for (const row of fresh) row.querySelector("button[aria-pressed]")?.click()
            await new Promise(requestAnimationFrame)
          }
          const size = Number(rows.at(-1)?.getAttribute("aria-setsize"))
          if (size !== -1 && keys.size >= size) break
          rows.at(-1)?.scrollIntoView()
          await new Promise(requestAnimationFrame)
        }
        return keys.size
      })
      assert.isAtLeast(seen, 200)
      assert.strictEqual(
        await pane.locator(
          "img, script, iframe, object, embed, form:not(.composer), style, link, meta, svg:not(button svg), [onload], [onerror]"
        ).count(),
        0
      )
      const slow = await page.evaluate(() => (globalThis as unknown as { slow: ReadonlyArray<number> }).slow)
      console.info(
        `${HOSTILE.length} hostile texts: the longest task of the page took ${Math.round(Math.max(0, ...slow))} ms`
      )
      assert.strictEqual(page.url().replace(/[?#].*/, ""), `${server.url}/app`)
      await watched.close()
    })
  }
)
