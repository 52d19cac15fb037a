import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { Operating } from "../support/Operating.ts"
import { newAgent, type Server, sharedServer, startServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"
import { assertGolden } from "./Frames.ts"
import { freshMsgId } from "./Talk.ts"

interface Message {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
  readonly sender: string
  readonly type: string
  readonly content: { readonly text?: string; readonly data?: { readonly event?: string } }
  readonly metadata: Readonly<Record<string, unknown>>
  readonly created_at: string
}

interface Members {
  readonly deleted_at: string | null
  readonly members: ReadonlyArray<{ readonly handle: string; readonly role: string }>
}

describe("operators, groups and content (wire.md T)", () => {
  let server: Server
  let operator: Operating
  beforeAll(async () => {
    server = await sharedServer()
    operator = await Operating.program(server)
  })
  afterAll(() => server?.stop())

  /** Runs an operator's command, and returns its JSON. */
  const command = async (...args: ReadonlyArray<string>): Promise<Members> => {
    const { code, stderr, stdout } = await adminHere(
      { ...server.place, PORT: new URL(server.url).port },
      "groups",
      ...args,
      "--json"
    )
    assert.strictEqual(code, 0, stderr)
    return JSON.parse(stdout) as Members
  }

  /** A group of the first agent, which the others have joined. */
  const groupOf = async (...[creator, ...others]: ReadonlyArray<TestAgent>): Promise<string> => {
    const made = await creator!.http.post("/v1/groups", {
      name: "Watched",
      member_handles: others.map(({ handle }) => handle)
    })
    const { add_results, group } = made.body as {
      readonly group: { readonly id: string }
      readonly add_results: ReadonlyArray<{ readonly handle: string; readonly invite_id: string }>
    }
    for (const other of others) {
      const invite = add_results.find(({ handle }) => handle === other.handle)
      assert.strictEqual((await other.http.post(`/v1/groups/invites/${invite?.invite_id}/accept`)).status, 200)
    }
    return group.id
  }

  /** What the server has told an agent about the group, as [sender, event, agent, actor]. */
  const told = (socket: Socket, group: string) =>
    socket.frames.flatMap(({ payload, type }: Frame) => {
      if (type !== "message.new" || payload?.["conversation_id"] !== group) return []
      const { content, sender } = payload as {
        readonly sender: string
        readonly content: { readonly data?: Readonly<Record<string, unknown>> }
      }
      const { actor_handle, agent_handle, event } = content.data ?? {}
      return event === "member_joined" ? [] : [[sender, event, agent_handle, actor_handle]]
    })

  it("222. a member becomes admin, the creator is removed, and the group is deleted; all members hear it from system", async () => {
    const agents = await Promise.all(["ada", "ben", "cleo"].map((prefix) => newAgent(server, prefix)))
    const [ada, ben, cleo] = agents as [TestAgent, TestAgent, TestAgent]
    const group = await groupOf(ada, ben, cleo)
    const sockets = await Promise.all(agents.map(({ key }) => Socket.hello(server, key)))

    const promoted = await operator.ok<Members>("POST", `/groups/${group}/members/${cleo.handle}/promote`, {
      reason: "a test"
    })
    assert.deepInclude(promoted.members.map(({ handle, role }) => [handle, role]), [cleo.handle, "admin"])
    const removed = await command("remove", group, ada.handle)
    assert.sameMembers(removed.members.map(({ handle }) => handle), [ben.handle, cleo.handle])
    const unsure = await adminHere(server.place, "groups", "delete", group)
    assert.deepStrictEqual([unsure.code, unsure.stdout], [1, ""])
    assert.include(unsure.stderr, "--yes")
    assert.isNotNull((await command("delete", group, "--yes")).deleted_at)

    const before = [
      ["system", "admin_promoted", cleo.handle, "system"],
      ["system", "member_removed", ada.handle, "system"]
    ]
    const all = [...before, ["system", "group_deleted", undefined, "system"]]
    for (const [i, expected] of [before, all, all].entries()) {
      const socket = sockets[i]!
      await eventually("the messages", () => told(socket, group).length >= expected.length || undefined)
      assert.deepStrictEqual(told(socket, group), expected)
    }
    for (const agent of agents) (await agent.http.get(`/v1/groups/${group}`)).refused(410, "GROUP_DELETED")
    await Promise.all(sockets.map((socket) => socket.close()))

    const { entries } = await operator.ok<{
      readonly entries: ReadonlyArray<
        { readonly action: string; readonly agent: string | null; readonly detail: string }
      >
    }>("GET", `/audit?limit=20&looks=false`)
    const ours = entries.filter(({ detail }) => detail?.startsWith(group))
    assert.deepStrictEqual(ours.map(({ action, agent, detail }) => [action, agent, detail]), [
      ["delete group", null, group],
      ["remove member", ada.handle, group],
      ["make admin", cleo.handle, `${group}: a test`]
    ])
  })

  it("223. what is done already, or concerns nobody of the group, is refused and changes nothing", async () => {
    const [ada, ben] = await Promise.all(["ada", "ben"].map((prefix) => newAgent(server, prefix))) as [
      TestAgent,
      TestAgent
    ]
    const group = await groupOf(ada)
    const ask = (path: string) => operator.ask("POST", path, {})
    ;(await ask(`/groups/${group}/members/${ada.handle}/promote`)).refused(409, "CONFLICT")
    ;(await ask(`/groups/${group}/members/${ben.handle}/remove`)).refused(404, "NOT_FOUND")
    ;(await ask(`/groups/grp_0f1e2d3c4b5a6978/delete`)).refused(404, "NOT_FOUND")
    assert.lengthOf((await operator.ok<Members>("GET", `/groups/${group}`)).members, 1)
    // Its last member takes the group along.
    const emptied = await operator.ok<Members>("POST", `/groups/${group}/members/${ada.handle}/remove`, {})
    assert.isNotNull(emptied.deleted_at)
    ;(await ask(`/groups/${group}/delete`)).refused(409, "CONFLICT")
  })

  it("224. a removed message keeps its place, and nothing shows what it said", async () => {
    const [ada, ben] = await Promise.all(["ada", "ben"].map((prefix) => newAgent(server, prefix))) as [
      TestAgent,
      TestAgent
    ]
    const body = {
      to: ben.handle,
      content: { text: "the unspeakable heliotrope" },
      metadata: { reply_to: "msg_0f1e2d3c4b5a6978", note: "private", removed: { by: "operator", at: "never" } },
      client_msg_id: "removable"
    }
    const said = (await ada.http.post("/v1/messages", body)).body as Message
    const found = (agent: TestAgent) =>
      agent.http.get("/v1/messages/search?q=heliotrope").then(({ body }) =>
        (body as { readonly messages: ReadonlyArray<unknown> }).messages
      )
    assert.lengthOf(await found(ben), 1)
    const sockets = await Promise.all([ada, ben].map(({ key }) => Socket.hello(server, key)))

    await operator.ok("POST", `/messages/${said.id}/remove`, { reason: "a test" })
    const gone = { message_id: said.id, conversation_id: said.conversation_id, seq: said.seq }
    for (const socket of sockets) assert.deepStrictEqual((await socket.waitFor("message.removed")).payload, gone)
    await assertGolden("message.removed", await sockets[0]!.waitFor("message.removed"))
    await Promise.all(sockets.map((socket) => socket.close()))
    for (const agent of [ada, ben]) {
      const [row] = (await agent.http.get(`/v1/messages/${said.conversation_id}`)).body as ReadonlyArray<Message>
      assert.deepInclude(row, {
        id: said.id,
        seq: said.seq,
        sender: ada.handle,
        type: "text",
        content: {},
        created_at: said.created_at
      })
      const { removed, ...rest } = row?.metadata ?? {}
      assert.deepInclude(removed, { by: "operator" })
      assert.match((removed as { readonly at: string }).at, /Z$/)
      assert.deepStrictEqual(rest, { reply_to: "msg_0f1e2d3c4b5a6978" })
      assert.isEmpty(await found(agent))
    }
    const retried = await ada.http.post("/v1/messages", body)
    assert.deepStrictEqual([retried.status, (retried.body as Message).content], [200, {}])
    ;(await operator.ask("POST", `/messages/${said.id}/remove`, {})).refused(409, "CONFLICT")
    ;(await operator.ask("POST", "/messages/msg_0f1e2d3c4b5a6978/remove", {})).refused(404, "NOT_FOUND")
    assert.notInclude((await operator.ask("GET", "/audit?limit=20")).text, "heliotrope")
  })

  it("225. a file in quarantine is hidden from all, and visible again when it is released", async () => {
    const [ada, ben] = await Promise.all(["ada", "ben"].map((prefix) => newAgent(server, prefix))) as [
      TestAgent,
      TestAgent
    ]
    const bytes = Buffer.from("not for everybody")
    const made = (await ada.http.post("/v1/uploads", {
      to: ben.handle,
      filename: "a.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    })).body as { readonly attachment_id: string; readonly upload_url: string }
    assert.strictEqual((await fetch(made.upload_url, { method: "PUT", body: bytes })).status, 200)
    const send = () =>
      ada.http.post("/v1/messages", {
        to: ben.handle,
        type: "file",
        content: { attachment_id: made.attachment_id },
        client_msg_id: freshMsgId()
      })
    assert.strictEqual((await send()).status, 201)
    const seen = async () => (await ben.http.get(`/v1/attachments/${made.attachment_id}/info`)).status
    assert.strictEqual(await seen(), 200)
    const path = `/files/${made.attachment_id}`
    await operator.ok("POST", `${path}/quarantine`, { reason: "a test" })
    assert.strictEqual(await seen(), 404)
    ;(await operator.ask("POST", `${path}/quarantine`, {})).refused(404, "NOT_FOUND")
    await operator.ok("POST", `${path}/release`, {})
    assert.strictEqual(await seen(), 200)
    ;(await operator.ask("POST", `${path}/release`, {})).refused(404, "NOT_FOUND")
  })

  it("226. nobody can write to system, find it or act on it", async () => {
    const ada = await newAgent(server, "ada")
    await operator.ok("POST", `/groups/${await groupOf(ada)}/delete`, {})
    ;(await ada.http.get("/v1/agents/system")).refused(404, "AGENT_NOT_FOUND")
    ;(await ada.http.post("/v1/messages", { to: "system", content: { text: "Hello" }, client_msg_id: "1" }))
      .refused(404, "AGENT_NOT_FOUND")
    ;(await operator.ask("POST", "/agents/system/erase", { confirm: "system" })).refused(404, "NOT_FOUND")
    const { agents } = await operator.ok<{ readonly agents: ReadonlyArray<unknown> }>("GET", "/agents?handle=system")
    assert.isEmpty(agents)
  })
})

describe("announcements (wire.md T)", () => {
  it("227. all agents get one once each, also over a kill -9, can hide and mute it, and nobody can answer", async () => {
    const port = String(await freePort())
    const dataDir = mkdtempSync(join(tmpdir(), "parley-announcements-"))
    const server = await startServer({ dataDir, env: { PORT: port } })
    const stopped: Array<Server> = [server]
    try {
      const agents = await Promise.all(["ada", "ben", "cleo"].map((prefix) => newAgent(server, prefix)))
      const [ada, ben] = agents as [TestAgent, TestAgent, TestAgent]
      const operator = await Operating.signIn(server)
      interface Row {
        readonly id: string
        readonly told: number
        readonly finished_at: string | null
      }
      /** Announces a text to all, and waits until all are told. */
      const announce = async (on: Operating, text: string, between?: () => Promise<Operating>): Promise<void> => {
        const { id } = await on.ok<Row>("POST", "/announcements", { text })
        const then = await between?.() ?? on
        const done = await eventually("all agents to be told", async () => {
          const { announcements } = await then.ok<{ readonly announcements: ReadonlyArray<Row> }>(
            "GET",
            "/announcements"
          )
          return announcements.find((one) => one.id === id && one.finished_at !== null)
        })
        assert.strictEqual(done.told, 3)
      }
      const received = async (agent: TestAgent, url = server.url) => {
        const answer = await fetch(`${url}/v1/messages/sync?limit=500`, {
          headers: { authorization: `Bearer ${agent.key}` }
        })
        return await answer.json() as ReadonlyArray<Message>
      }
      const socket = await Socket.hello(server, ada.key)
      await announce(operator, "First, @ada")
      const [first] = await received(ben)
      assert.deepInclude(first, { sender: "system", type: "system", seq: 1 })
      assert.deepStrictEqual(
        first?.content,
        {
          text: "First, @ada",
          data: { schema_version: 1, event: "announcement" }
        } as Message["content"]
      )
      const pushed = await socket.waitFor("message.new")
      assert.deepInclude(pushed.payload, { sender: "system" })
      const conversation = String(pushed.payload?.["conversation_id"])
      ;(await ada.http.post("/v1/messages", { to: "system", content: { text: "Hello" }, client_msg_id: "a" }))
        .refused(404, "AGENT_NOT_FOUND")
      const history = await ada.http.get(`/v1/messages/${conversation}`)
      assert.strictEqual(history.status, 200)

      // Muted, the next one is stored and not pushed.
      assert.strictEqual(
        (await ada.http.post("/v1/mutes", { target_kind: "conversation", target_id: conversation })).status,
        201
      )
      const again = await (async () => {
        let restarted: Server | undefined
        await announce(operator, "Second", async () => {
          await server.kill()
          restarted = await startServer({ dataDir, env: { PORT: port } })
          stopped.push(restarted)
          return await Operating.signIn(restarted)
        })
        return restarted!
      })()
      for (const agent of agents) {
        assert.deepStrictEqual(
          (await received(agent, again.url)).map(({ content, seq }) => [seq, content.text]),
          [[1, "First, @ada"], [2, "Second"]]
        )
      }
      const told = await Operating.signIn(again)
      await told.ok("POST", `/agents/${ben.handle}/tell`, { text: "Only you" })
      assert.strictEqual((await received(ben, again.url)).at(-1)?.content.text, "Only you")
      assert.lengthOf(await received(ada, again.url), 2)
      ;(await told.ask("POST", "/announcements", { text: " " })).refused(400, "VALIDATION_ERROR")
      ;(await told.ask("POST", "/agents/nobody-at-all/tell", { text: "x" })).refused(404, "NOT_FOUND")
    } finally {
      for (const one of stopped) await one.stop().catch(() => undefined)
      rmSync(dataDir, { recursive: true, force: true })
    }
  })
})
