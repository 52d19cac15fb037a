import { MAX_BYTES, Skill, SkillList, tagsOf } from "#domain/agents/Skill"
import { assert, describe, it } from "@effect/vitest"
import { Exit, Schema } from "effect"
import * as fc from "fast-check"

const decode = Schema.decodeUnknownExit(SkillList)
const isAccepted = (skills: unknown): boolean => Exit.isSuccess(decode(skills))

const skill = (fields: object = {}): object => ({
  id: "prove",
  name: "Prove",
  description: "Proves theorems.",
  tags: ["maths"],
  ...fields
})
const skills = (count: number, fields: object = {}) =>
  Array.from({ length: count }, (_, i) => skill({ id: `s-${i}`, ...fields }))

describe("skills", () => {
  it("have the sizes of the contract", () => {
    const accepted = [
      {},
      { id: "a" },
      { id: "-0-" },
      { id: "a".repeat(64) },
      { name: "🦜".repeat(100) },
      { description: "é\n".repeat(250) },
      { tags: Array.from({ length: 8 }, (_, i) => `${i}`) },
      { tags: ["🦜".repeat(32)] },
      { tags: ["a b", "C++", "été", "a b"] },
      { examples: [] },
      { examples: Array.from({ length: 5 }, () => "x".repeat(200)) }
    ]
    const refused = [
      { id: "" },
      { id: "a".repeat(65) },
      { id: "A" },
      { id: "a_b" },
      { id: "a\n" },
      { id: "é" },
      { id: 1 },
      { id: undefined },
      { name: "" },
      { name: " " },
      { name: "x".repeat(101) },
      { name: "a\nb" },
      { name: "a\u202eb" },
      { name: null },
      { description: "" },
      { description: "x".repeat(501) },
      { description: "\0" },
      { description: "\ud800" },
      { description: undefined },
      { tags: [] },
      { tags: Array.from({ length: 9 }, (_, i) => `${i}`) },
      { tags: ["x".repeat(33)] },
      { tags: [""] },
      { tags: ["\u2800"] },
      { tags: ["a\u0007"] },
      { tags: ["a\u2066"] },
      { tags: "maths" },
      { tags: undefined },
      { examples: [""] },
      { examples: ["x".repeat(201)] },
      { examples: Array.from({ length: 6 }, () => "x") },
      { examples: null }
    ]
    for (const fields of accepted) assert.isTrue(isAccepted([skill(fields)]), JSON.stringify(fields))
    for (const fields of refused) assert.isFalse(isAccepted([skill(fields)]), JSON.stringify(fields))
  })

  it("are at most 16, with different ids, none of which is the server's", () => {
    assert.isTrue(isAccepted([]))
    assert.isTrue(isAccepted(skills(16)))
    assert.isFalse(isAccepted(skills(17)))
    assert.isFalse(isAccepted([skill(), skill()]))
    assert.isFalse(isAccepted([skill({ id: "message" })]))
    assert.isTrue(isAccepted([skill({ id: "messages" })]))
    for (const value of [{}, "[]", 1, [null], [[]], ["prove"]]) assert.isFalse(isAccepted(value))
  })

  it("have at most 8 KiB of JSON together, without the fields that are dropped", () => {
    const sizeOf = (value: unknown) => Buffer.byteLength(JSON.stringify(value))
    // Each of these characters has three bytes.
    const list = (
      last: number
    ) => [...skills(5, { description: "語".repeat(500) }), skill({ description: "x".repeat(last) })]
    const left = MAX_BYTES - sizeOf(list(0))
    assert.isTrue(isAccepted(list(left)))
    assert.isFalse(isAccepted(list(left + 1)))
    const exit = decode(list(left).map((one) => ({ ...one, more: "x".repeat(1_000) })))
    assert.deepStrictEqual<unknown>(Exit.isSuccess(exit) ? exit.value : exit, list(left))
  })

  it("are shown even if they were stored before the rule for names", () => {
    const old = [{ id: "Old", name: " \u200b\u{1d159}", description: "", tags: ["a\u202eb", "a\u200d"] }]
    assert.isFalse(isAccepted(old))
    assert.deepStrictEqual(Schema.decodeUnknownSync(Schema.Array(Skill))(old), old)
  })

  it("are stored as JSON and read back unchanged, whatever was accepted", () => {
    const texts = (max: number) =>
      fc.string({ unit: "grapheme", minLength: 1, maxLength: max }).filter((text) => text.isWellFormed())
    const one = fc.record({
      id: fc.stringMatching(/^[a-z0-9-]{1,9}$/),
      name: texts(20),
      description: texts(40),
      tags: fc.array(texts(8), { minLength: 1, maxLength: 8 }),
      examples: fc.array(texts(20), { maxLength: 5 })
    }, { requiredKeys: ["id", "name", "description", "tags"] })
    fc.assert(
      fc.property(fc.array(one, { maxLength: 4 }), (list) => {
        const exit = decode(list)
        if (!Exit.isSuccess(exit)) return
        assert.deepStrictEqual(
          Schema.decodeUnknownSync(Schema.fromJsonString(Schema.Array(Skill)))(JSON.stringify(exit.value)),
          exit.value
        )
        // Only names and tags are changed, by the rule for names.
        const rest = (of: ReadonlyArray<Skill>) =>
          of.map(({ description, examples = null, id, tags }) => ({ id, description, examples, tags: tags.length }))
        assert.deepStrictEqual(rest(exit.value), rest(list))
      }),
      { numRuns: 200 }
    )
  })

  it("give distinct tags, in the order of their first appearance", () => {
    const of = (...tags: ReadonlyArray<ReadonlyArray<string>>) =>
      tagsOf(tags.map((tags, i) => ({ id: `${i}`, name: "n", description: "d", tags })))
    assert.deepStrictEqual(of(["b", "a", "b"], ["A", "a", "c"]), ["b", "a", "A", "c"])
    assert.deepStrictEqual(of(), [])
  })
})
