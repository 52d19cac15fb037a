import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { verifyWebhook } from "agentchatme"
import { createHmac, randomBytes } from "node:crypto"
import { createServer, type IncomingHttpHeaders } from "node:http"
import { eventually } from "../support/Eventually.ts"
import { matching } from "../support/Http.ts"
import { newAgent, type Server, sharedServer } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { freshMsgId, inbox, newPair, say, words } from "./Talk.ts"

interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

const received: Array<Received> = []
/** Statuses to answer with at a path before the 200s begin. */
const failures = new Map<string, Array<number>>()
/** What an answer of 200 waits for. */
let looked: Promise<unknown> = Promise.resolve()

const receiver = createServer((request, response) => {
  let body = ""
  request.setEncoding("utf8").on("data", (part: string) => body += part).on("end", async () => {
    const path = request.url ?? ""
    received.push({ path, headers: request.headers, body })
    const failure = failures.get(path)?.shift()
    if (failure === undefined) await looked
    response.writeHead(failure ?? 200, { location: "/elsewhere" }).end("thank you")
  })
})

let server: Server
let base: string

beforeAll(async () => {
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve))
  const address = receiver.address()
  base = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`
  server = await sharedServer()
})

afterAll(async () => {
  await server?.stop()
  receiver.closeAllConnections()
  receiver.close()
})

const at = (path: string): ReadonlyArray<Received> => received.filter((one) => one.path === path)

const arrived = (path: string, n = 1): Promise<ReadonlyArray<Received>> =>
  eventually(`${n} deliveries at ${path}`, () => at(path).length >= n ? at(path) : undefined)

const verified = async ({ body, headers }: Received, secret: string) => {
  const signature = String(headers["agentchat-signature"])
  assert.match(signature, /^t=\d{10},v1=[0-9a-f]{64}$/)
  return verifyWebhook({ payload: body, signature, secret })
}

/** Checks the headers of Standard Webhooks as its specification says. */
const standardVerified = ({ body, headers }: Received, key: Buffer | string): void => {
  const [id, at, signature] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) =>
    String(headers[name])
  )
  assert.strictEqual(id, headers["x-agentchat-delivery"])
  assert.match(String(at), /^\d{10}$/)
  assert.strictEqual(signature, `v1,${createHmac("sha256", key).update(`${id}.${at}.${body}`).digest("base64")}`)
}

describe("webhooks", () => {
  it("128. the secret is shown once, the sixth webhook is refused, lists and masks are as everywhere", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const body = { url: "https://example.com/hook", events: ["message.new", "contact.blocked"] }
    const made = (await alice.http.post("/v1/webhooks", body)).ok(201, Shapes.CreatedWebhook)
    assert.match(made.secret, /^[0-9a-f]{64}$/)
    const { secret: _, ...webhook } = made
    assert.deepStrictEqual([webhook.url, webhook.events, webhook.active], [body.url, body.events, true])
    const given = (await alice.http.post("/v1/webhooks", { ...body, secret: "sixteen letters!" })).ok(
      201,
      Shapes.CreatedWebhook
    )
    assert.strictEqual(given.secret, "sixteen letters!")
    for (let i = 0; i < 3; i++) (await alice.http.post("/v1/webhooks", body)).ok(201, Shapes.CreatedWebhook)
    ;(await alice.http.post("/v1/webhooks", body)).refused(400, "LIMIT_REACHED")

    assert.deepStrictEqual((await alice.http.get(`/v1/webhooks/${webhook.id}`)).ok(200, Shapes.Webhook), webhook)
    const page = (await alice.http.get("/v1/webhooks?limit=3")).ok(200, Shapes.WebhookPage)
    assert.deepStrictEqual([page.webhooks.length, page.total, page.limit, page.offset], [3, 5, 3, 0])
    assert.deepStrictEqual(page.webhooks[0], webhook)
    const rest = (await alice.http.get(`/v1/webhooks?cursor=${page.next_cursor}`)).ok(200, Shapes.WebhookPage)
    assert.deepStrictEqual([rest.webhooks.length, rest.next_cursor], [2, null])
    ;(await alice.http.get("/v1/webhooks?cursor=x")).refused(400, "VALIDATION_ERROR")
    ;(await alice.http.get(`/v1/webhooks?offset=1&cursor=${page.next_cursor}`)).refused(400, "VALIDATION_ERROR")
    ;(await alice.http.get("/v1/webhooks?limit=0")).refused(400, "VALIDATION_ERROR")

    const unknown = (await bob.http.get("/v1/webhooks/whk_AAAAAAAAAAAAAAAA")).refused(404, "NOT_FOUND")
    assert.deepStrictEqual((await bob.http.get(`/v1/webhooks/${webhook.id}`)).refused(404, "NOT_FOUND"), unknown)
    assert.deepStrictEqual((await bob.http.delete(`/v1/webhooks/${webhook.id}`)).refused(404, "NOT_FOUND"), unknown)
    ;(await alice.http.delete(`/v1/webhooks/${webhook.id}`)).ok(200, Shapes.Confirmation)
    ;(await alice.http.delete(`/v1/webhooks/${webhook.id}`)).refused(404, "NOT_FOUND")
    const again = await alice.client.createWebhook({ url: body.url, events: ["group.deleted"] })
    assert.strictEqual((await alice.client.getWebhook(again.id)).active, true)
    assert.strictEqual((await alice.client.listWebhooks()).webhooks.length, 5)
    await alice.client.deleteWebhook(again.id)
  })

  // What is refused where none may go to this machine: Attacks.test.ts.
  it("a request that makes no sense, and a target that is not public, are refused", async () => {
    const alice = await newAgent(server, "alice")
    const url = "https://example.com/hook"
    for (
      const body of [
        {},
        { url },
        { url, events: [] },
        { url, events: ["message.deleted"] },
        { url, events: "message.new" },
        { url, events: ["message.new"], secret: "too short" },
        { url, events: ["message.new"], secret: "x".repeat(129) },
        { url: `https://example.com/${"x".repeat(2_048)}`, events: ["message.new"] },
        ...[
          "example.com",
          "ftp://example.com/",
          "http://a:b@example.com/",
          "http://10.0.0.1/",
          "http://169.254.169.254/",
          "http://[fd00::1]/",
          "http://100.64.0.1/"
        ].map((bad) => ({ url: bad, events: ["message.new"] }))
      ]
    ) (await alice.http.post("/v1/webhooks", body)).refused(400, "VALIDATION_ERROR")
    ;(await server.http().post("/v1/webhooks", { url, events: ["message.new"] })).refused(401, "UNAUTHORIZED")
  })

  it("129. a delivery verifies with the client's verifier and as bare hex, and marks the message as delivered", async () => {
    const { alice, bob } = await newPair(server)
    const made = (await bob.http.post("/v1/webhooks", { url: `${base}/j129`, events: ["message.new"] }))
      .ok(201, Shapes.CreatedWebhook)
    const sent = await say(alice, bob, { content: { text: `hello @${bob.handle}, ünïcode 😀` } })
    const [delivery] = await arrived("/j129")
    assert.isDefined(delivery)
    if (delivery === undefined) return
    const payload = await verified(delivery, made.secret)
    assert.deepStrictEqual(Object.keys(payload), ["event", "timestamp", "data"])
    assert.strictEqual(payload.event, "message.new")
    assert.strictEqual(payload.timestamp, sent.created_at)
    const data = matching(Shapes.SyncRow, payload.data)
    assert.deepStrictEqual([data.id, data.content, data.context.mentions], [sent.id, sent.content, [bob.handle]])
    const bare = String(delivery.headers["x-agentchat-signature"])
    assert.strictEqual(bare, createHmac("sha256", made.secret).update(delivery.body).digest("hex"))
    await verifyWebhook({ payload: delivery.body, signature: bare, secret: made.secret })
    standardVerified(delivery, made.secret)
    const tampered = await verifyWebhook({ payload: `${delivery.body} `, signature: bare, secret: made.secret })
      .then(() => "verified", () => "refused")
    assert.strictEqual(tampered, "refused")
    assert.strictEqual(delivery.headers["x-agentchat-event"], "message.new")
    assert.match(String(delivery.headers["x-agentchat-delivery"]), /^whd_[A-Za-z0-9_-]{16}$/)
    assert.strictEqual(delivery.headers["content-type"], "application/json")
    await eventually("an empty inbox", async () => (await inbox(bob)).length === 0 || undefined)
  })

  it("129. with a whsec_ secret, both AgentChat's verifier and one of Standard Webhooks accept a delivery", async () => {
    const { alice, bob } = await newPair(server)
    const key = randomBytes(24)
    const secret = `whsec_${key.toString("base64")}`
    const body = { url: `${base}/standard`, events: ["message.new"], secret }
    assert.strictEqual((await bob.http.post("/v1/webhooks", body)).ok(201, Shapes.CreatedWebhook).secret, secret)
    await say(alice, bob, { content: { text: "signed, ünïcode 😀" } })
    const [delivery] = await arrived("/standard")
    if (delivery === undefined) return assert.fail("no delivery")
    await verified(delivery, secret)
    standardVerified(delivery, key)
  })

  it("a read and the first block are told to whom they concern", async () => {
    const { alice, bob } = await newPair(server)
    for (const [agent, path] of [[alice, "/alice"], [bob, "/bob"]] as const) {
      const body = { url: base + path, events: ["message.read", "contact.blocked"] }
      ;(await agent.http.post("/v1/webhooks", body)).ok(201, Shapes.CreatedWebhook)
    }
    const sent = await say(alice, bob)
    const marking = await bob.http.post(`/v1/messages/${sent.id}/read`)
    const [read] = await arrived("/alice")
    assert.strictEqual(read?.headers["x-request-id"], marking.header("x-request-id"))
    const { data } = JSON.parse(read?.body ?? "") as { data: Record<string, unknown> }
    assert.deepStrictEqual(
      [data["message_id"], data["seq"], data["read_by"], data["reader"]],
      [sent.id, sent.seq, bob.handle, bob.handle]
    )
    const upgrade = { authorization: `Bearer ${bob.key}`, "x-request-id": "the-sockets-own" }
    const socket = await Socket.open(server, upgrade)
    await socket.waitFor("hello.ok")
    const { conversation_id, seq } = await say(alice, bob)
    socket.send({ type: "message.read_ack", payload: { conversation_id, through_seq: seq } })
    const [, through] = await arrived("/alice", 2)
    assert.strictEqual(through?.headers["x-request-id"], "the-sockets-own")
    await socket.close()
    const blocking = await alice.http.post(`/v1/contacts/${bob.handle}/block`)
    blocking.ok(200, Shapes.Confirmation)
    ;(await alice.http.post(`/v1/contacts/${bob.handle}/block`)).ok(200, Shapes.Confirmation)
    const [blocked] = await arrived("/bob")
    assert.strictEqual(blocked?.headers["x-request-id"], blocking.header("x-request-id"))
    const told = JSON.parse(blocked?.body ?? "") as { event: string; data: Record<string, unknown> }
    assert.deepStrictEqual([told.event, told.data["blocked_by"]], ["contact.blocked", alice.handle])
    assert.deepStrictEqual(Object.keys(told.data), ["blocked_by", "blocked_at"])
    assert.deepStrictEqual([at("/alice").length, at("/bob").length], [2, 1])
  })

  it("130. a 500 is tried again under the same delivery id and request id, and signed anew; a redirect is not followed", async () => {
    const { alice, bob } = await newPair(server)
    const look = Promise.withResolvers<void>()
    looked = look.promise
    failures.set("/j130", [500])
    failures.set("/moved", [307])
    const made = (await bob.http.post("/v1/webhooks", { url: `${base}/j130`, events: ["message.new"] }))
      .ok(201, Shapes.CreatedWebhook)
    ;(await bob.http.post("/v1/webhooks", { url: `${base}/moved`, events: ["message.new"] })).ok(
      201,
      Shapes.CreatedWebhook
    )
    const requestId = String.raw`abc"\'{}$1,%`
    const body = { to: bob.handle, client_msg_id: freshMsgId(), content: { text: words() } }
    const answer = await alice.http.post("/v1/messages", body, { "x-request-id": requestId })
    const sent = answer.ok(201, Shapes.Message)
    assert.strictEqual(answer.header("x-request-id"), requestId)
    const [first] = await arrived("/j130")
    const waiting = await inbox(bob)
    look.resolve()
    assert.deepStrictEqual(waiting.map(({ id }) => id), [sent.id])
    const [, second] = await arrived("/j130", 2)
    if (first === undefined || second === undefined) return assert.fail("no second delivery")
    assert.strictEqual(second.headers["x-agentchat-delivery"], first.headers["x-agentchat-delivery"])
    assert.deepStrictEqual([first, second].map(({ headers }) => headers["x-request-id"]), [requestId, requestId])
    assert.strictEqual(second.body, first.body)
    assert.notStrictEqual(second.headers["agentchat-signature"], first.headers["agentchat-signature"])
    await verified(second, made.secret)
    assert.strictEqual(second.headers["webhook-id"], first.headers["webhook-id"])
    for (const one of [first, second]) standardVerified(one, made.secret)
    await eventually("an empty inbox", async () => (await inbox(bob)).length === 0 || undefined)
    await arrived("/moved", 2)
    assert.deepStrictEqual([at("/j130").length, at("/elsewhere").length], [2, 0])
  })
})
