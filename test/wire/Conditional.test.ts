import { isKnown, namesTag, rangeOf } from "#infrastructure/wire/Conditional"
import { assert, describe, it } from "@effect/vitest"

describe("If-None-Match", () => {
  it("is compared weakly with each tag of the list, and `*` stands for every answer", () => {
    for (const given of [`"a"`, `W/"a"`, `"x", "a"`, `"x",W/"a"`, ` "a" `, `"x" , W/"a" ,"y"`, `"b,c", "a"`]) {
      assert.isTrue(isKnown(given, `"a"`), given)
      assert.isTrue(namesTag(given, `"a"`), given)
      assert.isTrue(isKnown(given, `W/"a"`), given)
    }
    for (const given of [undefined, "", "a", `"A"`, `"ab"`, `"b"`, `"b,a"`, `W/"b"`, `"a`])
      assert.isFalse(isKnown(given, `"a"`), String(given))
    assert.isTrue(isKnown(`"b,c"`, `"b,c"`))
    for (const given of ["*", " * "])
      assert.deepStrictEqual([isKnown(given, `"a"`), namesTag(given, `"a"`)], [true, false])
  })
})

describe("Range", () => {
  it("is one range of bytes, clamped to the file; what is no such range is ignored", () => {
    const of = (range: string | undefined, ifRange?: string, size = 10) =>
      rangeOf(
        { ...(range === undefined ? {} : { range }), ...(ifRange === undefined ? {} : { "if-range": ifRange }) },
        size,
        `"a"`
      )
    assert.deepStrictEqual(of("bytes=0-"), { first: 0, last: 9 })
    assert.deepStrictEqual(of("bytes=3-4"), { first: 3, last: 4 })
    assert.deepStrictEqual(of("Bytes= 9-9 "), { first: 9, last: 9 })
    assert.deepStrictEqual(of("bytes=9-99999999999999999999"), { first: 9, last: 9 })
    assert.deepStrictEqual(of("bytes=-3"), { first: 7, last: 9 })
    assert.deepStrictEqual(of("bytes=-99999999999999999999"), { first: 0, last: 9 })
    for (const range of ["bytes=10-", "bytes=10-12", "bytes=99999999999999999999-", "bytes=-0"])
      assert.strictEqual(of(range), "none", range)
    for (
      const range of [
        undefined,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=4-3",
        "bytes=0-1,3-4",
        "bytes=+1-2",
        "lines=0-1",
        "bytes 0-1"
      ]
    ) {
      assert.strictEqual(of(range), undefined, range)
    }
  })

  it("with an If-Range counts only if that is the file's tag, compared strongly", () => {
    const of = (ifRange: string) => rangeOf({ range: "bytes=0-0", "if-range": ifRange }, 10, `"a"`)
    assert.deepStrictEqual(of(`"a"`), { first: 0, last: 0 })
    for (const given of [`W/"a"`, `"b"`, "Fri, 27 Nov 2026 12:00:00 GMT", ""])
      assert.strictEqual(of(given), undefined, given)
  })
})
