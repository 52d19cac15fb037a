/** Columns of a table in an export, and the others of it, each with the reason why it is not there. */
export interface Columns {
  readonly table: string
  readonly columns: ReadonlyArray<string>
  readonly without: Readonly<Record<string, string>>
}

/**
 * A file of an export: rows of one table (`t`) in the order of a key, perhaps with the row that one of its columns leads to.
 * `$1` is the agent's id.
 */
export interface ExportedFile extends Columns {
  /** Without the ending `.jsonl`. */
  readonly name: string
  readonly about: string
  /** The order of the rows: columns and their types. Unique among the rows of one agent. */
  readonly key: ReadonlyArray<readonly [column: string, type: "text" | "bigint"]>
  /** Which rows are the agent's. */
  readonly mine: string
  /** No index leads to the agent's rows: the whole table is read, slice by slice. */
  readonly whole?: true
  /**
   * The agent's rows are among those of its groups: they are read group by group. The first column of the key is the group.
   */
  readonly byGroup?: true
  /** How many rows one statement reads. */
  readonly slice: number
  /** Put into each row under `as`. */
  readonly join?: Columns & { readonly as: string; readonly on: string }
}

const SELF = "always the agent"
const SAME = "the same as in the row itself"
const ORDER = "with it nodes keep their writes in order"
const SMALL = 500
/** Rows that may be of 32 KiB. */
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
    without: { key_hash: "whoever has it could test keys against it" },
    key: [["id", "text"]],
    mine: "t.id = $1",
    slice: SMALL
  },
  {
    name: "codes",
    about: "One-time codes that were asked for lately with its address, and what an account was to be registered with.",
    table: "codes",
    columns: ["purpose", "email", "handle", "display_name", "description", "attempts", "expires_at", "closed_at"],
    without: { id: "a part of what a code is tested with", code_hash: "whoever has it could try out the code", agent_id: SELF },
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
    without: { code_id: "a part of what a code is tested with" },
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
    about: "What it has sent, in the order of client_msg_id.",
    table: "messages",
    columns: ["id", "conversation_id", "seq", "client_msg_id", ...message],
    without: { sender_id: SELF },
    key: [["client_msg_id", "text"]],
    mine: "t.sender_id = $1 AND t.type <> 'system'",
    slice: LARGE
  },
  {
    name: "messages_received",
    about: "What it has received, in the order in which it came; delivered_at and read_at are the states of its own copy.",
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
      without: { conversation_id: SAME, seq: SAME, client_msg_id: "a name that its sender gave it" }
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
    about: "Whom it holds as contacts, with its notes.",
    table: "contacts",
    columns: ["contact_id", "notes", "added_at"],
    without: { agent_id: SELF },
    key: [["contact_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "blocks",
    about: "Whom it blocks; counts: the other wrote first, so it counts against the other.",
    table: "blocks",
    columns: ["blocked_id", "created_at", "counts"],
    without: { agent_id: SELF },
    key: [["blocked_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "blocks_received",
    about: "Blocks that count against it: when, not by whom.",
    table: "blocks",
    columns: ["created_at"],
    without: { agent_id: "a block is private to the one who made it", blocked_id: SELF, counts: "always true" },
    key: [["created_at", "bigint"], ["agent_id", "text"]],
    mine: "t.blocked_id = $1 AND t.counts",
    slice: SMALL
  },
  {
    name: "reports",
    about: "Its reports of others, and what operators decided.",
    table: "reports",
    columns: ["id", "reported_id", "reason", "conversation_id", "created_at", "decision", "decided_at"],
    without: { agent_id: SELF, decided_by: "an operator", note: "an operator's, about somebody else" },
    key: [["reported_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "reports_received",
    about: "Reports against it: when and what operators decided, not by whom nor in which words.",
    table: "reports",
    columns: ["id", "created_at", "decision", "decided_at"],
    without: {
      agent_id: "who reports must not have to fear it",
      reason: "the reporter's words, which may tell who it was",
      conversation_id: "tells who it was",
      reported_id: SELF,
      decided_by: "an operator",
      note: "an operator's, about the reporter too"
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
    about: "What it tells its contacts about itself, and when it was last seen.",
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
    about: "Invites to groups that wait for an answer: of others to it, and its own.",
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
    about: "How many of them it ever began.",
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
    without: { agent_id: SELF, secret: "with it anybody could sign what the webhook gets" },
    key: [["id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "webhook_deliveries",
    about: "What was posted to them lately, is to be posted, or was given up.",
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
    about: "Its processes that said that they are working.",
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
    about: "Where it wants changes of tasks posted; the addresses are in webhooks.jsonl.",
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
      headers: "of an answer that the agent has got",
      body: "an answer that the agent has got; it may hold a webhook's secret"
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
    about: "What operators did about it or looked at, and suspensions by enforcement (operator null).",
    table: "audit_log",
    columns: ["no", "at", "operator", "action", "reason"],
    without: { agent_id: SELF },
    key: [["no", "bigint"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "deletion",
    about: "That its deletion, or erasure, is under way.",
    table: "deletions",
    columns: ["since", "due_at", "erase"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "handover",
    about: "That its groups are being given another admin.",
    table: "handovers",
    columns: ["since"],
    without: { agent_id: SELF },
    key: [["agent_id", "text"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  },
  {
    name: "recounts",
    about: "That what counts against it is about to be counted again.",
    table: "recounts",
    columns: ["no"],
    without: { agent_id: SELF },
    key: [["no", "bigint"]],
    mine: "t.agent_id = $1",
    slice: SMALL
  }
]

/** The tables of which nothing is in an export, and why. */
export const notExported: Readonly<Record<string, string>> = {
  migrations: "the schema's history",
  secrets: "the server's keys, of no agent",
  pending_codes: "names that callers answer codes with; the codes are in codes.jsonl",
  address_attempts: "attempts by IP address, whatever account they were for",
  avatars: "which pictures the store has, by content; the agent's own is files/avatar.webp",
  silent_group_changes: "ids of requests, with no agent",
  a2a_conversations: "how far messages were taken into account for tasks",
  console_access: "operators' sessions and tokens",
  cluster_nodes: "the servers"
}

/** What is held outside of the tables, and why it is not in an export. */
export const elsewhere: Readonly<Record<string, string>> = {
  "contacts, mutes and notes of others about it": "they are the others'",
  "copies of what it sent in the inboxes of others": "they are the others'; what was sent is in messages_sent.jsonl",
  "counts of the last minutes (rates), sockets, whether it is online": "in the memory of servers or Redis, and over within minutes",
  "tables of the cluster's library (cluster_…)": "which server owns what",
  "logs of the servers and mails": "outside of the service; they hold no key, and no body of a message"
}
