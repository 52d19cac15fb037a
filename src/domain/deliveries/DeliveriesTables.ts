import { shownColumns } from "#domain/messages/MessagesTables"
import { LARGE, type OwnedTable, SAME, SELF, SMALL } from "#infrastructure/database/Tables"

const ERASE_OUTCOMES = `
DELETE FROM outcomes WHERE recipient_id = $1 AND (conversation_id, seq) IN (
  SELECT conversation_id, seq FROM outcomes WHERE recipient_id = $1 LIMIT $2
)
RETURNING seq`

/** The tables of inboxes, of the envelopes in them, and of the outcomes that recipients report. */
export const deliveriesTables: ReadonlyArray<OwnedTable> = [
  {
    table: "envelopes",
    retention: { jobs: ["messages"] },
    deletion: "changes",
    erasure: { removes: [], keeps: ["states of messages to it"] },
    exports: [
      {
        name: "messages_received",
        about:
          "The messages that it has received, in the order of arrival; delivered_at and read_at are the states of its own copy.",
        columns: ["no", "conversation_id", "seq", "delivered_at", "read_at"],
        without: { recipient_id: SELF },
        key: [["no", "bigint"]],
        mine: "t.recipient_id = $1",
        slice: LARGE,
        join: {
          as: "message",
          table: "messages",
          on: "j.conversation_id = t.conversation_id AND j.seq = t.seq",
          columns: ["id", "sender_id", ...shownColumns],
          without: { conversation_id: SAME, seq: SAME, client_msg_id: "the sender's own id for it" }
        }
      }
    ]
  },
  {
    table: "inboxes",
    retention: { kept: "one row for each agent" },
    deletion: "changes",
    erasure: { removes: [], keeps: ["states of messages to it"] },
    exports: [
      {
        name: "inbox",
        about: "The counters of its inbox.",
        columns: ["last_no", "undelivered", "delivered_through"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "outcomes",
    retention: {
      // Messages are removed from the beginning. An outcome that was committed meanwhile is removed with the next ones.
      withMessage: "t.recipient_id = m.agent_id AND t.conversation_id = m.conversation_id AND t.seq <= m.seq"
    },
    deletion: "keeps",
    erasure: { removes: ["traces"], keeps: [], batch: { name: "erase_outcomes", text: ERASE_OUTCOMES } },
    exports: [
      {
        name: "outcomes",
        about: "What it has reported about messages that it received: working, done or refused, with its reason.",
        columns: ["conversation_id", "seq", "state", "reason", "at"],
        without: { recipient_id: SELF },
        key: [["conversation_id", "text"], ["seq", "bigint"]],
        mine: "t.recipient_id = $1",
        slice: SMALL
      }
    ]
  }
]
