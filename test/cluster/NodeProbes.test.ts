import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Option } from "effect"
import { RunnerAddress, Runners, ShardingConfig } from "effect/cluster"
import { TestClock } from "effect/testing"
import { NodeLinks } from "../../src/cluster/NodeLinks.ts"
import { disagreements, NodeProbes, WIRE } from "../../src/cluster/NodeProbes.ts"
import { type Facts, NodeTable } from "../../src/cluster/NodeTable.ts"

const SELF = "10.0.0.1:7431"
const OTHER = "10.0.0.2:7431"

const facts: Facts = { wire: WIRE, schema: "0016_a.sql", publicUrl: null, limits: { LIMITS_A: 1, LIMITS_B: 2 } }

describe("a greeting", () => {
  it.effect("of another version, or for another node, is refused in words on both sides, once a minute in the log", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      const probes = Context.get(
        yield* Layer.build(NodeProbes.layer(facts, () => "http://127.0.0.1:3000").pipe(Layer.provide([
          Layer.mock(NodeTable, { look: Effect.succeed([]), urls: Effect.succeed([]), say: () => Effect.void, leave: () => Effect.void }),
          Layer.mock(NodeLinks, { problem: () => undefined }),
          // Nobody is greeted back.
          Layer.succeed(Runners.RpcClientProtocol, { make: () => Effect.never } as never),
          ShardingConfig.layer({ runnerAddress: Option.some(RunnerAddress.make("10.0.0.1", 7431)) }),
          Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
        ]))),
        NodeProbes
      )
      yield* probes.greeted({ from: OTHER, to: SELF, wire: WIRE })
      assert.deepStrictEqual(lines, [])
      const newer = Effect.flip(probes.greeted({ from: OTHER, to: SELF, wire: WIRE + 1 }))
      for (let i = 0; i < 3; i++) {
        assert.include((yield* newer).reason, `it speaks version ${WIRE}, not version ${WIRE + 1}`)
      }
      assert.lengthOf(lines, 1)
      assert.include(lines[0], `Node ${OTHER} is refused: it speaks version ${WIRE + 1}`)
      yield* TestClock.adjust("61 seconds")
      const again = yield* Effect.flip(probes.greeted({ from: "10.0.0.3:7431", to: OTHER, wire: WIRE }))
      assert.strictEqual(again.reason, `the node that answers there is ${SELF}`)
    }).pipe(Effect.scoped))
})

describe("what all nodes should have in common", () => {
  const others = (...all: ReadonlyArray<Partial<Facts>>) =>
    all.map((one, i) => ({ address: `10.0.0.${i + 2}:7431`, facts: { ...facts, ...one } }))

  it("is compared by a node that starts, a line for each difference", () => {
    assert.deepStrictEqual(disagreements(facts, others({}, {})), [])
    assert.deepStrictEqual(
      disagreements(facts, others(
        { publicUrl: "https://parley.example", schema: "0015_b.sql" },
        { limits: { LIMITS_A: 1, LIMITS_B: 3 } },
        { limits: { LIMITS_A: 1 }, publicUrl: "https://parley.example" }
      )),
      [
        "The database schema is 0016_a.sql on this node and 0015_b.sql on 10.0.0.2:7431: run the same release of Parley on all nodes",
        "PUBLIC_URL is not set on this node and https://parley.example on 10.0.0.2:7431, 10.0.0.4:7431: the links that agents get depend on the node that they ask",
        "LIMITS_B is 2 on this node and 3 on 10.0.0.3:7431: what is allowed depends on the node that is asked",
        "LIMITS_B is 2 on this node and not set on 10.0.0.4:7431: what is allowed depends on the node that is asked"
      ]
    )
  })
})
