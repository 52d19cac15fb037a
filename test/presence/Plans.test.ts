import { DeletionsRepo } from "#domain/accounts/DeletionsRepo"
import { ContactsRepo } from "#domain/contacts/ContactsRepo"
import { MutesRepo } from "#domain/mutes/MutesRepo"
import { PresenceRepo } from "#domain/presence/PresenceRepo"
import { ActiveMutes } from "#domain/push/ActiveMutes"
import { it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerPostgresTest } from "../support/Databases.ts"
import { ANY, assertWays, scansOf, type Ways } from "../support/Plans.ts"

const WAYS: Ways = {
  put_mute: { mutes: ["mutes_pkey", "muter_id"], agents: ["agents_pkey", "id"] },
  all_mutes: { mutes: ["mutes_pkey", "muter_id"] },
  one_mute: { mutes: ["mutes_pkey", "muter_id", "kind", "target_id"], agents: ["agents_pkey", "id"] },
  list_mutes: { mutes: ["mutes_pkey", "muter_id"], agents: ["agents_pkey", "id"] },
  active_mute: { mutes: ["mutes_pkey", "muter_id", "kind", "target_id"] },
  count_mutes: { mutes: ["mutes_pkey", "muter_id"] },
  remove_mute: { mutes: ["mutes_pkey", "muter_id", "kind", "target_id"] },
  remove_own_mutes: { mutes: ["mutes_pkey", "muter_id"] },
  remove_mutes_on: { mutes: [ANY, "target_id"] },
  remove_presence: { presences: ["presences_pkey", "agent_id"] },
  keep_presences: { agents: ["agents_pkey", "id"] },
  // Its own by one column, those with it by the other.
  remove_contacts_of_agent: { contacts: [ANY, "_id = "] },
  due_deletions: { deletions: ["deletions_due", "due_at"] },
  visible_presences: {
    agents: ["agents_handle_key", "handle"],
    presences: ["presences_pkey", "agent_id"],
    contacts: [ANY, "agent_id", "contact_id"],
    blocks: ["blocks_pkey", "agent_id", "blocked_id"]
  },
  kept_presence: { presences: ["presences_pkey", "agent_id"] },
  contact_holders: {
    contacts: ["contacts_by_holder", "contact_id", "agent_id"],
    blocks: ["blocks_pkey", "agent_id", "blocked_id"],
    webhooks: [ANY, "agent_id"]
  }
}

it.effect("the statements on mutes and presence reach their rows by their keys, although planned on empty tables", () =>
  Effect.gen(function*() {
    const found = yield* scansOf(
      Layer.build(
        Layer.mergeAll(ActiveMutes.layer, ContactsRepo.layer, DeletionsRepo.layer, MutesRepo.layer, PresenceRepo.layer)
      )
    )
    assertWays(found, WAYS)
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
