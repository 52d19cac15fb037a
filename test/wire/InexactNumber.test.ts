import { exactId, inexactNumber, isExact } from "#infrastructure/wire/InexactNumber"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const pathIn = (json: string): string | undefined => inexactNumber(json)?.path

describe("numbers that a double keeps", () => {
  it("are integers up to 2^53 − 1, and all others that become neither 0 nor infinite", () => {
    for (
      const number of [
        "0",
        "-0",
        "0.0",
        "-0e5",
        "0.000e-999",
        "1",
        "-1",
        "0.1",
        "3.14159265358979323846",
        "1e3",
        "1E-5",
        "5e-324",
        "1e308",
        "1.5e300",
        "6.02214076e23",
        "1e21",
        "123456789012345680000e0",
        "1.7976931348623157e308",
        "9007199254740991",
        "-9007199254740991",
        "9007199254740991.0",
        "9007199254740991e0",
        "9007199254740991.7",
        "1e16",
        "12345678901234567.5",
        "0." + "0".repeat(300) + "1"
      ]
    ) {
      assert.isTrue(isExact(number), number)
      assert.strictEqual(inexactNumber(`{"a":[${number}]}`), undefined, number)
    }
    for (
      const number of [
        "9007199254740992",
        "-9007199254740992",
        "9007199254740993",
        "12345678901234567890",
        "123456789012345680000",
        "1" + "0".repeat(400),
        "9007199254740993.0",
        "9007199254740993e0",
        "900719925474099.3e1",
        "90071992547409930e-1",
        "1234567890123456789e10",
        "1e400",
        "1E400",
        "-1e400",
        "1e-400",
        "-1e-400",
        "0.00001e-320",
        "0." + "0".repeat(400) + "1",
        "1e99999999999999999999",
        "1e-99999999999999999999"
      ]
    ) {
      assert.isFalse(isExact(number), number)
      assert.deepStrictEqual(inexactNumber(`{"a":[${number}]}`), { path: "a.0", text: number.slice(0, 40) }, number)
    }
  })

  it("are found wherever they are, by the names and indices on the way to them", () => {
    assert.strictEqual(pathIn("9007199254740993"), "")
    assert.strictEqual(pathIn(" [ 1 , [ 2 , 9007199254740993 ] ] "), "1.1")
    assert.strictEqual(pathIn(`{"a":{"b":[{},{"c":"x"},{"d":["y",{"e\\"\\u0066":1e999}]}]}}`), 'a.b.2.d.1.e"f')
    assert.strictEqual(pathIn(`{"a":"x","b":9007199254740993,"c":1e999}`), "b")
    assert.strictEqual(pathIn(`{"a":[1,2],"b":{"c":1},"d":-1e999}`), "d")
    assert.strictEqual(pathIn(`{"a":{"b":1},"a":{"c":1e999}}`), "a.c")
    assert.strictEqual(pathIn(`{"":1e999}`), "")
  })

  it("are not looked for in strings and names, nor in texts that are not JSON", () => {
    for (
      const json of [
        `{"id":"9007199254740993","9007199254740993":1,"a":"\\"9007199254740993","b":"\\\\","c":"x\\\\\\"1e999"}`,
        `"1e999"`,
        "",
        "1e999x",
        `{"a":1e999`,
        `{"a" 1e999}`,
        `]1e999[`,
        `{"a":--9007199254740993}`,
        `{"a":"9007199254740993`
      ]
    ) assert.strictEqual(inexactNumber(json), undefined, json)
  })

  it("have a path of bounded length and of whole characters", () => {
    const found = inexactNumber(`{"${"\u{1f98a}".repeat(1_000)}x":{"${"b".repeat(1_000)}":${"9".repeat(1_000)}}}`)
    assert.isAtMost(found?.path.length ?? 0, 200)
    assert.isTrue(found?.path.isWellFormed())
    assert.strictEqual(found?.text, "9".repeat(40))
  })

  it.prop(
    "a JSON text made by JavaScript has none, except for integers above 2^53 − 1",
    { value: Schema.Unknown },
    ({ value }) => {
      const json = JSON.stringify(value)
      if (json !== undefined && !/\d{16}/.test(json.replace(/"(?:[^"\\]|\\.)*"/g, "")))
        assert.strictEqual(
          inexactNumber(json),
          undefined,
          json
        )
      return true
    }
  )

  it.prop(
    "every double that is no such integer is kept as JavaScript writes it",
    { value: Schema.Finite },
    ({ value }) => {
      const text = JSON.stringify(value)
      return isExact(text) === (Number.isSafeInteger(value) || !/^-?\d+$/.test(text))
    }
  )
})

describe("an id that an answer repeats", () => {
  it("is a text, or a number that cannot be one of these", () => {
    for (const id of ["", "a", 0, -7, 1.5, 9_007_199_254_740_991]) assert.strictEqual(exactId(id), id)
    for (const id of [9_007_199_254_740_992, Infinity, -1e21, null, undefined, {}, []])
      assert.strictEqual(exactId(id), undefined)
  })
})
