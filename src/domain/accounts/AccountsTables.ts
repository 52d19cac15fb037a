import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The table of unfinished deletions and erasures. */
export const accountsTables: ReadonlyArray<OwnedTable> = [
  {
    table: "deletions",
    retention: { jobs: ["deletions"] },
    deletion: "deletes",
    erasure: { removes: ["notes about the erasure itself"], keeps: [] },
    exports: [
      {
        name: "deletion",
        about: "A row while its deletion or erasure is under way.",
        columns: ["since", "due_at", "erase"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
