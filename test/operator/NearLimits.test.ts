import { joined } from "#interfaces/operator/NearLimits"
import { assert, describe, it } from "@effect/vitest"

const window = (key: string, count: number, limit = "LIMITS_CARDS_PER_MINUTE") => ({
  key,
  limit,
  value: 60,
  count,
  windowMs: 60_000
})

describe("the counts of an agent on several nodes", () => {
  it("are added if the nodes count together, and otherwise the highest counts", () => {
    const windows = [
      window("agt_a", 25),
      window("agt_b", 3),
      window("agt_a", 15),
      window("agt_a", 7, "LIMITS_SENDS_PER_SECOND")
    ]
    const counts = (adds: boolean) => joined(windows, adds).map(({ count, key, limit }) => [key, limit, count])
    assert.deepStrictEqual(counts(true), [
      ["agt_a", "LIMITS_CARDS_PER_MINUTE", 40],
      ["agt_b", "LIMITS_CARDS_PER_MINUTE", 3],
      ["agt_a", "LIMITS_SENDS_PER_SECOND", 7]
    ])
    assert.deepStrictEqual(counts(false).map(([, , count]) => count), [25, 3, 7])
  })
})
