import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createServer, request } from "node:http"
import type { AddressInfo } from "node:net"
import type { Browser } from "playwright-core"
import { freePort } from "../../runners/local/FreePort.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { newLink, Operating } from "../support/Operating.ts"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { picture } from "./Pictures.ts"

const ALL = process.env["PAGES"] === "all"
const EVIL = `<img src=x onerror="ran=1"><script>ran=1</script>`
const PLACES = [
  "Overview",
  "Agents",
  "Groups",
  "Reports",
  "Webhooks",
  "Connections",
  "Invitations",
  "Announcements",
  "Limits",
  "Settings",
  "Audit",
  "Sessions"
]

/** Every text in an answer of the API with markup behind it, but for times, cursors and roles. */
const spoilt = (value: unknown, key = ""): unknown =>
  typeof value === "string"
    ? /^\d{4}-\d\d-\d\dT/.test(value) || ["next_cursor", "role"].includes(key) ? value : `${value}${EVIL}`
    : Array.isArray(value)
    ? value.map((one) => spoilt(one, key))
    : typeof value === "object" && value !== null
    ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, spoilt(one, name)]))
    : value

let browser: Browser
let server: Server

describe.skipIf(CHROMIUM === undefined || !ALL)(`/console${MISSING}${ALL ? "" : " (npm run test:pages)"}`, () => {
  beforeAll(async () => {
    const env = { WEBHOOK_ALLOW_PRIVATE: "loopback", WEBHOOK_RETRY_SECONDS: "1", RUNNER_SECRT: "nothing" }
    ;[browser, server] = await Promise.all([launch(), startServer({ env })])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("only a link opens it, and a link's token leaves the URL and works once", async () => {
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await page.goto(`${server.url}/console`)
    await page.getByText("npm run admin -- console").waitFor()
    await watched.accessible()
    const token = await newLink(server)
    await page.goto(`${server.url}/console#${token}`)
    await page.getByRole("heading", { name: "Overview" }).waitFor()
    assert.notInclude(page.url(), "opl_")
    assert.notInclude(await page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage })"), "op")
    assert.strictEqual(await page.evaluate("document.cookie"), "")
    await page.getByRole("button", { name: "Sign out" }).click()
    await page.getByText("npm run admin -- console").waitFor()
    await page.goto(`${server.url}/console#${token}`)
    await page.getByText("This link was used already").waitFor()
    await watched.close()
  })

  it("every page works: live figures, agents and why one gets nothing, groups, reports, webhooks, limits, audit, a node", async () => {
    const [ada, bob] = [await newAgent(server, "ada", { display_name: EVIL }), await newAgent(server, "bob")]
    await ada.http.post("/v1/messages", { to: bob.handle, client_msg_id: "1", content: { text: "never shown here" } })
    await ada.http.post("/v1/groups", { name: EVIL, description: EVIL, member_handles: [bob.handle] })
    const operator = await Operating.program(server)
    const receiver = await Receiver.start()
    receiver.status = 500
    // A URL may have no blank.
    const hook = await ada.http.post("/v1/webhooks", {
      url: receiver.url(`/${EVIL.replaceAll(" ", "+")}`),
      events: ["message.new"]
    })
    assert.strictEqual(hook.status, 201, `${hook}`)
    const sent = await bob.http.post("/v1/messages", {
      to: ada.handle,
      client_msg_id: "2",
      content: { text: "never shown here either" }
    })
    assert.strictEqual(sent.status, 201, `${sent}`)
    await bob.http.post(`/v1/contacts/${ada.handle}/report`, { reason: EVIL })
    await adminHere(server.place, "console", "token", EVIL)
    const watched = await Watched.open(browser, server.url, { viewport: { width: 1440, height: 900 } })
    const { page } = watched
    const go = (name: string) => page.getByRole("navigation", { name: "Console" }).getByRole("link", { name }).click()
    await page.goto(`${server.url}/console#${await newLink(server)}`)
    await page.getByRole("region", { name: "Nodes" }).getByText("ready").waitFor()
    await page.getByRole("img", { name: /^Sends\/s: now \d/ }).waitFor()
    assert.strictEqual(await page.getByRole("alert").count(), 0)
    await watched.accessible()

    await page.getByRole("img", { name: /^Server errors\/s: now 0,/ }).waitFor()
    await page.getByRole("img", { name: /^Half of the sends take, ms: .* at most \d*[1-9]/ }).waitFor()
    await page.getByRole("button", { name: "Day" }).click()
    await page.getByText("the server adds a value every five minutes").waitFor()
    await watched.accessible()
    await page.getByRole("region", { name: "Nodes" }).getByRole("link").click()
    await page.getByRole("region", { name: "Warnings and errors" }).getByText("RUNNER_SECRT").waitFor()
    await watched.accessible()

    await go("Settings")
    const settings = page.getByRole("region", { name: "Settings" })
    await settings.getByRole("row").filter({ hasText: "environment" }).first().waitFor()
    assert.strictEqual(await settings.getByText("MAIL_FROM").count(), 0)
    await page.getByLabel("Name contains").fill("mail_from")
    await page.getByRole("button", { name: "Find" }).click()
    await page.locator("main select").selectOption("all")
    await settings.getByRole("row").filter({ hasText: "MAIL_FROM" }).getByText("default").waitFor()
    await watched.accessible()

    await go("Agents")
    await page.getByText("Create an agent").click()
    const handle = `made-${Date.now()}`
    await page.getByLabel("Handle", { exact: true }).fill("a")
    await page.getByRole("button", { name: "Create" }).click()
    await page.getByRole("alert").getByText("a cannot be a handle").waitFor()
    await page.getByLabel("Handle", { exact: true }).fill(handle)
    await watched.accessible()
    await page.getByRole("button", { name: "Create" }).click()
    await page.getByText(`@${handle} is ready to use.`).waitFor()
    const key = await page.getByLabel("The agent's key", { exact: true }).first().textContent()
    const me = await fetch(`${server.url}/v1/agents/me`, { headers: { authorization: `Bearer ${key}` } })
    assert.deepInclude(await me.json(), { handle })
    await page.getByLabel("Handle begins with").fill("bob-")
    await page.getByRole("button", { name: "Find" }).click()
    await page.getByRole("link", { name: `@${bob.handle}` }).click()
    await page.getByRole("button", { name: "Why does it get nothing?" }).click()
    await page.getByText("stops here").first().waitFor()
    await watched.accessible()
    await page.getByLabel("Reason, for the audit log").fill(EVIL)
    await page.getByRole("button", { name: "Suspend" }).click()
    await page.getByRole("group").getByRole("button", { name: "Suspend" }).click()
    await page.getByText("is suspended.").first().waitFor()
    assert.strictEqual((await bob.http.get("/v1/contacts")).status, 403)
    await page.getByRole("button", { name: "Restore" }).click()
    await page.getByText("is restored").waitFor()
    assert.strictEqual((await bob.http.get("/v1/contacts")).status, 200)
    const socket = await Socket.open(server, { "user-agent": EVIL, "authorization": `Bearer ${bob.key}` })
    await eventually("the socket", async () => {
      await go("Agents")
      await go("Backups")
      await page.getByText("The server makes no backups on its own.").waitFor()
      await watched.accessible()

      await go("Audit")
      await page.goto(`${server.url}/console#/agents/${bob.handle}`)
      await page.getByRole("region", { name: "Sockets" }).or(page.getByText("It has no socket.")).waitFor()
      return (await page.getByRole("region", { name: "Sockets" }).getByText(EVIL).count()) === 1 || undefined
    })
    await page.getByRole("region", { name: "Log" }).getByText(EVIL).first().waitFor()
    await watched.accessible()
    await socket.close()

    await go("Groups")
    await page.getByRole("link", { name: EVIL }).first().click()
    await page.getByRole("region", { name: "Members" }).waitFor()
    await page.getByRole("heading", { name: EVIL }).waitFor()
    await watched.accessible()

    await go("Reports")
    await page.getByText(EVIL).first().waitFor()
    await watched.accessible()
    await page.getByRole("button", { name: "Dismiss" }).first().click()
    await page.getByText("the report no longer counts").waitFor()

    await go("Webhooks")
    await page.getByRole("row").filter({ hasText: `@${ada.handle}` }).getByText("script").waitFor()
    await watched.accessible()
    await page.getByRole("button", { name: "Retry all" }).click()
    receiver.status = 200
    await page.getByRole("group").getByRole("button", { name: "Retry all" }).click()
    await page.getByText("1 delivery is tried again.").waitFor()
    await page.getByText("No dead deliveries:").waitFor()
    receiver.stop()

    await go("Connections")
    await page.getByText("0 live connections of all agents.").waitFor()
    await page.getByLabel("Host", { exact: true }).fill("Evil.example")
    await page.getByLabel("Reason, for the audit log").fill(EVIL)
    await page.getByRole("button", { name: "Refuse" }).click()
    await page.getByRole("row").filter({ hasText: "evil.example" }).getByText(EVIL).waitFor()
    await watched.accessible()
    await page.getByRole("button", { name: "Allow" }).click()
    await page.getByText("No client and no host is refused.").waitFor()

    await go("Limits")
    await page.getByRole("row").filter({ hasText: "LIMITS_" }).first().waitFor()
    await watched.accessible()
    await picture(page, "console-limits")
    const limit = page.getByRole("row").filter({ hasText: "LIMITS_CARDS_PER_MINUTE" })
    const inForce = async () =>
      (await operator.ok<{ limits: ReadonlyArray<{ name: string; value: number; changes: ReadonlyArray<unknown> }> }>(
        "GET",
        "/limits"
      ))
        .limits.find(({ name }) => name === "LIMITS_CARDS_PER_MINUTE")
    const set = limit.getByRole("button", { name: "Set", exact: true })
    // The value in force is nothing to set.
    assert.isTrue(await set.isDisabled())
    await limit.getByLabel("New value of LIMITS_CARDS_PER_MINUTE").press("Enter")
    await limit.getByLabel("New value of LIMITS_CARDS_PER_MINUTE").fill("900000")
    await set.click()
    await limit.getByText("Set LIMITS_CARDS_PER_MINUTE to 900000 for all?").waitFor()
    assert.deepInclude(await inForce(), { value: 1_000_000, changes: [] })
    await watched.accessible()
    await limit.getByRole("group").getByRole("button", { name: "Set" }).click()
    await page.getByText("LIMITS_CARDS_PER_MINUTE is 900000 for all.").waitFor()
    assert.deepInclude(await inForce(), { value: 900_000 })
    await limit.getByRole("button", { name: "Take back" }).click()
    await page.getByText("the change is reset").waitFor()

    await go("Audit")
    await page.getByRole("region", { name: "Audit" }).getByText(EVIL).first().waitFor()
    await watched.accessible()

    await go("Sessions")
    await page.getByText("this one").waitFor()
    await page.getByRole("row").filter({ hasText: EVIL }).waitFor()
    await watched.accessible()

    await go("Overview")
    await page.getByRole("region", { name: "Nodes" }).getByRole("link").first().click()
    await page.getByLabel("Log level").selectOption("warn")
    await page.getByText("The node logs at level warn").waitFor()
    await page.getByLabel("Log level").selectOption("debug")
    await watched.accessible()
    assert.notInclude(await page.content(), "never shown here")

    const nina = await newAgent(server, "nina", { display_name: "Nina" })
    const erase = page.getByRole("button", { name: "Erase" })
    await page.goto(`${server.url}/console#/agents/${nina.handle}`)
    await page.getByRole("heading", { name: nina.handle }).waitFor()
    await page.getByLabel("Reason, for the audit log").fill("asked by mail")
    await page.getByLabel("Type its handle").fill(nina.handle)
    assert.isFalse(await erase.isDisabled())
    await page.getByRole("heading").last().scrollIntoViewIfNeeded()
    await picture(page, "console-erase")

    await page.goto(`${server.url}/console#/agents/${bob.handle}`)
    await page.getByRole("heading", { name: bob.handle }).waitFor()
    assert.isTrue(await erase.isDisabled())
    await page.getByLabel("Type its handle").fill(bob.handle.slice(0, -1))
    assert.isTrue(await erase.isDisabled())
    await page.getByLabel("Type its handle").fill(bob.handle)
    await erase.click()
    await page.getByText("is erased.").waitFor()
    await page.getByText("No other agent may ever have it").waitFor()
    assert.strictEqual((await bob.http.get("/v1/agents/me")).status, 401)
    await watched.accessible()
    await watched.close()
  })

  it("a proxy that has authenticated the person opens the page; what was ended stays ended", async () => {
    let person = "max@example.com"
    let inner: Server | undefined
    const proxy = createServer((incoming, response) => {
      if (person === "" || inner === undefined) {
        response.writeHead(403, { "content-type": "text/html" }).end("Sign in at the proxy.")
        return
      }
      const { headers, method = "GET", url = "/" } = incoming
      const named = { ...headers, "x-parley-person": person, "x-parley-proxy-secret": "a-secret-of-this-test" }
      const forwarded = request(new URL(url, inner.url), { method, headers: named }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(response)
      })
      response.on("close", () => forwarded.destroy())
      incoming.pipe(forwarded.on("error", () => response.destroy()))
    })
    await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve))
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
    inner = await startServer({
      env: {
        PORT: String(await freePort()),
        PUBLIC_URL: url,
        CONSOLE_PROXY_ADDRESSES: "127.0.0.1",
        CONSOLE_PROXY_PEOPLE: "max@example.com=max:moderator",
        CONSOLE_PROXY_SECRET: "a-secret-of-this-test"
      }
    })
    const watched = await Watched.open(browser, url)
    watched.lenient = true
    const { page } = watched
    try {
      await page.goto(`${url}/console`)
      await page.getByRole("heading", { name: "Overview" }).waitFor()
      await page.getByText("max (moderator)").waitFor()
      // What a moderator may not do is not offered.
      const navigation = page.getByRole("navigation", { name: "Console" })
      assert.strictEqual(await navigation.getByRole("link", { name: "Settings" }).count(), 0)
      await navigation.getByRole("link", { name: "Invitations" }).click()
      await page.getByRole("button", { name: "Invite" }).waitFor()
      await navigation.getByRole("link", { name: "Agents" }).click()
      await page.getByRole("region", { name: "Agents" }).or(page.getByText("No agent matches the filters.")).waitFor()
      assert.strictEqual(await page.getByText("Create an agent").count(), 0)

      await page.getByRole("button", { name: "Sign out" }).click()
      await page.getByRole("button", { name: "Sign in again" }).click()
      await page.getByText("max (moderator)").waitFor()
      const operator = await Operating.program(inner)
      const { sessions } = await operator.ok<
        { readonly sessions: ReadonlyArray<{ readonly id: string; readonly kind: string }> }
      >("GET", "/sessions")
      for (const { id, kind } of sessions) if (kind === "session") await operator.ok("DELETE", `/sessions/${id}`)
      await page.getByText("The session is over.").waitFor()
      await page.getByRole("button", { name: "Sign in again" }).click()
      await page.getByText("max (moderator)").waitFor()

      person = ""
      // Any of the page's calls finds out. It may be one that comes before this click.
      void navigation.getByRole("link", { name: "Groups" }).click().catch(() => undefined)
      await page.getByText("A proxy in front of the server does not let you through.").waitFor()
    } finally {
      await watched.close()
      proxy.closeAllConnections()
      proxy.close()
      await inner.stop()
    }
  })

  it("165. a page of another origin can change nothing with an operator's cookie, and see nothing; no secret is logged or kept", async () => {
    const agent = await newAgent(server, "target")
    const context = await browser.newContext()
    const page = await context.newPage()
    const token = await newLink(server)
    await page.goto(`${server.url}/console#${token}`)
    await page.getByRole("heading", { name: "Overview" }).waitFor()
    const cookies = await context.cookies()
    assert.deepStrictEqual(cookies.map(({ httpOnly, name, sameSite }) => ({ httpOnly, name, sameSite })), [
      { httpOnly: true, name: "parley_console", sameSite: "Strict" }
    ])
    // The same site, for a browser, as it differs in its port alone: the cookie goes along, the Origin gives it away.
    const action = `${server.url}/console/api/agents/${agent.handle}/suspend`
    const evil = createServer((_, response) =>
      response.writeHead(200, { "content-type": "text/html" })
        .end(`<form method="post" enctype="text/plain" action="${action}"><input name='{"reason":"' value='"}'></form>`)
    )
    await new Promise<void>((resolve) => evil.listen(0, "127.0.0.1", resolve))
    const thief = await context.newPage()
    await thief.goto(`http://127.0.0.1:${(evil.address() as AddressInfo).port}/`)
    const sent = thief.waitForRequest((request) => request.url() === action && request.method() === "POST")
    await thief.evaluate("document.forms[0].submit()")
    const answer = await (await sent).response()
    assert.strictEqual(answer?.status(), 403)
    assert.include(
      (await (await sent).allHeaders())["cookie"] ?? "",
      "parley_console=",
      "the browser brings the cookie"
    )
    await thief.waitForURL(action)
    await thief.goto(`http://127.0.0.1:${(evil.address() as AddressInfo).port}/`)
    const quietly = await thief.evaluate(
      `fetch("${action}", { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }).then((answer) => answer.type)`
    )
    assert.strictEqual(quietly, "opaque")
    const read = await thief.evaluate(
      `fetch("${server.url}/console/api/overview", { credentials: "include" }).then(() => "read", () => "refused")`
    )
    assert.strictEqual(read, "refused")
    const framed = await thief.evaluate(`new Promise((resolve) => {
      const frame = document.createElement("iframe")
      frame.onload = () => { try { resolve(frame.contentDocument === null ? "blocked" : "open") } catch { resolve("blocked") } }
      frame.src = "${server.url}/console"
      document.body.append(frame)
    })`)
    assert.strictEqual(framed, "blocked")
    for (const frame of thief.frames().slice(1)) assert.strictEqual(await frame.locator("nav").count(), 0)
    assert.strictEqual((await agent.http.get("/v1/contacts")).status, 200)
    evil.close()
    for (const secret of [token, cookies[0]!.value]) {
      assert.notInclude(server.log, secret)
      assert.notInclude(server.stdout, secret)
    }
    assert.strictEqual(await page.evaluate("JSON.stringify({ ...localStorage, ...sessionStorage })"), "{}")
    // Ended from elsewhere, it is over in the page too.
    const other = await Operating.program(server)
    const { sessions } = await other.ok<{ sessions: ReadonlyArray<{ id: string; kind: string }> }>("GET", "/sessions")
    await other.ok("DELETE", `/sessions/${sessions.find(({ kind }) => kind === "session")?.id}`)
    await page.getByText("The session is over.").waitFor()
    assert.strictEqual(await page.getByRole("navigation", { name: "Console" }).count(), 0)
    await context.close()
  })

  it("every text from the API and from the page's URL is shown as text on every page", async () => {
    const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
    await ada.http.post("/v1/messages", { to: bob.handle, client_msg_id: "1", content: { text: "hello" } })
    const { group } = (await ada.http.post("/v1/groups", { name: "Plans", member_handles: [bob.handle] })).body as {
      group: { id: string }
    }
    await bob.http.post(`/v1/contacts/${ada.handle}/report`, { reason: "words" })
    await (await Operating.program(server)).ok("POST", "/connections/refuse", {
      kind: "client",
      value: "https://host.example/c"
    })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await page.goto(`${server.url}/console#${await newLink(server)}`)
    await page.getByRole("heading", { name: "Overview" }).waitFor()
    watched.lenient = true
    await page.route("**/console/api/**", async (route) => {
      if (route.request().url().endsWith("/stream")) return route.abort()
      const response = await route.fetch()
      // A request of a page that was left meanwhile is cancelled, and takes no answer.
      await route.fulfill({ response, json: spoilt(await response.json()) }).catch(() => undefined)
    })
    await page.reload()
    const clean = async (what: string) => {
      await page.getByText(EVIL).first().waitFor()
      assert.strictEqual(await page.locator("main img, main script, main iframe").count(), 0, what)
      await watched.assertGood()
    }
    for (const name of PLACES) {
      await page.getByRole("navigation", { name: "Console" }).getByRole("link", { name }).click()
      await clean(name)
    }
    for (const path of [`agents/${ada.handle}`, `groups/${group.id}`, `nodes/${new URL(server.url).host}`]) {
      await page.goto(`${server.url}/console#/${path}`)
      await clean(path)
      const ask = page.getByRole("button", { name: "Why does it get nothing?" })
      if (await ask.count() > 0) {
        await ask.click()
        await page.locator("ol.chain").waitFor()
        await clean("why")
      }
    }
    await page.unroute("**/console/api/**")
    for (const path of ["agents", "groups", "nodes", "nothing"]) {
      await page.goto(`${server.url}/console#/${path}/${encodeURIComponent(EVIL)}`)
      await page.getByRole("navigation", { name: "Console" }).waitFor()
      await eventually(
        `what ${path} says`,
        async () => await page.getByRole("alert").or(page.getByText("There is no such page.")).count() > 0 || undefined
      )
      assert.strictEqual(await page.locator("main img, main script, main iframe").count(), 0, path)
    }
    await watched.close()
  })

  it("fits 360 px and dark, and names stand beside their values", async () => {
    const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
    await ada.http.post("/v1/messages", { to: bob.handle, client_msg_id: "1", content: { text: "hello" } })
    const { group } = (await ada.http.post("/v1/groups", { name: "Plans" })).body as { group: { id: string } }
    const socket = await Socket.hello(server, ada.key)
    const watched = await Watched.open(browser, server.url, {
      viewport: { width: 360, height: 740 },
      colorScheme: "dark"
    })
    const { page } = watched
    await page.goto(`${server.url}/console#${await newLink(server)}`)
    await page.getByRole("region", { name: "Nodes" }).getByText("ready").waitFor()
    const sticksOut = () => page.evaluate<number>("document.documentElement.scrollWidth")
    assert.isAtMost(await sticksOut(), 360)
    await page.getByText("1 node · 1 socket ·").waitFor()
    await watched.accessible()
    await socket.close()
    await page.goto(`${server.url}/console#/groups/${group.id}`)
    for (const name of ["Id", "Created by", "Since", "Messages", "Last message", "Invited"]) {
      const [term, value] = await Promise.all(
        ["dt", "dd"].map((tag) =>
          page.locator("dl.wide > div").filter({ has: page.getByText(name, { exact: true }) }).locator(tag)
            .boundingBox()
        )
      )
      assert.strictEqual(value?.x, term?.x, name)
      assert.closeTo(value?.y ?? 0, (term?.y ?? 0) + (term?.height ?? 0), 2, name)
    }
    assert.isAtMost(await sticksOut(), 360)
    await watched.accessible()
    // An address that nobody can decode.
    await page.goto(`${server.url}/console#/agents/%`)
    await page.getByRole("heading", { name: "Agents", level: 2 }).waitFor()
    await watched.close()
  })

  it("a long reason takes a few lines, until all of it is asked for", async () => {
    const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
    await ada.http.post("/v1/messages", { to: bob.handle, client_msg_id: "1", content: { text: "hello" } })
    await bob.http.post(`/v1/contacts/${ada.handle}/report`, { reason: `${"It repeats itself. ".repeat(50)}The end.` })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await page.goto(`${server.url}/console#${await newLink(server)}`)
    await page.getByRole("navigation", { name: "Console" }).getByRole("link", { name: "Reports" }).click()
    const row = page.getByRole("row").filter({ hasText: "It repeats itself." })
    const show = row.getByRole("button", { name: "Show all" })
    await show.waitFor()
    assert.isBelow((await row.boundingBox())?.height ?? 1_000, 140)
    assert.strictEqual(await row.getByText("The end.").count(), 0)
    await watched.accessible()
    await show.press("Enter")
    await row.getByText("The end.").waitFor()
    await row.getByRole("button", { name: "Show less" }).press("Enter")
    await row.getByText("The end.").waitFor({ state: "detached" })
    await watched.close()
  })
})
