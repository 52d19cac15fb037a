import { assert, it } from "@effect/vitest"
import { setTimeout as pause } from "node:timers/promises"
import { type Crash, Machine, startConnector, stored } from "../../test/connect/Connectors.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { makeDataDir, newAgent, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"

const CONVERSATIONS = 20
const EACH = 50
const CONNECTORS = 2
const MINUTE_MS = 60_000
const SECOND_MS = 1_000
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
