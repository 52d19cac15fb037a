import type { Settings } from "#clients/connect/Settings"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { answeredBy, type Crash, Machine, send, startConnector, stored, toolCall } from "./Connectors.ts"

let server: Server
let ada: TestAgent
beforeAll(async () => {
  server = await sharedServer()
  ada = await newAgent(server, "ada")
})
afterAll(() => server?.stop())

const SENT = "sent"
const ACKNOWLEDGED = "acknowledged"

/** What the journal of a connector that was killed holds for its one message. */
const leftIn = (machine: Machine): Promise<string> =>
  machine.withJournal((journal) =>
    Effect.gen(function*() {
      const [conversation] = yield* journal.unfinished
      const work = conversation === undefined ? undefined : yield* journal.work(conversation)
      if (work === undefined) return "nothing"
      if (work.phase === "idle")
        return work.handled.length > 0
          ? "handled"
          : work.failures > 0
          ? "waiting again"
          : "waiting"
      return work.phase
    })
  )

/**
 * Sends a message, kills the connector before call `at`, starts another on the same files, and says what was left and
 * what came of it.
 */
const killedAt = async (at: number, script: (bob: string) => string, more: Partial<Settings>, answers: number) => {
  const bob = await newAgent(server, "bob")
  const machine = new Machine(script(bob.handle))
  const settings = machine.settings(server, ada, { allow: [bob.handle], retrySeconds: [0, 0, 0], ...more })
  const id = await send(bob, ada.handle, "One")
  const crash: Crash = { at, calls: [], crashed: false }
  const waits = async () => (await stored(ada)).some((message) => message.id === id)
  const before = startConnector(machine, settings, crash)
  await eventually(`call ${at}`, async () => crash.crashed || !await waits() || undefined)
  await before.stop()
  const [left, sent, acknowledged] = [await leftIn(machine), (await stored(bob)).length > 0, !await waits()]
  const row = `${crash.next ?? "the end"}: ${
    [left, ...sent ? [SENT] : [], ...acknowledged ? [ACKNOWLEDGED] : []].join(", ")
  }`

  const after = startConnector(machine, settings)
  await eventually(`the acknowledgement after ${row}`, async () => !await waits() || undefined)
  await after.stop()
  const got = await stored(bob)
  assert.deepStrictEqual(answeredBy(got), Array.from({ length: answers }, () => id), row)
  assert.lengthOf(got, answers, row)
  assert.isAtMost(machine.runs, crash.calls.filter((call) => call === "runs.run").length + 1, row)
  return { row, calls: crash.calls }
}

/**
 * A row for each call before which a connector is killed, from the first call of this name on: the call, and what is
 * left. The last row is that of a connector that is not killed. `most` bounds the other rows.
 */
const tableFrom = async (
  name: string,
  script: (bob: string) => string,
  more: Partial<Settings>,
  answers: number,
  most = Infinity
): Promise<ReadonlyArray<string>> => {
  const whole = await killedAt(Infinity, script, more, answers)
  const rows: Array<string> = []
  for (let at = whole.calls.indexOf(name); at < whole.calls.length && rows.length < most; at++)
    rows.push((await killedAt(at, script, more, answers)).row)
  return [...rows, whole.row]
}

describe("a connector that is killed before any call and started again", () => {
  it("answers once and acknowledges a reply", async () => {
    assert.deepStrictEqual(await tableFrom("journal.arrived", () => "echo Answered.", {}, 1), [
      "journal.arrived: nothing",
      "api.claim: waiting",
      "api.history: waiting",
      "journal.begin: waiting",
      "runs.run: running",
      "journal.replying: running",
      "api.claim: replying",
      "api.history: replying",
      "api.send: replying",
      "journal.answered: replying, sent",
      "socket.acknowledge: handled, sent",
      "the end: handled, sent, acknowledged"
    ])
  })

  it("acknowledges a run that sends nothing", async () => {
    assert.deepStrictEqual(await tableFrom("runs.run", () => "echo NO_REPLY", {}, 0), [
      "runs.run: running",
      "journal.silent: running",
      "socket.acknowledge: handled",
      "the end: handled, acknowledged"
    ])
  })

  it("answers once and acknowledges a run that fails first", async () => {
    const script = "[ -e $0.failed ] || { touch $0.failed; exit 3; }; echo Answered."
    assert.deepStrictEqual(await tableFrom("journal.failed", () => script, {}, 1, 5), [
      "journal.failed: running",
      "api.claim: waiting again",
      "api.history: waiting again",
      "journal.begin: waiting again",
      "runs.run: running",
      "the end: handled, sent, acknowledged"
    ])
  })

  it("answers once and acknowledges a run that sends by its tools", async () => {
    const script = (bob: string) =>
      `${toolCall("agentchat_send_message", { to: bob, text: "Answered." })}; sleep 0.02; echo Done.`
    assert.deepStrictEqual(await tableFrom("runs.run", script, { reply: "tools" }, 1), [
      "runs.run: running",
      "api.claim: running",
      "api.send: running",
      "journal.silent: running, sent",
      "socket.acknowledge: handled, sent",
      "the end: handled, sent, acknowledged"
    ])
  })
})
