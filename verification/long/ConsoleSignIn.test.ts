import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import { request } from "node:https"
import { resolve } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Operating } from "../../test/support/Operating.ts"
import { type Server, startServer } from "../../test/support/Server.ts"
import { missingWebProxies, WebProxy } from "../../test/support/WebProxy.ts"

const SNIPPET = resolve(import.meta.dirname, "../../deploy/nginx/console-sign-in.conf")
const SECRET = "a-secret-of-this-test"

/** Answers as oauth2-proxy does with --set-xauthrequest: it knows the person by a cookie. */
const oauth2Proxy = createServer((request, response) => {
  const person = /signed_in=([\w.@-]+)/.exec(request.headers.cookie ?? "")?.[1]
  if (request.url !== "/oauth2/auth") response.writeHead(403).end("the page where one signs in")
  else if (person === undefined) response.writeHead(401).end()
  else response.writeHead(202, { "x-auth-request-email": person }).end()
})

describe.skipIf(missingWebProxies !== "")(`deploy/nginx/console-sign-in.conf${missingWebProxies}`, () => {
  let server: Server
  let proxy: WebProxy
  beforeAll(async () => {
    const [port, own, other] = [await freePort(), await freePort(), await freePort()]
    oauth2Proxy.listen(other, "127.0.0.1")
    await once(oauth2Proxy, "listening")
    server = await startServer({
      env: {
        PORT: String(own),
        PUBLIC_URL: `https://localhost:${port}`,
        TRUST_PROXY: "1",
        CONSOLE_PROXY_ADDRESSES: "127.0.0.1",
        CONSOLE_PROXY_PEOPLE: "max@example.com=max:moderator",
        CONSOLE_PROXY_SECRET: SECRET
      }
    })
    const snippet = readFileSync(SNIPPET, "utf8").replaceAll("127.0.0.1:4180", `127.0.0.1:${other}`)
      .replace("change-this-secret", SECRET)
    proxy = await WebProxy.start("deploy/nginx/parley.conf", port, `127.0.0.1:${own}`, snippet)
    await eventually(
      "the server behind the proxy",
      () => fetch(`${proxy.url}/v1/ready`).then(({ ok }) => ok || undefined, () => undefined)
    ).catch((error: unknown) => assert.fail(`${String(error)}\n${proxy.log}`))
  })
  afterAll(async () => {
    oauth2Proxy.close()
    await proxy?.stop()
    await server?.stop()
  })

  const PATH = "/console/api/session/proxy"
  const MAX = "signed_in=max@example.com"

  /** A request with this very path, with nothing made tidy on the way. */
  const ask = (
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>
  ): Promise<{ readonly status: number | undefined; readonly text: string; readonly cookies: ReadonlyArray<string> }> =>
    new Promise((resolve, reject) => {
      const { hostname, port } = new URL(proxy.url)
      const sent = { origin: proxy.url, ...headers }
      request({ hostname, port, path, method, headers: sent, agent: false }, (answer) => {
        let text = ""
        answer.setEncoding("utf8").on("data", (part: string) => (text += part)).on(
          "end",
          () => resolve({ status: answer.statusCode, text, cookies: answer.headers["set-cookie"] ?? [] })
        )
      }).on("error", reject).end()
    })
  const signedIn = async (): Promise<string> => {
    const { cookies, status, text } = await ask("POST", PATH, {
      "cookie": MAX,
      "x-parley-person": "nina@example.com",
      "x-parley-proxy-secret": "a-forged-secret-here"
    })
    assert.strictEqual(status, 200, `${text} ${proxy.log}`)
    assert.deepInclude(JSON.parse(text), { operator: "max (moderator)", role: "moderator" })
    const cookie = cookies.map((one) => one.split(";")[0]!).find((one) => one.startsWith("parley_console="))
    return cookie ?? assert.fail(String(cookies))
  }

  it("a person who is signed in there is signed in to the console, as no one else whatever the browser says", async () => {
    const cookie = await signedIn()
    assert.strictEqual((await ask("GET", "/console/api/overview", { cookie: `${cookie}; ${MAX}` })).status, 200)
    // Signed out there, or as somebody else, nothing of the console is open any more.
    for (const path of ["/console/api/overview", "/CONSOLE/api/overview", "/%63onsole/api/overview"]) {
      assert.strictEqual((await ask("GET", path, { cookie })).status, 403, path)
      const eve = await ask("GET", path, { cookie: `${cookie}; signed_in=eve@example.com` })
      assert.strictEqual(eve.status, 404, path)
    }
    // Not even a link's session, or a token, goes past the proxy.
    const { headers } = await Operating.program(server)
    assert.strictEqual((await fetch(`${server.url}/console/api/overview`, { headers })).status, 200)
    for (
      const path of [
        "/console/api/overview",
        "/CONSOLE/api/overview",
        "//console/api/overview",
        "/%63onsole/api/overview",
        "/console/api/overview;/../../../v1/health",
        "/v1/../console/api/overview"
      ]
    ) {
      const { status } = await ask("GET", path, headers)
      assert.isTrue([403, 404].includes(status ?? 0), `${path} ${status}`)
    }
  })

  it("nobody else gets a session, by no spelling of the path; agents are not asked", async () => {
    const forged = { "x-parley-person": "max@example.com", "x-parley-proxy-secret": "a-forged-secret-here" }
    const signedOut = await ask("POST", PATH, forged)
    assert.deepStrictEqual([signedOut.status, signedOut.text], [403, "the page where one signs in"])
    assert.strictEqual((await ask("POST", PATH, { cookie: "signed_in=eve@example.com" })).status, 404)
    const paths = ["/CONSOLE/api/session/proxy", "//console/api/session/proxy", "/%63onsole/api/session/proxy"]
    for (const path of [...paths, `/v1/..${PATH}`, `/v1/%2e%2e${PATH}`, "/oauth2/auth"]) {
      const { cookies, status } = await ask("POST", path, forged)
      assert.isTrue([403, 404].includes(status ?? 0), `${path} ${status}`)
      assert.isEmpty(cookies)
    }
    assert.strictEqual((await fetch(`${proxy.url}/v1/health`)).status, 200)
  })
})
