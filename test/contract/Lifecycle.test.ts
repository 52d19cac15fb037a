import { afterAll, assert, describe, it } from "@effect/vitest"
import { once } from "node:events"
import { rm } from "node:fs/promises"
import { connect, type Socket as TcpSocket } from "node:net"
import { answerOf, begin, connect as connectA2a, get, message, pushTo, stateOf, statesAt } from "../a2a/A2a.ts"
import { eventually, within } from "../support/Eventually.ts"
import { Moment } from "../support/Moment.ts"
import { MEASURES } from "../support/Promptly.ts"
import { Receiver } from "../support/Receiver.ts"
import { agentOf, makeDataDir, newAgent, type Server, startServer } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { freshMsgId, history, idsOf, inbox, newPair, say, words } from "./Talk.ts"

describe("A server that stops", () => {
  const folders: Array<string> = []
  const newFolder = async (): Promise<string> => {
    const folder = await makeDataDir()
    folders.push(folder)
    return folder
  }
  afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))))

  // A stopping server waits ten seconds for the rest of a request: a machine that is too busy for that does it again.
  const again = { retry: MEASURES ? 0 : 4 }
  it(
    "E.4, G.14: SIGTERM closes sockets with 1001 and lets requests in flight finish; everything is there afterwards",
    again,
    async () => {
      const dataDir = await newFolder()
      const server = await startServer({ dataDir })
      const { alice, bob, conversation } = await newPair(server)
      const lasting = await newAgent(server, "lasting")
      const present = await Socket.hello(server, lasting.key)
      ;(await lasting.http.request("PUT", "/v1/presence", { json: { status: "busy", custom_message: "back soon" } }))
        .ok(200, Shapes.Presence)
      const closing = new Moment()
      await present.close()
      const sockets = [
        await Socket.hello(server, bob.key),
        await Socket.hello(server, alice.key, []),
        await Socket.open(server)
      ]
      const before = await say(alice, bob)

      // A request whose body is only half there when the server is told to stop.
      const body = JSON.stringify({ to: bob.handle, client_msg_id: freshMsgId(), content: { text: words() } })
      const slow = connect(Number(new URL(server.url).port), "127.0.0.1")
      const response = readAll(slow)
      slow.write(
        `POST /v1/messages HTTP/1.1\r\nhost: parley\r\nauthorization: Bearer ${alice.key}\r\nconnection: close\r\n` +
          `expect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${
            body.slice(0, 10)
          }`
      )
      // Says that the server has taken the request.
      const [taken] = await within("the server's word to continue", once(slow, "data")) as [string]
      assert.match(taken, /^HTTP\/1\.1 100 /)

      server.terminate()
      await eventually("new connections to be refused", () => reaches(server.url).then((yes) => yes ? undefined : true))
      slow.write(body.slice(10))
      const text = await within("the answer to the request in flight", response)
      assert.match(text, /^HTTP\/1\.1 100 .*HTTP\/1\.1 201 /s)
      for (const socket of sockets) await socket.closedWith(1001)
      const stored = JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1)) as { id: string }
      await server.stop()

      const again = await startServer({ dataDir })
      const [alice2, bob2] = [agentOf(again, alice, alice.key), agentOf(again, bob, bob.key)]
      assert.deepStrictEqual(idsOf(await history(alice2, conversation)).slice(0, 2), [stored.id, before.id])
      assert.deepStrictEqual(idsOf(await inbox(bob2)), [before.id, stored.id])
      assert.strictEqual((await say(alice2, bob2)).seq, 5)
      const seen = (await again.http(lasting.key).get(`/v1/presence/${lasting.handle}`)).ok(200, Shapes.Presence)
      assert.deepInclude(seen, { status: "offline", custom_message: "back soon" })
      closing.has(seen.last_seen ?? "")
      await again.stop()
    }
  )

  it("every acknowledged message survives a SIGKILL, replays are still replays, and a deletion or a task that was under way goes on", async () => {
    const dataDir = await newFolder()
    const env = { WEBHOOK_ALLOW_PRIVATE: "loopback", WEBHOOK_RETRY_SECONDS: "1,1,1,1" }
    const server = await startServer({ dataDir, env })
    const tasks = await beginTasks(server)
    const { alice, bob, conversation } = await newPair(server)
    const sent = await Promise.all(Array.from({ length: 20 }, () => say(alice, bob)))
    const carol = await newAgent(server, "carol")
    await say(alice, carol)
    await bob.client.addContact(carol.handle)
    const groups = await Promise.all(["one", "two", "three"].map(async (name) => {
      const { group, add_results } =
        (await carol.http.post("/v1/groups", { name, member_handles: [bob.handle, alice.handle] }))
          .body as { group: { id: string }; add_results: ReadonlyArray<{ handle: string; invite_id: string }> }
      const invite = add_results.find(({ handle }) => handle === bob.handle) ?? assert.fail("no invite")
      assert.strictEqual((await bob.http.post(`/v1/groups/invites/${invite.invite_id}/accept`)).status, 200)
      return group.id
    }))
    // Dead in one statement; how far the rest gets before the kill is left to chance.
    const deleting = carol.http.delete(`/v1/agents/${carol.handle}`).catch(() => undefined)
    await eventually(
      "the end of the account",
      async () => (await bob.http.get(`/v1/agents/${carol.handle}`)).status === 404 || undefined
    )
    await server.kill()
    await deleting

    const again = await startServer({ dataDir, env })
    await tasks.goOn(again)
    const [alice2, bob2] = [agentOf(again, alice, alice.key), agentOf(again, bob, bob.key)]
    assert.strictEqual((await again.http(carol.key).get("/v1/agents/me")).status, 401)
    for (const id of groups) {
      await eventually(`carol to have left ${id}`, async () => {
        const { members, your_role } = (await bob2.http.get(`/v1/groups/${id}`)).body as {
          members: ReadonlyArray<{ handle: string }>
          your_role: string
        }
        return members.length === 1 && your_role === "admin" || undefined
      })
    }
    assert.deepStrictEqual((await alice2.http.get("/v1/groups/invites")).body, [])
    assert.notInclude((await bob2.http.get("/v1/contacts")).text, carol.handle)
    const rows = await history(bob2, conversation, "?after_seq=2")
    assert.deepStrictEqual(rows.map((row) => row.seq), sent.map((_, i) => i + 3))
    assert.sameMembers([...idsOf(rows)], [...idsOf(sent)])
    const one = sent[7] ?? assert.fail("no message")
    const replay = await alice2.http.post("/v1/messages", {
      to: bob.handle,
      client_msg_id: one.client_msg_id,
      content: { text: words() }
    })
    assert.deepStrictEqual(replay.ok(200, Shapes.Message), one)
    await newAgent(again, "later")
    await again.stop()
  })
})

/** Tasks of A2A, one of which is answered and two of which wait when the server is killed. */
const beginTasks = async (server: Server) => {
  const receiver = await Receiver.start()
  receiver.answers.set("/down", 503)
  const { alice, bob } = await newPair(server)
  const before = await connectA2a(server, alice, bob, "JSONRPC")
  const waits = await begin(before, "before")
  const given = message("twice")
  const twice = await begin(before, given)
  await before.createTaskPushNotificationConfig(pushTo(receiver.url("/down"), { taskId: waits.id }))
  const answered = await begin(before, "answered before the end")
  await before.createTaskPushNotificationConfig(pushTo(receiver.url("/up"), { taskId: answered.id }))
  // Nobody has taken it into account yet, or somebody has: it is posted all the same.
  await say(bob, alice, { metadata: { reply_to: answered.id } })
  /** They wait, are answered and cancelled as if nothing had been. */
  const goOn = async (again: Server): Promise<void> => {
    try {
      await eventually("the answer of before", () => statesAt(receiver, "/up").at(-1) === "COMPLETED" || undefined)
      const [caller, called] = [agentOf(again, alice, alice.key), agentOf(again, bob, bob.key)]
      const after = await connectA2a(again, caller, called, "HTTP+JSON")
      assert.strictEqual(stateOf(await get(after, waits.id)), "SUBMITTED")
      assert.strictEqual((await begin(after, given)).id, twice.id)
      await say(called, caller, { content: { text: "after" } })
      assert.strictEqual(answerOf(await get(after, waits.id)), "after")
      assert.strictEqual(stateOf(await after.cancelTask({ tenant: "", id: twice.id, metadata: undefined })), "CANCELED")
      await eventually("an attempt that fails", () => statesAt(receiver, "/down")[0])
      receiver.answers.set("/down", 200)
      const failed = statesAt(receiver, "/down").length
      await eventually("one that does not", () => statesAt(receiver, "/down")[failed])
    } finally {
      receiver.stop()
    }
  }
  return { goOn }
}

const readAll = (socket: TcpSocket): Promise<string> =>
  new Promise((resolve, reject) => {
    let text = ""
    socket.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => resolve(text)).on(
      "error",
      reject
    )
  })

/** Whether a new connection is accepted. */
const reaches = (url: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1")
    socket.on("connect", () => resolve(true)).on("error", () => resolve(false))
    socket.on("connect", () => socket.destroy())
  })
