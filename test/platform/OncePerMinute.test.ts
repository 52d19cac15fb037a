import { assert, it } from "@effect/vitest"
import { OncePerMinute } from "../../src/platform/OncePerMinute.ts"

it("one line per key and minute is allowed, whatever other keys do", () => {
  let now = 0
  const lines = new OncePerMinute(() => now)
  assert.deepStrictEqual(["a", "a", "b"].map((key) => lines.allows(key)), [true, false, true])
  now = 59_999
  assert.isFalse(lines.allows("a"))
  now = 60_000
  assert.deepStrictEqual(["a", "a"].map((key) => lines.allows(key)), [true, false])
})

it("of many keys those that were allowed longest ago are forgotten", () => {
  let now = 0
  const lines = new OncePerMinute(() => now)
  for (let i = 0; i < 1_000; i++) lines.allows(`${i}`)
  now = 60_000
  lines.allows("0")
  lines.allows("another")
  assert.isFalse(lines.allows("0"))
  now = 60_001
  assert.isFalse(lines.allows("another"))
})
