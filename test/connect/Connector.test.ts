import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { readdirSync, readlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { chanceFor, eventually } from "../support/Eventually.ts"
import { makeDataDir, newAgent, type Server, sharedServer, startServer } from "../support/Server.ts"
import {
  acknowledgeAll,
  acknowledged,
  acquainted,
  answeredBy,
  Machine,
  replies,
  type Running,
  send,
  startConnector,
  stored
} from "./Connectors.ts"

let server: Server
const running: Array<Running> = []
const start = (...given: Parameters<typeof startConnector>): Running => {
  const one = startConnector(...given)
  running.push(one)
  return one
}

beforeAll(async () => {
  server = await sharedServer()
})
afterAll(async () => {
  await Promise.all(running.map((one) => one.stop()))
  await server?.stop()
})

const pair = () => acquainted(server)

const logged = (one: Running, event: string, field?: string, value?: unknown) =>
  eventually(
    `${event} in the log`,
    () => one.log.find((line) => line.event === event && (field === undefined || line[field] === value))
  )

/** The processes whose working directory is below this folder. */
const processesIn = (root: string): ReadonlyArray<string> =>
  readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readlinkSync(`/proc/${pid}/cwd`).startsWith(root)
    } catch {
      // It has ended, or belongs to another user.
      return false
    }
  })

describe("a connector", () => {
  it("answers what waited and what arrives, in one reply for what arrives together, and acknowledges it", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine('echo "Hello, @bob."')
    const first = await send(bob, ada.handle, "Are you there?")
    start(machine, machine.settings(server, ada, { settleMs: 50 }))
    const [reply] = await replies(bob, ada, [first])
    assert.deepInclude(reply, { content: { text: "Hello, @bob." } })
    assert.deepStrictEqual(reply?.metadata.connect, { auto: true, hop: 1, answers: [first] })
    await acknowledged(ada)
    const more = [
      await send(bob, ada.handle, "One"),
      await send(bob, ada.handle, "Two"),
      await send(bob, ada.handle, "Three")
    ]
    const got = await replies(bob, ada, more)
    assert.sameMembers([...answeredBy(got)], [first, ...more])
    assert.isAtMost(machine.runs, 4)
    await acknowledged(ada)
  })

  it("sends nothing for NO_REPLY, and acknowledges", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine("echo NO_REPLY")
    await send(bob, ada.handle, "Thanks!")
    start(machine, machine.settings(server, ada))
    await acknowledged(ada)
    assert.strictEqual(machine.runs, 1)
    assert.deepStrictEqual(await stored(bob), [])
  })

  it("gives a program an empty folder, a HOME of its own, and of the variables only those that are named", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine("echo \"$HOME|$(pwd)|$(ls -A | wc -l)|$(env | cut -d= -f1 | tr '\\n' ' ')\"")
    start(machine, machine.settings(server, ada, { env: { MODEL_KEY: "secret" } }))
    const [reply] = await replies(bob, ada, [await send(bob, ada.handle, "Where are you?")])
    const [home, folder, files, names = ""] = (reply?.content.text ?? "").split("|")
    assert.strictEqual(home, join(machine.root, "home"))
    assert.match(folder ?? "", new RegExp(`^${join(machine.root, "work")}/conv_`))
    assert.strictEqual(files?.trim(), "0")
    const ofTheShell = ["PWD", "OLDPWD", "SHLVL", "_"]
    const given = names.trim().split(" ").filter((name) => !ofTheShell.includes(name))
    assert.sameMembers(given.filter((name) => name !== "LANG"), ["PATH", "HOME", "MODEL_KEY", "PARLEY_CONNECT_RUN"])
  })

  it("starts nothing for an agent that is not allowed, and leaves its message", async () => {
    const [ada, bob] = await pair()
    const eve = await newAgent(server, "eve")
    const machine = new Machine()
    const [id] = [await send(bob, ada.handle, "Hello"), await send(eve, ada.handle, "Show me your files")]
    start(machine, machine.settings(server, ada, { allow: "contacts" }))
    await replies(bob, ada, [id])
    await eventually("one message is left", async () => (await stored(ada)).length === 1 || undefined)
    assert.strictEqual((await stored(ada))[0]?.sender, eve.handle)
    assert.deepStrictEqual(await stored(eve), [])
  })

  it("answers a mention in a group, in the group, and leaves the other messages of the group", async () => {
    const [ada, bob] = await acquainted(server)
    const { id: group } = (await bob.client.createGroup({ name: "Harbour", member_handles: [ada.handle] })).group
    const invites = (await ada.http.get("/v1/groups/invites")).body as ReadonlyArray<{ readonly id: string }>
    for (const { id } of invites) await ada.http.post(`/v1/groups/invites/${id}/accept`)
    await acknowledgeAll(ada)
    const machine = new Machine()
    start(machine, machine.settings(server, ada))
    const say = async (text: string) =>
      (await bob.client.sendMessage({ conversation_id: group, content: { text } })).message.id
    const other = await say("Good morning.")
    const id = await say(`What do you say, @${ada.handle}?`)
    const reply = (await replies(bob, ada, [id])).find(({ metadata }) => metadata.connect !== undefined)
    assert.deepInclude(reply, { conversation_id: group })
    assert.deepStrictEqual(reply?.metadata.connect?.answers, [id])
    await eventually(
      "one message is left",
      async () => (await stored(ada)).map((message) => message.id).join() === other || undefined
    )
  })

  it("ends a chain of automatic replies after four", async () => {
    const [ada, bob] = await pair()
    const machines = [new Machine(), new Machine()] as const
    const both = [ada, bob].map((agent, at) => start(machines[at]!, machines[at]!.settings(server, agent)))
    await send(bob, ada.handle, "Begin")
    await eventually(
      "a parked conversation",
      () => both.some((one) => one.log.some(({ event }) => event === "parked")) || undefined
    )
    await chanceFor("a fifth run", 100)
    assert.strictEqual(machines[0].runs + machines[1].runs, 4)
  })

  it("runs no program beyond the budget of a conversation", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine()
    start(machine, machine.settings(server, ada, { runsPerConversationHour: 1 }))
    await replies(bob, ada, [await send(bob, ada.handle, "One")])
    await send(bob, ada.handle, "Two")
    await chanceFor("a second run", 150)
    assert.strictEqual(machine.runs, 1)
    assert.strictEqual((await stored(ada)).length, 1)
  })

  it("parks a conversation whose reply is beyond the agent's own budget of messages, and runs nothing again", async () => {
    const [ada, bob] = await pair()
    await ada.http.patch(`/v1/agents/${ada.handle}`, { settings: { budget: { per_conversation_per_day: 1 } } })
    const machine = new Machine()
    const one = start(machine, machine.settings(server, ada))
    await replies(bob, ada, [await send(bob, ada.handle, "One")])
    await send(bob, ada.handle, "Two")
    assert.deepInclude(await logged(one, "parked"), { why: "the server refuses the reply: BUDGET_EXCEEDED" })
    assert.strictEqual(machine.runs, 2)
    assert.strictEqual((await stored(ada)).length, 1)
  })

  it("repeats a run that fails, parks it, and begins again with the next message", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine("case $prompt in *Sorry*) echo Better.;; *) echo half; exit 3;; esac")
    const one = start(machine, machine.settings(server, ada, { retrySeconds: [0, 0] }))
    const first = await send(bob, ada.handle, "One")
    assert.deepInclude(await logged(one, "parked"), { why: "the run ended with 3" })
    assert.strictEqual(machine.runs, 3)
    assert.deepStrictEqual(await stored(bob), [])
    assert.strictEqual((await stored(ada)).length, 1)
    const second = await send(bob, ada.handle, "Sorry")
    const got = await replies(bob, ada, [first, second])
    assert.strictEqual(got.length, 1)
    await acknowledged(ada)
  })

  it("ends a program that hangs with the children that it forked, and cuts a reply that is too long", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine(
      "case $prompt in *long*) yes | head -c 100000; exit;; *endless*) yes;; esac; sleep 300 & setsid sleep 300 & sleep 300"
    )
    const hurried = start(machine, machine.settings(server, ada, { runSeconds: 1, retrySeconds: [] }))
    await send(bob, ada.handle, "Hang")
    assert.deepInclude(await logged(hurried, "parked"), { why: "the run took too long" })
    await hurried.stop()
    const patient = start(machine, machine.settings(server, ada, { runSeconds: 600, retrySeconds: [] }))
    const second = await send(bob, ada.handle, "endless")
    assert.deepInclude(await logged(patient, "parked"), { why: "the run wrote too much" })
    await acknowledgeAll(ada)
    const [reply] = await replies(bob, ada, [await send(bob, ada.handle, "long")])
    assert.isFalse(reply?.metadata.connect?.answers.includes(second))
    assert.isAbove(reply?.content.text?.length ?? 0, 15_000)
    assert.match(reply?.content.text ?? "", /cut off/)
    await eventually("the end of every process", () => processesIn(machine.root).length === 0 || undefined)
  })

  it("defers to a live session until its lease ends, and drops what the session has acknowledged", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine()
    await ada.http.request("PUT", "/v1/reply/active", { json: { session_id: "live", ttl_seconds: 600 } })
    const one = start(machine, machine.settings(server, ada))
    await send(bob, ada.handle, "For the session")
    const { conversation } = await logged(one, "waits", "hold", "deferred")
    assert.strictEqual(machine.runs, 0)
    await acknowledgeAll(ada)
    await ada.http.request("DELETE", "/v1/reply/active", { json: { session_id: "live" } })
    const second = await send(bob, ada.handle, "For the program")
    // The connector looks again after at most 15 s, and at once if it is told to.
    await machine.withJournal((journal) => journal.retry(String(conversation)))
    const [reply] = await replies(bob, ada, [second])
    assert.deepStrictEqual(reply?.metadata.connect?.answers, [second])
    assert.strictEqual(machine.runs, 1)
  })

  it("answers each message once, with another connector beside it", async () => {
    const [ada, bob] = await pair()
    const carol = await newAgent(server, "carol")
    const machines = [new Machine("sleep 0.05; echo Answered."), new Machine("sleep 0.05; echo Answered.")] as const
    for (const machine of machines) start(machine, machine.settings(server, ada))
    const fromBob = await send(bob, ada.handle, "One")
    const fromCarol = await send(carol, ada.handle, "Two")
    assert.strictEqual((await replies(bob, ada, [fromBob])).length, 1)
    assert.strictEqual((await replies(carol, ada, [fromCarol])).length, 1)
    await acknowledged(ada)
    await chanceFor("a third run", 200)
    assert.strictEqual(machines[0].runs + machines[1].runs, 2)
  })

  it("stops when the key is refused, and says so", async () => {
    const ada = await newAgent(server, "ada")
    const machine = new Machine()
    const one = start(
      machine,
      machine.settings(server, { ...ada, key: "ac_this-key-is-an-example-and-it-opens-no-door" })
    )
    const ended = await eventually("the end", one.ended)
    assert.include(ended, "KeyRefused")
  })

  it("goes on when the server restarts, while a program runs too", async () => {
    const dataDir = await makeDataDir()
    let own = await startServer({ dataDir })
    const port = new URL(own.url).port
    try {
      const [ada, bob] = await acquainted(own)
      const machine = new Machine(`while ! [ -e ${join(dataDir, "go")} ]; do sleep 0.02; done; echo Answered.`)
      const one = start(machine, machine.settings(own, ada))
      const id = await send(bob, ada.handle, "Hello")
      await eventually("the run", () => machine.runs === 1 || undefined)
      await own.stop()
      writeFileSync(join(dataDir, "go"), "")
      await logged(one, "waits", "hold", "unreachable")
      own = await startServer({ dataDir, env: { PORT: port } })
      const got = await replies(bob, ada, [id])
      assert.deepStrictEqual(answeredBy(got), [id])
      await acknowledged(ada)
      assert.strictEqual(machine.runs, 1)
      await one.stop()
    } finally {
      await own.stop()
    }
  })
})
