import { assert, layer } from "@effect/vitest"
import { Clock, Effect, Exit, Layer, Schema } from "effect"
import {
  type ClusterError,
  MessageStorage,
  RunnerHealth,
  Runners,
  RunnerStorage,
  Sharding,
  ShardingConfig
} from "effect/cluster"
import { SqlClient } from "effect/sql"
import { LiveAgents } from "../../src/push/LiveAgents.ts"
import { AgentEntity } from "../../src/push/AgentEntity.ts"
import { makeDirectIds } from "../../src/conversations/Conversation.ts"
import { ConversationEntity, SendFailure } from "../../src/conversations/ConversationEntity.ts"
import type { Sent } from "../../src/messages/Sent.ts"
import { Conversations, type Sender, type SendError } from "../../src/conversations/Conversations.ts"
import * as Entities from "../../src/Services.ts"
import { GroupEntity } from "../../src/groups/GroupEntity.ts"
import { Groups } from "../../src/groups/Groups.ts"
import { Config } from "../../src/platform/Config.ts"
import { awaitShards } from "../../src/cluster/Cluster.ts"
import { Ids } from "../../src/platform/Ids.ts"
import { Peers } from "../../src/cluster/Peers.ts"
import { RemoteCalls } from "../../src/cluster/RemoteCalls.ts"
import { REQUEST_ID } from "../../src/platform/RequestId.ts"
import { Secrets } from "../../src/platform/Secrets.ts"
import { Webhooks } from "../../src/webhooks/Webhooks.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { draft, newAgent } from "../support/Rooms.ts"

/** As standalone, but every call to an entity is encoded and decoded, as between runners. */
const cluster = Layer.merge(RemoteCalls.layerAlone, Peers.layerAlone).pipe(
  Layer.provideMerge(Sharding.layer),
  Layer.provideMerge(Runners.layerNoop),
  Layer.provideMerge(MessageStorage.layerNoop),
  Layer.provide([RunnerStorage.layerMemory, RunnerHealth.layerNoop]),
  Layer.provide(ShardingConfig.layer({ simulateRemoteSerialization: true, shardsPerGroup: 300 }))
)

const rooms = Entities.layer.pipe(
  Layer.provideMerge(Layer.provideMerge(Layer.effectDiscard(awaitShards), cluster).pipe(
    Layer.provide(Layer.succeed(Clock.Clock, Clock.Clock.defaultValue()))
  )),
  Layer.provideMerge(layerPgliteTest),
  Layer.provideMerge(Layer.mergeAll(Config.layerTest({ LIMITS_COLD_CONVERSATIONS: 2 }), Ids.layer))
)

type ClusterFailure =
  | ClusterError.MailboxFull
  | ClusterError.AlreadyProcessingMessage
  | ClusterError.PersistenceError
  | ClusterError.EntityNotAssignedToRunner

/** A call as it comes for a request; no other trace of that reaches another runner. */
const asked = (requestId: string) => ({ headers: { [REQUEST_ID]: requestId } })

const parse = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>

layer(rooms)((it) => {
  it.effect("a send through the entity gives what the local call gives, refusals included", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const client = yield* ConversationEntity.client
      const id = makeDirectIds((yield* Secrets).conversationIds)
      const send = (way: "local" | "entity") => (
        from: Sender,
        to: typeof from,
        key: string
      ): Effect.Effect<Sent, SendError | ClusterFailure> => {
        const command = {
          sender: { id: from.id, handle: from.handle, displayName: from.handle },
          recipient: { id: to.id, handle: to.handle },
          draft: draft(key)
        }
        return way === "entity"
          ? client(id(from.id, to.id)).Send({ command })
          : conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(key))
      }
      const story = Effect.fnUntraced(function*(way: "local" | "entity") {
        const agents = yield* Effect.forEach([0, 1, 2, 3], (i) => newAgent(`story-${way}-${i}`))
        const [a, b, c, d] = agents as [typeof agents[0], typeof agents[0], typeof agents[0], typeof agents[0]]
        const told: Array<unknown> = []
        for (
          const [from, to, key] of [
            [a, b, "m1"],
            [a, b, "m1"],
            [a, b, "m2"],
            [a, c, "m3"],
            [a, d, "m4"],
            [b, a, "m1"],
            [a, b, "m5"],
            [a, { id: "agt_nobody", handle: "nobody", displayName: null }, "m6"]
          ] as const
        ) {
          const exit = yield* Effect.exit(send(way)(from, to, key))
          if (Exit.isSuccess(exit)) {
            const { client_msg_id, seq, status } = parse(exit.value.body)
            told.push([exit.value.created, exit.value.backlog, client_msg_id, seq, status])
          } else {
            const [reason] = exit.cause.reasons
            const failure = reason?._tag === "Fail" ? reason.error as SendFailure : assert.fail(String(exit.cause))
            // Handles differ between the two stories, nothing else does.
            told.push(JSON.parse(JSON.stringify(failure).replaceAll(`story-${way}`, "story")))
          }
        }
        return told
      })
      const local = yield* story("local")
      assert.deepStrictEqual(
        local.map((one) => Array.isArray(one) ? one[3] : (one as { readonly _tag: string })._tag),
        [1, 1, "AwaitingReply", 1, "ColdCapExceeded", 2, 3, "AgentNotFound"]
      )
      assert.deepStrictEqual(yield* story("entity"), local)
    }))

  it.effect("an agent's slots are counted through the entity as well", () =>
    Effect.gen(function*() {
      const liveAgents = yield* LiveAgents
      const client = (yield* AgentEntity.client)("agt_entity")
      yield* client.ReserveOutreach({ conversationId: "conv_e1", at: 1_000 })
      yield* client.ReserveOutreach({ conversationId: "conv_e1", at: 1_000 })
      yield* liveAgents.reserveOutreach("agt_entity", "conv_e2", 1_000)
      const remote = yield* Effect.flip(client.ReserveOutreach({ conversationId: "conv_e3", at: 1_000 }))
      const local = yield* Effect.flip(liveAgents.reserveOutreach("agt_entity", "conv_e3", 1_000))
      assert.strictEqual(remote._tag, "ColdCapExceeded")
      assert.deepStrictEqual(JSON.stringify(remote), JSON.stringify(local))
    }))

  it.effect("every refusal of a send survives the way between runners", () =>
    Effect.gen(function*() {
      const codec = Schema.toCodecJson(SendFailure)
      const conversations = yield* Conversations
      const a = yield* newAgent("way-a")
      const failure = yield* Effect.flip(conversations.send(a, { _tag: "Direct", handle: "way-nobody" }, draft("m1")))
      assert.strictEqual(failure._tag, "AgentNotFound")
      const there = yield* Schema.encodeUnknownEffect(codec)(failure)
      const back = yield* Schema.decodeUnknownEffect(codec)(JSON.parse(JSON.stringify(there)))
      assert.strictEqual(JSON.stringify(back), JSON.stringify(failure))
    }))

  it.effect("what another runner was asked goes to webhooks with the id of the request", () =>
    Effect.gen(function*() {
      const groups = yield* Groups
      const webhooks = yield* Webhooks
      const sql = yield* SqlClient.SqlClient
      const conversation = yield* ConversationEntity.client
      const group = yield* GroupEntity.client
      const [a, b] = [yield* newAgent("far-a"), yield* newAgent("far-b")]
      const events = ["message.new", "contact.blocked"] as const
      const { webhook } = yield* webhooks.create(b.id, "https://far.example/", events, undefined)
      const sender = { id: a.id, handle: a.handle, displayName: a.handle }
      const id = makeDirectIds((yield* Secrets).conversationIds)(a.id, b.id)
      const profile = { name: "Far", description: null, avatarUrl: null }
      const made = yield* groups.create(a, { profile, handles: [b.handle] })
      yield* groups.accept(b, String(made.add_results[0]?.invite_id))
      const there = group(made.group.id)
      const direct = { sender, recipient: { id: b.id, handle: b.handle }, draft: draft("far-1") }
      yield* conversation(id).Send({ command: direct }, asked("r-send"))
      yield* there.SendToGroup({ command: { sender, draft: draft("far-2") } }, asked("r-group"))
      yield* there.Update({ actorId: a.id, messageIds: [], name: "Near" }, asked("r-change"))
      yield* there.SendToGroup({ command: { sender, draft: draft("far-3") } })
      const blocking = { agentId: a.id, blockedId: b.id, at: 1_000, report: null }
      yield* conversation(id).Block({ command: blocking }, asked("r-block"))
      const rows = yield* sql<{ request_id: string | null }>`
        SELECT request_id FROM webhook_deliveries WHERE webhook_id = ${webhook.id} ORDER BY no`
      assert.deepStrictEqual(rows.map((row) => row.request_id), ["r-send", "r-group", "r-change", null, "r-block"])
    }))
})
