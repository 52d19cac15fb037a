import { EnforcementRepo } from "#domain/enforcement/EnforcementRepo"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerPostgresTest } from "../support/Databases.ts"
import { assertWays, scansOf, type Ways } from "../support/Plans.ts"

const WAYS: Ways = {
  enforcement_case: {
    agents: ["agents_pkey", "id"],
    blocks: ["blocks_counted", "blocked_id", "created_at"],
    reports: ["reports_by_target", "reported_id", "created_at"],
    conversations: ["conversations_pkey", "id"],
    recounts: ["recounts_by_agent", "agent_id"]
  },
  enforcement_tally: {
    blocks: ["blocks_counted", "blocked_id", "created_at"],
    reports: ["reports_by_target", "reported_id", "created_at"],
    conversations: ["conversations_pkey", "id"]
  },
  judge_agent: { agents: ["agents_pkey", "id"], recounts: ["recounts_pkey", "no"] },
  suspend_agent: { agents: ["agents_pkey", "id"] },
  restore_agent: { agents: ["agents_pkey", "id"], handovers: ["handovers_pkey", "agent_id"] },
  recounts_due: { recounts: ["recounts_pkey"] },
  dismiss_recounts: { recounts: ["recounts_by_agent", "agent_id"] },
  suspended_since: { agents: ["agents_suspended", "suspended_at"] },
  handovers: { handovers: ["handovers_pkey"] },
  handed_over: { handovers: ["handovers_pkey", "agent_id"] }
}

it.effect("enforcement reaches its rows by their keys, although planned on empty tables", () =>
  Effect.gen(function*() {
    const found = yield* scansOf(Layer.build(EnforcementRepo.layer))
    assert.sameMembers([...found.keys()], Object.keys(WAYS))
    assertWays(found, WAYS)
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
