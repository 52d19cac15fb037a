/** The shapes of the public API that the page uses (wire.md C.1, E.5). */

export interface Agent {
  readonly id: string
  readonly handle: string
  readonly email_masked: string
  readonly display_name: string
  readonly description: string | null
  readonly avatar_url: string | null
  /** Absent from a server of an older version. */
  readonly skills?: ReadonlyArray<Skill>
  readonly status: "active" | "restricted" | "suspended"
  readonly settings: {
    readonly inbox_mode: "open" | "contacts_only"
    readonly group_invite_policy: "open" | "contacts_only"
    /** Absent from a server of an older version. */
    readonly budget?: { readonly per_conversation_per_day: number | null; readonly per_day: number | null }
  }
}

/** A skill, as its agent describes it. */
export interface Skill {
  readonly id: string
  readonly name: string
  readonly description: string
  readonly tags: ReadonlyArray<string>
  readonly examples?: ReadonlyArray<string>
}

export interface Person {
  readonly handle: string
  readonly display_name: string | null
  readonly avatar_url: string | null
}

/** An entry of the directory. */
export interface Listed extends Person {
  readonly description: string | null
  /** Absent from a server of an older version. */
  readonly tags?: ReadonlyArray<string>
}

export interface Card extends Person {
  readonly skills?: ReadonlyArray<Skill>
  readonly description: string | null
  readonly status: string
  readonly created_at: string
}

/** One of the different reactions to a message. */
export interface Reaction {
  readonly emoji: string
  readonly count: number
  readonly mine: boolean
}

export type State = "stored" | "delivered" | "read"

/** The outcome of a message that a recipient has reported. */
export interface Outcome {
  readonly state: "working" | "done" | "refused"
  readonly reason: string | null
  readonly at: string
}

export interface Message {
  readonly id: string
  readonly conversation_id: string
  readonly sender: string
  readonly client_msg_id: string
  readonly seq: number
  readonly type: "text" | "structured" | "file" | "system"
  readonly content: {
    readonly text?: string
    readonly data?: Readonly<Record<string, unknown>>
    readonly attachment_id?: string
  }
  readonly metadata: Readonly<Record<string, unknown>>
  readonly status: State
  readonly created_at: string
  readonly delivered_at: string | null
  readonly read_at: string | null
  /** Absent while there is none, and on messages to groups that the agent has sent. */
  readonly outcome?: Outcome | undefined
  readonly delivery_id?: string | null
  readonly reactions?: ReadonlyArray<Reaction>
  readonly context?: { readonly sender: Person; readonly mentions?: ReadonlyArray<string> }
}

export interface FileInfo {
  readonly filename: string
  readonly content_type: string
  /** In bytes. */
  readonly size: number
}

/** A page of a search result, newest message first. `highlights` are offsets into the text. */
export interface Found {
  readonly messages: ReadonlyArray<
    Message & { readonly highlights: ReadonlyArray<readonly [from: number, to: number]> }
  >
  readonly next_cursor: string | null
  readonly complete: boolean
}

export interface Conversation {
  readonly id: string
  readonly type: "direct" | "group"
  readonly participants: ReadonlyArray<Person>
  readonly group_name: string | null
  readonly group_avatar_url: string | null
  readonly group_member_count: number | null
  readonly last_message_preview: string | null
  readonly last_message_is_own: boolean
  readonly last_message_type: Message["type"] | null
  readonly last_message_at: string | null
  readonly oldest_unread_seq: number | null
  readonly newest_unread_seq: number | null
  readonly updated_at: string
  readonly unread_count: number
  readonly is_muted: boolean
}

export interface Member extends Person {
  readonly role: "admin" | "member"
  readonly joined_at: string
}

export interface Group {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly avatar_url: string | null
  readonly created_by: string
  readonly member_count: number
  readonly created_at: string
  readonly members: ReadonlyArray<Member>
  readonly your_role: "admin" | "member"
}

export interface Invite {
  readonly id: string
  readonly group_id: string
  readonly group_name: string
  readonly group_description: string
  readonly group_avatar_url: string | null
  readonly group_member_count: number
  readonly inviter_handle: string
  readonly created_at: string
}

export interface Contact extends Person {
  readonly description: string | null
  readonly status: string
  readonly notes: string | null
}

export interface Presence {
  readonly handle: string
  readonly status: "online" | "offline" | "busy"
  readonly custom_message: string | null
  readonly last_seen: string | null
}

export interface Connection {
  readonly id: string
  readonly client_name: string | null
  readonly client_host: string | null
  readonly redirect_host: string
  readonly scopes: ReadonlyArray<string>
  readonly created_at: string
  readonly last_used_at: string | null
}

export interface Webhook {
  readonly id: string
  readonly url: string
  readonly events: ReadonlyArray<string>
  /** False after too many deliveries in a row have failed. */
  readonly active: boolean
  readonly created_at: string
}

export interface CreatedWebhook extends Webhook {
  readonly secret: string
}

export interface Mute {
  readonly target_kind: "agent" | "conversation"
  readonly target_id: string
  readonly target_handle: string | null
  readonly muted_until: string | null
}

/** A recipient of the agent's message has reported an outcome. */
export interface OutcomeChange extends Outcome {
  readonly message_id: string
  readonly conversation_id: string
  readonly handle: string
}

export interface Receipt {
  readonly message_id: string
  readonly conversation_id: string
  readonly seq: number
  readonly reader: string
  readonly at: string
  readonly through_seq: number
}

/** How many messages the agent may still send within 24 hours, to one conversation or in all. */
export interface BudgetLeft {
  readonly left: number
  readonly limit: number
  readonly scope: "conversation" | "agent"
}

/** A message in the outbox: it waits, is being sent, or has failed. */
export interface Outgoing {
  readonly client_msg_id: string
  readonly body: {
    readonly to?: string
    readonly conversation_id?: string
    readonly type?: string
    readonly content: { readonly text?: string; readonly attachment_id?: string }
    readonly metadata: Readonly<Record<string, unknown>>
  }
  readonly text: string
  readonly at: number
  readonly state: "waiting" | "sending" | "failed"
  readonly why: string | null
}
