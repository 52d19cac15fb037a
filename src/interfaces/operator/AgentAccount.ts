import { Schema } from "effect"

/** The error message if no agent has the handle. */
export const NO_AGENT = "No agent has this handle."

/** An account, as operators see it. Times are in milliseconds. */
export interface AgentAccount {
  readonly id: string
  readonly handle: string
  readonly email: string
  readonly displayName: string | null
  readonly status: "active" | "suspended"
  readonly restrictedUntil: number | null
  readonly suspendedAt: number | null
  readonly countedFrom: number | null
  readonly inboxMode: "open" | "contacts_only"
  readonly groupInvitePolicy: "open" | "contacts_only"
  readonly createdAt: number
  readonly deletedAt: number | null
}

/** The status of an account, as operators see it. Operators also see deleted accounts. */
export const AccountStatus = Schema.Literals(["active", "restricted", "suspended", "deleted"])
