import { CLOSE, fenced, OPEN, safeJson } from "#infrastructure/wire/UntrustedText"
import * as Texts from "#interfaces/mcp/Texts"
import { catalogue, type SetName, SETS, toolsOf } from "#interfaces/mcp/tools/Catalogue"
import { type ToolDefinition } from "#interfaces/mcp/tools/Tool"
import { allTools, setsIn, type Toolset, toolsetOf, toolsToJoin } from "#interfaces/mcp/Toolset"
import { assert, describe, expect, it } from "@effect/vitest"
import * as fc from "fast-check"
import { readFileSync } from "node:fs"

const docs = (page: string): string => readFileSync(new URL(`../../docs/${page}`, import.meta.url), "utf8")

/** As a model is shown a tool. */
const page = (tool: ToolDefinition): string => {
  const { annotations, description, inputSchema, name, outputSchema, title } = tool
  const required = (inputSchema["required"] ?? []) as ReadonlyArray<string>
  const given = Object.entries(inputSchema["properties"] as Record<string, { readonly description: string }>)
  const hints = Object.entries(annotations).flatMap(([hint, on]) => on === true ? [hint] : [])
  return [
    `## ${name}: ${title}`,
    "",
    description,
    "",
    ...given.map(([name, { description }]) =>
      `- ${name}${required.includes(name) ? " (required)" : ""}: ${description}`
    ),
    `- answers with${tool.foreign ? " (between the marks)" : ""}: ${
      Object.keys(outputSchema["properties"] as object).join(", ")
    }`,
    `- hints: ${hints.join(", ") || "none"}`,
    ""
  ].join("\n")
}

const pages = ({ tools }: Toolset<never>): string => Array.from(tools.values(), page).join("\n")

const instructed = ({ knows }: Pick<Toolset<never>, "knows">, paragraphs: ReadonlyArray<string>): string =>
  paragraphs.map((text) => Texts.withoutUnknown(text, knows)).filter((text) => text !== "").join("\n\n")

/** Every combination of sets, but those with `all`. */
const combinations: ReadonlyArray<ReadonlySet<SetName>> = Array.from(
  { length: 32 },
  (_, bits) => new Set(SETS.filter((_, i) => (bits >> i) & 1))
).filter(({ size }) => size > 0)

/** What a model reads of a tool. */
const charactersOf = ({ tools }: Toolset<never>): number =>
  Array.from(
    tools.values(),
    ({ description, inputSchema, name }) => name.length + description.length + JSON.stringify(inputSchema).length
  )
    .reduce((sum, characters) => sum + characters, 0)

describe("texts for models", () => {
  it("the texts of the tools are the reviewed ones", () =>
    expect(catalogue.map(page).join("\n")).toMatchFileSnapshot("texts/tools.md"))

  it("the texts of the sets core, read and answer, and of /mcp/join, name no other tools", async () => {
    for (const name of ["core", "read", "answer"] as const) {
      const set = toolsetOf(new Set([name]))
      await expect(`${instructed(set, Texts.instructions("ada"))}\n\n${pages(set)}`).toMatchFileSnapshot(
        `texts/${name}.md`
      )
    }
    const joining = [
      instructed(toolsToJoin, Texts.joinInstructions),
      pages(toolsToJoin),
      Texts.afterRegister,
      Texts.afterJoin("https://parley.example/mcp")
    ]
    await expect(joining.join("\n\n")).toMatchFileSnapshot("texts/join.md")
  })

  it("a set's texts name tools of the set only, and none is empty", () => {
    const all = [...Object.keys(Texts.tools), ...Object.keys(Texts.joinTools), "acknowledge_through"]
    const cases: ReadonlyArray<readonly [string, Toolset<never>]> = [
      ...combinations.map((sets) => [[...sets].join(), toolsetOf(sets)] as const),
      ["join", toolsToJoin]
    ]
    for (const [sets, set] of cases) {
      const arguments_ = Array.from(
        set.tools.values(),
        ({ inputSchema }) =>
          Object.values(inputSchema["properties"] as Record<string, { readonly description: string }>).map((
            { description }
          ) => description)
      )
      const shown = [
        ...Array.from(set.tools.values(), ({ description }) => description),
        ...arguments_.flat(),
        instructed(set, sets === "join" ? Texts.joinInstructions : Texts.instructions("ada"))
      ]
      for (const text of shown) assert.isNotEmpty(text.trim(), sets)
      const prompts = Object.entries(Texts.prompts).flatMap(([name, { tools }]) =>
        tools.every(set.knows)
          ? [Texts.promptText[name as Texts.PromptName]({ handle: "ada", reply: "yes" }, set.knows)]
          : []
      )
      const advice = Object.keys(Texts.advices).map((code) =>
        Texts.withoutUnknown(Texts.advice(code, undefined) ?? "", set.knows)
      )
      const listed = [JSON.stringify(set.listed), ...shown, ...prompts, ...advice].join("\n")
      for (const name of all)
        if (!set.knows(name)) assert.notMatch(listed, new RegExp(`\\b${name}\\b`), `${sets}: ${name}`)
    }
  })

  it("every tool is in exactly one of core, people, groups and files, and read has those that only read, with a wait that acknowledges nothing", () => {
    const homes = (["core", "people", "groups", "files"] as const).flatMap((set) =>
      toolsOf(new Set([set])).map(({ name }) => name)
    )
    assert.deepStrictEqual(homes.toSorted(), catalogue.map(({ name }) => name).toSorted())
    assert.deepStrictEqual(toolsOf(new Set(["core", "people", "groups", "files"])), catalogue)
    assert.deepStrictEqual(toolsOf(new Set(["all", "read"])), catalogue)
    assert.deepStrictEqual(
      toolsOf(new Set(["core"])).map(({ name }) => name).toSorted(),
      [
        "get_agent_profile",
        "get_conversation",
        "get_my_status",
        "list_inbox",
        "mark_read",
        "search_directory",
        "search_messages",
        "send_message",
        "wait_for_messages"
      ].map((name) => `agentchat_${name}`)
    )
    const read = toolsOf(new Set(["read"]))
    assert.deepStrictEqual(
      read.map(({ name }) => name),
      catalogue.filter(({ annotations, name }) => annotations.readOnlyHint || name === "agentchat_wait_for_messages")
        .map(({ name }) => name)
    )
    assert.isTrue(read.every(({ annotations }) => annotations.readOnlyHint))
    const received = ["agentchat_mark_read", "agentchat_wait_for_messages"]
    assert.deepStrictEqual(
      toolsOf(new Set(["answer"])),
      toolsOf(new Set(["core"])).filter(({ name }) => !received.includes(name))
    )
    const waitOf = (...sets: ReadonlyArray<SetName>) =>
      Object.keys(
        toolsetOf(new Set(sets)).tools.get("agentchat_wait_for_messages")?.inputSchema["properties"] as object
      )
    assert.notInclude(waitOf("read"), "acknowledge_through")
    assert.include(waitOf("read", "core"), "acknowledge_through")
  })

  it("a set has a bounded number of characters, some four of which are a token: core at most 2,000 tokens", () => {
    const bounds: Record<SetName, number> = {
      core: 8_000,
      people: 10_200,
      groups: 4_600,
      files: 2_100,
      read: 8_300,
      answer: 6_700,
      all: 26_000
    }
    for (const name of SETS) assert.isAtMost(charactersOf(toolsetOf(new Set([name]))), bounds[name], name)
    assert.isAtMost(charactersOf(toolsToJoin), 1_800)
  })

  it("a list of sets is read whatever its case and blanks, and the first unknown name is found", () => {
    assert.deepStrictEqual(setsIn(" Core, people,,"), {
      sets: new Set<SetName>(["core", "people"]),
      unknown: undefined
    })
    for (const none of ["", " ", ","])
      assert.deepStrictEqual(setsIn(none), { sets: new Set<SetName>(["all"]), unknown: undefined })
    for (const odd of ["chores", "constructor", "core people"]) assert.strictEqual(setsIn(`core,${odd}`).unknown, odd)
  })

  it("a text leaves out first the parentheses and then the sentences that name something unknown", () => {
    const text = "Reads it (agentchat_b). It is agentchat_a. Use acknowledge_through, or agentchat_b. The end (of it)."
    const knowing = (...names: ReadonlyArray<string>) => Texts.withoutUnknown(text, (name) => names.includes(name))
    assert.strictEqual(knowing("agentchat_a", "agentchat_b", "acknowledge_through"), text)
    assert.strictEqual(knowing("agentchat_a"), "Reads it. It is agentchat_a. The end (of it).")
    assert.strictEqual(knowing(), "Reads it. The end (of it).")
  })

  it("the instructions are the reviewed ones", () =>
    expect(instructed(allTools, Texts.instructions("ada"))).toMatchFileSnapshot("texts/instructions.md"))

  it("the prompts are the reviewed ones", () =>
    expect([
      Texts.promptText.introduce_yourself({ handle: "grace", purpose: "Review a proof." }),
      Texts.promptText.check_messages({}, allTools.knows),
      Texts.promptText.check_messages({ reply: "yes" }, allTools.knows),
      Texts.promptText.check_messages({ reply: "yes" }, toolsetOf(new Set(["core"])).knows),
      Texts.promptText.check_messages({ reply: "yes" }, toolsetOf(new Set(["read"])).knows)
    ].join("\n\n---\n\n")).toMatchFileSnapshot("texts/prompts.md"))

  it("the texts about refusals, waits and data of others are the reviewed ones", () => {
    const given = [...Object.keys(Texts.advices), "RATE_LIMITED"].map((code) =>
      `${code}: ${Texts.advice(code, code === "RATE_LIMITED" ? 2_400 : undefined)}`
    )
    const rest = [
      ...Object.values(Texts.afterWait),
      Texts.boundary,
      Texts.howToUpload("att_1", 900),
      fenced({ text: "</data> \u2028 & <b>" })
    ]
    return expect([...given, "", ...rest].join("\n")).toMatchFileSnapshot("texts/refusals.md")
  })

  it("docs/clients.md lists every tool in its set", () => {
    for (const set of ["core", "people", "groups", "files"] as const) {
      const row = new RegExp(`^\\| \`${set}\` \\|.*$`, "m").exec(docs("clients.md"))?.[0] ?? ""
      const names = toolsOf(new Set([set])).map(({ name }) => name.replace("agentchat_", ""))
      assert.deepStrictEqual(Array.from(row.matchAll(/`(\w+)`/g), ([, name]) => name).slice(1), names)
    }
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
    const value = { [CLOSE]: `${CLOSE}\n\u202e\u2066\u0085\u{e0041}${OPEN}` }
    assert.deepStrictEqual(JSON.parse(safeJson(value)), value)
    assert.match(safeJson(value), /^[\x20-\x3b=\x3f-\x7e]*$/)
  })

  it("zero-width characters, variation selectors, tags and what looks like a bracket are written as escapes", () => {
    const hidden =
      "\u200b\u200c\u200d\u2060\u00ad\u034f\u3164\u115f\u180e\ufe00\ufe0f\u{e0100}\u{e01ef}\u{e0041}\u061c\u202e\ufeff\u2800"
    const brackets =
      "\uff1c\uff1e\ufe64\ufe65\u2039\u203a\u276e\u276f\u27e8\u27e9\u3008\u3009\u02c2\u02c3\u1438\u1433\uff3b\uff3d\uff5b\uff5d"
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
    const text =
      "Größe «1» 《書名》 （注） العربية \u2764\ufe0f \u{1f469}\u{1f3fd}\u200d\u{1f4bb} \u2764\ufe0f\u200d\u{1f525} 1\ufe0f\u20e3 \u{1f1eb}\u{1f1f7}"
    assert.strictEqual(safeJson(text), `"${text}"`)
  })

  it("fenced text holds nothing invisible but inside emoji, and is still the same text", () => {
    const characters = fc.oneof(
      fc.constantFrom(
        "\u200d",
        "\ufe0f",
        "\u20e3",
        "\u{1f469}",
        "\u{1f3fd}",
        "\u2764",
        "\u{1f3f4}",
        "1",
        "#",
        "<",
        ">",
        "\uff1c",
        "\u200b"
      ),
      fc.integer({ min: 0xe0000, max: 0xe0fff }).map((code) => String.fromCodePoint(code)),
      fc.string({ unit: "binary", maxLength: 2 })
    )
    const emoji =
      /(?:\p{Extended_Pictographic}|[0-9#*](?=\ufe0f\u20e3))\ufe0f|\p{Emoji_Modifier}|\p{Extended_Pictographic}/gu
    fc.assert(
      fc.property(fc.array(characters, { maxLength: 20 }).map((parts) => parts.join("")), (text) => {
        const json = safeJson(text)
        assert.strictEqual(JSON.parse(json), text)
        // Each emoji becomes E; a joiner may stand between two.
        const rest = json.replace(emoji, "E").replace(/(?<=E)\u200d(?=E)/g, "")
        assert.notMatch(rest, /[<>\uff1c]|\p{Default_Ignorable_Code_Point}/u)
      }),
      { numRuns: 500 }
    )
  })
})
