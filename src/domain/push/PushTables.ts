import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The tables of the slots of the cold outreach cap. */
export const pushTables: ReadonlyArray<OwnedTable> = [
  {
    table: "outreach_turns",
    retention: { kept: "one row for each agent, at most" },
    deletion: "keeps",
    erasure: { removes: ["traces"], keeps: [], few: "turns" },
    exports: [
      {
        name: "unanswered_turns",
        about: "How many such conversations it has ever begun.",
        columns: ["turn"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "cold_slots",
    retention: { kept: "a reply frees the slot" },
    deletion: "keeps",
    erasure: { removes: ["traces"], keeps: [], few: "slots" },
    exports: [
      {
        name: "unanswered",
        about: "Conversations that it began and that count as unanswered.",
        columns: ["conversation_id", "reserved_at", "claimed_at"],
        without: { agent_id: SELF },
        key: [["conversation_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
