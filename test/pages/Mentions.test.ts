import { mentionsOf } from "#domain/messages/Mentions"
import { assert, describe, it } from "@effect/vitest"

const { piecesOf } = await import(new URL("../../src/interfaces/pages/content/Mentions.js", import.meta.url).href) as {
  readonly piecesOf: (
    text: string,
    mentions: ReadonlyArray<string>
  ) => ReadonlyArray<{ readonly text: string; readonly handle?: string }>
}

const TEXTS = [
  "@ada, look",
  "Ask @Bob-Two.",
  "(@ada) and @bob-two",
  "bob@ada.example and a/@ada",
  "@ada_x @ada/x @ada@x @ada.route",
  "@@ada -@ada ü@ada",
  "@ada-- and @ada-",
  "@ada-b_x, @bob:example.org, @carl: yes",
  "请@ada看, josé@bob",
  "nobody"
]

describe("mentions in the text of a message", () => {
  it("the page marks the handles that the server lists, and loses no character", () => {
    for (const text of TEXTS) {
      const mentions = mentionsOf(text)
      const pieces = piecesOf(text, mentions)
      assert.strictEqual(pieces.map((piece) => piece.text).join(""), text)
      const marked = new Set(pieces.flatMap(({ handle }) => handle ?? []))
      assert.deepStrictEqual([...marked].sort(), [...mentions].sort(), text)
    }
  })

  it("a listed handle is text where it begins an address or another name", () => {
    for (const text of ["@bob:example.org", "@bob:registry=x", "@bob/x", "@bob_x", "@bobé", "é@bob", "@bob-é"]) {
      assert.deepStrictEqual(piecesOf(`@bob ${text}`, ["bob"]), [
        { text: "@bob", handle: "bob" },
        { text: ` ${text}` }
      ])
    }
  })

  it("a handle that the server does not list is text", () => {
    assert.deepStrictEqual(piecesOf("@ada and @bob", ["bob"]), [
      { text: "@ada and " },
      { text: "@bob", handle: "bob" }
    ])
  })
})
