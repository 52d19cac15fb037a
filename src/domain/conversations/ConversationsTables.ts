import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

const ERASE_HIDES = `
DELETE FROM hidden_messages WHERE agent_id = $1 AND (conversation_id, seq) IN (
  SELECT conversation_id, seq FROM hidden_messages WHERE agent_id = $1 LIMIT $2
)
RETURNING seq`

/** The table of single messages that agents have hidden from themselves. */
export const hiddenMessagesTables: ReadonlyArray<OwnedTable> = [
  {
    table: "hidden_messages",
    retention: {
      withMessage: "t.agent_id = m.agent_id AND t.conversation_id = m.conversation_id AND t.seq = m.seq"
    },
    deletion: "keeps",
    erasure: { removes: ["traces"], keeps: [], batch: { name: "erase_hides", text: ERASE_HIDES } },
    exports: [
      {
        name: "hidden_messages",
        about: "Single messages that it has hidden from itself.",
        columns: ["conversation_id", "seq"],
        without: { agent_id: SELF },
        key: [["conversation_id", "text"], ["seq", "bigint"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
