import type { Message } from "#clients/connect/Mail"
import { ParleyApi, Unreachable } from "#clients/connect/ParleyApi"
import { makeSender } from "#clients/connect/programs/ToolRun"
import { clientMsgIdOf } from "#clients/connect/Reply"
import type { Settings } from "#clients/connect/Settings"
import { toolsOf } from "#interfaces/mcp/tools/Catalogue"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { once } from "node:events"
import { createServer, type IncomingHttpHeaders } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import {
  acknowledged,
  acquainted,
  answeredBy,
  Machine,
  type Running,
  send,
  startConnector,
  stored,
  toolCall
} from "./Connectors.ts"

let server: Server
const running: Array<Running> = []
beforeAll(async () => {
  server = await sharedServer()
})
afterAll(async () => {
  await Promise.all(running.map((one) => one.stop()))
  await server?.stop()
})

const start = (machine: Machine, agent: TestAgent, more: Partial<Settings> = {}): Running => {
  const one = startConnector(
    machine,
    machine.settings(server, agent, { reply: "tools", allow: "contacts", retrySeconds: [], ...more })
  )
  running.push(one)
  return one
}

const sending = (to: string, text: string) => toolCall("agentchat_send_message", { to, text })
const logged = (one: Running, event: string) =>
  eventually(`${event} in the log`, () => one.log.find((line) => line.event === event))

/** Starts a run whose script writes what the tools answer into a file, and returns the lines of this file. */
const answersTo = async (...commands: ReadonlyArray<string>): Promise<ReadonlyArray<string>> => {
  const [ada, bob] = await acquainted(server)
  const machine = new Machine(
    `{ ${commands.map((command) => `${command}; echo`).join("\n")}\n} >> ${"$0"}.out; echo NO_REPLY`
  )
  await send(bob, ada.handle, "Hello")
  start(machine, ada)
  await acknowledged(ada)
  return machine.read("answer.out").trim().split("\n")
}

const batch: readonly [Message] = [{
  id: "msg_1",
  conversation_id: "conv_a",
  sender: "bob",
  seq: 1,
  type: "text",
  content: { text: "Hello" },
  metadata: {},
  status: "stored",
  created_at: new Date(0).toISOString(),
  context: { conversation: { type: "direct", group_name: null }, mentions: [] }
}]

it.effect("a message of a run is claimed again before it is sent, and a repeated one has the same client_msg_id", () =>
  Effect.gen(function*() {
    const bodies: Array<{ readonly client_msg_id: string }> = []
    const answers = [false, true, true, true]
    const api = {
      send: (body: unknown) =>
        Effect.suspend(() => {
          bodies.push(body as { readonly client_msg_id: string })
          return answers.shift() === true
            ? Effect.succeed({ message: batch[0], replayed: false })
            : Effect.fail(new Unreachable({ reason: "x", retryAfterMs: null }))
        })
    } as unknown as ParleyApi["Service"]
    let claim = { count: 1, deferred: false, expiresIn: 600 }
    const sender = yield* Effect.provideService(
      makeSender({ handle: "ada", batch, hop: 1 }, Effect.sync(() => claim)),
      ParleyApi,
      api
    )
    const send = (to: string) => sender.send({ to, text: "Hi", replyTo: undefined })
    assert.deepInclude(yield* send("@Bob"), { refused: true })
    assert.isFalse(sender.hasAnswered())
    for (const to of ["bob", "bob", "carol"]) assert.deepInclude(yield* send(to), { refused: false })
    const [unknown, first, second, other] = bodies.map((body) => body.client_msg_id)
    assert.strictEqual(unknown, first)
    assert.strictEqual(first, clientMsgIdOf("ada", "msg_1"))
    assert.lengthOf(new Set([first, second, other]), 3)
    assert.deepStrictEqual([sender.count(), sender.hasAnswered()], [3, true])
    claim = { count: 0, deferred: false, expiresIn: 60 }
    assert.deepInclude(yield* send("bob"), { refused: true })
    assert.lengthOf(bodies, 4)
  }))

describe("a run that sends by its tools", () => {
  it("answers once, and its messages carry the hops and name what they answer", async () => {
    const [ada, bob] = await acquainted(server)
    const carol = await newAgent(server, "carol")
    const machine = new Machine(
      [sending(`@${bob.handle}`, "Wait."), sending(bob.handle, "Done."), sending(carol.handle, "Bob needs you.")].join(
        "\n"
      )
    )
    const id = await send(bob, ada.handle, "Hello")
    const one = start(machine, ada)
    await acknowledged(ada)
    const got = await stored(bob)
    assert.deepStrictEqual(
      got.map(({ content, metadata }) => [content.text, metadata.connect]),
      ["Wait.", "Done."].map((text) => [text, { auto: true, hop: 1, answers: [id] }])
    )
    assert.deepStrictEqual((await stored(carol)).map(({ metadata }) => metadata.connect), [{
      auto: true,
      hop: 1,
      answers: []
    }])
    assert.deepInclude(await logged(one, "replied"), { sent: 3 })
    assert.strictEqual(machine.runs, 1)
  })

  it("is not repeated if it fails after it has answered, and what it sent is acknowledged", async () => {
    const [ada, bob] = await acquainted(server)
    const machine = new Machine(`${sending(bob.handle, "Done.")}; exit 3`)
    const id = await send(bob, ada.handle, "Hello")
    start(machine, ada)
    await acknowledged(ada)
    assert.deepStrictEqual([answeredBy(await stored(bob)), machine.runs], [[id], 1])
  })

  it("has failed if it sent nothing, unless it ends with NO_REPLY", async () => {
    const [ada, bob] = await acquainted(server)
    const machine = new Machine('case $prompt in *Cheers*) echo NO_REPLY;; *) echo "My answer.";; esac')
    const one = start(machine, ada)
    await send(bob, ada.handle, "Hello")
    assert.include(String((await logged(one, "parked"))["why"]), "sent nothing")
    assert.lengthOf(await stored(ada), 1)
    await send(bob, ada.handle, "Cheers")
    await acknowledged(ada)
    assert.deepStrictEqual(await stored(bob), [])
  })

  it("has no tool that waits or acknowledges, and no other method that could", async () => {
    const rpc = (method: string) => toolCall("x", {}).replace("tools/call", method)
    const [listed = "", ...refused] = await answersTo(
      rpc("tools/list"),
      toolCall("agentchat_wait_for_messages", { timeout_seconds: 1 }),
      toolCall("agentchat_mark_read", { message_id: "msg_1" }),
      toolCall("agentchat_acknowledge", { last_delivery_id: "1" }),
      rpc("subscriptions/listen"),
      rpc("events/poll")
    )
    const names = [...listed.matchAll(/"name":"(agentchat_\w+)"/g)].map(([, name]) => name)
    assert.sameMembers(names, toolsOf(new Set(["answer"])).map(({ name }) => name))
    assert.lengthOf(refused, 5)
    for (const answer of refused) assert.match(answer, /-3260[12]|[Uu]nknown tool|not found/)
  })

  it("reads as the agent by a token of its own, which opens nothing without it and nothing after the run", async () => {
    const [ada, bob] = await acquainted(server)
    const machine = new Machine(
      `env > ${"$0"}.env; ${toolCall("agentchat_get_my_status", {})} > ${"$0"}.out; echo NO_REPLY`
    )
    await send(bob, ada.handle, "Hello")
    start(machine, ada)
    await acknowledged(ada)
    assert.include(machine.read("answer.out"), ada.handle)
    const env = machine.read("answer.env")
    assert.notInclude(env, ada.key)
    const [url = "", token = ""] = ["PARLEY_TOOLS_URL", "PARLEY_TOOLS_TOKEN"].map((name) =>
      new RegExp(`${name}=(.*)`).exec(env)?.[1]
    )
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/mcp$/)
    const refusal = await fetch(url, { method: "POST", headers: { authorization: `Bearer ${token}` } }).then(
      ({ status }) => status,
      () => "closed"
    )
    assert.strictEqual(refusal, "closed")
    assert.strictEqual(
      (await fetch(`${server.url}/v1/agents/me`, { headers: { authorization: `Bearer ${token}` } })).status,
      401
    )
  })

  it("is refused without the token, from a page's host name, and by anything but POST", async () => {
    const status = (...flags: ReadonlyArray<string>) =>
      `curl -s -o /dev/null -w '%{http_code}' ${flags.join(" ")} "$PARLEY_TOOLS_URL"`
    // The name of the scheme may have any case.
    const token = '-H "authorization: bearer $PARLEY_TOOLS_TOKEN"'
    assert.deepStrictEqual(
      await answersTo(
        status("-d '{}'"),
        status("-d '{}'", token, "-H 'host: evil.example'"),
        status(token),
        status(token, "-d 'x'"),
        status(token, "-d '{}'")
      ),
      ["401", "401", "405", "400", "400"]
    )
  })

  it("sends at most 20 messages", async () => {
    const [ada, bob] = await acquainted(server)
    const machine = new Machine(`for n in $(seq 21); do ${sending(bob.handle, "Again")}; echo; done >> $0.out`)
    await send(bob, ada.handle, "Hello")
    start(machine, ada)
    await acknowledged(ada)
    assert.lengthOf(await stored(bob), 20)
    assert.include(machine.read("answer.out").trim().split("\n").at(-1), "may send no more")
  })
})

it("OpenClaw is given the prompt by its hook, and answers with an entry of its own", async () => {
  const [ada, bob] = await acquainted(server)
  const posted: Array<{ readonly headers: IncomingHttpHeaders; readonly body: Record<string, unknown> }> = []
  const gateway = createServer((request, response) => {
    void text(request).then(async (body) => {
      posted.push({ headers: request.headers, body: JSON.parse(body) as Record<string, unknown> })
      const silent = body.includes("Cheers")
      const id = /\\"id\\":\\"(msg_[\w-]+)/.exec(body)?.[1] ?? ""
      if (!silent)
        await ada.client.sendMessage({ to: bob.handle, content: { text: "By OpenClaw." }, metadata: { reply_to: id } })
      response.end(
        JSON.stringify({
          ok: true,
          runId: "r1",
          completion: { status: "ok", replyDisposition: silent ? "silent" : "visible" }
        })
      )
    })
  })
  await once(gateway.listen(0, "127.0.0.1"), "listening")
  const machine = new Machine()
  const url = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}/hooks/agent`
  start(machine, ada, { agent: "openclaw", env: { OPENCLAW_HOOK_URL: url, OPENCLAW_HOOK_TOKEN: "hook-token" } })
  await send(bob, ada.handle, "Hello")
  await acknowledged(ada)
  await send(bob, ada.handle, "Cheers")
  await eventually("the second run", () => posted.length === 2 || undefined)
  await acknowledged(ada)
  assert.deepStrictEqual((await stored(bob)).map(({ content }) => content.text), ["By OpenClaw."])
  const [{ body, headers } = { body: {}, headers: {} }] = posted
  assert.deepInclude(headers, { authorization: "Bearer hook-token", "content-type": "application/json" })
  assert.match(String(headers["idempotency-key"]), /^[\w-]{36}$/)
  assert.deepInclude(body, { deliver: false, waitForCompletion: true })
  gateway.close()
})
