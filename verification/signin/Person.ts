import type { Browser } from "playwright-core"
import { launch } from "../../test/pages/Browser.ts"
import type { RegisteredAgent } from "../../test/support/RegisterAgents.ts"

/** What a sign-in looked like in the browser. */
export interface Seen {
  /** The sentence in which the page says who asks. */
  readonly asks: string
  /** Where the browser was sent in the end, with the code. */
  readonly back: string
  /** The status of the program's own answer to the browser; 0 if nothing listened. */
  readonly status: number
}

/** Somebody who signs in on the sign-in page, in Chromium. */
export class Person {
  private readonly browser: Browser

  private constructor(browser: Browser) {
    this.browser = browser
  }

  static async start(): Promise<Person> {
    return new Person(await launch())
  }

  /**
   * Opens the URL to which a program sends the browser, signs in with the agent's key, and allows what the program asks
   * for, or only to read.
   */
  async allow(url: string, agent: RegisteredAgent, scope: "read" | "act" = "act"): Promise<Seen> {
    const redirect = new URL(url).searchParams.get("redirect_uri") ?? ""
    const context = await this.browser.newContext({ locale: "en-GB" })
    try {
      const page = await context.newPage()
      const button = (name: string) => page.getByRole("button", { name, exact: true })
      await page.goto(url)
      await button("With a key").click()
      const asks = await page.getByText("asks for access to an agent").innerText()
      await page.getByLabel("Agent's key").fill(agent.key)
      await button("Continue").click()
      await page.getByText(`conversations of @${agent.handle}`).waitFor()
      if (scope === "read") await page.getByLabel("Act as the agent").uncheck()
      const leaving = page.waitForRequest((request) => request.url().startsWith(redirect))
      await button("Allow").click()
      const request = await leaving
      const response = await request.response()
      return { asks, back: request.url(), status: response?.status() ?? 0 }
    } finally {
      await context.close()
    }
  }

  async close(): Promise<void> {
    await this.browser.close()
  }
}
