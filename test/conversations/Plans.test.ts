import { HistoryRepo } from "#domain/conversations/HistoryRepo"
import { MessageRetention } from "#domain/conversations/MessageRetention"
import { DeliveriesRepo } from "#domain/deliveries/DeliveriesRepo"
import { OutcomesRepo } from "#domain/deliveries/OutcomesRepo"
import { makeDirectAppend } from "#domain/direct/DirectAppend"
import { DirectRepo } from "#domain/direct/DirectRepo"
import { makeGroupAppend } from "#domain/groups/GroupAppend"
import { GroupsRepo } from "#domain/groups/GroupsRepo"
import { GroupReads } from "#domain/memberships/GroupReads"
import { ColdSlots } from "#domain/push/ColdSlots"
import { ReactionsRepo } from "#domain/reactions/ReactionsRepo"
import { SearchRepo } from "#domain/search/SearchRepo"
import { Config } from "#infrastructure/platform/Config"
import { PushConfigsRepo } from "#interfaces/a2a/PushConfigsRepo"
import { TasksRepo } from "#interfaces/a2a/TasksRepo"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layer as layerTables } from "../../src/Tables.ts"
import { layerPostgresTest } from "../support/Databases.ts"
import { scansOf } from "../support/Plans.ts"

/** What a look-up in these tables must name to be one, whichever index serves it. */
const KEYS: Readonly<Record<string, ReadonlyArray<ReadonlyArray<string>>>> = {
  envelopes: [["recipient_id", "no"], ["conversation_id", "recipient_id", "seq"], ["conversation_id", "recipient_id"]],
  messages: [["conversation_id", "seq"], ["id"], ["conversation_id"], ["sender_id", "client_msg_id"]],
  agents: [["id"], ["handle"]],
  groups: [["id"]],
  group_members: [["group_id"], ["agent_id"]],
  group_invites: [["id"], ["group_id"], ["invitee_id"], ["inviter_id"]],
  group_refusals: [["group_id", "agent_id"], ["refused_at"]],
  silent_group_changes: [["id"], ["changed_at"]],
  invite_budgets: [["agent_id"]],
  inboxes: [["agent_id"]],
  conversations: [["id"], ["oldest_at"]],
  participants: [["agent_id"], ["conversation_id"]],
  cold_slots: [["agent_id"], ["conversation_id"]],
  outreach_turns: [["agent_id"]],
  reply_claims: [["agent_id", "message_id"]],
  hidden_messages: [["agent_id", "conversation_id", "seq"], ["agent_id", "conversation_id"]],
  reactions: [["conversation_id", "seq"]],
  outcomes: [["conversation_id", "seq"], ["recipient_id"]],
  webhooks: [["agent_id"], ["id"]],
  a2a_conversations: [["conversation_id"]],
  message_words: [["words"], ["conversation_id", "seq"], ["conversation_id"]],
  message_word_ranges: [["conversation_id"]],
  a2a_tasks: [["id"], ["conversation_id"], ["messageId"]],
  a2a_push_configs: [["task_id"], ["webhook_id"], ["counts_for"]]
}

it.effect("every prepared statement reaches its rows by their keys, although it is planned on empty tables", () =>
  Effect.gen(function*() {
    const found = yield* scansOf(
      Layer.build(Layer.mergeAll(
        DirectRepo.layer,
        HistoryRepo.layer,
        DeliveriesRepo.layer,
        OutcomesRepo.layer,
        ReactionsRepo.layer,
        ColdSlots.layer,
        GroupReads.layer,
        GroupsRepo.layer,
        MessageRetention.layer,
        PushConfigsRepo.layer,
        SearchRepo.layer,
        TasksRepo.layer
      )).pipe(
        Effect.andThen(makeDirectAppend(1, () => {})),
        Effect.andThen(makeGroupAppend(() => {})),
        Effect.provide(Layer.merge(Config.layerTest(), layerTables))
      )
    )
    assert.isAbove(found.size, 15)
    const wrong = [...found].flatMap(([name, scans]) =>
      scans.filter(({ condition, table }) =>
        KEYS[table]?.some((columns) => columns.every((column) => new RegExp(`\\b${column}\\b`).test(condition))) ===
          false
      ).map(({ condition, table }) => `${name}: ${table} by (${condition})`)
    )
    assert.deepStrictEqual(wrong, [])
    // By another index, each message of a thread would read the whole conversation.
    for (const name of ["history_thread", "group_history_thread"]) {
      const answers = found.get(name)?.filter(({ index }) => index === "messages_by_answered") ?? []
      assert.deepStrictEqual(answers.map(({ condition }) => /substring/.test(condition)), [true], name)
    }
    // By another index, each unknown reply_to would read the logs of all open tasks of the conversation.
    assert.deepStrictEqual(found.get("open_a2a_tasks_with")?.map(({ index }) => index), ["a2a_tasks_by_message"])
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
