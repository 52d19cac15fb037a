import { exactSize } from "#infrastructure/wire/Size"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { readdirSync, readFileSync } from "node:fs"
import { Api } from "../../src/interfaces/pages/client/Api.js"
import { MAX_FILE, upload } from "../../src/interfaces/pages/client/Files.js"
import {
  everything,
  excerptOf,
  isInside,
  isNamed,
  limitsIn,
  queryOf
} from "../../src/interfaces/pages/client/Search.js"
import { sizeOf } from "../../src/interfaces/pages/shared/Texts.js"
import { wordsOf } from "../../src/interfaces/pages/tab/Alerts.js"
import { type Choice, chosenBy } from "../../src/interfaces/pages/tab/Choices.js"
import { completed, mentionAt, offered } from "../../src/interfaces/pages/tab/Mentions.js"
import { hashOf, isStep, routeOf } from "../../src/interfaces/pages/tab/Routes.js"
import { store, stored } from "../../src/interfaces/pages/tab/Stored.js"
import { tabTitle } from "../../src/interfaces/pages/tab/TabTitle.js"
import { message } from "./Messages.ts"

const handle = fc.stringMatching(/^[a-z][a-z0-9-]{2,20}$/)
const id = fc.stringMatching(/^(conv|grp)_[\w-]{16}$/)
const place = fc.oneof(
  fc.constant(null),
  handle.map((handle) => ({ id: null, handle })),
  id.map((id) => ({ id, handle: null })),
  fc.tuple(id, fc.nat()).map(([id, at]) => ({ id, handle: null, at }))
)

describe("URLs of the page", () => {
  it("name an agent and what is open in its pane, and no text of others becomes another route", () => {
    fc.assert(fc.property(handle, place, (handle, place) => {
      assert.deepStrictEqual(routeOf(hashOf({ handle, place })), { handle, place })
    }))
    for (
      const hash of [
        "",
        "#",
        "#/",
        "#/ada/",
        "#/ada/x",
        "#/ada/conv_",
        "#/ada/conv_1?at=",
        "#/ada/conv_1?at=1&b",
        "#/Ada",
        "#/ada/@",
        "#/ada/../bob",
        `#/ac_${"x".repeat(43)}`
      ]
    ) {
      assert.isNull(routeOf(hash), hash)
    }
  })

  it("Back returns to what was open before, and skips sign-ins, focus and the begin of a conversation", () => {
    const at = (front: string, places: Record<string, string>) => ({ front, places })
    const none = at("", {})
    const ada = at("ada", { ada: "#/ada" })
    const opened = at("ada", { ada: "#/ada/conv_1" })
    assert.isFalse(isStep(none, ada, false))
    assert.isTrue(isStep(ada, opened, false))
    assert.isTrue(isStep(opened, at("ada", { ada: "#/ada/conv_1?at=3" }), false))
    assert.isTrue(isStep(opened, ada, false))
    assert.isFalse(isStep(at("ada", { ada: "#/ada/@bob" }), opened, false))
    const both = { ada: "#/ada/conv_1", bob: "#/bob" }
    assert.isFalse(isStep(opened, at("bob", both), false))
    assert.isFalse(isStep(at("ada", both), at("bob", both), false))
    assert.isTrue(isStep(at("ada", both), at("bob", both), true))
    assert.isFalse(isStep(at("ada", both), at("bob", { bob: "#/bob" }), true), "the agent in front has signed out")
  })
})

describe("sizes", () => {
  it("are in the units of the limits, and 1,024 of a unit are 1 of the next one", () => {
    const MiB = 1024 ** 2
    const sizes = [
      0,
      1,
      1023,
      1024,
      1536,
      32_768,
      999_999,
      MiB - 1,
      MiB,
      26_214_400,
      26_214_401,
      1024 * MiB - 1,
      3.5 * 1024 ** 4,
      2048 * 1024 ** 4
    ]
    assert.deepStrictEqual(sizes.map(sizeOf), [
      "0 B",
      "1 B",
      "1023 B",
      "1 KiB",
      "1.5 KiB",
      "32 KiB",
      "977 KiB",
      "1 MiB",
      "1 MiB",
      "25 MiB",
      "25 MiB",
      "1 GiB",
      "3.5 TiB",
      "2048 TiB"
    ])
    fc.assert(fc.property(fc.integer({ min: 0, max: 1000 * 1024 ** 4 }), (bytes) => {
      assert.match(sizeOf(bytes), /^(\d|[1-9]\d{1,2}|10[01]\d|102[0-3]|[1-9]?\d\.[1-9]) (B|[KMGT]iB)$/)
    }))
  })

  it("of a file that is too large are said by the limit, and a refusal of the server says its limit in the same units", async () => {
    const file = Object.defineProperty(new File(["a"], "a.png", { type: "image/png" }), "size", { value: MAX_FILE + 1 })
    const refusal = await upload(new Api("ac_key"), { to: "bob" }, file).then(() => "", String)
    assert.strictEqual(refusal, "Error: This file is larger than 25 MiB, which is the most that can be sent.")
    assert.deepStrictEqual([26_214_400, 32_768, 5_120, 1_200, 1024 ** 3, 1_048_577].map(exactSize), [
      "25 MiB",
      "32 KiB",
      "5 KiB",
      "1200 bytes",
      "1 GiB",
      "1048577 bytes"
    ])
  })

  it("are written in one way in all that the pages and the server say", () => {
    const files = readdirSync(new URL("../../src", import.meta.url), { recursive: true, encoding: "utf8" })
    const isCode = (name: string) =>
      /\.(js|ts)$/.test(name) &&
      (name.startsWith("interfaces/pages/") || /^(domain\/|infrastructure\/wire\/(?!Size))/.test(name))
    for (const name of files.filter(isCode)) {
      const code = readFileSync(new URL(`../../src/${name}`, import.meta.url), "utf8").replace(
        /\/\*[\s\S]*?\*\/|\/\/ .*/g,
        ""
      )
      assert.notMatch(code, /\d ?([kK]B|MB|GB)\b|\} bytes\b/, name)
    }
  })
})

describe("handles after @", () => {
  it("are looked for where a word begins with @, up to the caret", () => {
    assert.deepStrictEqual(mentionAt("ask @Bo", 7), { at: 4, begin: "bo" })
    assert.deepStrictEqual(mentionAt("@", 1), { at: 0, begin: "" })
    assert.deepStrictEqual(mentionAt("(@bob, @ca", 5), { at: 1, begin: "bob" })
    assert.deepStrictEqual(mentionAt("请@bo", 4), { at: 1, begin: "bo" })
    for (const text of ["ada@example", "josé@b", "e\u0301@b", "ask @bob ", "a.@b", "@@b", "https://a.example/@b", ""])
      assert.isUndefined(mentionAt(text, text.length), text)
  })

  it("are offered by handle, then by name, each agent once, the nearest first", () => {
    const person = (handle: string, display_name: string | null = null) => ({ handle, display_name, avatar_url: null })
    const people = [person("zoe", "Bo Zoe"), person("bob"), person("bo-2"), person("bob"), person("carl")]
    assert.deepStrictEqual(offered(people, "bo").map(({ handle }) => handle), ["bob", "bo-2", "zoe"])
    assert.strictEqual(offered(Array.from({ length: 30 }, (_, i) => person(`a${i}`)), "a").length, 8)
  })

  it("replace what was typed, with one space behind", () => {
    assert.deepStrictEqual(completed("ask @bo now", 4, 7, "bob"), { text: "ask @bob now", caret: 9 })
    fc.assert(fc.property(fc.string(), fc.string(), handle, (before, after, handle) => {
      const { caret, text } = completed(`${before}@${after}`, before.length, before.length + 1, handle)
      assert.strictEqual(text.slice(0, caret), `${before}@${handle} `)
      assert.strictEqual(text.slice(caret), after.replace(/^ /, ""))
    }))
  })
})

describe("the title, notifications and storage of the tab", () => {
  it("its title has the unread messages, the conversation and the agent", () => {
    assert.strictEqual(tabTitle({ unread: 0, handle: null, conversation: null }), "Parley")
    assert.strictEqual(tabTitle({ unread: 3, handle: "ada", conversation: null }), "(3) @ada · Parley")
    assert.strictEqual(
      tabTitle({ unread: 1200, handle: "ada", conversation: "Night watch" }),
      "(999+) Night watch · @ada · Parley"
    )
  })

  it("a notification says who wrote to whom, and the text only if the person asked for it", () => {
    const direct = { sender: "bob", agent: "ada", group: null, text: "the\ncode is 1", texts: false }
    assert.deepStrictEqual(wordsOf(direct), { title: "@bob wrote to @ada", body: "" })
    assert.deepStrictEqual(wordsOf({ ...direct, texts: true }), { title: "@bob wrote to @ada", body: "the code is 1" })
    assert.deepStrictEqual(wordsOf({ ...direct, group: "Night watch" }), {
      title: "@bob wrote in Night watch",
      body: "For @ada"
    })
  })

  it("a browser that stores nothing, or something else, is no error", () => {
    const refusing = () => {
      throw new Error("no storage")
    }
    assert.isUndefined(stored(refusing, "a"))
    assert.isFalse(store(refusing, "a", 1))
    const kept = new Map<string, string>([["broken", "{"]])
    const storage = () => ({
      length: 0,
      clear: () => undefined,
      key: () => null,
      getItem: (name: string) => kept.get(name) ?? null,
      setItem: (name: string, value: string) => void kept.set(name, value),
      removeItem: (name: string) => void kept.delete(name)
    })
    assert.isUndefined(stored(storage, "broken"))
    assert.isTrue(store(storage, "a", { b: 1 }))
    assert.deepStrictEqual(stored(storage, "a"), { b: 1 })
    store(storage, "a", undefined)
    assert.isUndefined(stored(storage, "a"))
  })
})

describe("a search", () => {
  it("asks for what is typed, with a last word that may go on", () => {
    assert.isUndefined(queryOf(" a "))
    assert.isUndefined(queryOf("??"))
    assert.strictEqual(queryOf("at"), "at")
    assert.strictEqual(queryOf("harb"), "harb*")
    assert.strictEqual(queryOf("the harb "), "the harb")
    assert.strictEqual(queryOf("harb*"), "harb*")
  })

  it("shows the words found and what is around them, and nothing that is not in the text", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.string({ maxLength: 150 }), fc.string({ minLength: 1, maxLength: 20 })), { maxLength: 8 }),
        fc.string({ maxLength: 300 }),
        (pairs, rest) => {
          let text = ""
          const highlights: Array<[number, number]> = []
          for (const [before, word] of pairs) {
            text += before
            highlights.push([text.length, text.length + word.length])
            text += word
          }
          text += rest
          const pieces = excerptOf(text, highlights)
          const shown = pieces.map((piece) => piece.text).join("")
          assert.include(
            text,
            shown.replace(/^… /, text.startsWith("… ") ? "… " : "").replace(/ …$/, text.endsWith(" …") ? " …" : "")
          )
          assert.isAtMost(shown.length, 184)
          if (pairs.length > 0)
            assert.strictEqual(pieces.find(({ isFound }) => isFound)?.text, pairs[0]![1])
        }
      )
    )
  })
})

describe("the limits of a search", () => {
  it("are parameters of the API, with both days included, and select the same messages on the page", () => {
    assert.strictEqual(limitsIn(everything), "")
    const limits = { conversation: "conv_1", from: "@Bob ", after: "2026-11-01", before: "2026-11-02" }
    const parameters = new URLSearchParams(limitsIn(limits))
    assert.strictEqual(parameters.get("conversation_id"), "conv_1")
    assert.strictEqual(parameters.get("from"), "bob")
    const [after, before] = [Date.parse(parameters.get("after")!), Date.parse(parameters.get("before")!)]
    assert.strictEqual(before - after, 48 * 3_600_000 + 1)
    const at = (time: number, fields = {}) => message(1, { created_at: new Date(time).toISOString(), ...fields })
    assert.isTrue(isInside(limits, at(after + 1)))
    assert.isTrue(isInside(limits, at(before - 1)))
    assert.isFalse(isInside(limits, at(after)))
    assert.isFalse(isInside(limits, at(before)))
    assert.isFalse(isInside(limits, at(before - 1, { sender: "carl" })))
    assert.isFalse(isInside(limits, at(before - 1, { conversation_id: "conv_2" })))
    assert.isTrue(isNamed("Harbour map.PNG", "map harb"))
    assert.isFalse(isNamed("Harbour map.PNG", "map of"))
  })
})

describe("the switcher", () => {
  it("offers what has a word that begins with each typed word, the best first, by kind", () => {
    const choice = (kind: Choice["kind"], label: string, note?: string): Choice => ({
      key: label,
      kind,
      label,
      note,
      run: () => undefined
    })
    const all = [
      choice("Conversations", "Old lab", "group"),
      choice("Conversations", "Labrador", "@lab-1"),
      choice("Commands", "Search messages"),
      choice("People", "Bob Lab", "@bob-two")
    ]
    const labels = (typed: string) => chosenBy(all, typed).map(({ label }) => label)
    assert.deepStrictEqual(labels("lab"), ["Labrador", "Old lab", "Bob Lab"])
    assert.deepStrictEqual(labels("@bob-t"), ["Bob Lab"])
    assert.deepStrictEqual(labels("mess sea"), ["Search messages"])
    assert.deepStrictEqual(labels("b lab"), ["Bob Lab"])
    assert.deepStrictEqual(labels(""), ["Old lab", "Labrador", "Bob Lab", "Search messages"])
    assert.deepStrictEqual(labels("ador"), [])
  })
})
