import { FoundMessage } from "#domain/search/SearchApi"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { connect, type Socket } from "node:net"
import { newPair } from "../../test/contract/Talk.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Http } from "../../test/support/Http.ts"
import { newAgent, parley, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"
import { getOf, type Latencies, postOf, sendingFor, upgradeOf } from "../../test/support/Unread.ts"

/** The unread messages of the agent that floods, and the length of their texts. */
const UNREAD = 730
const TEXT = "x".repeat(30_000)
/** The open tasks of the agent that floods, with an agent that is not there. */
const TASKS = 5_000
/** How long each window is, in milliseconds. */
const WINDOW_MS = 3_000
/**
 * Requests that a flood begins in a second at most. The general budget of an agent is 12,000 in a minute, and that of
 * `/token` 1,200 for an address. An agent may use its budget in 12 seconds.
 */
const PER_SECOND = { agent: 1_000, token: 20 }
/** During a flood, the others' sends may take this many times as long as in the quiet window before it. */
const RATIO = 4
/** A median below this is no delay, whatever the ratio is. */
const FLOOR_MS = 15

interface Flood {
  readonly name: string
  readonly perSecond: number
  readonly atOnce: number
  readonly bytes: () => string
  /** The bytes that an answer begins with. */
  readonly begins: string
  /** What must be in a whole answer. */
  readonly has?: RegExp
  /** Set if a request is over as soon as this has arrived; the client then disconnects. */
  readonly until?: string
}

interface Measured {
  readonly requests: number
  readonly others: Latencies
}

/** The beginning of an answer that is kept to be checked. */
const KEPT = 16_384

/**
 * An answer with a Content-Length or in chunks, while it arrives. It keeps only the beginning of the answer, and counts
 * the rest.
 */
class Arriving {
  text = ""
  #length = 0
  #last = ""

  add(part: string): void {
    if (this.text.length < KEPT) this.text += part
    this.#length += part.length
    this.#last = (this.#last + part).slice(-5)
  }

  get isWhole(): boolean {
    const head = this.text.indexOf("\r\n\r\n")
    if (head < 0) return false
    const length = /\r\ncontent-length: (\d+)/i.exec(this.text.slice(0, head + 2))?.[1]
    return length === undefined ? this.#last === "0\r\n\r\n" : this.#length - head - 4 >= Number(length)
  }
}

/** Floods that one key, or none, can make. The others' sends must not notice them. */
describe("others' sends beside a flood", () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  let mallory: TestAgent
  let carol: TestAgent
  const table: Array<Readonly<Record<string, string | number>>> = []

  beforeAll(async () => {
    server = await startServer({ program: parley("start"), env: { LOG_LEVEL: "warn" } })
    ;[alice, bob, mallory] = await Promise.all([
      newAgent(server, "alice"),
      newAgent(server, "bob"),
      newAgent(server, "mallory")
    ])
    carol = await newAgent(server, "carol")
    for (const [one, other] of [[alice, bob], [carol, mallory]] as const) {
      await one.client.sendMessage({ to: other.handle, content: { text: "A first word." } })
      await other.client.sendMessage({ to: one.handle, content: { text: "Go on." } })
    }
    for (let sent = 0; sent < UNREAD; sent += 10) {
      await Promise.all(
        Array.from({ length: 10 }, () => carol.client.sendMessage({ to: mallory.handle, content: { text: TEXT } }))
      )
    }
    await sendingFor(alice, bob, 1_000)
  }, 120_000)
  afterAll(async () => {
    console.table(table)
    await server?.stop()
  }, 20_000)

  /** Runs the flood on connections of its own until `over` resolves. Returns the number of answered requests. */
  const flood = async (
    { atOnce, begins, bytes, has, perSecond, until }: Flood,
    over: Promise<unknown>
  ): Promise<number> => {
    const { hostname, port } = new URL(server.url)
    const state = { isOver: false }
    let answered = 0
    let begun = 0
    const began = performance.now()
    const wrong: Array<string> = []
    const sockets = new Set<Socket>()
    void over.finally(() => {
      state.isOver = true
      for (const socket of sockets) socket.destroy()
    })
    const one = (socket: Socket): Promise<void> =>
      new Promise((resolve) => {
        const answer = new Arriving()
        const done = () => {
          socket.removeAllListeners("data")
          if (!state.isOver && answer.text !== "") {
            answered++
            if (!answer.text.startsWith(begins) || has?.test(answer.text) === false)
              wrong.push(answer.text.slice(0, 600))
          }
          resolve()
        }
        socket.once("close", done)
        socket.on("data", (part: string) => {
          answer.add(part)
          if (until === undefined ? !answer.isWhole : !answer.text.includes(until))
            return
          socket.off("close", done)
          done()
        })
        socket.write(bytes().replace(/host: (parley|127\.0\.0\.1)/, `host: ${hostname}:${port}`))
      })
    await Promise.all(Array.from({ length: atOnce }, async () => {
      let socket: Socket | undefined
      while (!state.isOver) {
        const due = began + begun++ / perSecond * 1_000
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())))
        if (state.isOver) break
        if (socket === undefined || socket.destroyed) {
          socket = connect(Number(port), hostname).setEncoding("latin1")
          socket.on("error", () => undefined)
          sockets.add(socket)
        }
        await one(socket)
        if (until === undefined) continue
        sockets.delete(socket)
        socket.destroy()
      }
    }))
    assert.deepStrictEqual(wrong.slice(0, 3), [])
    return answered
  }

  /** A recipient may have at most ten thousand waiting messages. */
  const acknowledgeAll = async ({ http }: TestAgent): Promise<void> => {
    for (;;) {
      const rows = (await http.get("/v1/messages/sync?limit=500")).body as ReadonlyArray<
        { readonly delivery_id: string }
      >
      if (rows.length === 0) return
      await http.post("/v1/messages/sync/ack", { last_delivery_id: rows.at(-1)!.delivery_id })
    }
  }

  /**
   * Measures the others in a quiet window and during the flood. The best of three counts, because other work delays
   * some of them.
   */
  const measure = async (given: Flood): Promise<void> => {
    await acknowledgeAll(bob)
    const attempts: Array<{ readonly quiet: Latencies; readonly during: Measured }> = []
    const isFine = ({ during, quiet }: (typeof attempts)[number]) =>
      during.others.median < Math.max(RATIO * quiet.median, FLOOR_MS)
    do {
      const quiet = await sendingFor(alice, bob, WINDOW_MS)
      const watched = sendingFor(alice, bob, WINDOW_MS)
      const [requests, others] = await Promise.all([flood(given, watched), watched])
      attempts.push({ quiet, during: { requests, others } })
      // Nothing of the flood may be left for the next window.
      await eventually(
        "an answer in time",
        async () => (await sendingFor(alice, bob, 200)).median < 4 * quiet.median + 20 || undefined
      )
    } while (attempts.length < 3 && !isFine(attempts.at(-1)!))
    const { during, quiet } = attempts.at(-1)!
    table.push({
      flood: given.name,
      "at once": given.atOnce,
      "requests/s": Math.round(during.requests / WINDOW_MS * 1_000),
      "quiet p50 ms": Math.round(quiet.median),
      "flood p50 ms": Math.round(during.others.median),
      ratio: Number((during.others.median / quiet.median).toFixed(1)),
      "worst ms": Math.round(during.others.worst)
    })
    assert.isAbove(during.requests, 0, "The flood got no answer.")
    assert.isTrue(isFine({ during, quiet }), JSON.stringify(attempts))
  }

  const rpc = (method: string, params: object = {}) =>
    postOf("/mcp", { jsonrpc: "2.0", id: 1, method, params }, mallory.key)
  const ok = "HTTP/1.1 200"
  const agent = { perSecond: PER_SECOND.agent, begins: ok }
  const events = (name: string, given: object = {}) => ({
    name,
    arguments: { include_waiting: true, defer_if_active: false, ...given }
  })

  it("POST /token with 5,200 names", () => {
    const form = Array.from({ length: 5_200 }, (_, i) => i.toString(36)).join("&").slice(0, 16_000)
    return measure({
      name: "POST /token, a form of 5,200 names",
      perSecond: PER_SECOND.token,
      atOnce: 4,
      bytes: () =>
        `POST /token HTTP/1.1\r\nhost: parley\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: ${form.length}\r\n\r\n${form}`,
      begins: "HTTP/1.1 401"
    })
  })

  it("events/poll from nobody", () =>
    measure({
      ...agent,
      name: "events/poll, `from` matches nobody",
      atOnce: 16,
      bytes: () => rpc("events/poll", events("message.received", { from: "nobody-here" })),
      has: /"events":\[\]/
    }))

  it("events/poll of mentions", () =>
    measure({
      ...agent,
      name: "events/poll, `mentions_only`",
      atOnce: 16,
      bytes: () => rpc("events/poll", events("message.received", { mentions_only: true })),
      has: /"events":\[\]/
    }))

  it("events/poll of the first hundred messages", () =>
    measure({
      ...agent,
      name: "events/poll, 100 events with texts",
      atOnce: 16,
      bytes: () => rpc("events/poll", { ...events("message.received", { include_text: true }), maxEvents: 100 }),
      has: /"eventId":"del_/
    }))

  it("inbox.waiting", () =>
    measure({
      ...agent,
      name: "events/poll, inbox.waiting",
      atOnce: 16,
      bytes: () => rpc("events/poll", events("inbox.waiting")),
      has: /"waiting":7\d\d/
    }))

  it("events/stream that is opened again and again", () =>
    measure({
      ...agent,
      name: "events/stream, opened again and again",
      atOnce: 16,
      bytes: () => rpc("events/stream", events("message.received", { from: "nobody-here" })),
      until: "notifications/events/active"
    }))

  it("sockets that are opened again and again", () =>
    measure({
      ...agent,
      name: "sockets, opened again and again",
      atOnce: 16,
      bytes: () => upgradeOf(mallory.key),
      begins: "HTTP/1.1 101",
      until: "message.new"
    }))

  it("waits for messages that are all muted", async () => {
    const [first] = (await mallory.http.get("/v1/messages/sync?limit=1")).body as ReadonlyArray<
      { readonly conversation_id: string }
    >
    assert.strictEqual(
      (await mallory.http.post("/v1/mutes", { target_kind: "conversation", target_id: first!.conversation_id })).status,
      201
    )
    await measure({
      ...agent,
      name: "waits, every message is muted",
      atOnce: 16,
      bytes: () =>
        rpc("tools/call", { name: "agentchat_wait_for_messages", arguments: { timeout_seconds: 1, limit: 1 } }),
      has: /^(?!.*"isError":true)/s
    })
  })

  it("a conversation with thirty messages of attention", async () => {
    const rows = (await mallory.http.get("/v1/messages/sync?limit=200")).body as ReadonlyArray<
      { readonly id: string; readonly conversation_id: string }
    >
    // Each lookup of a message of attention is a read of its own, inside of one request.
    const given = {
      conversation_id: rows[0]!.conversation_id,
      attention_message_ids: rows.filter((_, i) => i % 6 === 0).slice(0, 30).map(({ id }) => id),
      limit: 1
    }
    assert.strictEqual(given.attention_message_ids.length, 30)
    await measure({
      ...agent,
      name: "a conversation, 30 messages of attention",
      atOnce: 16,
      bytes: () => rpc("tools/call", { name: "agentchat_get_conversation", arguments: given }),
      has: /^(?!.*"isError":true)/s
    })
  })

  it("a message of a long thread", async () => {
    const sent = await mallory.client.sendMessage({ to: carol.handle, content: { text: "The root." } })
    let { id: reply_to } = sent.message
    for (let i = 0; i < 2_000; i++) {
      const answer = { to: carol.handle, content: { text: "An answer." }, metadata: { reply_to } }
      reply_to = (await mallory.client.sendMessage(answer)).message.id
    }
    await measure({
      ...agent,
      name: "a message of a thread of 2,000",
      // One read runs, and four wait for it.
      atOnce: 5,
      bytes: () => getOf(`/v1/messages/${sent.message.conversation_id}?thread=${sent.message.id}&limit=1`, mallory.key),
      has: /The root\./
    })
  })

  describe("tasks", () => {
    let dave: TestAgent
    let task = ""

    const a2a = (method: string, params: object) =>
      postOf(`/a2a/${dave.handle}`, { jsonrpc: "2.0", id: 1, method, params }, mallory.key)
        .replace("\r\n", "\r\nA2A-Version: 1.0\r\n")

    beforeAll(async () => {
      dave = await newAgent(server, "dave")
      await mallory.client.sendMessage({ to: dave.handle, content: { text: "A first word." } })
      await dave.client.sendMessage({ to: mallory.handle, content: { text: "Go on." } })
      const make = async (i: number) => {
        const response = await fetch(`${server.url}/a2a/${dave.handle}/message:send`, {
          method: "POST",
          headers: {
            authorization: `Bearer ${mallory.key}`,
            "content-type": "application/json",
            "A2A-Version": "1.0"
          },
          body: JSON.stringify({
            message: { messageId: `task-${i}`, role: "ROLE_USER", parts: [{ text: "Do it." }] },
            configuration: { returnImmediately: true }
          })
        })
        assert.strictEqual(response.status, 200)
        return ((await response.json()) as { readonly task: { readonly id: string } }).task.id
      }
      for (let made = 0; made < TASKS; made += 10) {
        ;[task = ""] = await Promise.all(Array.from({ length: 10 }, (_, i) => make(made + i)))
      }
      // The first list derives all tasks from their messages.
      const listed = await fetch(`${server.url}/a2a/${dave.handle}/tasks?pageSize=1`, {
        headers: { authorization: `Bearer ${mallory.key}`, "A2A-Version": "1.0" }
      })
      assert.strictEqual(((await listed.json()) as { readonly totalSize: number }).totalSize, TASKS)
    }, 300_000)

    it("ListTasks", () =>
      measure({
        ...agent,
        name: `ListTasks, one of ${TASKS.toLocaleString("en")} open tasks`,
        atOnce: 16,
        bytes: () => a2a("ListTasks", { pageSize: 1 }),
        has: /TASK_STATE_SUBMITTED/
      }))

    it("a configuration of a task, beside messages that answer unknown messages", async () => {
      for (let i = 0; i < 90; i++) {
        await dave.client.sendMessage({
          to: mallory.handle,
          content: { text: "An answer." },
          metadata: { reply_to: `msg_x${i}` }
        })
      }
      await measure({
        ...agent,
        name: "ListTaskPushNotificationConfigs, 90 unknown reply_to",
        atOnce: 16,
        bytes: () => a2a("ListTaskPushNotificationConfigs", { taskId: task }),
        has: /"configs":\[\]/
      })
    })
  })

  it("sync", () =>
    measure({
      ...agent,
      name: "sync, for comparison",
      atOnce: 16,
      bytes: () => getOf("/v1/messages/sync?limit=500", mallory.key)
    }))

  it("tools/list", () =>
    measure({
      ...agent,
      name: "tools/list",
      atOnce: 16,
      bytes: () => rpc("tools/list"),
      has: /agentchat_send_message/
    }))

  it("tools/list with an unknown field", () =>
    measure({
      ...agent,
      name: "tools/list, structured, an unknown field",
      atOnce: 16,
      bytes: () => rpc("tools/list", { unknown: 1, _meta: { progressToken: 1 } }).replace("/mcp", "/mcp?structured=on"),
      has: /agentchat_send_message/
    }))

  it("initialize", () =>
    measure({
      ...agent,
      name: "initialize",
      atOnce: 16,
      bytes: () =>
        rpc("initialize", {
          protocolVersion: "2025-11-25",
          capabilities: {},
          clientInfo: { name: "flood", version: "1" }
        }),
      has: /"instructions"/
    }))
})

/** What the search looks for. No text of `chinese` contains its first character. */
const SOUGHT = "灯塔"

/** A text in Chinese with as many bytes as `TEXT`, and with more different pairs of characters than are indexed. */
const chinese = (i: number): string =>
  Array.from({ length: TEXT.length / 3 }, (_, at) => String.fromCodePoint(0x4e00 + (i + at * at) % 8_000)).join("")

const Found = Schema.Struct({
  messages: Schema.Array(FoundMessage),
  next_cursor: Schema.NullOr(Schema.String),
  complete: Schema.Boolean
})

describe(`the first search after ${UNREAD} texts of 30 kB in Chinese`, () => {
  let server: Server

  beforeAll(async () => {
    // A slow machine needs more pages than the 30 searches that an agent has in a minute.
    const env = { LOG_LEVEL: "warn", LIMITS_SEARCHES_PER_MINUTE: "1000000" }
    server = await startServer({ program: parley("start"), env })
  })
  afterAll(() => server?.stop())

  it("is answered with 200, and its pages lead to all messages with the word", async () => {
    const { alice, bob } = await newPair(server)
    // Every hundredth message. The first one is among the last that are indexed.
    const sought: Array<{ readonly id: string; readonly seq: number }> = []
    for (let sent = 0; sent < UNREAD; sent += 10) {
      await Promise.all(Array.from({ length: 10 }, async (_, i) => {
        const text = chinese(sent + i)
        const isSought = (sent + i) % 100 === 0
        const { message } = await alice.client.sendMessage({
          to: bob.handle,
          content: { text: isSought ? SOUGHT + text.slice(SOUGHT.length) : text }
        })
        if (isSought) sought.push(message)
      }))
    }
    // Unlike `bob.http`, this client does not repeat a request that is answered with 503.
    const http = new Http(server.url, bob.key, () => undefined)
    const found: Array<string> = []
    for (let cursor: string | null = ""; cursor !== null;) {
      const query = new URLSearchParams({ q: SOUGHT, limit: "3", cursor })
      const page: typeof Found.Type = (await http.get(`/v1/messages/search?${query}`)).ok(200, Found)
      if (!page.complete) assert.isNotNull(page.next_cursor, "a page that is not complete has no cursor")
      found.push(...page.messages.map(({ id }) => id))
      if (page.messages.length === 0 && found.length < sought.length)
        assert.isNotNull(page.next_cursor, "an empty page has no cursor")
      cursor = page.next_cursor
    }
    assert.deepStrictEqual(found, sought.toSorted((one, other) => other.seq - one.seq).map(({ id }) => id))
  })
})
