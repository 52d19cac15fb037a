import { afterAll, assert, describe, it } from "@effect/vitest"
import { once } from "node:events"
import { rm } from "node:fs/promises"
import { connect, type Socket as TcpSocket } from "node:net"
import { eventually, within } from "../support/Eventually.ts"
import { agentOf, makeDataDir, newAgent, startServer } from "../support/Server.ts"
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

  it("E.4: SIGTERM closes sockets with 1001 and lets requests in flight finish; everything is there afterwards", async () => {
    const dataDir = await newFolder()
    const server = await startServer({ dataDir })
    const { alice, bob, conversation } = await newPair(server)
    const sockets = [await Socket.hello(server, bob.key), await Socket.hello(server, alice.key, []), await Socket.open(server)]
    const before = await say(alice, bob)

    // A request whose body is only half there when the server is told to stop.
    const body = JSON.stringify({ to: bob.handle, client_msg_id: freshMsgId(), content: { text: words() } })
    const slow = connect(Number(new URL(server.url).port), "127.0.0.1")
    const response = readAll(slow)
    slow.write(
      `POST /v1/messages HTTP/1.1\r\nhost: parley\r\nauthorization: Bearer ${alice.key}\r\nconnection: close\r\n` +
        `expect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body.slice(0, 10)}`
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
    await again.stop()
  })

  it("what was acknowledged survives a SIGKILL, replays are still replays, and a deletion that was under way is finished", async () => {
    const dataDir = await newFolder()
    const server = await startServer({ dataDir })
    const { alice, bob, conversation } = await newPair(server)
    const sent = await Promise.all(Array.from({ length: 20 }, () => say(alice, bob)))
    const carol = await newAgent(server, "carol")
    await say(alice, carol)
    await bob.client.addContact(carol.handle)
    const groups = await Promise.all(["one", "two", "three"].map(async (name) => {
      const { group, add_results } = (await carol.http.post("/v1/groups", { name, member_handles: [bob.handle, alice.handle] }))
        .body as { group: { id: string }; add_results: ReadonlyArray<{ handle: string; invite_id: string }> }
      const invite = add_results.find(({ handle }) => handle === bob.handle) ?? assert.fail("no invite")
      assert.strictEqual((await bob.http.post(`/v1/groups/invites/${invite.invite_id}/accept`)).status, 200)
      return group.id
    }))
    // Dead in one statement; how far the rest gets before the kill is left to chance.
    const deleting = carol.http.delete(`/v1/agents/${carol.handle}`).catch(() => undefined)
    await eventually("the end of the account", async () =>
      (await bob.http.get(`/v1/agents/${carol.handle}`)).status === 404 || undefined)
    await server.kill()
    await deleting

    const again = await startServer({ dataDir })
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

const readAll = (socket: TcpSocket): Promise<string> =>
  new Promise((resolve, reject) => {
    let text = ""
    socket.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => resolve(text)).on("error", reject)
  })

/** Whether a new connection is accepted. */
const reaches = (url: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1")
    socket.on("connect", () => resolve(true)).on("error", () => resolve(false))
    socket.on("connect", () => socket.destroy())
  })
