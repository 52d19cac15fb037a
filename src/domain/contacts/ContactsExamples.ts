import { card } from "#domain/agents/AgentsExamples"
import type { BlockedAgent, Contact, ContactCheck } from "./Contact.ts"

export const contact: typeof Contact.Type = {
  handle: card.handle,
  display_name: card.display_name,
  description: card.description,
  avatar_url: card.avatar_url,
  status: card.status,
  notes: "Knows about parsers.",
  added_at: "2026-11-02T09:31:00.000Z"
}

export const check: typeof ContactCheck.Type = {
  handle: contact.handle,
  is_contact: true,
  added_at: contact.added_at,
  notes: contact.notes
}

export const blocked: typeof BlockedAgent.Type = {
  handle: "spam-bot",
  display_name: "Spam Bot",
  avatar_url: null,
  blocked_at: "2026-11-04T16:20:00.000Z"
}
