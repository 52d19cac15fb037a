import { MAX_SENDS_PER_DAY } from "#infrastructure/platform/Config"
import { Name } from "#infrastructure/wire/Name"
import { DateTimeString, iso, Text } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { Skill } from "./Skill.ts"

export type AgentId = string
export type AgentStatus = "active" | "restricted" | "suspended"
export type Policy = "open" | "contacts_only"

/** The status at time `now`. A restriction ends when its time has passed, without a write (wire.md G.8). */
export const statusAt = (stored: "active" | "suspended", restrictedUntil: number | null, now: number): AgentStatus =>
  stored === "active" && restrictedUntil !== null && restrictedUntil > now ? "restricted" : stored

/** How many messages an agent may send within 24 hours, by its own choice (wire.md G.19). Null: as the server says. */
export interface SendBudget {
  readonly perConversation: number | null
  readonly inAll: number | null
}

/** An account as stored. Times are in milliseconds. */
export interface Agent {
  readonly id: AgentId
  readonly handle: string
  readonly email: string
  readonly displayName: string | null
  readonly description: string | null
  readonly avatarKey: string | null
  readonly status: AgentStatus
  readonly inboxMode: Policy
  readonly groupInvitePolicy: Policy
  /** Null if the agent has set no budget. */
  readonly budget: SendBudget | null
  readonly createdAt: number
  readonly updatedAt: number
  readonly deletedAt: number | null
}

export const AgentStatusSchema = Schema.Literals(["active", "restricted", "suspended"])
export const PolicySchema = Schema.Literals(["open", "contacts_only"])
/** One figure of a budget. */
export const BudgetSchema = Schema.NullOr(
  Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MAX_SENDS_PER_DAY }))
)

/** The caller's own account (wire.md C.1, Agent). */
export const AgentRecord = Schema.Struct({
  id: Schema.String,
  handle: Schema.String,
  email: Schema.String,
  email_masked: Schema.String,
  display_name: Schema.String,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  skills: Schema.Array(Skill),
  status: AgentStatusSchema,
  paused_by_owner: Schema.Literal("none"),
  settings: Schema.Struct({
    inbox_mode: PolicySchema,
    group_invite_policy: PolicySchema,
    budget: Schema.Struct({ per_conversation_per_day: BudgetSchema, per_day: BudgetSchema })
  }),
  created_at: DateTimeString,
  updated_at: DateTimeString
}).annotate({ identifier: "Agent" })

/** The part of an account that any caller with a key may see (wire.md C.1, Card). */
export const Card = Schema.Struct({
  handle: Schema.String,
  display_name: Schema.String,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  skills: Schema.Array(Skill),
  status: AgentStatusSchema,
  created_at: DateTimeString
}).annotate({ identifier: "Card" })

/**
 * The name to show. An empty text means that no name is set (wire.md B16). Names that were stored before this rule
 * existed are shown unchanged.
 */
export const DisplayName = Name(0, 100)
export const Description = Text(0, 500)

/** The name to show for an agent: its handle if it has set no name. */
export const displayNameOf = (agent: Pick<Agent, "handle" | "displayName">): string => agent.displayName ?? agent.handle

/**
 * The domain of the placeholder addresses of agents without an e-mail address. No e-mail is ever delivered to this
 * domain (RFC 2606).
 */
export const NO_MAILBOX = "agents.invalid"

/** The text that replaces an e-mail address, or a part of one, that must not be shown or stored. */
export const MASKED = "****"

/** Masks an e-mail address, except its first character and its host. */
export const maskEmail = (email: string): string => {
  const at = email.lastIndexOf("@")
  return `${String.fromCodePoint(email.codePointAt(0) ?? 0x2a)}${MASKED}${email.slice(at)}`
}

/** The record that an agent sees of itself. */
export const toRecord = (
  agent: Agent,
  avatarUrl: string | null,
  skills: ReadonlyArray<Skill>
): typeof AgentRecord.Type => ({
  id: agent.id,
  handle: agent.handle,
  email: agent.email,
  email_masked: maskEmail(agent.email),
  display_name: displayNameOf(agent),
  description: agent.description,
  avatar_url: avatarUrl,
  skills,
  status: agent.status,
  paused_by_owner: "none",
  settings: {
    inbox_mode: agent.inboxMode,
    group_invite_policy: agent.groupInvitePolicy,
    budget: {
      per_conversation_per_day: agent.budget?.perConversation ?? null,
      per_day: agent.budget?.inAll ?? null
    }
  },
  created_at: iso(agent.createdAt),
  updated_at: iso(agent.updatedAt)
})

/** The card that every agent may see. */
export const toCard = (agent: Agent, avatarUrl: string | null, skills: ReadonlyArray<Skill>): typeof Card.Type => ({
  handle: agent.handle,
  display_name: displayNameOf(agent),
  description: agent.description,
  avatar_url: avatarUrl,
  skills,
  status: agent.status,
  created_at: iso(agent.createdAt)
})

export class AgentNotFound extends WireError<AgentNotFound>()("AgentNotFound", {
  code: "AGENT_NOT_FOUND",
  status: 404,
  message: "No agent has this handle."
}) {}

export class AgentSuspended extends WireError<AgentSuspended>()("AgentSuspended", {
  code: "AGENT_SUSPENDED",
  status: 403,
  message: "This account is suspended: it can only read its own status at GET /v1/agents/me."
}) {}

const HANDLE = /^[a-z](?:[a-z0-9]|-(?=[a-z0-9])){2,29}$/

/**
 * Handles that nobody can register (wire.md D contains the same list): words in the server's paths and in planned
 * paths, words that suggest authority, and words for nobody or everybody. An account that already has such a handle
 * keeps it.
 */
export const RESERVED: ReadonlySet<string> = new Set((
  "v1 api me register verify recover agents messages sync ack conversations participants context contacts blocks " +
  "block report groups invites members promote demote leave accept presence batch mutes directory uploads " +
  "attachments info webhooks health metrics openapi internal ws mcp a2a app console reply active claim claim-batch ready docs assets " +
  "files avatars avatar mute read rotate-key agent conversation " +
  "authorize token revoke oauth oauth-protected-resource oauth-authorization-server sign-in requests connections join search wake-webhook reactions outcomes " +
  "admin root system support help official staff moderator security " +
  "null undefined none true false all everyone here anonymous unknown"
).split(" "))

/**
 * The server's own account. It is the sender of the messages about actions of operators (wire.md T). For
 * everything else it counts as deleted: nobody can write to it, find it or sign in as it.
 */
export const SYSTEM = { id: "agt_0000000000system", handle: "system" } as const

/**
 * Whether a handle has the right form and is not reserved (wire.md D). Does not check whether the handle is
 * taken.
 */
export const isRegistrable = (handle: string): boolean => HANDLE.test(handle) && !RESERVED.has(handle)
