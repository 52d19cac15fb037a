import * as fc from "fast-check"
import { inWordsBy } from "../Words.ts"
import type { FrameFault } from "./Connections.ts"
import type { Broken } from "./Database.ts"

/** The number of agents. Each pair of agents has a conversation. */
export const AGENTS = 3
/** The number of nodes. */
export const NODES = 3

export interface OneSend {
  readonly node: number
  readonly from: number
  readonly to: number
  readonly key: number
}

/** The commands of the simulation of lines between nodes. Agents and nodes are numbers. */
export type Command =
  /** From now on, bytes take up to `delayMs` and arrive in pieces that depend on the seed. */
  | { readonly _tag: "Weather"; readonly seed: number; readonly delayMs: number }
  | ({ readonly _tag: "Send" } & OneSend)
  /** Sends in one turn of the event loop. */
  | { readonly _tag: "Burst"; readonly sends: ReadonlyArray<OneSend> }
  | { readonly _tag: "Open"; readonly agent: number; readonly node: number }
  | { readonly _tag: "Close"; readonly pick: number }
  /**
   * A send after whose push its node has more pushes for the recipient than may wait. `opens`: the node where a socket
   * of it opens.
   */
  | ({ readonly _tag: "Flood"; readonly opens: number | null } & OneSend)
  | { readonly _tag: "Move"; readonly shard: number; readonly to: number; readonly lags: ReadonlyArray<number> }
  | { readonly _tag: "Frame"; readonly from: number; readonly to: number; readonly fault: FrameFault }
  /** A line breaks. As soon as one of its nodes has a new line, these sends reach the owners of their conversations. */
  | { readonly _tag: "Cut"; readonly one: number; readonly other: number; readonly sends: ReadonlyArray<OneSend> }
  | { readonly _tag: "Part"; readonly one: number; readonly other: number; readonly ms: number }
  | { readonly _tag: "Idle"; readonly node: number; readonly ms: number }
  | { readonly _tag: "Kill"; readonly node: number; readonly ms: number }
  | { readonly _tag: "Break"; readonly broken: Broken }
  | { readonly _tag: "Pass"; readonly ms: number }
  /** Everything works again, for so long that every message must then be stored and shown. */
  | { readonly _tag: "Rest" }

const agent = fc.nat(AGENTS - 1)
const node = fc.nat(NODES - 1)
const two = <K extends string, L extends string>(one: K, other: L, below: number) =>
  fc.tuple(fc.nat(below - 1), fc.nat(below - 2)).map(([first, step]) =>
    ({ [one]: first, [other]: (first + 1 + step) % below }) as Record<K | L, number>
  )
const oneSend: fc.Arbitrary<OneSend> = fc.tuple(node, two("from", "to", AGENTS), fc.nat(30)).map((
  [at, agents, key]
) => ({ node: at, ...agents, key }))

const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({
      _tag: fc.constant("Weather" as const),
      seed: fc.nat(1_000_000),
      delayMs: fc.constantFrom(0, 2, 10, 40, 150)
    })
  },
  { weight: 10, arbitrary: oneSend.map((send) => ({ _tag: "Send" as const, ...send })) },
  {
    weight: 4,
    arbitrary: fc.record({
      _tag: fc.constant("Burst" as const),
      sends: fc.array(oneSend, { minLength: 2, maxLength: 6 })
    })
  },
  { weight: 4, arbitrary: fc.record({ _tag: fc.constant("Open" as const), agent, node }) },
  { weight: 2, arbitrary: fc.record({ _tag: fc.constant("Close" as const), pick: fc.nat(20) }) },
  {
    weight: 3,
    arbitrary: fc.tuple(oneSend, fc.option(node)).map(([send, opens]) => ({ _tag: "Flood" as const, opens, ...send }))
  },
  {
    weight: 3,
    arbitrary: fc.record({
      _tag: fc.constant("Move" as const),
      shard: fc.nat(AGENTS - 1),
      to: node,
      lags: fc.array(fc.constantFrom(0, 1, 10, 100, 600), { minLength: NODES, maxLength: NODES })
    })
  },
  {
    weight: 4,
    arbitrary: fc.tuple(
      two("from", "to", NODES),
      fc.constantFrom<FrameFault>("doubled", "doubled", "lost", "cut", "held")
    )
      .map(([nodes, fault]) => ({ _tag: "Frame" as const, ...nodes, fault }))
  },
  {
    weight: 2,
    arbitrary: fc.tuple(two("one", "other", NODES), fc.array(oneSend, { minLength: 1, maxLength: 4 })).map((
      [nodes, sends]
    ) => ({ _tag: "Cut" as const, ...nodes, sends }))
  },
  {
    weight: 1,
    arbitrary: fc.tuple(two("one", "other", NODES), fc.constantFrom(200, 2_000, 6_000)).map(([nodes, ms]) => ({
      _tag: "Part" as const,
      ...nodes,
      ms
    }))
  },
  {
    weight: 1,
    arbitrary: fc.record({ _tag: fc.constant("Idle" as const), node, ms: fc.constantFrom(100, 1_000, 4_000) })
  },
  {
    weight: 1,
    arbitrary: fc.record({ _tag: fc.constant("Kill" as const), node, ms: fc.constantFrom(10, 500, 3_000) })
  },
  {
    weight: 1,
    arbitrary: fc.record({
      _tag: fc.constant("Break" as const),
      broken: fc.constantFrom<Broken>("refused", "unanswered")
    })
  },
  { weight: 3, arbitrary: fc.constant({ _tag: "Rest" as const }) },
  {
    weight: 14,
    arbitrary: fc.record({
      _tag: fc.constant("Pass" as const),
      ms: fc.constantFrom(0, 1, 3, 10, 30, 100, 300, 1_000, 3_000)
    })
  }
)

/** The commands of one run, which depend only on the seed and the length. */
export const lineCommandsOf = (seed: number, length: number): ReadonlyArray<Command> =>
  fc.sample(fc.array(command, { minLength: length, maxLength: length + 10, size: "max" }), { seed, numRuns: 1 })[0]!

export const inWords = inWordsBy<Command>({
  Weather: "from now on bytes are under way for up to {delayMs} ms",
  Send: "agent {from} sends a message with key {key} to agent {to} at node {node}",
  Burst: "messages are sent at the same time: {sends}",
  Open: "agent {agent} opens a socket at node {node}",
  Close: "a socket closes",
  Flood:
    "agent {from} sends a message with key {key} to agent {to} at node {node}, and its owner then pushes more than may wait; meanwhile a socket of agent {to} opens at node {opens}",
  Move: "shard {shard} moves to node {to}, and the nodes notice it after so many ms: {lags}",
  Frame: "the next frame from node {from} to node {to} is {fault}",
  Cut:
    "the line between the nodes {one} and {other} breaks; as soon as one of them has a new one, messages are sent: {sends}",
  Part: "the nodes {one} and {other} do not reach each other for {ms} ms",
  Idle: "node {node} reads nothing for {ms} ms",
  Kill: "node {node} is killed, and starts again after {ms} ms",
  Break: "the next write to the database is {broken}",
  Pass: "{ms} ms pass",
  Rest: "everything works again, and is compared after some seconds"
})
