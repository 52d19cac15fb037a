import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { RealtimeClient, type RealtimeOptions, type SequenceGapInfo, type WsMessage } from "agentchatme"
import { eventually, within } from "../support/Eventually.ts"
import { MEASURES } from "../support/Promptly.ts"
import { agentOf, newAgent, type Server, sharedServer, startServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { catchUp, contextOf, history, idsOf, inbox, markRead, newPair, say, words } from "./Talk.ts"

/** The published realtime client, and everything it told. */
class Listener {
  readonly agent: TestAgent
  readonly client: RealtimeClient
  readonly messages: Array<WsMessage> = []
  readonly events: Array<WsMessage> = []
  readonly errors: Array<Error> = []
  readonly closes: Array<number> = []
  readonly gaps: Array<SequenceGapInfo> = []
  /** Its raw sockets, to be cut from outside. */
  readonly sockets: Array<WebSocket> = []
  connects = 0

  constructor(agent: TestAgent, options: Partial<RealtimeOptions> = {}) {
    this.agent = agent
    const sockets = this.sockets
    this.client = agent.realtime({
      reconnectInterval: 20,
      onSequenceGap: (gap) => this.gaps.push(gap),
      webSocket: class extends WebSocket {
        constructor(url: string | URL) {
          super(url)
          sockets.push(this)
        }
      },
      ...options
    })
    this.client.on("message.new", (message) => void this.messages.push(message))
    for (const type of ["message.read", "typing.start", "typing.stop", "error"]) {
      this.client.on(type, (event) => void this.events.push(event))
    }
    this.client.onError((error) => this.errors.push(error))
    this.client.onDisconnect(({ code }) => this.closes.push(code))
    this.client.onConnect(() => void this.connects++)
  }

  async connect(): Promise<this> {
    await this.client.connect()
    return this.connected(1)
  }

  /** Waits for the handshake to have succeeded that many times. */
  async connected(times: number): Promise<this> {
    await eventually(`handshake ${times}`, () => this.connects >= times || undefined)
    return this
  }

  /**
   * Ids of the messages dispatched, in order of their first time. The client promises
   * at least once, and when a drain and a socket race each other that is what it does.
   */
  ids(): ReadonlyArray<unknown> {
    return [...new Set(this.messages.map((message) => message.payload["id"]))]
  }

  /** Waits until everything in the agent's inbox is acknowledged. */
  async caughtUp(): Promise<void> {
    await eventually("an empty inbox", async () => (await inbox(this.agent)).length === 0 || undefined)
  }

  async has(id: string): Promise<void> {
    await eventually(`message ${id}`, () => this.ids().includes(id) || undefined)
  }

  event(type: string): Promise<WsMessage> {
    return eventually(type, () => this.events.find((event) => event.type === type))
  }

  /** Asserts that nothing went wrong on the way, and ends it. */
  close(): void {
    // The client waits four seconds for the answer to its HELLO, and connects again.
    assert.deepStrictEqual(this.errors.filter(({ message }) => MEASURES || message !== "HELLO ack timeout"), [])
    assert.deepStrictEqual(this.gaps, [])
    this.client.disconnect()
  }
}

/** Completes when the client has drained what waits, as it does when it connects: it asks until a page is empty. */
const drained = ({ client }: TestAgent): Promise<void> =>
  new Promise((resolve) => {
    const sync = client.sync.bind(client)
    client.sync = async (options) => {
      const page = await sync(options)
      if (page.length === 0) resolve()
      return page
    }
  })

describe("wire.md J 143: the unmodified client", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  it("143. connects, drains what waited, and gets what arrives: each once, in order, and acknowledged", async () => {
    const { alice, bob, conversation } = await newPair(server)
    await say(await newAgent(server, "dave"), bob)
    await Promise.all(Array.from({ length: 60 }, () => say(alice, bob)))
    const order = idsOf(await inbox(bob))
    assert.strictEqual(order.length, 61)

    const listener = await new Listener(bob).connect()
    assert.isTrue(listener.client.isConnected)
    await listener.caughtUp()
    const live = await say(alice, bob)
    await listener.has(live.id)
    assert.deepStrictEqual(listener.ids(), [...order, live.id])
    await listener.caughtUp()
    assert.strictEqual((await history(alice, conversation, "?limit=1"))[0]?.status, "delivered")
    listener.close()
  })

  it("143. drains more than one of its pages of 200: all of it, in order, and acknowledged", async () => {
    const { alice, bob } = await newPair(server)
    for (let i = 0; i < 9; i++) await Promise.all(Array.from({ length: 50 }, () => say(alice, bob)))
    const order = idsOf(await inbox(bob))
    assert.strictEqual(order.length, 450)
    const listener = await new Listener(bob).connect()
    await listener.caughtUp()
    assert.deepStrictEqual(listener.ids(), order)
    listener.close()
  })

  it("143. a reply loop of forty turns runs without a gap and without the client's gap-fill delay", async () => {
    const { alice, bob, conversation } = await newPair(server)
    // A drain whose answer comes after the first turns makes the client expect them once more.
    const drains = [drained(alice), drained(bob)]
    const listeners = [await new Listener(alice).connect(), await new Listener(bob).connect()] as const
    await within("the drains", Promise.all(drains))
    const turns = 40
    let last = 0
    const finished = new Promise<void>((resolve) => {
      for (const [listener, agent, peer] of [[listeners[0], alice, bob], [listeners[1], bob, alice]] as const) {
        listener.client.on("message.new", async ({ payload }) => {
          if (payload["sender"] === agent.handle) return
          const turn = Number((payload["content"] as { data: { turn: number } }).data.turn)
          last = turn
          if (turn >= turns) return resolve()
          await agent.client.sendMessage({ to: peer.handle, content: { text: words(), data: { turn: turn + 1 } } })
        })
      }
    })
    await alice.client.sendMessage({ to: bob.handle, content: { data: { turn: 1 } } })
    await within("the last turn", finished).catch((error: unknown) => assert.fail(`${String(error)}; turn ${last}`))
    for (const { gaps } of listeners)
      assert.deepStrictEqual(gaps, [], "a turn that waited for the two seconds of a gap fill")
    const order = idsOf(await history(alice, conversation, "?after_seq=2&limit=200"))
    for (const listener of listeners) {
      await eventually("its own last message", () => listener.ids().length === turns || undefined)
      assert.deepStrictEqual(listener.ids(), order)
      await listener.caughtUp()
      listener.close()
    }
  })

  it("143. it misses nothing and gets everything in order while it is cut off and reconnects again and again", async () => {
    const { alice, bob } = await newPair(server)
    const listener = await new Listener(bob).connect()
    const sent: Array<string> = []
    for (let round = 1; round <= 8; round++) {
      sent.push((await say(alice, bob)).id)
      const meanwhile = [say(alice, bob), say(alice, bob), say(alice, bob)]
      listener.sockets.at(-1)?.close(4000)
      for (const message of await Promise.all(meanwhile)) sent.push(message.id)
      sent.push((await say(alice, bob)).id)
      await listener.connected(round + 1)
    }
    const last = await say(alice, bob)
    await listener.has(last.id)
    const order = await history(bob, last.conversation_id, "?after_seq=2&limit=200")
    assert.deepStrictEqual(listener.ids(), idsOf(order))
    assert.strictEqual(order.length, sent.length + 1)
    // A drain that answers late can make the client look for a gap that there is not.
    assert.deepStrictEqual(listener.gaps.filter((gap) => !gap.recovered), [])
    listener.client.disconnect()
  })

  it("143. a gap on the socket is filled from history, in order", async () => {
    const { alice, bob } = await newPair(server)
    const lost = words()
    // Nothing of the client is changed; its socket loses one frame.
    class Lossy extends WebSocket {
      constructor(url: string | URL) {
        super(url)
        this.addEventListener("message", (event) => {
          if (String(event.data).includes(lost)) event.stopImmediatePropagation()
        })
      }
    }
    const listener = await new Listener(bob, { webSocket: Lossy }).connect()
    const before = await say(alice, bob)
    await listener.has(before.id)
    const missing = await say(alice, bob, { content: { text: lost } })
    const after = await say(alice, bob)
    await listener.has(after.id)
    assert.deepStrictEqual(listener.ids(), [before.id, missing.id, after.id])
    assert.strictEqual(listener.gaps.length, 1)
    assert.deepInclude(listener.gaps[0], { recovered: true, reason: "gap_filled", expectedSeq: missing.seq })
    // The client acknowledges gap-filled rows too.
    await listener.caughtUp()
    listener.gaps.length = 0
    listener.close()
  })

  it("143. a message on which its handler failed is offered again at the next connect", async () => {
    const { alice, bob } = await newPair(server)
    // Without its drain, which acknowledges a row that came over the socket first and failed there.
    const listener = new Listener(bob, { autoDrainOnConnect: false })
    const seen: Array<unknown> = []
    listener.client.on("message.new", ({ payload }) => {
      seen.push(payload["id"])
      if (seen.length === 1) throw new Error("not this time")
    })
    await listener.connect()
    const sent = await say(alice, bob)
    await eventually("the first attempt", () => seen.length === 1 || undefined)
    await eventually("its error", () => listener.errors.shift())
    assert.deepStrictEqual(idsOf(await inbox(bob)), [sent.id])
    listener.sockets.at(-1)?.close(4000)
    await eventually("the second attempt", () => seen.length === 2 || undefined)
    assert.deepStrictEqual(seen, [sent.id, sent.id])
    await listener.caughtUp()
    listener.close()
  })

  it("132. it stops for good when its key is refused", async () => {
    const agent = agentOf(server, { id: "agt_AAAAAAAAAAAAAAAA", handle: "nobody", email: "" }, `ac_${"A".repeat(43)}`)
    const listener = new Listener(agent)
    await listener.client.connect()
    await eventually("the close", () => listener.closes.at(0))
    assert.deepStrictEqual(listener.closes, [1008])
    assert.match(listener.errors.at(-1)?.message ?? "", /terminal code 1008/)
    assert.strictEqual(listener.connects, 0)
    assert.strictEqual(listener.sockets.length, 1)
    listener.client.disconnect()
  })

  it("138, 139, 141. it sends typing, read acks and other frames, which are answered as documented", async () => {
    const { alice, bob, conversation, first } = await newPair(server)
    await markRead(bob, first.id)
    const [mine, theirs] = [await new Listener(alice).connect(), await new Listener(bob).connect()]
    const sent = await say(alice, bob)
    await theirs.has(sent.id)
    theirs.client.sendTypingStart(conversation)
    theirs.client.sendTypingStop(conversation)
    theirs.client.sendReadAck(conversation, sent.seq)
    for (const type of ["typing.start", "typing.stop"]) {
      assert.deepStrictEqual((await mine.event(type)).payload, { conversation_id: conversation, sender: bob.handle })
    }
    assert.deepInclude((await mine.event("message.read")).payload, {
      message_id: sent.id,
      read_by: bob.handle,
      through_seq: 3
    })
    assert.strictEqual((await contextOf(bob, conversation)).unread.count, 0)
    mine.client.send({ type: "message.send", payload: {}, id: "mine" })
    assert.deepInclude((await mine.event("error")).payload, { code: "UNSUPPORTED_ACTION" })
    mine.close()
    theirs.close()
  })

  it("131. a drain on request works as well as the automatic one", async () => {
    const { alice, bob } = await newPair(server)
    const listener = new Listener(bob, { autoDrainOnConnect: false })
    await listener.connect()
    const sent = await say(alice, bob)
    await listener.has(sent.id)
    await listener.client.drainOfflineEnvelopes()
    assert.deepStrictEqual(listener.ids(), [sent.id])
    assert.deepStrictEqual(await inbox(bob), [])
    listener.close()
  })
})

describe("wire.md J 137, 143 and E.4, with ECHO_OWN=off, and a server with a heartbeat of a second", () => {
  let server: Server
  let beating: Server

  beforeAll(async () => {
    ;[server, beating] = await Promise.all([
      startServer({ env: { ECHO_OWN: "off" } }),
      startServer({ env: { SOCKETS_PING_SECONDS: "1", SOCKETS_PONG_SECONDS: "4" } })
    ])
  })
  afterAll(() => Promise.all([server, beating].map((one) => one?.stop())))

  it("137. the sender's sockets get no echo of its own messages", async () => {
    const { alice, bob } = await newPair(server)
    const mine = [await Socket.hello(server, alice.key), await Socket.hello(server, alice.key, [])]
    const theirs = await Socket.hello(server, bob.key)
    const sent = await say(alice, bob)
    await theirs.message(sent.id)
    const answer = await say(bob, alice)
    for (const socket of mine) {
      await socket.message(answer.id)
      assert.deepStrictEqual(socket.pushed(), [answer.id])
      await socket.close()
    }
    assert.deepStrictEqual(theirs.pushed(), [sent.id])
    await theirs.close()
  })

  it("E.4: a socket that answers no ping closes with 1001, and its agent is offline; one that does stays", async () => {
    const { alice, bob } = await newPair(beating)
    const lively = await Socket.hello(beating, bob.key)
    const mute = await Socket.open(beating, { authorization: `Bearer ${alice.key}` }, { autoPong: false })
    assert.propertyVal(await mute.waitFor("hello.ok"), "heartbeat_interval_ms", 1_000)
    await mute.closedWith(1001)
    const status = async () => (await bob.http.get(`/v1/presence/${alice.handle}`)).ok(200, Shapes.Presence).status
    await eventually("its agent to be offline", async () => await status() === "offline" || undefined)
    // This process answers no ping either if it does nothing for four seconds.
    if (!MEASURES) return
    await lively.waitFor(({ payload, type }: Frame) =>
      type === "presence.update" && payload?.["handle"] === alice.handle && payload["status"] === "offline"
    )
    await lively.settled()
    await lively.close()
  })

  it("143. two hundred gaps at once are all filled: ordinary use never meets the bound of large answers", async () => {
    const { alice, bob } = await newPair(server)
    const lost = words()
    class Lossy extends WebSocket {
      constructor(url: string | URL) {
        super(url)
        this.addEventListener("message", (event) => {
          if (String(event.data).includes(lost)) event.stopImmediatePropagation()
        })
      }
    }
    const groups: Array<string> = []
    while (groups.length < 200) {
      groups.push(
        ...await Promise.all(Array.from({ length: 20 }, async () => {
          const made = await alice.http.post("/v1/groups", { name: "A gap", member_handles: [bob.handle] })
          const { add_results: [invite], group } = made.body as {
            add_results: [{ invite_id: string }]
            group: { id: string }
          }
          const accepted = await bob.http.post(`/v1/groups/invites/${invite.invite_id}/accept`)
          assert.strictEqual(accepted.status, 200, `${accepted}`)
          return group.id
        }))
      )
    }
    const toAll = async (text: string): Promise<ReadonlyArray<string>> => {
      const ids: Array<string> = []
      for (let at = 0; at < groups.length; at += 50) {
        const sent = groups.slice(at, at + 50).map((group) =>
          alice.client.sendMessage({ conversation_id: group, content: { text } })
        )
        ids.push(...(await Promise.all(sent)).map(({ message }) => message.id))
      }
      return ids
    }
    const listener = await new Listener(bob, { webSocket: Lossy }).connect()
    const first = await toAll("Before the gap.")
    await listener.has(first.at(-1)!)
    const missing = await toAll(`${lost} ${"x".repeat(20_000)}`)
    const last = await toAll("After the gap.")
    await eventually(
      "all of them",
      () => new Set(listener.ids()).size >= first.length + missing.length + last.length || undefined
    )
    assert.sameMembers([...listener.ids()], [...first, ...missing, ...last])
    assert.deepStrictEqual(listener.gaps.map(({ reason }) => reason), groups.map(() => "gap_filled"))
    await listener.caughtUp()
    listener.gaps.length = 0
    listener.close()
  })

  it("143. the client fills the gap that its own silent message leaves", async () => {
    const { alice, bob } = await newPair(server)
    await Promise.all([alice, bob].map((agent) => catchUp(agent).catch(() => undefined)))
    const listener = await new Listener(bob).connect()
    const one = await say(alice, bob)
    await listener.has(one.id)
    const own = await say(bob, alice)
    const two = await say(alice, bob)
    await listener.has(two.id)
    assert.deepStrictEqual(listener.ids(), idsOf([one, own, two]))
    assert.deepInclude(listener.gaps[0], { recovered: true, reason: "gap_filled", expectedSeq: own.seq })
    listener.gaps.length = 0
    await listener.caughtUp()
    listener.close()
  })
})
