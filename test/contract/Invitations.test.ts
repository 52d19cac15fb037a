import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatClient } from "agentchatme"
import { answerIn, older, post, refusalIn, rpc } from "../mcp/Mcp.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { Operating } from "../support/Operating.ts"
import { agentOf, freshHandle, type Server, startServer } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

interface Made {
  readonly id: string
  readonly code: string
  readonly url: string
}
interface Agent {
  readonly handle: string
  readonly id: string
  readonly api_key: string
}

describe("wire.md T, on a server that asks for invitations", () => {
  let server: Server
  beforeAll(async () => {
    server = await startServer({ env: { REGISTRATION: "invite" } })
  })
  afterAll(() => server?.stop())

  const place = () => {
    const { hostname, port } = new URL(server.url)
    return { ...server.place, PUBLIC_URL: server.url, HOST: hostname, PORT: port }
  }
  /** Runs an operator's command, and returns its JSON. */
  const command = async <A>(...args: ReadonlyArray<string>): Promise<A> => {
    const { code, stderr, stdout } = await adminHere(place(), ...args, "--json")
    assert.strictEqual(code, 0, stderr)
    return JSON.parse(stdout) as A
  }
  const invite = (...args: ReadonlyArray<string>) => command<Made>("invitations", "make", ...args)
  const someone = (prefix: string) => {
    const handle = freshHandle(prefix)
    return { handle, email: `${handle}@example.com` }
  }
  const register = (body: object) => server.http().post("/v1/register", body)

  it("a registration without one is refused at every door, and no mail leaves", async () => {
    const ada = someone("ada")
    ;(await register(ada)).refused(403, "REGISTRATION_CLOSED")
    ;(await register({ ...ada, invite_code: "inv_unknown" })).refused(403, "REGISTRATION_CLOSED")
    const join = await post(
      server,
      undefined,
      rpc("tools/call", { name: "agentchat_register", arguments: ada }),
      older,
      "/join"
    )
    assert.strictEqual(refusalIn(join.body.result).refusal["code"], "REGISTRATION_CLOSED")
    assert.strictEqual(await server.outbox.count(ada.email), 0)
  })

  it("the code of one registers an agent, also in /mcp/join, and then nobody else", async () => {
    const [ada, bob] = [someone("ada"), someone("bob")]
    const { code, url } = await invite()
    assert.match(code, /^inv_[\w-]{43}$/)
    assert.strictEqual(url, `${server.url}/join#${code}`)
    const args = { ...ada, invite_code: code }
    const join = await post(
      server,
      undefined,
      rpc("tools/call", { name: "agentchat_register", arguments: args }),
      older,
      "/join"
    )
    const { pending_id } = answerIn("agentchat_register", join.body.result)
    const answer = { pending_id, code: await server.code(ada.email) }
    assert.strictEqual((await server.http().post("/v1/register/verify", answer)).status, 200)
    ;(await register({ ...bob, invite_code: code })).refused(403, "REGISTRATION_CLOSED")
  })

  it("one that names an address lets the published client register with it, unchanged", async () => {
    const ada = someone("ada")
    await invite("--email", ada.email.toUpperCase())
    const { pending_id } = await AgentChatClient.register({ ...ada, baseUrl: server.url })
    const { apiKey } = await AgentChatClient.verify(pending_id, await server.code(ada.email), { baseUrl: server.url })
    assert.match(apiKey, /^ac_/)
  })

  it("operators see how often it was used, and end it", async () => {
    const { code, id } = await invite("--uses", "2", "--note", "the Lisbon office")
    const rowOf = async () =>
      (await command<ReadonlyArray<Record<string, unknown>>>("invitations", "list")).find((row) => row["id"] === id)
    assert.deepInclude(await rowOf(), { state: "open", uses: 2, used: 0, note: "the Lisbon office", email: null })
    const shown = JSON.stringify(await rowOf())
    assert.notInclude(shown, code)
    await command("invitations", "end", id)
    assert.deepInclude(await rowOf(), { state: "ended" })
    ;(await register({ ...someone("bob"), invite_code: code })).refused(403, "REGISTRATION_CLOSED")
    const { code: failed, stderr } = await adminHere(place(), "invitations", "end", "ivt_unknown")
    assert.strictEqual(failed, 1)
    assert.include(stderr, "No invitation has this id")
    const log = await command<ReadonlyArray<{ readonly action: string; readonly reason: string | null }>>(
      "audit",
      "list"
    )
    assert.includeMembers(log.map(({ action }) => action), ["invite", "end invitation"])
    assert.notInclude(JSON.stringify(log), code)
  })

  it("one that names an address ends with the account of that address", async () => {
    const { email, handle } = someone("gone")
    const { id } = await invite("--email", email, "--uses", "5")
    await command("agents", "create", handle, "--email", email)
    assert.strictEqual((await adminHere(place(), "erase", handle, "--yes")).code, 0)
    await eventually("the end of the invitation", async () => {
      const rows = await command<ReadonlyArray<{ readonly id: string }>>("invitations", "list")
      return rows.every((row) => row.id !== id) || undefined
    })
  })

  it("pages say what holds", async () => {
    const page = async (path: string) =>
      (await fetch(`${server.url}${path}`, { headers: { accept: "text/html" } })).text()
    assert.include(await page("/"), "with an invitation of the operators")
    for (const path of ["/app", "/join"])
      assert.include(await page(path), `<meta name="registration" content="invite">`)
  })

  it("operators give an agent a new key: the old one stops working, its sockets end, its address gets a mail", async () => {
    const handle = freshHandle("nina")
    const email = `${handle}@example.com`
    const [nina] = await command<ReadonlyArray<Agent>>("agents", "create", handle, "--email", email)
    const old = agentOf(server, { id: nina!.id, handle, email }, nina!.api_key)
    const socket = await Socket.hello(server, old.key)
    // A code that was mailed before the change is good for nothing after it.
    const begun = (await server.http().post("/v1/agents/recover", { email })).body as { readonly pending_id: string }
    const code = await server.code(email)
    // A session or a program may not take over an agent.
    const program = await Operating.program(server)
    ;(await program.ask("POST", `/agents/${handle}/rekey`, {})).refused(403, "FORBIDDEN")
    ;(await program.ask("POST", `/agents/${handle}/email`, { email: "x@example.org" })).refused(403, "FORBIDDEN")
    const { api_key } = await command<Agent>("agents", "rekey", handle, "--reason", "lost it")
    await socket.closedWith(1008)
    ;(await old.http.get("/v1/agents/me")).refused(401, "UNAUTHORIZED")
    assert.strictEqual((await agentOf(server, old, api_key).http.get("/v1/agents/me")).status, 200)
    assert.include((await server.outbox.next(email)).text, "has replaced the key of your agent")
    ;(await server.http().post("/v1/agents/recover/verify", { pending_id: begun.pending_id, code }))
      .refused(400, "EXPIRED")
  })

  it("operators give an agent another address: codes go there, and the old one gets a mail", async () => {
    const [handle, other] = [freshHandle("nina"), freshHandle("otto")]
    const [email, next] = [`${handle}@example.com`, `${handle}@example.org`]
    const [nina] = await command<ReadonlyArray<Agent>>("agents", "create", handle, "--email", email)
    await command("agents", "create", other, "--email", `${other}@example.com`)
    const taken = await adminHere(place(), "agents", "set-email", handle, `${other}@example.com`)
    assert.strictEqual(taken.code, 1)
    assert.include(taken.stderr, "Another agent has this address")
    const socket = await Socket.hello(server, nina!.api_key)
    await command("agents", "set-email", handle, next, "--reason", "another mailbox")
    assert.include((await server.outbox.next(email)).text, "has changed the e-mail address of your agent")
    assert.include((await server.outbox.next(next)).text, "has changed the e-mail address of your agent")
    // The key and its sockets stay, until its owner recovers it with the new address.
    await socket.settled()
    const me = await agentOf(server, { id: nina!.id, handle, email: next }, nina!.api_key).http.get("/v1/agents/me")
    assert.strictEqual(me.status, 200)
    const begun = (await server.http().post("/v1/agents/recover", { email: next })).body as {
      readonly pending_id: string
    }
    const answer = { pending_id: begun.pending_id, code: await server.code(next) }
    assert.strictEqual((await server.http().post("/v1/agents/recover/verify", answer)).status, 200)
    await socket.closedWith(1008)
    // The old address is free for another account, and has none any more.
    await command("agents", "create", freshHandle("new"), "--email", email)
    for (const address of [next, "somebody@agents.invalid", "no address"])
      assert.strictEqual((await adminHere(place(), "agents", "set-email", handle, address)).code, 1, address)
    const log = await command<ReadonlyArray<object>>("audit", "list", "--agent", handle)
    assert.notInclude(JSON.stringify(log), "@example")
  })
})
