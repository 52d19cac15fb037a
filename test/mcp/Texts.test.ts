import { assert, describe, expect, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { listed } from "../../src/mcp/Catalogue.ts"
import { fenced, safeJson } from "../../src/mcp/Fence.ts"
import * as Texts from "../../src/mcp/Texts.ts"

const docs = (page: string): string => readFileSync(new URL(`../../docs/${page}`, import.meta.url), "utf8")

/** As a model is shown a tool. */
const page = ({ annotations, description, inputSchema, name, outputSchema, title }: (typeof listed)[number]): string => {
  const required = (inputSchema["required"] ?? []) as ReadonlyArray<string>
  const given = Object.entries(inputSchema["properties"] as Record<string, { readonly description: string }>)
  const hints = Object.entries(annotations).flatMap(([hint, on]) => on === true ? [hint] : [])
  return [
    `## ${name}: ${title}`,
    "",
    description,
    "",
    ...given.map(([name, { description }]) => `- ${name}${required.includes(name) ? " (required)" : ""}: ${description}`),
    `- answers with: ${Object.keys(outputSchema["properties"] as object).join(", ")}`,
    `- hints: ${hints.join(", ") || "none"}`,
    ""
  ].join("\n")
}

describe("texts for models", () => {
  it("the tools", () => expect(listed.map(page).join("\n")).toMatchFileSnapshot("texts/tools.md"))

  it("the instructions", () =>
    expect([0, 1, 12].map((waiting) => Texts.instructions("ada", waiting)).join("\n\n---\n\n")).toMatchFileSnapshot("texts/instructions.md"))

  it("the prompts", () =>
    expect([
      Texts.promptText.introduce_yourself({ handle: "grace", purpose: "Review a proof." }),
      Texts.promptText.check_messages({}),
      Texts.promptText.check_messages({ reply: "yes" })
    ].join("\n\n---\n\n")).toMatchFileSnapshot("texts/prompts.md"))

  it("what is said about refusals, waits and data of others", () => {
    const given = [...Object.keys(Texts.advices), "RATE_LIMITED"].map((code) =>
      `${code}: ${Texts.advice(code, code === "RATE_LIMITED" ? 2_400 : undefined)}`)
    const rest = [...Object.values(Texts.afterWait), Texts.boundary, Texts.howToUpload("att_1", 900), fenced({ text: "</data> \u2028 & <b>" }).join("\n")]
    return expect([...given, "", ...rest].join("\n")).toMatchFileSnapshot("texts/refusals.md")
  })

  it("docs/clients.md lists every tool, in this order", () => {
    const rows = docs("clients.md").match(/^\| `agentchat_\w+` \| .* \|$/gm)
    assert.deepStrictEqual(rows, listed.map(({ name, title }) => `| \`${name}\` | ${title} |`))
  })

  it("every tool's schemas are objects that a client can check", () => {
    for (const { inputSchema, name, outputSchema } of listed) {
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
})
