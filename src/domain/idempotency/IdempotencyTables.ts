import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

const ERASE = `
DELETE FROM idempotency_keys WHERE agent_id = $1 AND key IN (SELECT key FROM idempotency_keys WHERE agent_id = $1 LIMIT $2) RETURNING key`

/** The table of the stored responses to requests with an `Idempotency-Key`. */
export const idempotencyTables: ReadonlyArray<OwnedTable> = [
  {
    table: "idempotency_keys",
    retention: {
      expires: [
        {
          job: "idempotency_keys",
          every: "10 minutes",
          column: "created_at",
          keptMs: ({ IDEMPOTENCY_RETENTION_HOURS }) => IDEMPOTENCY_RETENTION_HOURS * 3_600_000
        }
      ]
    },
    deletion: "keeps",
    erasure: { removes: ["traces"], keeps: [], batch: { name: "erase_keys", text: ERASE } },
    exports: [
      {
        name: "idempotency_keys",
        about: "Idempotency-Keys of its requests of the last day, and how they were answered.",
        columns: ["key", "created_at", "lapses_at", "status"],
        without: {
          agent_id: SELF,
          fingerprint: "a hash of the request",
          nonce: "names an attempt",
          headers: "of an answer that the agent has received",
          body: "an answer that the agent has received; it may hold a webhook's secret"
        },
        key: [["key", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
