import { type Client, readAuthorization, responseUrl } from "#domain/oauth/AuthorizationRequest"
import { readDocument } from "#domain/oauth/ClientDocument"
import { clientIdOf, isSecretOf, registeredOf, SALT_BYTES, secretOf, shownName } from "#domain/oauth/ClientId"
import { readRegistration } from "#domain/oauth/ClientMetadata"
import { challenge, isOwnResource, offersOAuth, resourceMetadata } from "#domain/oauth/Discovery"
import { redirectTo, redirectUriOf } from "#domain/oauth/RedirectUri"
import { permits, SCOPES, scopesOf, scopeText } from "#domain/oauth/Scopes"
import { isAccessToken, isCode, isRefreshToken, pairOf, refreshOutcome, REPEAT_MS } from "#domain/oauth/Tokens"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { createHash, randomBytes } from "node:crypto"

const SCHEMES = ["cursor", "vscode"]
const key = randomBytes(32)

describe("the sign-in", () => {
  const settings = (changes: Partial<Settings>): Settings =>
    Effect.runSync(Effect.provide(Effect.map(Config, (config) => config), Config.layerTest(changes)))

  it.each([
    [{ PUBLIC_URL: "https://parley.example" }, true],
    [{ PUBLIC_URL: "https://parley.example:8443" }, true],
    [{ PUBLIC_URL: undefined }, true],
    [{ PUBLIC_URL: "http://localhost:3000" }, true],
    [{ PUBLIC_URL: "http://127.0.0.1:3000" }, true],
    [{ PUBLIC_URL: "http://[::1]:3000" }, true],
    [{ PUBLIC_URL: "http://parley.example" }, false],
    [{ PUBLIC_URL: "http://10.0.0.5:3000" }, false],
    [{ PUBLIC_URL: "https://parley.example/chat" }, false],
    [{ PUBLIC_URL: "https://parley.example?x" }, false],
    [{ PUBLIC_URL: "https://parley.example", OAUTH: "off" as const }, false]
  ])("is offered or not at %j: %s", (changes, offered) => expect(offersOAuth(settings(changes))).toBe(offered))

  it("a query is repeated as a URL has it, and a very long one not at all", () => {
    const config = settings({ PUBLIC_URL: "https://parley.example" })
    expect(resourceMetadata(config, "/mcp?tools=core").resource).toBe("https://parley.example/mcp?tools=core")
    expect(resourceMetadata(config, `/mcp?${"x".repeat(300)}`).resource).toBe("https://parley.example/mcp")
    expect(challenge(config, `/mcp?a="b\\c\u00e9`)).toContain(`/mcp?a=%22b%5Cc%C3%A9", scope=`)
  })
})

describe("redirect URIs", () => {
  it.each([
    ["https://claude.ai/api/mcp/auth_callback", "https", "claude.ai"],
    ["https://example.com:8443/cb?x=1", "https", "example.com:8443"],
    ["http://localhost/callback", "loopback", "localhost"],
    ["http://127.0.0.1:3118/callback", "loopback", "127.0.0.1"],
    ["http://[::1]:9/cb", "loopback", "[::1]"],
    ["cursor://anysphere.cursor-mcp/oauth/callback", "private", "cursor:"],
    ["com.example.app:/oauth", "private", "com.example.app:"]
  ])("%s is permitted, as %s", (uri, kind, shown) => {
    expect(redirectUriOf(uri, SCHEMES)).toEqual({ uri, kind, shown })
  })

  it.each([
    "",
    "not a uri",
    "/callback",
    "http://example.com/cb",
    "http://localhost.example.com/cb",
    "http://127.0.0.1.example.com/cb",
    "https://user@example.com/cb",
    "https://user:pw@example.com/cb",
    "https://example.com/cb#",
    "https://example.com/cb#a",
    "https://*.example.com/cb",
    "https://example.com/*",
    "https://example.com\\@evil.example/cb",
    "https://exa mple.com/cb",
    "https://example.com/cb\r\nX: y",
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "ftp://example.com/x",
    "ws://localhost/x",
    "unlisted://callback"
  ])("is refused if it is %j", (uri) => {
    expect(redirectUriOf(uri, SCHEMES)).toBeUndefined()
  })

  it("are compared exactly; of a loopback address the port is free (Claude Code, VS Code)", () => {
    const registered = ["http://localhost/callback", "https://example.com:443/cb", "http://127.0.0.1:1/a?b=c"]
    expect(redirectTo("http://localhost:51234/callback", registered, SCHEMES)?.uri).toBe(
      "http://localhost:51234/callback"
    )
    expect(redirectTo("http://127.0.0.1:65535/a?b=c", registered, SCHEMES)).toBeDefined()
    for (
      const other of [
        "http://localhost:51234/callback/",
        "http://localhost:51234/Callback",
        "http://LOCALHOST:51234/callback",
        "http://127.0.0.1/callback",
        "http://127.0.0.1:1/a?b=d",
        "https://example.com/cb",
        "https://example.com:444/cb",
        "https://localhost/callback"
      ]
    ) expect(redirectTo(other, registered, SCHEMES), other).toBeUndefined()
  })

  it("one registration may mix them (Cursor)", () => {
    const registered = [
      "cursor://anysphere.cursor-mcp/oauth/callback",
      "https://www.cursor.com/agents/mcp/oauth/callback",
      "http://localhost:8787/callback"
    ]
    for (const uri of registered) expect(redirectTo(uri, registered, SCHEMES)?.uri).toBe(uri)
  })

  it("nothing but the port of a loopback address can differ", () => {
    fc.assert(
      fc.property(fc.webUrl({ withQueryParameters: true }), fc.webUrl({ withQueryParameters: true }), (a, b) => {
        const [one, other] = [a, b].map((url) => url.replace(/^http:/, "https:"))
        expect(redirectTo(one!, [other!], SCHEMES) !== undefined).toBe(
          one === other && redirectUriOf(one!, SCHEMES) !== undefined
        )
      })
    )
  })
})

describe("scopes", () => {
  it("are both if none is asked for, and unknown ones are ignored", () => {
    expect(scopesOf(undefined)).toEqual(SCOPES)
    expect(scopesOf("")).toEqual(SCOPES)
    expect(scopesOf("openid offline_access")).toEqual(SCOPES)
    expect(scopesOf("agent:read openid")).toEqual(["agent:read"])
    expect(scopeText(scopesOf("agent:act agent:read agent:act"))).toBe("agent:read agent:act")
  })

  it("agent:act permits everything", () => {
    expect(permits(["agent:read"], "agent:act")).toBe(false)
    expect(permits(["agent:read"], "agent:read")).toBe(true)
    expect(permits(["agent:act"], "agent:read")).toBe(true)
  })
})

describe("the resource", () => {
  const base = "https://parley.example"
  it.each([
    [[]],
    [["https://parley.example/mcp"]],
    [["https://parley.example/mcp/"]],
    [["HTTPS://Parley.Example/mcp"]],
    [["https://parley.example"]],
    [["https://parley.example/"]],
    [["https://parley.example:443/mcp"]],
    [["https://parley.example/mcp?tools=core"]],
    [["https://parley.example/mcp", "https://parley.example/mcp"]]
  ])("is this server at %j (Codex omits and repeats it, claude.ai sends what its user typed)", (resources) => {
    expect(isOwnResource(base, resources)).toBe(true)
  })

  it.each([
    [["https://other.example/mcp"]],
    [["http://parley.example/mcp"]],
    [["https://parley.example/MCP"]],
    [["https://parley.example/mcp/x"]],
    [["https://parley.example/mcp//"]],
    [["https://parley.example:444/mcp"]],
    [["https://x@parley.example/mcp"]],
    [["https://parley.example/mcp#x"]],
    [["mcp"]],
    [["https://parley.example/mcp", "https://other.example/mcp"]]
  ])("is another one at %j", (resources) => {
    expect(isOwnResource(base, resources)).toBe(false)
  })
})

describe("the name of a client", () => {
  const uri = "https://host.example/cb"
  const url = "https://host.example/client.json"
  const registration = (metadata: object) => readRegistration({ redirect_uris: [uri], ...metadata }, SCHEMES)
  const document = (metadata: object) =>
    readDocument(url, JSON.stringify({ client_id: url, redirect_uris: [uri], ...metadata }), SCHEMES)

  it.each([
    ["Claude", "Claude"],
    ["  Cursor\u200b ", "Cursor"],
    ["x".repeat(60), "x".repeat(60)],
    ["x".repeat(61), "x".repeat(60)],
    ["\u{1f98a}".repeat(500), "\u{1f98a}".repeat(60)],
    [`${"x".repeat(59)} y`, "x".repeat(59)],
    [`${"x".repeat(58)}\u{1f468}\u200d\u{1f469}`, `${"x".repeat(58)}\u{1f468}`],
    ["", null],
    [null, null]
  ])("%j is %j", (client_name, name) => {
    expect(registration({ client_name })).toMatchObject({ name })
    expect(document({ client_name })).toMatchObject({ name })
  })

  it.each(["\0", "a\0b", "\ud800", "a\nb", "a\u202eb", "a\u2066b", " ", "\u200b", "\u3164", "\u0301"])(
    "is refused if it is %j",
    (client_name) => {
      expect(registration({ client_name })).toMatchObject({ error: "invalid_client_metadata" })
      expect(document({ client_name })).toBeUndefined()
    }
  )

  it("is shown without characters that a name may not have if it comes from an id of an earlier release", () => {
    const idOf = (name: string) =>
      clientIdOf(key, { redirectUris: [uri], name, method: "none" }, randomBytes(SALT_BYTES))
    expect(registeredOf([key], idOf("a\0\u202eb "))?.name).toBe("ab")
    expect(registeredOf([key], idOf("\0"))?.name).toBeNull()
  })

  it("and any other optional field may be null, which means that it is absent (RFC 7591)", () => {
    expect(registration({ token_endpoint_auth_method: null, client_uri: null, scope: null })).toMatchObject({
      method: "none"
    })
    expect(document({ token_endpoint_auth_method: null, token_endpoint_auth_methods_supported: null })).toMatchObject({
      redirectUris: [uri]
    })
    expect(readRegistration({ redirect_uris: null }, SCHEMES)).toMatchObject({ error: "invalid_client_metadata" })
  })
})

describe("the id of a registered client", () => {
  const arbitrary = fc.record({
    redirectUris: fc.array(fc.webUrl(), { minLength: 1, maxLength: 10 }).filter((uris) =>
      uris.join("").length <= 1_200
    ),
    name: fc.option(fc.string({ unit: "grapheme", minLength: 1, maxLength: 60 }).map(shownName), { nil: null }),
    method: fc.constantFrom("none", "client_secret_post", "client_secret_basic")
  })

  it("holds what the client has registered, and differs each time", () => {
    fc.assert(fc.property(arbitrary, (registered) => {
      const ids = [
        clientIdOf(key, registered, randomBytes(SALT_BYTES)),
        clientIdOf(key, registered, randomBytes(SALT_BYTES))
      ]
      expect(ids[0]).not.toBe(ids[1])
      for (const id of ids) expect(registeredOf([key], id)).toEqual({ ...registered, key })
    }))
  })

  it("is still known if it was made with a former key, and its secret still fits (VS Code and Codex keep ids for ever)", () => {
    const former = randomBytes(32)
    const id = clientIdOf(
      former,
      { redirectUris: ["https://a.example/"], name: null, method: "client_secret_post" },
      randomBytes(SALT_BYTES)
    )
    const known = registeredOf([key, former], id)
    expect(known?.key).toBe(former)
    expect(isSecretOf(former, id, secretOf(former, id))).toBe(true)
    expect(registeredOf([key], id)).toBeUndefined()
  })

  it("is unknown if one character is changed", () => {
    const id = clientIdOf(
      key,
      { redirectUris: ["https://a.example/"], name: "a", method: "none" },
      randomBytes(SALT_BYTES)
    )
    fc.assert(
      fc.property(fc.integer({ min: 4, max: id.length - 1 }), fc.constantFrom(..."AZaz09_-"), (at, character) => {
        const changed = id.slice(0, at) + character + id.slice(at + 1)
        fc.pre(!Buffer.from(changed.slice(4), "base64url").equals(Buffer.from(id.slice(4), "base64url")))
        expect(registeredOf([key], changed)).toBeUndefined()
      })
    )
    for (const other of ["", "occ_", id.slice(4), `${id} `, `occ_${"A".repeat(5_000)}`])
      expect(registeredOf([key], other)).toBeUndefined()
  })

  it("is no secret, and the secret of another client is refused", () => {
    const registered = { redirectUris: ["https://a.example/"], name: null, method: "client_secret_basic" } as const
    const [one, other] = [
      clientIdOf(key, registered, randomBytes(SALT_BYTES)),
      clientIdOf(key, registered, randomBytes(SALT_BYTES))
    ]
    expect(secretOf(key, one)).toMatch(/^ocs_[A-Za-z0-9_-]{43}$/)
    expect(isSecretOf(key, one, secretOf(key, one))).toBe(true)
    expect(isSecretOf(key, one, secretOf(key, other))).toBe(false)
    expect(isSecretOf(key, one, "")).toBe(false)
  })
})

describe("a pair of tokens", () => {
  it("is the same for the same token, and cannot be derived without the key", () => {
    const presented = `ort_${randomBytes(32).toString("base64url")}`
    const pair = pairOf(key, presented)
    expect(pairOf(key, presented)).toEqual(pair)
    expect(isAccessToken(pair.access)).toBe(true)
    expect(isRefreshToken(pair.refresh)).toBe(true)
    expect(isCode(pair.access)).toBe(false)
    expect(pairOf(randomBytes(32), presented).access).not.toBe(pair.access)
    expect(pair.access.slice(4)).not.toBe(pair.refresh.slice(4))
    expect(pairOf(key, pair.refresh).refresh).not.toBe(pair.refresh)
  })

  it("is refused if the refresh token is idle or its repeat comes too late", () => {
    const fresh = { isUsed: false, successorUsedAt: null, expiresAt: 1_000 }
    expect(refreshOutcome(fresh, 999)).toBe("next")
    expect(refreshOutcome(fresh, 1_000)).toBe("expired")
    const used = { ...fresh, isUsed: true }
    // The answer was lost: however long ago, the successor is unused.
    expect(refreshOutcome(used, 1e12)).toBe("same")
    expect(refreshOutcome({ ...used, successorUsedAt: 5_000 }, 5_000 + REPEAT_MS - 1)).toBe("same")
    expect(refreshOutcome({ ...used, successorUsedAt: 5_000 }, 5_000 + REPEAT_MS)).toBe("reused")
  })
})

describe("a request for authorization", () => {
  const base = "https://parley.example"
  const loopback = "http://127.0.0.1:1455/callback"
  const site = "https://host.example/callback"
  const registered: Client = { id: "occ_x", source: "registered", redirectUris: [loopback, site], name: "Host" }
  const document: Client = { ...registered, id: "https://host.example/client.json", source: "document" }
  const challenge = createHash("sha256").update("verifier").digest("base64url")
  const valid = {
    response_type: "code",
    client_id: "x",
    redirect_uri: site,
    code_challenge: challenge,
    code_challenge_method: "S256",
    state: "s"
  }
  const read = (client: Client | undefined, changes: Record<string, string | undefined>, more = "") => {
    const query = new URLSearchParams()
    for (const [name, value] of Object.entries({ ...valid, ...changes }))
      if (value !== undefined) query.append(name, value)
    return readAuthorization(new URLSearchParams(`${query}${more}`), client, base, SCHEMES)
  }

  it("is read with its scopes and state", () => {
    expect(read(registered, { scope: "agent:read", resource: `${base}/mcp` })).toEqual({
      _tag: "Request",
      request: {
        client: registered,
        redirect: { uri: site, kind: "https", shown: "host.example" },
        challenge,
        state: "s",
        scopes: ["agent:read"]
      }
    })
    expect(read(registered, { state: undefined })).toMatchObject({ request: { state: null, scopes: SCOPES } })
  })

  it("of an unknown client or redirect URI is never redirected", () => {
    expect(read(undefined, {})._tag).toBe("Page")
    for (const client of [registered, document]) {
      expect(read(client, { redirect_uri: undefined })._tag).toBe("Page")
      expect(read(client, { redirect_uri: "https://evil.example/" })._tag).toBe("Page")
      expect(read(client, {}, `&redirect_uri=${encodeURIComponent(site)}`)._tag).toBe("Page")
    }
  })

  const errors: ReadonlyArray<readonly [string, Record<string, string | undefined>, string, string?]> = [
    ["no challenge", { code_challenge: undefined }, "invalid_request"],
    ["a short challenge", { code_challenge: challenge.slice(1) }, "invalid_request"],
    ["plain", { code_challenge_method: "plain" }, "invalid_request"],
    ["no method, which means plain", { code_challenge_method: undefined }, "invalid_request"],
    ["a repeated parameter", {}, "invalid_request", "&scope=a&scope=b"],
    ["a repeated state", {}, "invalid_request", "&state=t"],
    ["a long state", { state: "s".repeat(4_097) }, "invalid_request"],
    ["no response_type", { response_type: undefined }, "invalid_request"],
    ["the implicit grant", { response_type: "token" }, "unsupported_response_type"],
    ["another resource", { resource: "https://other.example/mcp" }, "invalid_target"],
    ["prompt=none", { prompt: "none" }, "login_required"]
  ]
  const cases = errors.map(([given, changes, error, more]) => ({ given, changes, error, more }))
  it.each(cases)(
    "with $given is redirected for a document and for loopback, and gets a page for a registered site",
    ({ changes, error, more }) => {
      expect(read(document, changes, more)).toMatchObject({ _tag: "Error", error, redirect: { uri: site } })
      expect(read(registered, { ...changes, redirect_uri: loopback }, more)).toMatchObject({
        _tag: "Error",
        error,
        redirect: { uri: loopback }
      })
      expect(read(registered, changes, more)._tag).toBe("Page")
    }
  )

  it("ends at the redirect URI, with state and issuer", () => {
    const redirect = redirectUriOf("https://host.example/cb?x=1", SCHEMES)!
    expect(responseUrl(base, redirect, "a b&c", { code: "oac_1" })).toBe(
      "https://host.example/cb?x=1&code=oac_1&state=a+b%26c&iss=https%3A%2F%2Fparley.example"
    )
    expect(responseUrl(base, redirectUriOf(site, SCHEMES)!, null, { error: "access_denied" })).toBe(
      `${site}?error=access_denied&iss=https%3A%2F%2Fparley.example`
    )
  })
})
