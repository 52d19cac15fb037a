import * as fc from "fast-check"

/**
 * What can happen to the core. Every number but a time is a choice among what there is
 * when it happens (modulo), so that a list stays meaningful when parts of it are taken out.
 */
export type Command =
  | { readonly _tag: "Send"; readonly from: number; readonly to: number; readonly key: number }
  | { readonly _tag: "FailedSend"; readonly from: number; readonly to: number; readonly key: number; readonly stored: boolean }
  | {
    readonly _tag: "Burst"
    readonly sends: ReadonlyArray<{ readonly from: number; readonly to: number; readonly key: number }>
    /** Whose socket opens while they are under way. */
    readonly attach: number | null
    /** Whose wait begins together with them. */
    readonly waits?: number | null
  }
  /** A wait for messages, which acknowledges what its caller took before; whether the caller takes its answer too. */
  | { readonly _tag: "Wait"; readonly agent: number; readonly limit: number; readonly takes: boolean }
  | { readonly _tag: "HangUp"; readonly agent: number; readonly pick: number }
  | { readonly _tag: "Reply"; readonly agent: number; readonly pick: number; readonly key: number }
  | { readonly _tag: "Sync"; readonly agent: number; readonly after: Cursor; readonly limit: number }
  | { readonly _tag: "AckThrough"; readonly agent: number; readonly cursor: Cursor }
  | { readonly _tag: "AckFrame"; readonly agent: number; readonly session: number; readonly pick: number }
  | { readonly _tag: "Read"; readonly agent: number; readonly pick: number; readonly twice: boolean }
  | { readonly _tag: "ReadThrough"; readonly agent: number; readonly pick: number; readonly through: number }
  | { readonly _tag: "HideMessage"; readonly agent: number; readonly pick: number }
  | { readonly _tag: "HideConversation"; readonly agent: number; readonly pick: number }
  | { readonly _tag: "List"; readonly agent: number; readonly limit: number }
  | {
    readonly _tag: "History"
    readonly agent: number
    readonly pick: number
    readonly by: "before" | "after" | "around" | "newest"
    readonly at: number
    readonly limit: number
  }
  | { readonly _tag: "Attach"; readonly agent: number; readonly acknowledges: boolean }
  | { readonly _tag: "Detach"; readonly agent: number; readonly session: number }
  | { readonly _tag: "LoseHint"; readonly agent: number; readonly session: number }
  | { readonly _tag: "DelayHint"; readonly agent: number; readonly session: number }
  | { readonly _tag: "Check"; readonly agent: number }
  | { readonly _tag: "Block"; readonly agent: number; readonly other: number }
  | { readonly _tag: "Jump"; readonly ms: number }

/** A delivery id that the agent was shown, another's, or none at all. */
export type Cursor =
  | { readonly _tag: "Own"; readonly pick: number }
  | { readonly _tag: "Foreign"; readonly pick: number }
  | { readonly _tag: "Garbage"; readonly text: string }

const agent = fc.nat(3)
const pick = fc.nat(1_000)
const key = fc.nat(60)
/** Another agent, and now and then the sender itself. */
const pair = fc.tuple(agent, fc.nat(30)).map(([from, to]) => ({ from, to: to === 30 ? from : (from + 1 + (to % 3)) % 4 }))
const one = fc.record({ pair, key }).map(({ key, pair }) => ({ ...pair, key }))

const cursor: fc.Arbitrary<Cursor> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ _tag: fc.constant("Own" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ _tag: fc.constant("Foreign" as const), pick }) },
  {
    weight: 1,
    arbitrary: fc.record({
      _tag: fc.constant("Garbage" as const),
      text: fc.oneof(fc.constantFrom("", "del_", `del_${"0".repeat(32)}`, `del_${"z".repeat(32)}`), fc.string())
    })
  }
)

const tagged = <T extends Command["_tag"], R extends Record<string, fc.Arbitrary<unknown>>>(tag: T, fields: R) =>
  fc.record({ _tag: fc.constant(tag), ...fields })

const command = fc.oneof(
  { weight: 16, arbitrary: one.map((sent) => ({ _tag: "Send" as const, ...sent })) },
  {
    weight: 3,
    arbitrary: fc.tuple(one, fc.boolean()).map(([sent, stored]) => ({ _tag: "FailedSend" as const, ...sent, stored }))
  },
  {
    weight: 8,
    arbitrary: tagged("Burst", {
      sends: fc.array(one, { minLength: 2, maxLength: 5, size: "max" }),
      attach: fc.option(agent, { freq: 4 }),
      waits: fc.option(agent, { freq: 3 })
    })
  },
  { weight: 14, arbitrary: tagged("Reply", { agent, pick, key }) },
  { weight: 6, arbitrary: tagged("Sync", { agent, after: fc.oneof(cursor, fc.constant({ _tag: "Own", pick: 0 } as const)), limit: fc.integer({ min: 1, max: 8 }) }) },
  { weight: 5, arbitrary: tagged("AckThrough", { agent, cursor }) },
  { weight: 8, arbitrary: tagged("AckFrame", { agent, session: pick, pick }) },
  { weight: 5, arbitrary: tagged("Read", { agent, pick, twice: fc.boolean() }) },
  { weight: 5, arbitrary: tagged("ReadThrough", { agent, pick, through: fc.nat(12) }) },
  { weight: 3, arbitrary: tagged("HideMessage", { agent, pick }) },
  { weight: 2, arbitrary: tagged("HideConversation", { agent, pick }) },
  { weight: 4, arbitrary: tagged("List", { agent, limit: fc.integer({ min: 1, max: 4 }) }) },
  {
    weight: 5,
    arbitrary: tagged("History", {
      agent,
      pick,
      by: fc.constantFrom("before" as const, "after" as const, "around" as const, "newest" as const),
      at: fc.nat(12),
      limit: fc.integer({ min: 1, max: 8 })
    })
  },
  { weight: 7, arbitrary: tagged("Attach", { agent, acknowledges: fc.boolean() }) },
  { weight: 4, arbitrary: tagged("Detach", { agent, session: pick }) },
  { weight: 8, arbitrary: tagged("Wait", { agent, limit: fc.integer({ min: 1, max: 6 }), takes: fc.boolean() }) },
  { weight: 2, arbitrary: tagged("HangUp", { agent, pick }) },
  { weight: 3, arbitrary: tagged("LoseHint", { agent, session: pick }) },
  { weight: 2, arbitrary: tagged("DelayHint", { agent, session: pick }) },
  { weight: 3, arbitrary: tagged("Check", { agent }) },
  { weight: 1, arbitrary: tagged("Block", { agent, other: agent }) },
  {
    weight: 2,
    arbitrary: tagged("Jump", {
      ms: fc.oneof(
        { weight: 10, arbitrary: fc.constantFrom(1, 999, 1_001, 20_000) },
        { weight: 3, arbitrary: fc.constantFrom(60_000, 400_000) },
        { weight: 1, arbitrary: fc.constantFrom(82_800_000, 86_400_000) }
      )
    })
  }
) as fc.Arbitrary<Command>

/** The commands of one run: the same for the same seed. */
export const commandsOf = (seed: number, length: number): ReadonlyArray<Command> =>
  fc.sample(fc.array(command, { minLength: length, maxLength: length + 10, size: "max" }), { seed, numRuns: 1 })[0]!
