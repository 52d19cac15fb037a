import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { Client } from "pg"
import sharp from "sharp"
import * as A2a from "../a2a/A2a.ts"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { Operating } from "../support/Operating.ts"
import { agentOf, freshHandle, newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"

/** None of them contains the handle, and none is in a message that somebody has got. */
const TRACES = {
  address: "wilhelmina+lanterns@paper-moon.example",
  beginning: "wilhelmina+lant",
  name: "Wilhelmina Paper-Moon",
  description: "Folds lanterns by the old harbour",
  skill: "folds a lantern of any size",
  tag: "Lantern Folding",
  presence: "gone to fold lanterns",
  notesOfOthers: "the one who folds",
  ownNotes: "buys my lanterns",
  refusedSend: "a lantern for somebody who does not want one",
  answerToNobody: "a lantern that is far too early"
}

interface Line {
  readonly handle: string
}

describe("an erasure leaves no trace of the person beside the handle", () => {
  let server: Server
  let sql: Client
  let operator: Operating
  let gone: TestAgent
  let keeper: TestAgent
  let joiner: TestAgent
  /** Requests of others whose stored answers showed the agent; asked again, they give the stored answers. */
  const repeatable: Array<{ readonly ask: () => Promise<Answer>; readonly first: Answer }> = []
  let kept: string

  const keyed = async (agent: TestAgent, method: string, path: string, json?: object): Promise<Answer> => {
    const headers = { "idempotency-key": freshHandle("key") }
    const ask = () => agent.http.request(method, path, json === undefined ? { headers } : { headers, json })
    const first = await ask()
    assert.isBelow(first.status, 300, `${first}`)
    if (agent !== gone) repeatable.push({ ask, first })
    return first
  }

  const register = async (): Promise<TestAgent> => {
    const handle = freshHandle("former")
    const http = server.http()
    const begun = await http.post("/v1/register", {
      email: TRACES.address,
      handle,
      display_name: TRACES.name,
      description: TRACES.description
    })
    const { pending_id } = begun.body as { readonly pending_id: string }
    const done = await http.post("/v1/register/verify", { pending_id, code: await server.code(TRACES.address) })
    assert.strictEqual(done.status, 200, `${done}`)
    const { agent, api_key } = done.body as { readonly agent: { readonly id: string }; readonly api_key: string }
    return agentOf(server, { id: agent.id, handle, email: TRACES.address }, api_key)
  }

  const say = (from: TestAgent, to: string, text: string) =>
    from.http.post("/v1/messages", { to, client_msg_id: freshHandle("m"), content: { text } })

  /** The tables with a row that has the text, as text or as bytes. */
  const tablesWith = async (text: string): Promise<ReadonlyArray<string>> => {
    const { rows: tables } = await sql.query<{ readonly name: string }>(`
      SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1`)
    assert.isAbove(tables.length, 30)
    const found: Array<string> = []
    for (const { name } of tables) {
      const { rowCount } = await sql.query(
        `SELECT FROM ${name} t WHERE position(lower($1) IN lower(t::text)) > 0 OR position(lower($2) IN lower(t::text)) > 0
          OR position(encode(convert_to($1, 'UTF8'), 'hex') IN t::text) > 0 LIMIT 1`,
        [text, encodeURIComponent(text)]
      )
      if (rowCount !== 0) found.push(name)
    }
    return found
  }

  /** The files of the server with the text, by their path in the data folder. */
  const filesWith = async (text: string): Promise<ReadonlyArray<string>> => {
    const entries = await readdir(server.dataDir, { recursive: true, withFileTypes: true })
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
    const found: Array<string> = []
    for (const file of files)
      if ((await readFile(file)).includes(text)) found.push(file.slice(server.dataDir.length + 1))
    return found
  }

  const everywhere = async () => {
    const found: Record<string, ReadonlyArray<string>> = {}
    for (const [name, text] of Object.entries(TRACES)) found[name] = await tablesWith(text)
    return found
  }

  const detailsOfLooks = async (): Promise<ReadonlyArray<string | null>> => {
    interface Entry {
      readonly action: string
      readonly detail: string | null
    }
    const { entries } = await operator.ok<{ readonly entries: ReadonlyArray<Entry> }>("GET", "/audit?limit=200")
    return entries.filter(({ action }) => action === "show agents").map(({ detail }) => detail)
  }

  beforeAll(async () => {
    const DATABASE_URL = await freshDatabase()
    server = await startServer({ env: { DATABASE_URL, WEBHOOK_ALLOW_PRIVATE: "loopback" } })
    sql = new Client(DATABASE_URL)
    await sql.connect()
    gone = await register()
    keeper = await newAgent(server, "keeper")
    joiner = await newAgent(server, "joiner")
    operator = await Operating.program(server)
  })
  afterAll(async () => {
    await sql?.end()
    await server?.stop()
  })

  it("everything that shows the agent is there before", async () => {
    // Its own account.
    const picture = await sharp({ create: { width: 128, height: 128, channels: 3, background: "#4080c0" } }).png()
      .toBuffer()
    assert.strictEqual(
      (await gone.http.request("PUT", `/v1/agents/${gone.handle}/avatar`, { raw: new Uint8Array(picture) })).status,
      200
    )
    await keyed(gone, "PUT", "/v1/presence", { status: "busy", custom_message: TRACES.presence })
    await keyed(gone, "PATCH", `/v1/agents/${gone.handle}`, {
      description: TRACES.description,
      skills: [{ id: "fold", name: "Fold", description: TRACES.skill, tags: [TRACES.tag] }]
    })
    assert.strictEqual((await server.http().post("/v1/agents/recover", { email: TRACES.address })).status, 200)
    await keyed(gone, "POST", "/v1/webhooks", {
      url: "http://127.0.0.1:9/",
      events: ["message.new", "contact.blocked"]
    })
    const uploads = {
      to: keeper.handle,
      filename: "plan.txt",
      content_type: "text/plain",
      size: 1,
      sha256: "0".repeat(64)
    }
    await keyed(gone, "POST", "/v1/uploads", uploads)
    await gone.http.request("PUT", "/v1/reply/active", { json: { session_id: "desk" } })
    // Others, who keep answers with it.
    await keyed(gone, "POST", "/v1/contacts", { handle: keeper.handle, notes: TRACES.ownNotes })
    await keyed(keeper, "POST", "/v1/contacts", { handle: gone.handle, notes: TRACES.notesOfOthers })
    await keyed(keeper, "PATCH", `/v1/contacts/${gone.handle}`, { notes: TRACES.notesOfOthers })
    const made = await keyed(keeper, "POST", "/v1/groups", {
      name: "Evenings",
      description: "a group",
      member_handles: [gone.handle, joiner.handle]
    })
    interface Made {
      readonly group: { readonly id: string }
      readonly add_results: ReadonlyArray<{ readonly handle: string; readonly invite_id: string }>
    }
    const { add_results, group } = made.body as Made
    const inviteOf = (agent: TestAgent) => add_results.find(({ handle }) => handle === agent.handle)?.invite_id
    await keyed(gone, "POST", `/v1/groups/invites/${inviteOf(gone)}/accept`)
    await keyed(joiner, "POST", `/v1/groups/invites/${inviteOf(joiner)}/accept`)
    await keyed(keeper, "PATCH", `/v1/groups/${group.id}`, { name: "Late evenings" })
    // Messages: one that is kept, its reading, one hidden, one refused, tasks of A2A.
    kept = "a lantern for the keeper"
    const sent = (await say(gone, keeper.handle, kept)).body as {
      readonly id: string
      readonly conversation_id: string
    }
    await keyed(keeper, "POST", `/v1/messages/${sent.id}/read`)
    ;(await say(gone, keeper.handle, TRACES.answerToNobody)).refused(403, "AWAITING_REPLY")
    await say(keeper, gone.handle, "thanks")
    await keyed(gone, "DELETE", `/v1/messages/${sent.id}`)
    await keyed(gone, "POST", "/v1/mutes", { target_kind: "agent", target_handle: keeper.handle })
    await keyed(keeper, "POST", "/v1/mutes", { target_kind: "agent", target_handle: gone.handle })
    await keyed(joiner, "POST", `/v1/contacts/${gone.handle}/block`)
    ;(await say(gone, joiner.handle, TRACES.refusedSend)).refused(403, "BLOCKED")
    const own = await A2a.connect(server, gone, keeper, "JSONRPC")
    const task = await A2a.begin(own, "fold one")
    await own.createTaskPushNotificationConfig(A2a.pushTo("http://127.0.0.1:9/tasks", { taskId: task.id }))
    await A2a.begin(await A2a.connect(server, keeper, gone, "JSONRPC"), "fold another")
    // Operators: searches as servers of before this version wrote them, words of their own, a limit of its own.
    await operator.ok("GET", `/agents?email=${encodeURIComponent(TRACES.beginning)}&limit=5`)
    await operator.ok("GET", `/agents?handle=${encodeURIComponent(TRACES.address)}`)
    await sql.query(
      `INSERT INTO audit_log (at, operator, action, reason) VALUES (1, 'ops', 'show agents', $1), (1, 'ops', 'show agents', $2), (1, 'ops', 'show agents', $3)`,
      [
        `?limit=5&email=${encodeURIComponent(TRACES.beginning)}`,
        `?email=${TRACES.address.toUpperCase()}&limit=5`,
        `?handle=${encodeURIComponent(TRACES.address)}`
      ]
    )
    await operator.ok("POST", `/agents/${gone.handle}/suspend`, { reason: `mail of ${TRACES.address}` })
    await operator.ok("POST", `/agents/${gone.handle}/restore`, { reason: "a mistake" })
    await operator.ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", {
      value: 7,
      agent: gone.handle,
      reason: TRACES.notesOfOthers
    })

    // Presence is written down up to a second later.
    await eventually(
      "the row of its presence",
      async () => (await tablesWith(TRACES.presence)).includes("presences") || undefined
    )
    assert.deepStrictEqual(await everywhere(), {
      address: ["agents", "audit_log", "code_addresses", "codes", "idempotency_keys"],
      beginning: ["agents", "audit_log", "code_addresses", "codes", "idempotency_keys"],
      name: ["agents", "codes", "idempotency_keys"],
      description: ["agents", "codes", "idempotency_keys"],
      skill: ["agent_skills", "idempotency_keys"],
      tag: ["agent_skills", "agent_tags", "idempotency_keys"],
      presence: ["idempotency_keys", "presences"],
      notesOfOthers: ["audit_log", "contacts", "idempotency_keys", "limit_changes"],
      ownNotes: ["contacts", "idempotency_keys"],
      // What was refused was never stored.
      refusedSend: [],
      answerToNobody: []
    })
    assert.isAtLeast(repeatable.filter(({ first }) => first.text.includes(TRACES.name)).length, 4)
  })

  it("afterwards no table and no file has a trace, and other agents' repeated requests are answered as before, with null for its texts", async () => {
    await operator.ok("POST", `/agents/${gone.handle}/erase`, {
      confirm: gone.handle,
      reason: `asked by ${TRACES.address}`
    })
    // The address goes last.
    await eventually(
      "the end of the erasure",
      async () =>
        (await sql.query("SELECT FROM agents WHERE id = $1 AND email LIKE 'erased:%'", [gone.id])).rowCount || undefined
    )
    const none = Object.fromEntries(Object.keys(TRACES).map((name) => [name, [] as ReadonlyArray<string>]))
    // An operator's own words are the operator's; only the address in them is masked.
    assert.deepStrictEqual(await everywhere(), { ...none, notesOfOthers: ["audit_log"] })
    for (const text of Object.values(TRACES)) {
      assert.deepStrictEqual((await filesWith(text)).filter((file) => !file.startsWith("outbox/")), [])
    }
    // The search finds what is there.
    assert.isNotEmpty(await filesWith(TRACES.address))
    assert.include(await tablesWith(kept), "messages")

    for (const { ask, first } of repeatable) {
      const again = await ask()
      assert.deepStrictEqual([again.status, again.header("idempotent-replay")], [first.status, "true"], `${again}`)
      const nulled = JSON.parse(
        first.text,
        function(this: Record<string, unknown>, key: string, value: unknown) {
          return this["handle"] === gone.handle && ["display_name", "description", "avatar_url", "notes"].includes(key)
            ? null
            : value
        }
      ) as unknown
      assert.deepStrictEqual(again.body, nulled, `${again}`)
    }
    const log = await sql.query<{ readonly reason: string }>("SELECT reason FROM audit_log WHERE action = 'erase'")
    assert.deepStrictEqual(log.rows, [{ reason: "asked by ****" }])
  })

  it("later searches of operators for the address are not stored either", async () => {
    for (
      const query of [
        `email=${encodeURIComponent(TRACES.address)}`,
        `limit=5&email=${TRACES.beginning}`,
        `handle=${TRACES.address}`
      ]
    ) {
      const { agents } = await operator.ok<{ readonly agents: ReadonlyArray<Line> }>("GET", `/agents?${query}`)
      assert.deepStrictEqual(agents, [])
    }
    ;(await operator.ask("POST", `/agents/${encodeURIComponent(TRACES.address)}/disconnect`, {})).refused(
      404,
      "NOT_FOUND"
    )
    for (const text of [TRACES.address, TRACES.beginning]) assert.deepStrictEqual(await tablesWith(text), [])
    assert.deepStrictEqual((await detailsOfLooks()).slice(0, 3), ["?handle=****", "?limit=5&email=****", "?email=****"])
  })
})
