import { Accounts } from "#domain/agents/Accounts"
import { readAuthorization } from "#domain/oauth/AuthorizationRequest"
import { AuthorizationRequests, REQUEST_MS } from "#domain/oauth/AuthorizationRequests"
import { cacheMs, documentUrl, isJsonType, MAX_DOCUMENT_BYTES, readDocument } from "#domain/oauth/ClientDocument"
import { readRegistration } from "#domain/oauth/ClientMetadata"
import { Clients } from "#domain/oauth/Clients"
import { DocumentFailed, DocumentFetch, type Fetched } from "#domain/oauth/DocumentFetch"
import { Grants } from "#domain/oauth/Grants"
import { GrantsRepo } from "#domain/oauth/GrantsRepo"
import { redirectTo } from "#domain/oauth/RedirectUri"
import { RequestsRepo } from "#domain/oauth/RequestsRepo"
import { Secrets } from "#infrastructure/database/Secrets"
import { NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Result } from "effect"
import { createHash, randomBytes } from "node:crypto"
import { eachDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { leap } from "../support/Leap.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

const BASE = "https://parley.example"
const HOST = "https://host.example/client.json"
const CALLBACK = "https://host.example/callback"
const verifier = randomBytes(32).toString("base64url")
const challenge = createHash("sha256").update(verifier).digest("base64url")

/** The documents that hosts serve, and how often each was fetched. */
const documents = new Map<string, Fetched>()
const fetched: Array<string> = []
/** The hosts of these documents answer when the test says so. */
const slow = new Map<string, Deferred.Deferred<void>>()
const document = (changes: object = {}) =>
  JSON.stringify({ client_id: HOST, client_name: "Host", redirect_uris: [CALLBACK], ...changes })

let serial = 0

eachDatabase((database) => {
  layer(AuthorizationRequests.layer.pipe(
    Layer.provideMerge(Grants.layer),
    Layer.provideMerge(Clients.layer),
    Layer.provideMerge(Layer.mergeAll(GrantsRepo.layer, RequestsRepo.layer, Secrets.layer)),
    Layer.provideMerge(layerModules(database, { PUBLIC_URL: BASE })),
    Layer.provideMerge(Layer.succeed(DocumentFetch, (url) =>
      Effect.suspend(() => {
        fetched.push(url.href)
        const found = documents.get(url.href)
        const answered = slow.get(url.href)
        return Effect.andThen(
          answered === undefined ? Effect.void : Deferred.await(answered),
          found === undefined
            ? Effect.fail(new DocumentFailed({ reason: "its host answered 404" }))
            : Effect.succeed(found)
        )
      })))
  ))((it) => {
    const begin = Effect.fnUntraced(function*(changes: Record<string, string> = {}) {
      documents.set(HOST, { text: document(), cacheControl: undefined })
      const client = yield* (yield* Clients).find(HOST)
      const query = new URLSearchParams({
        response_type: "code",
        client_id: HOST,
        redirect_uri: CALLBACK,
        code_challenge: challenge,
        code_challenge_method: "S256",
        state: "s 1",
        ...changes
      })
      const read = readAuthorization(query, client, BASE, [])
      if (read._tag !== "Request") throw new Error(JSON.stringify(read))
      return yield* (yield* AuthorizationRequests).begin(read.request)
    })
    const newcomer = Effect.suspend(() => newAgent(`person-${serial++}`))

    it.effect("a request that a person allows gives the host a code for the agent, once", () =>
      Effect.gen(function*() {
        const requests = yield* AuthorizationRequests
        const agent = yield* newcomer
        const reference = yield* begin()
        assert.isUndefined(yield* requests.allow(reference, ["agent:read"]))
        assert.isTrue(yield* requests.signIn(reference, agent.id))
        const url = new URL((yield* requests.allow(reference, ["agent:read", "agent:act"]))!)
        assert.strictEqual(url.origin + url.pathname, CALLBACK)
        assert.deepStrictEqual([url.searchParams.get("state"), url.searchParams.get("iss")], ["s 1", BASE])
        const issued = yield* (yield* Grants).redeem({
          code: url.searchParams.get("code")!,
          clientId: HOST,
          redirectUri: CALLBACK,
          verifier
        })
        assert.isTrue("access" in issued)
        const [connection] = yield* (yield* Grants).list(agent.id)
        assert.deepStrictEqual([connection?.clientName, connection?.clientHost, connection?.scopes], [
          "Host",
          "host.example",
          "agent:read agent:act"
        ])
        for (const again of [yield* requests.allow(reference, ["agent:read"]), yield* requests.deny(reference)])
          assert.isUndefined(again)
        assert.isUndefined(yield* requests.find(reference))
      }))

    it.effect("one of 20 answers at once counts", () =>
      Effect.gen(function*() {
        const requests = yield* AuthorizationRequests
        const agent = yield* newcomer
        const reference = yield* begin()
        yield* requests.signIn(reference, agent.id)
        const answers = yield* Effect.forEach(
          Array.from({ length: 20 }, (_, i) => i),
          (i) => i % 2 === 0 ? requests.allow(reference, ["agent:act"]) : requests.deny(reference),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(answers.filter((answer) => answer !== undefined).length, 1)
      }))

    it.effect("act can be left out, and nothing can be added that was not asked for", () =>
      Effect.gen(function*() {
        const requests = yield* AuthorizationRequests
        for (
          const [asked, allowed, stored] of [["agent:read agent:act", ["agent:read"], "agent:read"], ["agent:read", [
            "agent:read",
            "agent:act"
          ], "agent:read"]] as const
        ) {
          const agent = yield* newcomer
          const reference = yield* begin({ scope: asked })
          yield* requests.signIn(reference, agent.id)
          yield* requests.allow(reference, allowed)
          assert.deepStrictEqual((yield* (yield* Grants).list(agent.id)).map(({ scopes }) => scopes), [stored])
        }
        const agent = yield* newcomer
        const reference = yield* begin({ scope: "agent:read" })
        yield* requests.signIn(reference, agent.id)
        assert.isUndefined(yield* requests.allow(reference, ["agent:act"]))
        assert.deepStrictEqual(yield* (yield* Grants).list(agent.id), [])
      }))

    it.effect("a request belongs to its browser, lasts 15 minutes, and a refusal tells the host", () =>
      Effect.gen(function*() {
        const requests = yield* AuthorizationRequests
        const agent = yield* newcomer
        const [mine, other] = [yield* begin(), yield* begin()]
        const stolen = { id: mine.id, cookie: other.cookie }
        assert.isUndefined(yield* requests.find(stolen))
        assert.isFalse(yield* requests.signIn(stolen, agent.id))
        assert.isUndefined(yield* requests.deny(stolen))
        yield* requests.signIn(mine, agent.id)
        assert.isUndefined(yield* requests.allow(stolen, ["agent:read"]))
        assert.strictEqual(
          yield* requests.deny(mine),
          `${CALLBACK}?error=access_denied&state=s+1&iss=https%3A%2F%2Fparley.example`
        )
        yield* requests.signIn(other, agent.id)
        yield* leap(REQUEST_MS)
        assert.isUndefined(yield* requests.find(other))
        assert.isUndefined(yield* requests.allow(other, ["agent:read"]))
      }))

    it.effect("an account that ends between sign-in and answer allows nothing", () =>
      Effect.gen(function*() {
        const requests = yield* AuthorizationRequests
        const agent = yield* newcomer
        const reference = yield* begin()
        yield* requests.signIn(reference, agent.id)
        yield* (yield* Accounts).remove(agent.id)
        assert.strictEqual((yield* Effect.flip(requests.allow(reference, ["agent:read"])))._tag, "Unauthorized")
      }))

    it.effect("who had signed in before the key or the address was replaced has to sign in again", () =>
      Effect.gen(function*() {
        const accounts = yield* Accounts
        const requests = yield* AuthorizationRequests
        const agent = yield* newcomer
        const replacements = [accounts.replaceKey(agent.id), accounts.replaceEmail(agent.id, "else@example.com")]
        for (const replace of replacements) {
          const reference = yield* begin()
          yield* requests.signIn(reference, agent.id)
          yield* replace
          assert.isUndefined(yield* requests.allow(reference, ["agent:read"]))
          assert.isTrue(yield* requests.signIn(reference, agent.id))
          assert.isDefined(yield* requests.allow(reference, ["agent:read"]))
        }
      }))

    it.effect("a document is read once within its time, and a failure is not remembered", () =>
      Effect.gen(function*() {
        const { find } = yield* Clients
        const url = "https://other.example/client.json"
        assert.strictEqual((yield* Effect.flip(find(url)))._tag, "DocumentFailed")
        documents.set(url, { text: document({ client_id: url }), cacheControl: "max-age=600" })
        const before = fetched.length
        assert.deepStrictEqual(yield* find(url), {
          id: url,
          source: "document",
          redirectUris: [CALLBACK],
          name: "Host"
        })
        yield* leap("9 minutes")
        yield* find(url)
        assert.strictEqual(fetched.length, before + 1)
        documents.set(url, { text: document({ client_id: HOST }), cacheControl: undefined })
        yield* leap("1 minute")
        const changed = yield* Effect.flip(find(url))
        assert.strictEqual(changed._tag === "DocumentFailed" && changed.reason, "it does not describe this client")
        assert.strictEqual(fetched.length, before + 2)
      }))

    it.effect("no more than 32 documents are read at once, and others are refused at once", () =>
      Effect.gen(function*() {
        const { find } = yield* Clients
        const answered = yield* Deferred.make<void>()
        const urls = Array.from({ length: 40 }, (_, i) => `https://slow.example/${i}.json`)
        for (const url of urls) {
          slow.set(url, answered)
          documents.set(url, { text: document({ client_id: url }), cacheControl: undefined })
        }
        const before = fetched.length
        const finding = yield* Effect.forEach(urls, (url) => Effect.forkChild(Effect.result(find(url))))
        yield* Effect.promise(() =>
          eventually("the refusals", () => finding.filter((one) => one.pollUnsafe()).length === 8 || undefined)
        )
        assert.strictEqual(fetched.length - before, 32)
        yield* Deferred.succeed(answered, undefined)
        const results = yield* Fiber.joinAll(finding)
        assert.strictEqual(results.filter(Result.isSuccess).length, 32)
        for (const url of urls) slow.delete(url)
        assert.isDefined(yield* find(urls.at(-1)!))
      }))

    it.effect("known hosts work although their documents answer servers with 403, as claude.ai's does; a document that can be read counts", () =>
      Effect.gen(function*() {
        const { find } = yield* Clients
        const claude = "https://claude.ai/oauth/mcp-oauth-client-metadata"
        const callback = "https://claude.ai/api/mcp/auth_callback"
        assert.deepStrictEqual(yield* find(claude), {
          id: claude,
          source: "document",
          redirectUris: [callback],
          name: "Claude"
        })
        documents.set(claude, {
          text: document({ client_id: claude, client_name: "New", redirect_uris: [CALLBACK] }),
          cacheControl: undefined
        })
        assert.deepStrictEqual((yield* find(claude))?.redirectUris, [CALLBACK])
        // Claude Code's document has no port, and its requests have one (claude-code 37747). opencode's path is not in
        // its document (50510).
        const paths = [["claude-code-client-metadata", "/callback", "Request"], [
          "claude-code-client-metadata",
          "/other",
          "Page"
        ]] as const
        for (const [name, path, outcome] of paths) {
          const client = yield* find(`https://claude.ai/oauth/${name}`)
          const query = new URLSearchParams({
            response_type: "code",
            client_id: client!.id,
            redirect_uri: `http://localhost:3118${path}`,
            code_challenge: challenge,
            code_challenge_method: "S256"
          })
          assert.strictEqual(readAuthorization(query, client, BASE, [])._tag, outcome)
        }
        const opencode = yield* find("https://opencode.ai/oauth/opencode/client.json")
        assert.strictEqual(
          redirectTo("http://127.0.0.1:19876/mcp/oauth/callback", opencode!.redirectUris, []),
          undefined
        )
      }))

    it.effect("a caller's limit for documents counts only what is fetched", () =>
      Effect.gen(function*() {
        const { find } = yield* Clients
        const url = "https://limited.example/client.json"
        const refuse = Effect.fail("too many" as const)
        documents.set(url, { text: document({ client_id: url }), cacheControl: undefined })
        assert.strictEqual(yield* Effect.flip(find(url, refuse)), "too many")
        yield* find(url)
        assert.strictEqual((yield* find(url, refuse))?.id, url)
      }))

    it.effect("registered clients are known by their id, and show their secret as they said they would", () =>
      Effect.gen(function*() {
        const clients = yield* Clients
        const metadata = { redirectUris: ["http://localhost/cb"], name: "A host" }
        const open = clients.register({ ...metadata, method: "none" })
        assert.isNull(open.secret)
        assert.deepStrictEqual(yield* clients.find(open.id), {
          id: open.id,
          source: "registered",
          redirectUris: metadata.redirectUris,
          name: "A host"
        })
        assert.isTrue(clients.authenticate({ clientId: open.id, secret: null, method: "none" }))
        assert.isFalse(clients.authenticate({ clientId: open.id, secret: "x", method: "client_secret_post" }))
        const closed = clients.register({ ...metadata, method: "client_secret_basic" })
        assert.isTrue(
          clients.authenticate({ clientId: closed.id, secret: closed.secret, method: "client_secret_basic" })
        )
        for (
          const wrong of [
            { secret: closed.secret, method: "client_secret_post" },
            { secret: null, method: "none" },
            { secret: "ocs_wrong", method: "client_secret_basic" }
          ] as const
        ) assert.isFalse(clients.authenticate({ clientId: closed.id, ...wrong }))
        assert.isFalse(clients.authenticate({ clientId: "occ_unknown", secret: null, method: "none" }))
        assert.isUndefined(yield* clients.find("occ_unknown"))
        assert.isTrue(clients.authenticate({ clientId: HOST, secret: null, method: "none" }))
        assert.isFalse(clients.authenticate({ clientId: HOST, secret: "x", method: "client_secret_post" }))
      }))

    it.effect("documents on internal addresses are not fetched", () =>
      Effect.gen(function*() {
        const fetch = DocumentFetch.defaultValue()
        for (
          const [host, address] of [["10.0.0.1", ""], ["localhost", ""], ["[::1]", ""], [
            "inside.example",
            "169.254.169.254"
          ], ["two.example", "127.0.0.1"]] as const
        ) {
          const failed = yield* Effect.flip(
            fetch(new URL(`https://${host}/client.json`)).pipe(
              Effect.provideService(NameLookup, () => Effect.succeed([address]))
            )
          )
          assert.strictEqual(failed.reason, "leads to a private network")
        }
      }))
  })

  layer(Layer.empty)((it) => {
    it.effect("documents have permitted URLs, contents and times", () =>
      Effect.sync(() => {
        assert.strictEqual(documentUrl(HOST)?.href, HOST)
        for (
          const other of [
            "http://host.example/client.json",
            "https://host.example",
            "https://host.example/",
            "https://host.example:8443/c",
            "https://host.example:443/c",
            "https://user@host.example/c",
            "https://host.example/c#x",
            "https://host.example/c#",
            "https://host.example/a/../c",
            "https://host.example/a/%2e%2e/c",
            "https://HOST.example/c",
            "occ_x",
            "",
            `https://host.example/${"c".repeat(2_048)}`
          ]
        ) assert.isUndefined(documentUrl(other), other)
        for (const type of ["application/json", "Application/JSON; charset=utf-8", "application/cimd+json"])
          assert.isTrue(isJsonType(type), type)
        for (
          const type of [undefined, "", "text/json", "application/json-seq", "application/jsonx", "application/json x"]
        ) assert.isFalse(isJsonType(type), type)
        assert.deepStrictEqual(
          readDocument(HOST, document({ redirect_uris: [CALLBACK, "javascript:alert(1)"], more: 1 }), [])?.redirectUris,
          [CALLBACK]
        )
        for (
          const text of [
            "",
            "[]",
            "{",
            document({ client_id: "https://host.example/other.json" }),
            document({ redirect_uris: [] }),
            document({ redirect_uris: ["javascript:1"] }),
            document({ token_endpoint_auth_method: "client_secret_post" }),
            document({ redirect_uris: "x" })
          ]
        ) assert.isUndefined(readDocument(HOST, text, []), text)
        // ChatGPT's document prefers another method, and lists `none`.
        const chatgpt = document({
          token_endpoint_auth_method: "private_key_jwt",
          token_endpoint_auth_methods_supported: ["none", "private_key_jwt"]
        })
        assert.strictEqual(readDocument(HOST, chatgpt, [])?.name, "Host")
        assert.isTrue(document().length < MAX_DOCUMENT_BYTES)
        assert.deepStrictEqual(
          [
            undefined,
            "no-store",
            "max-age=10",
            "public, max-age=600",
            'max-age="900"',
            "max-age=999999999",
            "max-age=x"
          ].map(cacheMs),
          [300_000, 300_000, 300_000, 600_000, 900_000, 86_400_000, 300_000]
        )
      }))

    it.effect("a registration is accepted or refused by its metadata", () =>
      Effect.sync(() => {
        const uris = ["cursor://x/cb", "http://localhost:8787/cb"]
        assert.deepStrictEqual(
          readRegistration({ redirect_uris: uris, client_name: "Cursor", grant_types: ["x"] }, ["cursor"]),
          {
            redirectUris: uris,
            name: "Cursor",
            method: "none"
          }
        )
        const errorOf = (body: unknown) => {
          const read = readRegistration(body, [])
          return "error" in read ? read.error : undefined
        }
        for (
          const body of [null, [], "x", {}, { redirect_uris: "x" }, { redirect_uris: [1] }, {
            redirect_uris: [CALLBACK],
            token_endpoint_auth_method: "private_key_jwt"
          }, { redirect_uris: [CALLBACK], client_name: "a\0b" }]
        ) {
          assert.strictEqual(errorOf(body), "invalid_client_metadata", JSON.stringify(body))
        }
        for (
          const redirect_uris of [[], ["cursor://x"], Array.from({ length: 11 }, () => CALLBACK), [
            `https://host.example/${"x".repeat(1_200)}`
          ], [CALLBACK, "http://evil.example/"]]
        ) {
          assert.strictEqual(errorOf({ redirect_uris }), "invalid_redirect_uri", JSON.stringify(redirect_uris))
        }
      }))
  })
})
