import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { rowAt } from "../../src/interfaces/pages/client/Rows.js"
import {
  closeGap,
  covers,
  empty,
  gapAfter,
  type Timeline,
  toRead,
  unreadAfter,
  unreadBeyond,
  unsettledAfter,
  withLive,
  withOutcome,
  withRead,
  withReceipt,
  withRemoval,
  withSeen
} from "../../src/interfaces/pages/client/Timeline.js"
import { message } from "./Messages.ts"

const seqs = ({ messages }: Timeline) => messages.map(({ seq }) => seq)

describe("a timeline", () => {
  it("shows messages in their order however they come, once what is missing was read", () => {
    fc.assert(
      fc.property(
        fc.shuffledSubarray(Array.from({ length: 30 }, (_, i) => i + 1), { minLength: 1 }),
        fc.nat(29),
        (live, from) => {
          let timeline: Timeline = withRead(empty, Array.from({ length: from }, (_, i) => message(i + 1)))
          for (const seq of live) {
            timeline = withLive(timeline, message(seq))
            const shown = seqs(timeline)
            assert.deepStrictEqual(shown, shown.map((_, i) => i + 1))
          }
          const newest = Math.max(from, ...live)
          const after = gapAfter(timeline)
          if (after !== undefined) {
            timeline = closeGap(withRead(
              timeline,
              Array.from({ length: newest - after }, (_, i) => message(after + 1 + i))
            ))
          }
          assert.deepStrictEqual(seqs(timeline), Array.from({ length: newest }, (_, i) => i + 1))
        }
      )
    )
  })

  it("accepts messages after a hidden number once history was read", () => {
    const timeline = withLive(withRead(empty, [message(1)]), message(4))
    assert.strictEqual(gapAfter(timeline), 1)
    assert.deepStrictEqual(seqs(closeGap(withRead(timeline, [message(4)]))), [1, 4])
  })

  it("that was opened at an earlier message leaves what arrives to the reads that follow", () => {
    const window: Timeline = { ...withRead(empty, [message(10), message(11)]), newer: true }
    assert.deepStrictEqual(withLive(withLive(window, message(12)), message(90)), window)
    assert.strictEqual(withLive(window, message(11, { status: "read" })).messages[1]?.status, "read")
    assert.deepStrictEqual(seqs(withRead(window, [message(12), message(13)])), [10, 11, 12, 13])
  })

  it("never sets a state back", () => {
    const read = withRead(empty, [message(1, { status: "read" })])
    assert.strictEqual(withRead(read, [message(1, { status: "stored" })]).messages[0]?.status, "read")
    assert.strictEqual(withLive(read, message(1, { status: "delivered" })).messages[0]?.status, "read")
    assert.strictEqual(
      withRead(withRead(empty, [message(1)]), [message(1, { status: "delivered" })]).messages[0]?.status,
      "delivered"
    )
  })

  it("shows the newest outcome of a message, whichever way it comes, and no reason once the message is removed", () => {
    const at = new Date(0).toISOString()
    const change = { message_id: "msg_1", conversation_id: "conv_1", handle: "bob", reason: "soon", at }
    const sent = withRead(empty, [message(1, { sender: "ada", status: "read" }), message(2)])
    const outcomes = (timeline: Timeline) => timeline.messages.map(({ outcome }) => outcome?.state)
    const working = withOutcome(sent, { ...change, state: "working" })
    assert.deepStrictEqual(outcomes(working), ["working", undefined])
    const done = withOutcome(working, { ...change, state: "done" })
    assert.deepStrictEqual(outcomes(done), ["done", undefined])
    assert.deepStrictEqual(outcomes(withOutcome(done, { ...change, state: "working" })), ["done", undefined])
    // A read of history that began before the event came.
    const stale = message(1, { sender: "ada", status: "read", outcome: { state: "working", reason: null, at } })
    assert.deepStrictEqual(outcomes(withRead(done, [stale])), ["done", undefined])
    assert.deepStrictEqual(outcomes(withRead(sent, [stale])), ["working", undefined])
    assert.deepStrictEqual(withRemoval(done, "msg_1").messages[0]?.outcome, { state: "done", reason: null, at })
    assert.isUndefined(withRemoval(done, "msg_2").messages[1]?.outcome)
  })

  it("marks as read the messages up to a receipt's number, and the one it names", () => {
    const own = { sender: "ada" }
    const timeline = withRead(empty, [message(1, own), message(2), message(3, own), message(4, own)])
    const receipt = {
      message_id: "msg_4",
      conversation_id: "conv_1",
      seq: 4,
      reader: "bob",
      at: "2026-01-01T00:00:00.000Z",
      through_seq: 1
    }
    const after = withReceipt(timeline, receipt, "ada")
    assert.deepStrictEqual(after.messages.map(({ status }) => status), ["read", "stored", "stored", "read"])
    assert.strictEqual(unsettledAfter(after, "ada"), 2)
    assert.isUndefined(unsettledAfter(after, "nobody"))
  })
})

describe("what was on the screen", () => {
  /** Messages 3 to 12; 5 is the agent's own, and 3 and 4 are read. */
  const timeline = withRead(
    empty,
    Array.from(
      { length: 10 },
      (_, i) => message(i + 3, { sender: i === 2 ? "ada" : "bob", status: i < 2 ? "read" : "delivered" })
    )
  )
  const unread = { unread_count: 7, oldest_unread_seq: 6, newest_unread_seq: 12 }
  const ids = (...seqs: ReadonlyArray<number>) => new Set(seqs.map((seq) => `msg_${seq}`))
  const after = (read: ReturnType<typeof toRead>, from = timeline, of = unread) =>
    unreadAfter(from, withSeen(from, "ada", read), of, "ada", read.through)

  it("becomes read up to a number if nothing unread lies in between, and one by one otherwise", () => {
    const first = toRead(timeline, unread, "ada", ids(4, 5, 6, 7))
    assert.deepStrictEqual(first, { through: 7, single: [] })
    assert.deepStrictEqual(after(first), { unread_count: 5, oldest_unread_seq: 8 })
    const jump = toRead(timeline, unread, "ada", ids(11, 12))
    assert.deepStrictEqual([jump.through, jump.single.map(({ seq }) => seq)], [undefined, [11, 12]])
    assert.deepStrictEqual(after(jump), { unread_count: 5, oldest_unread_seq: 6 })
    assert.deepStrictEqual(after({ through: 12, single: [] }), { unread_count: 0, oldest_unread_seq: null })
    const all = toRead(timeline, unread, "ada", ids(6, 7, 8, 9, 10, 11, 12))
    assert.deepStrictEqual(all, { through: 12, single: [] })
  })

  it("never makes read what is older than the loaded messages", () => {
    const older = { unread_count: 9, oldest_unread_seq: 1, newest_unread_seq: 12 }
    const read = toRead(timeline, older, "ada", ids(6, 7, 8, 9, 10, 11, 12))
    assert.strictEqual(read.through, undefined)
    assert.strictEqual(read.single.length, 7)
    assert.deepStrictEqual(after(read, timeline, older), { unread_count: 2, oldest_unread_seq: 1 })
  })

  it("ends a count of the list that is older than the page", () => {
    const seen = withSeen(timeline, "ada", { through: 12, single: [] })
    assert.strictEqual(toRead(seen, unread, "ada", ids(12)).through, 12)
    assert.strictEqual(toRead(seen, unread, "ada", ids(7)).through, undefined)
  })

  it("is counted above and below, also where nothing is loaded", () => {
    const beyond = (first: number, last: number, of: Partial<typeof unread> = {}, newer = false) =>
      unreadBeyond({ ...timeline, newer }, { ...unread, ...of }, "ada", first, last)
    assert.deepStrictEqual(beyond(3, 5), { above: 0, below: 4, isExact: true })
    assert.deepStrictEqual(beyond(8, 9), { above: 5, below: 0, isExact: true })
    assert.deepStrictEqual(beyond(3, 5, {}, true), { above: 0, below: 4, isExact: true })
    const newer = { unread_count: 50, newest_unread_seq: 55 }
    assert.deepStrictEqual(beyond(3, 5, newer, true), { above: 0, below: 47, isExact: true })
    const older = { unread_count: 9, oldest_unread_seq: 1 }
    assert.deepStrictEqual(beyond(8, 9, older), { above: 7, below: 0, isExact: true })
    // 45 unread messages fit into the 2 numbers before and the 43 after what is loaded; of 43, one or two are before it.
    const both = { oldest_unread_seq: 1, newest_unread_seq: 55 }
    assert.deepStrictEqual(beyond(3, 5, { ...both, unread_count: 52 }, true), { above: 2, below: 47, isExact: true })
    assert.deepStrictEqual(beyond(3, 5, { ...both, unread_count: 50 }, true), { above: 1, below: 45, isExact: false })
    assert.deepStrictEqual(
      [2, 3, 12, 13].map((seq) => [covers(timeline, seq), covers({ ...timeline, newer: true }, seq)]),
      [[false, false], [true, true], [true, true], [true, false]]
    )
  })
})

it("the row at a position is found", () => {
  const offsets = Float64Array.from([0, 10, 30, 60])
  assert.deepStrictEqual([-5, 0, 9, 10, 29, 30, 59, 60, 100].map((position) => rowAt(offsets, position)), [
    0,
    0,
    0,
    1,
    1,
    2,
    2,
    2,
    2
  ])
})
