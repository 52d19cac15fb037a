import { sha256 } from "#infrastructure/platform/Ids"
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import { randomBytes } from "node:crypto"
import { Client } from "pg"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { UNSOUND, WITNESS } from "../support/Invariants.ts"
import { Moment } from "../support/Moment.ts"
import { agentOf, type Server, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, freshMsgId, history, idsOf, inbox, say } from "./Talk.ts"

const CALLERS = 200
const callers = Array.from({ length: CALLERS }, (_, i) => i)

/** Who waits for a lock. */
export const WAITING =
  "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

/** An agent as the one and as the other server knows it. */
export type Both = readonly [TestAgent, TestAgent]

/** How many answers there were of each kind. */
const tally = (answers: ReadonlyArray<Answer>): Readonly<Record<string, number>> => {
  const kinds: Record<string, number> = {}
  for (const { body, status } of answers) {
    const kind = status < 400 ? String(status) : `${status} ${(body as { readonly code: string }).code}`
    kinds[kind] = (kinds[kind] ?? 0) + 1
  }
  return kinds
}

/** What a test of one shape is given. */
export interface Race {
  readonly agents: (n: number) => Promise<ReadonlyArray<Both>>
  readonly at: (agent: Both, i: number) => TestAgent
  readonly rows: (text: string, ...values: ReadonlyArray<unknown>) => Promise<ReadonlyArray<Record<string, unknown>>>
  readonly count: (from: string, ...values: ReadonlyArray<unknown>) => Promise<unknown>
  readonly assertSound: () => Promise<void>
  readonly database: () => Client
  readonly pair: () => Pair
}

/** Two servers that share a database, and how they are. */
export interface Pair {
  readonly database: string
  readonly servers: readonly [Server, Server]
  readonly stop: () => Promise<unknown>
}

export interface Shape {
  readonly start: (env: Readonly<Record<string, string>>) => Promise<Pair>
  /** How many of them come as far as a row of one actor: each, unless one of them has that actor for both. */
  readonly abreast: number
}

/** What only one may have, and 200 callers over two servers race for; `more` are tests of one shape. */
export const races = (shape: Shape, more: (race: Race) => void = () => {}): void => {
  let pair: Pair
  let database: Client
  let serial = 0

  beforeAll(async () => {
    pair = await shape.start({ LIMITS_COLD_CONVERSATIONS: "100" })
    database = new Client(pair.database)
    await database.connect()
    await database.query(WITNESS)
  })
  afterAll(async () => {
    await database?.end()
    await pair?.stop()
  })

  /** Accounts as registration makes them, without the mail. */
  const agents = async (n: number): Promise<ReadonlyArray<Both>> => {
    const made = Array.from({ length: n }, () => {
      const handle = `race-${serial++}`
      const key = `ac_${randomBytes(32).toString("base64url")}`
      return { id: `agt_${handle}`, handle, email: `${handle}@example.com`, key }
    })
    await database.query(
      `WITH made AS (
        INSERT INTO agents (id, handle, email, key_hash, created_at, updated_at)
        SELECT id, handle, email, decode(hash, 'hex'), 0, 0
        FROM json_to_recordset($1) AS x(id text, handle text, email text, hash text)
        RETURNING id
      ) INSERT INTO inboxes (agent_id) SELECT id FROM made`,
      [JSON.stringify(made.map(({ key, ...agent }) => ({ ...agent, hash: sha256(key).toString("hex") })))]
    )
    return made.map(({ key, ...account }) =>
      pair.servers.map((server) => agentOf(server, account, key)) as [TestAgent, TestAgent]
    )
  }

  /** A caller's turn at one of the two servers. */
  const at = (agent: Both, i: number): TestAgent => agent[i % 2 === 0 ? 0 : 1]

  const rows = async (
    text: string,
    ...values: ReadonlyArray<unknown>
  ): Promise<ReadonlyArray<Record<string, unknown>>> =>
    (await database.query(text, [...values])).rows as ReadonlyArray<Record<string, unknown>>

  /**
   * Lets both servers come as far as what this statement locks, each on what it has read, before either can go on. The
   * tests use rows for this, to make a state that takes days, and in `assertSound`. What they assert is what callers
   * see.
   */
  const abreast = async (
    lock: string,
    id: string,
    race: () => ReadonlyArray<Promise<Answer>>
  ): Promise<ReadonlyArray<Answer>> => {
    await database.query("BEGIN")
    await database.query(lock, [id])
    const answers = Promise.all(race())
    try {
      await eventually("both at the lock", async () => (await rows(WAITING)).length === shape.abreast || undefined)
    } finally {
      await database.query("COMMIT")
    }
    return answers
  }

  const count = async (from: string, ...values: ReadonlyArray<unknown>): Promise<unknown> =>
    (await rows(`SELECT count(*)::integer AS n FROM ${from}`, ...values))[0]?.["n"]

  const assertSound = async (): Promise<void> => assert.deepStrictEqual(await rows(UNSOUND), [])

  it("exactly 100 of 200 first messages are sent; a reply through the other server frees one slot, for one message", async () => {
    const [a, ...others] = await agents(CALLERS + 1) as [Both, ...Array<Both>]
    const answers = await Promise.all(others.map((other, i) => attempt(at(a, i), other[0])))
    assert.deepStrictEqual(tally(answers), { 201: 100, "429 COLD_CAP_EXCEEDED": 100 })
    for (const answer of answers) {
      if (answer.status === 201) continue
      assert.deepInclude(answer.refused(429, "COLD_CAP_EXCEEDED").details, {
        limit: 100,
        used: 100,
        window_seconds: 86_400
      })
      assert.isNull(answer.header("retry-after"))
    }
    const reached = others[answers.findIndex(({ status }) => status === 201)]!
    const left = others.filter((_, i) => answers[i]?.status === 429)
    await say(reached[1], a[0])
    // Each through both, so the one that is reached may be told to wait at the other.
    const again = await abreast(
      "UPDATE outreach_turns SET turn = turn WHERE agent_id = $1",
      a[0].id,
      () => [...left, ...left].map((other, i) => attempt(at(a, i < left.length ? i : i + 1), other[0]))
    )
    const { "201": sent, "403 AWAITING_REPLY": waiting = 0, "429 COLD_CAP_EXCEEDED": refused = 0, ...rest } = tally(
      again
    )
    assert.deepStrictEqual([sent, waiting + refused, rest], [1, CALLERS - 1, {}])
    assert.isAtMost(waiting, 1)
    // 23 hours later the first of them is about to leave.
    await database.query(
      `WITH s AS (UPDATE cold_slots SET claimed_at = claimed_at - 82800000 WHERE agent_id = $1 RETURNING conversation_id)
      UPDATE conversations c SET created_at = c.created_at - 82800000 FROM s WHERE c.id = s.conversation_id`,
      [a[0].id]
    )
    const [another] = await agents(1) as [Both]
    const moment = new Moment()
    const soon = await attempt(a[1], another[1])
    const { details } = soon.refused(429, "COLD_CAP_EXCEEDED")
    const seconds = Number(soon.header("retry-after"))
    assert.isTrue(seconds > 3_000 && seconds <= 3_600, `${soon}`)
    moment.has(String(details?.["resets_at"]), seconds * 1_000)
    assert.deepInclude(details, { limit: 100, used: 100, window_seconds: 86_400 })
    await assertSound()
  })

  it("one of 200 invitees that accept at once gets the last seat", async () => {
    const [creator, ...others] = await agents(1 + 254 + CALLERS) as [Both, ...Array<Both>]
    const { group } = (await creator[0].http.post("/v1/groups", { name: "Full" })).ok(200, Shapes.CreatedGroup)
    const invitees = others.slice(254)
    await database.query(
      `WITH c AS (UPDATE conversations SET version = version + 1 WHERE id = $1),
      g AS (UPDATE groups SET member_count = 255 WHERE id = $1),
      m AS (
        INSERT INTO group_members (group_id, agent_id, role, joined_at, joined_seq)
        SELECT $1, a, 'member', 0, 0 FROM unnest($2::text[]) a
      ), p AS (INSERT INTO participants (agent_id, conversation_id) SELECT a, $1 FROM unnest($2::text[]) a)
      INSERT INTO group_invites (id, group_id, invitee_id, inviter_id, created_at)
      SELECT 'inv_' || a, $1, a, $3, 0 FROM unnest($4::text[]) a`,
      [group.id, others.slice(0, 254).map(([{ id }]) => id), creator[0].id, invitees.map(([{ id }]) => id)]
    )
    const answers = await abreast(
      "SELECT FROM conversations WHERE id = $1 FOR UPDATE",
      group.id,
      () => invitees.map((invitee, i) => at(invitee, i).http.post(`/v1/groups/invites/inv_${invitee[0].id}/accept`))
    )
    assert.deepStrictEqual(tally(answers), { 200: 1, "409 GROUP_FULL": CALLERS - 1 })
    for (const server of creator) {
      assert.deepInclude((await server.http.get(`/v1/groups/${group.id}`)).body, { member_count: 256 })
      assert.deepInclude((await server.http.get(`/v1/groups/${group.id}/invites`)).body, { total: CALLERS - 1 })
      assert.lengthOf(await history(server, group.id), 1)
    }
    // A member that was there before gets the message of the join once.
    assert.lengthOf(await inbox(others[0]![0]), 1)
    await assertSound()
  })

  it("one of 200 sends with one client_msg_id is stored and pushed, and all are answered with it", async () => {
    const [a, b, c, d] = await agents(4) as [Both, Both, Both, Both]
    await say(a[0], b[0])
    await say(b[1], a[1])
    const sockets = await Promise.all(
      pair.servers.flatMap((server) => [b, c].map(([{ key }]) => Socket.hello(server, key)))
    )
    const keys: Array<string> = []
    // In a conversation that stands, and as the first message of one.
    for (const to of [b, c]) {
      const client_msg_id = freshMsgId()
      keys.push(client_msg_id)
      const answers = await Promise.all(callers.map((i) => attempt(at(a, i), to[0], { client_msg_id })))
      assert.deepStrictEqual(tally(answers), { 200: CALLERS - 1, 201: 1 })
      const shown = answers.map((answer) => answer.ok(answer.status, Shapes.Message))
      const ids = new Set(shown.map(({ id }) => id))
      assert.strictEqual(ids.size, 1)
      for (const server of to) {
        const stored = await history(server, shown[0]!.conversation_id)
        assert.deepStrictEqual(idsOf(stored.filter((message) => message.client_msg_id === client_msg_id)), [...ids])
      }
    }
    // What another server has stored a socket finds when it looks: the next message here makes it look.
    for (const i of [0, 1] as const) {
      const later = [await say(d[i], b[i]), await say(d[i], c[i])]
      await Promise.all(later.map((message, n) => sockets[2 * i + n]!.message(message.id)))
      for (const agent of [b, c]) await say(agent[i], d[i])
    }
    for (const [i, socket] of sockets.entries()) {
      const pushed = socket.frames.filter(({ payload }) => payload?.["client_msg_id"] === keys[i % 2])
      assert.strictEqual(pushed.length, 1)
      await socket.close()
    }
    await assertSound()
  })

  it("one of 200 requests with one Idempotency-Key has an effect, and the others get its answer or 409", async () => {
    const [a] = await agents(1) as [Both]
    const create = (i: number) =>
      at(a, i).http.post("/v1/groups", { name: "Once" }, { "idempotency-key": "the-only-key" })
    const answers = await Promise.all(callers.map(create))
    const { "200": created = 0, "409 IDEMPOTENT_IN_PROGRESS": under = 0, ...rest } = tally(answers)
    assert.deepStrictEqual([created + under, rest], [CALLERS, {}])
    const made = answers.filter(({ status }) => status === 200)
    assert.strictEqual(made.filter((answer) => answer.header("idempotent-replay") === null).length, 1)
    assert.strictEqual(new Set(made.map(({ text }) => text)).size, 1)
    for (const answer of answers) {
      if (answer.status === 409) assert.strictEqual(answer.header("retry-after"), "1")
    }
    for (const i of [0, 1]) {
      const again = await create(i)
      assert.deepStrictEqual([again.status, again.header("idempotent-replay"), again.text], [
        200,
        "true",
        made[0]?.text
      ])
    }
    assert.deepInclude((await a[0].http.get("/v1/conversations?limit=1")).body, { total: 1 })
    await assertSound()
  })

  it("a block through one server refuses each of 200 sends through both that did not come before it", async () => {
    const pairs = await agents(8)
    const kinds = new Set<string>()
    for (let round = 0; round < 4; round++) {
      const [a, b] = [pairs[2 * round]!, pairs[2 * round + 1]!]
      const first = await say(a[0], b[0])
      await say(b[1], a[1])
      let blocked = false
      const sends = Array.from({ length: CALLERS / 4 }, async (_, i) => {
        // In a row, so that some go out before the block and some after its answer.
        const answers: Array<Answer> = []
        for (let n = 0; n < 4; n++) {
          const after = blocked
          const answer = await (i % 4 < 2 ? attempt(at(a, i), b[0]) : attempt(at(b, i), a[0]))
          if (after) answer.refused(403, "BLOCKED")
          answers.push(answer)
        }
        return answers
      })
      const newest = async (agent: TestAgent) => (await history(agent, first.conversation_id, "?limit=1"))[0]?.seq
      await eventually("a message", async () => await newest(a[0]) !== 2 || undefined)
      // By either side.
      const [by, against] = round % 2 === 0 ? [a, b] : [b, a]
      ;(await at(by, round >> 1).http.post(`/v1/contacts/${against[0].handle}/block`)).ok(200, Shapes.Confirmation)
      blocked = true
      const answers = (await Promise.all(sends)).flat()
      const { "201": sent = 0, "403 BLOCKED": refused = 0, ...rest } = tally(answers)
      assert.deepStrictEqual([sent + refused, rest], [CALLERS, {}])
      if (sent > 0 && refused > 0) kinds.add("both")
      for (const agent of [...a, ...b]) assert.strictEqual(await newest(agent), 2 + sent)
      for (const [from, to] of [[a, b], [b, a]] as const) {
        for (const i of [0, 1] as const) (await attempt(from[i], to[i])).refused(403, "BLOCKED")
      }
    }
    assert.deepStrictEqual([...kinds], ["both"], "no block came between")
    assert.deepStrictEqual(await rows("SELECT * FROM violations"), [])
    await assertSound()
  })

  more({ agents, at, rows, count, assertSound, database: () => database, pair: () => pair })
}
