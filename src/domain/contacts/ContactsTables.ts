import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The tables of contacts, blocks and reports. */
export const contactsTables: ReadonlyArray<OwnedTable> = [
  {
    table: "contacts",
    retention: { kept: "the agent removes a contact itself" },
    deletion: "deletes",
    erasure: { removes: ["contacts"], keeps: [] },
    exports: [
      {
        name: "contacts",
        about: "Its contacts, with its notes about them.",
        columns: ["contact_id", "notes", "added_at"],
        without: { agent_id: SELF },
        key: [["contact_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "blocks",
    retention: { kept: "it protects the agent" },
    deletion: "keeps",
    erasure: { removes: [], keeps: ["blocks and reports, by it and of it"] },
    exports: [
      {
        name: "blocks",
        about:
          "The agents that it blocks. If counts is true, the blocked agent wrote first, and the block counts against that agent.",
        columns: ["blocked_id", "created_at", "counts"],
        without: { agent_id: SELF },
        key: [["blocked_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      },
      {
        name: "blocks_received",
        about: "When it was blocked, for each block that counts against it.",
        columns: ["created_at"],
        without: { agent_id: "a block is private to the agent that made it", blocked_id: SELF, counts: "always true" },
        key: [["created_at", "bigint"], ["agent_id", "text"]],
        mine: "t.blocked_id = $1 AND t.counts",
        slice: SMALL
      }
    ]
  },
  {
    table: "reports",
    retention: { kept: "it protects others, and goes on counting" },
    deletion: "keeps",
    erasure: { removes: [], keeps: ["blocks and reports, by it and of it"] },
    exports: [
      {
        name: "reports",
        about: "Its reports of others, and what operators decided.",
        columns: ["id", "reported_id", "reason", "conversation_id", "created_at", "decision", "decided_at"],
        without: { agent_id: SELF, decided_by: "an operator", note: "an operator's note about another agent" },
        key: [["reported_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      },
      {
        name: "reports_received",
        about: "Reports against it: when they were made, and what operators decided.",
        columns: ["id", "created_at", "decision", "decided_at"],
        without: {
          agent_id: "the agent that reported stays anonymous",
          reason: "the reporter's words, which may reveal the reporter",
          conversation_id: "reveals the reporter",
          reported_id: SELF,
          decided_by: "an operator",
          note: "an operator's note, which is about the reporter too"
        },
        key: [["created_at", "bigint"], ["agent_id", "text"]],
        mine: "t.reported_id = $1",
        slice: SMALL
      }
    ]
  }
]
