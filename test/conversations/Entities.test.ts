import { AgentNotFound, AgentSuspended } from "#domain/agents/Agent"
import { Conversations, type Sender, type SendError } from "#domain/conversations/Conversations"
import { makeDirectIds } from "#domain/direct/DirectConversation"
import { DirectEntity, SendFailure } from "#domain/direct/DirectEntity"
import { GroupEntity, GroupSendFailure } from "#domain/groups/GroupEntity"
import { Groups } from "#domain/groups/Groups"
import { GroupDeleted } from "#domain/memberships/GroupDeletion"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import { AgentEntity } from "#domain/push/AgentEntity"
import { LiveAgents } from "#domain/push/LiveAgents"
import { PushRouter } from "#domain/push/PushRouter"
import * as Errors from "#domain/sending/SendErrors"
import type { Sent } from "#domain/sending/Sent"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { awaitShards } from "#infrastructure/cluster/Cluster"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { Members } from "#infrastructure/cluster/Members"
import { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { DEFAULT_SHARDS, Shards } from "#infrastructure/cluster/Shards"
import { Secrets } from "#infrastructure/database/Secrets"
import { StorageUnavailable } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { forRequest } from "#infrastructure/platform/RequestId"
import { RateLimited, Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { assert, layer } from "@effect/vitest"
import { Clock, Context, Effect, Exit, Layer } from "effect"
import {
  type Entity,
  MessageStorage,
  RunnerHealth,
  Runners,
  RunnerStorage,
  ShardId,
  Sharding,
  ShardingConfig
} from "effect/cluster"
import type { Rpc } from "effect/rpc"
import { SqlClient } from "effect/sql"
import * as Entities from "../../src/Services.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { connected, layerLines, makeCalls, type Wires, wires } from "../support/Lines.ts"
import { draft, newAgent } from "../support/Modules.ts"

/** A node without shards: `owner` has all of them. */
const gateway = (owner: string) =>
  Layer.merge(
    Layer.succeed(
      Members,
      Members.of({
        list: () => undefined,
        after: () => Effect.never,
        belongs: () => true,
        others: () => [owner],
        ownersOf: () => [owner],
        refresh: Effect.void
      })
    ),
    Layer.mock(Sharding.Sharding, { getShardId: () => ShardId.make("default", 1), hasShardId: () => false })
  )

/** Calls to an entity from a node that has none of its shards. */
const clientOf = <Type extends string, Rpcs extends Rpc.Any>(entity: Entity.Entity<Type, Rpcs>) =>
  EntityRpc.make(
    entity,
    Object.fromEntries(Array.from(entity.protocol.requests.keys(), (name) => [name, {
      run: () => Effect.die("it was done where the shard is not")
    }])) as never
  )

/** What a gateway calls, and the connections between it and the node that has the shards. */
const farOf = (made: Wires) =>
  Effect.all({
    wires: Effect.succeed(made),
    conversations: clientOf(DirectEntity),
    groups: clientOf(GroupEntity),
    agents: clientOf(AgentEntity)
  })
class Far extends Context.Service<Far, Effect.Success<ReturnType<typeof farOf>>>()("parley/test/Far") {}

/** The modules on a node that has every shard, and a gateway beside it, with a line between them. */
const bothNodes = Layer.unwrap(Effect.map(wires, (made) => {
  made.record()
  const cluster = NodeCalls.layer.pipe(
    Layer.provideMerge(Layer.merge(layerLines(made, "owner"), Members.layerAlone)),
    Layer.provideMerge(Sharding.layer),
    Layer.provideMerge(Runners.layerNoop),
    Layer.provideMerge(MessageStorage.layerNoop),
    Layer.provide([RunnerStorage.layerMemory, RunnerHealth.layerNoop]),
    Layer.provideMerge(Shards.layer()),
    Layer.provide(ShardingConfig.layer({ shardsPerGroup: DEFAULT_SHARDS }))
  )
  const modules = Entities.layer.pipe(
    Layer.provideMerge(
      Layer.provideMerge(Layer.effectDiscard(awaitShards), cluster).pipe(
        Layer.provide(Layer.succeed(Clock.Clock, Clock.Clock.defaultValue()))
      )
    ),
    Layer.provideMerge(layerPgliteTest),
    Layer.provideMerge(Layer.mergeAll(Config.layerTest({ LIMITS_COLD_CONVERSATIONS: 2 }), Ids.layer))
  )
  const far = Layer.effect(
    Far,
    Effect.gen(function*() {
      const lines = yield* PeerConnections
      const there = yield* Layer.build(
        Layer.fresh(PushRouter.layer).pipe(
          Layer.provideMerge(Layer.fresh(NodeCalls.layer)),
          Layer.provideMerge(layerLines(made, "gateway")),
          Layer.provideMerge(gateway("owner"))
        )
      )
      yield* connected(lines, Context.get(there, PeerConnections))
      return yield* Effect.provideContext(farOf(made), there)
    })
  )
  return Layer.provideMerge(far, modules)
}))

const calls = (wires: Wires, procedure: string) =>
  wires.record().filter(({ entry: [topic, , called] }) => topic === "call" && called === procedure).length

const parse = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>

layer(bothNodes)((it) => {
  it.effect("a send through another node gives what the local call gives, refusals included", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const far = yield* Far
      const id = makeDirectIds((yield* Secrets).conversationIds)
      const send =
        (way: "local" | "remote") => (from: Sender, to: typeof from, key: string): Effect.Effect<Sent, SendError> =>
          way === "remote"
            ? far.conversations.Send(id(from.id, to.id), {
              command: {
                sender: { id: from.id, handle: from.handle, displayName: from.handle },
                recipient: { id: to.id, handle: to.handle },
                draft: draft(key)
              }
            })
            : conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(key))
      const story = Effect.fnUntraced(function*(way: "local" | "remote") {
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
            const failure = reason?._tag === "Fail" ? reason.error : assert.fail(String(exit.cause))
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
      assert.strictEqual(calls(far.wires, "Conversation/Send"), 0)
      assert.deepStrictEqual(yield* story("remote"), local)
      assert.strictEqual(calls(far.wires, "Conversation/Send"), local.length)
    }))

  it.effect("an agent's slots are counted for other nodes as well", () =>
    Effect.gen(function*() {
      const liveAgents = yield* LiveAgents
      const { agents } = yield* Far
      yield* agents.ReserveOutreach("agt_entity", { conversationId: "conv_e1", at: 1_000 })
      yield* agents.ReserveOutreach("agt_entity", { conversationId: "conv_e1", at: 1_000 })
      yield* liveAgents.reserveOutreach("agt_entity", "conv_e2", 1_000)
      const remote = yield* Effect.flip(agents.ReserveOutreach("agt_entity", { conversationId: "conv_e3", at: 1_000 }))
      const local = yield* Effect.flip(liveAgents.reserveOutreach("agt_entity", "conv_e3", 1_000))
      assert.strictEqual(remote._tag, "ColdCapExceeded")
      assert.deepStrictEqual(JSON.stringify(remote), JSON.stringify(local))
    }))

  it.effect("every refusal of a send survives the way between nodes", () =>
    Effect.gen(function*() {
      const recipient_handle = "way-b"
      const at = new Date(1_000).toISOString()
      const refusals = [
        new Unauthorized({ message: "This key is not known." }),
        new AgentNotFound({}),
        new AgentSuspended({}),
        new Errors.Blocked({}),
        new Errors.AgentRestricted({}),
        new Errors.InboxRestricted({ details: { recipient_handle } }),
        new Errors.AwaitingReply({ details: { recipient_handle, waiting_since: at } }),
        new Errors.ColdCapExceeded({
          details: { limit: 2, used: 2, window_seconds: 60, resets_at: at, retry_after_ms: 1_500 }
        }),
        new Errors.AttachmentNotFound({}),
        new Errors.AttachmentNotReady({ details: { reason: "checksum" } }),
        new Errors.AttachmentWrongScope({}),
        new Errors.RecipientBacklogged({ details: { recipient_handle, undelivered_count: 10_000 } }),
        new StorageUnavailable({}),
        new Unavailable({}),
        new GroupNotFound({}),
        new GroupDeleted({}),
        new RateLimited({ details: { retry_after_ms: 100, limit: 1, window: "second" } })
      ]
      const made = yield* wires
      const [owner, caller] = [yield* makeCalls(made, "owner"), yield* makeCalls(made, "gateway")]
      for (const { lines } of [owner, caller]) yield* lines.start
      yield* connected(owner.lines, caller.lines)
      const refuse = { run: (index: string) => Effect.fail(refusals[Number(index)] as never) }
      const all = Layer.mock(Sharding.Sharding, {
        getShardId: () => ShardId.make("default", 1),
        hasShardId: () => true
      })
      for (
        const [entity, send, failures] of [
          [DirectEntity, "Send", SendFailure],
          [GroupEntity, "SendToGroup", GroupSendFailure]
        ] as const
      ) {
        yield* Effect.gen(function*() {
          const names = Array.from(entity.protocol.requests.keys() as Iterable<string>)
          yield* EntityRpc.make(
            entity as typeof DirectEntity,
            Object.fromEntries(names.map((name) => [name, refuse])) as never
          )
        }).pipe(Effect.provide(Layer.merge(Members.layerAlone, all)), Effect.provideContext(owner.context))
        const client = (yield* clientOf(entity as typeof DirectEntity).pipe(
          Effect.provide(gateway("owner")),
          Effect.provideContext(caller.context)
        )) as unknown as Record<string, (id: string, payload: unknown) => Effect.Effect<unknown, unknown>>
        const sender = { id: "agt_a", handle: "way-a", displayName: null }
        const command = { sender, recipient: { id: "agt_b", handle: "way-b" }, draft: draft("m1") }
        for (const failure of failures.members) {
          const index = refusals.findIndex((refusal) => refusal instanceof failure)
          assert.isAtLeast(index, 0, `no example of ${String(failure)}`)
          const back = yield* Effect.flip(client[send]!(String(index), { command }))
          assert.isTrue(back instanceof failure)
          assert.strictEqual(JSON.stringify(back), JSON.stringify(refusals[index]))
        }
      }
    }))

  it.effect("a send through another node is posted to webhooks with the id of the request", () =>
    Effect.gen(function*() {
      const groups = yield* Groups
      const webhooks = yield* Webhooks
      const sql = yield* SqlClient.SqlClient
      const far = yield* Far
      const [a, b] = [yield* newAgent("far-a"), yield* newAgent("far-b")]
      const events = ["message.new", "contact.blocked"] as const
      const { webhook } = yield* webhooks.create(b.id, "https://far.example/", events, undefined)
      const sender = { id: a.id, handle: a.handle, displayName: a.handle }
      const id = makeDirectIds((yield* Secrets).conversationIds)(a.id, b.id)
      const profile = { name: "Far", description: null, avatarUrl: null }
      const made = yield* groups.create(a, { profile, handles: [b.handle] })
      yield* groups.accept(b, String(made.add_results[0]?.invite_id))
      const group = made.group.id
      const direct = { sender, recipient: { id: b.id, handle: b.handle }, draft: draft("far-1") }
      yield* forRequest("r-send", far.conversations.Send(id, { command: direct }))
      yield* forRequest("r-group", far.groups.SendToGroup(group, { command: { sender, draft: draft("far-2") } }))
      yield* forRequest("r-change", far.groups.Update(group, { actorId: a.id, messageIds: [], name: "Near" }))
      yield* far.groups.SendToGroup(group, { command: { sender, draft: draft("far-3") } })
      const blocking = { agentId: a.id, blockedId: b.id, at: 1_000, report: null }
      yield* forRequest("r-block", far.conversations.Block(id, { command: blocking }))
      const rows = yield* sql<{ request_id: string | null }>`
        SELECT request_id FROM webhook_deliveries WHERE webhook_id = ${webhook.id} ORDER BY no`
      assert.deepStrictEqual(rows.map((row) => row.request_id), ["r-send", "r-group", "r-change", null, "r-block"])
    }))
})
