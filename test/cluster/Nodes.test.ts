import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { hkdfSync } from "node:crypto"
import { once } from "node:events"
import { readdirSync } from "node:fs"
import { createServer } from "node:http"
import { type AddressInfo, connect } from "node:net"
import { networkInterfaces } from "node:os"
import { connect as connectTls } from "node:tls"
import { Client } from "pg"
import { admin } from "../support/Admin.ts"
import { freshDatabase } from "../support/Databases.ts"
import { eventually, within } from "../support/Eventually.ts"
import { metric } from "../support/Metrics.ts"
import { attempt, Cluster, missingForNodes, on, send, type Sent } from "../support/Nodes.ts"
import { promptly } from "../support/Promptly.ts"
import { newAgent, parley, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"

describe.skipIf(missingForNodes !== "")(`nodes${missingForNodes}`, () => {
  let cluster: Cluster
  let one: Server
  let two: Server
  beforeAll(async () => {
    cluster = await Cluster.start(2, {
      WEBHOOK_ALLOW_PRIVATE: "loopback",
      WEBHOOK_TIMEOUT_SECONDS: "60",
      DATABASE_URL: await freshDatabase(18, "empty")
    })
    ;[one, two] = cluster.pair
  })
  afterAll(() => cluster?.stop())

  it("start together on an empty database, and one of them creates the tables", async () => {
    const made = [one, two].flatMap(({ stderr }) => stderr.match(/Creating the database/g) ?? [])
    assert.isAtLeast(made.length, 1)
    const client = new Client(cluster.env["DATABASE_URL"])
    await client.connect()
    const { rows } = await client.query("SELECT name FROM migrations ORDER BY id").finally(() => client.end())
    assert.deepStrictEqual(rows.map(({ name }: { readonly name: string }) => name), readdirSync("schema").sort())
  })

  it("messages reach sockets on the other node, whoever owns the conversation, in order and once", async () => {
    const sender = await newAgent(one, "ada")
    const recipients = await Promise.all(Array.from({ length: 6 }, () => newAgent(two, "bob")))
    for (const recipient of recipients) {
      const there = await Socket.hello(two, recipient.key)
      const here = await Socket.hello(one, recipient.key)
      const echo = await Socket.hello(two, sender.key)
      const opener = await send(sender, { to: recipient.handle }, "the first word")
      await there.message(opener.id)
      await send(on(one, recipient), { to: sender.handle }, "an answer")
      const sent = [opener]
      for (let i = 0; i < 5; i++) sent.push(await send(sender, { to: recipient.handle }, `word ${i}`))
      for (const socket of [there, here, echo]) {
        for (const { id } of sent) await socket.message(id)
        const pushed = socket.pushed().filter((id) => sent.some((one) => one.id === id))
        assert.deepStrictEqual(pushed, sent.map(({ id }) => id))
      }
      await Promise.all([there.close(), here.close(), echo.close()])
    }
  })

  it("sends to conversations of the other node share calls", async () => {
    const carried = async () => {
      const { text } = await one.http().get("/internal/metrics")
      return { calls: metric(text, "remote_call_batch_size_count"), sends: metric(text, "remote_call_batch_size_sum") }
    }
    const sender = await newAgent(one, "ada")
    const before = await carried()
    let after = before
    // Half of all conversations are there, so that one of these is not by misfortune alone.
    for (let tries = 0; tries < 30 && after.sends - before.sends < 30; tries++) {
      const recipient = await newAgent(one, "bob")
      await send(sender, { to: recipient.handle }, "the first word")
      await send(recipient, { to: sender.handle }, "an answer")
      await Promise.all(Array.from({ length: 40 }, (_, i) => send(sender, { to: recipient.handle }, `word ${i}`)))
      after = await carried()
    }
    assert.isAtLeast(after.sends - before.sends, 30)
    assert.isBelow(after.calls - before.calls, after.sends - before.sends)
  })

  it("a group's messages and changes reach members on both nodes", async () => {
    const admin = await newAgent(one, "admin")
    const members = await Promise.all([newAgent(one, "near"), newAgent(two, "far")])
    const invited = members.map((member) => member.handle)
    const made = await admin.http.post("/v1/groups", { name: "Both sides", member_handles: invited })
    const { add_results, group } = made.body as { group: { id: string }; add_results: Array<{ invite_id: string }> }
    const sockets = [await Socket.hello(one, members[0]!.key), await Socket.hello(two, members[1]!.key)]
    for (const [i, { invite_id }] of add_results.entries()) {
      const accepted = await members[i]!.http.post(`/v1/groups/invites/${invite_id}/accept`)
      assert.strictEqual(accepted.status, 200, `${accepted}`)
    }
    const sent: Array<Sent> = []
    for (let i = 0; i < 6; i++) {
      sent.push(await send(on(i % 2 === 0 ? one : two, admin), { conversation_id: group.id }, `to all ${i}`))
    }
    assert.deepStrictEqual(sent.map(({ seq }) => seq), sent.map((_, i) => sent[0]!.seq + i))
    for (const socket of sockets) {
      for (const { id } of sent) await socket.message(id)
      assert.deepStrictEqual(socket.pushed().filter((id) => sent.some((m) => m.id === id)), sent.map(({ id }) => id))
    }
    const left = await on(two, members[0]!).http.post(`/v1/groups/${group.id}/leave`)
    assert.strictEqual(left.status, 200, `${left}`)
    await sockets[1]!.waitFor((frame) => JSON.stringify(frame).includes("member_left"))
    await Promise.all(sockets.map((socket) => socket.close()))
  })

  it("a name that was changed on one node is shown by the other at once, and by what is sent there", async () => {
    interface Named {
      readonly id: string
      readonly context: { readonly sender: { readonly display_name: string } }
    }
    const [ada, bob] = [await newAgent(one, "ada"), await newAgent(one, "bob")]
    await send(ada, { to: bob.handle }, "the first word")
    await send(bob, { to: ada.handle }, "an answer")
    const made = (await ada.http.post("/v1/groups", { name: "Named", member_handles: [bob.handle] })).body as {
      readonly group: { readonly id: string }
      readonly add_results: ReadonlyArray<{ readonly invite_id: string }>
    }
    const accepted = await bob.http.post(`/v1/groups/invites/${made.add_results[0]?.invite_id}/accept`)
    assert.strictEqual(accepted.status, 200, `${accepted}`)
    const sockets = [
      await Socket.hello(one, bob.key),
      await Socket.hello(two, bob.key),
      await Socket.hello(one, ada.key)
    ]
    for (const name of ["Ada", "Ada the Second"]) {
      // So that the other node has it in its cache.
      assert.strictEqual((await on(two, ada).http.get("/v1/agents/me")).status, 200)
      const changed = await ada.http.patch(`/v1/agents/${ada.handle}`, { display_name: name })
      assert.strictEqual(changed.status, 200, `${changed}`)
      const ways = [{ to: bob.handle }, { conversation_id: made.group.id }]
      const answers = await Promise.all(ways.map((to) => attempt(on(two, ada), to, "under a new name")))
      for (const answer of answers) {
        assert.isBelow(answer.status, 300, `${answer}`)
        const message = answer.body as Named
        for (const socket of sockets) {
          const { payload } = await socket.message(message.id)
          assert.strictEqual((payload as unknown as Named).context.sender.display_name, name)
        }
        assert.strictEqual(message.context.sender.display_name, name)
      }
      const shown = (await on(two, ada).http.get("/v1/agents/me")).body as { readonly display_name: string }
      assert.strictEqual(shown.display_name, name)
    }
    await Promise.all(sockets.map((socket) => socket.close()))
  })

  it("typing, reads, mutes and blocks hold across nodes", async () => {
    const [ada, bob] = [await newAgent(one, "ada"), await newAgent(two, "bob")]
    const first = await send(ada, { to: bob.handle }, "the first word")
    await send(bob, { to: ada.handle }, "an answer")
    const [adas, bobs] = [await Socket.hello(one, ada.key), await Socket.hello(two, bob.key)]
    await bobs.message(first.id)
    adas.send({ type: "typing.start", payload: { conversation_id: first.conversation_id } })
    await bobs.waitFor("typing.start")
    bobs.send({ type: "message.read_ack", payload: { conversation_id: first.conversation_id, through_seq: 1 } })
    await adas.waitFor("message.read")

    // Muted on the node that does not have the socket.
    const muted = await on(one, bob).http.post("/v1/mutes", { target_kind: "agent", target_handle: ada.handle })
    assert.strictEqual(muted.status, 201, `${muted}`)
    const unheard = await send(ada, { to: bob.handle }, "not to be shown")
    const lifted = await on(one, bob).http.delete(`/v1/mutes/agent/${ada.handle}`)
    assert.isBelow(lifted.status, 300, `${lifted}`)
    const heard = await send(ada, { to: bob.handle }, "to be shown again")
    await bobs.message(heard.id)
    assert.notInclude(bobs.pushed(), unheard.id)

    const blocked = await on(one, bob).http.post(`/v1/contacts/${ada.handle}/block`)
    assert.strictEqual(blocked.status, 200, `${blocked}`)
    for (const node of [one, two]) {
      ;(await attempt(on(node, ada), { to: bob.handle }, "no")).refused(403, "BLOCKED")
    }
    await Promise.all([adas.close(), bobs.close()])
  })

  it("presence is the same on every node, and contacts are notified on their own node", async () => {
    const [ada, bob] = [await newAgent(one, "ada"), await newAgent(two, "bob")]
    await send(ada, { to: bob.handle }, "the first word")
    await send(bob, { to: ada.handle }, "an answer")
    const bobs = await Socket.hello(two, bob.key)
    const of = (status: string) => (frame: Frame) =>
      frame.type === "presence.update" && frame.payload?.["handle"] === ada.handle && frame.payload["status"] === status
    const status = async (node: Server) =>
      ((await on(node, bob).http.get(`/v1/presence/${ada.handle}`)).body as { readonly status: string }).status
    const [first, second] = [await Socket.hello(one, ada.key), await Socket.hello(two, ada.key)]
    await bobs.waitFor(of("online"))
    assert.deepStrictEqual([await status(one), await status(two)], ["online", "online"])
    await first.close()
    // With the socket on the other node it stays online.
    await second.settled()
    assert.deepStrictEqual([await status(one), await status(two)], ["online", "online"])
    await second.close()
    await bobs.waitFor(of("offline"))
    assert.deepStrictEqual([await status(one), await status(two)], ["offline", "offline"])
    await bobs.close()
  })

  it("a key that is rotated, an account that is suspended or deleted ends the sockets on every node within a second", async () => {
    const ends = async (agent: TestAgent, act: () => Promise<unknown>) => {
      const sockets = [await Socket.hello(one, agent.key), await Socket.hello(two, agent.key)]
      assert.strictEqual((await on(two, agent).http.get("/v1/agents/me")).status, 200)
      await act()
      await promptly("the ends", [one, two], Promise.all(sockets.map((socket) => socket.closedWith(1008))), 1_000)
    }
    const rotated = await newAgent(one, "rotated")
    await ends(rotated, async () => {
      const begun = await rotated.http.post(`/v1/agents/${rotated.handle}/rotate-key`)
      const { pending_id } = begun.body as { pending_id: string }
      const path = `/v1/agents/${rotated.handle}/rotate-key/verify`
      const done = await rotated.http.post(path, { pending_id, code: await one.code(rotated.email) })
      assert.strictEqual(done.status, 200, `${done}`)
      ;(await on(two, rotated).http.get("/v1/agents/me")).refused(401, "UNAUTHORIZED")
    })
    const deleted = await newAgent(two, "deleted")
    await ends(deleted, async () => {
      assert.isBelow((await deleted.http.delete(`/v1/agents/${deleted.handle}`)).status, 300)
      ;(await on(one, deleted).http.get("/v1/agents/me")).refused(401, "UNAUTHORIZED")
    })
    const suspended = await newAgent(one, "suspended")
    await ends(suspended, async () => {
      await admin(cluster.env, "agents", "suspend", suspended.handle)
      for (const node of [one, two]) {
        ;(await attempt(on(node, suspended), { to: rotated.handle }, "no")).refused(403, "AGENT_SUSPENDED")
      }
    })
  })

  it("a peer without the secret cannot speak to a node, and two nodes cannot have one address", async () => {
    const port = cluster.runnerPort(one)
    const psk = (secret: string) => Buffer.from(hkdfSync("sha256", secret, "", "parley between nodes", 32))
    const handshake = (secret: string) =>
      new Promise<boolean>((resolve) => {
        const socket = connectTls({
          host: "127.0.0.1",
          port,
          ciphers: "ECDHE-PSK-CHACHA20-POLY1305",
          maxVersion: "TLSv1.2",
          pskCallback: () => ({ psk: psk(secret), identity: "parley" }),
          checkServerIdentity: () => undefined
        })
        socket.on("secureConnect", () => {
          socket.destroy()
          resolve(true)
        })
        socket.on("error", () => resolve(false))
      })
    assert.isTrue(await handshake(cluster.env["RUNNER_SECRET"] ?? ""))
    assert.isFalse(await handshake("a guess"))
    // Unless RUNNER_HOST says so, it listens on no other address of the machine.
    const others = Object.values(networkInterfaces()).flat().flatMap((one) =>
      one?.family === "IPv4" && one.address !== "127.0.0.1" ? [one.address] : []
    )
    for (const host of [...others, "127.0.0.2"]) {
      const reached = connect({ host, port, timeout: 1_000 })
      assert.isFalse(
        await new Promise((resolve) => {
          for (const event of ["error", "timeout"]) reached.once(event, () => resolve(false))
          reached.once("connect", () => resolve(true))
        }),
        host
      )
      reached.destroy()
    }
    const plain = connect(port, "127.0.0.1", () => plain.write("hello\n"))
    plain.on("error", () => undefined)
    await within("the end of a plain connection", new Promise((resolve) => plain.once("close", resolve)))

    const failure = await startServer({
      program: parley("runner"),
      env: { ...cluster.env, RUNNER_PORT: String(port) }
    }).then(() => "", String)
    assert.include(failure, `RUNNER_PORT ${port} on 127.0.0.1 is in use`)
  })

  it("a webhook posts what was sent through the other node, once", async () => {
    const posts: Array<string> = []
    const receiver = createServer((request, response) => {
      let body = ""
      request.setEncoding("utf8").on("data", (part: string) => body += part).on("end", () => {
        posts.push(body)
        response.end()
      })
    }).listen(0, "127.0.0.1")
    try {
      await once(receiver, "listening")
      const { port } = receiver.address() as AddressInfo
      const ada = await newAgent(one, "ada")
      const targets = await Promise.all(Array.from({ length: 4 }, () => newAgent(two, "hooked")))
      const sent: Array<Sent> = []
      for (const target of targets) {
        const made = await target.http.post("/v1/webhooks", {
          url: `http://127.0.0.1:${port}/`,
          events: ["message.new"]
        })
        assert.strictEqual(made.status, 201, `${made}`)
        sent.push(await send(ada, { to: target.handle }, "to be posted"))
      }
      const count = (id: string) => posts.filter((body) => body.includes(id)).length
      // The sweep of the outbox would take longer.
      const posted = eventually("the posts", () => sent.every(({ id }) => count(id) > 0) || undefined)
      await promptly("the posts", [one, two], posted, 3_000)
      assert.deepStrictEqual(sent.map(({ id }) => count(id)), sent.map(() => 1))
    } finally {
      receiver.close()
      receiver.closeAllConnections()
    }
  })
})
