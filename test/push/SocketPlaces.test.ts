import { beyond, type Elsewhere, nextSince, type SocketPlace } from "#domain/push/SocketPlaces"
import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"

const place = (since: number): SocketPlace => ({ agentId: "agt_a", since })

it("a place is behind every one that is known, whatever the clock says", () => {
  assert.strictEqual(nextSince(100, [], []), 100)
  assert.strictEqual(nextSince(100, [place(100)], []), 101)
  assert.strictEqual(nextSince(100, [place(90)], [["two", [3, 250]], ["three", [7]]]), 251)
})

it("the place on the first node by name comes first if two have the same time", () => {
  assert.deepStrictEqual(beyond(1, "one", [place(5)], [["two", [5]]]), [])
  assert.deepStrictEqual(beyond(1, "two", [place(5)], [["one", [5]]]), [place(5)])
})

/** Nodes that tell each other what they have; what is said arrives in order, some time later. */
class Model {
  readonly own: Array<Array<SocketPlace>>
  private readonly heard: Array<Array<ReadonlyArray<number>>>
  private readonly underWay: Array<Array<Array<ReadonlyArray<number>>>>
  /** How far the clock of each node is off. */
  private readonly off: ReadonlyArray<number>
  private readonly limit: number
  entered = 0
  private time = 1_000

  constructor(limit: number, off: ReadonlyArray<number>) {
    this.limit = limit
    this.off = off
    this.own = off.map(() => [])
    this.heard = off.map(() => off.map(() => []))
    this.underWay = off.map(() => off.map(() => []))
  }

  private elsewhere(at: number): ReadonlyArray<Elsewhere> {
    return this.heard[at]!.flatMap((since, other) => other === at ? [] : [[`node ${other}`, since] as const])
  }

  private announce(at: number): void {
    for (const line of this.underWay[at]!) line.push(this.own[at]!.map(({ since }) => since))
  }

  open(at: number): void {
    this.time++
    const own = this.own[at]!
    const known = own.length + this.elsewhere(at).reduce((sum, [, since]) => sum + since.length, 0)
    if (known >= this.limit) return
    own.push(place(nextSince(this.time + this.off[at]!, own, this.elsewhere(at))))
    this.entered++
    this.announce(at)
  }

  close(at: number): void {
    if (this.own[at]!.shift() !== undefined) this.announce(at)
  }

  /** The next text from one node arrives at another; gives what was displaced by it. */
  arrive(from: number, to: number): ReadonlyArray<SocketPlace> {
    const since = this.underWay[from]![to]!.shift()
    if (since === undefined || from === to) return []
    this.heard[to]![from] = since
    const lost = beyond(this.limit, `node ${to}`, this.own[to]!, this.elsewhere(to))
    if (lost.length > 0) {
      this.own[to] = this.own[to]!.filter((one) => !lost.includes(one))
      this.announce(to)
    }
    return lost
  }

  get total(): number {
    return this.own.reduce((sum, own) => sum + own.length, 0)
  }

  settle(): void {
    while (this.underWay.some((lines) => lines.some((line) => line.length > 0))) {
      for (const from of this.own.keys()) for (const to of this.own.keys()) this.arrive(from, to)
    }
  }
}

const node = fc.nat(3)
const worlds = fc.record({
  limit: fc.integer({ min: 1, max: 6 }),
  off: fc.array(fc.integer({ min: -50, max: 50 }), { minLength: 4, maxLength: 4 })
})

it("exactly as many sockets stay as are allowed, in whatever order they open on four nodes and announcements arrive", () => {
  fc.assert(
    fc.property(
      worlds,
      fc.array(
        fc.oneof(
          fc.record({ open: node }),
          fc.record({ from: node, to: node })
        ),
        { maxLength: 80 }
      ),
      ({ limit, off }, steps) => {
        const model = new Model(limit, off)
        for (const step of steps) {
          if ("open" in step) model.open(step.open)
          else model.arrive(step.from, step.to)
        }
        model.settle()
        assert.strictEqual(model.total, Math.min(limit, model.entered))
      }
    ),
    { numRuns: 300 }
  )
})

it("never more sockets stay than are allowed, also while sockets close, and none that all nodes knew of is displaced", () => {
  fc.assert(
    fc.property(
      worlds,
      fc.array(
        fc.oneof(
          fc.record({ open: node }),
          // The first one stays open, on the node that has no other close.
          fc.record({ close: fc.integer({ min: 1, max: 3 }) }),
          fc.record({ from: node, to: node })
        ),
        { maxLength: 80 }
      ),
      ({ limit, off }, steps) => {
        const model = new Model(limit, off)
        model.open(0)
        model.settle()
        const [first] = model.own[0]!
        for (const step of steps) {
          if ("open" in step) model.open(step.open)
          else if ("close" in step) model.close(step.close)
          else assert.notInclude(model.arrive(step.from, step.to), first)
        }
        model.settle()
        assert.isAtMost(model.total, limit)
        assert.deepStrictEqual(model.own[0]![0], first)
      }
    ),
    { numRuns: 300 }
  )
})
