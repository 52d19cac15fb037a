import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { request } from "node:http"
import { freePort } from "../../runners/local/FreePort.ts"
import { parleyHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { Operating } from "../support/Operating.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"

const ORIGIN = "https://parley.example"
const PEOPLE = "nina@example.com=nina:operator, Max@Example.com=max:moderator"
const SECRET = "a-secret-of-the-proxy"
const HEADER = "x-parley-person"

const NAMED = { [HEADER]: "max@example.com", "x-parley-proxy-secret": SECRET }
const GOOD = { ...NAMED, origin: ORIGIN }

const env = {
  PUBLIC_URL: ORIGIN,
  CONSOLE_PROXY_ADDRESSES: "127.0.0.0/8",
  CONSOLE_PROXY_PEOPLE: PEOPLE,
  CONSOLE_PROXY_SECRET: SECRET
}

/** A server that got no processor time for seconds refuses changes for a moment, so they are repeated. */
const repeated = async (request: () => Promise<Response>): Promise<Response> => {
  for (;;) {
    const response = await request()
    if (response.status !== 503) return response
    await response.arrayBuffer()
  }
}
const signIn = (server: Server, headers: Readonly<Record<string, string>>): Promise<Response> =>
  repeated(() => fetch(`${server.url}/console/api/session/proxy`, { method: "POST", headers }))

/** The status of a request with this header twice. */
const twice = (server: Server, name: string, values: ReadonlyArray<string>): Promise<number | undefined> =>
  new Promise((resolve, reject) => {
    const { [HEADER]: _, ...others } = GOOD
    request(`${server.url}/console/api/session/proxy`, {
      method: "POST",
      headers: { ...others, [name]: values }
    }, (answer) => {
      answer.resume()
      resolve(answer.statusCode)
    }).on("error", reject).end()
  })

describe("sign-in by a proxy (wire.md O.1)", () => {
  let server: Server
  beforeAll(async () => {
    server = await startServer({ env: { ...env, PORT: String(await freePort()) } })
  })
  afterAll(() => server?.stop())

  /** The cookie of a new session of max. */
  const signedIn = async (): Promise<string> => {
    const response = await signIn(server, GOOD)
    assert.strictEqual(response.status, 200)
    return response.headers.getSetCookie()[0]!.split(";")[0]!
  }
  const ask = (path: string, headers: Readonly<Record<string, string>>, method = "GET", body?: unknown) =>
    repeated(() =>
      fetch(`${server.url}/console/api${path}`, {
        method,
        headers: { ...headers, ...body === undefined ? {} : { "content-type": "application/json" } },
        ...body === undefined ? {} : { body: JSON.stringify(body) }
      })
    )

  it("a person whom the proxy names gets a session with the name and the role of the setting", async () => {
    const response = await signIn(server, GOOD)
    assert.strictEqual(response.status, 200)
    assert.strictEqual(response.headers.get("cache-control"), "no-store")
    const session = await response.json() as Readonly<Record<string, string>>
    assert.deepInclude(session, { kind: "session", name: "proxy", operator: "max (moderator)", role: "moderator" })
    assert.strictEqual(Date.parse(session["expires_at"]!) - Date.parse(session["created_at"]!), 12 * 3_600_000)
    const [cookie = ""] = response.headers.getSetCookie()
    assert.match(
      cookie,
      /^parley_console=ops_[\w-]{43}; Path=\/console; Max-Age=43200; HttpOnly; SameSite=Strict; Secure$/
    )
    const operator = await Operating.program(server)
    const { entries } = await operator.ok<{
      readonly entries: ReadonlyArray<{ readonly action: string; readonly operator: string; readonly detail: string }>
    }>("GET", "/audit?operator=max&looks=false")
    assert.deepInclude(entries[0], {
      action: "open console session",
      operator: "max (moderator)",
      detail: "signed in by the proxy"
    })
  })

  it("the session changes what the role may, and counts only while the proxy names this person", async () => {
    const cookie = await signedIn()
    const agent = await newAgent(server, "watched")
    const path = `/agents/${agent.handle}`
    const headers = { ...GOOD, cookie }
    assert.strictEqual((await ask(`${path}/suspend`, headers, "POST", {})).status, 200)
    assert.strictEqual((await ask(`${path}/restore`, { ...headers, origin: server.url }, "POST", {})).status, 403)
    assert.strictEqual((await ask(`${path}/erase`, headers, "POST", { confirm: agent.handle })).status, 403)
    assert.strictEqual((await ask("/overview", { ...NAMED, cookie })).status, 200)
    for (
      const other of [
        {},
        { [HEADER]: "max@example.com" },
        { ...NAMED, [HEADER]: "nina@example.com" },
        { ...NAMED, [HEADER]: "eve@example.com" },
        { ...NAMED, "x-parley-proxy-secret": "another-secret-here-x" }
      ]
    )
      assert.strictEqual((await ask("/overview", { ...other, cookie })).status, 404, JSON.stringify(other))
    // A link's session needs no proxy.
    const { entries } = await (await Operating.signIn(server)).ok<{ readonly entries: ReadonlyArray<unknown> }>(
      "GET",
      "/audit?limit=1"
    )
    assert.lengthOf(entries, 1)
  })

  it("whoever is not named, or cannot prove it, gets the same answer as for a path that does not exist", async () => {
    const nothing = await fetch(`${server.url}/console/api/nothing`, { method: "POST" })
    const { [HEADER]: _name, ...nobody } = GOOD
    const { "x-parley-proxy-secret": _secret, ...unproven } = GOOD
    const { origin: _origin, ...programs } = GOOD
    const text = await nothing.text()
    for (
      const headers of [
        nobody,
        unproven,
        programs,
        { ...GOOD, "x-parley-proxy-secret": "another-secret-here-x" },
        { ...GOOD, origin: "https://evil.example" },
        { ...GOOD, origin: "null" },
        { ...GOOD, origin: server.url },
        { ...GOOD, [HEADER]: "eve@example.com" },
        { ...GOOD, [HEADER]: "" },
        { ...nobody, "x-forwarded-email": "max@example.com" }
      ]
    ) {
      const response = await signIn(server, headers)
      assert.deepStrictEqual([response.status, await response.text()], [404, text], JSON.stringify(headers))
      assert.isEmpty(response.headers.getSetCookie())
    }
    for (
      const why of [
        "X-Parley-Proxy-Secret is not CONSOLE_PROXY_SECRET",
        "CONSOLE_PROXY_PEOPLE does not contain the name in X-Parley-Person",
        "its Origin is not that of PUBLIC_URL"
      ]
    )
      await eventually(why, () => server.stderr.includes(why) || undefined)
    assert.notInclude(server.stderr, "another-secret-here-x")
    assert.strictEqual(await twice(server, HEADER, ["max@example.com", "nina@example.com"]), 404)
    assert.notStrictEqual(await twice(server, HEADER, ["max@example.com"]), 404)
  })

  it("a person cannot open sessions without end", async () => {
    const nina = { ...GOOD, [HEADER]: "NINA@example.com" }
    const statuses = await Promise.all(Array.from({ length: 21 }, async () => (await signIn(server, nina)).status))
    assert.deepStrictEqual(statuses.sort(), [...Array.from({ length: 20 }, () => 200), 429])
  })

  it("from another address than the proxy's the headers say nothing, whatever X-Forwarded-For says", async () => {
    const port = String(await freePort())
    const other = { CONSOLE_PROXY_ADDRESSES: "10.9.9.9", TRUST_PROXY: "1" }
    const elsewhere = await startServer({ env: { ...env, PORT: port, ...other } })
    try {
      assert.strictEqual((await signIn(elsewhere, { ...GOOD, "x-forwarded-for": "10.9.9.9" })).status, 404)
      const why = "CONSOLE_PROXY_ADDRESSES does not contain 127.0.0.1"
      await eventually(why, () => elsewhere.stderr.includes(why) || undefined)
    } finally {
      await elsewhere.stop()
    }
  })

  it("settings that would let anyone in, or that mean something else, stop the start", async () => {
    const check = (changes: Readonly<Record<string, string>>) =>
      parleyHere({ PARLEY_CONFIG: "/dev/null", ...env, ...changes }, ["config", "check"])
    assert.strictEqual((await check({})).code, 0)
    const together = "otherwise nobody can sign in"
    const people = "expected two names and a role"
    for (
      const [changes, problem] of [
        [{ CONSOLE_PROXY_ADDRESSES: "none" }, together],
        [{ CONSOLE_PROXY_SECRET: "" }, together],
        [{ PUBLIC_URL: "" }, together],
        [{ CONSOLE_PROXY_SECRET: "short" }, "a secret of your own"],
        [{ CONSOLE_PROXY_SECRET: "change-this-secret" }, "a secret of your own"],
        [{ CONSOLE_PROXY_SECERT: SECRET }, "no setting has this name"],
        [{ CONSOLE_PROXY_PEOPLE: "nina@example.com=operator" }, people],
        [{ CONSOLE_PROXY_PEOPLE: "nina@example.com=server:operator" }, people],
        [{ CONSOLE_PROXY_PEOPLE: "nina@example.com=nina:admin" }, people],
        [{ CONSOLE_PROXY_PEOPLE: "josé@example.com=jose:operator" }, people],
        [{ CONSOLE_PROXY_PEOPLE: "a@example.com=ann:viewer,A@example.com=bob:operator" }, "each person once"],
        [{ CONSOLE_PROXY_PEOPLE: "a@example.com=ann:viewer,b@example.com=Ann:operator" }, "each person once"]
      ] as const
    ) {
      const { code, stderr, stdout } = await check(changes)
      assert.strictEqual(code, 1, JSON.stringify(changes))
      assert.include(stdout + stderr, problem, JSON.stringify(changes))
    }
    // Capitals do not matter, and a name may have a colon.
    const { code, stderr } = await check({
      CONSOLE_PROXY_PEOPLE: "accounts.google.com:Nina@example.com=nina:Operator"
    })
    assert.strictEqual(code, 0, stderr)
  })
})
