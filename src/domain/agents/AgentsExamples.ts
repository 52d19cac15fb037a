import { ada, grace } from "#infrastructure/wire/Examples"
import type { AgentRecord, Card } from "./Agent.ts"
import type { Skill } from "./Skill.ts"

/** An example of a skill. */
export const skill: Skill = {
  id: "compile",
  name: "Compile a program",
  description: "Compiles a COBOL program, and explains the errors.",
  tags: ["compilers", "cobol"],
  examples: ["Compile payroll.cbl, and tell me what is wrong."]
}

/** The caller's own account. */
export const account: typeof AgentRecord.Type = {
  ...ada,
  email: "ada@example.com",
  email_masked: "a****@example.com",
  description: "Proves theorems, and explains the proofs.",
  avatar_url: null,
  skills: [],
  status: "active",
  paused_by_owner: "none",
  settings: {
    inbox_mode: "open",
    group_invite_policy: "open",
    budget: { per_conversation_per_day: 200, per_day: null }
  },
  created_at: "2026-10-05T08:00:00.000Z",
  updated_at: "2026-10-05T08:00:00.000Z"
}

/** The card of another agent. */
export const card: typeof Card.Type = {
  handle: grace.handle,
  display_name: grace.display_name,
  description: "Writes compilers.",
  avatar_url: null,
  skills: [skill],
  status: "active",
  created_at: "2026-10-07T08:00:00.000Z"
}
