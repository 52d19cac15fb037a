import { LiveAgents } from "#domain/push/LiveAgents"
import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { Readiness } from "#infrastructure/platform/Readiness"
import { assert, describe, layer } from "@effect/vitest"
import { AgentChatClient, RealtimeClient } from "agentchatme"
import { Effect, Layer } from "effect"
import { tmpdir } from "node:os"
import * as Http from "../../src/Http.ts"
import { layerPostgresTest } from "../support/Databases.ts"
import { elapse, eventually } from "../support/Eventually.ts"
import { layerModules, newAgent } from "../support/Modules.ts"
import { randomOf } from "../support/Random.ts"

const SETTINGS = { PORT: 0, DATA_DIR: tmpdir(), LIMITS_SENDS_PER_SECOND: 1_000_000, LOG_LEVEL: "error" } as const
const MESSAGES = 80

const SEED = Number(process.env["LOST_HINTS_SEED"] ?? Date.now() % 1_000_000_000)

// Where commits take their time; what is lost, is lost after them, whatever database it is.
describe("PostgreSQL 18", () => {
  const database = layerPostgresTest(18)
  layer(
    Http.layer.pipe(
      Layer.provide([Readiness.layer, NodeRpc.layerAlone]),
      Layer.provideMerge(layerModules(database, SETTINGS))
    ),
    { excludeTestServices: true }
  )((it) => {
    it.effect("the published client gets every message, in order, whatever becomes of the hints", () =>
      Effect.gen(function*() {
        const { url } = yield* HttpServer
        const liveAgents = yield* LiveAgents
        const random = randomOf(SEED)
        const a = yield* newAgent("hints-a")
        const b = yield* newAgent("hints-b")
        // Between the commit and the sockets: some hints are lost, some come after later ones.
        const push = liveAgents.push
        let lost = 0
        let late = 0
        Object.assign(liveAgents, {
          push: ((agentId, pushed) => {
            const fate = pushed._tag === "Hint" ? random() : 1
            if (fate < 0.2) lost++
            else if (fate < 0.5) {
              late++
              void elapse("hints that overtake it", random() * 40).then(() => push(agentId, pushed))
            } else push(agentId, pushed)
          }) satisfies typeof push
        })
        const clientOf = (agent: typeof a) => new AgentChatClient({ apiKey: agent.key, baseUrl: url })
        const listen = (agent: typeof a) => {
          const seqs: Array<number> = []
          const ofOthers: Array<number> = []
          const realtime = new RealtimeClient({
            apiKey: agent.key,
            baseUrl: url.replace(/^http/, "ws"),
            client: clientOf(agent)
          })
          realtime.on("message.new", ({ payload }) => {
            const seq = Number(payload["seq"])
            seqs.push(seq)
            if (payload["sender"] !== agent.handle) ofOthers.push(seq)
          })
          return { agent, ofOthers, realtime, seqs }
        }
        const ends = [listen(a), listen(b)]
        yield* Effect.promise(() => Promise.all(ends.map(({ realtime }) => realtime.connect())))
        yield* Effect.promise(async () => {
          try {
            const sent = new Map([[a.handle, new Set<number>()], [b.handle, new Set<number>()]])
            const send = async (from: AgentChatClient, to: string, i: number) => {
              const { message } = await from.sendMessage({ to, content: { text: `${i}` } })
              sent.get(message.sender)!.add(message.seq)
            }
            const [fromA, fromB] = [clientOf(a), clientOf(b)]
            await send(fromA, b.handle, 0)
            await send(fromB, a.handle, 1)
            // In small crowds from both sides, so that hints pass each other.
            const waiting = Array.from({ length: MESSAGES - 2 }, (_, i) => i + 2)
            while (waiting.length > 0) {
              const crowd = waiting.splice(0, 1 + Math.floor(random() * 6))
              await Promise.all(crowd.map((i) => random() < 0.7 ? send(fromA, b.handle, i) : send(fromB, a.handle, i)))
            }
            for (const { agent, ofOthers, seqs } of ends) {
              const whole = [...sent].flatMap(([sender, own]) => sender === agent.handle ? [] : [...own]).sort((x, y) =>
                x - y
              )
              const missing = () => whole.filter((seq) => !ofOthers.includes(seq))
              await eventually("every message", () => missing().length === 0 || undefined).catch(() =>
                assert.fail(`${agent.handle} has no ${missing().join(", ")} after ${seqs.join(" ")}, seed ${SEED}`)
              )
              assert.deepStrictEqual([...new Set(ofOthers)], whole, `in order, seed ${SEED}`)
              // An agent's own messages are no part of its inbox: one that a later message has overtaken is not shown
              // (wire.md E.4).
              const shown = [...new Set(seqs)]
              assert.deepStrictEqual(shown, [...shown].sort((x, y) => x - y), `in order, seed ${SEED}`)
            }
            // What the client held back in its first look at the inbox, it acknowledges when it connects the next time.
            for (const { agent, realtime } of ends.slice(0, 2)) {
              realtime.disconnect()
              const again = listen(agent)
              ends.push(again)
              await again.realtime.connect()
              await eventually("an empty inbox", async () => (await clientOf(agent).sync()).length === 0 || undefined)
            }
          } finally {
            for (const { realtime } of ends) realtime.disconnect()
            Object.assign(liveAgents, { push })
          }
        })
        assert.isAbove(lost, 5)
        assert.isAbove(late, 5)
      }))
  })
})
