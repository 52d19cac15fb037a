import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Client } from "@modelcontextprotocol/client"
import { inbox, newPair, say } from "../contract/Talk.ts"
import { elapse, eventually, within } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { call, connect, granted, type Json, older, post, refusalIn, refused, rpc } from "./Mcp.ts"

const wait = (args: object = {}) => rpc("tools/call", { name: "agentchat_wait_for_messages", arguments: args })

/** Whether the agent has a socket or a wait, as one that has it as a contact sees it. */
const isOnline = async (viewer: TestAgent, agent: TestAgent): Promise<boolean> =>
  ((await viewer.http.get(`/v1/presence/${agent.handle}`)).body as { readonly status: string }).status === "online"

describe("waiting on /mcp", () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  let conversation: string
  let mcp: Client

  beforeAll(async () => {
    server = await sharedServer()
    ;({ alice, bob, conversation } = await newPair(server))
    mcp = await connect(server, bob)
    await alice.http.post("/v1/contacts", { handle: bob.handle })
  })
  afterAll(async () => {
    await mcp.close()
    await server.stop()
  })

  /** Acknowledges all that waits. */
  const clear = async (): Promise<void> => {
    const last = (await inbox(bob)).at(-1)
    if (last !== undefined) await granted(mcp, "agentchat_acknowledge", { last_delivery_id: last.delivery_id })
  }

  it("a message ends a wait, a socket of the same agent gets it too, and what one acknowledges the other has acknowledged", async () => {
    await clear()
    const socket = await Socket.hello(server, bob.key)
    const waiting = granted(mcp, "agentchat_wait_for_messages", { timeout_seconds: 50 })
    await eventually("the wait", async () => (await isOnline(alice, bob)) || undefined)
    const said = await say(alice, bob)
    await socket.message(said.id)
    const waited = await waiting
    assert.deepStrictEqual(waited["messages"].map((one: Json) => one.message_id), [said.id])
    socket.send({ type: "ack", message_id: said.id })
    await eventually("the acknowledgement", async () => (await inbox(bob)).length === 0 || undefined)
    assert.strictEqual(
      (await granted(mcp, "agentchat_wait_for_messages", { timeout_seconds: 1 }))["outcome"],
      "timeout"
    )
    await socket.close()
  })

  it("a message that is committed while a wait attaches is in its answer", async () => {
    await clear()
    let through: string | undefined
    for (let i = 0; i < 10; i++) {
      const waiting = granted(mcp, "agentchat_wait_for_messages", {
        timeout_seconds: 30,
        ...(through === undefined ? {} : { acknowledge_through: through })
      })
      const said = await say(alice, bob)
      const waited = await waiting
      assert.deepStrictEqual([waited["outcome"], waited["messages"].map((one: Json) => one.message_id)], ["messages", [
        said.id
      ]])
      through = waited["acknowledge_through"]
    }
  })

  it("a muted message does not end a wait, and is in the answer", async () => {
    await clear()
    const dave = await newAgent(server, "dave")
    await bob.http.post("/v1/mutes", { target_kind: "agent", target_handle: alice.handle })
    const waiting = granted(mcp, "agentchat_wait_for_messages", { timeout_seconds: 50 })
    const muted = await say(alice, bob)
    const heard = await say(dave, bob)
    assert.deepStrictEqual((await waiting)["messages"].map((one: Json) => one.message_id), [muted.id, heard.id])
    await clear()
    const silent = await say(alice, bob)
    const over = await granted(mcp, "agentchat_wait_for_messages", { timeout_seconds: 1 })
    assert.deepStrictEqual([over["outcome"], over["messages"].map((one: Json) => one.message_id)], ["timeout", [
      silent.id
    ]])
    await bob.http.delete(`/v1/mutes/agent/${alice.handle}`)
    await clear()
  })

  it("a caller that hangs up acknowledges nothing and gives its place back; 20 wait at once and no more", async () => {
    const carol = await newAgent(server, "carol")
    const ends = Array.from({ length: 20 }, () => new AbortController())
    // One that is refused because the client below was faster asks again.
    const hang = async (signal: AbortSignal): Promise<void> => {
      while (!signal.aborted) {
        await fetch(`${server.url}/mcp`, {
          method: "POST",
          signal,
          headers: { authorization: `Bearer ${carol.key}`, "content-type": "application/json", ...older },
          body: JSON.stringify(wait({ timeout_seconds: 50 }))
        }).then((answer) => answer.text()).catch(() => undefined)
        await elapse("the time between two tries", 50)
      }
    }
    const hanging = ends.map(({ signal }) => hang(signal))
    const client = await connect(server, carol)
    await eventually("the last place is taken", async () => {
      const { result } = await call(client, "agentchat_wait_for_messages", { timeout_seconds: 1 })
      return result.isError === true || undefined
    })
    await refused(client, "agentchat_wait_for_messages", { timeout_seconds: 1 }, "RATE_LIMITED")
    for (const end of ends) end.abort()
    await Promise.all(hanging)
    await eventually("a free place", async () => {
      const { result } = await call(client, "agentchat_wait_for_messages", { timeout_seconds: 1 })
      return result.isError !== true || undefined
    })
    await say(alice, carol)
    assert.strictEqual((await inbox(carol)).length, 1)
    await client.close()
  })

  it("a cancelled wait ends, and the next one has what came", async () => {
    await clear()
    for (const mode of ["auto", "legacy"] as const) {
      const client = await connect(server, bob, mode)
      const end = new AbortController()
      const waiting = call(client, "agentchat_wait_for_messages", { timeout_seconds: 50 }, { signal: end.signal })
      await eventually("the wait", async () => await metricOf(server, "waits_open") === 1 || undefined)
      end.abort()
      assert.isTrue(await waiting.then(() => false, () => true), mode)
      const said = await say(alice, bob)
      const waited = await granted(client, "agentchat_wait_for_messages")
      assert.deepStrictEqual(waited["messages"].map((one: Json) => one.message_id), [said.id])
      await clear()
      await client.close()
    }
  })

  it("a client that asked for progress gets progress notices of the wait", async () => {
    await clear()
    for (const mode of ["auto", "legacy"] as const) {
      const client = await connect(server, bob, mode)
      const heard: Array<{ readonly total?: number | undefined }> = []
      const waited = await call(client, "agentchat_wait_for_messages", { timeout_seconds: 1 }, {
        onprogress: (progress: { readonly total?: number | undefined }) => heard.push(progress)
      })
      assert.strictEqual(waited.value["outcome"], "timeout")
      assert.strictEqual(heard[0]?.total, 1, mode)
      await client.close()
    }
  })

  it("a key that is replaced, and an account that ends, end a wait", async () => {
    const carol = await newAgent(server, "carol")
    const waiting = post(server, carol.key, wait({ timeout_seconds: 50 }), older)
    await alice.http.post("/v1/contacts", { handle: carol.handle })
    await eventually("the wait", async () => (await isOnline(alice, carol)) || undefined)
    await carol.http.delete(`/v1/agents/${carol.handle}`)
    const { body } = await within("the end of the wait", waiting)
    assert.strictEqual(refusalIn(body.result).refusal["code"], "UNAUTHORIZED")
  })

  it("a subscription reports the inbox and own conversations within a second, and no others", async () => {
    await clear()
    const carol = await newAgent(server, "carol")
    const others = await newPair(server)
    const client = await connect(server, bob)
    const updated: Array<string> = []
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => void updated.push(params.uri))
    const own = `parley://conversations/${conversation}`
    const foreign = `parley://conversations/${others.conversation}`
    const subscription = await client.listen({
      resourceSubscriptions: [
        "parley://inbox",
        own,
        foreign,
        "parley://conversations/conv_unknown",
        `parley://agents/${alice.handle}`
      ]
    })
    assert.deepStrictEqual(subscription.honoredFilter.resourceSubscriptions, ["parley://inbox", own])
    await say(others.alice, others.bob)
    await say(carol, bob)
    await eventually("news of the inbox", () => updated.includes("parley://inbox") || undefined)
    assert.notInclude(updated, own)
    assert.notInclude(updated, foreign)
    await say(bob, alice)
    await eventually("news of an own message", () => updated.includes(own) || undefined)
    await subscription.close()
    await clear()
    await client.close()
  })

  it("older revisions announce no subscriptions, and refuse them", async () => {
    const client = await connect(server, bob, "legacy")
    assert.notProperty(client.getServerCapabilities()?.resources ?? {}, "subscribe")
    const { body } = await post(server, bob.key, rpc("resources/subscribe", { uri: "parley://inbox" }), older)
    assert.strictEqual(body.error.code, -32_601)
    await client.close()
  })
})
