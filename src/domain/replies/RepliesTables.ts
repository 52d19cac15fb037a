import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"
import { CLAIM_MS, LONGEST_LEASE_MS } from "./Reply.ts"

const SWEEP = { job: "replies", every: "1 minute", column: "ends_at" } as const

/** The tables of leases, and of claims of messages. */
export const repliesTables: ReadonlyArray<OwnedTable> = [
  {
    table: "reply_leases",
    retention: { expires: [{ ...SWEEP, longestMs: LONGEST_LEASE_MS }] },
    deletion: "deletes",
    erasure: { removes: ["traces"], keeps: [] },
    exports: [
      {
        name: "reply_leases",
        about: "Its processes that have reported that they are working.",
        columns: ["session_id", "ends_at"],
        without: { agent_id: SELF },
        key: [["session_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "reply_claims",
    retention: { expires: [{ ...SWEEP, longestMs: CLAIM_MS }], jobs: ["messages"] },
    deletion: "deletes",
    erasure: { removes: ["traces"], keeps: [] },
    exports: [
      {
        name: "reply_claims",
        about: "Which of its processes may answer which message.",
        columns: ["message_id", "holder", "ends_at"],
        without: { agent_id: SELF },
        key: [["message_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
