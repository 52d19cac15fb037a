import { type OwnedTable, SMALL, WHOLE } from "#infrastructure/database/Tables"

/** The tables of A2A tasks and of the push configurations to which the changes of tasks are posted. */
export const a2aTables: ReadonlyArray<OwnedTable> = [
  {
    table: "a2a_tasks",
    retention: { jobs: ["a2a_tasks"] },
    deletion: "keeps",
    erasure: { removes: [], keeps: ["messages and their files"] },
    exports: [
      {
        name: "a2a_tasks",
        about: "Tasks of A2A that it called or was called for.",
        columns: [
          "id",
          "conversation_id",
          "seq",
          "caller_id",
          "recipient_id",
          "state",
          "open",
          "updated_at",
          "changes",
          "log"
        ],
        without: {},
        key: [["id", "text"]],
        mine: "(t.caller_id = $1 OR t.recipient_id = $1)",
        whole: true,
        slice: WHOLE
      }
    ],
    json: ["log"]
  },
  {
    table: "a2a_push_configs",
    retention: { jobs: ["a2a_push_configs"] },
    deletion: "keeps",
    erasure: { removes: ["webhooks"], keeps: [] },
    exports: [
      {
        name: "a2a_push_configs",
        about: "The webhooks that get changes of its tasks; the addresses are in webhooks.jsonl.",
        columns: ["webhook_id", "task_id", "name", "created_at", "ended_at"],
        without: { counts_for: "always the agent, or null once nothing can be posted any more" },
        key: [["webhook_id", "text"]],
        mine: "t.webhook_id IN (SELECT id FROM webhooks WHERE agent_id = $1)",
        slice: SMALL
      }
    ]
  },
  {
    table: "a2a_conversations",
    retention: { jobs: ["a2a_conversations"] },
    notExported: "how far messages were taken into account for tasks"
  }
]
