import { inexactNumber } from "#infrastructure/wire/InexactNumber"
import { plainName } from "#infrastructure/wire/Name"
import * as fc from "fast-check"
import type { JsonSchema, OpenApiDocument } from "./Document.ts"

/** A code point that text may hold: no NUL, no half of a surrogate pair. */
const character = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0x20, max: 0x7e }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 0xd7ff }) },
  { weight: 1, arbitrary: fc.integer({ min: 0xe000, max: 0x10ffff }) }
).map((point) => String.fromCodePoint(point))

/** With a character that can be seen: names need one, which JSON Schema cannot say. */
const text = (min: number, max: number): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 4, arbitrary: fc.string({ unit: character, minLength: min, maxLength: Math.min(max, min + 40) }) },
    { weight: 1, arbitrary: fc.constantFrom("x", "é", "🦜").map((unit) => unit.repeat(Math.min(max, 2_000))) }
  ).filter((value) => value === "" || plainName(value) !== "")

/** Of a length, and matching a pattern that most texts match. */
const fromPattern = (pattern: RegExp, min: number, max: number): fc.Arbitrary<string> =>
  text(min, max).filter((value) => pattern.test(value))

/** JSON without integers beyond 2^53 − 1, which the server refuses (wire.md C.0, Numbers). */
const json = (maxDepth?: number): fc.Arbitrary<unknown> =>
  fc.jsonValue(maxDepth === undefined ? {} : { maxDepth }).filter((value) =>
    inexactNumber(JSON.stringify(value)) === undefined
  )

/** Values that a schema of the document accepts. */
export const fromSchema = (document: OpenApiDocument, schema: JsonSchema): fc.Arbitrary<unknown> => {
  const of = (inner: JsonSchema): fc.Arbitrary<unknown> => fromSchema(document, inner)
  if (schema.$ref !== undefined) {
    const found = document.components.schemas[schema.$ref.replace("#/components/schemas/", "")]
    if (found === undefined) throw new Error(`nothing at ${schema.$ref}`)
    return of(found)
  }
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map(of))
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  // A text with a rule that JSON Schema cannot say.
  if (schema.type === "string" && schema.examples !== undefined) return fc.constantFrom(...schema.examples)
  switch (schema.type) {
    case "null":
      return fc.constant(null)
    case "boolean":
      return fc.boolean()
    case "integer":
      return fc.integer({ min: schema.minimum ?? 0, max: schema.maximum ?? 1_000_000 })
    case "number":
      return fc.double({ noNaN: true })
    case "string":
      return schema.pattern === undefined
        ? text(schema.minLength ?? 0, schema.maxLength ?? 200)
        : schema.maxLength === undefined
        ? fc.stringMatching(new RegExp(schema.pattern, "u"))
        : fromPattern(new RegExp(schema.pattern, "u"), schema.minLength ?? 0, schema.maxLength)
    case "array":
      return fc.array(of(schema.items ?? {}), {
        minLength: schema.minItems ?? 0,
        maxLength: Math.min(schema.maxItems ?? 10, 10)
      })
    case "object":
      return schema.properties === undefined
        ? fc.dictionary(fc.string({ maxLength: 10 }), json(3), { maxKeys: 5 })
        : fc.record(
          Object.fromEntries(Object.entries(schema.properties).map(([name, inner]) => [name, of(inner)])),
          { requiredKeys: [...schema.required ?? []] }
        )
    default:
      return json()
  }
}

const nested = (levels: number, open: string, close: string, inner: string): string =>
  open.repeat(levels) + inner + close.repeat(levels)

/** JSON texts that do not belong where they are put; some are no JSON. */
export const junkJson: fc.Arbitrary<string> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.constantFrom(
      "null",
      "true",
      "42",
      "-1",
      "0.5",
      "1e999",
      "-0",
      "99999999999999999999",
      '""',
      '" "',
      "[]",
      "{}",
      "[null]",
      "[[]]",
      String.raw`"\u0000"`,
      String.raw`"a\u0000b"`,
      String.raw`"\ud800"`,
      String.raw`"\udc00x"`,
      String.raw`{"\u0000":1}`,
      String.raw`{"text":"\u0000"}`,
      String.raw`{"text":"\ud83d"}`,
      '{"text":1}',
      '{"text":""}',
      '{"data":[]}',
      '{"data":null}',
      '{"__proto__":{"admin":true}}',
      '{"constructor":{"prototype":{"admin":true}}}',
      '"__proto__"',
      '{"length":-1}',
      '"2020-01-01T00:00:00.000Z"',
      '"9999999-01-01"',
      '"not a date"',
      '"../../etc/passwd"',
      `"' or 1=1 --"`,
      '"http://[::1"',
      "{",
      "[",
      '"',
      "nul",
      "{]",
      "undefined",
      "NaN",
      "\uFEFF{}",
      "{} {}",
      "'a'"
    )
  },
  { weight: 2, arbitrary: fc.constantFrom(63, 64, 65, 5_000).map((levels) => nested(levels, '{"a":', "}", "1")) },
  { weight: 2, arbitrary: fc.constantFrom(65, 20_000).map((levels) => nested(levels, "[", "]", "")) },
  { weight: 2, arbitrary: fc.constantFrom(129, 300, 3_000, 40_000).map((n) => JSON.stringify("x".repeat(n))) },
  { weight: 1, arbitrary: fc.constant(JSON.stringify("x".repeat(1_100_000))) },
  { weight: 4, arbitrary: fc.jsonValue().map((value) => JSON.stringify(value)) },
  { weight: 2, arbitrary: fc.string({ unit: "binary" }).map((value) => JSON.stringify(value)) }
)

/** A segment of a path, encoded, that names nothing, or is no name at all. */
export const junkSegment = fc.constantFrom(
  "%00",
  "a%00b",
  "%ED%A0%80",
  "%C0%80",
  "%FF",
  "%zz",
  "%",
  "%20",
  "%0A",
  "%F0%9F%A6%9C",
  "__proto__",
  "constructor",
  "null",
  "undefined",
  "-1",
  "0",
  "%40",
  "%40%40",
  "%40nobody-at-all",
  "nobody-at-all",
  "..%2F..",
  "%2F",
  "a%2Fb",
  "%3F",
  "%23",
  "%27--",
  "conv_AAAAAAAAAAAAAAAA",
  "grp_AAAAAAAAAAAAAAAA",
  "msg_AAAAAAAAAAAAAAAA",
  "gri_AAAAAAAAAAAAAAAA",
  "agt_AAAAAAAAAAAAAAAA",
  "att_AAAAAAAAAAAAAAAA",
  "whk_AAAAAAAAAAAAAAAA",
  "con_AAAAAAAAAAAAAAAA",
  "del_0123456789abcdef0123456789abcdef",
  "grp_",
  "msg_%00",
  "x".repeat(101),
  // A path of more than 2,048 characters belongs to no operation.
  "x".repeat(1_900)
)

/** The value of a query parameter, encoded, that seldom fits. */
export const junkQuery = fc.constantFrom(
  "",
  "-1",
  "0",
  "1",
  "x",
  "1.5",
  "1e3",
  "1e400",
  "%2B5",
  "99999999999999999999",
  "%00",
  "a%00",
  "%ED%A0%80",
  "%FF",
  "%zz",
  "%",
  "null",
  "undefined",
  "[]",
  "true",
  "eyJhIjoxfQ",
  "W10",
  "bnVsbA",
  "WyJhIl0",
  "WzFd",
  "WzEsMiwzXQ",
  "%F0%9F%A6%9C",
  "__proto__",
  "msg_AAAAAAAAAAAAAAAA",
  "del_ffffffffffffffffffffffffffffffff",
  "9223372036854775807",
  "9223372036854775808",
  "2147483648",
  "y".repeat(5_000)
)

/** Headers that a careless or a hostile caller sends. */
export const junkHeaders = fc.constantFrom<Readonly<Record<string, string>>>(
  { authorization: "" },
  { authorization: "Bearer" },
  { authorization: "Bearer ac_x" },
  { authorization: "Basic YTpi" },
  { authorization: `Bearer ac_${"A".repeat(43)}` },
  { authorization: `Bearer ${"\u00ff".repeat(50)}` },
  { "idempotency-key": "" },
  { "idempotency-key": "k".repeat(256) },
  { "idempotency-key": "k\u00e9" },
  { "content-type": "text/xml" },
  { "content-type": "application/json; charset=utf-16" },
  { "content-type": "multipart/form-data" },
  { "content-type": "application/x-www-form-urlencoded" },
  { "content-type": ";;;" },
  { accept: "image/png" },
  { "x-request-id": "a b" },
  { "x-request-id": "r".repeat(500) },
  { "x-agentchat-client": "mcp" },
  { "x-agentchat-client": "" },
  { "if-none-match": "*" },
  { range: "bytes=5-1" },
  { cookie: "a=b" },
  { "x-forwarded-for": "not, an, address" },
  { "x-http-method-override": "DELETE" },
  { "content-encoding": "gzip" }
)
