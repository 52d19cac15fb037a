import { type OwnedTable, SELF, SMALL, WHOLE } from "#infrastructure/database/Tables"
import type { Settings } from "#infrastructure/platform/Config"

const SWEEP = { job: "codes", every: "10 minutes" } as const
const HOUR_MS = 3_600_000

/** How long operators see an invitation that has ended. */
const INVITATION_KEPT_MS = 30 * 24 * HOUR_MS

const retentionMs = ({ RETENTION_CODES_HOURS }: Settings): number => RETENTION_CODES_HOURS * HOUR_MS

/** The tables of one-time codes, and of how often codes were requested and tried. */
export const registrationTables: ReadonlyArray<OwnedTable> = [
  {
    table: "codes",
    retention: { expires: [{ ...SWEEP, column: "expires_at", keptMs: retentionMs }] },
    deletion: "keeps",
    erasure: { removes: ["address"], keeps: [] },
    exports: [
      {
        name: "codes",
        about: "Recent one-time codes for the agent's e-mail address, with the profile entered at registration.",
        columns: ["purpose", "email", "handle", "display_name", "description", "attempts", "expires_at", "closed_at"],
        without: {
          id: "salts the hash of the code",
          code_hash: "could be used to find the code",
          agent_id: SELF,
          invitation_id: "refers to an operator's row"
        },
        key: [["id", "text"]],
        mine: "(t.agent_id = $1 OR t.email = (SELECT email FROM agents WHERE id = $1))",
        whole: true,
        slice: WHOLE
      }
    ]
  },
  {
    table: "code_addresses",
    retention: {
      expires: [
        {
          ...SWEEP,
          column: "last_sent_at",
          keptMs: (config) => retentionMs(config) + Math.max(HOUR_MS, config.LIMITS_OTP_COOLDOWN_SECONDS * 1_000)
        }
      ]
    },
    deletion: "keeps",
    erasure: { removes: ["address"], keeps: [] },
    exports: [
      {
        name: "code_requests",
        about: "When codes were mailed to its address in the last hour.",
        columns: ["email", "purpose", "last_sent_at", "sent_at", "cleared"],
        without: { code_id: "salts the hash of the code" },
        key: [["purpose", "text"]],
        mine: "t.email = (SELECT email FROM agents WHERE id = $1)",
        slice: SMALL
      }
    ]
  },
  {
    table: "pending_codes",
    retention: {
      expires: [
        {
          ...SWEEP,
          column: "created_at",
          keptMs: (config) => retentionMs(config) + config.LIMITS_OTP_TTL_SECONDS * 1_000
        }
      ]
    },
    notExported: "ids by which callers refer to codes; the codes are in codes.jsonl"
  },
  {
    table: "invitations",
    retention: { expires: [{ ...SWEEP, column: "expires_at", keptMs: () => INVITATION_KEPT_MS }] },
    notExported: "invitations that operators made"
  },
  {
    table: "address_attempts",
    retention: { expires: [{ job: "address_attempts", every: "10 minutes", column: "over_at" }] },
    notExported: "attempts by IP address, without the account"
  }
]
