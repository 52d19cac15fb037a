import { assert, describe, expect, it } from "@effect/vitest"
import * as fc from "fast-check"
import { readFileSync } from "node:fs"
import { catalogue, hasStructure, listed } from "#doors/mcp/tools/Catalogue"
import { fenced, safeJson } from "#doors/mcp/UntrustedText"
import * as Texts from "#doors/mcp/Texts"

const docs = (page: string): string => readFileSync(new URL(`../../docs/${page}`, import.meta.url), "utf8")

/** As a model is shown a tool. */
const page = (tool: (typeof catalogue)[number]): string => {
  const { annotations, description, inputSchema, name, outputSchema, title } = tool
  const required = (inputSchema["required"] ?? []) as ReadonlyArray<string>
  const given = Object.entries(inputSchema["properties"] as Record<string, { readonly description: string }>)
  const hints = Object.entries(annotations).flatMap(([hint, on]) => on === true ? [hint] : [])
  return [
    `## ${name}: ${title}`,
    "",
    description,
    "",
    ...given.map(([name, { description }]) => `- ${name}${required.includes(name) ? " (required)" : ""}: ${description}`),
    `- answers with${hasStructure(tool, false) ? "" : " (between the marks)"}: ${Object.keys(outputSchema["properties"] as object).join(", ")}`,
    `- hints: ${hints.join(", ") || "none"}`,
    ""
  ].join("\n")
}

describe("texts for models", () => {
  it("the tools", () => expect(catalogue.map(page).join("\n")).toMatchFileSnapshot("texts/tools.md"))

  it("the instructions", () =>
    expect(Texts.instructions("ada")).toMatchFileSnapshot("texts/instructions.md"))

  it("the prompts", () =>
    expect([
      Texts.promptText.introduce_yourself({ handle: "grace", purpose: "Review a proof." }),
      Texts.promptText.check_messages({}),
      Texts.promptText.check_messages({ reply: "yes" })
    ].join("\n\n---\n\n")).toMatchFileSnapshot("texts/prompts.md"))

  it("what is said about refusals, waits and data of others", () => {
    const given = [...Object.keys(Texts.advices), "RATE_LIMITED"].map((code) =>
      `${code}: ${Texts.advice(code, code === "RATE_LIMITED" ? 2_400 : undefined)}`)
    const rest = [...Object.values(Texts.afterWait), Texts.boundary, Texts.howToUpload("att_1", 900), fenced({ text: "</data> \u2028 & <b>" })]
    return expect([...given, "", ...rest].join("\n")).toMatchFileSnapshot("texts/refusals.md")
  })

  it("docs/clients.md lists every tool, in this order", () => {
    const paragraph = /^The tools, in the order of `tools\/list`[^]*?\n\n/m.exec(docs("clients.md"))?.[0] ?? ""
    assert.deepStrictEqual([...(paragraph.match(/agentchat_\w+/g) ?? [])], listed.map(({ name }) => name))
  })

  it("every tool's schemas are objects that a client can check", () => {
    for (const { inputSchema, name, outputSchema } of catalogue) {
      for (const schema of [inputSchema, outputSchema]) {
        assert.strictEqual(schema.type, "object", name)
        assert.notInclude(JSON.stringify(schema), `"additionalProperties":false`, `${name}: a field more is no error`)
      }
    }
  })

  it("nothing in fenced data can end it, and it is still the same JSON", () => {
    const value = { [Texts.CLOSE]: `${Texts.CLOSE}\n\u202e\u2066\u0085\u{e0041}${Texts.OPEN}` }
    assert.deepStrictEqual(JSON.parse(safeJson(value)), value)
    assert.match(safeJson(value), /^[\x20-\x3b=\x3f-\x7e]*$/)
  })

  it("zero-width characters, variation selectors, tags and what looks like a bracket are written as escapes", () => {
    const hidden = "\u200b\u200c\u200d\u2060\u00ad\u034f\u3164\u115f\u180e\ufe00\ufe0f\u{e0100}\u{e01ef}\u{e0041}\u061c\u202e\ufeff\u2800"
    const brackets = "\uff1c\uff1e\ufe64\ufe65\u2039\u203a\u276e\u276f\u27e8\u27e9\u3008\u3009\u02c2\u02c3\u1438\u1433\uff3b\uff3d\uff5b\uff5d"
    const text = Array.from(hidden + brackets, (character) => `a${character}`).join("")
    assert.match(safeJson(text), /^[\x20-\x7e]*$/)
    assert.strictEqual(JSON.parse(safeJson(text)), text)
    for (let code = 0; code <= 0x10ffff; code++) {
      const character = String.fromCodePoint(code)
      if (!/[<>]/.test(character.normalize("NFKC")) && !/\p{Default_Ignorable_Code_Point}/u.test(character)) continue
      assert.match(safeJson(character), /^"(?:\\u[0-9a-f]{4}){1,2}"$/, code.toString(16))
    }
  })

  it("ordinary text and emoji stay as they are", () => {
    const text = "Größe «1» 《書名》 （注） العربية \u2764\ufe0f \u{1f469}\u{1f3fd}\u200d\u{1f4bb} \u2764\ufe0f\u200d\u{1f525} 1\ufe0f\u20e3 \u{1f1eb}\u{1f1f7}"
    assert.strictEqual(safeJson(text), `"${text}"`)
  })

  it("of any text, what is fenced holds nothing invisible but inside emoji, and is still the same text", () => {
    const characters = fc.oneof(
      fc.constantFrom("\u200d", "\ufe0f", "\u20e3", "\u{1f469}", "\u{1f3fd}", "\u2764", "\u{1f3f4}", "1", "#", "<", ">", "\uff1c", "\u200b"),
      fc.integer({ min: 0xe0000, max: 0xe0fff }).map((code) => String.fromCodePoint(code)),
      fc.string({ unit: "binary", maxLength: 2 })
    )
    const emoji = /(?:\p{Extended_Pictographic}|[0-9#*](?=\ufe0f\u20e3))\ufe0f|\p{Emoji_Modifier}|\p{Extended_Pictographic}/gu
    fc.assert(fc.property(fc.array(characters, { maxLength: 20 }).map((parts) => parts.join("")), (text) => {
      const json = safeJson(text)
      assert.strictEqual(JSON.parse(json), text)
      // Each emoji becomes E; a joiner may stand between two.
      const rest = json.replace(emoji, "E").replace(/(?<=E)\u200d(?=E)/g, "")
      assert.notMatch(rest, /[<>\uff1c]|\p{Default_Ignorable_Code_Point}/u)
    }), { numRuns: 500 })
  })
})
