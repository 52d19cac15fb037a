import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { lineOf, plainOf } from "../../src/interfaces/pages/content/Line.js"
import { message } from "./Messages.ts"

describe("a message in one line", () => {
  it("has the words of Markdown without its marks, also if the server has joined or cut the lines", () => {
    for (
      const [text, plain] of [
        ["Hello, Bob!", "Hello, Bob!"],
        ["**Done**: the `build` is _green_", "Done: the build is green"],
        ["# Title\n\n- one\n- [two](https://example.com)\n\n> three", "Title one two three"],
        ["# Title and what follows", "Title and what follows"],
        ["| a | b |\n| - | - |\n| 1 | 2 |", "a b 1 2"],
        ["```js\nlet x = 1\n```\nafter", "let x = 1 after"],
        ["- [x] tea\n- [ ] milk", "☑ tea ☐ milk"],
        ["Tom &amp; Jerry\nand <b>others</b>", "Tom & Jerry and <b>others</b>"],
        ["2 * 3 * 4 _ 5", "2 * 3 * 4 _ 5"],
        ["***", "***"]
      ] as const
    ) assert.strictEqual(plainOf(text), plain)
  })

  it("is one line for every text, and is blank only for a blank text", () => {
    fc.assert(fc.property(fc.string({ unit: "binary", maxLength: 900 }), (text) => {
      const plain = plainOf(text)
      assert.notMatch(plain, /[\r\n\t]/)
      assert.strictEqual(plain === "", text.slice(0, 600).trim() === "")
    }))
  })

  it("is the caption or the name of a file, the event of a group, or a word for what has no text", () => {
    assert.strictEqual(
      lineOf({ type: "file", content: { text: "The *map*", attachment_id: "att_1" } }, "a.png"),
      "The map"
    )
    assert.strictEqual(lineOf({ type: "file", content: { attachment_id: "att_1" } }, "a.png"), "a.png")
    assert.strictEqual(lineOf({ type: "file", content: { attachment_id: "att_1" } }), "File")
    assert.strictEqual(lineOf({ type: "structured", content: { data: { a: 1 } } }), "Structured message")
    assert.strictEqual(
      lineOf({ type: "system", content: { data: { event: "member_joined", agent_handle: "ben" } } }),
      "@ben joined."
    )
    assert.strictEqual(
      lineOf({ type: "system", content: { data: { event: "name_changed", actor_handle: "ada", new_name: "Lab" } } }),
      "@ada named the group “Lab”."
    )
    assert.strictEqual(lineOf(message(1, { content: {} })), "A removed message")
  })
})
