import { contentTypeOf } from "#domain/attachments/Attachment"
import { parseMediaType } from "#infrastructure/wire/MediaType"
import { assert, describe, it } from "@effect/vitest"

describe("a media type", () => {
  it("is read in any case, with parameters", () => {
    assert.deepStrictEqual(parseMediaType("IMAGE/Png"), { type: "image/png", charset: undefined })
    for (
      const text of [
        "text/plain;charset=UTF-8",
        ' Text/Plain ; Charset="utf-8" ',
        "text/plain; format=flowed; charset=utf-8; charset=latin1",
        'text/plain;; charset="u\\tf-8";',
        'text/plain; x="a;charset=b\\"; c"; charset=utf-8'
      ]
    ) assert.deepStrictEqual(parseMediaType(text), { type: "text/plain", charset: "utf-8" }, text)
    for (
      const text of [
        "",
        "text",
        "text/",
        "/plain",
        "text/plain/x",
        "text /plain",
        "text/plain charset=utf-8",
        "text/plain, text/html",
        "text/plain; charset",
        "text/plain; charset=",
        'text/plain; charset=""',
        'text/plain; charset="utf-8\r\nx: y"',
        'text/plain; charset="utf',
        "text/plain; =x",
        "text/plain; charset=utf-8 x",
        "text/pl\u0131in",
        `text/plain; x=${"y".repeat(255)}`
      ]
    ) assert.strictEqual(parseMediaType(text), undefined, text)
  })

  it("of a file keeps its charset if it is a text, and no other parameter", () => {
    for (
      const [text, kept] of [
        ["IMAGE/PNG; charset=utf-8", "image/png"],
        ["application/json; charset=utf-8", "application/json"],
        ["TEXT/CSV; header=present; Charset=ISO-8859-1", "text/csv; charset=iso-8859-1"],
        ["text/markdown; variant=GFM", "text/markdown"],
        ["text/html", undefined],
        ["text/plain; charset", undefined]
      ] as const
    ) assert.strictEqual(contentTypeOf(text), kept, text)
  })
})
