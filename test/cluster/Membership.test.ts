import { endedBy, mayJoin, membersOf, type NodeView } from "#infrastructure/cluster/Membership"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

/**
 * Nodes a, b, c, … in the order of their listing, who reach each other but for these: "ab" says that a does not reach
 * b.
 */
const nodes = (
  names: string,
  cuts: ReadonlyArray<string> = [],
  changes: Readonly<Record<string, Partial<NodeView>>> = {}
) =>
  [...names].map((address, listed): NodeView => ({
    address,
    listed,
    ownsShards: true,
    isCurrent: true,
    isSilent: false,
    reaches: new Set([...names].filter((other) => other !== address && !cuts.includes(address + other))),
    ...changes[address]
  }))

const members = (...given: Parameters<typeof nodes>): string => [...membersOf(nodes(...given))].sort().join("")

describe("the members of the cluster", () => {
  it("are all nodes while all can talk with all; a single node is a member", () => {
    assert.strictEqual(members("a"), "a")
    assert.strictEqual(members("abcde"), "abcde")
  })

  it("exclude only the node that reaches nobody, or that nobody reaches, wherever it stands in the list", () => {
    for (const bad of "abc") {
      const others = [..."abc"].filter((name) => name !== bad)
      const out = others.map((other) => bad + other)
      const back = others.map((other) => other + bad)
      for (const cuts of [out, back, [...out, ...back]])
        assert.strictEqual(members("abc", cuts), others.join(""), `${cuts}`)
    }
  })

  it("keep the node that was listed earlier if two cannot talk both ways", () => {
    for (const cuts of [["ab"], ["ba"], ["ab", "ba"]]) assert.strictEqual(members("ab", cuts), "a")
    assert.strictEqual(members("abc", ["bc"]), "ab")
    // Two halves.
    assert.strictEqual(members("abcd", ["ac", "ad", "bc", "bd"]), "ab")
  })

  it("keep the majority, whoever is in the rest", () => {
    assert.strictEqual(members("abcde", ["ac", "ad", "ae", "bc", "bd", "be"]), "cde")
  })

  it("a node that is dead or hangs decides nothing, and stays only while more than half reach it", () => {
    const silent = { a: { isCurrent: false, reaches: new Set<string>() } }
    assert.strictEqual(members("abc", [], silent), "abc")
    assert.strictEqual(members("abc", ["ba"], silent), "bc")
    assert.strictEqual(members("ab", ["ba"], silent), "b")
    // After a crash of the database nobody holds a lock.
    assert.strictEqual(members("ab", ["ab", "ba"], { a: { isCurrent: false }, b: { isCurrent: false } }), "ab")
  })

  it("an owner that is silent is left out although all reach it; a gateway is not", () => {
    const silent = { isCurrent: false, isSilent: true }
    assert.strictEqual(members("abc", [], { a: silent }), "bc")
    assert.strictEqual(members("ab", [], { a: silent }), "b")
    assert.strictEqual(members("abc", [], { a: silent, b: silent }), "c")
    assert.strictEqual(members("abc", [], { a: { ...silent, ownsShards: false } }), "abc")
    // It has lost the lock of its address a moment ago.
    assert.strictEqual(members("abc", [], { a: { isCurrent: false } }), "abc")
  })

  it("a gateway belongs if it can talk with every owner, and never decides about one", () => {
    const gateways = { b: { ownsShards: false }, c: { ownsShards: false } }
    assert.strictEqual(members("abc", [], gateways), "abc")
    assert.strictEqual(members("abc", ["ab", "ba", "ca"], gateways), "a")
    assert.strictEqual(members("abc", ["ab"], gateways), "ac")
  })

  it("a newcomer joins if it can talk both ways with those that are there; the dead have no veto", () => {
    const joins = (...given: Parameters<typeof nodes>): boolean => {
      const all = nodes(...given)
      return mayJoin(all.slice(0, -1), all.at(-1)!)
    }
    assert.isTrue(joins("z"))
    assert.isTrue(joins("abz"))
    assert.isFalse(joins("az", ["za"]))
    assert.isFalse(joins("az", ["az"]))
    assert.isFalse(joins("abz", ["za", "zb"]))
    assert.isFalse(joins("abz", ["za"]))
    assert.isTrue(joins("abz", ["za"], { a: { isCurrent: false, reaches: new Set() } }))
    // One that none of the others reaches either is not in its way.
    assert.isTrue(joins("abcz", ["ab", "ac", "az", "za", "ba", "ca"]))
  })

  it("in any state, some node that reports stays, all that stay can talk, and no single node excludes two", () => {
    const bits = fc.array(fc.boolean(), { minLength: 36, maxLength: 36 })
    fc.assert(fc.property(fc.integer({ min: 1, max: 6 }), bits, bits, (count, reach, current) => {
      const names = "abcdef".slice(0, count)
      const given = [...names].map((address, i): NodeView => ({
        address,
        listed: i,
        ownsShards: true,
        isCurrent: current[i] === true,
        isSilent: false,
        reaches: new Set([...names].filter((_, j) => j !== i && reach[i * 6 + j]))
      }))
      const left = membersOf(given)
      const owners = given.filter(({ isCurrent }) => isCurrent)
      const stayed = owners.filter(({ address }) => left.has(address))
      if (owners.length > 0) assert.isAbove(stayed.length, 0)
      for (const one of stayed) {
        for (const other of stayed) if (one !== other) assert.isTrue(one.reaches.has(other.address))
      }
      // As if all could talk with all, but for what one of them says of the others.
      if (owners.length >= 3) {
        const liar = owners[0]!
        const honest = owners.map((node) =>
          node === liar ? node : { ...node, reaches: new Set(owners.map(({ address }) => address)) }
        )
        const out = honest.filter((node) => node !== liar && !membersOf(honest).has(node.address))
        assert.isAtMost(out.length, 1)
      }
    }))
  })
})

/** The rule as it is stated: exclude the owner with the fewest connections, or the last listed of several, and repeat. */
const statedOwners = (nodes: ReadonlyArray<NodeView>): ReadonlyArray<string> => {
  let owners = [...nodes]
  for (;;) {
    const connections = (one: NodeView): number =>
      owners.filter((other) => other !== one && one.reaches.has(other.address) && other.reaches.has(one.address)).length
    const [worst] = [...owners].sort((one, other) => connections(one) - connections(other) || other.listed - one.listed)
    if (worst === undefined || connections(worst) === owners.length - 1) return owners.map(({ address }) => address)
    owners = owners.filter((owner) => owner !== worst)
  }
}

describe("the members of a large cluster", () => {
  it("are those of the rule as it is stated, whoever reaches whom", () => {
    fc.assert(fc.property(
      fc.integer({ min: 1, max: 12 }),
      fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 144, maxLength: 144 }),
      (count, reach) => {
        const names = Array.from({ length: count }, (_, i) => `n${i}`)
        const given = names.map((address, i): NodeView => ({
          address,
          listed: i,
          ownsShards: true,
          isCurrent: true,
          isSilent: false,
          reaches: new Set(names.filter((_, j) => reach[i * 12 + j]! > 1))
        }))
        assert.deepStrictEqual([...membersOf(given)].sort(), [...statedOwners(given)].sort())
      }
    ))
  })

  it("are found in steps that grow with the square of the nodes, also if one half is cut off from the other", () => {
    let steps = 0
    class Counted extends Set<string> {
      override has(name: string): boolean {
        steps++
        return super.has(name)
      }
    }
    const half = 100
    const given = Array.from({ length: 2 * half }, (_, i): NodeView => ({
      address: `n${i}`,
      listed: i,
      ownsShards: true,
      isCurrent: true,
      isSilent: false,
      reaches: new Counted(Array.from({ length: half }, (_, j) => `n${i < half ? j : half + j}`))
    }))
    assert.deepStrictEqual([...membersOf(given)], given.slice(0, half).map(({ address }) => address))
    assert.isBelow(steps, 4 * (2 * half) ** 2)
  })
})

describe("the nodes whose database sessions a node may end", () => {
  const STATES = [{ isCurrent: true, isSilent: false }, { isCurrent: false, isSilent: false }, {
    isCurrent: false,
    isSilent: true
  }] as const

  /** Every world of so many nodes: who reaches whom, and what is known of each. */
  const worlds = function*(count: number): Generator<ReadonlyArray<NodeView>> {
    const names = "abcd".slice(0, count)
    const pairs = count * (count - 1)
    for (let reach = 0; reach < 2 ** pairs; reach++) {
      for (let states = 0; states < 3 ** count; states++) {
        let bit = 0
        const world = [...names].map((address, listed): NodeView => ({
          address,
          listed,
          ownsShards: true,
          ...STATES[Math.floor(states / 3 ** listed) % 3]!,
          reaches: new Set([...names].filter((other) => other !== address && (reach >> bit++) % 2 === 1))
        }))
        // Nobody is silent unless another node writes its row.
        if (world.some(({ isCurrent }) => isCurrent) || world.every(({ isSilent }) => !isSilent)) yield world
      }
    }
  }

  /** What must hold in a world, or undefined if no session is ended there. */
  const judge = (world: ReadonlyArray<NodeView>): ReadonlySet<string> | undefined => {
    const ended = new Map(world.map(({ address }) => [address, endedBy(address, world).map((node) => node.address)]))
    const enders = world.filter(({ address }) => ended.get(address)!.length > 0)
    if (enders.length === 0) return undefined
    const all = new Set(ended.values().flatMap((some) => some))
    for (const { address, isCurrent } of enders) {
      if (!isCurrent || all.has(address)) assert.fail(`${address} ends sessions: ${JSON.stringify(world)}`)
      // All that end sessions end the same ones.
      if (ended.get(address)!.length !== all.size) assert.fail(`${address} ends fewer: ${JSON.stringify(world)}`)
    }
    return all
  }

  it("in all states of up to four nodes, a silent node ends no sessions, and a node that ends some keeps its own", () => {
    let endings = 0
    for (const count of [2, 3, 4]) {
      for (const world of worlds(count)) {
        if (judge(world) !== undefined) endings++
      }
    }
    assert.isAbove(endings, 1_000)
  })

  it("in all states of up to three nodes that all write, a node whose sessions were ended never ends those of the other in turn", () => {
    for (const count of [2, 3]) {
      for (const world of worlds(count)) {
        if (!world.every(({ isCurrent }) => isCurrent)) continue
        const ended = judge(world)
        if (ended === undefined) continue
        for (const state of STATES) {
          const later: ReadonlyArray<NodeView> = world.map((node) =>
            ended.has(node.address) ? { ...node, ...state } : node
          )
          for (const address of ended) {
            for (const { address: other } of endedBy(address, later))
              if (!ended.has(other)) assert.fail(JSON.stringify(later))
          }
        }
      }
    }
  })

  it("are the excluded ones, for the nodes that stay and own shards", () => {
    const ends = (self: string, ...given: Parameters<typeof nodes>) =>
      endedBy(self, nodes(...given)).map(({ address }) => address).join("")
    assert.strictEqual(ends("a", "abc"), "")
    assert.strictEqual(ends("a", "ab", ["ab"]), "b")
    assert.strictEqual(ends("b", "ab", ["ab"]), "")
    const silent = { b: { isCurrent: false, isSilent: true } }
    assert.strictEqual(ends("a", "abc", [], silent), "b")
    assert.strictEqual(ends("c", "abc", [], { ...silent, c: { ownsShards: false } }), "")
    assert.strictEqual(ends("a", "abc", [], { ...silent, a: { isCurrent: false } }), "")
    assert.strictEqual(ends("a", "abc", ["ab", "ba", "bc", "cb"], { b: { ownsShards: false } }), "")
  })
})
