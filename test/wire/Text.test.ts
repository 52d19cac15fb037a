import {
  codePoints,
  HandleInput,
  iso,
  isoOrNull,
  isStorable,
  isStorableJson,
  JsonObject,
  Text
} from "#infrastructure/wire/Text"
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Schema } from "effect"
import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"

const ROOT = join(import.meta.dirname, "../..")

/**
 * The files that make a time without `parseInstant`, and from what. JavaScript accepts many texts that are no ISO 8601,
 * so no file may convert a text of a client in this way. The pages in browsers are not among them: they show times of
 * the server.
 */
const CONVERTERS: Readonly<Record<string, string>> = {
  "src/clients/connect/Connector.ts": "its clock",
  "src/clients/connect/Prompt.ts": "created_at, as the server wrote it",
  "src/clients/connect/RunLog.ts": "its clock",
  "src/clients/connect/Status.ts": "a number of its journal",
  "src/clients/connect/Steps.ts": "created_at, as the server wrote it",
  "src/domain/archives/AgentExport.ts": "the clock, and ended_at of the manifest that it wrote",
  "src/domain/archives/AgentPages.ts": "numbers in columns",
  "src/domain/archives/Backup.ts": "the clock",
  "src/domain/archives/BackupStore.ts": "the digits in the name of a backup",
  "src/infrastructure/files/BlobsS3.ts": "the clock",
  "src/infrastructure/files/Tar.ts": "the clock",
  "src/infrastructure/platform/disk/DataDir.ts": "the clock",
  "src/infrastructure/platform/Mailer.ts": "the clock",
  "src/infrastructure/wire/Text.ts": "a text that has the form of parseInstant",
  "src/interfaces/a2a/SendMessage.ts": "created_at of a message, as the server wrote it",
  "src/interfaces/mcp/tools/Shown.ts": "created_at of a message, as the server wrote it",
  "src/interfaces/operator/LimitChanges.ts": "the result of parseInstant"
}

const accepts = Schema.is

const nested = (depth: number): unknown => JSON.parse("[".repeat(depth) + "1" + "]".repeat(depth))

describe("text", () => {
  it("is measured in code points", () => {
    for (
      const text of ["", "a", "\u{1f98a}", "a\u{1f98a}b", "\u{1f468}\u200d\u{1f469}", "\u00e9", "e\u0301", "\ufffd"]
    ) {
      assert.strictEqual(codePoints(text), [...text].length, JSON.stringify(text))
    }
  })

  it.prop("any well-formed text has as many code points as its iterator", { text: Schema.String }, ({ text }) => {
    if (text.isWellFormed()) assert.strictEqual(codePoints(text), [...text].length)
    return true
  })

  it("holds no NUL and no lone surrogate", () => {
    for (const text of ["a\0", "\0", "\ud800", "\udfff", "a\ud83d", "\udc00\ud800"]) assert.isFalse(isStorable(text))
    for (const text of ["", "\u{1f98a}", "\u0001", "\u2028", "\uffff"]) assert.isTrue(isStorable(text))
  })

  it("has bounds that are inclusive, in code points", () => {
    const fits = accepts(Text(1, 3))
    for (const text of ["a", "abc", "\u{1f98a}\u{1f98a}\u{1f98a}"]) assert.isTrue(fits(text), text)
    for (
      const text of [
        "",
        "abcd",
        "\u{1f98a}\u{1f98a}\u{1f98a}\u{1f98a}",
        "x".repeat(1_000_000),
        "a\0",
        "\ud800",
        1,
        null
      ]
    ) {
      assert.isFalse(fits(text))
    }
  })
})

describe("JSON to store", () => {
  it("nests sixty-four deep", () => {
    assert.isTrue(isStorableJson(nested(64)))
    assert.isFalse(isStorableJson(nested(65)))
    assert.isFalse(isStorableJson(nested(5_000)))
    assert.isTrue(accepts(JsonObject)({ a: nested(63) }))
    assert.isFalse(accepts(JsonObject)({ a: nested(64) }))
  })

  it("holds only storable text, keys included, however deep", () => {
    for (const bad of ["\0", "\ud800"]) {
      for (const value of [bad, [bad], { a: bad }, { [bad]: 1 }, { a: [{ b: { [bad]: null } }] }]) {
        assert.isFalse(isStorableJson(value))
      }
    }
    assert.isTrue(isStorableJson({ a: [1, -0.5, 1e300, true, null, "\u{1f98a}", {}, []] }))
    assert.isTrue(isStorableJson(JSON.parse('{"__proto__":{"a":1}}')))
  })

  it("is an object", () => {
    for (const value of [[], "a", 1, null, undefined]) assert.isFalse(accepts(JsonObject)(value))
    assert.isTrue(accepts(JsonObject)({}))
  })

  it.prop(
    "can be stored if JSON.parse made it of shallow well-formed text",
    { value: Arbitrary.schema(Schema.Record(Schema.String, Schema.Array(Schema.Number))) },
    ({ value }) => {
      const parsed: unknown = JSON.parse(JSON.stringify(value))
      const expected = Object.keys(parsed as object).every(isStorable)
      assert.strictEqual(isStorableJson(parsed), expected)
      return true
    }
  )
})

describe("a handle as callers write it", () => {
  const read = Schema.decodeUnknownSync(HandleInput)

  it("is trimmed, loses one @ and its capitals", () => {
    for (const text of ["alice", "@alice", " @Alice ", "ALICE\n"]) assert.strictEqual(read(text), "alice")
    assert.strictEqual(read("@@alice"), "@alice")
    assert.strictEqual(read(""), "")
    assert.strictEqual(read("al ice"), "al ice")
    // A Kelvin sign, whose lower case in Unicode is a plain k, a dotted capital I, and full-width letters.
    for (const text of ["\u212Aate", "al\u0130ce", "\uff21lice"]) assert.strictEqual(read(text), text)
  })

  it("is text that could be stored", () => {
    for (const text of ["a\0b", "\ud800", 7, null, {}]) assert.throws(() => read(text))
  })
})

describe("times", () => {
  it("are ISO 8601 in UTC with milliseconds", () => {
    assert.strictEqual(iso(0), "1970-01-01T00:00:00.000Z")
    assert.strictEqual(iso(Date.UTC(2024, 11, 31, 23, 59, 59, 7)), "2024-12-31T23:59:59.007Z")
    assert.isNull(isoOrNull(null))
    assert.strictEqual(isoOrNull(1), "1970-01-01T00:00:00.001Z")
  })
})

describe("a time that a client sends", () => {
  it("is parsed by parseInstant alone", () => {
    const converting = globSync("src/**/*.ts", { cwd: ROOT }).filter((file) =>
      /\bDate\.parse\b|\bnew Date\((?!\))|\bDateTime\.|\bSchema\.Date/.test(readFileSync(join(ROOT, file), "utf8"))
    )
    assert.deepStrictEqual(converting.sort(), Object.keys(CONVERTERS).sort())
  })
})
