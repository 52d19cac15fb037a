import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client } from "pg"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { type Answer, bare } from "../support/Http.ts"
import { agentOf, newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"
import { catchUp, conversationsOf, history, inbox, newPair, type Pair, say, words } from "./Talk.ts"

let serial = 0
const freshKey = () => `key-${process.pid}-${serial++}`

const replayed = (answer: Answer): boolean => {
  const header = answer.header("idempotent-replay")
  assert.include([null, "true"], header)
  return header === "true"
}

/** What an answer says, without what belongs to the exchange. */
const said = ({ headers, status, text }: Answer) => {
  const kept = [...headers].filter(([name]) =>
    !["connection", "date", "idempotent-replay", "keep-alive", "x-request-id"].includes(name) &&
    !name.startsWith("ratelimit-")
  )
  return { status, text, headers: kept }
}

const keyed = (agent: TestAgent, method: string, path: string, key: string, json?: unknown): Promise<Answer> =>
  agent.http.request(method, path, { ...(json === undefined ? {} : { json }), headers: { "idempotency-key": key } })

const rename = (agent: TestAgent, key: string, name: string): Promise<Answer> =>
  keyed(agent, "PATCH", `/v1/agents/${agent.handle}`, key, { display_name: name })

const nameOf = async (agent: TestAgent): Promise<string> =>
  (await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent).display_name

describe("wire.md J, Idempotency", () => {
  let url: string
  let database: Client
  let one: Server
  let two: Server
  let pair: Pair
  /** The same account at the other server. */
  const atTwo = (agent: TestAgent) => agentOf(two, agent, agent.key)

  beforeAll(async () => {
    url = await freshDatabase()
    database = new Client(url)
    await database.connect()
    const env = { DATABASE_URL: url, LIMITS_OTP_COOLDOWN_SECONDS: "2" }
    ;[one, two] = await Promise.all([startServer({ env }), startServer({ env })])
    pair = await newPair(one)
  })
  afterAll(async () => {
    await database.end()
    await Promise.all([one, two].map((server) => server.stop()))
  })

  /** A second connection that holds what this statement locks, until it lets go. */
  const hold = async (statement: string, ...values: ReadonlyArray<string>): Promise<() => Promise<void>> => {
    const client = new Client(url)
    await client.connect()
    await client.query("BEGIN")
    const { rowCount } = await client.query(statement, [...values])
    assert.strictEqual(rowCount, 1, statement)
    return () => client.end()
  }

  const mark = async (key: string): Promise<{ readonly status: number | null } | undefined> =>
    (await database.query("SELECT status FROM idempotency_keys WHERE key = $1", [key])).rows[0]

  it("14. the same key and body get the first answer, whatever happened since", async () => {
    const agent = await newAgent(one, "dora")
    const key = freshKey()
    const first = await rename(agent, key, "First")
    assert.strictEqual(first.ok(200, Shapes.Agent).display_name, "First")
    assert.isFalse(replayed(first))
    assert.strictEqual((await rename(agent, freshKey(), "Second")).ok(200, Shapes.Agent).display_name, "Second")
    for (const where of [agent, atTwo(agent), agent]) {
      const again = await rename(where, key, "First")
      assert.isTrue(replayed(again))
      assert.deepStrictEqual(said(again), said(first))
      assert.notStrictEqual(again.header("x-request-id"), first.header("x-request-id"))
    }
    assert.strictEqual(await nameOf(agent), "Second", "the repetition had an effect")
  })

  it("14. acknowledging, reading, hiding and beginning a key rotation are repeated too, and done once", async () => {
    const { alice, bob, conversation } = pair
    const message = await say(alice, bob)
    const last = (await inbox(bob)).at(-1)?.delivery_id

    const ack = { last_delivery_id: last }
    const acked = await keyed(bob, "POST", "/v1/messages/sync/ack", "the-ack", ack)
    assert.strictEqual(acked.ok(200, Shapes.Acked).acked, 1)
    const ackedAgain = await keyed(bob, "POST", "/v1/messages/sync/ack", "the-ack", ack)
    assert.deepStrictEqual([replayed(ackedAgain), said(ackedAgain)], [true, said(acked)])
    assert.strictEqual((await bob.http.post("/v1/messages/sync/ack", ack)).ok(200, Shapes.Acked).acked, 0)

    const read = await keyed(bob, "POST", `/v1/messages/${message.id}/read`, "the-read")
    read.ok(200, Shapes.ReadMessage)
    const readAgain = await keyed(atTwo(bob), "POST", `/v1/messages/${message.id}/read`, "the-read")
    assert.deepStrictEqual([replayed(readAgain), said(readAgain)], [true, said(read)])

    const hidden = await keyed(bob, "DELETE", `/v1/messages/${message.id}`, "the-hide")
    hidden.ok(200, Shapes.Confirmation)
    assert.isTrue(replayed(await keyed(bob, "DELETE", `/v1/messages/${message.id}`, "the-hide")))

    const gone = await keyed(bob, "DELETE", `/v1/conversations/${conversation}`, "the-hide-of-all")
    gone.ok(200, Shapes.Hidden)
    const back = await say(alice, bob)
    assert.isTrue(replayed(await keyed(bob, "DELETE", `/v1/conversations/${conversation}`, "the-hide-of-all")))
    assert.deepStrictEqual((await history(bob, conversation)).map(({ id }) => id), [back.id], "hidden a second time")
    assert.include((await conversationsOf(bob)).map(({ id }) => id), conversation)
    await catchUp(bob)

    const rotation = await keyed(alice, "POST", `/v1/agents/${alice.handle}/rotate-key`, "the-rotation")
    const { pending_id } = rotation.ok(200, Shapes.Pending)
    const again = await keyed(alice, "POST", `/v1/agents/${alice.handle}/rotate-key`, "the-rotation")
    assert.deepStrictEqual([replayed(again), again.ok(200, Shapes.Pending).pending_id], [true, pending_id])
  })

  it("14. a repeated request creates a contact and an upload once", async () => {
    const { alice, bob } = pair
    const { handle } = await newAgent(one, "stranger")
    for (const again of [false, true]) {
      const added = await keyed(alice, "POST", "/v1/contacts", "the-contact", { handle })
      assert.deepStrictEqual([added.status, replayed(added)], [201, again])
    }
    assert.strictEqual((await alice.http.post("/v1/contacts", { handle })).status, 200)

    const upload = {
      to: bob.handle,
      filename: "a.txt",
      content_type: "text/plain",
      size: 3,
      sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }
    const id = (answer: Answer) => (answer.body as { readonly attachment_id: string }).attachment_id
    const first = await keyed(alice, "POST", "/v1/uploads", "the-upload", upload)
    assert.strictEqual(first.status, 201, `${first}`)
    const again = await keyed(atTwo(alice), "POST", "/v1/uploads", "the-upload", upload)
    assert.deepStrictEqual([replayed(again), said(again)], [true, said(first)])
    assert.notStrictEqual(id(await alice.http.post("/v1/uploads", upload)), id(first))
  })

  it("14. raw bytes are compared byte by byte, up to the size that their route takes", async () => {
    const { alice } = pair
    const key = freshKey()
    const put = (raw: Uint8Array<ArrayBuffer>, withKey: string) =>
      alice.http.request("PUT", `/v1/agents/${alice.handle}/avatar`, { raw, headers: { "idempotency-key": withKey } })
    const bytes = (last: number, size = 2_000_000) => new Uint8Array(size).fill(0xff).fill(last, size - 1)
    const first = await put(bytes(0xfe), key)
    first.refused(400, "UNSUPPORTED_FORMAT")
    const again = await put(bytes(0xfe), key)
    assert.deepStrictEqual([replayed(again), said(again)], [true, said(first)])
    ;(await put(bytes(0xfd), key)).refused(422, "IDEMPOTENCY_KEY_CONFLICT")
    ;(await put(bytes(0xfe, 5_242_881), freshKey())).refused(413, "PAYLOAD_TOO_LARGE")
  })

  it("14. a refusal is repeated like any other answer", async () => {
    const { alice, bob } = pair
    const key = freshKey()
    const path = `/v1/agents/${bob.handle}`
    const first = await keyed(alice, "PATCH", path, key, { display_name: "Not mine" })
    first.refused(403, "FORBIDDEN")
    const again = await keyed(alice, "PATCH", path, key, { display_name: "Not mine" })
    again.refused(403, "FORBIDDEN")
    assert.deepStrictEqual([replayed(first), replayed(again), said(again)], [false, true, said(first)])
  })

  it("15. the same key with another body is refused, even in its spaces, and does nothing", async () => {
    const { alice } = pair
    const key = freshKey()
    const path = `/v1/agents/${alice.handle}`
    const patch = (raw: string) => alice.http.request("PATCH", path, { raw, headers: { "idempotency-key": key } })
    ;(await patch(`{"display_name":"Fifteen"}`)).ok(200, Shapes.Agent)
    for (const body of [`{"display_name":"Other"}`, `{"display_name": "Fifteen"}`, "{}", "", "no JSON"]) {
      const answer = await patch(body)
      answer.refused(422, "IDEMPOTENCY_KEY_CONFLICT")
      assert.isFalse(replayed(answer))
    }
    assert.strictEqual(await nameOf(alice), "Fifteen")
    assert.isTrue(replayed(await patch(`{"display_name":"Fifteen"}`)))
  })

  it("16. the same key with another path or method is refused and does nothing", async () => {
    const { alice, bob } = pair
    const [first, second] = [await say(alice, bob), await say(alice, bob)]
    const key = freshKey()
    ;(await keyed(bob, "POST", `/v1/messages/${first.id}/read`, key)).ok(200, Shapes.ReadMessage)
    for (
      const [method, path] of [["POST", `/v1/messages/${second.id}/read`], [
        "DELETE",
        `/v1/messages/${first.id}`
      ]] as const
    ) {
      ;(await keyed(bob, method, path, key)).refused(422, "IDEMPOTENCY_KEY_CONFLICT")
    }
    const rows = await history(bob, pair.conversation)
    assert.strictEqual(rows.find(({ id }) => id === second.id)?.read_at, null)
    assert.include(rows.map(({ id }) => id), first.id)
    assert.isTrue(replayed(await keyed(bob, "POST", `/v1/messages/${first.id}/read`, key)))
    await catchUp(bob)
  })

  it("17. ten requests at once over two servers have one effect", async () => {
    const { alice, bob } = pair
    for (let round = 0; round < 5; round++) {
      for (let i = 0; i < 3; i++) await say(alice, bob)
      const ack = { last_delivery_id: (await inbox(bob)).at(-1)?.delivery_id }
      const key = freshKey()
      const answers = await Promise.all(
        Array.from(
          { length: 10 },
          (_, i) => keyed(i % 2 === 0 ? bob : atTwo(bob), "POST", "/v1/messages/sync/ack", key, ack)
        )
      )
      const done = answers.filter(({ status }) => status === 200)
      assert.strictEqual(done.filter((answer) => !replayed(answer)).length, 1)
      // Done a second time, it would have acknowledged none.
      for (const answer of done) assert.strictEqual(answer.ok(200, Shapes.Acked).acked, 3)
      for (const answer of answers.filter(({ status }) => status !== 200)) {
        answer.refused(409, "IDEMPOTENT_IN_PROGRESS")
        assert.strictEqual(answer.header("retry-after"), "1")
      }
      assert.isTrue(replayed(await keyed(atTwo(bob), "POST", "/v1/messages/sync/ack", key, ack)))
    }
  })

  it("17. while the first request runs, a repetition gets 409, and another body is refused", async () => {
    const { alice } = pair
    const key = freshKey()
    const release = await hold("SELECT 1 FROM agents WHERE handle = $1 FOR UPDATE", alice.handle)
    const first = rename(alice, key, "Seventeen")
    await eventually("the claim", () => mark(key))
    for (const where of [alice, atTwo(alice)]) {
      const answer = await rename(where, key, "Seventeen")
      answer.refused(409, "IDEMPOTENT_IN_PROGRESS")
      assert.deepStrictEqual([answer.header("retry-after"), replayed(answer)], ["1", false])
      ;(await rename(where, key, "Another")).refused(422, "IDEMPOTENCY_KEY_CONFLICT")
    }
    await release()
    assert.isFalse(replayed(await first))
    const again = await rename(atTwo(alice), key, "Seventeen")
    assert.deepStrictEqual([replayed(again), said(again)], [true, said(await first)])
  })

  it("17. a request whose caller hung up is finished, and the repetition finds its answer", async () => {
    const { alice } = pair
    const key = freshKey()
    const release = await hold("SELECT 1 FROM agents WHERE handle = $1 FOR UPDATE", alice.handle)
    const caller = new AbortController()
    const lost = fetch(`${one.url}/v1/agents/${alice.handle}`, {
      method: "PATCH",
      headers: { "authorization": `Bearer ${alice.key}`, "idempotency-key": key },
      body: JSON.stringify({ display_name: "Hung up" }),
      signal: caller.signal
    })
    await eventually("the claim", () => mark(key))
    caller.abort()
    assert.instanceOf(await lost.catch((error: unknown) => error), Error)
    ;(await rename(alice, key, "Hung up")).refused(409, "IDEMPOTENT_IN_PROGRESS")
    await release()
    const answer = await eventually("the answer", async () => {
      const again = await rename(atTwo(alice), key, "Hung up")
      return again.status === 409 ? undefined : again
    })
    assert.strictEqual(answer.ok(200, Shapes.Agent).display_name, "Hung up")
    assert.isTrue(replayed(answer))
  })

  it("18. two agents may use the same key", async () => {
    const { alice, bob } = pair
    const key = freshKey()
    for (const [agent, name] of [[alice, "Alice"], [bob, "Bob"]] as const) {
      const answer = await rename(agent, key, name)
      assert.deepStrictEqual([answer.ok(200, Shapes.Agent).display_name, replayed(answer)], [name, false])
    }
    assert.isTrue(replayed(await rename(bob, key, "Bob")))
  })

  it("19. a 429 is not kept: the same key works once the limit lets it", async () => {
    const agent = await newAgent(one, "erin")
    const path = `/v1/agents/${agent.handle}/rotate-key`
    // A machine may be so busy that the cooldown is over with the first request.
    const key = await eventually("a refusal", async () => {
      await agent.http.post(path)
      const key = freshKey()
      const answer = await keyed(agent, "POST", path, key)
      if (answer.status === 200) return undefined
      answer.refused(429, "OTP_COOLDOWN")
      return key
    })
    const answer = await eventually("the end of the cooldown", async () => {
      const again = await keyed(agent, "POST", path, key)
      assert.isFalse(replayed(again))
      return again.status === 429 ? undefined : again
    })
    const { pending_id } = answer.ok(200, Shapes.Pending)
    const again = await keyed(agent, "POST", path, key)
    assert.deepStrictEqual([replayed(again), again.ok(200, Shapes.Pending).pending_id], [true, pending_id])
  })

  it("20. on POST /v1/messages any key is ignored, and so it is on public routes and where a key is issued", async () => {
    const { alice, bob } = pair
    const marks = async () => (await database.query("SELECT key FROM idempotency_keys")).rows.length
    const before = await marks()
    for (const key of ["k", "k", "", "x".repeat(300), "caf\u00e9"]) {
      const sent = await alice.http.post("/v1/messages", {
        to: bob.handle,
        client_msg_id: `twenty-${serial++}`,
        content: { text: words() }
      }, { "idempotency-key": key })
      sent.ok(201, Shapes.Message)
      assert.isFalse(replayed(sent))
      const headers = { "idempotency-key": key }
      ;(await one.http().post("/v1/register", {}, headers)).refused(400, "VALIDATION_ERROR")
      ;(await alice.http.post(`/v1/agents/${alice.handle}/rotate-key/verify`, {
        pending_id: "pnd_AAAAAAAAAAAAAAAA",
        code: "123456"
      }, headers)).refused(400, "EXPIRED")
    }
    assert.strictEqual(await marks(), before)
    await catchUp(bob)
  })

  it("a key that is empty, too long or not printable ASCII is refused, and nothing is done", async () => {
    const { alice } = pair
    const before = await nameOf(alice)
    for (const key of ["", "x".repeat(256), "caf\u00e9", "tab\there"]) {
      const answer = await bare(one.url, "PATCH", `/v1/agents/${alice.handle}`, {
        "authorization": `Bearer ${alice.key}`,
        "idempotency-key": key
      }, `{"display_name":"Nobody"}`)
      answer.refused(400, "IDEMPOTENCY_KEY_INVALID")
    }
    ;(await bare(one.url, "PATCH", `/v1/agents/${alice.handle}`, { "idempotency-key": "" })).refused(
      401,
      "UNAUTHORIZED"
    )
    assert.strictEqual(await nameOf(alice), before)
    ;(await rename(alice, "x".repeat(255), "Long")).ok(200, Shapes.Agent)
    assert.isTrue(replayed(await rename(alice, "x".repeat(255), "Long")))
  })

  it("a process that is killed between effect and answer leaves one effect, and the other process answers later", async () => {
    const { alice, bob } = pair
    const dying = await startServer({ env: { DATABASE_URL: url } })
    const message = await say(alice, bob)
    const path = `/v1/messages/${message.id}/read`
    const key = freshKey()

    // Its claim is there, its effect waits; then the effect is done, and keeping the answer waits.
    const releaseEffect = await hold("SELECT 1 FROM inboxes WHERE agent_id = $1 FOR UPDATE", bob.id)
    const lost = keyed(agentOf(dying, bob, bob.key), "POST", path, key).catch((error: unknown) => error)
    await eventually("the claim", () => mark(key))
    // On a busy machine, what follows takes longer than a claim holds.
    await database.query("UPDATE idempotency_keys SET lapses_at = lapses_at + 600000 WHERE key = $1", [key])
    const releaseAnswer = await hold("SELECT 1 FROM idempotency_keys WHERE key = $1 FOR UPDATE", key)
    await releaseEffect()
    const readAt = await eventually("the effect", async () => {
      const found = (await history(bob, pair.conversation)).find(({ id }) => id === message.id)
      return found?.read_at ?? undefined
    })
    await dying.kill()
    assert.instanceOf(await lost, Error, "it was answered")
    // PostgreSQL would still do what it was told to, and the answer would be kept.
    await eventually("the end of the statement that kept the answer", async () => {
      const { rowCount } = await database.query(`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`)
      return rowCount === 0 || undefined
    })
    await releaseAnswer()
    assert.deepStrictEqual(await mark(key), { status: null })
    ;(await keyed(bob, "POST", path, key)).refused(409, "IDEMPOTENT_IN_PROGRESS")
    // Time passes: the claim is as old as one whose deadline is long over.
    await database.query("UPDATE idempotency_keys SET lapses_at = lapses_at - 655000 WHERE key = $1", [key])
    ;(await keyed(bob, "DELETE", `/v1/messages/${message.id}`, key)).refused(422, "IDEMPOTENCY_KEY_CONFLICT")
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) => keyed(i % 2 === 0 ? bob : atTwo(bob), "POST", path, key))
    )
    const done = answers.filter(({ status }) => status === 200)
    assert.strictEqual(done.filter((answer) => !replayed(answer)).length, 1)
    for (const answer of done) assert.strictEqual(answer.ok(200, Shapes.ReadMessage).read_at, readAt)
    for (const answer of answers.filter(({ status }) => status !== 200)) answer.refused(409, "IDEMPOTENT_IN_PROGRESS")
    assert.isTrue(replayed(await keyed(bob, "POST", path, key)))
  })

  it("the stored answers hold no API key", async () => {
    const { rows } = await database.query("SELECT headers, convert_from(body, 'UTF8') AS body FROM idempotency_keys")
    assert.isAbove(rows.length, 10)
    for (const row of rows) assert.notMatch(`${row.headers} ${row.body}`, /ac_[A-Za-z0-9_-]{43}|api_key/)
  })
})
