import { type Bounds, BufferAccount, type BufferEntry } from "#infrastructure/http/BufferedBytes"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const KB = 1_024

/** A peer's connection that holds what the test says. */
class Fake {
  bytes = 0
  progress = 0
  isCut = false
  held: BufferEntry | undefined
  readonly peer: string
  readonly #account: BufferAccount

  constructor(account: BufferAccount, peer: string) {
    this.#account = account
    this.peer = peer
  }

  holds(bytes: number): void {
    this.bytes = bytes
    if (this.isCut) return
    if (this.held !== undefined) return this.#account.changed(this.held)
    this.held = this.#account.hold(this.peer, this, {
      bytes: () => this.bytes,
      progress: () => this.progress,
      cut: () => {
        this.isCut = true
      }
    })
    // It may have been cut before it was known.
    if (this.isCut) this.held = undefined
  }

  release(): void {
    if (this.held !== undefined) this.#account.release(this.held)
    this.held = undefined
  }
}

const setup = (bounds: Partial<Bounds> = {}) => {
  const time = { now: 0 }
  const account = new BufferAccount(
    { connection: 30 * KB, peer: 60 * KB, process: 200 * KB, ...bounds },
    () => time.now
  )
  return { time, account, connection: (peer: string) => new Fake(account, peer) }
}

describe("the account of what peers make a process hold", () => {
  it("cuts a connection above its own bound", () => {
    const { account, connection } = setup()
    const one = connection("eve")
    one.holds(30 * KB)
    assert.isFalse(one.isCut)
    one.holds(30 * KB + 1)
    assert.isTrue(one.isCut)
    assert.strictEqual(account.total, 0)
  })

  it("above a peer's bound cuts this peer's connections: stalled ones first, then the largest", () => {
    const { connection, time } = setup()
    const other = connection("alice")
    other.holds(29 * KB)
    const stalled = connection("eve")
    stalled.holds(10 * KB)
    const large = connection("eve")
    large.holds(29 * KB)
    time.now = 3_000
    large.progress += 16 * KB
    const next = connection("eve")
    next.holds(22 * KB)
    assert.deepStrictEqual([stalled, large, next, other].map(({ isCut }) => isCut), [true, false, false, false])
    connection("eve").holds(20 * KB)
    assert.deepStrictEqual([large, next, other].map(({ isCut }) => isCut), [true, false, false])
  })

  it("above the process's bound cuts connections of the peer that makes it hold the most", () => {
    const { account, connection } = setup()
    const small = Array.from({ length: 10 }, (_, i) => connection(`honest ${i}`))
    for (const one of small) one.holds(10 * KB)
    const eve = [connection("eve"), connection("eve")]
    for (const one of eve) one.holds(29 * KB)
    const rest = Array.from({ length: 5 }, (_, i) => connection(`more ${i}`))
    for (const one of rest) one.holds(10 * KB)
    assert.isAtMost(account.total, 200 * KB)
    assert.isTrue(eve.some(({ isCut }) => isCut))
    assert.isFalse([...small, ...rest].some(({ isCut }) => isCut))
  })

  it("does not take a few bytes now and then for reading: a peer that trickles is cut before those that hold less", () => {
    const { account, connection, time } = setup()
    const trickling = Array.from({ length: 3 }, (_, i) => [connection(`eve ${i}`), connection(`eve ${i}`)]).flat()
    const innocent = Array.from({ length: 4 }, (_, i) => connection(`honest ${i}`))
    for (const one of innocent) one.holds(4 * KB)
    for (const one of trickling) one.holds(28 * KB)
    for (let second = 1; second <= 12; second++) {
      time.now = 1_000 * second
      for (const one of trickling) one.progress += 1_000
      account.sweep()
    }
    assert.isFalse(account.isTight)
    connection("bob").holds(30 * KB)
    assert.isFalse(innocent.some(({ isCut }) => isCut))
  })

  it("above half of the process's bound ends connections that have been stalled for ten seconds, so that there is room again", () => {
    const { account, connection, time } = setup()
    const stalled = Array.from({ length: 6 }, (_, i) => connection(`eve ${i}`))
    for (const one of stalled) one.holds(20 * KB)
    assert.isTrue(account.isTight)
    account.sweep()
    time.now = 9_000
    account.sweep()
    assert.isFalse(stalled.some(({ isCut }) => isCut))
    time.now = 11_000
    account.sweep()
    assert.isFalse(account.isTight)
    assert.strictEqual(stalled.filter(({ isCut }) => isCut).length, 1)
  })

  it("notices at the next check what grew without a report, and forgets what has left", () => {
    const { account, connection } = setup()
    const [one, two] = [connection("eve"), connection("eve")]
    one.holds(20 * KB)
    two.holds(20 * KB)
    one.bytes = 0
    two.bytes = 29 * KB
    account.sweep()
    assert.strictEqual(account.total, 29 * KB)
    assert.isTrue(one.held?.released)
    two.bytes = 61 * KB
    account.sweep()
    assert.isTrue(two.isCut)
    assert.strictEqual(account.total, 0)
  })

  it("never counts more than its bounds, and always counts what is held, whatever happens", () => {
    fc.assert(fc.property(
      fc.array(
        fc.tuple(fc.nat(11), fc.nat(40 * KB), fc.constantFrom("holds", "release", "sweep", "progress", "time")),
        { maxLength: 200 }
      ),
      (steps) => {
        const { account, connection, time } = setup()
        const all = Array.from({ length: 12 }, (_, i) => connection(`peer ${i % 4}`))
        for (const [i, amount, what] of steps) {
          const one = all[i]!
          if (what === "holds") one.holds(amount)
          else if (what === "release") one.release()
          else if (what === "sweep") account.sweep()
          else if (what === "progress") one.progress += amount
          else time.now += amount
          const living = all.filter((one) => one.held !== undefined && !one.isCut && !one.held.released)
          assert.strictEqual(account.total, living.reduce((sum, { bytes }) => sum + bytes, 0))
          assert.isAtMost(account.total, 200 * KB)
          for (const peer of new Set(all.map(({ peer }) => peer))) {
            assert.isAtMost(
              living.filter((one) => one.peer === peer).reduce((sum, { bytes }) => sum + bytes, 0),
              60 * KB
            )
          }
        }
        for (const one of all) one.release()
        assert.strictEqual(account.total, 0)
      }
    ))
  })
})
