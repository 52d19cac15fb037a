import { explain, type WhyFacts } from "#interfaces/console/DeliveryDiagnosis"
import { assert, describe, it } from "@effect/vitest"

const NOW = 1_000_000_000

const socket: WhyFacts["sockets"][number] = {
  node: "a:1",
  since: NOW - 600_000,
  acknowledges: true,
  cursor: 10,
  unsentBytes: 0,
  unacknowledged: 0,
  isLive: true
}
const well: WhyFacts = {
  handle: "ada",
  status: "active",
  now: NOW,
  lastNo: 10,
  undelivered: 0,
  newestAt: NOW - 60_000,
  oldestWaitingAt: null,
  looked: 0,
  muted: 0,
  silentNodes: [],
  sockets: [socket],
  unsentLimit: 4_000_000,
  webhooks: []
}
const waiting = { undelivered: 3, oldestWaitingAt: NOW - 3_600_000, looked: 3 }
const hook = { id: "whk_1", active: true, pausedUntil: null, dead: 0, failure: null }

describe("the diagnosis of an agent that gets nothing", () => {
  const stops: ReadonlyArray<readonly [string, Partial<WhyFacts>, RegExp]> = [
    ["account", { status: "suspended" }, /restore it/],
    ["account", { status: "deleted" }, /deleted/],
    ["messages", { lastNo: 0, newestAt: null, sockets: [] }, /No agent has sent/],
    ["mutes", { ...waiting, muted: 3 }, /all waiting messages/],
    ["mutes", { ...waiting, undelivered: 900, looked: 200, muted: 200 }, /first 200/],
    ["sockets", { ...waiting, sockets: [] }, /not connected: its client/],
    ["sockets", { ...waiting, sockets: [], webhooks: [hook] }, /webhooks get/],
    ["reading", { ...waiting, sockets: [{ ...socket, cursor: 7 }] }, /3 numbers behind/],
    ["unsent", { ...waiting, sockets: [{ ...socket, unsentBytes: 3_000_000 }] }, /too slowly/],
    ["acknowledgement", { ...waiting, sockets: [{ ...socket, unacknowledged: 3 }] }, /has not acknowledged/]
  ]
  for (const [link, changes, words] of stops) {
    it(`names the link that stops: ${link} (${words.source})`, () => {
      const why = explain({ ...well, ...changes })
      assert.strictEqual(why.stops_at, link)
      assert.match(why.words, words)
      assert.strictEqual(why.chain.find(({ state }) => state === "stops")?.link, link)
    })
  }

  it("names no link where nothing stops, and says what is slow or not known", () => {
    assert.deepInclude(explain(well), {
      stops_at: null,
      words: "No step fails, and no message waits: all messages were delivered."
    })
    const behind = explain({ ...well, ...waiting, newestAt: NOW - 1_000, sockets: [{ ...socket, cursor: 7 }] })
    assert.strictEqual(behind.stops_at, null)
    assert.include(behind.words, "within ten seconds")
    const silent = explain({ ...well, ...waiting, sockets: [], silentNodes: ["b:1"] })
    assert.strictEqual(silent.stops_at, null)
    assert.include(silent.words, "b:1")
    assert.deepStrictEqual(explain({ ...well, ...waiting, muted: 1 }).stops_at, null)
  })

  it("always has the same links, in the order of the way; a webhook that was given up stops no socket", () => {
    const links = [
      "account",
      "messages",
      "waiting",
      "mutes",
      "nodes",
      "sockets",
      "reading",
      "unsent",
      "acknowledgement",
      "webhooks"
    ]
    for (const changes of [{}, ...stops.map(([, one]) => one)]) {
      assert.deepStrictEqual(explain({ ...well, ...changes }).chain.map(({ link }) => link), links)
    }
    const given = explain({ ...well, webhooks: [{ ...hook, active: false, dead: 50, failure: "answered 500" }] })
    assert.strictEqual(given.stops_at, null)
    assert.deepInclude(given.chain.at(-1), { link: "webhooks", state: "stops" })
    assert.include(given.chain.at(-1)?.words, "answered 500")
  })
})
