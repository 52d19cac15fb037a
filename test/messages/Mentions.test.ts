import { mentionsIn, mentionsOf } from "#domain/messages/Mentions"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { lexer, type Token } from "marked"

describe("mentions", () => {
  for (
    const [text, expected] of [
      ["@bob, are you there?", ["bob"]],
      ["a@bob.com", []],
      ["@bob_x", []],
      ["(@Bob)", ["bob"]],
      ["@bob @BOB @alice", ["bob", "alice"]],
      ["hi@bob", []],
      ["@@bob", []],
      [".@bob", []],
      ["-@bob", []],
      ["_@bob", []],
      ["é@bob", []],
      ["@bobé", []],
      ["josé@bob", []],
      ["@andré", []],
      ["@andre\u0301", []],
      ["e\u0301@bob", []],
      ["σ@bob @bobσ", []],
      ["@bobов и ко", []],
      ["@jean-étienne", []],
      ["@bob.été", []],
      ["@bob:été.example", []],
      ["\u{10780}@bob @bob\u{10780}", []],
      ["¿@bob? «@ann» @eve’s… @joe—", ["bob", "ann", "eve", "joe"]],
      ["请@bob看", ["bob"]],
      ["これは@bobさんへ", ["bob"]],
      ["밥@bob은", ["bob"]],
      ["\u2764\ufe0f@bob\u2764\ufe0f 1\ufe0f\u20e3@ann\u{1f600}", ["bob", "ann"]],
      ["@bob-请", ["bob"]],
      ["@bob1", ["bob1"]],
      ["@bob.", ["bob"]],
      ["@bob... now", ["bob"]],
      ["@bob: now", ["bob"]],
      ["@bob:now", ["bob"]],
      ["@bob's turn", ["bob"]],
      ["**@bob**, <@ann>", ["bob", "ann"]],
      ["@bob-builder!", ["bob-builder"]],
      ["@bob\n@alice", ["bob", "alice"]],
      ["@bob\r\n@alice", ["bob", "alice"]],
      ["@ab", []],
      ["@1bob", []],
      ["@bo--b", []],
      ["@bob-x_y", []],
      [`@${"a".repeat(30)}`, ["a".repeat(30)]],
      [`@${"a".repeat(31)}`, []],
      ["", []],
      ["[@bob](https://example.com) and [the list](https://example.com/a)@ann", ["bob", "ann"]]
    ] as const
  ) {
    it(JSON.stringify(text.slice(0, 40)), () => assert.deepStrictEqual(mentionsOf(text), expected))
  }

  for (
    const text of [
      // Code.
      "`@bob`",
      "`` a ` @bob ``",
      "the span `goes\non @bob`",
      "```\n@bob\n```",
      "```\n@bob",
      "~~~ts\n@bob\n```\n@bob\n~~~",
      "````\n```\n@bob\n````",
      "> ```\n> @bob\n> ```",
      "- ```\n  @bob\n  ```",
      "1. Do:\n   ```sh\n   npm i @bob\n   ```",
      "    @bob",
      "see:\n\n\t@bob\n\n\t@bob",
      "-      @bob",
      "---\n    @bob",
      "***\n    @bob",
      "_ _ _ \n    @bob",
      "* * *\n    @bob",
      " - - -\n    @bob",
      "a\n***\n    @bob",
      "Title\n===\n    @bob",
      "Title\n  = \n    @bob",
      "Title\n---\n    @bob",
      "Title\n-\n    @bob",
      "- a\n---\n    @bob",
      "a\n*\n\n    @bob",
      "a\n2. b\n\n    @bob",
      "> a\n---\n    @bob",
      "> a\n> ===\n>     @bob",
      // URLs.
      "https://example.com/@bob",
      "https://example.com/?to=@bob&a=b",
      "https://example.com/a:@bob",
      "ssh://@bob",
      "(https://example.com/(@bob)/@bob)",
      "www.example.com/?to=@bob",
      "medium.com/@bob",
      "example.com:8080/?to=@bob",
      "[the profile](@bob)",
      "[the profile](<@bob>)",
      "[the profile](/u/@bob)",
      "<https://example.com/@bob>",
      "curl localhost:3000/hook?to=@bob",
      "curl localhost:3000/hook,@bob",
      "curl [::1]:3000/hook?to=@bob",
      "GET /v1/users?name=@bob&to=@bob",
      '"/v1/users?@bob"',
      "$BASE/x?q=@bob",
      "${BASE}/x;to=@bob",
      "(see ../a-b_c/?to[]=@bob)",
      "//host/?to=@bob",
      "пример.рф/?to=@bob",
      // Addresses.
      "ann@bob",
      "ann+x@bob.example",
      '"ann"@bob.example',
      "mailto:ann@bob",
      "@bob@example.social",
      "@bob:example.org",
      "@bob.example.social",
      // Names of packages and paths.
      "@bob/node",
      "npm i @bob/node",
      "npm:@bob/node@1",
      "node_modules/@bob",
      "lodash@bob",
      "@bob.decorator",
      "npm config set @bob:registry=https://npm.example",
      "npm config set @bob:registry https://npm.example",
      "npm config get @bob:registry"
    ]
  ) {
    it(`are none in ${JSON.stringify(text)}`, () => assert.deepStrictEqual(mentionsOf(text), []))
  }

  for (
    const text of [
      "a ` @bob",
      "a `` b ` @bob",
      "\\`@bob\\`",
      "`a` @bob `b`",
      "`a\n\nb @bob `c`",
      "- a ` b\n- @bob ` c",
      "| a ` | b |\n| @bob ` | c |",
      "```\na\n```\n@bob",
      "> ```\n> a\n@bob",
      "``` a `\n@bob",
      "a\n    @bob",
      "===\n    @bob",
      "--\n    @bob",
      "a\n    ---\n    @bob",
      "a\n* * -\n    @bob",
      "> a\n===\n    @bob",
      "- a\n===\n    @bob",
      "- a\n  ---\n    @bob",
      "+ ---\n    @bob",
      "`a\n---\n@bob`",
      "- a\n\n    @bob",
      "> @bob",
      "# @bob",
      "https://example.com @bob",
      "(https://example.com)@bob",
      "请看 https://example.com，@bob",
      "and/or @bob",
      "and/or, to=@bob",
      "and/or (@bob)",
      "and/or:@bob",
      '"and/or"=@bob',
      "`and/or`=@bob",
      "请看a/b，to=@bob",
      "(/v1/users?name=x)@bob",
      "to=@bob",
      "3:2,@bob",
      "10:30:@bob",
      "@bob:registryx",
      '"@bob"',
      "cc:@bob"
    ]
  ) {
    it(`are found in ${JSON.stringify(text)}`, () => assert.deepStrictEqual(mentionsOf(text), ["bob"]))
  }

  it("are the first 50 at most", () => {
    const handles = Array.from({ length: 60 }, (_, i) => `agent${i}`)
    assert.deepStrictEqual(mentionsOf(handles.map((handle) => `@${handle}`).join(" ")), handles.slice(0, 50))
  })

  it("of a message are those of its text, and of nothing else in its content", () => {
    assert.deepStrictEqual(
      mentionsIn(JSON.stringify({ text: "a\n\n@bob", data: { text: "@ann" }, attachment_id: "@eve" })),
      ["bob"]
    )
    assert.deepStrictEqual(mentionsIn(JSON.stringify({ data: { text: "@ann" } })), [])
  })

  const handle = fc.stringMatching(/^[a-zA-Z][a-zA-Z0-9]{2,29}$/)

  it("are found between other text, lower-cased and once", () => {
    fc.assert(
      fc.property(
        fc.array(handle, { maxLength: 20 }),
        fc.constantFrom(" ", "\n", ", ", "! (", "; "),
        (handles, between) => {
          const expected = [...new Set(handles.map((one) => one.toLowerCase()))]
          assert.deepStrictEqual(mentionsOf(handles.map((one) => `@${one}`).join(between)), expected)
        }
      )
    )
  })

  it("are whole handles that stand in the text after @, in this order", () => {
    const unit = fc.constantFrom(
      "@",
      "a",
      "B",
      "bob",
      "-",
      "_",
      ".",
      "/",
      ":",
      " ",
      "\n",
      "`",
      "```",
      "(",
      "](",
      ")",
      "é",
      "\u3000",
      "https://",
      "www.",
      "    ",
      "> "
    )
    fc.assert(fc.property(fc.array(unit, { maxLength: 60 }), (units) => {
      const text = units.join("")
      let from = 0
      for (const one of mentionsOf(text)) {
        assert.match(one, /^(?=.{3,30}$)[a-z][a-z0-9]*(-[a-z0-9]+)*$/)
        const at = text.toLowerCase().indexOf(`@${one}`, from)
        assert.isAtLeast(at, 0, text)
        from = at + 1
      }
    }))
  })

  it("no text in a fence that it cannot close, in a longer span or in a URL mentions anybody", () => {
    fc.assert(
      fc.property(
        fc.string({
          unit: fc.constantFrom("@bob", "@ann ", "a", " ", "\n", "`", "~~", ">", "- ", "(", "\\"),
          maxLength: 40
        }),
        (text) => {
          const fence = `${"`".repeat(50)}`
          assert.deepStrictEqual(mentionsOf(`${fence}\n${text}\n${fence}\n@eve`), ["eve"], "fence")
          const line = text.replace(/\s/g, "")
          assert.deepStrictEqual(mentionsOf(`@eve ${fence} ${line} ${fence}`), ["eve"], "span")
          assert.deepStrictEqual(
            mentionsOf(`@eve https://example.com/${line.replace(/[`>()]/g, "")} x`),
            ["eve"],
            "URL"
          )
        }
      )
    )
  })

  it("code outside of lists is where CommonMark finds it", () => {
    const hasList = (tokens: ReadonlyArray<Token>): boolean =>
      tokens.some((token) =>
        token.type === "list" || ("tokens" in token && token.tokens !== undefined && hasList(token.tokens))
      )
    /** `marked` finds no heading whose text begins like a fence. */
    const isMisread = (text: string): boolean => /```.*`.*\n[ >]*[=-]/.test(text)
    /** The handles in the parts of a text that `marked` does not take for code. */
    const inProse = (tokens: ReadonlyArray<Token>): ReadonlyArray<string> =>
      tokens.flatMap((token) =>
        token.type === "code" || token.type === "codespan" ?
          []
          : "tokens" in token && token.tokens !== undefined ?
          inProse(token.tokens)
          : Array.from(token.raw.matchAll(/@(agent\d+)/g), ([, handle]) => handle ?? "")
      )
    const piece = fc.constantFrom(
      "@",
      "@",
      "@",
      "`",
      "``",
      "```",
      "~~~",
      "\n",
      "\n",
      "\n\n",
      "    ",
      "> ",
      "word",
      " ",
      "\\`",
      "# ",
      "  ",
      "-",
      "---",
      "=",
      "*",
      "- ",
      "+ ",
      "1. "
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 18 }), (pieces) => {
        const text = pieces.map((one, i) => one === "@" ? ` @agent${i} ` : one).join("")
        const tokens = lexer(text)
        fc.pre(!hasList(tokens) && !isMisread(text))
        assert.deepStrictEqual(mentionsOf(text), inProse(tokens), JSON.stringify(text))
      }),
      { numRuns: 500 }
    )
  })

  it("each character is read a bounded number of times", () => {
    /** The number of characters that are read for a text. */
    const readsOf = (text: string): number => {
      let reads = 0
      const counted = {
        length: text.length,
        charCodeAt: (at: number) => {
          reads++
          return text.charCodeAt(at)
        },
        includes: (one: string) => {
          reads += text.length
          return text.includes(one)
        },
        indexOf: (one: string, from: number) => {
          const at = text.indexOf(one, from)
          reads += (at < 0 ? text.length : at + 1) - from
          return at
        },
        lastIndexOf: (one: string) => {
          reads += text.length
          return text.lastIndexOf(one)
        },
        slice: (from: number, to: number) => {
          reads += to - from
          return text.slice(from, to)
        }
      }
      mentionsOf(counted as unknown as string)
      return reads
    }
    for (
      const unit of [
        "@",
        "@a",
        "@bob ",
        "@bob/",
        "@bob:a",
        "@bob.",
        "a@",
        "-",
        "- ",
        "* - ",
        "_ ",
        "---\n",
        "a\n=\n",
        "> ",
        ">",
        "1.",
        "1. ",
        " ",
        "\t",
        "`",
        "` ",
        "`\n",
        "``\n`",
        "```\n",
        "```a`\n",
        "~~~\n",
        "\\",
        "\\`",
        "](",
        "[](",
        "](@",
        "https://",
        "://",
        "www.",
        "www.(",
        "a.b/",
        "a:1/",
        "a:1",
        "a:12345",
        "/a?",
        "/=(",
        "/?)",
        "@bob:registry",
        "(",
        ")",
        "|`",
        "# `",
        "\n",
        "> ```\n",
        "- ```\n",
        "    a\n",
        "@a-",
        "é",
        "@bob:é",
        "é@"
      ]
    ) {
      for (const size of [1_000, 32_000]) {
        const text = `${unit.repeat(Math.ceil(size / unit.length))} @bob`
        assert.isAtMost(readsOf(text), 16 * text.length, JSON.stringify(unit))
      }
    }
    const runs = Array.from({ length: 240 }, (_, length) => `${"`".repeat(length + 1)}a`).join("")
    assert.isAtMost(readsOf(runs), 16 * runs.length)
  })
})
