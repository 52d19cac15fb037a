import { expirySweeps } from "#infrastructure/cluster/ExpirySweeps"
import type { OwnedTable } from "#infrastructure/database/Tables"
import { assert } from "@effect/vitest"
import { Effect } from "effect"

/** Runs one batch of the job that removes expired rows of these tables. */
export const sweepExpired = Effect.fnUntraced(function*(tables: ReadonlyArray<OwnedTable>, name: string) {
  const jobs = yield* expirySweeps(tables)
  const { batch } = jobs.find((job) => job.name === name) ?? assert.fail(`there is no job ${name}`)
  return yield* batch
})
