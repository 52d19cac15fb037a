import { assert, describe, it } from "@effect/vitest"
import commonmark from "commonmark-spec"
import { jsonOf } from "../../src/interfaces/pages/content/Json.js"
import { linkOf } from "../../src/interfaces/pages/content/Links.js"
import { lexed } from "../../src/interfaces/pages/content/Tokens.js"
import { MEASURES } from "../support/Promptly.ts"
import { BAD_ADDRESSES, COSTLY, HOSTILE } from "./Hostile.ts"
import { elementsOf, seen, type Shown, shown } from "./Shown.ts"

const { tests: examples } = commonmark

/** Other examples with HTML, which the page shows as text; and one picture without words. */
const OTHERWISE = new Set([201, 308, 309, 344, 475, 476, 477, 491, 492, 494, 524, 536, 581, 642, 643])

/** The examples have relative addresses, which the page does not open. */
const absolute = (text: string) => text.replace(/\/(url|uri)/g, "https://e.example/$1")
const addressesIn = (html: string) =>
  Array.from(html.matchAll(/(?:href|src)="([^"]*)"/g), ([, address]) => address ?? "")
const withoutTags = (html: string) =>
  html.replace(/<img [^>]*?alt="([^"]*)"[^>]*>/g, "$1").replace(/<[^>]*>/g, "")
    .replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&amp;", "&")
const withoutSpace = (text: string) => text.replace(/\s+/g, "")

const tagsOf = (root: Shown | undefined) => root === undefined ? [] : elementsOf(root).map(({ tag }) => tag)
const linksOf = (root: Shown | undefined) => root === undefined ? [] : elementsOf(root).filter(({ tag }) => tag === "a")

const TAGS = new Set([
  "div",
  "p",
  "h3",
  "ul",
  "ol",
  "li",
  "blockquote",
  "table",
  "thead",
  "tbody",
  "tr",
  "th",
  "td",
  "pre",
  "code",
  "hr",
  "br",
  "a",
  "bdi",
  "small",
  "span",
  "strong",
  "em",
  "del"
])
const PROPS = new Set([
  "children",
  "class",
  "dir",
  "tabindex",
  "href",
  "title",
  "target",
  "rel",
  "start",
  "aria-hidden"
])

describe("Markdown in messages", () => {
  it("the examples of CommonMark without HTML have the same text as there", () => {
    let compared = 0
    for (const { html, markdown, number, section } of examples) {
      const text = absolute(markdown.replaceAll("→", "\t"))
      const root = shown(text)
      const expected = absolute(html.replaceAll("→", "\t"))
      if (
        /HTML|reference definitions/.test(section) || OTHERWISE.has(number) ||
        !addressesIn(expected).every((address) => linkOf(address) !== undefined)
      ) continue
      compared++
      assert.strictEqual(
        withoutSpace(root === undefined ? text : seen(root)),
        withoutSpace(withoutTags(expected)),
        `example ${number}`
      )
    }
    assert.isAbove(compared, 500)
  })

  it("character references are the characters that they name, as text, but not in code", () => {
    const texts: ReadonlyArray<readonly [text: string, seen: string]> = [
      ["&copy; &Auml;&ouml; &NotEqualTilde; &frac34;", "© Äö \u2242\u0338 ¾"],
      ["&#169; &#xA9; &#0; &#xD800; &#1114112;", "© © \ufffd \ufffd \ufffd"],
      ["&lt;script&gt;ran=1&lt;/script&gt;", "<script>ran=1</script>"],
      ["&lt;b&gt; &#60;b&#62;", "<b> <b>"],
      ["&amp;copy; &#38;copy; &amp;#169;", "&copy; &copy; &#169;"],
      [
        "*a* &copy &copyx; &nothing; &#; &#x; &#99999999; &toString; &constructor;",
        "a &copy &copyx; &nothing; &#; &#x; &#99999999; &toString; &constructor;"
      ],
      ["`&copy;` &copy;", "&copy; ©"],
      ["&ast;a&ast; &num; a &grave;b&grave;", "*a* # a `b`"]
    ]
    for (const [text, expected] of texts) {
      const root = shown(text)
      assert.strictEqual(root === undefined ? text : seen(root), expected)
      assert.isUndefined(
        tagsOf(root).find((tag) => ["script", "b", "em"].includes(tag) && !text.startsWith("*a*")),
        text
      )
    }
    assert.strictEqual(
      linksOf(shown("[a](https://a.example/?q=&auml;&amp;x=&#49;)"))[0]?.props["href"],
      "https://a.example/?q=%C3%A4&x=1"
    )
    assert.isUndefined(shown("AT&T; R&D; &copyright;"))
  })

  it("the elements of CommonMark and of GitHub's tables and lists are there", () => {
    const root = shown(
      "# One\n\n- [x] *done*\n- b\n\n3. **c**\n\n> q ~~d~~\n\n| a | b |\n| :-: | - |\n| `1` | 2 |\n\n```js\nlet x\n```\n\n---"
    )
    for (const tag of ["h3", "ul", "em", "ol", "strong", "blockquote", "del", "table", "th", "td", "code", "pre", "hr"])
      assert.include(tagsOf(root), tag)
    assert.strictEqual(root === undefined ? "" : elementsOf(root).find(({ tag }) => tag === "ol")?.props["start"], 3)
  })

  it("a text without formatting stays as it is written, blanks, lines and HTML included", () => {
    for (
      const text of [
        "hello",
        "two\n\n\n  lines",
        "a <b>c</b>",
        "<div>\n*x*\n</div>",
        "[status]: done",
        "2 * 3 * 4",
        "snake_case_name",
        "a < b && c > d",
        "@ada hello"
      ]
    ) {
      assert.isUndefined(shown(text), text)
    }
  })

  it("a definition is shown, because its text may be all that a message says", () => {
    const root = shown("**x**\n\n[status]: done")
    assert.deepInclude(root?.children.at(-1), { tag: "p", children: ["[status]: done"] })
  })

  it("a link opens in a tab of its own, and says where it leads", () => {
    const target = (text: string) => {
      const [link] = linksOf(shown(text))
      const note = elementsOf(shown(text)!).find(({ props }) => props["class"] === "target")
      return {
        link,
        note: note === undefined
          ? undefined
          : elementsOf(note).flatMap(({ children }) => children.filter((child) => typeof child === "string")).join("")
      }
    }
    const { link, note } = target("[the plan](https://example.com/a?b=1#c)")
    assert.deepInclude(link?.props, {
      href: "https://example.com/a?b=1#c",
      rel: "noopener noreferrer",
      target: "_blank"
    })
    assert.strictEqual(note, "()example.com/a?b=1#c")
    for (
      const own of [
        "https://example.com",
        "https://example.com/a",
        "<a@example.com>",
        "[https://example.com/](https://example.com)"
      ]
    ) assert.isUndefined(target(own).note, own)
    for (
      const other of [
        "[https://example.com](https://evil.example)",
        "[https://аррӏе.com/](https://аррӏе.com/)",
        "www.example.com"
      ]
    ) assert.isDefined(target(other).note, other)
    assert.include(target("[x](https://a.example/" + "b".repeat(500) + ")").note, "a.example/")
  })

  it("a picture of another server is a link, and no link is inside of another", () => {
    const [link, ...more] = linksOf(shown("![a *plan*](https://example.com/x.png)"))
    assert.strictEqual(link?.props["href"], "https://example.com/x.png")
    assert.strictEqual(more.length, 0)
    for (
      const text of [
        "[![picture](https://a.example/x.png)](https://b.example)",
        "[a [b](https://b.example) c](https://c.example)"
      ]
    ) {
      for (const link of linksOf(shown(text)))
        assert.strictEqual(elementsOf(link).filter(({ tag }) => tag === "a").length, 1, text)
    }
  })

  it("other addresses are not opened", () => {
    for (const address of BAD_ADDRESSES) assert.isUndefined(linkOf(address), address)
  })

  it("200 hostile texts give only known elements and attributes, and no address but of the web and of mail", () => {
    assert.isAtLeast(HOSTILE.length, 200)
    for (const text of HOSTILE) {
      const root = shown(text)
      for (const { props, tag } of root === undefined ? [] : elementsOf(root)) {
        const what = `${tag} of ${text.slice(0, 80)}`
        assert.isTrue(TAGS.has(tag), what)
        for (const name of Object.keys(props)) assert.isTrue(PROPS.has(name), `${name} in ${what}`)
        if (tag === "a") assert.match(String(props["href"]), /^(https?:\/\/[^/@]*(\/|$)|mailto:)/, what)
        assert.isUndefined(props["dangerouslySetInnerHTML"])
      }
    }
  })

  it("costly texts are given up early, and no text makes too many elements", () => {
    for (const [name, text] of Object.entries(COSTLY)) {
      const before = process.cpuUsage()
      lexed(text)
      // They take up to 4 s of the processor without bounds, and about 0.1 s with them.
      if (MEASURES) assert.isBelow(process.cpuUsage(before).user / 1_000_000, 2, name)
      const root = shown(text)
      assert.isAtMost(root === undefined ? 0 : elementsOf(root).length, 13_000, name)
    }
  })

  it("a long text as agents write them is formatted", () => {
    const part =
      "## Findings\n\nThe *second* supplier is **cheaper**, see [the list](https://example.com/list).\n\n- one `a`\n- two\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n```js\nlet x = 1\n```\n\n"
    const text = part.repeat(Math.floor(32_000 / part.length))
    assert.isDefined(lexed(text))
  })

  it("JSON is a tree only where its numbers are kept exactly", () => {
    assert.deepStrictEqual(jsonOf(' {"a": [1, null]}\n'), { a: [1, null] })
    const kept = '{"1e400": "1e-400 \\"", "a": [0, 0e9, -0.0, 1e-300, -1.5E+300, 0.1]}'
    assert.deepStrictEqual(jsonOf(kept), JSON.parse(kept))
    for (
      const text of [
        "[1",
        "1",
        '"a"',
        "{}",
        "[]",
        "[a](https://b.example)",
        '{"id": 12345678901234567890}',
        '{"tiny": 1e-400}',
        '{"a": {"tiny": -0.1E-400}}',
        "[1e400]",
        "[0, -1E+400]"
      ]
    ) assert.isUndefined(jsonOf(text), text)
    assert.isDefined(jsonOf(JSON.stringify([`${'\\"'.repeat(100_000)}1e400`])))
  })
})
