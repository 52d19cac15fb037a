import { type OwnedTable, SMALL } from "#ground/database/Tables"

/** The accounts. */
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
  }
]
