import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The table of status messages, and of when agents were last seen. */
export const presenceTables: ReadonlyArray<OwnedTable> = [
  {
    table: "presences",
    retention: { kept: "one row for each agent, at most" },
    deletion: "deletes",
    erasure: { removes: ["profile"], keeps: [] },
    exports: [
      {
        name: "presence",
        about: "The status message that its contacts see, and when it was last seen.",
        columns: ["custom_message", "last_seen"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
