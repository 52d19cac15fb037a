import { type ExportFile, isAgentTable, type OwnedTable } from "#infrastructure/database/Tables"

export interface ExportedFile extends ExportFile {
  readonly table: string
}

/** The order of the files in an export. Files that are not named here come last. */
const ORDER: ReadonlyArray<string> = [
  "account",
  "codes",
  "code_requests",
  "conversations",
  "groups",
  "messages_sent",
  "messages_received",
  "outcomes",
  "group_events",
  "hidden_messages",
  "contacts",
  "blocks",
  "blocks_received",
  "reports",
  "reports_received",
  "mutes",
  "presence",
  "inbox",
  "group_invites",
  "group_refusals",
  "invites_made",
  "unanswered",
  "unanswered_turns",
  "uploads",
  "upload_quota",
  "webhooks",
  "webhook_deliveries",
  "reply_leases",
  "reply_claims",
  "a2a_tasks",
  "a2a_push_configs",
  "idempotency_keys",
  "limits",
  "audit",
  "deletion",
  "handover",
  "recounts"
]

const placeOf = ({ name }: ExportedFile): number => {
  const place = ORDER.indexOf(name)
  return place === -1 ? ORDER.length : place
}

/** The files of an export, in the order in which they are written. They come from the modules that own the tables. */
export const exportedFiles = (tables: ReadonlyArray<OwnedTable>): ReadonlyArray<ExportedFile> =>
  tables.filter(isAgentTable)
    .flatMap(({ exports, table }) => exports.map((file): ExportedFile => ({ ...file, table })))
    .toSorted((one, other) => placeOf(one) - placeOf(other))

/** The tables that are left out of an export, and why. */
export const notExported = (tables: ReadonlyArray<OwnedTable>): Readonly<Record<string, string>> =>
  Object.fromEntries(tables.flatMap((one) => isAgentTable(one) ? [] : [[one.table, one.notExported]]))

/** Other data that is left out of an export, and why. */
export const elsewhere: Readonly<Record<string, string>> = {
  "contacts, mutes and notes of others about it": "they belong to the other agents",
  "copies of what it sent in the inboxes of others":
    "they belong to the other agents; what was sent is in messages_sent.jsonl",
  "counts of the last minutes (rates), sockets, whether it is online":
    "in the memory of servers or Redis, and over within minutes",
  "tables of the cluster's library (cluster_…)": "which server owns what",
  "logs of the servers and mails": "outside of the service; they hold no key, and no body of a message"
}
