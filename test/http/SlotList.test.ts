import { SlotList } from "#infrastructure/http/SlotList"
import { assert, describe, it } from "@effect/vitest"

describe("SlotList", () => {
  it("holds all that was added and not removed, and reuses free slots", () => {
    const underWay = new SlotList<string>()
    const [a, b, c] = ["a", "b", "c"].map((one) => underWay.add(one)) as [number, number, number]
    assert.sameMembers([...underWay.all], ["a", "b", "c"])
    underWay.remove(b)
    assert.sameMembers([...underWay.all], ["a", "c"])
    assert.strictEqual(underWay.add("d"), b)
    underWay.remove(a)
    underWay.remove(c)
    assert.sameMembers([...underWay.all], ["d"])
    assert.includeMembers([a, c], [underWay.add("e"), underWay.add("f")])
    assert.sameMembers([...underWay.all], ["d", "e", "f"])
  })
})
