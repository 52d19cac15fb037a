import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The tables of handovers and recounts that are still due. */
export const enforcementTables: ReadonlyArray<OwnedTable> = [
  {
    table: "handovers",
    retention: { jobs: ["handovers"] },
    deletion: "keeps",
    erasure: { removes: ["notes about the erasure itself"], keeps: [] },
    exports: [
      {
        name: "handover",
        about: "A row while its groups are being given another admin.",
        columns: ["since"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "recounts",
    retention: { jobs: ["recounts"] },
    deletion: "keeps",
    erasure: { removes: ["notes about the erasure itself"], keeps: [] },
    exports: [
      {
        name: "recounts",
        about: "A row while blocks and reports against it wait to be counted again.",
        columns: ["no"],
        without: { agent_id: SELF },
        key: [["no", "bigint"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
