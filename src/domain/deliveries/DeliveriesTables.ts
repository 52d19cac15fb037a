import { shownColumns } from "#domain/messages/MessagesTables"
import { LARGE, type OwnedTable, SAME, SELF, SMALL } from "#infrastructure/database/Tables"

/** The tables of inboxes and of the envelopes in them. */
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
  }
]
