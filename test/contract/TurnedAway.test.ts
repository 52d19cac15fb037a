import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { admin } from "../support/Admin.ts"
import { freshDatabase } from "../support/Databases.ts"
import { elapse, eventually } from "../support/Eventually.ts"
import { MEASURES } from "../support/Promptly.ts"
import { RawConnection } from "../support/RawConnection.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { Wire } from "../support/Wire.ts"
import { freshMsgId, newPair, say, words } from "./Talk.ts"

const bearer = (key: string) => ({ authorization: `Bearer ${key}`, "x-agentchat-capabilities": "ack" })
const unknown = `ac_${"A".repeat(43)}`

/** An upgrade as it is written on a connection. */
const upgrade = (key: string): string =>
  "GET /v1/ws HTTP/1.1\r\nhost: parley\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n" +
  `sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nauthorization: Bearer ${key}\r\n\r\n`

/** Asserts that the upgrade is completed, and the socket closed with 1013 before anything is said on it. */
const turnedAway = async (server: Server, headers: Readonly<Record<string, string>>): Promise<string> => {
  const socket = await Socket.open(server, headers)
  const { reason } = await socket.closedWith(1013)
  assert.deepStrictEqual(socket.frames, [])
  return reason
}

describe.skipIf(!isInstalled(18))("a server whose database is away", () => {
  let server: Server
  let wire: Wire
  let ada: TestAgent

  beforeAll(async () => {
    const url = new URL(await freshDatabase(18))
    wire = await Wire.to(url.hostname, Number(url.port))
    url.port = String(wire.port)
    server = await startServer({ env: { DATABASE_URL: url.href } })
    ada = await newAgent(server, "ada")
  })
  afterAll(async () => {
    wire?.mend()
    await server?.stop()
    wire?.stop()
  })

  it("158. completes an upgrade whose key it cannot check and closes with 1013, a HELLO with such a key alike; what is certain stays a refusal", async () => {
    const live = await Socket.hello(server, ada.key)
    wire.cut()
    // What was read of an account before is good for a second.
    await elapse("the second for which a server remembers a key", 1_100)
    for (const key of [ada.key, unknown]) assert.include(await turnedAway(server, bearer(key)), "key")
    const hello = await Socket.open(server)
    hello.send({ type: "hello", api_key: ada.key, capabilities: ["ack"] })
    await hello.closedWith(1013) // Nobody has to be asked about that one.
    ;(await Socket.refusal(server, { authorization: "Bearer garbage" })).refused(401, "UNAUTHORIZED")
    wire.mend()
    const back = await eventually("a socket", async () => {
      const socket = await Socket.open(server, bearer(ada.key))
      return socket.waitFor("hello.ok").then(() => socket, () => undefined)
    })
    await live.settled()
    await back.close()
    await live.close()
  })

  it("158. closes upgrades with 1013 too while the database takes connections and does not answer", async () => {
    const eve = await newAgent(server, "eve")
    await elapse("the second for which a server remembers a key", 1_100)
    const connection = await RawConnection.open(server)
    wire.hang()
    try {
      connection.write(upgrade(eve.key))
      assert.strictEqual(await connection.closeCode(), 1013)
      assert.match(connection.received, /^HTTP\/1\.1 101 /)
      assert.notInclude(connection.received, "hello.ok")
    } finally {
      wire.cut()
      wire.mend()
    }
  })
})

describe.skipIf(!isInstalled(18))("a server that is asked to stop", () => {
  // Its port is open for five seconds more: a machine that is too busy for that does it again.
  const again = { retry: MEASURES ? 0 : 4 }
  it(
    "158. completes upgrades and closes them with 1013 as long as it takes any, and refuses bad keys as ever",
    again,
    async () => {
      const database = await freshDatabase(18)
      const server = await startServer({
        env: { DATABASE_URL: database, DRAIN_SECONDS: "5", HTTP_HEADERS_SECONDS: "60" }
      })
      const { alice, bob } = await newPair(server)
      const mallory = await newAgent(server, "mallory")
      await admin({ DATABASE_URL: database }, "agents", "suspend", mallory.handle)
      const staying = await Socket.hello(server, bob.key)

      // Two requests that are only half there when it is told to stop.
      const send = await RawConnection.open(server)
      const body = JSON.stringify({ to: bob.handle, client_msg_id: freshMsgId(), content: { text: words() } })
      send.write(
        `POST /v1/messages HTTP/1.1\r\nhost: parley\r\nauthorization: Bearer ${alice.key}\r\nconnection: close\r\n` +
          `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body.slice(0, 10)}`
      )
      const late = await RawConnection.open(server)
      late.write(upgrade(alice.key).slice(0, 60))
      server.terminate()
      await eventually(
        "503 on /v1/ready",
        async () => (await server.http().get("/v1/ready")).status === 503 || undefined
      )

      // It still serves, but for new sockets.
      const sent = await say(alice, bob)
      await staying.message(sent.id)
      assert.include(await turnedAway(server, bearer(alice.key)), "shutting down")
      assert.include(await turnedAway(server, {}), "shutting down")
      ;(await Socket.refusal(server, bearer(unknown))).refused(401, "UNAUTHORIZED")
      ;(await Socket.refusal(server, bearer(mallory.key))).refused(403, "AGENT_SUSPENDED")

      // The port is closed, the connection is not.
      await eventually("new connections to be refused", () => fetch(server.url).then(() => undefined, () => true))
      late.write(upgrade(alice.key).slice(60))
      assert.strictEqual(await late.closeCode(), 1013)
      assert.match(late.received, /^HTTP\/1\.1 101 /)
      send.write(body.slice(10))
      assert.match(await send.end(), /^HTTP\/1\.1 201 /)
      await staying.closedWith(1001)
      await server.stop()
    }
  )
})
