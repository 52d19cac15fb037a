import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { AgentsRepo } from "#domain/agents/AgentsRepo"
import { AvatarsRepo } from "#domain/avatars/AvatarsRepo"
import { AttachmentsRepo } from "#domain/attachments/AttachmentsRepo"
import { ContactsRepo } from "#domain/contacts/ContactsRepo"
import { DirectoryRepo } from "#domain/directory/DirectoryRepo"
import { IdempotencyRepo } from "#domain/idempotency/IdempotencyRepo"
import { AddressAttemptsRepo } from "#domain/registration/AddressAttemptsRepo"
import { RepliesRepo } from "#domain/replies/RepliesRepo"
import { WebhooksRepo } from "#domain/webhooks/WebhooksRepo"
import { Config } from "#ground/platform/Config"
import { layerPostgresTest } from "../support/Databases.ts"
import { scansOf } from "../support/Plans.ts"

/** Indexes of little else than what is looked for. */
const SMALL = ["webhooks_inactive"]

it.effect("every statement that no other test of plans knows names what it looks for, although planned on empty tables", () =>
  Effect.gen(function*() {
    const found = yield* scansOf(Layer.build(Layer.mergeAll(
      AddressAttemptsRepo.layer,
      AgentsRepo.layer,
      AttachmentsRepo.layer,
      AvatarsRepo.layer,
      ContactsRepo.layer,
      DirectoryRepo.layer,
      IdempotencyRepo.layer,
      RepliesRepo.layer,
      WebhooksRepo.layer
    ).pipe(Layer.provide(Config.layerTest({})))))
    const wrong = [...found].flatMap(([name, scans]) =>
      scans.filter(({ condition, index }) => condition === "" && !SMALL.includes(index))
        .map(({ index, table }) => `${name}: ${table} by ${index}`))
    assert.deepStrictEqual(wrong, [])
    const all = [...found.values()].flat()
      .map(({ condition, table }) => `${table}: ${condition.replace(/[()]|::\w+/g, "")}`)
    assert.includeMembers(all, [
      "attachments: look_at <= $1",
      "attachments: used_at <= $1",
      "avatars: look_at <= $1",
      "agents: id = ANY $1",
      "agents: handle = ANY $2",
      "agents: key_hash = ANY $3",
      "agents: avatar_key = $1",
      "groups: avatar_key = $1",
      "agents: id = k.contact_id",
      "agents: id = b.blocked_id",
      "reply_leases: agent_id = $1",
      "reply_claims: ends_at <= $1"
    ])
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
