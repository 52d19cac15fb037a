import { ClusterProgress, type ClusterView } from "#infrastructure/cluster/NodeProgress"
import { assert, describe, it } from "@effect/vitest"
import { Runner, RunnerAddress } from "effect/cluster"

const SELF = "10.0.0.1:14431"

const runner = (n: number, groups: ReadonlyArray<string> = ["default"]) =>
  Runner.make({ address: RunnerAddress.make(`10.0.0.${n}`, 14_431), groups, weight: 1 })

const both = [[runner(1), true], [runner(2), true]] as const
const all = () => true
const none = () => false

/** A node that is asked at these seconds, with what it sees then. */
const asked = (owns: boolean) => {
  const progress = new ClusterProgress()
  return (
    second: number,
    sight: Partial<ClusterView> & { readonly runners?: NonNullable<ClusterView["list"]>["runners"] }
  ) =>
    progress.problem(second * 1_000, {
      self: SELF,
      owns,
      list: { runners: sight.runners ?? both, at: second * 1_000 },
      shards: 300,
      holds: all,
      explanation: "It is connected in both directions to 0 of 1 other nodes.",
      ...sight
    })
}

describe("the progress of a node in its cluster", () => {
  it("a runner that holds its shards makes progress, one that holds none does not", () => {
    const look = asked(true)
    assert.isUndefined(look(0, {}))
    assert.match(look(1, { holds: none }) ?? "", /^This node holds 0 of its 1[45]\d shards, since 0 s/)
    assert.isUndefined(look(2, {}))
    // Alone, all are its own.
    assert.match(
      look(3, { holds: none, runners: [[runner(1), true], [runner(2), false]] }) ?? "",
      /holds 0 of its 300 shards/
    )
  })

  it("shards that are on their way to it do not count for 15 seconds, unless it has none", () => {
    const look = asked(true)
    const some = { holds: (index: number) => index % 2 === 0, runners: [[runner(1), true]] } as const
    assert.isUndefined(look(0, some))
    assert.isUndefined(look(15, some))
    assert.match(look(16, some) ?? "", /^This node holds 150 of its 300 shards, since 16 s: another session/)
    assert.isUndefined(look(17, {}))
    assert.isUndefined(look(18, some))
  })

  it("a node that is put out of the cluster says so after a second, one that was never taken in at once", () => {
    for (const owns of [true, false]) {
      const look = asked(owns)
      const out = { holds: none, runners: [[runner(1), false], [runner(2), true]] } as const
      assert.isUndefined(look(0, {}))
      assert.isUndefined(look(1, out))
      assert.isUndefined(look(2, out))
      const reason =
        /^This node, 10\.0\.0\.1:14431, does not belong to the cluster, since 2 s\. It is connected in both directions to 0 of 1/
      assert.match(look(3, out) ?? "", reason)
      assert.isUndefined(look(4, {}))
      assert.match(asked(owns)(0, { runners: [[runner(2), true]] }) ?? "", /does not belong to the cluster, since 0 s/)
    }
  })

  it("a node that cannot read who the others are says so after ten seconds", () => {
    const look = asked(true)
    const list = { runners: both, at: 0 }
    assert.match(look(0, { list: undefined }) ?? "", /has not been read yet/)
    assert.isUndefined(look(10, { list }))
    assert.match(look(11, { list }) ?? "", /could not be read for 11 s/)
  })

  it("a gateway needs to know who owns shards, and none of its own", () => {
    const look = asked(false)
    assert.isUndefined(look(0, { holds: none, runners: [[runner(1, []), true], [runner(2), true]] }))
    const alone = { holds: none, runners: [[runner(1, []), true], [runner(2), false], [runner(3, []), true]] } as const
    assert.match(look(1, alone) ?? "", /^No node that owns shards is there: start one with ROLE=runner/)
  })
})
