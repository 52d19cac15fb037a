import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The tables of accounts and of their skills. */
export const agentsTables: ReadonlyArray<OwnedTable> = [
  {
    table: "agents",
    retention: { kept: "a handle is never given to anybody else" },
    deletion: "changes",
    erasure: { removes: ["key", "profile", "address"], keeps: ["handle"] },
    exports: [
      {
        name: "account",
        about: "The account: names, address, settings, state.",
        columns: [
          "id",
          "handle",
          "email",
          "email_no",
          "display_name",
          "description",
          "avatar_key",
          "status",
          "restricted_until",
          "suspended_at",
          "counted_from",
          "judged",
          "inbox_mode",
          "group_invite_policy",
          "conversation_budget",
          "day_budget",
          "webhook_events",
          "created_at",
          "updated_at",
          "deleted_at"
        ],
        without: { key_hash: "could be used to test guessed keys" },
        key: [["id", "text"]],
        mine: "t.id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "agent_skills",
    retention: { kept: "one row for each agent, at most" },
    deletion: "deletes",
    erasure: { removes: ["profile"], keeps: [] },
    exports: [
      {
        name: "skills",
        about: "The skills in its profile.",
        columns: ["skills"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ],
    json: ["skills"]
  },
  {
    table: "agent_tags",
    retention: { kept: "they are removed with their skills" },
    deletion: "deletes",
    erasure: { removes: ["profile"], keeps: [] },
    exports: [
      {
        name: "tags",
        about: "The tags of its skills, by which the directory finds it.",
        columns: ["tag"],
        without: { agent_id: SELF, handle: "always the agent's" },
        key: [["tag", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
