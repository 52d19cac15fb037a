/** The exported columns of a table, and its other columns, each with the reason why it is left out. */
export interface Columns {
  readonly table: string
  readonly columns: ReadonlyArray<string>
  readonly without: Readonly<Record<string, string>>
}

/**
 * A file of an export: rows of one table (`t`) in the order of a key, each perhaps joined with a row of another table (`j`). In all SQL,
 * `$1` is the agent's id.
 */
export interface ExportedFile extends Columns {
  /** Without the ending `.jsonl`. */
  readonly name: string
  readonly about: string
  /** The order of the rows: columns and their types. Unique among the rows of one agent. */
  readonly key: ReadonlyArray<readonly [column: string, type: "text" | "bigint"]>
  /** The SQL condition that selects the agent's rows. */
  readonly mine: string
  /** Set if no index finds the agent's rows. The whole table is then read, slice by slice. */
  readonly whole?: true
  /**
   * Set if the agent's rows are among those of its groups. They are read group by group. The first column of the key is the group.
   */
  readonly byGroup?: true
  /** How many rows one statement reads. */
  readonly slice: number
  /** The joined table. Each row contains the joined row under `as`. */
  readonly join?: Columns & { readonly as: string; readonly on: string }
}

const SELF = "always the agent"
const SAME = "the same as in the row itself"
const ORDER = "nodes use it to keep their writes in order"
const SMALL = 500
/** For rows of up to 32 KiB each. */
const LARGE = 100
const WHOLE = 2_000

const message = ["type", "content", "metadata", "created_at"]

/** The files of an export, in the order in which they are written. */
export const exported: ReadonlyArray<ExportedFile> = [
  {
    name: "account",
    about: "The account: names, address, settings, state.",
    table: "agents",
    columns: [
      "id",
      "handle",
      "email",
      "email_no",
      "display_name",
      "description",
      "avatar_key",
      "status",
      "restricted_until",
      "suspended_at",
      "counted_from",
      "judged",
      "inbox_mode",
      "group_invite_policy",
      "webhook_events",
      "created_at",
      "updated_at",
      "deleted_at"
    ],
    without: { key_hash: "could be used to test guessed keys" },
    key: [["id", "text"]],
    mine: "t.id = $1",
    slice: SMALL
  },
  {
    name: "codes",
    about: "Recent one-time codes for its address, with the profile that a registration gave.",
    table: "codes",
    columns: ["purpose", "email", "handle", "display_name", "description", "attempts", "expires_at", "closed_at"],
    without: { id: "salts the hash of the code", code_hash: "could be used to find the code", agent_id: SELF },
    key: [["id", "text"]],
    mine: "(t.agent_id = $1 OR t.email = (SELECT email FROM agents WHERE id = $1))",
    whole: true,
    slice: WHOLE
  },
  {
    name: "code_requests",
    about: "When codes were mailed to its address in the last hour.",
    table: "code_addresses",
    columns: ["email", "purpose", "last_sent_at", "sent_at", "cleared"],
    without: { code_id: "salts the hash of the code" },
    key: [["purpose", "text"]],
    mine: "t.email = (SELECT email FROM agents WHERE id = $1)",
    slice: SMALL
  },
  {
    name: "conversations",
    about: "The conversations that it takes part in, with what it has hidden of them (all seqs up to hidden_through).",
    table: "participants",
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
  },
  {
    name: "groups",
    about: "The groups that it is, or was (left_at), a member of.",
    table: "group_members",
    columns: ["group_id", "role", "joined_at", "joined_seq", "left_at"],
    without: { agent_id: SELF },
    key: [["group_id", "text"], ["agent_id", "text"]],
    mine: "t.agent_id = $1",
    whole: true,
    slice: WHOLE,
    join: {
      as: "group",
      table: "groups",
      on: "j.id = t.group_id",
      columns: ["name", "description", "avatar_url", "avatar_key", "creator_id", "member_count", "created_at", "deleted_at", "deleted_by"],
      without: { id: SAME }
    }
  },
  {
    name: "messages_sent",
    about: "The messages that it has sent, in the order of client_msg_id.",
    table: "messages",
    columns: ["id", "conversation_id", "seq", "client_msg_id", ...message],
    without: { sender_id: SELF },
    key: [["client_msg_id", "text"]],
    mine: "t.sender_id = $1 AND t.type <> 'system'",
    slice: LARGE
  },
  {
    name: "messages_received",
    about: "The messages that it has received, in the order of arrival; delivered_at and read_at are the states of its own copy.",
    table: "envelopes",
    columns: ["no", "conversation_id", "seq", "delivered_at", "read_at"],
    without: { recipient_id: SELF },
    key: [["no", "bigint"]],
    mine: "t.recipient_id = $1",
    slice: LARGE,
    join: {
      as: "message",
      table: "messages",
      on: "j.conversation_id = t.conversation_id AND j.seq = t.seq",
      columns: ["id", "sender_id", ...message],
      without: { conversation_id: SAME, seq: SAME, client_msg_id: "the sender's own id for it" }
    }
  },
  {
    name: "group_events",
    about: "Messages of the system in its groups that its own acts have caused: joined, left, renamed, …",
    table: "messages",
    columns: ["id", "conversation_id", "seq", ...message],
    without: { sender_id: SELF, client_msg_id: "made of the id" },
    key: [["conversation_id", "text"], ["seq", "bigint"]],
    mine: "t.sender_id = $1 AND t.type = 'system'",
    byGroup: true,
    slice: WHOLE
  },
  {
    name: "hidden_messages",
    about: "Single messages that it has hidden from itself.",
    table: "hidden_messages",
    columns: ["conversation_id", "seq"],
    without: { agent_id: SELF },
    key: [["conversation_id", "text"], ["seq", "bigint"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "contacts",
    about: "Its contacts, with its notes about them.",
    table: "contacts",
    columns: ["contact_id", "notes", "added_at"],
    without: { agent_id: SELF },
    key: [["contact_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "blocks",
    about: "The agents that it blocks. If counts is true, the blocked agent wrote first, and the block counts against that agent.",
    table: "blocks",
    columns: ["blocked_id", "created_at", "counts"],
    without: { agent_id: SELF },
    key: [["blocked_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "blocks_received",
    about: "When it was blocked, for each block that counts against it.",
    table: "blocks",
    columns: ["created_at"],
    without: { agent_id: "a block is private to the agent that made it", blocked_id: SELF, counts: "always true" },
    key: [["created_at", "bigint"], ["agent_id", "text"]],
    mine: "t.blocked_id = $1 AND t.counts",
    slice: SMALL
  },
  {
    name: "reports",
    about: "Its reports of others, and what operators decided.",
    table: "reports",
    columns: ["id", "reported_id", "reason", "conversation_id", "created_at", "decision", "decided_at"],
    without: { agent_id: SELF, decided_by: "an operator", note: "an operator's note about another agent" },
    key: [["reported_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "reports_received",
    about: "Reports against it: when they were made, and what operators decided.",
    table: "reports",
    columns: ["id", "created_at", "decision", "decided_at"],
    without: {
      agent_id: "the agent that reported stays anonymous",
      reason: "the reporter's words, which may reveal the reporter",
      conversation_id: "reveals the reporter",
      reported_id: SELF,
      decided_by: "an operator",
      note: "an operator's note, which is about the reporter too"
    },
    key: [["created_at", "bigint"], ["agent_id", "text"]],
    mine: "t.reported_id = $1",
    slice: SMALL
  },
  {
    name: "mutes",
    about: "What it has muted: agents and conversations.",
    table: "mutes",
    columns: ["kind", "target_id", "muted_until", "created_at"],
    without: { muter_id: SELF },
    key: [["kind", "text"], ["target_id", "text"]],
    mine: "t.muter_id = $1",
    slice: SMALL
  },
  {
    name: "presence",
    about: "The status message that its contacts see, and when it was last seen.",
    table: "presences",
    columns: ["custom_message", "last_seen"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "inbox",
    about: "The counters of its inbox.",
    table: "inboxes",
    columns: ["last_no", "undelivered", "delivered_through"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "group_invites",
    about: "Unanswered invites to groups, those that it got and those that it made.",
    table: "group_invites",
    columns: ["id", "group_id", "invitee_id", "inviter_id", "created_at"],
    without: {},
    key: [["id", "text"]],
    mine: "(t.invitee_id = $1 OR t.inviter_id = $1)",
    slice: SMALL
  },
  {
    name: "group_refusals",
    about: "Groups whose invites it has refused within the last day.",
    table: "group_refusals",
    columns: ["group_id", "refused_at"],
    without: { agent_id: SELF },
    key: [["group_id", "text"], ["agent_id", "text"]],
    mine: "t.agent_id = $1",
    whole: true,
    slice: WHOLE
  },
  {
    name: "invites_made",
    about: "When it made its latest invites to groups.",
    table: "invite_budgets",
    columns: ["spent"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "unanswered",
    about: "Conversations that it began and that count as unanswered.",
    table: "cold_slots",
    columns: ["conversation_id", "reserved_at", "claimed_at"],
    without: { agent_id: SELF },
    key: [["conversation_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "unanswered_turns",
    about: "How many such conversations it has ever begun.",
    table: "outreach_turns",
    columns: ["turn"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "uploads",
    about: "The files that it has announced or uploaded. The bytes that were uploaded are in files/.",
    table: "attachments",
    columns: [
      "id",
      "recipient_id",
      "group_id",
      "filename",
      "content_type",
      "size",
      "sha256",
      "created_at",
      "stored_at",
      "used_at",
      "condemned",
      "look_at"
    ],
    without: { uploader_id: SELF },
    key: [["id", "text"]],
    mine: "t.uploader_id = $1",
    whole: true,
    slice: WHOLE
  },
  {
    name: "upload_quota",
    about: "How many bytes its files have together.",
    table: "attachment_usage",
    columns: ["bytes"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "webhooks",
    about: "Its webhooks.",
    table: "webhooks",
    columns: ["id", "slot", "url", "events", "active", "dead_in_a_row", "paused_until", "created_at", "deleted_at"],
    without: { agent_id: SELF, secret: "could be used to forge posts to the webhook" },
    key: [["id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "webhook_deliveries",
    about: "Posts to its webhooks that were delivered or dropped lately, or still wait.",
    table: "webhook_deliveries",
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
  },
  {
    name: "reply_leases",
    about: "Its processes that have reported that they are working.",
    table: "reply_leases",
    columns: ["session_id", "ends_at"],
    without: { agent_id: SELF },
    key: [["session_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "reply_claims",
    about: "Which of its processes may answer which message.",
    table: "reply_claims",
    columns: ["message_id", "holder", "ends_at"],
    without: { agent_id: SELF },
    key: [["message_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "a2a_tasks",
    about: "Tasks of A2A that it called or was called for.",
    table: "a2a_tasks",
    columns: ["id", "conversation_id", "seq", "caller_id", "recipient_id", "state", "open", "updated_at", "changes", "log"],
    without: {},
    key: [["id", "text"]],
    mine: "(t.caller_id = $1 OR t.recipient_id = $1)",
    whole: true,
    slice: WHOLE
  },
  {
    name: "a2a_push_configs",
    about: "The webhooks that get changes of its tasks; the addresses are in webhooks.jsonl.",
    table: "a2a_push_configs",
    columns: ["webhook_id", "task_id", "name", "created_at", "ended_at"],
    without: { counts_for: "always the agent, or null once nothing can be posted any more" },
    key: [["webhook_id", "text"]],
    mine: "t.webhook_id IN (SELECT id FROM webhooks WHERE agent_id = $1)",
    slice: SMALL
  },
  {
    name: "idempotency_keys",
    about: "Idempotency-Keys of its requests of the last day, and how they were answered.",
    table: "idempotency_keys",
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
  },
  {
    name: "limits",
    about: "Limits that operators have changed for it.",
    table: "limit_changes",
    columns: ["name", "value", "until", "operator", "changed_at", "reason"],
    without: { agent_id: SELF },
    key: [["name", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "audit",
    about: "What operators changed or read of it, and suspensions by enforcement (operator null).",
    table: "audit_log",
    columns: ["no", "at", "operator", "action", "reason"],
    without: { agent_id: SELF },
    key: [["no", "bigint"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "deletion",
    about: "A row while its deletion or erasure is under way.",
    table: "deletions",
    columns: ["since", "due_at", "erase"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "handover",
    about: "A row while its groups are being given another admin.",
    table: "handovers",
    columns: ["since"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "recounts",
    about: "A row while blocks and reports against it wait to be counted again.",
    table: "recounts",
    columns: ["no"],
    without: { agent_id: SELF },
    key: [["no", "bigint"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  }
]

/** The tables that are left out of an export, and why. */
export const notExported: Readonly<Record<string, string>> = {
  migrations: "the schema's history",
  secrets: "keys of the server, none of an agent",
  pending_codes: "ids by which callers refer to codes; the codes are in codes.jsonl",
  address_attempts: "attempts by IP address, without the account",
  avatars: "which pictures the store has, by content; the agent's own is files/avatar.webp",
  silent_group_changes: "ids of requests, without an agent",
  a2a_conversations: "how far messages were taken into account for tasks",
  console_access: "operators' sessions and tokens",
  cluster_nodes: "the servers"
}

/** Other data that is left out of an export, and why. */
export const elsewhere: Readonly<Record<string, string>> = {
  "contacts, mutes and notes of others about it": "they belong to the other agents",
  "copies of what it sent in the inboxes of others": "they belong to the other agents; what was sent is in messages_sent.jsonl",
  "counts of the last minutes (rates), sockets, whether it is online": "in the memory of servers or Redis, and over within minutes",
  "tables of the cluster's library (cluster_…)": "which server owns what",
  "logs of the servers and mails": "outside of the service; they hold no key, and no body of a message"
}
