import { assert, describe, it } from "@effect/vitest"
import { rm } from "node:fs/promises"
import { killServer, seedFromEnvironment } from "../../verification/long/KillServer.ts"
import { check, type Observation, type Row, type Send } from "../../verification/long/Ledger.ts"
import { makeDataDir, SHORT_LIVED } from "../support/Server.ts"

describe("A server that is killed", () => {
  // Twenty kills: npm run test:kill.
  it("keeps every acknowledged message exactly once over a kill", async () => {
    const seed = seedFromEnvironment()
    const lines = [`SEED=${seed}`]
    const dataDir = await makeDataDir()
    try {
      const report = await killServer({
        kills: 1,
        seed,
        dataDir,
        say: (line) => lines.push(line),
        nodeOptions: SHORT_LIVED
      })
      assert.isAbove(report.acknowledged, 100, "too little was under way for the kills to mean anything")
      assert.isAbove(report.unansweredStored + report.unansweredAbsent, 0, "no kill swallowed an answer")
    } finally {
      console.log(lines.join("\n"))
      await rm(dataDir, { recursive: true, force: true })
    }
  })
})

describe("The ledger of the kill test", () => {
  const row = (n: number, seq: number, sender: string): Row => ({
    id: `msg_${n}`,
    conversation_id: "conv_1",
    seq,
    sender,
    client_msg_id: `c${n}`
  })
  const send = (n: number, from: string, to: string, answer: Send["answer"]): Send => ({
    clientMsgId: `c${n}`,
    from,
    to,
    answer
  })
  const stored = (n: number, seq: number) => ({ _tag: "Stored", id: `msg_${n}`, seq }) as const
  const history = [row(1, 1, "ada"), row(2, 2, "bob"), row(3, 3, "ada"), row(4, 4, "ada")]
  const good: Observation = {
    sends: [
      send(1, "ada", "bob", stored(1, 1)),
      send(2, "bob", "ada", stored(2, 2)),
      send(3, "ada", "bob", stored(3, 3)),
      send(4, "ada", "bob", { _tag: "Unknown" }),
      send(5, "ada", "bob", { _tag: "Unknown" }),
      send(6, "bob", "ada", { _tag: "Absent" })
    ],
    histories: new Map([["conv_1", [history, history]]]),
    inboxes: new Map([["ada", []], ["bob", [history[2]!, history[3]!]]]),
    pushed: [history[0]!, history[1]!],
    acknowledged: new Map([["ada", new Set(["msg_2"])], ["bob", new Set<string>()]]),
    maybeAcknowledged: new Map([["ada", new Set<string>()], ["bob", new Set(["msg_1"])]])
  }

  it("finds nothing wrong with a server that kept its promises", () => {
    assert.deepStrictEqual(check(good), [])
  })

  const bothSides = (rows: ReadonlyArray<Row>) => ({ histories: new Map([["conv_1", [rows, rows]]]) })
  const mutants: ReadonlyArray<readonly [string, Partial<Observation>, RegExp]> = [
    [
      "an acknowledgement before the commit",
      bothSides(history.filter((r) => r.seq !== 3)),
      /acknowledged as msg_3 and is lost/
    ],
    ["a seq reused", bothSides([...history.slice(0, 3), row(4, 3, "ada")]), /seq 3 where 4 belongs/],
    ["a gap", bothSides([...history.slice(0, 3), row(4, 5, "ada")]), /seq 5 where 4 belongs/],
    [
      "a message stored twice for one key",
      bothSides([...history, { ...row(7, 5, "ada"), client_msg_id: "c3" }]),
      /stored as msg_3 and as msg_7/
    ],
    [
      "another id than the one acknowledged",
      bothSides([history[0]!, history[1]!, { ...history[2]!, id: "msg_9" }, history[3]!]),
      /acknowledged as msg_3/
    ],
    ["a message that nobody sent", bothSides([...history, row(9, 5, "ada")]), /nobody sent msg_9/],
    ["an absent send that turns up later", bothSides([...history, row(6, 5, "bob")]), /absent and has turned up/],
    [
      "two sides that differ",
      { histories: new Map([["conv_1", [history, history.slice(0, 3)]]]) },
      /different histories/
    ],
    ["an envelope dropped", { inboxes: new Map([["ada", []], ["bob", [history[2]!]]]) }, /not offered msg_4/],
    [
      "an envelope offered twice",
      { inboxes: new Map([["ada", []], ["bob", [history[2]!, history[3]!, history[3]!]]]) },
      /offered msg_4 twice/
    ],
    [
      "an inbox out of order",
      { inboxes: new Map([["ada", []], ["bob", [history[3]!, history[2]!]]]) },
      /seq 3 of conv_1 after 4/
    ],
    ["an acknowledged envelope offered again", {
      inboxes: new Map([["ada", [history[1]!]], ["bob", [history[2]!, history[3]!]]])
    }, /offered msg_2 again/],
    ["an envelope without its message", {
      inboxes: new Map([["ada", []], ["bob", [history[2]!, history[3]!, row(5, 5, "ada")]]])
    }, /msg_5, which no history has/],
    ["an envelope for somebody else", {
      inboxes: new Map([["ada", [history[3]!]], ["bob", [history[2]!, history[3]!]]])
    }, /msg_4, which was not sent to it/],
    ["a push before the commit", { pushed: [row(5, 5, "ada")] }, /msg_5 was pushed and is not stored/]
  ]
  for (const [name, change, complaint] of mutants) {
    it(`finds ${name}`, () => {
      assert.match(check({ ...good, ...change }).join("\n"), complaint)
    })
  }
})
