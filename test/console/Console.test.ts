import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { adminHere } from "../support/Admin.ts"
import { eventually, within } from "../support/Eventually.ts"
import { Operating } from "../support/Operating.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

const say = async (from: TestAgent, to: TestAgent, text: string): Promise<void> => {
  const answer = await from.http.post("/v1/messages", { to: to.handle, client_msg_id: text, type: "text", content: { text } })
  assert.strictEqual(answer.status, 201, `${answer}`)
}

/** The events of a stream: name and data. */
async function* eventsOf(response: Response): AsyncGenerator<readonly [string, unknown]> {
  let text = ""
  for await (const part of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(part).toString("utf8")
    for (let end = text.indexOf("\n\n"); end !== -1; end = text.indexOf("\n\n")) {
      const [, name = "", data = ""] = /^event: (.*)\ndata: (.*)$/.exec(text.slice(0, end)) ?? []
      text = text.slice(end + 2)
      yield [name, JSON.parse(data)]
    }
  }
}

describe("the operators' API of a standalone server", () => {
  let server: Server
  let operator: Operating
  beforeAll(async () => {
    server = await startServer({ env: { LIMITS_SUSPEND_REPORTS: "1", WEBHOOK_ALLOW_PRIVATE: "loopback", WEBHOOK_RETRY_SECONDS: "3600" } })
    operator = await Operating.program(server)
  })
  afterAll(() => server.stop())

  it("streams the overview until the session is over", async () => {
    const session = await Operating.signIn(server)
    const { id } = await session.ok<{ id: string }>("GET", "/session")
    const response = await fetch(`${server.url}/console/api/stream`, { headers: session.headers })
    assert.match(response.headers.get("content-type") ?? "", /^text\/event-stream/)
    assert.include(response.headers.get("cache-control") ?? "", "no-store")
    const seen: Array<string> = []
    await within("the end of the stream", (async () => {
      for await (const [name, data] of eventsOf(response)) {
        seen.push(name)
        if (name === "end") assert.deepStrictEqual(data, { reason: "The session is over." })
        if (seen.length === 1) {
          const { database, nodes, totals } = data as { nodes: ReadonlyArray<Record<string, unknown>>; totals: Record<string, unknown>; database: Record<string, unknown> }
          assert.deepInclude(nodes[0], { state: "ready", role: "standalone", shards: 300, is_this: true, address: new URL(server.url).host })
          assert.notProperty(nodes[0], "history")
          assert.deepInclude(totals, { nodes: 1, silent: 0 })
          assert.deepInclude(database, { state: "ok", kind: "PGlite" })
        }
        if (seen.length === 2) await operator.ok("DELETE", `/sessions/${id}`)
      }
    })())
    assert.deepStrictEqual(seen.slice(0, 2), ["overview", "overview"])
    assert.strictEqual(seen.at(-1), "end")
  })

  it("has a history of seconds, in which sends are seen", async () => {
    const [a, b] = [await newAgent(server, "busy"), await newAgent(server, "reader")]
    await say(a, b, "counted")
    interface Told { readonly nodes: ReadonlyArray<{ readonly history: { readonly minute: { readonly sends: ReadonlyArray<number>; readonly every_seconds: number } } }> }
    const seen = await eventually("the send", async () => {
      const { nodes } = await operator.ok<Told>("GET", "/overview")
      const minute = nodes[0]!.history.minute
      return minute.sends.some((sends) => sends > 0) ? minute : undefined
    })
    assert.strictEqual(seen.every_seconds, 1)
    assert.isAtMost(seen.sends.length, 60)
  })

  it("finds agents by the beginning of handle and address, page by page, and by status", async () => {
    const made: Array<TestAgent> = []
    for (let i = 0; i < 3; i++) made.push(await newAgent(server, "findme"))
    interface Page { readonly agents: ReadonlyArray<{ handle: string; status: string }>; readonly next_cursor: string | null }
    const found: Array<string> = []
    let cursor = ""
    for (;;) {
      const page: Page = await operator.ok<Page>("GET", `/agents?handle=@FindMe&limit=2${cursor}`)
      found.push(...page.agents.map(({ handle }) => handle))
      if (page.next_cursor === null) break
      cursor = `&cursor=${page.next_cursor}`
    }
    assert.deepStrictEqual(found, made.map(({ handle }) => handle).sort())
    const [first] = made
    assert.deepStrictEqual((await operator.ok<Page>("GET", `/agents?email=${first!.email}`)).agents.map(({ handle }) => handle), [first!.handle])
    await operator.ok("POST", `/agents/${first!.handle}/suspend`, { reason: "a test" })
    assert.deepStrictEqual((await operator.ok<Page>("GET", "/agents?handle=findme&status=suspended")).agents.length, 1)
    ;(await operator.ask("POST", `/agents/${first!.handle}/suspend`, {})).refused(409, "CONFLICT")
    await operator.ok("POST", `/agents/${first!.handle}/restore`, {})
    assert.deepStrictEqual((await operator.ok<Page>("GET", "/agents?handle=findme&status=suspended")).agents.length, 0)
    ;(await operator.ask("GET", "/agents/nobody-at-all")).refused(404, "NOT_FOUND")
    ;(await operator.ask("GET", "/agents?cursor=nonsense")).refused(400, "VALIDATION_ERROR")
  })

  it("says why an agent gets nothing, as it changes, and never shows a body", async () => {
    const [a, b] = [await newAgent(server, "writer"), await newAgent(server, "hearer")]
    const why = async () => {
      const answer = await operator.ask("GET", `/agents/${b.handle}/why`)
      assert.notInclude(answer.text, "a secret of theirs")
      return answer.body as { stops_at: string | null; words: string }
    }
    assert.strictEqual((await why()).stops_at, "messages")
    await say(a, b, "a secret of theirs")
    assert.strictEqual((await why()).stops_at, "sockets")
    await b.http.post("/v1/mutes", { target_kind: "agent", target_handle: a.handle })
    assert.strictEqual((await why()).stops_at, "mutes")
    await b.http.delete(`/v1/mutes/agent/${a.handle}`)
    const socket = await Socket.hello(server, b.key)
    await eventually("delivery", async () => (await why()).stops_at === null || undefined)
    const printed = await adminHere({ ...server.place, PORT: new URL(server.url).port }, "agents", "why", b.handle)
    assert.strictEqual(printed.code, 0, printed.stderr)
    assert.match(printed.stdout, /chain\nlink +state +words\naccount +ok/)
    await socket.close()
  })

  it("a report that is dismissed counts no more; a decided one is decided", async () => {
    const [bad, good] = [await newAgent(server, "reported"), await newAgent(server, "reporter")]
    await say(bad, good, "an advertisement")
    assert.strictEqual((await good.http.post(`/v1/contacts/${bad.handle}/report`, { reason: "advertisements" })).status < 300, true)
    interface Report { readonly id: string; readonly state: string; readonly counts: boolean; readonly reported_status: string; readonly note: string | null }
    const { reports } = await operator.ok<{ reports: ReadonlyArray<Report> }>("GET", `/reports?agent=${bad.handle}`)
    assert.deepInclude(reports[0], { state: "open", counts: true, reported_status: "suspended" })
    const counted = async () =>
      (await operator.ok<{ counts: ReadonlyArray<{ what: string; counted: number }> }>("GET", `/agents/${bad.handle}`)).counts.find(({ what }) => what === "reports")?.counted
    assert.strictEqual(await counted(), 1)
    const id = reports[0]!.id
    const dismissed = await operator.ok<Report>("POST", `/reports/${id}/dismiss`, { note: "a quarrel" })
    assert.deepInclude(dismissed, { state: "dismissed", counts: false, note: "a quarrel" })
    assert.strictEqual(await counted(), 0)
    ;(await operator.ask("POST", `/reports/${id}/uphold`, {})).refused(409, "CONFLICT")
    ;(await operator.ask("POST", "/reports/rpt_none/uphold", {})).refused(404, "NOT_FOUND")
    assert.deepStrictEqual((await operator.ok<{ reports: ReadonlyArray<Report> }>("GET", `/reports?agent=${bad.handle}`)).reports, [])
    // Restored, the same report does not suspend it again.
    await operator.ok("POST", `/agents/${bad.handle}/restore`, {})
    assert.strictEqual((await operator.ok<{ status: string }>("GET", `/agents/${bad.handle}`)).status, "active")
  })

  it("shows a group with its members, found by a part of its name or by a member", async () => {
    const [a, b] = [await newAgent(server, "founder"), await newAgent(server, "member")]
    const created = (await a.http.post("/v1/groups", { name: "The Harbour Watch", member_handles: [b.handle] })).body as { group: { id: string } }
    for (const query of ["name=harbour", `member=${a.handle}`]) {
      const { groups } = await operator.ok<{ groups: ReadonlyArray<{ id: string }> }>("GET", `/groups?${query}`)
      assert.deepStrictEqual(groups.map(({ id }) => id), [created.group.id], query)
    }
    const group = await operator.ok<{ members: ReadonlyArray<{ handle: string; role: string }>; invites: number }>("GET", `/groups/${created.group.id}`)
    assert.deepStrictEqual(group.members.map(({ handle, role }) => [handle, role]), [[a.handle, "admin"]])
    assert.strictEqual(group.invites, 1)
  })

  it("a node takes no socket while it is drained, and does again", async () => {
    const agent = await newAgent(server, "drain")
    const address = new URL(server.url).host
    await operator.ok("POST", `/nodes/${encodeURIComponent(address)}/drain`)
    assert.strictEqual((await fetch(`${server.url}/v1/ready`)).status, 503)
    const refused = await Socket.open(server)
    assert.strictEqual((await refused.closed).code, 1013)
    await operator.ok("POST", `/nodes/${encodeURIComponent(address)}/undrain`)
    assert.strictEqual((await fetch(`${server.url}/v1/ready`)).status, 200)
    await (await Socket.hello(server, agent.key)).close()
    ;(await operator.ask("POST", "/nodes/10.9.9.9:1/drain")).refused(404, "NOT_FOUND")
  })

  it("refuses limits that are none, cannot be changed, or are out of bounds", async () => {
    const until = new Date(Date.now() - 1_000).toISOString()
    ;(await operator.ask("PUT", "/limits/LIMITS_NONE", { value: 1 })).refused(404, "NOT_FOUND")
    ;(await operator.ask("PUT", "/limits/LIMITS_BODY_BYTES", { value: 2_000 })).refused(409, "CONFLICT")
    ;(await operator.ask("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 0 })).refused(400, "VALIDATION_ERROR")
    ;(await operator.ask("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 5, until })).refused(400, "VALIDATION_ERROR")
    ;(await operator.ask("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 5, agent: "nobody-at-all" })).refused(404, "NOT_FOUND")
    const agent = await newAgent(server, "limited")
    ;(await operator.ask("PUT", "/limits/LIMITS_REGISTER_PER_HOUR", { value: 5, agent: agent.handle })).refused(400, "VALIDATION_ERROR")
    ;(await operator.ask("DELETE", "/limits/LIMITS_CARDS_PER_MINUTE")).refused(404, "NOT_FOUND")
    const { limits } = await operator.ok<{ limits: ReadonlyArray<{ name: string; changes: ReadonlyArray<unknown> }> }>("GET", "/limits")
    assert.isTrue(limits.every(({ changes }) => changes.length === 0))
  })
})
