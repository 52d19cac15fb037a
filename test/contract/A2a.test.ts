import type { Client } from "@a2a-js/sdk/client"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHmac, randomUUID } from "node:crypto"
import {
  answerOf,
  baseOf,
  begin,
  bindings,
  connect,
  fetchAs,
  get,
  listing,
  message,
  pushed,
  pushTo,
  refusal,
  said,
  sending,
  stateOf,
  statesAt
} from "../a2a/A2a.ts"
import { connect as connectMcp, granted } from "../mcp/Mcp.ts"
import { adminHere } from "../support/Admin.ts"
import { elapse, eventually, within } from "../support/Eventually.ts"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { catchUp, history, inbox, newPair, say } from "./Talk.ts"

let server: Server
beforeAll(async () => {
  server = await sharedServer()
})
afterAll(() => server?.stop())

/** A request to an A2A path with the given headers, without a client library. */
const raw = async (key: string | undefined, url: string, init: RequestInit = {}, version: string | null = "1.0") => {
  const response = await fetchAs(key)(`${server.url}${url}`, {
    ...init,
    headers: { ...(version === null ? {} : { "A2A-Version": version }), ...init.headers }
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, text, body: text === "" ? undefined : JSON.parse(text) }
}

const rpc = (
  key: string | undefined,
  handle: string,
  method: string,
  params: unknown,
  version: string | null = "1.0"
) =>
  raw(
    key,
    `/a2a/${handle}`,
    { method: "POST", body: JSON.stringify({ jsonrpc: "2.0", id: 7, method, params }) },
    version
  )

const reasonOf = (error: Error): unknown => (error as Error & { reason?: unknown }).reason

describe("cards", () => {
  it("164. every agent has a card, the same with a key and without one, and it can be fetched again for nothing", async () => {
    const [alice, bob] = await Promise.all([
      newAgent(server, "alice"),
      newAgent(server, "bob", { display_name: "Bob the Builder" })
    ])
    const url = `/a2a/${bob.handle}/.well-known/agent-card.json`
    const open = await raw(undefined, url, {}, null)
    const closed = await raw(alice.key, url)
    assert.strictEqual(open.status, 200, open.text)
    assert.strictEqual(open.text, closed.text)
    assert.deepInclude(open.body, { name: "Bob the Builder", description: "" })
    assert.deepStrictEqual(open.body.capabilities, {
      streaming: true,
      pushNotifications: true,
      extendedAgentCard: false
    })
    assert.deepEqual(
      open.body.supportedInterfaces.map((
        one: { protocolBinding: string; protocolVersion: string }
      ) => [one.protocolBinding, one.protocolVersion]),
      [["JSONRPC", "1.0"], ["HTTP+JSON", "1.0"]]
    )
    for (const { url: at } of open.body.supportedInterfaces)
      assert.strictEqual(new URL(at).pathname, `/a2a/${bob.handle}`)
    assert.containsAllKeys(open.body, [
      "name",
      "description",
      "version",
      "supportedInterfaces",
      "capabilities",
      "defaultInputModes",
      "defaultOutputModes",
      "skills"
    ])
    assert.containsAllKeys(open.body.skills[0], ["id", "name", "description", "tags"])
    assert.deepStrictEqual(open.body.securityRequirements, [{ schemes: { bearer: { list: [] } } }])
    assert.strictEqual(open.body.securitySchemes.bearer.httpAuthSecurityScheme.scheme, "Bearer")
    assert.strictEqual(open.headers.get("cache-control"), "max-age=60")
    const etag = open.headers.get("etag") ?? ""
    for (const given of [etag, `W/${etag}`, `"other", W/${etag}`, "*"]) {
      const again = await raw(undefined, url, { headers: { "if-none-match": given } })
      assert.deepStrictEqual([again.status, again.headers.get("etag")], [304, etag], given)
    }
    assert.strictEqual((await raw(undefined, url, { headers: { "if-none-match": `"other"` } })).status, 200)
    assert.strictEqual((await raw("ac_none", url)).status, 401)
  })

  it("164. web pages of other origins may fetch a card, and fetch it again with its ETag", async () => {
    const bob = await newAgent(server, "bob")
    const url = `/a2a/${bob.handle}/.well-known/agent-card.json`
    const origin = { origin: "https://page.example" }
    const preflight = await fetch(`${server.url}${url}`, {
      method: "OPTIONS",
      headers: {
        ...origin,
        "access-control-request-method": "GET",
        "access-control-request-headers": "authorization, if-none-match"
      }
    })
    assert.strictEqual(preflight.status, 204)
    const allowed = (preflight.headers.get("access-control-allow-headers") ?? "").toLowerCase()
    for (const name of ["authorization", "if-none-match", "a2a-version"]) assert.include(allowed, name)
    assert.include(preflight.headers.get("access-control-allow-methods") ?? "", "GET")
    const open = await raw(undefined, url, { headers: origin })
    const etag = open.headers.get("etag") ?? ""
    const answers = [
      preflight,
      open,
      await raw(undefined, url, { headers: { ...origin, "if-none-match": etag } }),
      await raw(undefined, "/a2a/nobody-of-this-name/.well-known/agent-card.json", { headers: origin })
    ]
    assert.deepStrictEqual(answers.map(({ status }) => status), [204, 200, 304, 404])
    for (const { headers } of answers) {
      assert.strictEqual(headers.get("access-control-allow-origin"), "*")
      const exposed = headers.get("access-control-expose-headers") ?? ""
      for (const name of ["ETag", "X-Request-Id", "Retry-After"]) assert.include(exposed, name)
    }
    // The calls themselves stay closed to pages of other origins.
    const called = await raw(undefined, `/a2a/${bob.handle}`, { method: "POST", headers: origin, body: "{}" })
    assert.isNull(called.headers.get("access-control-allow-origin"))
  })

  it("164. a client that looks for a card elsewhere reads where cards are, from pages of other origins too", async () => {
    const bob = await newAgent(server, "bob")
    const files = ["agent-card.json", "agent.json"]
    const paths = [
      ...files.flatMap((file) => [`/.well-known/${file}`, `/a2a/.well-known/${file}`, `/a2a/${bob.handle}/${file}`]),
      `/a2a/${bob.handle}/.well-known/agent.json`
    ]
    for (const path of paths) {
      const answer = await raw(undefined, path, { headers: { origin: "https://page.example" } })
      const { headers } = answer
      assert.deepStrictEqual(
        [answer.status, headers.get("allow"), headers.get("access-control-allow-origin")],
        [404, null, "*"],
        path
      )
      assert.include((answer.body.error ?? answer.body).message, "/a2a/{handle}/.well-known/agent-card.json")
    }
  })

  it("164. unknown, suspended and deleted handles have no card, and look alike", async () => {
    const [alice, gone] = await Promise.all([newAgent(server, "alice"), newAgent(server, "gone")])
    assert.strictEqual((await gone.http.delete(`/v1/agents/${gone.handle}`)).status, 200)
    for (const key of [alice.key, undefined]) {
      const [unknown, deleted] = await Promise.all(
        ["nobody-of-this-name", gone.handle].map((handle) =>
          eventually("404", async () => {
            const answer = await raw(key, `/a2a/${handle}/.well-known/agent-card.json`)
            return answer.status === 404 ? answer : undefined
          })
        )
      )
      assert.deepStrictEqual(unknown?.body, deleted?.body)
    }
  })
})

for (const binding of bindings) {
  describe(`A2A over ${binding}`, () => {
    let alice: TestAgent
    let bob: TestAgent
    let client: Client
    beforeAll(async () => {
      ;({ alice, bob } = await newPair(server))
      client = await connect(server, alice, bob, binding)
    })

    it("164. a message to an agent that is away waits as a task; delivered it is worked on, and the reply completes it", async () => {
      const task = await begin(client, "are you there?")
      assert.strictEqual(stateOf(task), "SUBMITTED")
      assert.strictEqual(stateOf(await get(client, task.id)), "SUBMITTED")
      const [seen] = await inbox(bob)
      assert.strictEqual(seen?.id, task.id)
      assert.deepInclude(seen?.metadata["a2a"] as object, { task_id: task.id, context_id: task.contextId })
      assert.strictEqual(seen?.content.text, "are you there?")
      await catchUp(bob)
      assert.strictEqual(stateOf(await get(client, task.id)), "WORKING")
      const reply = await say(bob, alice, { content: { text: "now I am" } })
      const done = await get(client, task.id)
      assert.strictEqual(stateOf(done), "COMPLETED")
      assert.strictEqual(answerOf(done), "now I am")
      assert.strictEqual(done.artifacts[0]?.artifactId, reply.id)
      assert.lengthOf(done.history, 1)
      assert.lengthOf((await get(client, task.id, 0)).history, 0)
    })

    it("164. a send waits for the reply, which comes by socket, by MCP or by sync", async () => {
      const ways: ReadonlyArray<readonly [string, (id: string) => Promise<void>]> = [
        ["socket", async (id) => {
          const socket = await Socket.hello(server, bob.key)
          await socket.message(id)
          await say(bob, alice, { content: { text: "socket" } })
          await socket.close()
        }],
        ["mcp", async () => {
          const mcp = await connectMcp(server, bob)
          await granted(mcp, "agentchat_wait_for_messages", { timeout_seconds: 50 })
          await granted(mcp, "agentchat_send_message", { to: alice.handle, text: "mcp" })
          await mcp.close()
        }],
        ["sync", async () => {
          await catchUp(bob)
          await say(bob, alice, { content: { text: "sync" } })
        }]
      ]
      for (const [way, answer] of ways) {
        await inbox(bob).then((waiting) => waiting.length === 0 ? undefined : catchUp(bob))
        const asked = client.sendMessage(sending(message(`by ${way}`), false))
        const id = await eventually("the message", async () => (await inbox(bob)).at(-1)?.id)
        await answer(id)
        const task = await within(way, asked) as Awaited<ReturnType<typeof get>>
        assert.deepStrictEqual([stateOf(task), answerOf(task)], ["COMPLETED", way])
      }
    })

    it("164. a stream shows every change, and ends with the task", async () => {
      await inbox(bob).then((waiting) => waiting.length === 0 ? undefined : catchUp(bob))
      const heard: Array<string> = []
      let id = ""
      const stream = (async () => {
        for await (const event of client.sendMessageStream(sending(message("go"), false))) {
          if (event.payload?.$case === "task") id = event.payload.value.id
          heard.push(said(event))
        }
      })()
      await eventually("the task", () => heard[0])
      const other: Array<string> = []
      const second = (async () => {
        for await (const event of client.resubscribeTask({ tenant: "", id })) other.push(said(event))
      })()
      await eventually("the second stream", () => other[0])
      await catchUp(bob)
      await eventually("delivery", () => heard.includes("status WORKING") || undefined)
      await say(bob, alice, { metadata: { a2a: { state: "input-required" } }, content: { text: "which one?" } })
      await eventually("the question", () => heard.includes("status INPUT_REQUIRED") || undefined)
      assert.strictEqual(stateOf(await begin(client, message("the blue one", { taskId: id }))), "SUBMITTED")
      await eventually("the answer", () => heard.includes("status SUBMITTED") || undefined)
      await say(bob, alice, { content: { text: "done" } })
      await within("the end", Promise.all([stream, second]))
      assert.deepStrictEqual(heard.filter((one) => one !== "status WORKING"), [
        "task SUBMITTED",
        "status INPUT_REQUIRED",
        "status SUBMITTED",
        "artifact",
        "status COMPLETED"
      ])
      assert.deepStrictEqual(other.slice(1), heard.slice(1))
      const task = await get(client, id)
      assert.deepStrictEqual(task.history.map((one) => one.parts.map(({ content }) => content?.value)), [["go"], [
        "which one?"
      ], ["the blue one"]])
      const ended = await refusal(
        "SubscribeToTask",
        (async () => {
          for await (const _ of client.resubscribeTask({ tenant: "", id }));
        })()
      )
      assert.strictEqual(reasonOf(ended), "UNSUPPORTED_OPERATION", ended.message)
      assert.strictEqual(
        reasonOf(await refusal("SendMessage", begin(client, message("more", { taskId: id })))),
        "UNSUPPORTED_OPERATION"
      )
    })

    it("164. streams cut at any point are subscribed to again, and miss nothing", async () => {
      for (let round = 0; round < 6; round++) {
        const task = await begin(client, `round ${round}`)
        const heard: Array<string> = []
        const listen = async (): Promise<void> => {
          for (;;) {
            const cut = new AbortController()
            void elapse("some of the stream", 20 + Math.random() * 400).then(() => cut.abort())
            try {
              for await (const event of client.resubscribeTask({ tenant: "", id: task.id }, { signal: cut.signal }))
                heard.push(said(event))
              return
            } catch (error) {
              // It ended between two streams: the task says so.
              if (reasonOf(error as Error) === "UNSUPPORTED_OPERATION")
                return void heard.push(`task ${stateOf(await get(client, task.id))}`)
              if (!cut.signal.aborted) throw error
            }
          }
        }
        const listening = listen()
        await say(bob, alice, { metadata: { a2a: { task_id: task.id, state: "WORKING" } } })
        await say(bob, alice, { metadata: { reply_to: task.id } })
        await within("the end of the task", listening)
        assert.match(heard.at(-1) ?? "", /COMPLETED$/)
        const states = heard.filter((one) => one !== "artifact").map((one) => one.replace(/^\w+ /, ""))
        const order = ["SUBMITTED", "WORKING", "COMPLETED"]
        for (const [i, one] of states.entries())
          assert.isAtLeast(order.indexOf(one), order.indexOf(states[i - 1] ?? "SUBMITTED"))
      }
    })

    it("164. the same messageId many times at once is one message and one task", async () => {
      const given = message("once")
      const tasks = await Promise.all(Array.from({ length: 20 }, () => begin(client, given)))
      assert.lengthOf([...new Set(tasks.map(({ id }) => id))], 1)
      const found = (await history(bob, tasks[0]!.contextId)).filter(({ content }) => content.text === "once")
      assert.lengthOf(found, 1)
      await say(bob, alice, { metadata: { reply_to: tasks[0]!.id } })
      assert.strictEqual(stateOf(await begin(client, given)), "COMPLETED")
    })

    it("164. a cancelled task stays so; its agent sees it in later reads, and its reply is an ordinary message", async () => {
      const task = await begin(client, "never mind")
      const cancelled = await within("CancelTask", client.cancelTask({ tenant: "", id: task.id, metadata: undefined }))
      assert.strictEqual(stateOf(cancelled), "CANCELED")
      assert.strictEqual(stateOf(await client.cancelTask({ tenant: "", id: task.id, metadata: undefined })), "CANCELED")
      const seen = (await inbox(bob)).find(({ id }) => id === task.id)
      assert.deepInclude(seen?.metadata["a2a"] as object, { state: "CANCELED", task_id: task.id })
      await say(bob, alice, { metadata: { reply_to: task.id } })
      assert.strictEqual(stateOf(await get(client, task.id)), "CANCELED")
      const other = await begin(client, "another")
      await say(bob, alice, { metadata: { reply_to: other.id } })
      const refused = await refusal("CancelTask", client.cancelTask({ tenant: "", id: other.id, metadata: undefined }))
      assert.strictEqual(reasonOf(refused), "TASK_NOT_CANCELABLE", refused.message)
    })

    it("164. a reply, a state and a cancellation at the same instant have one outcome, whoever asks", async () => {
      for (let round = 0; round < 8; round++) {
        const task = await begin(client, `at once ${round}`)
        const [cancelled] = await Promise.all([
          client.cancelTask({ tenant: "", id: task.id, metadata: undefined }).then(
            stateOf,
            (error: Error) => String(reasonOf(error))
          ),
          say(bob, alice, { metadata: { a2a: { task_id: task.id, state: "FAILED" } } }),
          say(bob, alice, { metadata: { reply_to: task.id } })
        ])
        const states = new Set((await Promise.all(Array.from({ length: 8 }, () => get(client, task.id)))).map(stateOf))
        assert.lengthOf([...states], 1)
        const [state] = [...states]
        if (cancelled === "CANCELED") assert.strictEqual(state, "CANCELED")
        else {
          assert.strictEqual(cancelled, "TASK_NOT_CANCELABLE")
          assert.include(["FAILED", "COMPLETED"], state)
        }
      }
    })

    it("164. ListTasks shows the caller's tasks with this agent: newest change first, by pages, by state and by time", async () => {
      const pair = await newPair(server)
      const own = await connect(server, pair.alice, pair.bob, binding)
      const tasks: Array<Awaited<ReturnType<typeof begin>>> = []
      for (let i = 0; i < 5; i++) tasks.push(await begin(own, `task ${i}`))
      await say(pair.bob, pair.alice, { metadata: { reply_to: tasks[1]!.id } })
      const all = await own.listTasks(listing())
      assert.deepStrictEqual(all.tasks.map(({ id }) => id), [1, 4, 3, 2, 0].map((i) => tasks[i]!.id))
      assert.deepStrictEqual([all.totalSize, all.nextPageToken, all.tasks[0]?.artifacts.length], [5, "", 0])
      const pages: Array<string> = []
      for (let pageToken = "";;) {
        const page = await own.listTasks(listing({ pageSize: 2, pageToken }))
        pages.push(...page.tasks.map(({ id }) => id))
        pageToken = page.nextPageToken
        if (pageToken === "") break
      }
      assert.deepStrictEqual(pages, all.tasks.map(({ id }) => id))
      const completed = await own.listTasks(listing({ status: 3, includeArtifacts: true, historyLength: 0 }))
      assert.deepStrictEqual(completed.tasks.map((task) => [task.id, task.artifacts.length, task.history.length]), [[
        tasks[1]!.id,
        1,
        0
      ]])
      assert.lengthOf((await own.listTasks(listing({ contextId: "conv_other" }))).tasks, 0)
      const later = new Date(Date.parse(all.tasks[0]?.status?.timestamp ?? "") + 1).toISOString()
      assert.lengthOf((await own.listTasks(listing({ statusTimestampAfter: later }))).tasks, 0)
      for (const wrong of [{ pageSize: 0 }, { pageSize: 101 }, { pageToken: "forged" }]) {
        assert.strictEqual(reasonOf(await refusal("ListTasks", own.listTasks(listing(wrong)))), "INVALID_PARAMS")
      }
      for (
        const statusTimestampAfter of ["5", "Feb 30 2026", "2026-02-30T00:00:00Z", "2026-02-28T00:00:00", "2026-02-28"]
      ) {
        const { body } = await rpc(pair.alice.key, pair.bob.handle, "ListTasks", { statusTimestampAfter })
        assert.deepStrictEqual(
          [body.error?.code, body.error?.data[0].metadata.code],
          [-32_602, "VALIDATION_ERROR"],
          statusTimestampAfter
        )
      }
    })

    it("164. other callers' tasks, unknown ones and those of unknown agents look alike", async () => {
      const eve = await newAgent(server, "eve")
      const task = await begin(client, "a secret")
      const theirs = await connect(server, eve, bob, binding)
      const back = await connect(server, bob, alice, binding)
      const messages = new Set<string>()
      for (
        const [by, id] of [[theirs, task.id], [back, task.id], [client, "msg_AAAAAAAAAAAAAAAA"], [
          client,
          "x'--"
        ]] as const
      ) {
        for (
          const call of [
            () => get(by, id),
            () => by.cancelTask({ tenant: "", id, metadata: undefined }),
            () => begin(by, message("mine", { taskId: id }))
          ]
        ) {
          const error = await refusal("a foreign task", call())
          assert.strictEqual(reasonOf(error), "TASK_NOT_FOUND", error.message)
          messages.add(error.message)
        }
      }
      assert.lengthOf([...messages], 1)
      assert.strictEqual(stateOf(await get(client, task.id)), "SUBMITTED")
      assert.lengthOf((await theirs.listTasks(listing())).tasks, 0)
      await say(bob, alice, { metadata: { reply_to: task.id } })
    })

    it("164. parts become content and come back: text, data, several data, links that nobody fetches, one file", async () => {
      const part = (content: object, fields: object = {}) =>
        ({ content, metadata: undefined, filename: "", mediaType: "", ...fields }) as never
      const task = await begin(
        client,
        message("", {
          parts: [
            part({ $case: "text", value: "one" }),
            part({ $case: "text", value: "two" }),
            part({ $case: "data", value: { a: [1] } })
          ],
          metadata: { topic: "parts" }
        })
      )
      const [seen] = (await inbox(bob)).filter(({ id }) => id === task.id)
      assert.deepStrictEqual(seen?.content, { text: "one\ntwo", data: { a: [1] } })
      assert.deepStrictEqual(task.history[0]?.metadata, { topic: "parts" })
      await say(bob, alice, { metadata: { reply_to: task.id }, type: "structured", content: { data: { b: 2 } } })
      const answered = await get(client, task.id)
      assert.deepStrictEqual(answered.artifacts[0]?.parts[0]?.content, { $case: "data", value: { b: 2 } })

      const several = await begin(
        client,
        message("", {
          parts: [
            part({ $case: "data", value: [1, 2] }),
            part({ $case: "url", value: "http://127.0.0.1:9/never" }, { filename: "x" })
          ]
        })
      )
      const kept = (await inbox(bob)).find(({ id }) => id === several.id)
      assert.lengthOf((kept!.content.data as { parts: Array<unknown> }).parts, 2)
      assert.deepStrictEqual((await get(client, several.id)).history[0]?.parts.map(({ content }) => content), [
        { $case: "data", value: [1, 2] },
        { $case: "url", value: "http://127.0.0.1:9/never" }
      ])

      // The parts of the called agent, in the same place.
      const link = {
        url: "https://files.example/plan.pdf",
        filename: "plan.pdf",
        mediaType: "application/pdf",
        metadata: { page: 2 }
      }
      await say(bob, alice, {
        metadata: { reply_to: several.id },
        content: {
          text: "see",
          data: { parts: [link, { raw: "YQ==", mediaType: "image/png" }, { text: "x" }, { data: [1] }] }
        }
      })
      assert.deepStrictEqual((await get(client, several.id)).artifacts[0]?.parts, [
        part({ $case: "text", value: "see" }),
        part({ $case: "url", value: link.url }, {
          filename: link.filename,
          mediaType: link.mediaType,
          metadata: link.metadata
        }),
        part({ $case: "raw", value: Buffer.from("a") }, { mediaType: "image/png" }),
        part({ $case: "text", value: "x" }),
        part({ $case: "data", value: [1] })
      ])

      const file = part({ $case: "raw", value: Buffer.from("a file") }, {
        filename: "a.txt",
        mediaType: "TEXT/Plain; Charset=UTF-8; x=y"
      })
      const withFile = await begin(client, message("", { parts: [file] }))
      const found = (await inbox(bob)).find(({ id }) => id === withFile.id)
      assert.isString(found?.content.attachment_id)
      const shown = withFile.history[0]?.parts[0]
      assert.deepStrictEqual([shown?.filename, shown?.mediaType, shown?.content?.$case], [
        "a.txt",
        "text/plain; charset=utf-8",
        "url"
      ])
      const fetched = await fetch(String(shown?.content?.value))
      assert.deepStrictEqual([fetched.headers.get("content-type"), await fetched.text()], [
        "text/plain; charset=utf-8",
        "a file"
      ])
      const two = await refusal("two files", begin(client, message("", { parts: [file, file] })))
      assert.strictEqual(reasonOf(two), "CONTENT_TYPE_NOT_SUPPORTED", two.message)
      const strange = part({ $case: "raw", value: Buffer.from("x") }, {
        filename: "a.exe",
        mediaType: "application/x-msdownload"
      })
      assert.strictEqual(
        reasonOf(await refusal("an exe", begin(client, message("", { parts: [strange] })))),
        "CONTENT_TYPE_NOT_SUPPORTED"
      )
    })

    it("164. a refused send is an error with the wire's code, and never a task", async () => {
      const [carl, dora] = await Promise.all([newAgent(server, "carl"), newAgent(server, "dora")])
      const cold = await connect(server, carl, dora, binding)
      const first = await begin(cold, "hello")
      const awaiting = await refusal("a second cold message", begin(cold, "hello?"))
      assert.match(awaiting.message, /still unanswered/)
      assert.lengthOf((await cold.listTasks(listing())).tasks, 1)
      await dora.http.post(`/v1/contacts/${carl.handle}/block`)
      assert.match(
        (await refusal("a blocked send", begin(cold, message("again", { taskId: first.id })))).message,
        /blocked/
      )
      assert.strictEqual(
        reasonOf(await refusal("a foreign context", begin(client, message("x", { contextId: "conv_other" })))),
        "INVALID_PARAMS"
      )
      const same = message("x")
      assert.strictEqual(
        (await begin(client, same)).id,
        (await begin(client, { ...same, contextId: (await begin(client, same)).contextId })).id
      )
      const self = await connect(server, alice, alice, binding)
      assert.strictEqual(reasonOf(await refusal("to oneself", begin(self, "me"))), "INVALID_PARAMS")
    })
  })
}

describe("A2A and its posts", () => {
  let receiver: Receiver
  beforeAll(async () => {
    receiver = await Receiver.start()
  })
  afterAll(() => receiver?.stop())

  for (const binding of bindings) {
    it(`164. every change of a task is posted to its configurations, with token, credentials and signature (${binding})`, async () => {
      const { alice, bob } = await newPair(server)
      const client = await connect(server, alice, bob, binding)
      const path = `/all-${binding}`
      const authentication = { scheme: "Bearer", credentials: "open sesame" }
      const request = sending(message("with a configuration"), true)
      const config = pushTo(receiver.url(path), { id: "mine", token: "a token of hers", authentication })
      const task = await client.sendMessage({
        ...request,
        configuration: { ...request.configuration, taskPushNotificationConfig: config }
      }) as Awaited<ReturnType<typeof get>>
      assert.strictEqual(stateOf(task), "SUBMITTED")
      const stored = { ...config, taskId: task.id }
      assert.deepStrictEqual(
        await client.getTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "mine" }),
        stored
      )
      await catchUp(bob)
      await eventually("the first post", () => statesAt(receiver, path)[0])
      await say(bob, alice, {
        metadata: { a2a: { task_id: task.id, state: "INPUT_REQUIRED" } },
        content: { text: "which ones?" }
      })
      await eventually("the question", () => statesAt(receiver, path)[1])
      await say(bob, alice, { metadata: { reply_to: task.id }, content: { text: "done" } })
      await eventually("the end", () => statesAt(receiver, path)[2])
      assert.deepStrictEqual(statesAt(receiver, path), ["WORKING", "INPUT_REQUIRED", "COMPLETED"])
      const [first, second, last] = pushed(receiver, path)
      assert.strictEqual(answerOf(last!.task), "done")
      assert.deepStrictEqual([first!.task.id, second!.task.status?.message?.parts[0]?.content], [task.id, {
        $case: "text",
        value: "which ones?"
      }])
      const { headers, text } = last!.post
      assert.deepInclude(headers, {
        "content-type": "application/a2a+json",
        "x-a2a-notification-token": "a token of hers",
        authorization: "Bearer open sesame",
        "x-agentchat-event": "a2a.task"
      })
      const [, at, signature] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers["agentchat-signature"])) ?? []
      assert.strictEqual(signature, createHmac("sha256", "a token of hers").update(`${at}.${text}`).digest("hex"))
      assert.lengthOf(new Set(pushed(receiver, path).map(({ post }) => post.headers["x-agentchat-delivery"])), 3)
      const late = await refusal(
        "a configuration of a task that has ended",
        client.createTaskPushNotificationConfig({ ...config, taskId: task.id })
      )
      assert.strictEqual(reasonOf(late), "UNSUPPORTED_OPERATION", late.message)
    })

    it(`164. configurations are created, read, listed by pages, replaced and deleted, by their caller alone, up to a limit (${binding})`, async () => {
      const { alice, bob } = await newPair(server)
      const eve = await newAgent(server, "eve")
      const client = await connect(server, alice, bob, binding)
      const theirs = await connect(server, eve, bob, binding)
      const task = await begin(client, "configured later")
      const path = `/later-${binding}`
      const created = await client.createTaskPushNotificationConfig(pushTo(receiver.url(path), { taskId: task.id }))
      assert.match(created.id, /^push-[0-9a-f]{24}$/)
      const named = pushTo(receiver.url(`${path}-named`), { taskId: task.id, id: "named", token: "one" })
      await client.createTaskPushNotificationConfig(named)
      await client.createTaskPushNotificationConfig({ ...named, token: "two" })
      const third = await client.createTaskPushNotificationConfig(
        pushTo(receiver.url(`${path}-third`), { taskId: task.id })
      )
      const full = await refusal(
        "a fourth",
        client.createTaskPushNotificationConfig(pushTo(receiver.url(path), { taskId: task.id }))
      )
      assert.match(full.message, /limit on push notification configurations/)
      const { configs } = await client.listTaskPushNotificationConfig({
        tenant: "",
        taskId: task.id,
        pageSize: 0,
        pageToken: ""
      })
      assert.deepStrictEqual(configs, [created, { ...named, token: "two" }, third])
      if (binding === "JSONRPC") {
        const first = await client.listTaskPushNotificationConfig({
          tenant: "",
          taskId: task.id,
          pageSize: 2,
          pageToken: ""
        })
        const rest = await client.listTaskPushNotificationConfig({
          tenant: "",
          taskId: task.id,
          pageSize: 2,
          pageToken: first.nextPageToken
        })
        assert.deepStrictEqual([first.configs.length, rest.configs, rest.nextPageToken], [2, [third], ""])
      }
      for (const [by, taskId, id] of [[theirs, task.id, "named"], [client, "msg_AAAAAAAAAAAAAAAA", "named"]] as const) {
        const calls = {
          create: () => by.createTaskPushNotificationConfig({ ...named, taskId }),
          get: () => by.getTaskPushNotificationConfig({ tenant: "", taskId, id }),
          list: () => by.listTaskPushNotificationConfig({ tenant: "", taskId, pageSize: 0, pageToken: "" }),
          delete: () => by.deleteTaskPushNotificationConfig({ tenant: "", taskId, id })
        }
        for (const [what, call] of Object.entries(calls)) {
          const error = await refusal(what, call())
          assert.deepStrictEqual(
            [reasonOf(error), error.message.includes("no such task")],
            ["TASK_NOT_FOUND", true],
            error.message
          )
        }
      }
      const unknown = await refusal(
        "another",
        client.getTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "other" })
      )
      assert.strictEqual(reasonOf(unknown), "TASK_NOT_FOUND")
      for (const id of ["named", "named", "never"])
        await client.deleteTaskPushNotificationConfig({ tenant: "", taskId: task.id, id })
      await say(bob, alice, { metadata: { reply_to: task.id } })
      await eventually(
        "the posts",
        () => statesAt(receiver, path).at(-1) === "COMPLETED" && statesAt(receiver, `${path}-third`).at(-1)
      )
      assert.lengthOf(pushed(receiver, `${path}-named`), 0)
    })

    it(`164. a target that fails is tried again, until it is back (${binding})`, async () => {
      const { alice, bob } = await newPair(server)
      const client = await connect(server, alice, bob, binding)
      const path = `/fails-${binding}`
      receiver.answers.set(path, 500)
      const task = await begin(client, "to a target that is down")
      await client.createTaskPushNotificationConfig(pushTo(receiver.url(path), { taskId: task.id }))
      await say(bob, alice, { metadata: { reply_to: task.id } })
      await eventually("two attempts", () => pushed(receiver, path)[1])
      receiver.answers.set(path, 200)
      const before = pushed(receiver, path).length
      await eventually("another", () => pushed(receiver, path)[before])
      const ids = pushed(receiver, path).filter(({ task: { status } }) => status?.state === 3).map(({ post }) =>
        post.headers["x-agentchat-delivery"]
      )
      assert.lengthOf(new Set(ids), 1)
    })
  }

  it("164. an agent that hears by webhook works on what was posted to it, and completes it; a suspended one has no card and is called all the same", async () => {
    const { alice, bob } = await newPair(server)
    await bob.http.post("/v1/webhooks", { url: receiver.url("/bob"), events: ["message.new"] })
    const client = await connect(server, alice, bob, "JSONRPC")
    const task = await begin(client, "by webhook")
    const posted = await receiver.data("/bob", "message.new")
    assert.deepInclude((posted["metadata"] as { a2a: object }).a2a, { task_id: task.id })
    await eventually("the delivery", async () => stateOf(await get(client, task.id)) === "WORKING" || undefined)
    await say(bob, alice, { content: { text: "posted" } })
    assert.strictEqual(answerOf(await get(client, task.id)), "posted")

    assert.strictEqual((await adminHere(server.place, "agents", "suspend", bob.handle, "--reason", "a test")).code, 0)
    for (const key of [alice.key, undefined]) {
      await eventually("404", async () => {
        const response = await fetchAs(key)(`${baseOf(server, bob)}.well-known/agent-card.json`)
        await response.body?.cancel()
        return response.status === 404 || undefined
      })
    }
    assert.strictEqual(stateOf(await begin(client, "still")), "SUBMITTED")
  })
})

describe("the A2A endpoints over plain HTTP", () => {
  let alice: TestAgent
  let bob: TestAgent
  beforeAll(async () => {
    ;({ alice, bob } = await newPair(server))
  })

  const body = () => ({
    message: { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text: "hi" }] },
    configuration: { returnImmediately: true }
  })

  it("164. an absent or another version is refused, a patch number makes no difference", async () => {
    for (const version of [null, "0.3", "2.0", "1.1"]) {
      const answer = await rpc(alice.key, bob.handle, "SendMessage", body(), version)
      assert.strictEqual(answer.body.error?.code, -32_009, answer.text)
      const rest = await raw(alice.key, `/a2a/${bob.handle}/message:send`, {
        method: "POST",
        body: JSON.stringify(body())
      }, version)
      assert.deepStrictEqual([rest.status, rest.body.error.details[0].reason], [400, "VERSION_NOT_SUPPORTED"])
    }
    assert.property((await rpc(alice.key, bob.handle, "SendMessage", body(), "1.0.3")).body, "result")
    assert.property((await raw(alice.key, `/a2a/${bob.handle}/tasks?A2A-Version=1.0`, {}, null)).body, "tasks")
  })

  it("164. errors have the protocol's codes, with the wire's in their data, and 401 and 429 their statuses", async () => {
    const cases: ReadonlyArray<readonly [string, unknown, number, string]> = [
      ["Nothing", {}, -32_601, "METHOD_NOT_FOUND"],
      ["SendMessage", {}, -32_602, "VALIDATION_ERROR"],
      [
        "SendMessage",
        { message: { messageId: "x", role: "ROLE_AGENT", parts: [{ text: "x" }] } },
        -32_602,
        "VALIDATION_ERROR"
      ],
      ["SendMessage", { message: { messageId: "x", role: "ROLE_USER", parts: [{}] } }, -32_602, "VALIDATION_ERROR"],
      ["GetTask", { id: "msg_none" }, -32_001, "TASK_NOT_FOUND"],
      ["GetExtendedAgentCard", {}, -32_004, "UNSUPPORTED_OPERATION"]
    ]
    for (const [method, params, code, wire] of cases) {
      const { body, status } = await rpc(alice.key, bob.handle, method, params)
      assert.deepStrictEqual([status, body.id, body.error?.code, body.error?.data[0].metadata.code], [
        200,
        7,
        code,
        wire
      ], method)
    }
    assert.property((await rpc(alice.key, bob.handle, "ListTasks", null)).body, "result", "null counts as absent")
    for (const params of [[], "x", 1, false])
      assert.strictEqual((await rpc(alice.key, bob.handle, "ListTasks", params)).body.error?.code, -32_602)
    const unknown = await rpc(alice.key, "nobody-of-this-name", "SendMessage", body())
    assert.deepStrictEqual([unknown.body.error.code, unknown.body.error.data[0].metadata.code], [
      -32_000,
      "AGENT_NOT_FOUND"
    ])
    const none = await rpc(undefined, bob.handle, "ListTasks", {})
    assert.deepStrictEqual([none.status, none.headers.get("www-authenticate"), none.body.jsonrpc], [
      401,
      "Bearer",
      "2.0"
    ])
    const rest = await raw(undefined, `/a2a/${bob.handle}/tasks`)
    assert.deepStrictEqual([rest.status, rest.body.error.status], [401, "UNAUTHENTICATED"])
    for (const number of ["9007199254740993", "1e400", "1e-400"]) {
      const part = `"message":{"messageId":"x","role":"ROLE_USER","parts":[{"data":{"n":${number}}}]}`
      const overRpc = await raw(alice.key, `/a2a/${bob.handle}`, {
        method: "POST",
        body: `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{${part}}}`
      })
      assert.deepStrictEqual(
        [overRpc.status, overRpc.body.id, overRpc.body.error?.code],
        [200, 7, -32_602],
        overRpc.text
      )
      assert.match(overRpc.body.error.message, /^params\.message\.parts\.0\.data\.n: .*write it as a string$/)
      const overRest = await raw(alice.key, `/a2a/${bob.handle}/message:send`, { method: "POST", body: `{${part}}` })
      assert.deepStrictEqual([overRest.status, overRest.body.error?.status], [400, "INVALID_ARGUMENT"], overRest.text)
      assert.match(overRest.body.error.message, /^message\.parts\.0\.data\.n: .*write it as a string$/)
    }
    const strange = await raw(alice.key, `/a2a/${bob.handle}`, {
      method: "POST",
      body: `{"jsonrpc":"2.0","id":9007199254740993,"method":"ListTasks"}`
    })
    assert.deepStrictEqual(
      [strange.status, strange.body.id, strange.body.error?.code],
      [200, null, -32_600],
      strange.text
    )
    assert.match(strange.body.error.message, /^id: .*write it as a string$/)
    for (const [length, id, code] of [[256, "i".repeat(256), undefined], [257, null, -32_600]] as const) {
      const body = JSON.stringify({ jsonrpc: "2.0", id: "i".repeat(length), method: "ListTasks" })
      const answer = await raw(alice.key, `/a2a/${bob.handle}`, { method: "POST", body })
      assert.deepStrictEqual([answer.body.id, answer.body.error?.code], [id, code], answer.text)
    }
    for (const text of ["{", "[]", "7", '{"jsonrpc":"2.0","method":"GetTask"}']) {
      const answer = await raw(alice.key, `/a2a/${bob.handle}`, { method: "POST", body: text })
      assert.include([-32_700, -32_600], answer.body.error.code)
    }
  })

  it("164. a request that is refused before it reaches the protocol tells the official client why", async () => {
    const large = message("x".repeat(2_000_000))
    for (const binding of bindings) {
      const error = await refusal("a body that is too large", begin(await connect(server, alice, bob, binding), large))
      assert.match(error.message, /The body is larger than this server accepts/)
    }
    const much = "x".repeat(2_000_000)
    const cases = [["POST", much, 413, "PAYLOAD_TOO_LARGE"], ["DELETE", undefined, 405, "METHOD_NOT_ALLOWED"]] as const
    for (const [method, text, status, code] of cases) {
      const init = { method, ...(text === undefined ? {} : { body: text }) }
      const overRpc = await raw(alice.key, `/a2a/${bob.handle}`, init)
      assert.deepStrictEqual(
        [overRpc.status, overRpc.body.jsonrpc, overRpc.body.id, overRpc.body.error.data[0].metadata.code],
        [status, "2.0", null, code]
      )
      const overRest = await raw(alice.key, `/a2a/${bob.handle}/message:send`, init)
      assert.deepStrictEqual(
        [overRest.status, overRest.body.error.code, overRest.body.error.details[0].metadata.code],
        [status, status, code]
      )
    }
    const packed = { method: "POST", headers: { "content-encoding": "gzip" }, body: "{}" }
    const packedRpc = await raw(alice.key, `/a2a/${bob.handle}`, packed)
    assert.deepStrictEqual([packedRpc.status, packedRpc.body.error.data[0].metadata.code], [
      415,
      "UNSUPPORTED_ENCODING"
    ])
    const packedRest = await raw(alice.key, `/a2a/${bob.handle}/message:send`, packed)
    assert.deepStrictEqual([packedRest.status, packedRest.body.error.status], [415, "INVALID_ARGUMENT"])
    assert.strictEqual((await raw(alice.key, `/a2a/${bob.handle}/no/such/path`)).body.error.status, "NOT_FOUND")
    const limit = await refusal(
      "a message that is too large",
      begin(await connect(server, alice, bob, "JSONRPC"), "x".repeat(40_000))
    )
    assert.match(limit.message, /at most 32 KiB/)
  })

  it("164. a configuration that cannot be posted to is refused, in a send before there is a task", async () => {
    const client = await connect(server, alice, bob, "JSONRPC")
    const task = await begin(client, "no target")
    const before = (await client.listTasks(listing())).totalSize
    const good = { taskId: task.id, url: "https://example.com/hook" }
    for (
      const wrong of [
        { url: "http://10.0.0.1:9/hook" },
        { url: "http://169.254.169.254/latest" },
        { url: "ftp://example.com/hook" },
        { url: "https://user:password@example.com/" },
        { url: "" },
        { token: "two\r\nlines" },
        { id: "a/b" },
        { authentication: { scheme: "Bearer x: y", credentials: "z" } },
        { authentication: { scheme: "Bearer", credentials: "a\nb" } }
      ]
    ) {
      const config = { ...good, ...wrong }
      const created = await rpc(alice.key, bob.handle, "CreateTaskPushNotificationConfig", config)
      const { taskId: _, ...ofSend } = config
      const sent = await rpc(alice.key, bob.handle, "SendMessage", {
        ...body(),
        configuration: { returnImmediately: true, taskPushNotificationConfig: ofSend }
      })
      for (const answer of [created, sent])
        assert.strictEqual(answer.body.error?.code, -32_602, `${JSON.stringify(wrong)} ${answer.text}`)
    }
    assert.strictEqual((await client.listTasks(listing())).totalSize, before)
    assert.lengthOf(
      (await client.listTaskPushNotificationConfig({ tenant: "", taskId: task.id, pageSize: 0, pageToken: "" }))
        .configs,
      0
    )
  })

  it("164. names of the protocol's definition are understood like those of its JSON", async () => {
    const given = {
      message: { message_id: randomUUID(), role: "ROLE_USER", parts: [{ text: "snake" }] },
      configuration: { return_immediately: true }
    }
    const { body } = await rpc(alice.key, bob.handle, "SendMessage", given)
    assert.strictEqual(body.result.task.status.state, "TASK_STATE_SUBMITTED")
  })

  it("164. a plain sender's metadata makes no task, and a reply that names another message completes none", async () => {
    const client = await connect(server, alice, bob, "JSONRPC")
    const before = (await client.listTasks(listing())).totalSize
    const plain = await say(alice, bob, { metadata: { a2a: { task_id: "msg_AAAAAAAAAAAAAAAA", state: "COMPLETED" } } })
    assert.strictEqual((await client.listTasks(listing())).totalSize, before)
    const task = await begin(client, "mine")
    await say(alice, bob, { metadata: { a2a: { state: "COMPLETED" }, reply_to: task.id } })
    await say(bob, alice, { metadata: { reply_to: plain.id } })
    assert.strictEqual(stateOf(await get(client, task.id)), "SUBMITTED")
  })

  it("164. SubscribeToTask takes GET too, and the stream of a key that dies ends", async () => {
    const client = await connect(server, alice, bob, "HTTP+JSON")
    const task = await begin(client, "watch me")
    const response = await fetchAs(alice.key)(`${baseOf(server, bob)}tasks/${task.id}:subscribe`, {
      headers: { "A2A-Version": "1.0" }
    })
    assert.strictEqual(response.headers.get("content-type"), "text/event-stream")
    assert.strictEqual((await alice.http.delete(`/v1/agents/${alice.handle}`)).status, 200)
    const text = await within("the end of the stream", response.text())
    assert.match(text, /^data: \{"task":/)
  })
})
