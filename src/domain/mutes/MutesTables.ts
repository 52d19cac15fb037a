import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** The table of mutes. */
export const mutesTables: ReadonlyArray<OwnedTable> = [
  {
    table: "mutes",
    retention: { expires: [{ job: "mutes", every: "1 hour", column: "muted_until" }] },
    deletion: "deletes",
    erasure: { removes: ["contacts"], keeps: [] },
    exports: [
      {
        name: "mutes",
        about: "What it has muted: agents and conversations.",
        columns: ["kind", "target_id", "muted_until", "created_at"],
        without: { muter_id: SELF },
        key: [["kind", "text"], ["target_id", "text"]],
        mine: "t.muter_id = $1",
        slice: SMALL
      }
    ]
  }
]
