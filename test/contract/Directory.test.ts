import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client } from "pg"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { freshHandle, newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"

describe("wire.md J, Directory", () => {
  let server: Server
  let database: string
  let addresses = 0

  beforeAll(async () => {
    // On PostgreSQL, so that a test can suspend an agent while it runs.
    database = await freshDatabase(18)
    server = await startServer({
      env: {
        DATABASE_URL: database,
        TRUST_PROXY: "1",
        LIMITS_DIRECTORY_PER_MINUTE: "60",
        LIMITS_DIRECTORY_PER_DAY: "1000",
        LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: "30"
      }
    })
  })
  afterAll(() => server.stop())

  const setStatus = async (handle: string, status: "restricted" | "suspended"): Promise<void> => {
    const client = new Client({ connectionString: database })
    await client.connect()
    try {
      await client.query(
        `UPDATE agents SET ${
          status === "restricted" ? "restricted_until = 9e15" : "status = 'suspended'"
        } WHERE handle = $1`,
        [handle]
      )
    } finally {
      await client.end()
    }
  }

  const somewhere = (): Record<string, string> => ({ "x-forwarded-for": `198.51.100.${addresses++}` })
  const anonymously = (q: string, from = somewhere()): Promise<Answer> =>
    server.http().get(`/v1/directory?q=${q}`, from)
  const handlesOf = (page: { readonly agents: ReadonlyArray<{ readonly handle: string }> }): ReadonlyArray<string> =>
    page.agents.map(({ handle }) => handle)

  it("46. it works without a token, and then has no in_contacts", async () => {
    const alice = await newAgent(server, "alice", { display_name: "Alice", description: "about her" })
    const bob = await newAgent(server, "bob")
    const page = (await anonymously(alice.handle)).ok(200, Shapes.AnonymousDirectory)
    assert.deepInclude(page, { total: 1, limit: 20, offset: 0, next_cursor: null })
    assert.deepInclude(page.agents[0], { handle: alice.handle, display_name: "Alice", description: "about her" })
    const ask = async (): Promise<boolean | undefined> =>
      (await bob.http.get(`/v1/directory?q=${alice.handle}`)).ok(200, Shapes.Directory).agents[0]?.in_contacts
    assert.isFalse(await ask())
    await bob.client.addContact(alice.handle)
    assert.isTrue(await ask())
    const byClient = await bob.client.searchAgents(`@${alice.handle.toUpperCase()}`)
    assert.deepInclude(byClient.agents[0], { handle: alice.handle, in_contacts: true })
  })

  it("47. a header with a bad token is 401, with the body of every 401", async () => {
    const reference = await server.http().get("/v1/agents/me")
    for (const authorization of ["Bearer nonsense", "Bearer", "Basic abc", "nonsense", `Bearer ac_${"A".repeat(43)}`]) {
      const answer = await server.http().get("/v1/directory?q=al", { authorization, ...somewhere() })
      answer.refused(401, "UNAUTHORIZED")
      assert.strictEqual(answer.text, reference.text)
      assert.strictEqual(answer.header("www-authenticate"), "Bearer")
    }
  })

  it("48. a search finds prefixes of handles only, in their order, paged by offset, cursor and the client's iterator", async () => {
    const prefix = freshHandle("row")
    const caller = await newAgent(server, "caller")
    const others = await Promise.all(["-a", "0", "b", "c", "z"].map((end) => newAgent(server, `${prefix}${end}`)))
    await newAgent(server, "other", { display_name: prefix, description: prefix })
    const handles = others.map(({ handle }) => handle).sort()
    const list = async (query: string): Promise<typeof Shapes.Directory.Type> =>
      (await caller.http.get(`/v1/directory?q=${prefix}${query}`)).ok(200, Shapes.Directory)
    const whole = await list("")
    assert.deepStrictEqual(handlesOf(whole), handles)
    assert.strictEqual(whole.total, 5)
    const seen: Array<string> = []
    let cursor: string | null = ""
    while (cursor !== null) {
      const page: typeof Shapes.Directory.Type = await list(`&limit=2${cursor === "" ? "" : `&cursor=${cursor}`}`)
      seen.push(...handlesOf(page))
      cursor = page.next_cursor
    }
    assert.deepStrictEqual(seen, handles)
    assert.deepStrictEqual(handlesOf(await list("&limit=2&offset=3")), handles.slice(3))
    assert.strictEqual((await list("&limit=100")).limit, 50)
    const iterated: Array<string> = []
    for await (const agent of caller.client.searchAgentsAll(prefix)) iterated.push(agent.handle)
    assert.deepStrictEqual(iterated, handles)
  })

  it("49. q of 1 or 51 characters or none is 400; so are bad pages and an offset over 10,000", async () => {
    for (const q of ["a", "@a", "%20a%20", "", "x".repeat(51), "%00%00"]) {
      ;(await anonymously(q)).refused(400, "VALIDATION_ERROR")
    }
    ;(await server.http().get("/v1/directory", somewhere())).refused(400, "VALIDATION_ERROR")
    for (const query of ["limit=0", "limit=x", "offset=-1", "offset=10001", "cursor=x", "cursor=e30"]) {
      ;(await anonymously(`ab&${query}`)).refused(400, "VALIDATION_ERROR")
    }
    const cursor = Buffer.from(JSON.stringify({ handle: "abc" })).toString("base64url")
    ;(await anonymously(`ab&cursor=${cursor}`)).ok(200, Shapes.AnonymousDirectory)
    ;(await anonymously(`ab&offset=0&cursor=${cursor}`)).refused(400, "VALIDATION_ERROR")
    for (const q of ["x".repeat(50), "ab&offset=10000"]) (await anonymously(q)).ok(200, Shapes.AnonymousDirectory)
  })

  it("50. the 61st call of an agent in a minute is 429 and says per-minute; invalid calls count too", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    for (let i = 0; i < 60; i++) {
      const answer = await alice.http.get(`/v1/directory?q=${i % 2 === 0 ? "ab" : "a"}`)
      assert.strictEqual(answer.status, i % 2 === 0 ? 200 : 400, `${i}: ${answer}`)
    }
    const refused = await alice.http.get("/v1/directory?q=ab")
    const { details, message } = refused.refused(429, "RATE_LIMITED")
    assert.include(message, "per-minute")
    assert.deepInclude(details, { limit: 60, window: "minute" })
    const seconds = Number(refused.header("retry-after"))
    assert.isTrue(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60)
    assert.strictEqual(Math.ceil(Number(details?.["retry_after_ms"]) / 1000), seconds)
    ;(await alice.http.get("/v1/directory?q=a")).refused(429, "RATE_LIMITED")
    ;(await bob.http.get("/v1/directory?q=ab")).ok(200, Shapes.Directory)
  })

  it("51. the 31st anonymous call of an address in a minute is 429; agents and other addresses are not concerned", async () => {
    const here = somewhere()
    for (let i = 0; i < 30; i++) (await anonymously("ab", here)).ok(200, Shapes.AnonymousDirectory)
    const { details, message } = (await anonymously("ab", here)).refused(429, "RATE_LIMITED")
    assert.include(message, "per-minute")
    assert.deepInclude(details, { limit: 30, window: "minute" })
    ;(await anonymously("ab")).ok(200, Shapes.AnonymousDirectory)
    const alice = await newAgent(server, "alice")
    ;(await alice.http.get("/v1/directory?q=ab", here)).ok(200, Shapes.Directory)
  })

  it("52, 215. restricted agents are listed, suspended and deleted ones not, by tag too; a suspended caller is 403", async () => {
    const prefix = freshHandle("sts")
    const [active, deleted, restricted, suspended] = await Promise.all(
      ["a", "d", "r", "s"].map((end) => newAgent(server, `${prefix}${end}`))
    ) as [TestAgent, TestAgent, TestAgent, TestAgent]
    for (const agent of [active, deleted, restricted, suspended]) {
      ;(await agent.http.patch(`/v1/agents/${agent.handle}`, {
        skills: [{ id: "s", name: "S", description: "s", tags: [prefix] }]
      })).ok(200, Shapes.Agent)
    }
    await setStatus(restricted.handle, "restricted")
    await setStatus(suspended.handle, "suspended")
    ;(await deleted.http.delete(`/v1/agents/${deleted.handle}`)).ok(200, Shapes.Confirmation)
    for (const query of [prefix, `${prefix}&tag=${prefix}`]) {
      const page = (await anonymously(query)).ok(200, Shapes.AnonymousDirectory)
      assert.deepStrictEqual(handlesOf(page), [active.handle, restricted.handle])
      assert.strictEqual(page.total, 2)
    }
    // What is known of an agent may be a second old.
    const refused = await eventually("the suspension to be known", async () => {
      const answer = await server.http(suspended.key).get("/v1/agents/me")
      return answer.ok(200, Shapes.Agent).status === "suspended"
        ? suspended.http.get(`/v1/directory?q=${prefix}`)
        : undefined
    })
    refused.refused(403, "AGENT_SUSPENDED")
  })

  it("53. % and _ in a query are literal", async () => {
    const prefix = freshHandle("lit")
    await newAgent(server, `${prefix}x`)
    for (const q of [`${prefix.slice(0, -1)}%25`, `${prefix.slice(0, -1)}_`, "%25%25", "__", `${prefix}*`]) {
      assert.deepInclude((await anonymously(q)).ok(200, Shapes.AnonymousDirectory), { agents: [], total: 0 })
    }
    assert.strictEqual((await anonymously(prefix)).ok(200, Shapes.AnonymousDirectory).total, 1)
  })
})
