import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

const ERASE_REACTIONS = `
DELETE FROM reactions WHERE agent_id = $1 AND (conversation_id, seq, emoji) IN (
  SELECT conversation_id, seq, emoji FROM reactions WHERE agent_id = $1 LIMIT $2
)
RETURNING seq`

/** The table of reactions to messages. */
export const reactionsTables: ReadonlyArray<OwnedTable> = [
  {
    table: "reactions",
    // Messages are removed from the beginning. A reaction that was committed meanwhile is removed with the next ones.
    retention: { withMessage: "t.conversation_id = m.conversation_id AND t.seq <= m.seq" },
    deletion: "keeps",
    erasure: { removes: ["traces"], keeps: [], batch: { name: "erase_reactions", text: ERASE_REACTIONS } },
    exports: [
      {
        name: "reactions",
        about: "Its reactions to messages.",
        columns: ["conversation_id", "seq", "emoji", "created_at"],
        without: { agent_id: SELF },
        key: [["conversation_id", "text"], ["seq", "bigint"], ["emoji", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
