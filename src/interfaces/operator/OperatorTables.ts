import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The tables of the audit log and of the credentials for the operators' API. */
export const operatorTables: ReadonlyArray<OwnedTable> = [
  {
    table: "audit_log",
    retention: { kept: "it says what operators did" },
    deletion: "keeps",
    erasure: { removes: ["address"], keeps: ["audit log"] },
    exports: [
      {
        name: "audit",
        about:
          "What operators changed or read of it, and suspensions by enforcement (operator null), and connections that began or ended (operator server).",
        columns: ["no", "at", "operator", "action", "reason"],
        without: { agent_id: SELF },
        key: [["no", "bigint"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "console_access",
    retention: { kept: "making an access removes those that ended long ago" },
    notExported: "operators' sessions and tokens"
  },
  {
    table: "announcements",
    retention: { kept: "it says what operators announced" },
    notExported: "what operators announced to all agents; their messages are in the conversations"
  }
]
