import { assert, it } from "@effect/vitest"
import { setTimeout as pause } from "node:timers/promises"
import {
  acquainted,
  type Crash,
  Machine,
  replies,
  send,
  startConnector,
  stored
} from "../../test/connect/Connectors.ts"
import { configure, connect, type Started } from "../../test/connect/Processes.ts"
import { history } from "../../test/contract/Talk.ts"
import { chanceFor, eventually } from "../../test/support/Eventually.ts"
import { makeDataDir, newAgent, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"

const CONVERSATIONS = 20
const EACH = 50
const CONNECTORS = 2
const MINUTE_MS = 60_000
const SECOND_MS = 1_000
/** How long a loop that has ended gets to send a further message. */
const QUIET_MS = 5_000
/** The session has a lease for so long, twice. */
const LEASE_SECONDS = 5

interface Reply {
  readonly answers: ReadonlyArray<string>
  readonly text: string
}

/** Random, but the same in each run with the same seed. */
const randomFrom = (seed: number) => {
  let state = seed
  return (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor(state / 2 ** 32 * below)
  }
}

/** A connector that is killed again and again, at a random call, and continues on its own journal. */
const restless = (machine: Machine, server: () => Server, ada: TestAgent, random: (below: number) => number) => {
  const stopping = new AbortController()
  let kills = 0
  const over = (async () => {
    while (!stopping.signal.aborted) {
      const crash: Crash = { at: 20 + random(150), calls: [], crashed: false }
      const settings = machine.settings(server(), ada, {
        settleMs: 50,
        concurrency: 4,
        retrySeconds: Array.from({ length: 20 }, () => 0)
      })
      const one = startConnector(machine, settings, crash)
      while (!stopping.signal.aborted && !crash.crashed && one.ended() === undefined) await pause(20)
      assert.isUndefined(one.ended())
      await one.stop()
      if (crash.crashed) kills++
    }
  })()
  return {
    kills: () => kills,
    stop: async () => {
      stopping.abort()
      await over
    }
  }
}

it(
  `${
    CONVERSATIONS * EACH
  } messages in ${CONVERSATIONS} conversations are answered once each by two connectors that are killed, beside a live session, while the server restarts`,
  async () => {
    const seed = Number(process.env["SEED"] ?? Date.now() % 1_000_000)
    console.log(`seed ${seed}: SEED=${seed} npm run test:connect repeats it`)
    const random = randomFrom(seed)
    const dataDir = await makeDataDir()
    let server = await startServer({ dataDir })
    const port = new URL(server.url).port
    const begun = performance.now()
    const ada = await newAgent(server, "ada")
    const senders = await Promise.all(Array.from({ length: CONVERSATIONS }, () => newAgent(server, "sender")))
    const script = 'sleep 0.02; printf \'%s\' "$prompt" | grep -o \'"id":"msg_[A-Za-z0-9_-]*\' | cut -c7-'
    const connectors = Array.from(
      { length: CONNECTORS },
      () => restless(new Machine(script), () => server, ada, random)
    )
    const patiently = async <A>(call: () => Promise<A>): Promise<A> => {
      for (;;) {
        try {
          return await call()
        } catch {
          await pause(100)
        }
      }
    }

    const received = new Map<string, Array<Reply>>()
    const sent = new Map<string, ReadonlyArray<string>>()
    /** Collects the replies that a sender has, and acknowledges them. */
    const collect = async (sender: TestAgent): Promise<void> => {
      const rows = await patiently(() => stored(sender))
      const kept = received.get(sender.handle) ?? []
      kept.push(
        ...rows.map(({ content, metadata }) => ({ text: content.text ?? "", answers: metadata.connect?.answers ?? [] }))
      )
      received.set(sender.handle, kept)
      const last = rows.at(-1) as unknown as { readonly delivery_id: string } | undefined
      if (last !== undefined)
        await patiently(() => sender.http.post("/v1/messages/sync/ack", { last_delivery_id: last.delivery_id }))
    }
    const write = async (sender: TestAgent): Promise<void> => {
      const ids: Array<string> = []
      sent.set(sender.handle, ids)
      for (let n = 0; n < EACH; n++) {
        const clientMsgId = `${sender.handle}-${n}`
        const { message } = await patiently(() =>
          sender.client.sendMessage({ to: ada.handle, content: { text: `Message ${n}` }, client_msg_id: clientMsgId })
        )
        ids.push(message.id)
        // Until the first reply, a second message is refused.
        if (n === 0)
          await eventually(
            "the first reply",
            async () => (await patiently(() => stored(sender))).length > 0 || undefined,
            3 * MINUTE_MS
          )
        await pause(random(400))
      }
    }

    const byTheSession: Array<string> = []
    /** A session with a lease that claims what waits, answers it and acknowledges it. */
    const session = async (name: string): Promise<void> => {
      await patiently(() =>
        ada.http.request("PUT", "/v1/reply/active", { json: { session_id: name, ttl_seconds: LEASE_SECONDS } })
      )
      for (const until = performance.now() + (LEASE_SECONDS - 1) * SECOND_MS; performance.now() < until;) {
        for (const row of await patiently(() => stored(ada))) {
          // A message that is claimed must be answered: nobody else can claim it for ten minutes.
          if (performance.now() > until) break
          const { body } = await patiently(() => ada.http.post("/v1/reply/claim", { message_id: row.id, holder: name }))
          if ((body as { readonly claimed: boolean }).claimed !== true) continue
          const answers = [row.id]
          await patiently(() =>
            ada.client.sendMessage({
              to: row.sender,
              content: { text: row.id },
              metadata: { session: true, connect: { auto: true, hop: 1, answers } },
              client_msg_id: `${name}-${row.id}`
            })
          )
          byTheSession.push(row.id)
        }
        await pause(100)
      }
      await patiently(() => ada.http.request("DELETE", "/v1/reply/active", { json: { session_id: name } }))
    }

    const writing = Promise.all(senders.map(write))
    await pause(4 * SECOND_MS)
    await session("session:one")
    await pause(2 * SECOND_MS)
    await server.stop()
    server = await startServer({ dataDir, env: { PORT: port } })
    await session("session:two")
    await writing
    const left = async () => (await patiently(() => stored(ada))).length
    await eventually("no message of ada is left", async () => await left() === 0 || undefined, 5 * MINUTE_MS)
    await Promise.all(connectors.map(({ stop }) => stop()))
    await Promise.all(senders.map(collect))

    for (const sender of senders) {
      const got = received.get(sender.handle) ?? []
      const answers = got.flatMap((reply) => reply.answers).toSorted()
      assert.deepStrictEqual(answers, [...sent.get(sender.handle) ?? []].toSorted(), sender.handle)
      for (const reply of got) assert.sameMembers(reply.text.trim().split("\n"), [...reply.answers])
    }
    const count = [...received.values()].reduce((sum, got) => sum + got.length, 0)
    const kills = connectors.map((one) => one.kills())
    console.log(
      `${CONVERSATIONS * EACH} messages, ${count} replies, ${byTheSession.length} by the session, ${
        kills.join(" and ")
      } kills, ${((performance.now() - begun) / SECOND_MS).toFixed(0)} s`
    )
    assert.isAbove(Math.min(...kills), 0)
    await server.stop()
  },
  15 * MINUTE_MS
)

/** `parley connect` in a process of its own for each agent, with a command that answers every message. */
const answering = (
  server: Server,
  agents: ReadonlyArray<TestAgent>,
  settings: object
): ReadonlyArray<Started & { readonly machine: Machine }> =>
  agents.map((agent) => {
    const machine = new Machine("echo Thank you.")
    configure(server, machine, agent, { command: { new: [machine.program] }, ...settings })
    return { ...connect(machine, []), machine }
  })

/** How often a connector has parked or ended a conversation, for this reason. */
const parked = ({ output }: Started, why: string): number =>
  output().split("\n").filter((line) => line.includes(`why=${why}`)).length

/** What an agent sees of the messages after the first two of a conversation, in their order. */
const loopOf = async (agent: TestAgent, conversation: string) =>
  (await history(agent, conversation, "?after_seq=2&limit=200")).map(({ metadata, sender }) => ({
    sender,
    hop: (metadata["connect"] as { readonly hop: number } | undefined)?.hop,
    hops: metadata["hops"]
  }))

const stop = async (both: ReadonlyArray<Started>): Promise<void> => {
  for (const { child } of both) child.kill("SIGTERM")
  for (const { ended, output } of both) assert.deepStrictEqual(await ended, [0, null], output())
}

it("two connectors that always answer each other stop after four replies, and answer the next message", async () => {
  const server = await startServer()
  const [ada, bob] = await acquainted(server)
  const carol = await newAgent(server, "carol")
  // The other settings keep their defaults.
  const both = answering(server, [ada, bob], {})
  const [ofAda, ofBob] = both as readonly [typeof both[number], typeof both[number]]
  const conversation =
    (await bob.client.sendMessage({ to: ada.handle, content: { text: "Begin" } })).message.conversation_id
  const round = (before: number) => [
    { sender: bob.handle, hop: undefined, hops: undefined },
    ...[1, 2, 3, 4].map((hop) => ({ sender: hop % 2 === 1 ? ada.handle : bob.handle, hop, hops: before + hop }))
  ]
  /** Waits until ada's connector parks the loop for the n-th time, and asserts that it was the end. */
  const over = async (n: number, expected: ReadonlyArray<object>): Promise<void> => {
    await eventually("the end of the loop", () => parked(ofAda, "4 automatic replies in a row") === n || undefined)
    await chanceFor("a further message", QUIET_MS)
    assert.deepStrictEqual(await loopOf(ada, conversation), expected)
    assert.deepStrictEqual([ofAda.machine.runs, ofBob.machine.runs], [2 * n, 2 * n])
    for (const { child, output } of both)
      assert.deepStrictEqual([child.exitCode, child.signalCode], [null, null], output())
  }
  await over(1, round(0))
  // A message that no connector sent begins a new count of the connectors. The server counts on.
  await send(bob, ada.handle, "Once more")
  await over(2, [...round(0), ...round(4)])
  for (const agent of [ada, bob]) {
    const got = await replies(carol, agent, [await send(carol, agent.handle, "Are you there?")])
    assert.deepStrictEqual(got.map(({ content }) => content.text), ["Thank you."])
  }
  await stop(both)
  await server.stop()
}, MINUTE_MS * 3)

it("two connectors without a limit of their own stop at the server's limit of hops", async () => {
  const server = await startServer({ env: { LIMITS_HOPS: "7" } })
  const [ada, bob] = await acquainted(server)
  const carol = await newAgent(server, "carol")
  const unlimited = { hops: 1_000, runsPerConversationHour: 1_000, runsPerHour: 1_000, runsPerDay: 1_000 }
  const both = answering(server, [ada, bob], unlimited)
  const conversation =
    (await bob.client.sendMessage({ to: ada.handle, content: { text: "Begin" } })).message.conversation_id
  const refusal = "the server refuses the reply: TOO_MANY_HOPS"
  await eventually("the end of the loop", () => both.some((one) => parked(one, refusal) > 0) || undefined)
  await chanceFor("a further message", QUIET_MS)
  assert.deepStrictEqual(await loopOf(ada, conversation), [
    { sender: bob.handle, hop: undefined, hops: undefined },
    ...[1, 2, 3, 4, 5, 6, 7].map((hop) => ({ sender: hop % 2 === 1 ? ada.handle : bob.handle, hop, hops: hop }))
  ])
  // The eighth run of the loop is bob's, whose reply is refused.
  assert.deepStrictEqual(both.map(({ machine }) => machine.runs), [4, 4])
  assert.deepStrictEqual(both.map((one) => parked(one, refusal)), [0, 1])
  for (const { child, output } of both)
    assert.deepStrictEqual([child.exitCode, child.signalCode], [null, null], output())
  for (const agent of [ada, bob]) {
    const got = await replies(carol, agent, [await send(carol, agent.handle, "Are you there?")])
    assert.deepStrictEqual(got.map(({ content }) => content.text), ["Thank you."])
  }
  // What was refused is at its end, so a message that nothing caused is answered in the same conversation.
  await send(ada, bob.handle, "A new question")
  const answer = await eventually(
    "an answer",
    async () => (await loopOf(ada, conversation)).slice(8).find(({ sender }) => sender === bob.handle)
  )
  assert.deepStrictEqual([answer.hop, answer.hops], [1, 1])
  await stop(both)
  await server.stop()
}, MINUTE_MS * 3)
