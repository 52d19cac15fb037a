import { assert, it } from "@effect/vitest"
import { Exit, Schema } from "effect"
import * as fc from "fast-check"
import { Bundle, encodeBundle } from "../../src/push/Bundle.ts"
import { readBundle } from "../../src/push/ReadBundle.ts"

const text = fc.string({ maxLength: 8 })
const integer = fc.maxSafeInteger()
const tagged = <Tag extends string, Model>(_tag: Tag, fields: { [K in keyof Model]: fc.Arbitrary<Model[K]> }, optional: Array<keyof Model> = []) =>
  fc.record({ _tag: fc.constant(_tag), ...fields }, {
    requiredKeys: ["_tag", ...Object.keys(fields).filter((key) => !(optional as Array<string>).includes(key))] as never
  })

const push = fc.oneof(
  tagged("Hint", { to: text, no: integer, messageId: text, senderId: text, rendered: integer, trace: text }, ["trace"]),
  tagged("Echo", { to: text, after: integer, before: fc.option(integer), messageId: text, rendered: integer }),
  tagged("Event", { to: text, frame: integer, about: fc.record({ senderId: text, conversationId: text }), after: integer }, ["about", "after"])
)
const notice = fc.oneof(
  tagged("Changed", { agentId: text }),
  tagged("Disconnect", { agentId: text, reason: fc.record({ code: fc.constantFrom(1001, 1008), text }) }),
  tagged("MuteChanged", { agentId: text, kind: fc.constantFrom("agent", "conversation"), targetId: text }),
  tagged("Unmuted", { agentId: text })
)
const few = <A>(item: fc.Arbitrary<A>) => fc.array(item, { maxLength: 3 })
const bundles = fc.record({
  sockets: few(fc.tuple(text, few(integer))),
  asks: integer,
  answers: integer,
  rendered: few(fc.record({ conversationId: text, seq: integer, before: text, after: text })),
  frames: few(text),
  pushes: few(push),
  notices: few(notice),
  since: integer,
  missed: fc.boolean()
}, { requiredKeys: ["sockets", "asks", "answers", "rendered", "frames", "pushes", "notices", "missed"] }) as unknown as fc.Arbitrary<typeof Bundle.Type>

const bySchema = Schema.decodeUnknownExit(Schema.fromJsonString(Bundle))

it("what is encoded is read again, and is what the schema says", () => {
  fc.assert(fc.property(bundles, (bundle) => {
    const encoded = encodeBundle(bundle)
    const plain = JSON.parse(JSON.stringify(bundle)) as unknown
    assert.deepStrictEqual(readBundle(encoded) as unknown, plain)
    assert.deepStrictEqual(bySchema(encoded), Exit.succeed(plain as typeof Bundle.Type))
  }), { numRuns: 50 })
})

/** Every place in a value: the object or list that holds it, and its name there. */
const places = (value: unknown): Array<readonly [holder: Record<string, unknown>, name: string]> =>
  typeof value !== "object" || value === null ? [] : Object.entries(value).flatMap(([name, inner]) => [
    [value as Record<string, unknown>, name] as const,
    ...places(inner)
  ])

const WRONG = [null, 1, 0.5, "x", true, [], {}, ["x", [1]], "Hint", "Echo", "Event", undefined]

it("it refuses exactly the texts that the schema refuses", () => {
  const seen = { taken: 0, refused: 0 }
  fc.assert(fc.property(bundles, fc.nat(), fc.constantFrom(...WRONG), (bundle, pick, wrong) => {
    const spoilt = JSON.parse(JSON.stringify(bundle)) as Record<string, unknown>
    const all = places(spoilt)
    const [holder, name] = all[pick % all.length]!
    if (wrong === undefined && !Array.isArray(holder)) delete holder[name]
    else holder[name] = wrong
    const encoded = JSON.stringify(spoilt)
    let taken = true
    try {
      readBundle(encoded)
    } catch {
      taken = false
    }
    seen[taken ? "taken" : "refused"]++
    assert.strictEqual(taken, Exit.isSuccess(bySchema(encoded)), encoded)
  }), { numRuns: 400 })
  assert.isAbove(Math.min(seen.taken, seen.refused), 10)
  for (const encoded of ["", "nothing", "null", "[]", "1"]) assert.throws(() => readBundle(encoded))
})
