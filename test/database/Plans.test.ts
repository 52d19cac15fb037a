import { AgentsRepo } from "#domain/agents/AgentsRepo"
import { AttachmentsRepo } from "#domain/attachments/AttachmentsRepo"
import { AvatarsRepo } from "#domain/avatars/AvatarsRepo"
import { ContactsRepo } from "#domain/contacts/ContactsRepo"
import { DirectoryRepo } from "#domain/directory/DirectoryRepo"
import { IdempotencyRepo } from "#domain/idempotency/IdempotencyRepo"
import { GrantsRepo } from "#domain/oauth/GrantsRepo"
import { RequestsRepo } from "#domain/oauth/RequestsRepo"
import { AddressAttemptsRepo } from "#domain/registration/AddressAttemptsRepo"
import { RepliesRepo } from "#domain/replies/RepliesRepo"
import { WebhooksRepo } from "#domain/webhooks/WebhooksRepo"
import { expirySweeps } from "#infrastructure/cluster/ExpirySweeps"
import { Config } from "#infrastructure/platform/Config"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { tables } from "../../src/Tables.ts"
import { layerPostgresTest } from "../support/Databases.ts"
import { scansOf } from "../support/Plans.ts"

/** Indexes of little else than what is looked for. */
const SMALL = ["webhooks_inactive"]

/** The columns by which statements look rows up, each of which an index must serve. */
const LOOKED_UP: Readonly<Record<string, ReadonlyArray<string>>> = {
  agents: ["id", "handle", "key_hash", "avatar_key"],
  attachments: ["look_at", "used_at"],
  avatars: ["look_at"],
  groups: ["avatar_key"],
  reply_claims: ["ends_at"],
  reply_leases: ["agent_id"],
  webhook_deliveries: ["finished_at"]
}

it.effect("every statement that no other test of plans knows names what it looks for, although planned on empty tables", () =>
  Effect.gen(function*() {
    const repos = Layer.build(
      Layer.mergeAll(
        AddressAttemptsRepo.layer,
        AgentsRepo.layer,
        AttachmentsRepo.layer,
        AvatarsRepo.layer,
        GrantsRepo.layer,
        ContactsRepo.layer,
        DirectoryRepo.layer,
        IdempotencyRepo.layer,
        RepliesRepo.layer,
        RequestsRepo.layer,
        WebhooksRepo.layer
      )
    )
    const found = yield* scansOf(
      Effect.provide(Effect.andThen(repos, expirySweeps(tables)), Config.layerTest({}))
    )
    const wrong = [...found].flatMap(([name, scans]) =>
      scans.filter(({ condition, index }) => condition === "" && !SMALL.includes(index))
        .map(({ index, table }) => `${name}: ${table} by ${index}`)
    )
    assert.deepStrictEqual(wrong, [])
    const all = [...found.values()].flat()
    const missing = Object.entries(LOOKED_UP).flatMap(([table, columns]) =>
      columns.filter((column) =>
        !all.some((scan) => scan.table === table && new RegExp(`\\b${column}\\b`).test(scan.condition))
      )
        .map((column) => `${table} by ${column}`)
    )
    assert.deepStrictEqual(missing, [])
  }).pipe(Effect.scoped, Effect.provide(layerPostgresTest(18))))
