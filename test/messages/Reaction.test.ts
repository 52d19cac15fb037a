import { isReaction } from "#domain/messages/Reaction"
import { assert, describe, it } from "@effect/vitest"

describe("a reaction", () => {
  it("is one of six words, or exactly one emoji", () => {
    for (
      const text of ["+1", "-1", "done", "seen", "thanks", "question", "👍", "👍🏽", "❤️", "1️⃣", "🇵🇹", "👩🏽‍🚀", "👩🏻‍❤️‍💋‍👨🏿", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
    ) assert.isTrue(isReaction(text), text)
    for (
      const text of [
        "",
        " ",
        "a",
        "like",
        "Done",
        "1",
        "👍👍",
        "👍 ",
        "❤",
        "🏽🏽",
        "👩‍",
        "\u200d",
        "<b>",
        "\0",
        "thanks\n"
      ]
    )
      assert.isFalse(isReaction(text), JSON.stringify(text))
  })
})
