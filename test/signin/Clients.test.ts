import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import {
  Client,
  type OAuthClientMetadata,
  type OAuthClientProvider,
  StreamableHTTPClientTransport,
  UnauthorizedError
} from "@modelcontextprotocol/client"
import { UnauthorizedError as OldUnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js"
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import * as oauth from "oauth4webapi"
import { newPair } from "../contract/Talk.ts"
import { type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { baseOf, pkce, SignInPage } from "./Flow.ts"

const CALLBACK = "http://127.0.0.1:33418/callback"

/** What a host keeps between its starts. The browser is the test. */
class Host implements OAuthClientProvider {
  readonly redirectUrl = CALLBACK
  readonly clientMetadata: OAuthClientMetadata = { client_name: "Host", redirect_uris: [CALLBACK] }
  private client: ReturnType<OAuthClientProvider["clientInformation"]>
  private kept: Awaited<ReturnType<OAuthClientProvider["tokens"]>>
  private verifier = ""
  /** Where the person was sent last. */
  sentTo: URL | undefined

  clientInformation() {
    return this.client
  }
  saveClientInformation(client: Awaited<typeof this.client>) {
    this.client = client
  }
  tokens() {
    return this.kept
  }
  saveTokens(tokens: NonNullable<typeof this.kept>) {
    this.kept = tokens
  }
  redirectToAuthorization(url: URL) {
    this.sentTo = url
  }
  saveCodeVerifier(verifier: string) {
    this.verifier = verifier
  }
  codeVerifier() {
    return this.verifier
  }
  /** As if the person had removed the connection in the host. */
  forget() {
    this.kept = undefined
  }
  /** As if the access token had expired. */
  spoil() {
    assert.isDefined(this.kept)
    this.kept = { ...this.kept, access_token: `oat_${"x".repeat(43)}` }
  }
}

/** A person who was sent to the page signs in with the agent's key, and allows these scopes. */
const allow = async (host: Host, agent: TestAgent, scopes?: ReadonlyArray<string>): Promise<URL> => {
  assert.isDefined(host.sentTo)
  const page = await SignInPage.open(host.sentTo)
  await page.signIn(agent)
  return page.allow(scopes)
}

describe("unmodified clients sign in by the URL alone", () => {
  let server: Server
  let base: string
  let alice: TestAgent
  let bob: TestAgent

  beforeAll(async () => {
    server = await sharedServer()
    base = await baseOf(server)
    ;({ alice, bob } = await newPair(server))
  })
  afterAll(() => server.stop())

  const url = (query = "") => new URL(`${base}/mcp${query}`)

  interface Connected {
    readonly callTool: (
      call: { readonly name: string; readonly arguments: Record<string, unknown> }
    ) => Promise<unknown>
    readonly close: () => Promise<void>
  }

  const clients: ReadonlyArray<{
    readonly name: string
    /** Whether the client asks for more rights by itself. The older one only refreshes, and then gives up. */
    readonly stepsUp: boolean
    /** Connects, or sends the person to the page. */
    readonly connect: (
      host: Host,
      query?: string
    ) => Promise<{ readonly client: Connected; readonly finish: (to: URL) => Promise<void> }>
    readonly begin: (host: Host, query?: string) => Promise<(to: URL) => Promise<void>>
  }> = [
    {
      name: "@modelcontextprotocol/client",
      stepsUp: true,
      connect: async (host, query) => {
        const transport = new StreamableHTTPClientTransport(url(query), { authProvider: host })
        const client = new Client({ name: "host", version: "1" })
        await client.connect(transport)
        return { client, finish: (to) => transport.finishAuth(to.searchParams) }
      },
      begin: async (host, query) => {
        const transport = new StreamableHTTPClientTransport(url(query), { authProvider: host })
        const error = await new Client({ name: "host", version: "1" }).connect(transport).then(
          () => undefined,
          (error: unknown) => error
        )
        assert.instanceOf(error, UnauthorizedError, String(error))
        return (to) => transport.finishAuth(to.searchParams)
      }
    },
    {
      name: "@modelcontextprotocol/sdk",
      stepsUp: false,
      connect: async (host, query) => {
        const transport = new OldTransport(url(query), { authProvider: host as never })
        const client = new OldClient({ name: "host", version: "1" })
        await client.connect(transport as never)
        return { client, finish: (to) => transport.finishAuth(to.searchParams.get("code") ?? "") }
      },
      begin: async (host, query) => {
        const transport = new OldTransport(url(query), { authProvider: host as never })
        const error = await new OldClient({ name: "host", version: "1" }).connect(transport as never).then(
          () => undefined,
          (error: unknown) => error
        )
        assert.instanceOf(error, OldUnauthorizedError, String(error))
        return (to) => transport.finishAuth(to.searchParams.get("code") ?? "")
      }
    }
  ]

  for (const { begin, connect, name, stepsUp } of clients) {
    it(`${name}: 401, discovery, registration, the page, tokens; then a refresh, and more rights when it needs them`, async () => {
      const host = new Host()
      const finish = await begin(host)
      assert.deepStrictEqual(host.sentTo?.searchParams.get("resource"), `${base}/mcp`)
      await finish(await allow(host, alice, ["agent:read"]))
      const first = await connect(host)
      const status = { name: "agentchat_get_my_status", arguments: {} }
      assert.include(JSON.stringify(await first.client.callTool(status)), alice.handle)

      host.sentTo = undefined
      const send = { name: "agentchat_send_message", arguments: { to: bob.handle, text: "with more rights" } }
      const error = await first.client.callTool(send).then(() => undefined, (error: unknown) => error)
      if (stepsUp) {
        assert.instanceOf(error, UnauthorizedError, String(error))
        assert.sameMembers(host.sentTo!.searchParams.get("scope")?.split(" ") ?? [], ["agent:read", "agent:act"])
        await first.finish(await allow(host, alice))
      } else {
        assert.include(String(error), "403")
        host.forget()
        const finish = await begin(host)
        await finish(await allow(host, alice))
      }
      await first.client.close()
      const second = await connect(host)
      assert.notInclude(JSON.stringify(await second.client.callTool(send)), "isError")
      await second.client.close()

      host.spoil()
      const third = await connect(host)
      assert.include(JSON.stringify(await third.client.callTool(status)), alice.handle)
      await third.client.close()
    })

    it(`${name}: signs in to a set of tools`, async () => {
      const host = new Host()
      const finish = await begin(host, "?tools=core")
      await finish(await allow(host, alice))
      const { client } = await connect(host, "?tools=core")
      assert.include(
        JSON.stringify(await client.callTool({ name: "agentchat_get_my_status", arguments: {} })),
        alice.handle
      )
      await client.close()
    })
  }

  it("oauth4webapi finds every answer as the specifications have it", async () => {
    const http = { [oauth.allowInsecureRequests]: true }
    const as = await oauth.processDiscoveryResponse(
      new URL(base),
      await oauth.discoveryRequest(new URL(base), { algorithm: "oauth2", ...http })
    )
    const resource = url()
    const rs = await oauth.processResourceDiscoveryResponse(
      resource,
      await oauth.resourceDiscoveryRequest(resource, http)
    )
    assert.deepStrictEqual(rs.authorization_servers, [as.issuer])
    for (const method of ["none", "client_secret_post", "client_secret_basic"] as const) {
      const client = await oauth.processDynamicClientRegistrationResponse(
        await oauth.dynamicClientRegistrationRequest(as, {
          redirect_uris: [CALLBACK],
          token_endpoint_auth_method: method
        }, http)
      )
      const auth = method === "none"
        ? oauth.None()
        : method === "client_secret_post"
        ? oauth.ClientSecretPost(client["client_secret"] as string)
        : oauth.ClientSecretBasic(client["client_secret"] as string)
      const { verifier, challenge } = pkce()
      const state = oauth.generateRandomState()
      const asked = new URL(as.authorization_endpoint!)
      for (
        const [name, value] of Object.entries({
          client_id: client.client_id,
          redirect_uri: CALLBACK,
          response_type: "code",
          code_challenge: challenge,
          code_challenge_method: "S256",
          state,
          resource: rs.resource
        })
      ) asked.searchParams.set(name, value)
      const page = await SignInPage.open(asked)
      await page.signIn(alice)
      const params = oauth.validateAuthResponse(as, client, await page.allow(), state)
      const issued = await oauth.processAuthorizationCodeResponse(
        as,
        client,
        await oauth.authorizationCodeGrantRequest(as, client, auth, params, CALLBACK, verifier, http)
      )
      const refreshed = await oauth.processRefreshTokenResponse(
        as,
        client,
        await oauth.refreshTokenGrantRequest(as, client, auth, issued.refresh_token!, http)
      )
      const answer = await oauth.protectedResourceRequest(
        refreshed.access_token,
        "POST",
        resource,
        new Headers({
          "content-type": "application/json",
          accept: "application/json, text/event-stream"
        }),
        JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" }),
        http
      )
      assert.strictEqual(answer.status, 200)
      await oauth.processRevocationResponse(
        await oauth.revocationRequest(as, client, auth, refreshed.refresh_token!, http)
      )
      // A dead token is a challenge in the form that the library parses.
      const dead = await oauth.protectedResourceRequest(
        `oat_${"x".repeat(43)}`,
        "POST",
        resource,
        new Headers(),
        "{}",
        http
      ).then(() => undefined, (error: unknown) => error)
      assert.instanceOf(dead, oauth.WWWAuthenticateChallengeError)
      assert.strictEqual(dead.cause[0]?.parameters.error, "invalid_token")
      const denied = await SignInPage.open(asked)
      const { body } = await denied.post("/deny")
      assert.throws(
        () => oauth.validateAuthResponse(as, client, new URL(body.redirect_to), state),
        oauth.AuthorizationResponseError
      )
    }
  })
})
