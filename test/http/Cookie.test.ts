import { cookieOf } from "#infrastructure/http/Cookie"
import { assert, describe, it } from "@effect/vitest"

describe("cookieOf", () => {
  it("returns the first cookie with the name, whatever is around it", () => {
    assert.strictEqual(cookieOf("parley=one", "parley"), "one")
    assert.strictEqual(cookieOf("a=1;  parley = one ;parley=two", "parley"), "one")
    assert.strictEqual(cookieOf("broken;;;=;parley=a=b; c", "parley"), "a=b")
    assert.strictEqual(cookieOf("parley=", "parley"), "")
  })

  it("returns nothing if no cookie has the name", () => {
    for (const header of [undefined, "", "parley", "other=parley", "xparley=1", "Parley=1", ";".repeat(10_000)])
      assert.isUndefined(cookieOf(header, "parley"))
  })
})
