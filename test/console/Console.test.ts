import { ConsoleApi } from "#interfaces/console/ConsoleApi"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { rm } from "node:fs/promises"
import { begin, connect, get, listing, stateOf } from "../a2a/A2a.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually, within } from "../support/Eventually.ts"
import { cookieOf, newLink, Operating, redeem } from "../support/Operating.ts"
import { Receiver } from "../support/Receiver.ts"
import { makeDataDir, newAgent, type Server, sharedServer, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

const say = async (from: TestAgent, to: TestAgent, text: string): Promise<{ readonly id: string }> => {
  const answer = await from.http.post("/v1/messages", {
    to: to.handle,
    client_msg_id: text,
    type: "text",
    content: { text }
  })
  assert.strictEqual(answer.status, 201, `${answer}`)
  return answer.body as { readonly id: string }
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
  let dataDir: string
  const env = {
    LIMITS_SUSPEND_REPORTS: "1",
    WEBHOOK_ALLOW_PRIVATE: "loopback",
    WEBHOOK_RETRY_SECONDS: "1",
    WEBHOOK_CIRCUIT_IN_A_ROW: "1000",
    WEBHOOK_CIRCUIT_PER_MINUTE: "1000",
    // A secret, and a name that looks like a setting, of which the server warns.
    METRICS_TOKEN: "a-token-that-nobody-is-shown",
    RUNNER_SECRT: "nothing"
  }
  beforeAll(async () => {
    dataDir = await makeDataDir()
    server = await startServer({ dataDir, env })
    operator = await Operating.program(server)
  })
  afterAll(async () => {
    await server?.stop()
    await rm(dataDir, { recursive: true, force: true })
  })

  /** The output of a command of `npm run admin`, which asks this server, or opens its admin socket. */
  const told = async (...args: ReadonlyArray<string>): Promise<string> => {
    const { code, stderr, stdout } = await adminHere({ ...server.place, PORT: new URL(server.url).port }, ...args)
    assert.strictEqual(code, 0, stderr)
    return stdout
  }
  const toldData = async <A>(...args: ReadonlyArray<string>): Promise<A> =>
    JSON.parse(await told(...args, "--json")) as A

  it("streams the overview until the session is over", async () => {
    const session = await Operating.signIn(server)
    const { id } = await session.ok<{ id: string }>("GET", "/session")
    const response = await fetch(`${server.url}/console/api/stream`, { headers: session.headers })
    assert.match(response.headers.get("content-type") ?? "", /^text\/event-stream/)
    assert.include(response.headers.get("cache-control") ?? "", "no-store")
    const seen: Array<string> = []
    await within(
      "the end of the stream",
      (async () => {
        for await (const [name, data] of eventsOf(response)) {
          seen.push(name)
          if (name === "end") assert.deepStrictEqual(data, { reason: "The session is over." })
          if (seen.length === 1) {
            const { database, nodes, totals } = data as {
              nodes: ReadonlyArray<Record<string, unknown>>
              totals: Record<string, unknown>
              database: Record<string, unknown>
            }
            assert.deepInclude(nodes[0], {
              state: "ready",
              role: "standalone",
              shards: 300,
              is_this: true,
              address: new URL(server.url).host
            })
            assert.notProperty(nodes[0], "history")
            assert.deepInclude(totals, { nodes: 1, silent: 0 })
            // On a busy machine it answers late.
            assert.match(`${database["state"]} ${database["kind"]}`, /^(ok|slow|down) PGlite$/)
          }
          if (seen.length === 2) await operator.ok("DELETE", `/sessions/${id}`)
        }
      })()
    )
    assert.deepStrictEqual(seen.slice(0, 2), ["overview", "overview"])
    assert.strictEqual(seen.at(-1), "end")
  })

  it("has a history of seconds, which shows sends", async () => {
    const [a, b] = [await newAgent(server, "busy"), await newAgent(server, "reader")]
    await say(a, b, "counted")
    interface Told {
      readonly nodes: ReadonlyArray<
        {
          readonly history: {
            readonly minute: { readonly sends: ReadonlyArray<number>; readonly every_seconds: number }
          }
        }
      >
    }
    const seen = await eventually("the send", async () => {
      const { nodes } = await operator.ok<Told>("GET", "/overview")
      const minute = nodes[0]!.history.minute
      return minute.sends.some((sends) => sends > 0) ? minute : undefined
    })
    assert.strictEqual(seen.every_seconds, 1)
    assert.isAtMost(seen.sends.length, 60)
  })

  it("shows the settings in force and where they come from, and of a secret only that it is set", async () => {
    const answer = await operator.ask("GET", "/settings")
    assert.notInclude(answer.text, env.METRICS_TOKEN)
    const { node, settings } = answer.body as {
      readonly node: string
      readonly settings: ReadonlyArray<Readonly<Record<string, unknown>>>
    }
    assert.strictEqual(node, new URL(server.url).host)
    const named = (name: string) => settings.find((setting) => setting["name"] === name)
    assert.deepInclude(named("LIMITS_SUSPEND_REPORTS"), { value: "1", is_default: false, origin: "environment" })
    assert.deepInclude(named("METRICS_TOKEN"), { value: "(set, not shown)", is_default: false })
    assert.deepInclude(named("LIMITS_COLD_WINDOW_SECONDS"), { is_default: true, origin: "default" })
  })

  it("shows the warnings that a node has logged, the newest first, and counts those of the last hour", async () => {
    const { nodes: [node] } = await operator.ok<{
      readonly nodes: ReadonlyArray<{ readonly address: string; readonly logged_warnings: number }>
    }>("GET", "/overview")
    assert.isAtLeast(node!.logged_warnings, 1)
    const { problems } = await operator.ok<{
      readonly problems: ReadonlyArray<{ readonly at: string; readonly level: string; readonly message: string }>
    }>("GET", `/nodes/${encodeURIComponent(node!.address)}/problems`)
    const times = problems.map(({ at }) => Date.parse(at))
    assert.deepStrictEqual(times, times.toSorted((a, b) => b - a))
    const warned = problems.find(({ message }) => message.includes("RUNNER_SECRT"))
    assert.deepInclude(warned, { level: "warn" })
    ;(await operator.ask("GET", "/nodes/10.9.9.9:1/problems")).refused(404, "NOT_FOUND")
  })

  it("lists the agents that have used most of a rate limit, of their unanswered conversations, or of a budget", async () => {
    const [near, other, ...strangers] = await Promise.all(
      ["nearlimit", "otherlimit", "stranger", "stranger"].map((prefix) => newAgent(server, prefix))
    )
    await operator.ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 5, agent: near!.handle })
    await operator.ok("PUT", "/limits/LIMITS_COLD_CONVERSATIONS", { value: 2, agent: near!.handle })
    interface Near {
      readonly agent: string
      readonly limit: string
      readonly value: number
      readonly count: number
      readonly window_seconds: number
    }
    // The window of a minute may end while a busy machine makes these calls, so they are made again.
    const listed = await eventually("an agent near its limit", async () => {
      for (const agent of [near!, other!])
        for (let i = 0; i < 4; i++) await agent.http.get(`/v1/agents/${strangers[0]!.handle}`)
      const all = await operator.ok<{ readonly near: ReadonlyArray<Near> }>("GET", "/limits/near")
      return all.near.some(({ agent }) => agent === near!.handle) ? all.near : undefined
    })
    const cards = listed.find(({ agent, limit }) => agent === near!.handle && limit === "LIMITS_CARDS_PER_MINUTE")
    assert.deepInclude(cards, { value: 5, window_seconds: 60 })
    assert.isAtLeast(cards!.count, 4)
    const shares = listed.map(({ count, value }) => count / value)
    assert.deepStrictEqual(shares, shares.toSorted((a, b) => b - a))
    assert.isTrue(shares.every((share) => share >= 0.8))
    // The changed limit of one agent is not that of another.
    assert.isFalse(listed.some(({ agent }) => agent === other!.handle))
    for (const stranger of strangers) await say(near!, stranger, `hello ${stranger.handle}`)
    const cold = await eventually("its unanswered conversations", async () => {
      const { near: all } = await operator.ok<{ readonly near: ReadonlyArray<Near> }>("GET", "/limits/near")
      return all.find(({ agent, limit }) => agent === near!.handle && limit === "LIMITS_COLD_CONVERSATIONS")
    })
    assert.deepInclude(cold, { value: 2, count: 2, window_seconds: 86_400 })
    await other!.http.patch(`/v1/agents/${other!.handle}`, { settings: { budget: { per_day: 2 } } })
    for (const stranger of strangers) await say(other!, stranger, `hello ${stranger.handle}`)
    const budget = await eventually("its budget of messages", async () => {
      const { near: all } = await operator.ok<{ readonly near: ReadonlyArray<Near> }>("GET", "/limits/near")
      return all.find(({ agent, limit }) => agent === other!.handle && limit === "LIMITS_SENDS_PER_DAY")
    })
    assert.deepInclude(budget, { value: 2, count: 2, window_seconds: 86_400 })
  })

  it("creates agents whose keys work and are shown once; all or none", async () => {
    const [one, two] = [await newAgent(server, "taken"), `made-${Date.now()}`]
    const made = await operator.ok<{
      readonly agents: ReadonlyArray<{ readonly handle: string; readonly api_key: string }>
    }>("POST", "/agents", { handles: [two, `${two}-b`], display_name: "Made by an operator" })
    assert.deepStrictEqual(made.agents.map(({ handle }) => handle), [two, `${two}-b`])
    const key = made.agents[0]!.api_key
    const me = await fetch(`${server.url}/v1/agents/me`, { headers: { authorization: `Bearer ${key}` } })
    assert.deepInclude(await me.json(), { handle: two, display_name: "Made by an operator" })
    assert.notInclude((await operator.ask("GET", `/agents/${two}`)).text, key)
    assert.notInclude((await operator.ask("GET", `/audit?agent=${two}`)).text, key)
    const refused = (await operator.ask("POST", "/agents", { handles: [`${two}-c`, one.handle] })).refused(
      409,
      "CONFLICT"
    )
    assert.include(refused.message, one.handle)
    ;(await operator.ask("GET", `/agents/${two}-c`)).refused(404, "NOT_FOUND")
    ;(await operator.ask("POST", "/agents", { handles: [] })).refused(400, "VALIDATION_ERROR")
  })

  it("finds agents by the beginning of handle and address, page by page, and by status", async () => {
    const made: Array<TestAgent> = []
    for (let i = 0; i < 3; i++) made.push(await newAgent(server, "findme"))
    interface Page {
      readonly agents: ReadonlyArray<{ handle: string; status: string }>
      readonly next_cursor: string | null
    }
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
    assert.deepStrictEqual(
      (await operator.ok<Page>("GET", `/agents?email=${first!.email}`)).agents.map(({ handle }) => handle),
      [first!.handle]
    )
    await operator.ok("POST", `/agents/${first!.handle}/suspend`, { reason: "a test" })
    assert.deepStrictEqual((await operator.ok<Page>("GET", "/agents?handle=findme&status=suspended")).agents.length, 1)
    ;(await operator.ask("POST", `/agents/${first!.handle}/suspend`, {})).refused(409, "CONFLICT")
    await operator.ok("POST", `/agents/${first!.handle}/restore`, {})
    assert.deepStrictEqual((await operator.ok<Page>("GET", "/agents?handle=findme&status=suspended")).agents.length, 0)
    ;(await operator.ask("GET", "/agents/nobody-at-all")).refused(404, "NOT_FOUND")
    ;(await operator.ask("GET", "/agents?cursor=nonsense")).refused(400, "VALIDATION_ERROR")
  })

  it("lists the agents for whom most waits first, and since when, with the same by the command line", async () => {
    const [writer, slow, slower, done] = await Promise.all(
      ["writer", "slowish", "slowest", "done"].map((prefix) => newAgent(server, prefix))
    )
    for (const [to, count] of [[slow!, 1], [slower!, 3], [done!, 1]] as const) {
      await say(to, writer!, "are you there?")
      for (let i = 0; i < count; i++) await say(writer!, to, `waits ${i} ${to.handle}`)
    }
    const [envelope] = (await done!.http.get("/v1/messages/sync")).body as ReadonlyArray<{ delivery_id: string }>
    await done!.http.post("/v1/messages/sync/ack", { last_delivery_id: envelope!.delivery_id })
    interface Line {
      readonly handle: string
      readonly undelivered: number
      readonly waiting_since: string | null
    }
    const { agents, next_cursor } = await operator.ok<{ agents: ReadonlyArray<Line>; next_cursor: null }>(
      "GET",
      "/agents?order=waiting"
    )
    assert.isNull(next_cursor)
    const mine = agents.filter(({ handle }) => [slow, slower, done, writer].some((one) => one?.handle === handle))
    assert.deepStrictEqual(mine.map(({ handle, undelivered }) => [handle, undelivered]), [[slower!.handle, 3], [
      writer!.handle,
      3
    ], [slow!.handle, 1]])
    assert.isTrue(mine.every(({ waiting_since }) => Date.parse(waiting_since ?? "") > 0))
    const byHandle = await operator.ok<{ agents: ReadonlyArray<Line> }>("GET", `/agents?handle=${done!.handle}`)
    assert.deepInclude(byHandle.agents[0], { undelivered: 0, waiting_since: null })
    assert.match(await told("agents", "waiting"), new RegExp(`^${slower!.handle} .*[^]*^${slow!.handle} `, "m"))
  })

  it("shows how many tasks of an agent are open, of those who called it and of its own", async () => {
    const [a, b] = [await newAgent(server, "caller"), await newAgent(server, "called")]
    await say(a, b, "are you there?")
    await say(b, a, "I am.")
    const openTasks = async () =>
      await Promise.all(
        [a, b].map(async ({ handle }) =>
          (await operator.ok<{ open_tasks: { called: number; calling: number } }>("GET", `/agents/${handle}`))
            .open_tasks
        )
      )
    assert.deepStrictEqual(await openTasks(), [{ called: 0, calling: 0 }, { called: 0, calling: 0 }])
    const [there, here] = [await connect(server, a, b, "JSONRPC"), await connect(server, b, a, "HTTP+JSON")]
    const task = await begin(there, "one")
    await begin(there, "two")
    await begin(here, "and one for you")
    // They count as whoever asked last has seen them.
    for (const client of [there, here]) await client.listTasks(listing())
    assert.deepStrictEqual(await openTasks(), [{ called: 1, calling: 2 }, { called: 2, calling: 1 }])
    await b.http.post("/v1/messages", {
      to: a.handle,
      client_msg_id: "reply",
      content: { text: "done" },
      metadata: { reply_to: task.id }
    })
    assert.strictEqual(stateOf(await get(there, task.id)), "COMPLETED")
    assert.deepStrictEqual(await openTasks(), [{ called: 1, calling: 1 }, { called: 1, calling: 1 }])
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

  it("takes as a reason one line of visible text, by the console and by the command line", async () => {
    const [bad, good] = [await newAgent(server, "reasoned"), await newAgent(server, "reasoner")]
    await say(bad, good, "an advertisement")
    assert.strictEqual((await good.http.post(`/v1/contacts/${bad.handle}/report`)).status < 300, true)
    const { reports } = await operator.ok<{ reports: ReadonlyArray<{ id: string }> }>(
      "GET",
      `/reports?agent=${bad.handle}`
    )
    const calls = [
      ["POST", `/agents/${good.handle}/disconnect`, {}, "reason"],
      ["POST", `/agents/${good.handle}/suspend`, {}, "reason"],
      ["POST", `/agents/${bad.handle}/restore`, {}, "reason"],
      ["POST", `/agents/${good.handle}/erase`, { confirm: good.handle }, "reason"],
      ["PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 5, agent: good.handle }, "reason"],
      ["POST", `/agents/${good.handle}/connections/end`, {}, "reason"],
      ["POST", "/connections/end", {}, "reason"],
      ["POST", "/connections/refuse", { kind: "client", value: "https://host.example/c" }, "reason"],
      ["POST", `/reports/${reports[0]!.id}/dismiss`, {}, "note"]
    ] as const
    const { log } = await operator.ok<{ log: unknown }>("GET", `/agents/${good.handle}`)
    const limit = "/limits/LIMITS_CARDS_PER_MINUTE"
    for (
      const until of [
        "5",
        "Feb 30 2040",
        "2040-02-30T00:00:00Z",
        "2040-02-28T00:00:00",
        "2040-02-28",
        "2020-02-28T00:00:00Z"
      ]
    ) {
      ;(await operator.ask("PUT", limit, { value: 5, agent: good.handle, until })).refused(400, "VALIDATION_ERROR")
    }
    assert.match(
      (await operator.ask("PUT", limit, { value: 2 ** 53 })).refused(400, "VALIDATION_ERROR").message,
      /^value: .*write it as a string$/
    )
    for (const reason of ["two\nlines", "turned \u202earound", "\u200b", " "]) {
      for (const [method, path, body, field] of calls) {
        ;(await operator.ask(method, path, { ...body, [field]: reason })).refused(400, "VALIDATION_ERROR")
      }
      const told = await adminHere(server.place, "agents", "suspend", good.handle, "--reason", reason)
      assert.strictEqual(told.code, 1, told.stdout)
    }
    const after = await operator.ok<{ log: ReadonlyArray<{ action: string }>; status: string }>(
      "GET",
      `/agents/${good.handle}`
    )
    assert.strictEqual(after.status, "active")
    assert.deepStrictEqual(after.log.filter(({ action }) => !/^(show|refused) /.test(action)), log)
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

  it("dead deliveries are posted again, one or all, by the console and by the command line", async () => {
    const receiver = await Receiver.start()
    const [a, b] = [await newAgent(server, "poster"), await newAgent(server, "hooked")]
    await b.http.post("/v1/webhooks", { url: receiver.url("/dead"), events: ["message.new"] })
    interface Dead {
      readonly no: number
      readonly agent: string
      readonly attempts: number
      readonly failure: string | null
      readonly webhook_id: string
    }
    const dead = async () =>
      (await operator.ok<{ deliveries: ReadonlyArray<Dead> }>("GET", `/webhooks/dead?agent=${b.handle}`)).deliveries
    const texts = () => receiver.posts.map(({ body }) => (body.data["content"] as { text: string }).text)
    try {
      receiver.status = 500
      await say(a, b, "post one")
      await b.http.post("/v1/messages", { to: a.handle, client_msg_id: "answer", content: { text: "an answer" } })
      for (const text of ["post two", "post three", "post four"]) await say(a, b, text)
      const given = await eventually("four dead deliveries", async () => {
        const all = await dead()
        return all.length === 4 ? all : undefined
      })
      assert.deepInclude(given[0], { agent: b.handle, attempts: 2 })
      assert.include(given[0]?.failure, "500")
      receiver.status = 200
      receiver.posts.length = 0
      // One by each way.
      const first = given.find(({ no }) => no === Math.min(...given.map((one) => one.no)))!
      assert.strictEqual(
        (await operator.ok<{ retried: number }>("POST", `/webhooks/dead/${first.no}/retry`)).retried,
        1
      )
      await eventually("the first", () => texts().includes("post one") || undefined)
      const second = (await dead()).at(-1)!
      assert.match(await told("webhooks", "dead"), new RegExp(`^${second.no} .* ${b.handle} .*500`, "m"))
      assert.match(await told("webhooks", "retry", String(second.no)), /1 delivery is tried again/)
      await eventually("another", () => texts().length === 2 || undefined)
      ;(await operator.ask("POST", `/webhooks/dead/${first.no}/retry`)).refused(404, "NOT_FOUND")
      ;(await operator.ask("POST", "/webhooks/dead/999999/retry")).refused(404, "NOT_FOUND")
      // Then the rest: of this agent, and of nobody else.
      assert.match(await told("webhooks", "retry-all", "--agent", a.handle), /0 deliveries/)
      assert.match(await told("webhooks", "retry-all", "--agent", b.handle), /2 deliveries are tried again/)
      await eventually("the rest", () => texts().length === 4 || undefined)
      assert.sameMembers([...texts()], ["post one", "post two", "post three", "post four"])
      assert.deepStrictEqual(await dead(), [])
      assert.strictEqual(
        (await operator.ok<{ retried: number }>("POST", "/webhooks/retry", { webhook: first.webhook_id })).retried,
        0
      )
    } finally {
      receiver.stop()
    }
  })

  it("an agent is erased once its handle is typed, by the console and by the command line; the answer says what remains and why", async () => {
    const [gone, other] = [
      await newAgent(server, "erased", { display_name: "Erased Person" }),
      await newAgent(server, "stays")
    ]
    await say(gone, other, "what it once said")
    ;(await operator.ask("POST", `/agents/${gone.handle}/erase`, { confirm: "somebody" })).refused(
      400,
      "VALIDATION_ERROR"
    )
    ;(await operator.ask("POST", `/agents/${gone.handle}/erase`, {})).refused(400, "VALIDATION_ERROR")
    assert.strictEqual((await gone.http.get("/v1/agents/me")).status, 200)
    const socket = await Socket.hello(server, gone.key)
    interface Erased {
      readonly message: string
      readonly removed: ReadonlyArray<{ words: string }>
      readonly remains: ReadonlyArray<{ what: string; why: string }>
    }
    const erased = await operator.ok<Erased>("POST", `/agents/${gone.handle}/erase`, {
      confirm: gone.handle,
      reason: "asked by mail"
    })
    assert.include(erased.message, "is erased")
    assert.isNotEmpty(erased.removed)
    assert.include(erased.remains.map(({ what }) => what), "handle")
    assert.isTrue(erased.remains.every(({ why }) => why.length > 0))
    assert.deepStrictEqual(await socket.closed, { code: 1008, reason: "account deleted" })
    assert.strictEqual((await gone.http.get("/v1/agents/me")).status, 401)
    ;(await other.http.get(`/v1/agents/${gone.handle}`)).refused(404, "AGENT_NOT_FOUND")
    interface Detail {
      readonly status: string
      readonly email: string
      readonly display_name: string
      readonly log: ReadonlyArray<{ action: string; reason: string | null }>
    }
    const shown = await operator.ok<Detail>("GET", `/agents/${gone.handle}`)
    assert.deepInclude(shown, { status: "deleted", display_name: gone.handle })
    assert.match(shown.email, /^erased:[0-9a-f]{64}$/)
    assert.deepInclude(shown.log[0], { action: "erase", reason: "asked by mail" })
    assert.include(JSON.stringify((await other.http.get("/v1/messages/sync")).body), "what it once said")

    // Again, and by the command line, which wants to be sure.
    const unsure = await adminHere(server.place, "erase", gone.handle)
    assert.deepStrictEqual([unsure.code, unsure.stdout], [1, ""])
    assert.include(unsure.stderr, "--yes")
    const sure = await adminHere(server.place, "erase", other.handle, "--yes")
    assert.strictEqual(sure.code, 0, sure.stderr)
    assert.match(sure.stdout, /^@.* is erased\.[\s\S]*^remains +because$/m)
    assert.strictEqual((await other.http.get("/v1/agents/me")).status, 401)
    const again = await adminHere(server.place, "erase", gone.handle, "--yes", "--json")
    assert.include(again.stdout, "is erased")
  })

  it("a report is upheld: it leaves the queue and goes on counting", async () => {
    const [bad, good] = [await newAgent(server, "upheld"), await newAgent(server, "upholder")]
    await say(bad, good, "an offer")
    await good.http.post(`/v1/contacts/${bad.handle}/report`, { reason: "offers" })
    interface Report {
      readonly id: string
      readonly reported: string
      readonly state: string
      readonly counts: boolean
      readonly note?: string | null
      readonly reported_status?: string
    }
    const open = (await toldData<ReadonlyArray<Report>>("reports", "list", "--state", "open")).find(({ reported }) =>
      reported === bad.handle
    )!
    assert.deepInclude(open, { state: "open", counts: true })
    assert.match(await told("reports", "look", open.id), /an offer/)
    assert.deepInclude(await toldData<Report>("reports", "uphold", open.id, "--note", "seen"), {
      state: "upheld",
      counts: true,
      note: "seen"
    })
    assert.notInclude(await told("reports", "list", "--state", "open"), open.id)
    assert.match(await told("reports", "list"), new RegExp(`^${open.id} .* upheld +yes +offers$`, "m"))
    const counted = async () =>
      (await operator.ok<{ counts: ReadonlyArray<{ what: string; counted: number }> }>("GET", `/agents/${bad.handle}`))
        .counts.find(({ what }) => what === "reports")?.counted
    assert.strictEqual(await counted(), 1)
    const again = await adminHere({ ...server.place, PORT: new URL(server.url).port }, "reports", "dismiss", open.id)
    assert.strictEqual(again.code, 1)
    assert.include(again.stderr, "has already upheld this report")
    // Another, dismissed: it counts no more.
    const other = await newAgent(server, "upholder")
    await operator.ok("POST", `/agents/${bad.handle}/restore`, {})
    await say(bad, other, "an offer again")
    await other.http.post(`/v1/contacts/${bad.handle}/report`, { reason: "offers" })
    assert.strictEqual(await counted(), 1, "what was before the restore counts no more")
    const { reports } = await operator.ok<{ reports: ReadonlyArray<Report> }>("GET", `/reports?agent=${bad.handle}`)
    assert.deepInclude(reports[0], { state: "open", counts: true, reported_status: "suspended" })
    assert.deepInclude(await toldData<Report>("reports", "dismiss", reports[0]!.id), {
      state: "dismissed",
      counts: false
    })
    assert.strictEqual(await counted(), 0)
    // Restored, the same report does not suspend it again.
    await operator.ok("POST", `/agents/${bad.handle}/restore`, {})
    assert.strictEqual((await operator.ok<{ status: string }>("GET", `/agents/${bad.handle}`)).status, "active")
  })

  /**
   * For each call of the API, what `npm run admin` has for it (wire.md O: "the same"), and what is seen in its output;
   * null: what only a browser or a program needs.
   */
  const COMMANDS: Readonly<
    Record<
      string,
      (at: { handle: string; group: string; node: string }) => readonly [ReadonlyArray<string>, RegExp] | null
    >
  > = {
    redeem: () => null,
    signInByProxy: () => null,
    session: () => null,
    leave: () => null,
    stream: () => null,
    openapi: () => null,
    backups: () => [["backups"], /every_hours/],
    problems: ({ node }) => [["nodes", "problems", node], / warn /],
    settings: () => [["config"], /^LIMITS_SUSPEND_REPORTS +1 +environment$/m],
    sessions: () => [["console", "sessions"], /^opt_\w+ +token/m],
    // Shown with their effects in tests above, and in Access.test.ts.
    end: () => [["console", "end", "--help"], /End a session or token/],
    report: () => [["reports", "look", "--help"], /last ten messages/],
    uphold: () => [["reports", "uphold", "--help"], /still counts/],
    dismiss: () => [["reports", "dismiss", "--help"], /no longer counts/],
    retry: () => [["webhooks", "retry", "--help"], /Retry a dead delivery/],
    retryAll: () => [["webhooks", "retry-all", "--help"], /Retry all dead deliveries/],
    overview: (
      { node }
    ) => [["nodes", "list"], new RegExp(`^database +state (?:ok|slow|down).*[^]*^${node} +true +ready`, "m")],
    node: ({ node }) => [["nodes", "look", node], new RegExp(`^address +${node}$[^]*^log_level +\\w+$`, "m")],
    drain: ({ node }) => [["nodes", "drain", node], /^state +drained$/m],
    undrain: ({ node }) => [["nodes", "undrain", node], /^state +ready$/m],
    logLevel: ({ node }) => [["nodes", "log-level", node, "info"], /^log_level +info$/m],
    agents: ({ handle }) => [["agents", "find", handle], new RegExp(`^${handle} .* active`, "m")],
    createAgents: () => [["agents", "create", `told-${Date.now()}`], /^told-\d+ +ac_/m],
    agent: ({ handle }) => [["agents", "look", handle], /^inbox +last_no 0/m],
    why: ({ handle }) => [["agents", "why", handle], /^stops_at +messages$/m],
    disconnect: ({ handle }) => [["agents", "disconnect", handle], /0 sockets are closed/],
    rekey: () => [["agents", "rekey", "--help"], /a new key, which is printed once/],
    setEmail: (
      { handle }
    ) => [["agents", "set-email", handle, `${handle}@example.org`], new RegExp(`^email +${handle}@example.org$`, "m")],
    invite: () => [["invitations", "make", "--uses", "3"], /\/join#inv_/],
    invitations: () => [["invitations", "list"], /^ivt_\S+ +open +0 +3 /m],
    endInvitation: () => [["invitations", "end", "--help"], /End an invitation/],
    suspend: ({ handle }) => [["agents", "suspend", handle, "--reason", "a test"], /is suspended/],
    restore: ({ handle }) => [["agents", "restore", handle], /is active/],
    erase: () => [["erase", "--help"], /Delete an agent permanently/],
    limits: (
      { handle }
    ) => [["limits", "list", "--agent", handle], /^LIMITS_SENDS_PER_SECOND +agent +1000000 +1000000/m],
    nearLimits: () => [["limits", "near"], /^silent_nodes/m],
    changeLimit: ({ handle }) => [["limits", "set", "LIMITS_SENDS_PER_SECOND", "7", "--agent", handle], /^value +7$/m],
    takeBackLimit: (
      { handle }
    ) => [["limits", "reset", "LIMITS_SENDS_PER_SECOND", "--agent", handle], /^value +1000000$/m],
    audit: ({ handle }) => [["audit", "list", "--agent", handle, "--changes"], /take limit back/],
    groups: (
      { group, handle }
    ) => [["groups", "find", "--member", handle, "--name", "Compan"], new RegExp(`^${group} +Companions`, "m")],
    group: ({ group, handle }) => [["groups", "look", group], new RegExp(`^${handle} +admin`, "m")],
    reports: () => [["reports", "list", "--limit", "1"], /^id +when +reported/m],
    announcements: () => [["announcements", "list"], /announcements/],
    announce: () => [["announcements", "send", "--help"], /Tell all agents/],
    tell: ({ handle }) => [["announcements", "tell", handle, "Hello"], /is told/],
    // Shown with their effects in test/contract/Moderation.test.ts.
    removeMessage: () => [["content", "remove", "--help"], /Empty a message/],
    quarantineFile: () => [["content", "quarantine", "--help"], /Hide a file/],
    releaseFile: () => [["content", "release", "--help"], /Show a quarantined file/],
    promoteMember: () => [["groups", "promote", "--help"], /Make a member an admin/],
    removeMember: () => [["groups", "remove", "--help"], /Remove a member/],
    deleteGroup: () => [["groups", "delete", "--help"], /Delete a group/],
    dead: () => [["webhooks", "dead"], /^no +died +agent/m],
    connections: () => [["connections", "list"], /^live +0$/m],
    endConnections: ({ handle }) => [["connections", "end", handle], /0 connections are ended/],
    endAllConnections: () => [["connections", "end-all", "--yes"], /0 connections are ended/],
    refuseClient: () => [["connections", "refuse", "redirect_host", "Evil.example"], /0 connections are ended/],
    allowClient: () => [["connections", "allow", "redirect_host", "evil.example"], /allowed again/]
  }

  it("the command line can do what the API can do", async () => {
    const calls = Object.values(ConsoleApi.groups).flatMap((group) => Object.keys(group.endpoints))
    assert.sameMembers(Object.keys(COMMANDS), calls)
    const { handle, http } = await newAgent(server, "commanded")
    const { group } = (await http.post("/v1/groups", { name: "Companions", member_handles: [] })).body as {
      group: { id: string }
    }
    const at = { handle, group: group.id, node: new URL(server.url).host }
    for (const [call, command] of Object.entries(COMMANDS)) {
      const given = command(at)
      if (given !== null) assert.match(await told(...given[0]), given[1], call)
    }
  })

  /** Calls that sessions and programs may not make, because they give somebody the agent. */
  const COMMAND_LINE: ReadonlyArray<string> = ["rekey", "setEmail"]

  /** The action that the audit log has for a call; a look is `show` and the call's name. */
  const ACTIONS: Readonly<Record<string, string>> = {
    redeem: "open console session",
    leave: "end console access",
    end: "end console access",
    drain: "drain",
    undrain: "undrain",
    logLevel: "set log level",
    disconnect: "disconnect",
    createAgents: "create",
    suspend: "suspend",
    restore: "restore",
    erase: "erase",
    invite: "invite",
    endInvitation: "end invitation",
    changeLimit: "change limit",
    takeBackLimit: "take limit back",
    uphold: "uphold report",
    dismiss: "dismiss report",
    announce: "announce",
    tell: "announce",
    removeMessage: "remove message",
    quarantineFile: "quarantine file",
    releaseFile: "release file",
    promoteMember: "make admin",
    removeMember: "remove member",
    deleteGroup: "delete group",
    retry: "retry webhook",
    retryAll: "retry webhooks",
    endConnections: "end connections",
    endAllConnections: "end all connections",
    refuseClient: "refuse redirect host",
    allowClient: "allow redirect host"
  }

  it("every call of the API leaves a line in the audit log, with who and about whom; a refused change too", async () => {
    const [about, ...others] = await Promise.all(["about", "first", "second"].map((prefix) => newAgent(server, prefix)))
    const founder = await newAgent(server, "founder")
    const made = await founder.http.post("/v1/groups", { name: "Watched", member_handles: [about!.handle] })
    const { add_results: [added], group } = made.body as {
      readonly group: { readonly id: string }
      readonly add_results: ReadonlyArray<{ readonly invite_id: string }>
    }
    assert.strictEqual((await about!.http.post(`/v1/groups/invites/${added!.invite_id}/accept`)).status, 200)
    const { attachment_id: file } = (await others[1]!.http.post("/v1/uploads", {
      to: about!.handle,
      filename: "a.txt",
      content_type: "text/plain",
      size: 1,
      sha256: "0".repeat(64)
    })).body as { readonly attachment_id: string }
    let removable = { id: "" }
    for (const other of others) {
      removable = await say(other, about!, "a word")
      await about!.http.post(`/v1/contacts/${other.handle}/report`, { reason: "words" })
    }
    const reports = (await operator.ok<{ reports: ReadonlyArray<{ id: string; reporter: string }> }>("GET", "/reports"))
      .reports
      .filter(({ reporter }) => reporter === about!.handle)
    const receiver = await Receiver.start()
    receiver.status = 500
    await about!.http.post("/v1/webhooks", { url: receiver.url("/watched"), events: ["message.new"] })
    await say(await newAgent(server, "third"), about!, "for the webhook")
    const dead = await eventually(
      "a dead delivery",
      async () =>
        (await operator.ok<{ deliveries: ReadonlyArray<{ no: number }> }>(
          "GET",
          `/webhooks/dead?agent=${about!.handle}`
        )).deliveries[0]
    )
    receiver.stop()

    interface Entry {
      readonly no: number
      readonly operator: string | null
      readonly action: string
      readonly agent: string | null
    }
    const newest = async () => (await operator.ok<{ entries: ReadonlyArray<Entry> }>("GET", "/audit?limit=20")).entries
    const me = (await operator.ok<{ operator: string }>("GET", "/session")).operator
    const bodies: Readonly<Record<string, unknown>> = {
      logLevel: { level: "debug" },
      changeLimit: { value: 900, agent: about!.handle },
      retryAll: { agent: about!.handle },
      createAgents: { handles: [`${about!.handle}-b`] },
      suspend: { reason: "a test" },
      announce: { text: "An announcement" },
      tell: { text: "An announcement" },
      setEmail: { email: `${about!.handle}@example.net` },
      refuseClient: { kind: "redirect_host", value: "evil.example" },
      allowClient: { kind: "redirect_host", value: "evil.example" },
      erase: { confirm: others[0]!.handle }
    }
    const invitation = await operator.ok<{ readonly id: string }>("POST", "/invitations", {})
    const places = (call: string): Readonly<Record<string, string>> => ({
      handle: call === "erase" ? others[0]!.handle : about!.handle,
      address: new URL(server.url).host,
      name: "LIMITS_CARDS_PER_MINUTE",
      no: String(dead.no),
      id: call === "removeMessage"
        ? removable.id
        : call.endsWith("File")
        ? file
        : /group|member/i.test(call)
        ? group.id
        : call === "endInvitation"
        ? invitation.id
        : reports[call === "uphold" ? 0 : 1]!.id
    })
    for (
      const [call, endpoint] of Object.values(ConsoleApi.groups).flatMap((group) => Object.entries(group.endpoints))
    ) {
      // Shown in ProxySignIn.test.ts.
      if (call === "signInByProxy") continue
      const { method, path } = endpoint as { readonly method: string; readonly path: string }
      const who = call === "leave" ? await Operating.signIn(server) : operator
      const link = call === "redeem" ? await newLink(server) : undefined
      const ended = call === "end"
        ? (await (await Operating.signIn(server)).ok<{ id: string }>("GET", "/session")).id
        : undefined
      const before = (await newest())[0]!.no
      const query = call === "takeBackLimit" ? `?agent=${about!.handle}` : ""
      const address = path.replace("/console/api", "").replaceAll(/:(\w+)/g, (_, name: string) =>
        ended ?? places(call)[name] ?? name) + query
      const made = async () => {
        if (call === "stream") {
          const stop = new AbortController()
          assert.strictEqual(
            (await fetch(`${server.url}${path}`, { headers: operator.headers, signal: stop.signal })).status,
            200
          )
          stop.abort()
        } else {
          const answer = link === undefined
            ? await who.ask(method, address, method === "GET" ? undefined : bodies[call] ?? {})
            : await redeem(server, link)
          assert.strictEqual(answer.status, COMMAND_LINE.includes(call) ? 403 : 200, `${call}: ${answer}`)
        }
        const entries = (await newest()).filter(({ no }) =>
          no > before
        )
        // The newest line may be that of this very look at the audit log.
        const action = COMMAND_LINE.includes(call) ? `refused ${call}` : ACTIONS[call] ?? `show ${call}`
        return entries.slice(call === "audit" ? 1 : 0).find((entry) =>
          entry.action === action ||
          // The delivery that was retried before may be dead again.
          (call === "retryAll" && entry.action === "retry webhook")
        )
      }
      // A busy database may not take the row of a look in time: the server logs it instead.
      const line = method === "GET" ? await eventually(`the line of ${call}`, made) : await made()
      assert.isDefined(line, `${call} left no line`)
      assert.strictEqual(line?.operator, me, call)
      if (path.includes(":handle"))
        assert.strictEqual(line?.agent, places(call)["handle"], call)
    }
    for (
      const [method, address, call] of [
        ["POST", "/agents/nobody-at-all/suspend", "suspend"],
        ["PUT", "/limits/LIMITS_NONE", "changeLimit"],
        ["PUT", "/nodes/nobody/log-level", "logLevel"],
        ["POST", `/reports/${reports[0]!.id}/dismiss`, "dismiss"]
      ] as const
    ) {
      assert.isAtLeast((await operator.ask(method, address, { value: 1 })).status, 400)
      const refused = (await newest()).slice(0, 2).find(({ action }) => action === `refused ${call}`)
      assert.strictEqual(refused?.operator, me, call)
    }
  })

  it("decisions of operators are in force after a restart: limits until their time, suspensions, reports, sessions", async () => {
    const [slow, other] = [await newAgent(server, "restarted"), await newAgent(server, "spared")]
    const session = await Operating.signIn(server)
    const until = new Date(Date.now() + 3_600_000).toISOString()
    await session.ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", {
      value: 500,
      agent: slow.handle,
      until,
      reason: "a test"
    })
    await session.ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 7_000 })
    // On a busy machine the second may be over before the server reads the request.
    await eventually("a short limit", async () => {
      const until = new Date(Date.now() + 1_000).toISOString()
      return (await session.ask("PUT", "/limits/LIMITS_CONTACT_LISTS_PER_MINUTE", { value: 900, until })).status <
          300 || undefined
    })
    await session.ok("POST", `/agents/${other.handle}/suspend`, { reason: "a test" })
    const port = new URL(server.url).port
    await server.stop()
    server = await startServer({ dataDir, env: { ...env, PORT: port } })
    const limitOf = async (agent: TestAgent, path: string) =>
      (await server.http(agent.key).get(path)).header("ratelimit-limit")
    const third = await newAgent(server, "third")
    assert.strictEqual(await limitOf(slow, `/v1/agents/${third.handle}`), "500")
    assert.strictEqual(await limitOf(third, `/v1/agents/${slow.handle}`), "7000")
    await eventually("the end of its time", async () => await limitOf(third, "/v1/contacts") === "1000000" || undefined)
    assert.strictEqual((await server.http(other.key).get("/v1/contacts")).status, 403)
    const again = Operating.withSession(server, session.headers["cookie"]!.split("=")[1]!)
    interface Limit {
      readonly name: string
      readonly default: number
      readonly value: number
      readonly changes: ReadonlyArray<Record<string, unknown>>
    }
    const { limits } = await again.ok<{ limits: ReadonlyArray<Limit> }>("GET", "/limits")
    const cards = limits.find(({ name }) => name === "LIMITS_CARDS_PER_MINUTE")
    assert.deepInclude(cards, { default: 1_000_000, value: 7_000 })
    assert.deepInclude(cards?.changes.find(({ agent }) => agent === slow.handle), {
      value: 500,
      until,
      reason: "a test"
    })
    await again.ok("DELETE", `/limits/LIMITS_CARDS_PER_MINUTE?agent=${slow.handle}`)
    await again.ok("DELETE", "/limits/LIMITS_CARDS_PER_MINUTE")
    assert.strictEqual(await limitOf(slow, `/v1/agents/${third.handle}`), "1000000")
  })

  // The last one, after a restart: nobody signs in by a link for a minute.
  it("attempts to sign in with a link are limited", async () => {
    const token = await newLink(server)
    const answer = await redeem(server, token)
    const statuses: Array<number> = []
    for (let i = 0; i < 10; i++) statuses.push((await redeem(server, `opl_${String(i).repeat(43)}`)).status)
    assert.deepStrictEqual(statuses, [...Array.from({ length: 9 }, () => 404), 429])
    // The session of another server, with another database, is nobody's here.
    const session = cookieOf(answer)
    const other = await sharedServer()
    assert.strictEqual((await Operating.withSession(server, session).ask("GET", "/session")).status, 200)
    assert.strictEqual((await Operating.withSession(other, session).ask("GET", "/session")).status, 404)
    await other.stop()
    for (const secret of [token, session]) {
      assert.notInclude(server.log, secret)
      assert.notInclude(server.stdout, secret)
    }
  })
})
