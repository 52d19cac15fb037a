import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { older, post, refusalIn, rpc } from "../mcp/Mcp.ts"
import { newAgent, type Server, slowClock, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

const BUDGET = 12
const DEAD = `ac_${"A".repeat(43)}`

describe("wire.md J, request budgets", () => {
  let server: Server
  let agents: ReadonlyArray<TestAgent>

  beforeAll(async () => {
    server = await startServer({
      env: {
        ...slowClock,
        TRUST_PROXY: "1",
        LIMITS_REQUESTS_PER_MINUTE: String(BUDGET),
        LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: String(BUDGET)
      }
    })
    agents = [
      await newAgent(server, "socket-a"),
      await newAgent(server, "socket-b"),
      await newAgent(server, "socket-c")
    ]
  })
  afterAll(() => server?.stop(), 20_000)

  const from = (address: string) => ({ "x-forwarded-for": address })

  const refusal = (key: string, address: string) =>
    Socket.refusal(server, { ...from(address), authorization: `Bearer ${key}` })

  const hello = async (key: string, address: string): Promise<Socket> => {
    const socket = await Socket.open(server, from(address))
    socket.send({ type: "hello", api_key: key, capabilities: ["ack"] })
    return socket
  }

  it("244. upgrades and HELLOs with a dead key count for their address: beyond its budget they get 429 and 1013, and live keys still get in", async () => {
    const address = "198.51.100.1"
    for (let i = 0; i < BUDGET - 4; i++) assert.strictEqual((await refusal(DEAD, address)).status, 401)
    for (let i = 0; i < 4; i++) await (await hello(DEAD, address)).closedWith(1008)
    const refused = await refusal(DEAD, address)
    refused.refused(429, "RATE_LIMITED")
    assert.match(refused.header("retry-after") ?? "", /^\d+$/)
    await (await hello(DEAD, address)).closedWith(1013)
    assert.strictEqual((await refusal(DEAD, "198.51.100.2")).status, 401)
    for (const { key } of agents.slice(0, 2)) {
      const socket = await hello(key, address)
      await socket.waitFor("hello.ok")
      await socket.close()
    }
  })

  it("244. a socket with a live key counts for its agent, and is closed with 1013 beyond the budget", async () => {
    const { key } = agents[2]!
    for (let i = 0; i < BUDGET; i++) {
      const address = `198.51.100.${10 + i}`
      const socket = i % 2 === 0
        ? await hello(key, address)
        : await Socket.open(server, { ...from(address), authorization: `Bearer ${key}` })
      await socket.waitFor("hello.ok")
      await socket.close()
    }
    await (await hello(key, "198.51.100.50")).closedWith(1013)
    const upgraded = await Socket.open(server, { ...from("198.51.100.51"), authorization: `Bearer ${key}` })
    await upgraded.closedWith(1013)
    assert.strictEqual(upgraded.count("hello.ok"), 0)
  })

  it("a call of /mcp beyond the budget gets a tool result, and one with a long body 429 without an id (wire.md M)", async () => {
    const { key } = agents[0]!
    const call = (text: string) =>
      post(server, key, rpc("tools/call", { name: "agentchat_send_message", arguments: { to: "nobody", text } }), older)
    for (let i = 0; i < BUDGET; i++) await post(server, key, rpc("ping"), older)
    const short = await call("x")
    assert.deepStrictEqual([short.status, refusalIn(short.body.result).refusal["code"]], [200, "RATE_LIMITED"])
    const long = await call("x".repeat(200_000))
    assert.deepStrictEqual([long.status, long.body.error.data.code, long.body.id], [429, "RATE_LIMITED", null])
  })
})
