import assert from "node:assert/strict"
import { existsSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { delimiter, join } from "node:path"
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core"
import { LONGEST_WAIT_MS } from "../support/Eventually.ts"

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")
const NAMES = ["chromium", "chromium-browser", "google-chrome"]

/** Where Chromium is on this machine; undefined if it is not. */
export const CHROMIUM = process.env["CHROMIUM"] ??
  (process.env["PATH"] ?? "").split(delimiter).flatMap((folder) => NAMES.map((name) => join(folder, name))).find((
    path
  ) => existsSync(path))

interface Focused {
  readonly tagName: string
  readonly textContent: string | null
  readonly getAttribute: (name: string) => string | null
}
declare const document: {
  readonly activeElement: Focused | null
  readonly addEventListener: (
    type: string,
    listener: (
      event: Readonly<Record<"violatedDirective" | "blockedURI" | "sourceFile" | "lineNumber", string>>
    ) => void
  ) => void
}

/** What a skipped test says. */
export const MISSING = CHROMIUM === undefined
  ? " (Chromium not found: apt-get install chromium, or set CHROMIUM to where it is)"
  : ""

export const launch = (): Promise<Browser> =>
  chromium.launch({
    executablePath: CHROMIUM ?? "",
    args: [
      ...process.getuid?.() === 0 ? ["--no-sandbox"] : [],
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--no-first-run"
    ]
  })

/**
 * A page that keeps what must not happen on it: an error, a request to elsewhere, a breach of its policy, a script of
 * others that ran.
 */
export class Watched {
  readonly page: Page
  readonly wrong: Array<string> = []
  /** Errors that the test causes itself are expected: failed requests while the server is away. */
  lenient = false

  private constructor(page: Page, origins: ReadonlyArray<string>) {
    this.page = page
    page.on("console", (message) => {
      if (
        message.type() === "error" && !this.lenient &&
        !/Failed to load resource|WebSocket connection/.test(message.text())
      ) {
        this.wrong.push(`console: ${message.text()}`)
      }
    })
    page.on("pageerror", (error) => this.wrong.push(`error: ${error.stack ?? error.message}`))
    page.on("dialog", (dialog) => {
      if (dialog.type() !== "beforeunload") this.wrong.push(`dialog: ${dialog.message()}`)
      void dialog.accept()
    })
    page.on("request", (request) => {
      const url = request.url()
      if (!origins.some((origin) => url.startsWith(`${origin}/`)) && !/^(blob|data|about):/.test(url))
        this.wrong.push(`request to ${url}`)
      // A key belongs into a header or a frame.
      if (/\bac_[\w-]{43}/.test(url)) this.wrong.push(`a key in ${url}`)
    })
  }

  /** `stores`: other origins that the page may reach. */
  static async open(
    browser: Browser,
    origin: string,
    options: BrowserContextOptions = {},
    stores: ReadonlyArray<string> = []
  ): Promise<Watched> {
    const context = await browser.newContext({
      locale: "en-GB",
      timezoneId: "UTC",
      viewport: { width: 1280, height: 800 },
      ...options
    })
    await context.addInitScript(() => {
      const breaches: Array<string> = []
      Object.assign(globalThis, { breaches })
      document.addEventListener(
        "securitypolicyviolation",
        (event) =>
          breaches.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`)
      )
    })
    const page = await context.newPage()
    page.setDefaultTimeout(LONGEST_WAIT_MS)
    return new Watched(page, [origin, ...stores])
  }

  /** Asserts that nothing went wrong so far, and that no markup of others ran. */
  async assertGood(): Promise<void> {
    const { breaches, ran } = await this.page.evaluate(() => {
      const { breaches, ran } = globalThis as unknown as {
        readonly breaches: ReadonlyArray<string>
        readonly ran?: unknown
      }
      return { breaches, ran: ran ?? null }
    })
    assert.deepStrictEqual([...this.wrong, ...breaches], [])
    assert.strictEqual(ran, null, "a script in somebody's text has run")
  }

  /** Asserts that axe finds nothing wrong with the page as it is. */
  async accessible(): Promise<void> {
    // Through the debugger: the page's policy lets no script of ours in. A colour that is still changing may be too pale.
    const violations = await this.page.evaluate(
      `${AXE}; Promise.all(document.getAnimations().map(({ finished }) => finished.catch(() => {})))
      .then(() => axe.run(document, { resultTypes: ["violations"] })).then(({ violations }) =>
      violations.map(({ id, help, nodes }) => id + ": " + help + "\\n  " + nodes.slice(0, 5).map(({ html, failureSummary }) => html.slice(0, 160) + "  " + failureSummary).join("\\n  ")))`
    )
    assert.deepStrictEqual(violations, [])
  }

  /** The tag, the name and the type of the element that has the focus. */
  focused(): Promise<string> {
    return this.page.evaluate(() => {
      const element = document.activeElement
      return `${element?.tagName} ${element?.getAttribute("aria-label") ?? element?.textContent?.trim() ?? ""} ${
        element?.getAttribute("type") ?? ""
      }`
    })
  }

  /** Presses Tab until such an element has the focus. */
  async tabTo(what: RegExp): Promise<void> {
    for (let i = 0; i < 60; i++) {
      if (what.test(await this.focused())) return
      await this.page.keyboard.press("Tab")
    }
    assert.fail(`Tab never came to ${what}: it is at ${await this.focused()}`)
  }

  async close(): Promise<void> {
    await this.assertGood()
    await this.page.context().close()
  }
}
