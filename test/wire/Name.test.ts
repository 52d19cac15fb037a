import { Name, plainName } from "#infrastructure/wire/Name"
import { assert, describe, it } from "@effect/vitest"
import { Option, Schema } from "effect"
import * as fc from "fast-check"

const decode = (min: number, max: number) => {
  const decoded = Schema.decodeUnknownOption(Name(min, max))
  return (text: unknown): string | undefined => Option.getOrUndefined(decoded(text))
}
const read = decode(0, 100)

describe("a name to show", () => {
  it("is ordinary text of any script, and none if it is empty", () => {
    for (
      const name of [
        "",
        "Ada",
        "Ada Lovelace",
        "\u00c5sa",
        "A\u030asa",
        ".",
        "\u0301e",
        "\u6771\u4eac",
        "\u{1f98a}",
        "\ufffd",
        "\u0600 1"
      ]
    ) {
      assert.strictEqual(read(name), name, JSON.stringify(name))
    }
    assert.isUndefined(decode(1, 10)(""))
    for (const other of [1, null, undefined, {}]) assert.isUndefined(read(other))
  })

  it("is trimmed, and its length counts after that", () => {
    assert.strictEqual(read("\n\u3000 Ada \u2800\ufeff\u2003"), "Ada")
    assert.strictEqual(decode(1, 3)(`  \u200bA\u200b\u{1f98a}a${" ".repeat(50)}`), "A\u{1f98a}a")
    for (const name of ["Adam", "\u{1f98a}\u{1f98a}\u{1f98a}\u{1f98a}", `Ada${" ".repeat(5_000)}`])
      assert.isUndefined(decode(1, 3)(name))
  })

  it("holds nothing that acts on the text around it, no NUL and no lone surrogate", () => {
    const ranges = [[0x00, 0x1f], [0x7f, 0x9f], [0x2028, 0x2029], [0x202a, 0x202e], [0x2066, 0x2069], [
      0xd800,
      0xdfff
    ]] as const
    for (const [from, to] of ranges) {
      for (let code = from; code <= to; code++)
        assert.isUndefined(read(`a${String.fromCharCode(code)}b`), code.toString(16))
    }
  })

  it("has a character that can be seen", () => {
    const unseen = [
      " ",
      "   ",
      "\u00a0",
      "\u2003",
      "\u3000",
      "\u200b",
      "\u200d",
      "\u200e",
      "\u2060",
      "\ufeff",
      "\u00ad",
      "\u034f",
      "\u115f",
      "\u1160",
      "\u3164",
      "\uffa0",
      "\u17b4",
      "\u180e",
      "\u2800",
      "\ufe0f",
      "\ufff9",
      "\ufffc",
      "\u{1d159}",
      "\u{1d173}",
      "\u{13430}",
      "\u{e0020}",
      "\u{e0100}",
      "\u0301",
      "\u20dd",
      "\u093e",
      "\ue000",
      "\uffff"
    ]
    for (const name of [...unseen, unseen.join("")]) assert.isUndefined(read(name), JSON.stringify(name))
  })

  it("loses characters that nobody sees, so that names which look the same are the same", () => {
    const unseen = [
      "\u200b",
      "\u200c",
      "\u200d",
      "\u2060",
      "\ufeff",
      "\u00ad",
      "\u034f",
      "\u061c",
      "\u115f",
      "\u1160",
      "\u17b4",
      "\u180b",
      "\u180e",
      "\u200e",
      "\u200f",
      "\u2061",
      "\u206f",
      "\u3164",
      "\ufe00",
      "\ufe0e",
      "\ufe0f",
      "\uffa0",
      "\ufff9",
      "\ufffb",
      "\u{1bca0}",
      "\u{1d159}",
      "\u{1d173}",
      "\u{13430}",
      "\u{e0001}",
      "\u{e0041}",
      "\u{e007f}",
      "\u{e0100}"
    ]
    for (const one of unseen) {
      for (
        const [first, rest] of ["Ada", "\u6771\u4eac", "\u0434\u0430"].map((name) =>
          [name.slice(0, 1), name.slice(1)] as const
        )
      ) {
        for (const name of [`${first}${one}${rest}`, `${one}${first}${rest}`, `${first}${rest}${one}`]) {
          assert.strictEqual(read(name), first + rest, `${first}${rest} ${one.codePointAt(0)?.toString(16)}`)
        }
      }
    }
    // Marks of the direction that a letter beside them has already, and selectors for what is drawn anyway.
    for (
      const name of [
        "\u05d0\u200f\u05d1",
        "\u05d0\u05d1\u200f",
        "\u05d0\u05d1\u061c",
        "\u05d0\u05d1 \u200f",
        "\u05d0\u05d1\u200f \u200e ",
        "\u05d0\u05d1\u200e",
        "\u200f \u05d0\u05d1",
        " \u061c\u2800\u05d0\u05d1"
      ]
    )
      assert.strictEqual(read(name), "\u05d0\u05d1")
    assert.strictEqual(read("\u{1f600}\ufe0f\u{1f600}"), "\u{1f600}\u{1f600}")
  })

  it("keeps the joiners, selectors and tags that change what is seen", () => {
    const seen = {
      Persian: "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
      Hindi: "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937",
      Bengali: "\u09b0\u200d\u09cd\u09af",
      Sinhala: "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
      Mongolian: "\u1820\u180b",
      family: "\u{1f468}\u200d\u{1f469}\u200d\u{1f467}",
      coder: "\u{1f469}\u{1f3fd}\u200d\u{1f4bb}",
      heart: "\u2764\ufe0f\u200d\u{1f525}",
      text: "\u{1f600}\ufe0e",
      keycap: "1\ufe0f\u20e3",
      Scotland: "\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
      Hebrew: "\u05d0\u200e(1)"
    }
    for (const [what, name] of Object.entries(seen)) assert.strictEqual(read(name), name, what)
    // Reh does not join the next letter, so a non-joiner after it changes nothing.
    assert.strictEqual(read("\u062f\u0641\u062a\u0631\u200c\u0647\u0627"), "\u062f\u0641\u062a\u0631\u0647\u0627")
    assert.strictEqual(read("\u{1f3f4}\u{e0067}\u{e0062}\u{e007f}"), "\u{1f3f4}")
  })

  it("does not differ by blanks among the marks at its ends, or by marks after its last letter", () => {
    const end = fc.string({
      unit: fc.constantFrom(" ", "\u00a0", "\u2800", "\u200b", "\u200e", "\u200f", "\u061c"),
      maxLength: 5
    })
    const marks = (text: string) => text.replaceAll(/[ \u00a0\u2800\u200b]/g, "")
    const core = fc.constantFrom(
      "\u05d0",
      "a\u05d0",
      "\u05d0a",
      "\u05d0 1",
      "\u05d0\u05b0",
      "(\u05d0)",
      "\u0627!",
      "\u05d0\u200e(1)",
      "a"
    )
    fc.assert(fc.property(end, core, end, (before, name, after) => {
      const shown = JSON.stringify(before + name + after)
      assert.strictEqual(read(before + name + after), read(marks(before) + name + marks(after)), shown)
      if (!/[)!]$/.test(name)) assert.strictEqual(read(before + name + after), read(before + name), shown)
    }))
    assert.strictEqual(read("\u05d0! \u200f"), "\u05d0!\u200f")
    assert.strictEqual(read("\u200e \u05d0 a"), "\u200e\u05d0 a")
  })

  it("of many marks is read without quadratic time, in which this test would never end", () => {
    for (const unit of ["\u0301", "\u200f", " \u200f", "\u0301\u200e", "\u05d0\u0301 ", " \u200e\u200f"])
      assert.isTrue(plainName(`a\u05d0${unit.repeat(100_000)}\u200f!`).endsWith("!"), JSON.stringify(unit))
  })

  it("is read once: a name that was read is the same when it is read again", () => {
    const unit = fc.constantFrom(
      ..."a1\u05d0\u0631\u06cc\u0915\u094d\u0301 #",
      "\u{1f468}",
      "\u{1f3fd}",
      "\u2764",
      "\u{1f3f4}",
      "\u200b",
      "\u200c",
      "\u200d",
      "\u200e",
      "\u200f",
      "\u061c",
      "\ufe0e",
      "\ufe0f",
      "\u20e3",
      "\u2800",
      "\u{e0067}",
      "\u{e007f}",
      "\u180b",
      "\u1820",
      "\u2066"
    )
    fc.assert(
      fc.property(fc.string({ unit, maxLength: 12 }), (text) => {
        const name = read(text)
        if (name !== undefined) assert.strictEqual(read(name), name, JSON.stringify(text))
        assert.strictEqual(read(plainName(text)), plainName(text), JSON.stringify(text))
      }),
      { numRuns: 2_000 }
    )
  })
})

describe("a name from a text that cannot be refused", () => {
  it("has no controls and nothing that nobody sees", () => {
    assert.strictEqual(plainName("  a\n\u202eb\0\ud800\u200bc "), "ab\ufffdc")
    for (const text of ["", " ", "\0", "\u0301", "\u3164"]) assert.strictEqual(plainName(text), "")
  })
})
