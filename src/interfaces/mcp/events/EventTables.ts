import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"

/** Subscriptions of MCP Events by webhook, and wake webhooks. */
export const eventTables: ReadonlyArray<OwnedTable> = [
  {
    table: "event_subscriptions",
    retention: { jobs: ["event_subscriptions"] },
    deletion: "keeps",
    erasure: { removes: ["webhooks"], keeps: [] },
    exports: [
      {
        name: "event_subscriptions",
        about: "Its subscriptions of MCP Events by webhook, and its wake webhook; the addresses are in webhooks.jsonl.",
        columns: [
          "webhook_id",
          "id",
          "name",
          "arguments",
          "connection_id",
          "verified_at",
          "created_at",
          "expires_at",
          "old_secret_until"
        ],
        without: {
          agent_id: SELF,
          key_hash: "could be used to find the key",
          old_secret: "could be used to forge posts to the webhook"
        },
        key: [["webhook_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ],
    json: ["arguments"]
  }
]
