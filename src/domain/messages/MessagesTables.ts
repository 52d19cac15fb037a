import { LARGE, type OwnedTable, SAME, SELF, SMALL, WHOLE } from "#infrastructure/database/Tables"

/**
 * Shows hidden direct conversations again. Groups are excluded, because in a group `hidden_through` also records where
 * the history begins for a member.
 */
const SHOW_AGAIN = `
UPDATE participants SET hidden_through = 0 WHERE agent_id = $1 AND conversation_id IN (
  SELECT conversation_id FROM participants WHERE agent_id = $1 AND counterparty_id IS NOT NULL AND hidden_through > 0 LIMIT $2
)
RETURNING conversation_id`

const ORDER = "nodes use it to keep their writes in order"
/** The columns of `messages` that every exported file with messages contains. */
export const shownColumns = ["type", "content", "metadata", "created_at"]

/** The tables of conversations of both kinds, their participants and their messages. */
export const messagesTables: ReadonlyArray<OwnedTable> = [
  {
    table: "participants",
    retention: { kept: "a conversation stays listed without its messages" },
    deletion: "deletes",
    erasure: {
      removes: ["traces"],
      keeps: ["messages and their files"],
      batch: { name: "erase_hidden_conversations", text: SHOW_AGAIN }
    },
    exports: [
      {
        name: "conversations",
        about:
          "The conversations that it takes part in, with what it has hidden of them (all seqs up to hidden_through).",
        columns: ["conversation_id", "counterparty_id", "hidden_through"],
        without: { agent_id: SELF },
        key: [["conversation_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL,
        join: {
          as: "conversation",
          table: "conversations",
          on: "j.id = t.conversation_id",
          columns: ["kind", "initiator_id", "established_at", "last_seq", "last_message_at", "created_at"],
          without: { id: SAME, epoch: ORDER, version: ORDER, oldest_at: "how far old messages were removed" }
        }
      }
    ]
  },
  {
    table: "conversations",
    retention: { kept: "a conversation stays listed without its messages" },
    deletion: "changes",
    erasure: { removes: [], keeps: ["messages and their files"] },
    exports: []
  },
  {
    table: "messages",
    retention: { jobs: ["messages"] },
    deletion: "keeps",
    erasure: { removes: [], keeps: ["messages and their files"] },
    exports: [
      {
        name: "messages_sent",
        about: "The messages that it has sent, in the order of client_msg_id.",
        columns: ["id", "conversation_id", "seq", "client_msg_id", ...shownColumns],
        without: { sender_id: SELF },
        key: [["client_msg_id", "text"]],
        mine: "t.sender_id = $1 AND t.type <> 'system'",
        slice: LARGE
      },
      {
        name: "group_events",
        about: "Messages of the system in its groups that its own acts have caused: joined, left, renamed, …",
        columns: ["id", "conversation_id", "seq", ...shownColumns],
        without: { sender_id: SELF, client_msg_id: "made of the id" },
        key: [["conversation_id", "text"], ["seq", "bigint"]],
        mine: "t.sender_id = $1 AND t.type = 'system'",
        byGroup: true,
        slice: WHOLE
      }
    ],
    json: ["content", "metadata"]
  }
]
