import { assert, describe, it } from "@effect/vitest"
import commonmark from "commonmark-spec"
import { seen, shown } from "./Shown.ts"

const spec = commonmark as { tests: ReadonlyArray<{ markdown: string, html: string, section: string, number: number }> }
const plainOf = (html: string) => html.replace(/<[^>]*>/g, "").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&amp;", "&")
const squeezed = (t: string) => t.replaceAll("→", "\t").replace(/\s+/g, "")

describe("x", () => {
  it("y", () => {
    const by: Record<string, [number, number, number, Array<unknown>]> = {}
    for (const { html, markdown, number, section } of spec.tests) {
      const e = by[section] ??= [0, 0, 0, []]
      const text = markdown.replaceAll("→", "\t")
      const r = shown(text)
      const got = r === undefined ? text : seen(r)
      if (/<(a|img)\b/.test(html)) { e[2]++; continue }
      if (squeezed(got) === squeezed(plainOf(html))) e[0]++
      else { e[1]++; e[3].push([number, r === undefined, text, got, plainOf(html)]) }
    }
    for (const [s, e] of Object.entries(by)) { console.log(s, e[0], e[1], e[2]); if (!/HTML/.test(s)) for (const x of e[3]) console.log(JSON.stringify(x)) }
    assert.isTrue(true)
  })
})
