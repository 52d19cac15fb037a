import type { settings } from "#infrastructure/platform/Config"

export type SettingName = keyof typeof settings

/** The settings of one subject, in the order of `settings`. */
export interface SettingGroup {
  readonly title: string
  readonly names: ReadonlyArray<SettingName>
}

interface Rule {
  readonly title: string
  readonly names: (name: string) => boolean
}

const beginning = (...beginnings: ReadonlyArray<string>) => (name: string): boolean =>
  beginnings.some((beginning) => name.startsWith(beginning))

/** A setting is in the first group that matches its name. `LIMITS_…` settings are grouped by what they limit. */
const RULES: ReadonlyArray<Rule> = [
  {
    title: "Addresses and logs",
    names: beginning(
      "PORT",
      "HOST",
      "PUBLIC_URL",
      "TRUST_PROXY",
      "ALLOWED_ORIGINS",
      "LOG_LEVEL",
      "METRICS_TOKEN",
      "PROBE_",
      "DRAIN_SECONDS"
    )
  },
  { title: "The console behind a proxy", names: beginning("CONSOLE_") },
  { title: "Traces", names: beginning("OTEL_") },
  { title: "Database", names: beginning("DATA_DIR", "DATABASE_", "VACUUM_") },
  { title: "Backups", names: beginning("BACKUP_") },
  { title: "Redis", names: beginning("REDIS_") },
  { title: "Files", names: beginning("S3_", "SHARED_DIR", "UPLOADS_", "DOWNLOADS_") },
  { title: "Mail", names: beginning("SMTP_", "MAIL_") },
  { title: "Nodes", names: beginning("ROLE", "RUNNER_") },
  { title: "Requests", names: beginning("HTTP_", "HELD_", "IDEMPOTENCY_") },
  { title: "Sockets and presence", names: beginning("SOCKETS_", "PRESENCE_", "ECHO_OWN") },
  { title: "Webhooks", names: beginning("WEBHOOK_") },
  { title: "Who may register", names: beginning("REGISTRATION") },
  { title: "OAuth sign-in", names: beginning("OAUTH", "LIMITS_OAUTH", "LIMITS_SIGN_IN") },
  { title: "How long things are kept", names: beginning("RETENTION_") },
  {
    title: "Limits of sending",
    names: beginning(
      "LIMITS_SENDS",
      "LIMITS_MCP_SENDS",
      "LIMITS_GROUP_SENDS",
      "LIMITS_HOPS",
      "LIMITS_WARNING",
      "LIMITS_COLD",
      "LIMITS_BACKLOG",
      "LIMITS_MESSAGE"
    )
  },
  { title: "Limits of blocks and reports", names: beginning("LIMITS_RESTRICT", "LIMITS_SUSPEND") },
  {
    title: "Limits of registration and codes",
    names: beginning("LIMITS_REGISTER", "LIMITS_REGISTRATIONS", "LIMITS_RECOVER", "LIMITS_ROTATE", "LIMITS_OTP")
  },
  { title: "Limits of groups", names: beginning("LIMITS_GROUP") },
  { title: "Limits of files and pictures", names: beginning("LIMITS_ATTACHMENT", "LIMITS_AVATAR", "LIMITS_STORAGE") },
  { title: "Limits of sockets", names: beginning("LIMITS_SOCKETS", "LIMITS_FRAMES", "LIMITS_REFUSALS") },
  { title: "Other limits", names: beginning("LIMITS_") }
]

/** Puts these settings into the groups of docs/configuration.md and of `--help`. Leaves out empty groups. */
export const groupsOf = (names: ReadonlyArray<SettingName>): ReadonlyArray<SettingGroup> => {
  const left = new Set(names)
  const groups = RULES.map((rule) => {
    const own = [...left].filter(rule.names)
    for (const name of own) left.delete(name)
    return { title: rule.title, names: own }
  })
  if (left.size > 0) throw new Error(`SettingGroups.ts has no group for ${[...left].join(", ")}`)
  return groups.filter((group) => group.names.length > 0)
}
