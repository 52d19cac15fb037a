import { type OwnedTable, SELF, SMALL, WHOLE } from "#infrastructure/database/Tables"

const FINISHED = { every: "10 minutes", column: "finished_at" } as const
const HOUR_MS = 3_600_000

/** The tables of webhooks, and the outbox of the events that are posted to them. */
export const webhooksTables: ReadonlyArray<OwnedTable> = [
  {
    table: "webhooks",
    retention: { jobs: ["webhooks_deleted"] },
    deletion: "changes",
    erasure: { removes: ["webhooks"], keeps: [] },
    exports: [
      {
        name: "webhooks",
        about: "Its webhooks.",
        columns: [
          "id",
          "slot",
          "url",
          "events",
          "active",
          "dead_in_a_row",
          "paused_until",
          "inbox_no",
          "told_at",
          "look_at",
          "created_at",
          "deleted_at"
        ],
        without: { agent_id: SELF, secret: "could be used to forge posts to the webhook" },
        key: [["id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "webhook_deliveries",
    retention: {
      expires: [
        {
          ...FINISHED,
          job: "webhooks_delivered",
          only: "delivered = true",
          keptMs: ({ RETENTION_WEBHOOKS_DELIVERED_HOURS }) => RETENTION_WEBHOOKS_DELIVERED_HOURS * HOUR_MS
        },
        {
          ...FINISHED,
          job: "webhooks_dead",
          only: "delivered = false",
          keptMs: ({ RETENTION_WEBHOOKS_DEAD_HOURS }) => RETENTION_WEBHOOKS_DEAD_HOURS * HOUR_MS
        }
      ],
      jobs: ["webhooks_deleted"]
    },
    deletion: "keeps",
    erasure: { removes: ["webhooks"], keeps: [] },
    exports: [
      {
        name: "webhook_deliveries",
        about: "Posts to its webhooks that were delivered or dropped lately, or still wait.",
        columns: [
          "no",
          "webhook_id",
          "event",
          "subject",
          "created_at",
          "attempts",
          "due_at",
          "finished_at",
          "delivered",
          "failure",
          "request_id"
        ],
        without: {},
        key: [["no", "bigint"]],
        mine: "t.webhook_id IN (SELECT id FROM webhooks WHERE agent_id = $1)",
        whole: true,
        slice: WHOLE
      }
    ]
  }
]
