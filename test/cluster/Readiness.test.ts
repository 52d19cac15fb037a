import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client } from "pg"
import { admin } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { attempt, clockOff, Cluster, missingForNodes, on } from "../support/Nodes.ts"
import { promptly } from "../support/Promptly.ts"
import { freshHandle, newAgent, type Server } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { Wire } from "../support/Wire.ts"

const HOUR = 3_600

describe.skipIf(missingForNodes !== "")(`readiness and clocks of nodes${missingForNodes}`, () => {
  let cluster: Cluster
  let right: Server
  let wrong: Server
  let wire: Wire
  let database: Client

  /** The reason for which a node is not ready; undefined while it is. */
  const reason = async (node: Server): Promise<string | undefined> => {
    const answer = await node.http().get("/v1/ready")
    if (answer.status === 200) return undefined
    const { code, details } = answer.body as { readonly code: string; readonly details: { readonly reason: string } }
    assert.deepStrictEqual([answer.status, code], [503, "NOT_READY"])
    return details.reason
  }
  const unready = (node: Server, why: RegExp) =>
    eventually(
      `a node that is not ready because of ${why}`,
      async () => why.exec(await reason(node) ?? "") ?? undefined
    )
  const ready = (node: Server) =>
    eventually("a node that is ready", async () => await reason(node) === undefined || undefined)

  /** How far a time that a node has written is from the database's, in seconds. */
  const off = async (at: string): Promise<number> => {
    const { rows } = await database.query(
      "SELECT abs(extract(epoch FROM clock_timestamp() - $1::timestamptz))::float8 AS off",
      [at]
    )
    return rows[0].off
  }

  beforeAll(async () => {
    cluster = await Cluster.start(1, { LIMITS_COLD_CONVERSATIONS: "2", LIMITS_COLD_WINDOW_SECONDS: String(HOUR / 2) })
    right = cluster.nodes[0]!
    const url = new URL(cluster.env["DATABASE_URL"] ?? "")
    wire = await Wire.to(url.hostname, Number(url.port))
    database = new Client(url.href)
    await database.connect()
    url.port = String(wire.port)
    // An hour ahead, without Redis, and with a way of its own to the database.
    wrong = await cluster.add(undefined, {
      ...clockOff(HOUR, -2 * HOUR),
      DATABASE_URL: url.href,
      REDIS_URL: "redis://127.0.0.1:1"
    })
  })
  afterAll(async () => {
    wire?.mend()
    await database?.end()
    await cluster?.stop()
    wire?.stop()
  })

  it("a node without Redis is ready: limits fail open", async () => {
    assert.isUndefined(await reason(wrong))
    assert.include(wrong.stderr, "Starting without Redis")
  })

  it("a node whose clock is an hour ahead writes the database's time, and says so", async () => {
    assert.match(wrong.stderr, /The clock of this machine is 3600 s ahead of the database's/)
    const ada = await newAgent(wrong, "ada")
    const bob = await newAgent(right, "bob")
    const { created_at } = (await ada.http.get("/v1/agents/me")).body as { readonly created_at: string }
    assert.isBelow(await off(created_at), 300)
    const { message } = await ada.client.sendMessage({ to: bob.handle, content: { text: "what time is it" } })
    assert.isBelow(await off(message.created_at), 300)
    const begin = Buffer.from(message.id.slice("msg_".length), "base64url").readUIntBE(0, 6)
    assert.isBelow(await off(new Date(begin).toISOString()), 300)
  })

  it("a node whose clock is an hour ahead frees no cold slot early", async () => {
    for (let i = 0; i < 3; i++) {
      const ada = await newAgent(right, "ada")
      const [bob, cleo, dora] = await Promise.all(["bob", "cleo", "dora"].map((name) => newAgent(right, name)))
      for (const to of [bob!, cleo!]) await ada.client.sendMessage({ to: to.handle, content: { text: "hello" } })
      for (const node of [right, wrong]) {
        ;(await attempt(on(node, ada), { to: dora!.handle }, "hello")).refused(429, "COLD_CAP_EXCEEDED")
      }
    }
  })

  it("a code that is asked for on one node is good on one whose clock is an hour ahead", async () => {
    const handle = freshHandle("eve")
    const email = `${handle}@example.com`
    const begun = await right.http().post("/v1/register", { email, handle })
    const { pending_id } = begun.body as { readonly pending_id: string }
    const done = await wrong.http().post("/v1/register/verify", { pending_id, code: await right.code(email) })
    assert.strictEqual(done.status, 200, `${done}`)
  })

  it("an operator's command from a machine whose clock is an hour behind is felt at once", async () => {
    const ada = await newAgent(right, "ada")
    const sockets = [await Socket.hello(right, ada.key), await Socket.hello(wrong, ada.key)]
    await admin({ ...cluster.env, ...clockOff(-HOUR) }, "agents", "suspend", ada.handle)
    await promptly("the ends", [right, wrong], Promise.all(sockets.map((socket) => socket.closedWith(1008))), 2_000)
  })

  it("a node whose clock is set is not ready until the database's has been compared, and goes on with that", async () => {
    wrong.process.kill("SIGUSR2")
    await unready(wrong, /clock of this machine was set back by 7200 s/)
    await ready(wrong)
    assert.isUndefined(await reason(right))
    const ada = await newAgent(wrong, "ada")
    const { created_at } = (await ada.http.get("/v1/agents/me")).body as { readonly created_at: string }
    assert.isBelow(await off(created_at), 300)
  })

  it("a node whose database is away is not ready, says why, and is again once it is back", async () => {
    wire.cut()
    await unready(wrong, /The database does not answer/)
    assert.isUndefined(await reason(right))
    wire.mend()
    await ready(wrong)
  })
})
