import { describe, expect, it } from "vitest"
import { History, TICKS_PER_MS } from "../../verification/faults/History.ts"
import { outageOf } from "../../verification/faults/Outage.ts"

const SECOND = 1_000 * TICKS_PER_MS

/** Sends of one agent to one conversation: when each was asked for and answered, in seconds, and how. */
const outage = (...sends: ReadonlyArray<readonly [asked: number, ended: number, refusal?: string]>) => {
  const history = new History("outage")
  sends.forEach(([asked, ended, refusal], i) => {
    const n = history.sends.begin(0, 0, asked * SECOND, 0)
    if (refusal === undefined) history.sends.ok(n, ended * SECOND, `msg_${"A".repeat(16)}`, i + 1)
    else history.sends.refused(n, ended * SECOND, refusal)
  })
  return outageOf(history, 10 * SECOND, 60 * SECOND).seconds
}

describe("outageOf", () => {
  it("is the time until a send that was asked for then or later was accepted", () => {
    expect(outage([9, 10.5], [11, 17], [12, 15], [18, 18.1])).toBe(4)
  })

  it("does not begin with a send to a node that answers nobody", () => {
    const history = new History("outage")
    const send = (conversation: number, asked: number, ended: number) => {
      const n = history.sends.begin(0, conversation, asked * SECOND, 0)
      history.sends.ok(n, ended * SECOND, `msg_${"A".repeat(16)}`, n + 1)
      return n
    }
    history.sends.unheardSince.set(send(0, 9, 33), 9 * SECOND)
    send(1, 9, 12)
    history.sends.unheardSince.set(send(1, 10, 40), 10 * SECOND)
    expect(outageOf(history, 10 * SECOND, 60 * SECOND)).toMatchObject({ seconds: 2, affected: 1 })
  })

  it("lasts while sends were refused by other nodes before they went to one that answers nobody", () => {
    const history = new History("outage")
    const send = (asked: number, ended: number, unheard?: number) => {
      const n = history.sends.begin(0, 0, asked * SECOND, 0)
      history.sends.ok(n, ended * SECOND, `msg_${"A".repeat(16)}`, n + 1)
      if (unheard !== undefined) history.sends.unheardSince.set(n, unheard * SECOND)
    }
    const seconds = () => outageOf(history, 10 * SECOND, 60 * SECOND).seconds
    send(11, 30, 16)
    expect(seconds()).toBe(5)
    send(15, 33, 20)
    send(19, 34, 24)
    expect(seconds()).toBe(13)
    // Nothing shows whether the conversation took messages from 24 to 26.
    send(26, 32, 31)
    expect(seconds()).toBe(13)
    send(30, 30.5)
    expect(seconds()).toBe(13)
  })

  it("is shown by all sends that overlap, also if one between them shows less", () => {
    const history = new History("outage")
    for (const [asked, unheard] of [[11, 16], [12, 13], [15, 20]] as const) {
      const n = history.sends.begin(0, 0, asked * SECOND, 0)
      history.sends.ok(n, 30 * SECOND, `msg_${"A".repeat(16)}`, n + 1)
      history.sends.unheardSince.set(n, unheard * SECOND)
    }
    expect(outageOf(history, 10 * SECOND, 60 * SECOND).seconds).toBe(9)
  })

  it("begins with the fault for what was under way", () => {
    expect(outage([8, 13], [14, 14])).toBe(3)
  })

  it("takes a refusal because of a block for an answer of the conversation, and no other refusal", () => {
    expect(outage([11, 19], [12, 13, "BLOCKED"], [18, 19])).toBe(2)
    expect(outage([11, 19], [12, 13, "UNAUTHORIZED"], [18, 19])).toBe(8)
  })
})
