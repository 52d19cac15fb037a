import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { isInstalled } from "../../runners/local/Postgres.ts"
import * as Shapes from "../contract/Shapes.ts"
import { attempt, say } from "../contract/Talk.ts"
import { admin, adminHere } from "../support/Admin.ts"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { promptly } from "../support/Promptly.ts"
import { agentOf, freshHandle, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

describe.skipIf(!isInstalled(18))("two servers and an operator on one PostgreSQL", () => {
  let database: string
  let servers: readonly [Server, Server]

  beforeAll(async () => {
    database = await freshDatabase(18)
    const server = () => startServer({ env: { DATABASE_URL: database } })
    servers = await Promise.all([server(), server()])
  })
  afterAll(() => Promise.all(servers.map((server) => server.stop())))

  /** A change by one process may take a second to be felt on another (wire.md G.8b). */
  const withinASecond = <A>(what: string, awaited: Promise<A>): Promise<A> => promptly(what, servers, awaited, 1_000)

  const told = async (...args: ReadonlyArray<string>): Promise<string> => {
    const { code, stderr, stdout } = await adminHere({ DATABASE_URL: database }, ...args)
    assert.strictEqual(code, 0, stderr)
    return stdout
  }

  /** Each agent as the one and as the other server knows it. */
  const create = async (n: number): Promise<ReadonlyArray<readonly [TestAgent, TestAgent]>> => {
    const handles = Array.from({ length: n }, () => freshHandle("two"))
    const made = JSON.parse(await told("agents", "create", ...handles, "--json")) as ReadonlyArray<
      { readonly handle: string; readonly id: string; readonly email: string; readonly api_key: string }
    >
    return made.map((
      { api_key, ...account }
    ) => [agentOf(servers[0], account, api_key), agentOf(servers[1], account, api_key)])
  }

  it("a suspension by a third process closes sockets, refuses keys and replaces the admin on both within a second", async () => {
    const [target, friend] = (await create(2)) as [readonly [TestAgent, TestAgent], readonly [TestAgent, TestAgent]]
    const { add_results, group } =
      (await target[0].http.post("/v1/groups", { name: "Band", member_handles: [friend[0].handle] }))
        .ok(200, Shapes.CreatedGroup)
    ;(await friend[0].http.post(`/v1/groups/invites/${add_results[0]?.invite_id}/accept`)).ok(200, Shapes.Group)
    const sockets = await Promise.all(servers.map((server) => Socket.hello(server, target[0].key)))
    const { code, stderr } = await admin({ DATABASE_URL: database }, "agents", "suspend", target[0].handle)
    assert.strictEqual(code, 0, stderr)
    // Sends are refused from the commit on, whatever the servers remember of the key.
    for (const i of [0, 1] as const) (await attempt(target[i], friend[i])).refused(403, "AGENT_SUSPENDED")
    for (const socket of sockets) {
      assert.deepStrictEqual(await withinASecond("the close", socket.closed), {
        code: 1008,
        reason: "account suspended"
      })
    }
    for (const [i, { http }] of target.entries()) {
      await withinASecond(
        `the refusal by server ${i}`,
        eventually("it", async () => (await http.get("/v1/conversations")).status === 403 || undefined)
      )
      assert.strictEqual((await http.get("/v1/agents/me")).ok(200, Shapes.Agent).status, "suspended")
    }
    await withinASecond(
      "the new admin",
      eventually("it", async () => {
        const { your_role } = (await friend[1].http.get(`/v1/groups/${group.id}`)).ok(200, Shapes.Group)
        return your_role === "admin" || undefined
      })
    )
    await told("agents", "restore", target[0].handle)
    for (const { http } of target) {
      await withinASecond(
        "the restore",
        eventually("it", async () => (await http.get("/v1/conversations")).status === 200 || undefined)
      )
    }
  })

  it("15 blocks at once through both restrict on both", async () => {
    const [target, stranger, ...blockers] = await create(17) as [
      readonly [TestAgent, TestAgent],
      ...Array<readonly [TestAgent, TestAgent]>
    ]
    for (const [blocker] of blockers) await say(target[0], blocker)
    const answers = await Promise.all(
      blockers.map((blocker, i) => blocker[i % 2 === 0 ? 0 : 1].http.post(`/v1/contacts/${target[0].handle}/block`))
    )
    for (const answer of answers) answer.ok(200, Shapes.Confirmation)
    for (const i of [0, 1] as const) (await attempt(target[i], stranger![i])).refused(403, "AGENT_RESTRICTED")
    assert.match(await told("agents", "show", target[0].handle), /^state +restricted until 2/m)
  })

  it("a backup of PostgreSQL is pg_dump's", async () => {
    const refused = await adminHere({ DATABASE_URL: database }, "backup", "/tmp/parley-none.tar")
    assert.strictEqual(refused.code, 1)
    assert.include(refused.stderr, "pg_dump")
  })
})
