import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** An agent's processes, and which of them answers which message. */
export const repliesTables: ReadonlyArray<OwnedTable> = [
  {
    table: "reply_leases",
    retention: { jobs: ["replies"] },
    deletion: "deletes",
    erasure: { removes: ["traces"], keeps: [] },
    exports: [
      {
        name: "reply_leases",
        about: "Its processes that have reported that they are working.",
        columns: ["session_id", "ends_at"],
        without: { agent_id: SELF },
        key: [["session_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "reply_claims",
    retention: { jobs: ["replies", "messages"] },
    deletion: "deletes",
    erasure: { removes: ["traces"], keeps: [] },
    exports: [
      {
        name: "reply_claims",
        about: "Which of its processes may answer which message.",
        columns: ["message_id", "holder", "ends_at"],
        without: { agent_id: SELF },
        key: [["message_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
