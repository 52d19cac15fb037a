import { MAX_FORM_BYTES, readForm, repeatedIn } from "#interfaces/signin/Form"
import { assert, it } from "@effect/vitest"

/** A form that counts how many of its names are looked at. */
class Counted extends URLSearchParams {
  looked = 0

  override keys(): ReturnType<URLSearchParams["keys"]> {
    this.looked += this.size
    return super.keys()
  }

  override getAll(name: string): Array<string> {
    this.looked += this.size
    return super.getAll(name)
  }
}

it("a repeated parameter is found by one look at each, and `resource` may be repeated", () => {
  assert.isUndefined(repeatedIn(new URLSearchParams("a=1&b=2&resource=x&resource=y")))
  assert.strictEqual(repeatedIn(new URLSearchParams("a=1&b=2&resource=x&b=&a=")), "b")
  const form = new Counted(Array.from({ length: 5_200 }, (_, i) => i.toString(36)).join("&"))
  assert.isUndefined(repeatedIn(form))
  assert.strictEqual(form.looked, 5_200)
})

it("a form has at most 16,384 bytes", () => {
  assert.strictEqual(readForm(`a=${"x".repeat(MAX_FORM_BYTES - 2)}`)?.get("a")?.length, 16_382)
  assert.isUndefined(readForm("x".repeat(MAX_FORM_BYTES + 1)))
  assert.isUndefined(readForm("é".repeat(MAX_FORM_BYTES / 2 + 1)))
})
