import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ColdSlots } from "../../src/agents/ColdSlots.ts"
import { makeAppend } from "../../src/conversations/Append.ts"
import { ConversationsRepo } from "../../src/conversations/ConversationsRepo.ts"
import { MessageRetention } from "../../src/conversations/MessageRetention.ts"
import { DeliveriesRepo } from "../../src/deliveries/DeliveriesRepo.ts"
import { makeGroupAppend } from "../../src/groups/GroupAppend.ts"
import { GroupSettings } from "../../src/groups/GroupSettings.ts"
import { GroupsRepo } from "../../src/groups/GroupsRepo.ts"
import { Config } from "../../src/platform/Config.ts"
import { Database } from "../../src/platform/Sql.ts"
import { layerPostgresTest } from "../support/Databases.ts"

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Cond"?: string
  readonly Plans?: ReadonlyArray<Node>
}

/** What a look-up in these tables must name to be one, whichever index serves it. */
const KEYS: Readonly<Record<string, ReadonlyArray<ReadonlyArray<string>>>> = {
  envelopes: [["recipient_id", "no"], ["conversation_id", "recipient_id", "seq"], ["conversation_id", "recipient_id"]],
  messages: [["conversation_id", "seq"], ["id"], ["conversation_id"]],
  agents: [["id"], ["handle"]],
  groups: [["id"]],
  group_members: [["group_id"], ["agent_id"]],
  group_invites: [["id"], ["group_id"], ["invitee_id"], ["inviter_id"]],
  group_refusals: [["group_id", "agent_id"], ["refused_at"]],
  invite_budgets: [["agent_id"]],
  inboxes: [["agent_id"]],
  conversations: [["id"], ["oldest_at"]],
  participants: [["agent_id"], ["conversation_id"]],
  cold_slots: [["agent_id"], ["conversation_id"]],
  outreach_turns: [["agent_id"]],
  message_keys: [["sender_id", "client_msg_id"]],
  hidden_messages: [["agent_id", "conversation_id", "seq"], ["agent_id", "conversation_id"]],
  webhooks: [["agent_id"]]
}

const scans = (node: Node): ReadonlyArray<{ readonly table: string; readonly condition: string }> => {
  const below = (node.Plans ?? []).flatMap(scans)
  const table = node["Relation Name"]
  if (table === undefined || node["Node Type"] === "ModifyTable") return below
  const condition = node["Index Cond"] ?? (node.Plans ?? []).map((plan) => plan["Index Cond"] ?? "").join(" ")
  return [{ table, condition }, ...below]
}

it.effect("every prepared statement reaches its rows by their keys, although it is planned on empty tables", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const { driver } = yield* Database
    const texts = new Map<string, string>()
    const recording = Layer.succeed(Database, {
      driver,
      prepared: (name, text) => {
        texts.set(name, text)
        return () => Effect.succeed([])
      }
    })
    yield* Layer.build(Layer.mergeAll(
      ConversationsRepo.layer,
      DeliveriesRepo.layer,
      ColdSlots.layer,
      GroupSettings.layer,
      GroupsRepo.layer,
      MessageRetention.layer
    )).pipe(
      Effect.andThen(makeAppend(1, () => {})),
      Effect.andThen(makeGroupAppend(() => {})),
      Effect.provide(Layer.merge(recording, Config.layerTest()))
    )
    assert.isAbove(texts.size, 15)
    const wrong: Array<string> = []
    for (const [name, text] of texts) {
      const rows = yield* sql.unsafe<{ readonly "QUERY PLAN": ReadonlyArray<{ readonly Plan: Node }> }>(
        `EXPLAIN (GENERIC_PLAN, FORMAT JSON) ${text}`
      )
      for (const { condition, table } of scans(rows[0]!["QUERY PLAN"][0]!.Plan)) {
        const keys = KEYS[table]
        if (keys !== undefined && !keys.some((columns) => columns.every((column) => new RegExp(`\\b${column}\\b`).test(condition)))) {
          wrong.push(`${name}: ${table} by (${condition})`)
        }
      }
    }
    assert.deepStrictEqual(wrong, [])
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
