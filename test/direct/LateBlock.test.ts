import { DirectRepo } from "#domain/direct/DirectRepo"
import { MadeWithin } from "#infrastructure/database/DatabaseClock"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerPostgresTest } from "../support/Databases.ts"

const [one, other] = ["agt_00000000000000000001", "agt_00000000000000000002"]
const conversation = "conv_0000000000000000"
const reported = { id: "rpt_0000000000000000", reason: null }

const repo = DirectRepo.layer.pipe(
  Layer.provide(Layer.succeed(MadeWithin, 3_600_000)),
  Layer.provideMerge(layerPostgresTest(18, { poolSize: 2 }).pipe(Layer.orDie))
)

describe("a block that was delayed for long", () => {
  for (const report of [null, reported]) {
    it.live(`is not stored${report === null ? "" : ", nor is its report"}`, () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { block } = yield* DirectRepo
        for (const id of [one, other]) {
          yield* sql`INSERT INTO agents (id, handle, email, key_hash, created_at, updated_at)
            VALUES (${id}, ${id.slice(-6)}, ${`${id}@agents.example`}, ${Buffer.from(id)}, 0, 0)`
        }
        const blocks = Effect.map(
          sql<{ n: number }>`SELECT (SELECT count(*) FROM blocks) + (SELECT count(*) FROM reports) AS n`,
          ([row]) => row?.n
        )
        const now = yield* Clock.currentTimeMillis
        const command = { agentId: one, blockedId: other, report }
        assert.strictEqual(yield* block(conversation, { ...command, at: now - 3_601_000 }), "TooLate")
        assert.strictEqual(yield* blocks, 0)
        const made = yield* block(conversation, { ...command, at: now })
        assert.isTrue(made !== "TooLate" && made.outcome === "Blocked")
        assert.strictEqual(yield* blocks, report === null ? 1 : 2)
      }).pipe(Effect.provide(repo)))
  }
})
