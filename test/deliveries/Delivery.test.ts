import { makeDeliveryIds } from "#domain/deliveries/Delivery"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const ids = makeDeliveryIds(Buffer.alloc(32, 1))
const agent = fc.string({ minLength: 1 }).map((text) => `agt_${text}`)
const inboxNo = fc.oneof(
  fc.nat(1_000),
  fc.integer({ min: 0, max: 2 ** 48 - 1 }),
  fc.constantFrom(0, 1, 2 ** 24 - 1, 2 ** 24, 2 ** 31, 2 ** 48 - 1)
)

describe("delivery ids", () => {
  it("give back their number to their agent", () => {
    fc.assert(fc.property(agent, inboxNo, (owner, n) => {
      assert.match(ids.encode(owner, n), /^del_[0-9a-f]{32}$/)
      assert.strictEqual(ids.decode(owner, ids.encode(owner, n)), n)
    }))
  })

  it("are nothing to anybody else, nor under another secret", () => {
    const others = makeDeliveryIds(Buffer.alloc(32, 2))
    fc.assert(fc.property(agent, agent, inboxNo, (owner, other, n) => {
      fc.pre(owner !== other)
      assert.isUndefined(ids.decode(other, ids.encode(owner, n)))
      assert.isUndefined(others.decode(owner, ids.encode(owner, n)))
    }))
  })

  it("differ for each number", () => {
    fc.assert(fc.property(agent, inboxNo, inboxNo, (owner, one, other) => {
      assert.strictEqual(ids.encode(owner, one) === ids.encode(owner, other), one === other)
    }))
  })

  it("refuse what is malformed", () => {
    const good = ids.encode("agt_a", 5)
    for (
      const bad of [
        "",
        "del_",
        good.slice(0, -1),
        `${good}0`,
        good.toUpperCase(),
        good.replace("del_", "dev_"),
        `${good.slice(0, 24)}zzzzzzzzzzzz`,
        `${good.slice(0, 24)}   000000000`,
        `${good.slice(0, 24)}+1e500000000`
      ]
    ) {
      assert.isUndefined(ids.decode("agt_a", bad), bad)
    }
    fc.assert(fc.property(fc.string(), (text) => assert.isUndefined(ids.decode("agt_a", text))))
  })

  it("survive the forgetting of masks", () => {
    const few = makeDeliveryIds(Buffer.alloc(32, 3))
    const first = few.encode("agt_first", 9)
    for (let i = 0; i < 20_001; i++) few.encode(`agt_${i}`, 1)
    assert.strictEqual(few.decode("agt_first", first), 9)
  })
})
