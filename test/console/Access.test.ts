import { ownOrigin } from "#infrastructure/http/Origins"
import { Config } from "#infrastructure/platform/Config"
import { cookieOf as setCookie } from "#interfaces/console/AccessHttp"
import { CommandsApi } from "#interfaces/console/CommandsApi"
import { ConsoleApi } from "#interfaces/console/ConsoleApi"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { adminHere } from "../support/Admin.ts"
import { bare } from "../support/Http.ts"
import { COOKIE, cookieOf, newLink, newToken, Operating, redeem, request } from "../support/Operating.ts"
import { exchange } from "../support/RawConnection.ts"
import { newAgent, type Server, sharedServer } from "../support/Server.ts"

const calls = Object.entries(OpenApi.fromApi(ConsoleApi).paths).flatMap(([path, item]) =>
  Object.keys(item).map((method) => ({
    method: method.toUpperCase(),
    path: path.replace("/console/api", "").replaceAll(/\{\w+\}/g, "nobody")
  }))
)

it("behind https the cookie is Secure, and changes come from there", () => {
  assert.match(setCookie("https://parley.example", "ops_x", 43_200), /; HttpOnly; SameSite=Strict; Secure$/)
  const config = Effect.runSync(Effect.provide(Config, Config.layerTest({ PUBLIC_URL: "https://parley.example/base" })))
  assert.strictEqual(ownOrigin(config, "parley.example"), "https://parley.example")
  assert.strictEqual(ownOrigin({ ...config, PUBLIC_URL: undefined }, "10.0.0.5:3000"), "http://10.0.0.5:3000")
})

describe("the operators' API", () => {
  let server: Server
  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  it("a link signs in once; a stolen, used or invented one gets the answer of an unknown path", async () => {
    const token = await newLink(server)
    // Two at once: one of them is a thief.
    const answers = await Promise.all([redeem(server, token), redeem(server, token)])
    assert.sameMembers(answers.map(({ status }) => status), [200, 404])
    const mine = answers.find(({ status }) => status === 200)!
    const cookie = mine.header("set-cookie") ?? ""
    for (const attribute of ["HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age=43200"])
      assert.include(cookie, attribute)
    assert.notInclude(cookie, "Secure")
    assert.notInclude(mine.text, cookieOf(mine), "the session's token is in the cookie alone")
    const session = Operating.withSession(server, cookieOf(mine))
    const own = await session.ok<{ kind: string; operator: string; id: string }>("GET", "/session")
    assert.strictEqual(own.kind, "session")
    for (const used of [token, `opl_${"A".repeat(43)}`, cookieOf(mine)]) {
      const refused = await redeem(server, used)
      assert.strictEqual(refused.text, (await request(server, "GET", "/nothing")).text)
      assert.isNull(refused.header("set-cookie"))
    }
    // A link's token is no session, and a session's no program.
    assert.strictEqual((await Operating.withSession(server, await newLink(server)).ask("GET", "/session")).status, 404)
    assert.strictEqual(
      (await request(server, "GET", "/session", { authorization: `Bearer ${cookieOf(mine)}` })).status,
      404
    )
  })

  it("the calls of the command line are nobody's over the network, also if the caller names an operator", async () => {
    const program = await Operating.program(server)
    const nothing = await program.ask("GET", "/there-is-no-such-path")
    const named = { ...program.headers, "x-parley-operator": "root" }
    const endpoints = Object.values(CommandsApi.endpoints)
    assert.isAbove(endpoints.length, 5)
    for (const { method, path } of endpoints) {
      const asked = path.replace("/console/api", "").replaceAll(/:\w+/g, "nobody")
      for (const headers of [program.headers, named])
        assert.strictEqual((await request(server, method, asked, headers, {})).text, nothing.text, path)
    }
    assert.strictEqual((await request(server, "GET", "/session", { "x-parley-operator": "root" })).text, nothing.text)
  })

  it("outsiders get one answer, whatever they ask, and how", async () => {
    const agent = await newAgent(server, "outsider")
    const nothing = await request(server, "GET", "/there-is-no-such-path")
    nothing.refused(404, "NOT_FOUND")
    const outsiders: ReadonlyArray<Readonly<Record<string, string>>> = [
      {},
      { authorization: `Bearer ${agent.key}` },
      { authorization: `Bearer opt_${"A".repeat(43)}` },
      { cookie: `${COOKIE}=ops_${"A".repeat(43)}`, origin: server.url },
      { cookie: `${COOKIE}=%00` }
    ]
    assert.isAbove(calls.length, 20)
    for (const [i, { method, path }] of calls.entries()) {
      for (const asked of [method, "PATCH"]) {
        const answer = await request(server, asked, path, outsiders[i % outsiders.length], {})
        assert.deepStrictEqual([answer.status, answer.text], [404, nothing.text], `${answer}`)
        assert.strictEqual(answer.header("allow"), nothing.header("allow"))
        assert.strictEqual(answer.header("cache-control"), nothing.header("cache-control"))
        if (!(method === "POST" && path === "/session" && asked === "POST")) {
          assert.strictEqual(answer.header("ratelimit-limit"), nothing.header("ratelimit-limit"), `${answer}`)
        }
      }
      const options = await bare(server.url, "OPTIONS", `/console/api${path}`)
      assert.deepStrictEqual([options.status, options.text, options.header("allow")], [
        404,
        nothing.text,
        nothing.header("allow")
      ], `${options}`)
    }
    const program = await newToken(server)
    assert.strictEqual((await request(server, "GET", `/session?token=${program}&api_key=${program}`)).status, 404)
  })

  it("outsiders get the same answer where other paths refuse a request early", async () => {
    const ask = async (line: string, headers: ReadonlyArray<string> = [], body = "") => {
      const received = await exchange(
        server,
        `${[`${line} HTTP/1.1`, ...headers, "connection: close"].join("\r\n")}\r\n\r\n${body}`
      )
      const [head = "", text = ""] = received.split("\r\n\r\n")
      const [status, ...fields] = head.split("\r\n")
      return {
        status,
        fields: fields.map((field) => field.toLowerCase().replace(/^(date|x-request-id|ratelimit-\w+):.*/, "$1"))
          .toSorted(),
        text
      }
    }
    const host = ["host: parley"]
    const nothing = await ask("GET /console/api/none", host)
    assert.match(nothing.status ?? "", /404/)
    assert.include(nothing.text, "NOT_FOUND")
    const answers = {
      "the path itself": await ask("GET /console/api", host),
      "a slash at its end": await ask("GET /console/api/", host),
      "repeated slashes": await ask("GET //console///api//session", host),
      "OPTIONS": await ask("OPTIONS /console/api/session", host),
      "OPTIONS of the path itself": await ask("OPTIONS /console/api", host),
      "OPTIONS of a path with capitals and escapes": await ask("OPTIONS /c%6fnsole/API/session", host),
      "OPTIONS with a host in the path": await ask("OPTIONS http://parley/console/api/session", host),
      "a method that nobody has": await ask("PROPFIND /console/api/session", host),
      "an escape that is none": await ask("GET /console/api/agents/%zz", host),
      "an escape that is not UTF-8": await ask("GET /console/api/agents/%ff", host),
      "an escaped NUL": await ask("GET /console/api/agents/%00", host),
      "an escaped NUL in the query": await ask("GET /console/api/agents?handle=%00", host),
      "no Host": await ask("GET /console/api/session"),
      "a body that is too large": await ask("POST /console/api/session", [...host, "content-length: 2000000"]),
      "a body that is too large, after 100 Continue": await ask("POST /console/api/session", [
        ...host,
        "expect: 100-continue",
        "content-length: 2000000"
      ]),
      // One byte more than a body may have, and no end.
      "a chunked body that is too large": await ask("POST /console/api/session", [
        ...host,
        "transfer-encoding: chunked"
      ], `100001\r\n${"x".repeat(0x100001)}`),
      "a body that is not UTF-8": await ask(
        "POST /console/api/agents/nobody/suspend",
        [...host, "content-length: 1"],
        "\xff"
      ),
      "a body with a number that would be changed": await ask("POST /console/api/session", [
        ...host,
        "content-length: 16"
      ], `{"token": 1e999}`),
      "a compressed body": await ask("POST /console/api/session", [
        ...host,
        "content-encoding: gzip",
        "content-length: 2"
      ], "{}"),
      "an unknown expectation": await ask("GET /console/api/session", [...host, "expect: a miracle"])
    }
    for (const [what, answer] of Object.entries(answers)) assert.deepStrictEqual(answer, nothing, what)
    const head = await ask("HEAD /console/api/session", host)
    assert.deepStrictEqual(head, { ...nothing, text: "" })
    const upgrade = await ask("GET /console/api/stream", [...host, "connection: upgrade", "upgrade: websocket"])
    assert.deepStrictEqual([upgrade.status, upgrade.text], [nothing.status, nothing.text])
  })

  it("a change with the cookie comes from a page of this server, or is refused and changes nothing", async () => {
    const agent = await newAgent(server, "csrf")
    const { headers } = await Operating.signIn(server)
    const path = `/agents/${agent.handle}/suspend`
    const { origin: _, ...cookieOnly } = headers
    for (
      const origin of [
        "https://evil.example",
        `${server.url}.evil.example`,
        "null",
        server.url.replace("http", "https")
      ]
    ) {
      ;(await request(server, "POST", path, { ...headers, origin }, {})).refused(403, "FORBIDDEN")
    }
    ;(await request(server, "POST", path, cookieOnly, {})).refused(403, "FORBIDDEN")
    assert.strictEqual((await agent.http.get("/v1/conversations")).status, 200)
    // Reading needs none; a program's token is never ambient.
    assert.strictEqual((await request(server, "GET", "/session", cookieOnly)).status, 200)
    const program = await Operating.program(server)
    assert.strictEqual(
      (await request(server, "POST", path, { ...program.headers, origin: "https://evil.example" }, {})).status,
      200
    )
    assert.strictEqual((await agent.http.get("/v1/conversations")).status, 403)
  })

  it("a session ends when it is signed out, by its id, or by the command line", async () => {
    const [first, second, third] = [
      await Operating.signIn(server),
      await Operating.signIn(server),
      await Operating.program(server)
    ]
    const { sessions } = await third.ok<{ sessions: ReadonlyArray<{ id: string; is_own: boolean; kind: string }> }>(
      "GET",
      "/sessions"
    )
    assert.isAtLeast(sessions.length, 3)
    const idOf = async (who: Operating) => (await who.ok<{ id: string }>("GET", "/session")).id
    const [secondId, thirdId] = [await idOf(second), await idOf(third)]
    assert.strictEqual(sessions.find(({ is_own }) => is_own)?.id, thirdId)
    const left = await first.ask("DELETE", "/session")
    assert.strictEqual(left.status, 200)
    assert.include(left.header("set-cookie") ?? "", "Max-Age=0")
    assert.strictEqual((await first.ask("GET", "/session")).status, 404)
    await third.ok("DELETE", `/sessions/${secondId}`)
    assert.strictEqual((await second.ask("GET", "/session")).status, 404)
    assert.strictEqual((await third.ask("DELETE", `/sessions/${secondId}`)).status, 404)
    const ended = await adminHere(server.place, "console", "end", thirdId)
    assert.strictEqual(ended.code, 0, ended.stderr)
    assert.strictEqual((await third.ask("GET", "/session")).status, 404)
  })

  it("every read and every change is audited, with the operator and the agent", async () => {
    const agent = await newAgent(server, "audited")
    const program = await Operating.program(server)
    await program.ok("GET", `/agents/${agent.handle}`)
    await program.ok("GET", `/agents?handle=${agent.handle}`)
    await program.ok("POST", `/agents/${agent.handle}/disconnect`, { reason: "to see" })
    await program.ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 7, agent: agent.handle })
    interface Entry {
      readonly operator: string
      readonly action: string
      readonly agent: string | null
      readonly detail: string | null
    }
    const { entries } = await program.ok<{ entries: ReadonlyArray<Entry> }>("GET", `/audit?agent=${agent.handle}`)
    assert.deepStrictEqual(entries.map(({ action }) => action), [
      "show audit",
      "change limit",
      "disconnect",
      "show agent"
    ])
    assert.isTrue(entries.every((entry) => entry.agent === agent.handle && entry.operator.length > 0))
    assert.strictEqual(entries[2]?.detail, "to see")
    const changes = await program.ok<{ entries: ReadonlyArray<Entry> }>(
      "GET",
      `/audit?agent=${agent.handle}&looks=false`
    )
    assert.deepStrictEqual(changes.entries.map(({ action }) => action), ["change limit", "disconnect"])
    const found = await program.ok<{ entries: ReadonlyArray<Entry> }>("GET", "/audit?limit=200")
    assert.isTrue(
      found.entries.some(({ action, detail }) => action === "show agents" && detail === `?handle=${agent.handle}`)
    )
  })
})
