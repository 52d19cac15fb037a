import { incoming, partsOf } from "#interfaces/a2a/MessageParts"
import { assert, describe, it } from "@effect/vitest"

const stored = (content: object, metadata: object = {}) => ({
  content: JSON.stringify(content),
  metadata: JSON.stringify(metadata)
})

/** URLs that lenient parsers accept, and in which two parsers can find different hosts. */
const lenient = [
  "https:evil.test",
  "https:/evil.test",
  "https:///evil.test",
  "https:\\\\evil.test",
  "https://good.test@evil.test",
  "https://evil.test/\ta",
  "javascript:alert(1)",
  "data:text/html,evil"
]

describe("the parts of a message", () => {
  const described = { filename: "a.bin", mediaType: "application/x-own", metadata: { of: "part" } }

  it("parts in content.data.parts come out as the same parts, with filename, mediaType and metadata", () => {
    const values = [
      { text: "words" },
      { text: "" },
      { raw: "AAH/" },
      { url: "https://files.example/a?b=c#d" },
      ...[{ a: 1 }, [1], "text", 0, false, null].map((data) => ({ data }))
    ]
    const parts = values.flatMap((value) => [value, { ...value, ...described }])
    assert.deepStrictEqual(partsOf(stored({ data: { parts } }), undefined), parts)
    for (const part of parts) assert.deepStrictEqual(partsOf(stored({ data: { parts: [part] } }), undefined), [part])
  })

  it("a part has the protocol's fields alone: names of the proto are renamed, nulls and unknown fields left out", () => {
    const given = [
      { url: "https://files.example/a", media_type: "image/png", text: null, data: null, filename: null, kind: "file" },
      { raw: "_-8", mediaType: "" }
    ]
    assert.deepStrictEqual(partsOf(stored({ text: "two", data: { parts: given } }), undefined), [
      { text: "two" },
      { url: "https://files.example/a", mediaType: "image/png" },
      { raw: "/+8=" }
    ])
  })

  it("data with a malformed part, or with more than parts, are one data part", () => {
    const malformed = [
      7,
      null,
      "text",
      [],
      {},
      { text: 7 },
      { text: "a", url: "https://files.example/a" },
      { url: "a.png" },
      { url: {} },
      ...lenient.map((url) => ({ url })),
      { raw: "not base64!" },
      { raw: [1] },
      { data: 1, filename: 7 },
      { data: 1, mediaType: {} },
      { data: 1, metadata: [] },
      { kind: "file", file: { uri: "https://files.example/a" } }
    ]
    const datas = [
      ...malformed.map((part) => ({ parts: [{ text: "good" }, part] })),
      { parts: [] },
      { parts: {} },
      { parts: [{ text: "a" }], note: "b" }
    ]
    for (const data of datas) {
      assert.deepStrictEqual(
        partsOf(stored({ data }), undefined),
        [{ data, mediaType: "application/json" }],
        JSON.stringify(data)
      )
    }
  })

  it("a message of the protocol comes back as it was sent, also one data part that looks like parts", () => {
    const link = { url: "https://files.example/a" }
    for (const parts of [[{ data: { parts: [link] } }], [link], [{ data: [1] }, link]]) {
      const { a2a, data } = incoming({ messageId: "m", role: "ROLE_USER", parts }, undefined)
      const shown = partsOf(stored({ data }, { a2a }), undefined) as ReadonlyArray<
        { readonly data?: unknown; readonly url?: string }
      >
      assert.deepStrictEqual(shown.map(({ data, url }) => url === undefined ? { data } : { url }), parts)
    }
    for (
      const part of [
        ...lenient.map((url) => ({ url })),
        { url: "a.png" },
        { text: "a", url: link.url },
        { raw: "!" },
        7
      ]
    ) {
      assert.throws(() => incoming({ messageId: "m", role: "ROLE_USER", parts: [part] }, undefined))
    }
  })
})
