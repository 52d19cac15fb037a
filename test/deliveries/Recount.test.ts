import { Accounts } from "#domain/agents/Accounts"
import { Conversations } from "#domain/conversations/Conversations"
import { MessageRetention } from "#domain/conversations/MessageRetention"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Groups } from "#domain/groups/Groups"
import { WebhookClient } from "#domain/webhooks/WebhookClient"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as fc from "fast-check"
import { layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const RUNS = Number(process.env["RECOUNT_RUNS"] ?? 3)
const SEED = Number(process.env["RECOUNT_SEED"] ?? Date.now() % 1_000_000_000)
const AGENTS = 4

/** Whatever takes something out of what waits for an agent. */
const TAKING = [
  "sync and ack",
  "ack",
  "read",
  "read through",
  "hide message",
  "hide conversation",
  "leave",
  "remove",
  "end group",
  "webhook",
  "retention",
  "delete account"
] as const
type Kind = typeof TAKING[number] | "direct" | "group" | "join"

interface Step {
  readonly kind: Kind
  readonly agent: number
  readonly other: number
  readonly pick: number
}

const step = fc.record<Step>({
  kind: fc.oneof(
    { weight: 9, arbitrary: fc.constant<Kind>("direct") },
    { weight: 9, arbitrary: fc.constant<Kind>("group") },
    { weight: 6, arbitrary: fc.constant<Kind>("join") },
    { weight: 18, arbitrary: fc.constantFrom<Kind>(...TAKING.slice(0, 9)) },
    { weight: 1, arbitrary: fc.constantFrom<Kind>("webhook", "retention", "delete account") }
  ),
  agent: fc.nat(AGENTS - 1),
  other: fc.nat(AGENTS - 2),
  pick: fc.nat(20)
})

/** Steps one after the other, some of them at once. */
const histories = fc.array(
  fc.oneof({ weight: 2, arbitrary: step.map((one) => [one]) }, {
    weight: 1,
    arbitrary: fc.array(step, { minLength: 2, maxLength: 6 })
  }),
  { minLength: 30, maxLength: 40, size: "max" }
)

/** What is done to a message that waits. */
const OF_A_ROW: ReadonlySet<Kind> = new Set([
  "sync and ack",
  "ack",
  "read",
  "read through",
  "hide message",
  "hide conversation"
])

const stepOf = (kind: Kind, agent: number, other = 0): Step => ({ kind, agent, other, pick: 0 })

/** Each of them once, when there is something to take. */
const EACH = TAKING.flatMap((kind) => [
  [0, 1, 2, 3].map((agent) => stepOf("join", agent)),
  [stepOf("direct", 0, 0), stepOf("direct", 1, 2), stepOf("group", 0), stepOf("group", 3)],
  [stepOf(kind, 1)]
])

interface Row {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
  readonly delivery_id: string
}

const internet = Layer.mergeAll(
  Layer.succeed(NameLookup, () => Effect.succeed(["93.184.216.34"])),
  Layer.succeed(WebhookClient, () => Effect.succeed(200))
)

let serial = 0

for (
  const [name, database, runs] of [["PGlite", layerPgliteTest, RUNS], [
    "PostgreSQL 18",
    layerPostgresTest(),
    RUNS
  ]] as const
) {
  layer(
    layerModules(database, { LIMITS_SENDS_PER_SECOND: 1_000_000, RETENTION_MESSAGES_DAYS: 1 }).pipe(
      Layer.provideMerge(internet)
    )
  )((it) => {
    it.effect(`${runs} histories on ${name}: what waits for an agent is always what its inbox says`, () =>
      Effect.gen(function*() {
        const accounts = yield* Accounts
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const groups = yield* Groups
        const retention = yield* MessageRetention
        const sql = yield* SqlClient.SqlClient
        const webhooks = yield* Webhooks
        /** How often a step of a kind, alone, took something out of what waits. */
        const took = new Map<Kind, number>()

        /** What waits for one agent, and for all what their inboxes say. */
        const waiting = Effect.fnUntraced(function*(agentId: string | undefined, context: string) {
          const [row] = yield* sql<{ wrong: string | null; own: number | null }>`
            SELECT string_agg(n.agent_id, ' ') FILTER (WHERE n.undelivered <> e.n) AS wrong,
              max(n.undelivered) FILTER (WHERE n.agent_id = ${agentId ?? ""}) AS own
            FROM inboxes n
            CROSS JOIN LATERAL (SELECT count(*) AS n FROM envelopes WHERE recipient_id = n.agent_id AND delivered_at IS NULL) e`
          assert.isNull(row?.wrong, context)
          return row?.own ?? 0
        })

        const run = Effect.fnUntraced(function*(history: ReadonlyArray<ReadonlyArray<Step>>, context: string) {
          const agents = yield* Effect.forEach(Array.from({ length: AGENTS }), () => newAgent(`recount-${serial++}`))
          const profile = { name: "Band", description: null, avatarUrl: null }
          let groupId = (yield* groups.create(agents[0]!, { profile, handles: [] })).group.id
          let admin = 0

          const rowsOf = (agent: number) =>
            Effect.map(
              deliveries.sync(agents[agent]!.id, undefined, 50),
              (rows) => rows.map((text) => JSON.parse(text) as Row)
            )

          const perform = Effect.fnUntraced(function*({ agent, kind, other, pick }: Step) {
            const self = agents[agent]!
            const peer = agents[(agent + 1 + other) % AGENTS]!
            const row = OF_A_ROW.has(kind)
              ? yield* Effect.map(rowsOf(agent), (rows) => rows[pick % Math.max(1, rows.length)])
              : undefined
            switch (kind) {
              case "direct":
                return yield* conversations.send(self, { _tag: "Direct", handle: peer.handle }, draft(`r${serial++}`))
              case "group":
                return yield* conversations.send(self, { _tag: "Conversation", id: groupId }, draft(`r${serial++}`))
              case "sync and ack":
                return row && (yield* deliveries.acknowledgeThrough(self.id, row.delivery_id))
              case "ack": {
                if (row === undefined) return
                deliveries.acknowledge(self.id, deliveries.ids.decode(self.id, row.delivery_id) ?? 0)
                return yield* deliveries.settled
              }
              case "read":
                return row && (yield* deliveries.read(self.id, self.handle, row.id))
              case "read through":
                return row && (yield* deliveries.readThrough(self.id, self.handle, row.conversation_id, row.seq))
              case "hide message":
                return row && (yield* conversations.hideMessage(self.id, row.id))
              case "hide conversation":
                return row && (yield* conversations.hide(self.id, row.conversation_id))
              case "leave":
                return yield* groups.leave(self.id, groupId)
              case "remove":
                return yield* groups.removeMember(agents[admin]!.id, groupId, self.handle)
              case "join": {
                const { invite_id } = yield* groups.add(agents[admin]!, groupId, self.handle)
                return yield* groups.accept(self, invite_id ?? "")
              }
              case "end group": {
                yield* groups.remove(agents[admin]!.id, groupId)
                admin = agent
                groupId = (yield* groups.create(self, { profile, handles: [] })).group.id
                return
              }
              case "webhook": {
                const { webhook } = yield* webhooks.create(
                  self.id,
                  "https://hooks.example/",
                  ["message.new"],
                  undefined
                )
                yield* conversations.send(peer, { _tag: "Direct", handle: self.handle }, draft(`r${serial++}`))
                // Posted and acknowledged behind the send's back; not if another step has deleted the account
                // meanwhile.
                yield* Effect.promise(() =>
                  eventually("the post", async () => await Effect.runPromise(isDone(webhook.id)) || undefined)
                )
                yield* deliveries.settled
                yield* webhooks.remove(self.id, webhook.id)
                took.set("webhook", (took.get("webhook") ?? 0) + 1)
                return
              }
              case "retention":
                yield* leap("2 days")
                while ((yield* retention.sweep).more);
                return
              case "delete account": {
                yield* accounts.remove(self.id)
                agents[agent] = yield* newAgent(`recount-${serial++}`)
              }
            }
          })
          /** Whether everything for a webhook is posted, or the webhook deleted. */
          const isDone = (webhookId: string) =>
            Effect.map(
              sql`SELECT FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id
                WHERE d.webhook_id = ${webhookId} AND d.finished_at IS NULL AND w.deleted_at IS NULL`,
              (rows) => rows.length === 0
            )

          for (const [at, steps] of history.entries()) {
            const [one] = steps
            const agentId = one && agents[one.agent]?.id
            const before = yield* waiting(agentId, context)
            yield* Effect.forEach(steps, (one) => Effect.catch(perform(one), () => Effect.void), {
              concurrency: "unbounded"
            })
            const after = yield* waiting(agentId, `${context}, step ${at}: ${JSON.stringify(steps)}`)
            if (steps.length === 1 && one !== undefined && after < before)
              took.set(one.kind, (took.get(one.kind) ?? 0) + 1)
          }
        })

        yield* run(EACH, "each")
        assert.sameMembers([...took.keys()], [...TAKING])
        for (const [i, history] of fc.sample(histories, { seed: SEED, numRuns: runs }).entries()) {
          yield* run(history, `RECOUNT_SEED=${SEED}, history ${i}`)
        }
      }))
  })
}
