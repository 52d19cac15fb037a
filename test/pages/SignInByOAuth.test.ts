import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createServer, type Server as HttpServer } from "node:http"
import type { AddressInfo } from "node:net"
import type { Browser, BrowserContextOptions, Page } from "playwright-core"
import { older, post, rpc } from "../mcp/Mcp.ts"
import { baseOf, Host, type Pkce, pkce, type Tokens } from "../signin/Flow.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { freshHandle, newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { picture } from "./Pictures.ts"

/** What runs in the page. */
declare const document: { readonly documentElement: { readonly scrollWidth: number } }
declare const window: { readonly opener: unknown; readonly open: (url: string) => void }
declare const localStorage: {
  readonly setItem: (name: string, value: string) => void
  readonly getItem: (name: string) => string | null
}

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

const EVIL = `<img src=x onerror="ran=1"><script>ran=1</script>`

let browser: Browser
let server: Server
/** The program that asks: it listens on this machine for the answer. */
let program: HttpServer
let origin: string

/** A request of a host that has just registered. */
interface Asked {
  readonly host: Host
  readonly pair: Pkce
  readonly url: string
}

const ask = async (
  redirect: string,
  name: string | null = "Test program",
  scope = "agent:read agent:act"
): Promise<Asked> => {
  const host = await Host.register(server, redirect, { client_name: name })
  const pair = pkce()
  return { host, pair, url: host.authorizeUrl(pair, { scope }) }
}
const askHere = (name?: string | null, scope?: string) => ask(`${origin}/callback`, name, scope)

/** Waits until the browser is back at the program, and returns the answer in its address. */
const answerTo = async (page: Page, { host }: Asked): Promise<URLSearchParams> => {
  await page.waitForURL((url) => url.href.startsWith(host.redirectUri))
  const { searchParams } = new URL(page.url())
  assert.strictEqual(searchParams.get("state"), "st 1")
  assert.strictEqual(searchParams.get("iss"), await baseOf(server))
  return searchParams
}

/** Waits for the answer as `answerTo` does, and exchanges its code for tokens. */
const tokensOf = async (page: Page, asked: Asked): Promise<Tokens> => {
  const { body, status, text } = await asked.host.redeem((await answerTo(page, asked)).get("code") ?? "", asked.pair)
  assert.strictEqual(status, 200, text)
  return body
}

const myStatus = (token: string) =>
  post(server, token, rpc("tools/call", { name: "agentchat_get_my_status", arguments: {} }), older)

/** Asserts that the token acts for this agent at `/mcp`. */
const assertActsFor = async (token: string, handle: string) => {
  const answer = await myStatus(token)
  assert.strictEqual(answer.status, 200)
  assert.include(JSON.stringify(answer.body), handle)
}

const open = (options: BrowserContextOptions = {}, others: ReadonlyArray<string> = []) =>
  Watched.open(browser, server.url, options, [origin, ...others])
const button = (page: Page, name: string | RegExp) => page.getByRole("button", { name, exact: true })
const signInWithKey = async (page: Page, { key }: Pick<TestAgent, "key">) => {
  await button(page, "With a key").click()
  await page.getByLabel("Agent's key").fill(key)
  await button(page, "Continue").click()
}
/** Stores keys in the browser, as /app does when a person asks for it. */
const keepKeys = async (page: Page, ...agents: ReadonlyArray<Pick<TestAgent, "key">>) => {
  await page.goto(`${server.url}/app`)
  await page.evaluate(
    (keys) => localStorage.setItem("parley.keys", keys),
    JSON.stringify(agents.map(({ key }) => ({ key, watching: true })))
  )
}

describe.skipIf(CHROMIUM === undefined)(`/oauth/sign-in${MISSING}`, () => {
  beforeAll(async () => {
    program = createServer((_, response) =>
      void response.setHeader("content-type", "text/html").end("<!doctype html><title>The program</title>")
    )
    await new Promise<void>((resolve) => void program.listen(0, "127.0.0.1", resolve))
    origin = `http://127.0.0.1:${(program.address() as AddressInfo).port}`
    ;[browser, server] = await Promise.all([launch(), startServer()])
  })
  afterAll(async () => {
    await browser?.close()
    program?.closeAllConnections()
    program?.close()
    await server?.stop()
  })

  it("a person without an agent connects a program: registers, keeps the key, sees what the program may do, and allows it", async () => {
    const watched = await open()
    const { page } = watched
    const asked = await askHere("Test program")
    await page.goto(asked.url)
    await page.getByText("A program that calls itself “Test program” asks for access").waitFor()
    await page.getByText("127.0.0.1", { exact: true }).waitFor()
    await page.getByText("Any program on it can ask in this way").waitFor()
    await watched.accessible()
    await picture(page, "oauth-choose")
    await button(page, "New agent").click()
    const handle = freshHandle("newcomer")
    const email = `${handle}@example.com`
    await page.getByLabel("E-mail address").fill(email)
    await page.getByLabel("Handle").fill("no handle")
    await button(page, "Mail me a code").click()
    await page.getByRole("alert").waitFor()
    await page.getByLabel("Handle").fill(handle)
    await button(page, "Mail me a code").click()
    await page.getByLabel("Code").fill("000000")
    await button(page, "Continue").click()
    await page.getByRole("alert").waitFor()
    await watched.accessible()
    await page.getByLabel("Code").fill(await server.code(email))
    await button(page, "Continue").click()
    await page.getByText(`This is the key of @${handle}.`).waitFor()
    await watched.accessible()
    const key = (await page.getByLabel("The agent's key", { exact: true }).textContent()) ?? ""
    assert.match(key, /^ac_[\w-]{43}$/)
    assert.strictEqual((await server.http(key).get("/v1/agents/me")).status, 200)
    await page.getByLabel("Keep the key in this browser too").check()
    await button(page, "Continue").click()
    await page.getByText(`Read the messages and conversations of @${handle}`).waitFor()
    await page.getByText("It can neither replace the key nor delete the agent").waitFor()
    await page.getByText("You can end the connection at any time").waitFor()
    await page.getByText(/^n\S*@example\.com$/).waitFor()
    assert.notInclude(await page.content(), key, "the key is shown once")
    assert.include(await page.evaluate(() => localStorage.getItem("parley.keys")), key)
    await watched.accessible()
    await picture(page, "oauth-decide")
    await button(page, "Allow").click()
    const { access_token, scope } = await tokensOf(page, asked)
    assert.strictEqual(scope, "agent:read agent:act")
    await assertActsFor(access_token, handle)
    // The connection is taken back where the page said.
    await page.goto(`${server.url}/app`)
    await page.getByRole("group", { name: "Views" }).getByRole("button", { name: "Agent" }).click()
    await page.getByText("Test program").waitFor()
    await button(page, "Disconnect").click()
    await page.getByRole("group", { name: /^Disconnect/ }).getByRole("button", { name: "Disconnect" }).click()
    await eventually("the end of the token", async () => (await myStatus(access_token)).status === 401 || undefined)
    await watched.close()
  })

  describe.skipIf(!ALL)(`the rest${ALL ? "" : " (npm run test:pages)"}`, () => {
    it("a key that /app keeps is one click, another agent can be chosen, and the right to act can be withheld", async () => {
      const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
      const watched = await open()
      const { page } = watched
      await keepKeys(page, ada, bob, { key: `ac_${"x".repeat(43)}` })
      const asked = await askHere()
      await page.goto(asked.url)
      const choices = page.getByRole("list", { name: "Agents of this browser" })
      await choices.getByText("xxxx").waitFor({ state: "detached" })
      await choices.getByRole("button", { name: `Continue as @${ada.handle}` }).click()
      await page.getByText(`conversations of @${ada.handle}`).waitFor()
      await button(page, "Another agent").click()
      await choices.getByRole("button", { name: `Continue as @${bob.handle}` }).click()
      await page.getByText(`conversations of @${bob.handle}`).waitFor()
      // The agent that is signed in is the request's, not the tab's.
      await page.reload()
      await page.getByText(`conversations of @${bob.handle}`).waitFor()
      await page.getByLabel("Act as the agent").uncheck()
      await button(page, "Allow").click()
      const { access_token, scope } = await tokensOf(page, asked)
      assert.strictEqual(scope, "agent:read")
      await assertActsFor(access_token, bob.handle)
      // No session stays: the next request asks again who signs in.
      await page.goto((await askHere()).url)
      await page.getByRole("heading", { name: "Which agent?" }).waitFor()
      await watched.close()
    })

    it("signs in by a code that is mailed, which leaves the key as it is, and shows errors in words", async () => {
      const ada = await newAgent(server, "ada")
      const watched = await open()
      const { page } = watched
      const asked = await askHere(null, "agent:read")
      await page.goto(asked.url)
      await page.getByText("A program that gives no name").waitFor()
      await signInWithKey(page, { key: "something" })
      await page.getByText("This is not a key").waitFor()
      await signInWithKey(page, { key: `ac_${"x".repeat(43)}` })
      await page.getByText("The server does not know this key").waitFor()
      await watched.accessible()
      await button(page, "By e-mail").click()
      await page.getByLabel("E-mail address").fill(ada.email)
      await button(page, "Mail me a code").click()
      await page.getByText("If an account has this address").waitFor()
      await page.getByLabel("Code").fill("000000")
      await button(page, "Continue").click()
      await page.getByRole("alert").waitFor()
      await page.getByLabel("Code").fill(await server.code(ada.email))
      await button(page, "Continue").click()
      await page.getByText(`conversations of @${ada.handle}`).waitFor()
      assert.strictEqual(await page.getByRole("checkbox").count(), 0, "the program did not ask for the right to act")
      await button(page, "Allow").click()
      assert.strictEqual((await tokensOf(page, asked)).scope, "agent:read")
      assert.strictEqual((await ada.http.get("/v1/agents/me")).status, 200, "the key is the same")
      await watched.close()
    })

    it("can be denied without signing in; the host of the redirect is shown, and the pop-up keeps its opener", async () => {
      const watched = await open({}, ["https://claude.ai"])
      const { page } = watched
      const context = page.context()
      await context.route(
        "https://claude.ai/**",
        (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><title>Claude</title>" })
      )
      const asked = await ask("https://claude.ai/api/mcp/auth_callback", "Claude")
      await page.goto("https://claude.ai/new")
      const [popUp] = await Promise.all([
        page.waitForEvent("popup"),
        page.evaluate((url) => window.open(url), asked.url)
      ])
      await popUp.getByText("claude.ai", { exact: true }).waitFor()
      assert.strictEqual(await popUp.locator(".caution").count(), 0)
      const request = popUp.url()
      await button(popUp, "Deny").click()
      const answer = await answerTo(popUp, asked)
      assert.strictEqual(answer.get("error"), "access_denied")
      assert.isFalse(answer.has("code"))
      assert.isTrue(await popUp.evaluate(() => window.opener !== null))
      await page.goto(request)
      await page.getByRole("heading", { name: "This request is over" }).waitFor()
      await page.getByText("connect to this server again there").waitFor()
      await watched.accessible()
      await watched.close()
    })

    it("the page stays when an application opens: it warns about the private scheme and says that it can be closed", async () => {
      const ada = await newAgent(server, "ada")
      const watched = await open({}, ["cursor:/"])
      const { page } = watched
      await page.goto((await ask("cursor://anysphere.cursor-retrieval/oauth/callback", "Cursor")).url)
      await page.getByText("cursor:", { exact: true }).waitFor()
      await page.getByText("Any application can claim the address").waitFor()
      await signInWithKey(page, ada)
      await button(page, "Allow").click()
      await page.getByText("You can close this page.").waitFor()
      const again = await page.getByRole("link", { name: "open it now" }).getAttribute("href")
      assert.match(again ?? "", /^cursor:\/\/anysphere\.cursor-retrieval\/oauth\/callback\?code=oac_/)
      await page.getByText("You can end the connection at any time").waitFor()
      await watched.accessible()
      await watched.close()
    })

    it("says that an agent is suspended, and shows all texts of others as text", async () => {
      const ada = await newAgent(server, "ada", { display_name: EVIL })
      const suspended = await adminHere(server.place, "agents", "suspend", ada.handle)
      assert.strictEqual(suspended.code, 0, suspended.stderr)
      const watched = await open()
      const { page } = watched
      await page.goto((await askHere(EVIL)).url)
      await page.getByText(EVIL).waitFor()
      await signInWithKey(page, ada)
      await page.getByText("An operator has suspended this agent").waitFor()
      assert.strictEqual(await page.getByText(EVIL).count(), 2)
      assert.strictEqual(await page.locator("main img, main script").count(), 0)
      await watched.accessible()
      await watched.close()
    })

    it("a request opens only in the browser in which it began", async () => {
      const watched = await open()
      await watched.page.goto((await askHere()).url)
      await watched.page.getByRole("heading", { name: "Which agent?" }).waitFor()
      const other = await open()
      await other.page.goto(watched.page.url())
      await other.page.getByRole("heading", { name: "This request is over" }).waitFor()
      await other.close()
      await watched.close()
    })

    it("fits 360 px, dark and light, and every step is accessible by keyboard alone", async () => {
      const ada = await newAgent(server, "ada", {
        display_name: "An agent with a name that takes two lines on a phone"
      })
      for (const colorScheme of ["dark", "light"] as const) {
        const watched = await open({ viewport: { width: 360, height: 740 }, colorScheme })
        const { page } = watched
        const fits = async () => {
          assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360)
          await watched.accessible()
        }
        const asked = await askHere("A program with a name of sixty characters, which is the most")
        await page.goto(asked.url)
        await page.getByRole("heading", { name: "Which agent?" }).waitFor()
        await fits()
        await watched.tabTo(/^BUTTON With a key/)
        await page.keyboard.press("Enter")
        await watched.tabTo(/^INPUT .*password/)
        await page.keyboard.type(ada.key)
        await page.keyboard.press("Enter")
        await page.getByText(`conversations of @${ada.handle}`).waitFor()
        assert.match(await watched.focused(), /^H2 Connect a program/, "the focus is at the beginning of the next step")
        await fits()
        if (colorScheme === "dark") await picture(page, "oauth-phone")
        await watched.tabTo(/^INPUT .*checkbox/)
        await page.keyboard.press("Space")
        await watched.tabTo(/^BUTTON Allow/)
        await page.keyboard.press("Enter")
        assert.strictEqual((await tokensOf(page, asked)).scope, "agent:read")
        await watched.close()
      }
    })

    it("an error of /authorize that must not be sent anywhere is a page that needs no script, with status 400", async () => {
      const watched = await open()
      const { page } = watched
      const answer = await page.goto(
        `${server.url}/authorize?response_type=code&client_id=${
          encodeURIComponent(EVIL)
        }&redirect_uri=https://example.com/`
      )
      assert.strictEqual(answer?.status(), 400)
      assert.strictEqual(answer?.headers()["cache-control"], "no-store")
      await page.getByRole("heading", { name: "This sign-in cannot begin" }).waitFor()
      await watched.accessible()
      await watched.close()
    })
  })
})
