import { toolsOf } from "#interfaces/mcp/tools/Catalogue"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { randomBytes } from "node:crypto"
import { WebSocket } from "ws"
import { initialize, type Json, newest, older, post, rpc } from "../mcp/Mcp.ts"
import { baseOf, form, get, Host, pkce, register, SignInPage, type Tokens } from "../signin/Flow.ts"
import { adminHere } from "../support/Admin.ts"
import { Collector } from "../support/Collector.ts"
import { eventually, within } from "../support/Eventually.ts"
import { Moment } from "../support/Moment.ts"
import {
  freshHandle,
  newAgent,
  OAUTH_SECRET,
  type Server,
  sharedServer,
  startServer,
  type TestAgent
} from "../support/Server.ts"
import { newPair, say } from "./Talk.ts"

/** A call of a tool with an access token. */
const callTool = (server: Server, token: string, name: string, args: object = {}) =>
  post(server, token, rpc("tools/call", { name, arguments: args }), older)

const BOTH = "agent:read agent:act"
const LOOPBACK = "http://127.0.0.1:33418/callback"

describe("wire.md J, OAuth sign-in", () => {
  let server: Server
  let base: string
  let alice: TestAgent
  let bob: TestAgent
  let host: Host

  beforeAll(async () => {
    server = await sharedServer()
    base = await baseOf(server)
    ;({ alice, bob } = await newPair(server))
    host = await Host.register(server)
  })
  afterAll(() => server.stop())

  const challengeOf = (query = "", error = "") =>
    `Bearer ${error}resource_metadata="${base}/.well-known/oauth-protected-resource/mcp${query}", scope="${BOTH}"`

  describe("discovery", () => {
    it("175. every method of /mcp but OPTIONS answers 401 with the way to the metadata, before any 405; a dead credential is named invalid", async () => {
      const dead = [`ac_${"x".repeat(43)}`, `oat_${"x".repeat(43)}`, "nothing"]
      for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"]) {
        const ask = (headers: Record<string, string>, query = "") =>
          fetch(`${server.url}/mcp${query}`, { method, headers, ...(method === "GET" ? {} : { body: "{}" }) })
        for (const query of ["", "?tools=core", "?tools=core&structured=on"]) {
          const answer = await ask({}, query)
          const body = await answer.json() as Json
          assert.deepStrictEqual([answer.status, answer.headers.get("www-authenticate"), body.error.data.code], [
            401,
            challengeOf(query),
            "UNAUTHORIZED"
          ], method)
        }
        for (const credential of dead) {
          const answer = await ask({ authorization: `Bearer ${credential}` })
          assert.deepStrictEqual([answer.status, answer.headers.get("www-authenticate")], [
            401,
            challengeOf("", 'error="invalid_token", ')
          ], method)
        }
        if (method === "POST") continue
        const known = await ask({ authorization: `Bearer ${alice.key}` })
        assert.deepStrictEqual([known.status, known.headers.get("allow")], [405, "POST, OPTIONS"], method)
        assert.strictEqual((await known.json() as Json).error.data.code, "METHOD_NOT_ALLOWED")
      }
      assert.strictEqual((await fetch(`${server.url}/mcp`, { method: "HEAD" })).status, 401)
      const options = await fetch(`${server.url}/mcp`, { method: "OPTIONS" })
      assert.deepStrictEqual([options.status, options.headers.get("allow")], [204, "POST, OPTIONS"])
      assert.strictEqual((await fetch(`${server.url}/v1/agents/me`)).headers.get("www-authenticate"), "Bearer")
      // A query that is no part of a URL does not get into the header as it is.
      const odd = await get(`${server.url}/mcp?tools=%22%5C,%20x=%22`)
      assert.notMatch(
        (odd.headers.get("www-authenticate") ?? "").replace(/resource_metadata="[^"\\]*", scope="[^"]*"/, ""),
        /["\\]/
      )
    })

    it("176. both metadata documents are public, fresh for 300 s, and name the root paths that claude.ai takes for granted; Gemini CLI's and Codex's comparison of the resource holds for a tool set", async () => {
      for (const path of ["", "/mcp"]) {
        for (const query of ["", "?tools=core"]) {
          const { body, headers, status } = await get(
            `${server.url}/.well-known/oauth-protected-resource${path}${query}`,
            { origin: "https://any.example" }
          )
          assert.deepStrictEqual([status, headers.get("cache-control"), headers.get("access-control-allow-origin")], [
            200,
            "public, max-age=300",
            "*"
          ])
          assert.deepStrictEqual(body, {
            resource: `${base}/mcp${query}`,
            authorization_servers: [base],
            scopes_supported: ["agent:read", "agent:act"],
            bearer_methods_supported: ["header"],
            resource_name: "Parley"
          })
        }
      }
      const { body, headers } = await get(`${server.url}/.well-known/oauth-authorization-server`, {
        origin: "https://any.example"
      })
      assert.deepStrictEqual([headers.get("cache-control"), headers.get("access-control-allow-origin")], [
        "public, max-age=300",
        "*"
      ])
      assert.deepInclude(body, {
        issuer: base,
        authorization_endpoint: `${base}/authorize`,
        token_endpoint: `${base}/token`,
        registration_endpoint: `${base}/register`,
        revocation_endpoint: `${base}/revoke`,
        response_types_supported: ["code"],
        response_modes_supported: ["query"],
        grant_types_supported: ["authorization_code", "refresh_token"],
        code_challenge_methods_supported: ["S256"],
        token_endpoint_auth_methods_supported: ["none", "client_secret_post", "client_secret_basic"],
        scopes_supported: ["agent:read", "agent:act", "offline_access"],
        authorization_response_iss_parameter_supported: true,
        client_id_metadata_document_supported: true
      })
      for (
        const path of [
          "/.well-known/openid-configuration",
          "/.well-known/oauth-authorization-server/mcp",
          "/mcp/.well-known/oauth-authorization-server"
        ]
      ) {
        assert.strictEqual((await get(server.url + path)).status, 404, path)
      }
      for (const path of ["/register", "/token", "/revoke"]) {
        const asked = await fetch(server.url + path, {
          method: "OPTIONS",
          headers: {
            origin: "https://any.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "mcp-protocol-version"
          }
        })
        assert.strictEqual(asked.headers.get("access-control-allow-origin"), "*", path)
        assert.include(asked.headers.get("access-control-allow-headers") ?? "", "MCP-Protocol-Version")
      }
    })
  })

  describe("registration", () => {
    it("177. keeps nothing, gives every registration another id, and a secret to those that ask; one registration may mix kinds of URIs, as Cursor's does", async () => {
      const cursor = {
        client_name: "Cursor",
        redirect_uris: [
          "cursor://anysphere.cursor-mcp/oauth/callback",
          "https://www.cursor.com/agents/mcp/oauth/callback",
          "http://localhost:8787/callback"
        ],
        grant_types: ["authorization_code", "refresh_token"],
        logo_uri: "https://www.cursor.com/logo.png"
      }
      const [one, other] = [await register(server, cursor), await register(server, cursor)]
      assert.deepStrictEqual([one.status, one.headers.get("cache-control")], [201, "no-store"])
      assert.notStrictEqual(one.body.client_id, other.body.client_id)
      assert.deepInclude(one.body, {
        client_name: "Cursor",
        redirect_uris: cursor.redirect_uris,
        token_endpoint_auth_method: "none"
      })
      assert.notProperty(one.body, "client_secret")
      const secret = await register(server, { ...cursor, token_endpoint_auth_method: "client_secret_basic" })
      assert.match(secret.body.client_secret, /^ocs_[A-Za-z0-9_-]{43}$/)
      assert.strictEqual(secret.body.client_secret_expires_at, 0)
    })

    it("177. refuses what it would not redirect to, and what is no metadata", async () => {
      const bad = [
        "http://host.example/cb",
        "https://user@host.example/cb",
        "https://host.example/cb#x",
        "https://host.example/*",
        "javascript:alert(1)",
        "myapp://cb",
        "/cb"
      ]
      for (const uri of bad) {
        const { body, status } = await register(server, { redirect_uris: ["https://host.example/cb", uri] })
        assert.deepStrictEqual([status, body.error], [400, "invalid_redirect_uri"], uri)
        assert.isString(body.error_description)
      }
      // 2^53 is no number that JavaScript's JSON keeps.
      for (
        const metadata of [{ redirect_uris: ["https://host.example/cb"], client_id_issued_at: 2 ** 53 }, {}, [], {
          redirect_uris: "https://host.example/cb"
        }, { redirect_uris: ["https://host.example/cb"], token_endpoint_auth_method: "private_key_jwt" }]
      ) {
        assert.strictEqual((await register(server, metadata)).body.error, "invalid_client_metadata")
      }
      assert.strictEqual((await register(server, { redirect_uris: [] })).body.error, "invalid_redirect_uri")
      const long = { redirect_uris: ["https://host.example/cb"], software_statement: "x".repeat(8_192) }
      assert.deepStrictEqual([(await register(server, long)).status, (await register(server, long)).body.error], [
        400,
        "invalid_client_metadata"
      ])
    })
  })

  describe("/authorize", () => {
    it("178. a request leads to the sign-in page, bound to the browser by a cookie", async () => {
      const moment = new Moment()
      const page = await host.begin(pkce())
      const { body, headers, status } = await page.show()
      assert.deepStrictEqual([status, headers.get("cache-control"), headers.get("referrer-policy")], [
        200,
        "no-store",
        "no-referrer"
      ])
      moment.has(body.expires_at, 900_000)
      assert.deepStrictEqual({ ...body, expires_at: "" }, {
        client: { name: "Host", host: null },
        redirect: { kind: "https", shown: "host.example" },
        scopes: ["agent:read", "agent:act"],
        expires_at: "",
        agent: null
      })
    })

    it("178. an unknown client or redirect is a page and never a redirect; other errors of registered clients are too, except to loopback", async () => {
      const pages: ReadonlyArray<readonly [Record<string, string | undefined>, string]> = [
        [{ client_id: undefined }, ""],
        [{ client_id: `occ_${"a".repeat(100)}` }, ""],
        [{ client_id: "https://127.0.0.1/client.json" }, ""],
        [{ redirect_uri: "https://evil.example/callback" }, ""],
        [{ redirect_uri: `${host.redirectUri}/more` }, ""],
        [{ redirect_uri: undefined }, ""],
        [{}, `&client_id=${host.clientId}`],
        [{}, `&redirect_uri=${encodeURIComponent(host.redirectUri)}`],
        [{ response_type: "token" }, ""],
        [{ code_challenge: undefined }, ""]
      ]
      for (const [changes, more] of pages) {
        const { headers, status, text } = await host.authorize(pkce(), changes, more)
        assert.deepStrictEqual([status, headers.get("location")], [400, null], JSON.stringify(changes))
        assert.match(headers.get("content-type") ?? "", /^text\/html/)
        assert.include(headers.get("content-security-policy") ?? "", "frame-ancestors 'none'")
        assert.notInclude(text, "<script>")
      }
    })

    it("178. to loopback, errors go to the redirect with state and iss; the port is free, as VS Code and Claude Code need it", async () => {
      const local = await Host.register(server, LOOPBACK)
      const asked = "http://127.0.0.1:51999/callback"
      const errors: ReadonlyArray<readonly [Record<string, string | undefined>, string, string]> = [
        [{ code_challenge: undefined }, "", "invalid_request"],
        [{ code_challenge_method: "plain" }, "", "invalid_request"],
        [{ code_challenge_method: undefined }, "", "invalid_request"],
        [{ code_challenge: "short" }, "", "invalid_request"],
        [{}, "&scope=a&scope=b", "invalid_request"],
        [{ response_type: undefined }, "", "invalid_request"],
        [{ response_type: "token" }, "", "unsupported_response_type"],
        [{ resource: "https://other.example/mcp" }, "", "invalid_target"],
        [{ resource: `${base}/mcp` }, "&resource=https://other.example", "invalid_target"],
        [{ prompt: "none" }, "", "login_required"]
      ]
      for (const [changes, more, error] of errors) {
        const { headers, status } = await local.authorize(pkce(), { redirect_uri: asked, ...changes }, more)
        const to = new URL(headers.get("location") ?? "about:blank")
        assert.deepStrictEqual(
          [
            status,
            to.origin + to.pathname,
            to.searchParams.get("error"),
            to.searchParams.get("state"),
            to.searchParams.get("iss")
          ],
          [303, asked, error, "st 1", base],
          JSON.stringify(changes)
        )
      }
      const long = await local.authorize(pkce(), { redirect_uri: asked, state: "x".repeat(4_097) })
      assert.strictEqual(new URL(long.headers.get("location") ?? "").searchParams.get("error"), "invalid_request")
    })

    it("178. the resource is taken as hosts write it: left out, repeated, with a slash, in any case, with a tool set, as the user typed it", async () => {
      const written = [
        undefined,
        base,
        `${base}/`,
        `${base}/mcp`,
        `${base}/mcp/`,
        `${base}/mcp?tools=core`,
        base.toUpperCase()
      ]
      for (const resource of written)
        assert.strictEqual((await host.authorize(pkce(), { resource })).status, 303, resource)
      assert.strictEqual(
        (await host.authorize(pkce(), { resource: base }, `&resource=${encodeURIComponent(`${base}/mcp`)}`)).status,
        303
      )
    })
  })

  describe("the sign-in page's calls", () => {
    it("179. need the browser's cookie and, for changes, the page's own origin; everybody else finds nothing", async () => {
      const page = await host.begin(pkce())
      await page.signIn(alice)
      const other = await host.begin(pkce())
      const strangers: ReadonlyArray<SignInPage> = [
        new SignInPage(server, page.id, ""),
        new SignInPage(server, page.id, other.cookie),
        new SignInPage(server, page.id, `parley_oauth=${randomBytes(32).toString("base64url")}`),
        new SignInPage(server, `orq_${randomBytes(32).toString("base64url")}`, page.cookie)
      ]
      for (const stranger of strangers) {
        assert.strictEqual((await stranger.show()).status, 404)
        for (const path of ["/key", "/allow", "/deny"]) {
          const { body, status } = await stranger.post(path, path === "/key" ? { api_key: alice.key } : {})
          assert.deepStrictEqual([status, body.code], [404, "NOT_FOUND"], path)
        }
      }
      for (const origin of ["https://evil.example", "null", ""]) {
        assert.strictEqual((await page.show({ origin })).status, 404)
        for (const path of ["/allow", "/deny"])
          assert.strictEqual((await page.post(path, {}, { origin })).status, 404, `${path} from ${origin}`)
      }
      assert.strictEqual((await page.show()).body.agent.handle, alice.handle, "the request is still there")
      assert.isNull((await page.show({ origin: "https://evil.example" })).headers.get("access-control-allow-origin"))
    })

    it("179. the answer has iss, without which ChatGPT takes another redirect; nothing is allowed before somebody has signed in; a request is answered once", async () => {
      const page = await host.begin(pkce())
      assert.deepStrictEqual((await page.post("/allow")).status, 401)
      await page.signIn(bob)
      const url = await page.allow()
      assert.deepStrictEqual([url.searchParams.get("state"), url.searchParams.get("iss")], ["st 1", base])
      for (const path of ["/allow", "/deny"]) assert.strictEqual((await page.post(path)).status, 404)
      const denied = await host.begin(pkce())
      const { body } = await denied.post("/deny")
      const to = new URL(body.redirect_to)
      assert.deepStrictEqual(
        [
          to.origin + to.pathname,
          to.searchParams.get("error"),
          to.searchParams.get("state"),
          to.searchParams.get("iss")
        ],
        [host.redirectUri, "access_denied", "st 1", base]
      )
    })

    it("180. an unknown key, a malformed one and that of a deleted account look alike", async () => {
      const page = await host.begin(pkce())
      const gone = await newAgent(server, "person")
      await gone.http.delete(`/v1/agents/${gone.handle}`)
      const answers = await Promise.all(
        [`ac_${"x".repeat(43)}`, "", "nonsense", gone.key].map((api_key) => page.post("/key", { api_key }))
      )
      for (const { body, status } of answers) assert.deepStrictEqual([status, body], [401, answers[0]!.body])
      assert.isNull((await page.show()).body.agent)
    })

    it("180. an e-mail code signs in, the key stays, and an address without an account is answered alike", async () => {
      const page = await host.begin(pkce())
      const agent = await newAgent(server, "person")
      const nobody = await page.post("/code", { email: `${freshHandle("nobody")}@example.com` })
      const somebody = await page.post("/code", { email: agent.email })
      assert.deepStrictEqual([nobody.status, somebody.status], [200, 200])
      assert.deepStrictEqual({ ...nobody.body, pending_id: "" }, { ...somebody.body, pending_id: "" })
      const mail = await server.outbox.next(agent.email)
      assert.include(mail.text, `@${agent.handle}`)
      const code = /^(\d{6})$/m.exec(mail.text)?.[1] ?? ""
      const wrong = String((Number(code) + 1) % 1_000_000).padStart(6, "0")
      assert.strictEqual(
        (await page.post("/code/verify", { pending_id: somebody.body.pending_id, code: wrong })).body.code,
        "INVALID_CODE"
      )
      assert.strictEqual((await page.post("/code/verify", { pending_id: nobody.body.pending_id, code })).status, 400)
      // A code to sign in is good for nothing else.
      const recovery = await agent.http.post("/v1/agents/recover/verify", {
        pending_id: somebody.body.pending_id,
        code
      })
      recovery.refused(400, "EXPIRED")
      const { body, status } = await page.post("/code/verify", { pending_id: somebody.body.pending_id, code })
      assert.deepStrictEqual([status, body.agent.handle, body.agent.email_masked], [
        200,
        agent.handle,
        `${agent.email[0]}****@example.com`
      ])
      assert.strictEqual((await agent.http.get("/v1/agents/me")).status, 200)
      assert.strictEqual(
        (await page.post("/code/verify", { pending_id: somebody.body.pending_id, code })).body.code,
        "EXPIRED"
      )
    })

    it("180. a new agent is registered on the page, with its key shown once", async () => {
      const page = await host.begin(pkce())
      const [handle, email] = [freshHandle("newcomer"), `${freshHandle("newcomer")}@example.com`]
      assert.strictEqual((await page.post("/register", { email, handle: "me" })).body.code, "INVALID_HANDLE")
      const { body: begun } = await page.post("/register", { email, handle, display_name: "New" })
      const code = /^(\d{6})$/m.exec((await server.outbox.next(email)).text)?.[1] ?? ""
      const { body, status } = await page.post("/register/verify", { pending_id: begun.pending_id, code })
      assert.deepStrictEqual([status, body.agent.handle, body.agent.display_name], [200, handle, "New"])
      assert.match(body.api_key, /^ac_/)
      assert.notProperty((await page.show()).body, "api_key")
      assert.isNotNull((await page.allow()).searchParams.get("code"))
    })
  })

  describe("tokens", () => {
    let tokens: Tokens
    beforeAll(async () => {
      tokens = await host.connect(alice)
    })

    it("181. have their documented shape, and act for the agent at /mcp alone", async () => {
      assert.match(tokens.access_token, /^oat_[A-Za-z0-9_-]{43}$/)
      assert.match(tokens.refresh_token, /^ort_[A-Za-z0-9_-]{43}$/)
      assert.deepStrictEqual([tokens.token_type, tokens.expires_in, tokens.scope], ["Bearer", 604_800, BOTH])
      const status = await callTool(server, tokens.access_token, "agentchat_get_my_status")
      assert.include(JSON.stringify(status.body.result), alice.handle)
      const sent = await callTool(server, tokens.access_token, "agentchat_send_message", {
        to: bob.handle,
        text: "by token"
      })
      assert.isNotTrue(sent.body.result.isError, sent.text)
      for (const token of [tokens.access_token, tokens.refresh_token]) {
        const headers = { authorization: `Bearer ${token}` }
        for (
          const path of [
            "/v1/agents/me",
            "/v1/directory?q=a",
            `/a2a/${bob.handle}/.well-known/agent-card.json`,
            "/console/api/session"
          ]
        ) {
          const { status } = await get(server.url + path, headers)
          assert.strictEqual(status, path.startsWith("/console") ? 404 : 401, path)
        }
        const socket = new WebSocket(`${server.url.replace(/^http/, "ws")}/v1/ws`, { headers })
        assert.strictEqual(
          await new Promise((resolve) =>
            socket.on("unexpected-response", (_, { statusCode }) => resolve(statusCode)).on("close", resolve)
          ),
          401
        )
      }
      for (const token of [tokens.refresh_token, "oac_x", `${tokens.access_token}x`]) {
        assert.strictEqual((await post(server, token, initialize("2025-06-18"), older)).status, 401)
      }
    })

    it("182. a code is for its client, redirect and verifier, and only once: its reuse ends the connection", async () => {
      const pair = pkce()
      const page = await host.begin(pair)
      await page.signIn(alice)
      const code = (await page.allow()).searchParams.get("code") ?? ""
      const stranger = await Host.register(server)
      const wrong = [
        () => stranger.redeem(code, pair),
        () => host.redeem(code, pkce()),
        () => host.redeem(code, pair, { redirect_uri: "https://host.example/callback/" }),
        () => host.redeem(`oac_${"x".repeat(43)}`, pair)
      ]
      for (const ask of wrong) {
        const { body, headers, status } = await ask()
        assert.deepStrictEqual([status, body.error, headers.get("cache-control")], [400, "invalid_grant", "no-store"])
      }
      assert.strictEqual(
        (await host.redeem(code, pair, { resource: "https://other.example" })).body.error,
        "invalid_target"
      )
      const first = await host.redeem(code, pair, { resource: `${base}/mcp` })
      assert.strictEqual(first.status, 200)
      assert.strictEqual((await callTool(server, first.body.access_token, "agentchat_get_my_status")).status, 200)
      const again = await host.redeem(code, pair)
      assert.deepStrictEqual([again.status, again.body.error], [400, "invalid_grant"])
      await ended(server, first.body.access_token)
      assert.strictEqual((await host.refresh(first.body.refresh_token)).body.error, "invalid_grant")
    })

    it("182. clients are told apart by id and secret; what is no request is refused in OAuth's words", async () => {
      const basic = await Host.register(server, host.redirectUri, { token_endpoint_auth_method: "client_secret_basic" })
      const grant = { grant_type: "refresh_token", refresh_token: `ort_${"x".repeat(43)}` }
      const header = (id: string, secret: string) => ({
        authorization: `Basic ${
          Buffer.from(`${encodeURIComponent(id)}:${encodeURIComponent(secret)}`).toString("base64")
        }`
      })
      const asks: ReadonlyArray<readonly [number, string, Record<string, string>, Record<string, string>?]> = [
        [400, "invalid_grant", { ...grant }, header(basic.clientId, basic.secret!)],
        [401, "invalid_client", { ...grant }, header(basic.clientId, `ocs_${"x".repeat(43)}`)],
        [401, "invalid_client", { ...grant, client_id: basic.clientId, client_secret: basic.secret! }],
        [401, "invalid_client", { ...grant, client_id: basic.clientId }],
        [401, "invalid_client", { ...grant }],
        [401, "invalid_client", { ...grant, client_id: `occ_${"a".repeat(100)}` }],
        [400, "invalid_grant", { ...grant, client_id: host.clientId }],
        [400, "invalid_request", { client_id: host.clientId }],
        [400, "invalid_request", { grant_type: "refresh_token", client_id: host.clientId }],
        [400, "invalid_request", { grant_type: "authorization_code", client_id: host.clientId, code: "x" }],
        [400, "unsupported_grant_type", { grant_type: "client_credentials", client_id: host.clientId }]
      ]
      for (const [status, error, fields, headers] of asks) {
        const answer = await form(`${server.url}/token`, fields, headers)
        assert.deepStrictEqual([answer.status, answer.body.error], [status, error], JSON.stringify(fields))
        assert.strictEqual(
          answer.headers.get("www-authenticate"),
          status === 401 && headers !== undefined ? 'Basic realm="Parley"' : null
        )
      }
      const twice = await form(`${server.url}/token`, [
        ["grant_type", "refresh_token"],
        ["grant_type", "refresh_token"],
        ["client_id", host.clientId]
      ])
      assert.strictEqual(twice.body.error, "invalid_request")
    })

    it("183. two processes of one host that refresh at once get the same pair, and a lost answer can be asked for again, as Claude Code needs it", async () => {
      const mine = await host.connect(alice)
      const pairs = await Promise.all(Array.from({ length: 5 }, () => host.refresh(mine.refresh_token)))
      for (const { body, status } of pairs)
        assert.deepStrictEqual([status, body.access_token], [200, pairs[0]!.body.access_token])
      const later = await host.refresh(mine.refresh_token)
      assert.strictEqual(later.body.refresh_token, pairs[0]!.body.refresh_token)
      assert.notStrictEqual(later.body.refresh_token, mine.refresh_token)
      // The old access token lives as long as it said: hosts do not replace it in all their processes at once.
      for (const token of [mine.access_token, later.body.access_token]) {
        assert.strictEqual((await callTool(server, token, "agentchat_get_my_status")).status, 200)
      }
    })

    it("184. revoking either token ends the connection, whatever the answer says; another client's id ends nothing", async () => {
      for (const which of ["access_token", "refresh_token"] as const) {
        const mine = await host.connect(alice)
        const stranger = await form(`${server.url}/revoke`, { token: mine[which], client_id: "occ_other" })
        assert.strictEqual(stranger.status, 200)
        assert.strictEqual((await callTool(server, mine.access_token, "agentchat_get_my_status")).status, 200)
        assert.strictEqual(
          (await form(`${server.url}/revoke`, { token: mine[which], client_id: host.clientId })).status,
          200
        )
        await ended(server, mine.access_token)
        assert.strictEqual((await host.refresh(mine.refresh_token)).body.error, "invalid_grant")
      }
      for (const token of ["", "nonsense", `oat_${"x".repeat(43)}`])
        assert.strictEqual((await form(`${server.url}/revoke`, { token })).status, 200)
    })

    it("185. a connection ends when its agent's key is replaced, and when the account is deleted", async () => {
      const agent = await newAgent(server, "person")
      const mine = await host.connect(agent)
      const begun = await agent.http.post("/v1/agents/recover", { email: agent.email })
      const { pending_id } = begun.body as { readonly pending_id: string }
      const code = await codeTo(server, agent.email)
      assert.strictEqual((await agent.http.post("/v1/agents/recover/verify", { pending_id, code })).status, 200)
      await ended(server, mine.access_token)
      assert.strictEqual((await host.refresh(mine.refresh_token)).body.error, "invalid_grant")
      const other = await newAgent(server, "person")
      const theirs = await host.connect(other)
      await other.http.delete(`/v1/agents/${other.handle}`)
      await ended(server, theirs.access_token)
    })
  })

  describe("scopes", () => {
    it("186. default to both if none or only unknown ones are asked for; the answer says what was allowed", async () => {
      for (const scope of [undefined, "openid offline_access", BOTH]) {
        const page = await host.begin(pkce(), { scope })
        assert.deepStrictEqual((await page.show()).body.scopes, ["agent:read", "agent:act"])
      }
      const page = await host.begin(pkce(), { scope: "agent:read email" })
      assert.deepStrictEqual((await page.show()).body.scopes, ["agent:read"])
      assert.strictEqual((await host.connect(alice, ["agent:read"])).scope, "agent:read")
      const page2 = await host.begin(pkce(), { scope: "agent:read" })
      await page2.signIn(alice)
      assert.strictEqual(
        (await page2.post("/allow", { scopes: ["agent:act"] })).status,
        404,
        "nothing can be allowed that was not asked for"
      )
    })

    it("187. every tool that changes something is beyond agent:read, in every revision; every other tool is not", async () => {
      const { access_token: token } = await host.connect(alice, ["agent:read"])
      const insufficient =
        `Bearer error="insufficient_scope", resource_metadata="${base}/.well-known/oauth-protected-resource/mcp", scope="${BOTH}"`
      for (const { annotations, name, waits } of toolsOf(new Set(["all"]))) {
        const reads = annotations.readOnlyHint || waits
        const params = { name, arguments: waits ? { timeout_seconds: 0 } : {} }
        const [modern, headers] = newest("tools/call", params)
        for (
          const [body, sent] of [[rpc("tools/call", params), older], [
            rpc("tools/call", { ...params, _meta: { progressToken: 1 } }),
            older
          ], [modern, headers]] as const
        ) {
          const answer = await post(server, token, body, sent)
          if (reads) assert.strictEqual(answer.status, 200, `${name}: ${answer.text}`)
          else {
            assert.deepStrictEqual(
              [answer.status, answer.headers.get("www-authenticate"), answer.body.error.data.code],
              [403, insufficient, "FORBIDDEN"],
              `${name}: ${answer.text}`
            )
          }
        }
      }
      for (const method of ["initialize", "tools/list", "resources/list", "prompts/list", "ping"]) {
        assert.strictEqual(
          (await post(server, token, method === "initialize" ? initialize("2025-06-18") : rpc(method), older)).status,
          200,
          method
        )
      }
      const { id } = await say(bob, alice)
      const waited = await callTool(server, token, "agentchat_wait_for_messages", { timeout_seconds: 5 })
      assert.include(waited.text, id)
      const acknowledging = await callTool(server, token, "agentchat_wait_for_messages", {
        acknowledge_through: "del_1",
        timeout_seconds: 0
      })
      assert.strictEqual(acknowledging.status, 403)
    })

    it("187. agent:read may not have texts of messages posted to a URL; a subscription without texts, a poll and a stream it may have", async () => {
      const { access_token: token } = await host.connect(alice, ["agent:read"])
      const ask = (method: string, args: object | null, more: object = {}) =>
        post(server, token, rpc(method, { name: "message.received", arguments: args, ...more }), older)
      // A URL that is refused later, so that nobody is called.
      const delivery = { url: "http://host.example/", secret: `whsec_${randomBytes(32).toString("base64")}` }
      const [modern, headers] = newest("events/subscribe", {
        name: "message.received",
        arguments: { include_text: true },
        delivery
      })
      for (
        const answer of [
          await ask("events/subscribe", { include_text: true }, { delivery }),
          await post(server, token, modern, headers)
        ]
      ) {
        assert.deepStrictEqual([answer.status, answer.body.error.data.code], [403, "FORBIDDEN"], answer.text)
        assert.include(answer.headers.get("www-authenticate") ?? "", 'error="insufficient_scope"')
      }
      for (const args of [null, {}, { include_text: false }, { include_text: null }]) {
        assert.strictEqual(
          (await ask("events/subscribe", args, { delivery })).body.error.code,
          -32_602,
          JSON.stringify(args)
        )
      }
      assert.strictEqual((await ask("events/unsubscribe", { include_text: true }, { delivery })).status, 200)
      assert.isArray((await ask("events/poll", { include_text: true })).body.result.events)
      const { access_token: acting } = await host.connect(alice, ["agent:act"])
      const allowed = await post(
        server,
        acting,
        rpc("events/subscribe", { name: "message.received", arguments: { include_text: true }, delivery }),
        older
      )
      assert.deepStrictEqual([allowed.status, allowed.body.error.code], [200, -32_602], allowed.text)
    })
  })

  it("188. the host of a suspended agent is told so by the tools, as M has it, and a person may still sign in", async () => {
    const agent = await newAgent(server, "person")
    const { access_token: token } = await host.connect(agent)
    assert.strictEqual((await adminHere(server.place, "agents", "suspend", agent.handle, "--reason", "a test")).code, 0)
    await eventually(
      "the suspension",
      async () => (await callTool(server, token, "agentchat_list_inbox")).text.includes("AGENT_SUSPENDED") || undefined
    )
    // Another node may know the account of a second ago.
    await eventually(
      "the status",
      async () => (await callTool(server, token, "agentchat_get_my_status")).text.includes("suspended") || undefined
    )
    const page = await host.begin(pkce())
    await page.signIn(agent)
    await eventually(
      "the status on the page",
      async () => (await page.show()).body.agent.status === "suspended" || undefined
    )
  })

  it("184. a stream of subscriptions ends with its connection", async () => {
    const mine = await host.connect(alice)
    const [body, headers] = newest("subscriptions/listen", {
      notifications: { resourceSubscriptions: ["parley://inbox"] }
    })
    const response = await fetch(`${server.url}/mcp`, {
      method: "POST",
      headers: {
        ...headers,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        authorization: `Bearer ${mine.access_token}`
      },
      body: JSON.stringify(body)
    })
    assert.strictEqual(response.status, 200)
    const over = response.text()
    await form(`${server.url}/revoke`, { token: mine.refresh_token })
    assert.include(await within("the end of the stream", over), "subscriptions/acknowledged")
  })
})

/** The next code to this address, after mails about connections. */
const codeTo = async (server: Server, address: string): Promise<string> => {
  for (;;) {
    const code = /^(\d{6})$/m.exec((await server.outbox.next(address)).text)?.[1]
    if (code !== undefined) return code
  }
}

/** Waits until a token is refused: a node knows a token for up to a second. */
const ended = async (server: Server, token: string): Promise<void> => {
  const refused = await eventually("the refusal of the token", async () => {
    const answer = await callTool(server, token, "agentchat_get_my_status")
    return answer.status === 401 ? answer : undefined
  })
  assert.include(refused.headers.get("www-authenticate") ?? "", 'error="invalid_token"')
}

describe("wire.md J, OAuth sign-in where it is off, and its limits", () => {
  it("189. its paths do not exist while it is off, and /mcp accepts keys alone", async () => {
    const server = await startServer({ env: { OAUTH: "off" } })
    const paths = [
      ["GET", "/authorize"],
      ["POST", "/token"],
      ["POST", "/register"],
      ["POST", "/revoke"],
      ["GET", "/.well-known/oauth-authorization-server"],
      ["GET", "/.well-known/oauth-protected-resource/mcp"],
      ["GET", "/oauth/requests/orq_1"],
      ["GET", "/oauth/sign-in"]
    ] as const
    for (const [method, path] of paths)
      assert.strictEqual((await fetch(server.url + path, { method })).status, 404, path)
    const answer = await fetch(`${server.url}/mcp`, { method: "POST", body: "{}" })
    assert.deepStrictEqual([answer.status, answer.headers.get("www-authenticate")], [401, "Bearer"])
    assert.strictEqual((await fetch(`${server.url}/mcp`)).status, 405)
    await server.stop()
  })

  it("190. each step has its limit for an IP address, with Retry-After; no secret of a sign-in is logged or traced", async () => {
    const collector = await Collector.start()
    const server = await startServer({
      env: {
        LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES: "4",
        LIMITS_OAUTH_KEYS_PER_10_MINUTES: "3",
        LIMITS_OAUTH_REGISTRATIONS_PER_HOUR: "2",
        LIMITS_OAUTH_TOKENS_PER_MINUTE: "8",
        LOG_LEVEL: "debug",
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
        OTEL_TRACES_SAMPLER: "always_on",
        LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "1000"
      }
    })
    const refusedAfter = async (
      most: number,
      ask: () => Promise<{ readonly status: number; readonly headers: Headers }>
    ) => {
      for (let i = 0; i < most; i++) assert.notStrictEqual((await ask()).status, 429, `${i + 1} of ${most}`)
      const answer = await ask()
      assert.strictEqual(answer.status, 429)
      assert.isAbove(Number(answer.headers.get("retry-after")), 0)
    }
    const host = await Host.register(server)
    // Everything is logged and traced, and no secret of a sign-in is in it; the server itself asserts this of its log.
    const agent = await newAgent(server, "person")
    const tokens = await host.connect(agent)
    await host.refresh(tokens.refresh_token)
    await callTool(server, tokens.access_token, "agentchat_get_my_status")
    await form(`${server.url}/revoke`, { token: tokens.access_token })
    await eventually(
      "the spans of the sign-in",
      () => collector.texts.some((text) => text.includes("/revoke")) || undefined
    )
    assert.notMatch(collector.texts.join(""), OAUTH_SECRET)
    await refusedAfter(1, () => register(server, { redirect_uris: ["https://host.example/cb"] }))
    const page = await host.begin(pkce())
    await refusedAfter(2, () => host.authorize(pkce()))
    await refusedAfter(2, () => page.post("/key", { api_key: "x" }))
    await refusedAfter(5, () => host.refresh("x"))
    assert.strictEqual((await get(`${server.url}/v1/health`)).status, 200)
    await server.stop()
    collector.stop()
  })
})
