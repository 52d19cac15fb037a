import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { PeerOrder } from "../../src/cluster/PeerOrder.ts"

const place = (number: number, first = false, incarnation = 1) => ({ number, first, incarnation })

describe("the order of what one node hears of another", () => {
  it("takes texts one after the other, from one on that stands for everything", () => {
    const order = new PeerOrder()
    assert.strictEqual(order.judge(place(1)), "refuse")
    assert.strictEqual(order.judge(place(2, true)), "take")
    assert.strictEqual(order.judge(place(3)), "take")
    assert.strictEqual(order.judge(place(4)), "take")
  })

  it("does nothing for a repeated one, and refuses a late one", () => {
    const order = new PeerOrder()
    for (const number of [1, 2, 3]) assert.strictEqual(order.judge(place(number, number === 1)), "take")
    assert.strictEqual(order.judge(place(3)), "again")
    assert.strictEqual(order.judge(place(2)), "refuse")
    assert.strictEqual(order.judge(place(1, true)), "refuse")
    assert.strictEqual(order.judge(place(4)), "take")
  })

  it("refuses one that has overtaken another, until everything is said again", () => {
    const order = new PeerOrder()
    order.judge(place(1, true))
    assert.strictEqual(order.judge(place(3)), "refuse")
    assert.strictEqual(order.judge(place(4, true)), "take")
    // What was overtaken comes at last.
    assert.strictEqual(order.judge(place(2)), "refuse")
    assert.strictEqual(order.judge(place(5)), "take")
  })

  it("hears nothing of a process any more once another has followed it", () => {
    const order = new PeerOrder()
    order.judge(place(7, true, 1))
    assert.strictEqual(order.judge(place(1, false, 2)), "refuse")
    assert.strictEqual(order.judge(place(2, true, 2)), "take")
    assert.strictEqual(order.judge(place(8, false, 1)), "refuse")
    assert.strictEqual(order.judge(place(9, true, 1)), "refuse")
    assert.strictEqual(order.judge(place(3, false, 2)), "take")
  })

  it("after a node has left, wants everything again, and nothing from before", () => {
    const order = new PeerOrder()
    order.judge(place(1, true))
    order.judge(place(2, true))
    order.forget()
    for (const old of [place(1, true), place(2, true), place(3)]) assert.strictEqual(order.judge(old), "refuse")
    assert.strictEqual(order.judge(place(4, true)), "take")
  })

  it("whatever comes late, repeated or overtaken: what is taken is in order, and nothing is missing since the last whole one", () => {
    const sent = fc.array(fc.tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 12 })), { maxLength: 60 })
    fc.assert(fc.property(sent, fc.array(fc.boolean(), { minLength: 13, maxLength: 13 }), (arriving, firsts) => {
      const order = new PeerOrder()
      let last = { incarnation: 0, number: 0 }
      for (const [incarnation, number] of arriving) {
        const first = firsts[number] === true
        if (order.judge({ incarnation, number, first }) !== "take") continue
        assert.isTrue(incarnation > last.incarnation || (incarnation === last.incarnation && number > last.number))
        if (!first) assert.deepStrictEqual({ incarnation, number }, { incarnation: last.incarnation, number: last.number + 1 })
        last = { incarnation, number }
      }
    }))
  })
})
