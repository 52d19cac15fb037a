import { assert, beforeAll, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { Client } from "pg"
import { freePort } from "../../runners/local/FreePort.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { type Cluster, on } from "../support/Nodes.ts"
import { cookieOf, newLink, newToken, Operating, redeem, request } from "../support/Operating.ts"
import { MEASURES, promptly } from "../support/Promptly.ts"
import { newAgent, type Server } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

interface Node {
  readonly address: string
  readonly state: string
  readonly words: string
  readonly shards: number
  readonly sockets: number
  readonly is_this: boolean
  readonly log_level: string
}
interface Overview {
  readonly node: string
  readonly nodes: ReadonlyArray<Node>
  readonly totals: {
    readonly nodes: number
    readonly silent: number
    readonly shards: number
    readonly sockets: number
  }
  readonly database: { readonly state: string; readonly kind: string; readonly connections: number }
  readonly redis: { readonly state: string }
}

/** Repeats an operator's call until it is granted: on a busy machine the other node may not answer in time. */
const until200 = (operator: Operating, method: string, path: string, body?: unknown): Promise<unknown> =>
  eventually(`a granted ${method} ${path}`, async () => {
    const answer = await operator.ask(method, path, body)
    return answer.status === 200 ? answer.body : undefined
  })

/** Operators on two nodes, of which they lose the second and get another. */
export const operatorsOnNodes = (started: () => Cluster): void => {
  let cluster: Cluster
  let nodes: readonly [Server, Server]
  let operators: readonly [Operating, Operating]

  beforeAll(async () => {
    cluster = started()
    nodes = cluster.pair
    const first = await Operating.signIn(nodes[0])
    operators = [first, Operating.withSession(nodes[1], first.headers["cookie"]!.split("=")[1]!)]
  })

  it("a session that one node made is valid on the other; each shows both", async () => {
    for (const [i, operator] of operators.entries()) {
      const seen = await eventually("all shards", async () => {
        const overview = await operator.ok<Overview>("GET", "/overview")
        // On a busy machine a node or the database may not answer in time.
        return overview.totals.shards === 300 && overview.database.state !== "down" &&
            overview.redis.state !== "down" &&
            overview.nodes.every(({ state }) => state === "ready")
          ? overview
          : undefined
      })
      assert.lengthOf(seen.nodes, 2)
      assert.deepStrictEqual(seen.nodes.map(({ is_this }) => is_this), [true, false])
      assert.strictEqual(seen.node, seen.nodes[0]?.address)
      assert.match(`${seen.database.state} ${seen.database.kind}`, /^(ok|slow) PostgreSQL$/)
      assert.match(seen.redis.state, /^(ok|slow)$/, `${i}`)
    }
  })

  it("npm run admin asks a node of its database, where nothing listens at the address of its own environment", async () => {
    const { DATABASE_URL = "" } = cluster.env
    const asked = await adminHere({ DATABASE_URL, PORT: String(await freePort()) }, "nodes", "list", "--json")
    assert.strictEqual(asked.code, 0, asked.stderr)
    assert.lengthOf((JSON.parse(asked.stdout) as Overview).nodes, 2)
    const elsewhere = `http://127.0.0.1:${await freePort()}`
    const refused = await adminHere({ DATABASE_URL }, "nodes", "list", "--server", elsewhere)
    assert.deepStrictEqual([refused.code, refused.stdout], [1, ""])
    assert.include(refused.stderr, `No server answers at ${elsewhere}: `)
  })

  it("165. a link is redeemed once over both nodes; an expired link and an ended session are refused on each node", async () => {
    const link = await newLink(nodes[0])
    const answers = await Promise.all([0, 1, 0, 1].map((i) => redeem(nodes[i]!, link)))
    assert.deepStrictEqual(answers.map(({ status }) => status).sort(), [200, 404, 404, 404])
    const session = cookieOf(answers.find(({ status }) => status === 200)!)
    const late = await newLink(nodes[1])
    const token = await newToken(nodes[0])
    const nothing = await request(nodes[0], "GET", "/nothing")
    const all = () =>
      Promise.all(nodes.flatMap((node) => [
        Operating.withSession(node, session).ask("GET", "/session"),
        request(node, "GET", "/session", { authorization: `Bearer ${token}` })
      ]))
    assert.deepStrictEqual((await all()).map(({ status }) => status), [200, 200, 200, 200])
    const database = new Client({ connectionString: cluster.env["DATABASE_URL"] })
    await database.connect()
    const hashes = [session, token, late].map((one) => createHash("sha256").update(one).digest())
    const aged = await database.query("UPDATE console_access SET expires_at = $1 WHERE token_hash = ANY($2)", [
      1,
      hashes
    ])
    await database.end()
    assert.strictEqual(aged.rowCount, 3)
    for (const answer of [...await all(), ...await Promise.all(nodes.map((node) => redeem(node, late)))]) {
      assert.deepStrictEqual([answer.status, answer.text], [404, nothing.text], `${answer}`)
    }
    // Ended on one node, over on the other.
    const other = await Operating.signIn(nodes[1])
    await other.ok("DELETE", "/session")
    assert.strictEqual(
      (await Operating.withSession(nodes[0], other.headers["cookie"]!.split("=")[1]!).ask("GET", "/session")).status,
      404
    )
  })

  it("an agent's sockets are seen from the other node, and closed from there", async () => {
    const agent = await newAgent(nodes[1], "far")
    const why = async () =>
      operators[0].ok<{ stops_at: string | null; words: string }>("GET", `/agents/${agent.handle}/why`)
    const friend = await newAgent(nodes[0], "friend")
    await friend.http.post("/v1/messages", {
      to: agent.handle,
      client_msg_id: "one",
      type: "text",
      content: { text: "never shown to operators" }
    })
    assert.strictEqual((await why()).stops_at, "sockets")
    const socket = await Socket.hello(nodes[1], agent.key)
    interface Detail {
      readonly sockets: ReadonlyArray<{ node: string; behind: number; client: string | null }>
      readonly inbox: { undelivered: number }
    }
    const seen = await eventually("the socket", async () => {
      const answer = await operators[0].ask("GET", `/agents/${agent.handle}`)
      assert.notInclude(answer.text, "never shown to operators")
      const detail = answer.body as Detail
      return detail.sockets[0]?.behind === 0 ? detail : undefined
    })
    assert.strictEqual(seen.sockets.length, 1)
    const overview = await operators[0].ok<Overview>("GET", "/overview")
    assert.strictEqual(seen.sockets[0]?.node, overview.nodes[1]?.address)
    // On a busy machine the other node may not answer within the second that it has.
    const counted: Array<number> = []
    let over = false
    void socket.closed.then(() => over = true)
    await eventually("its socket to be closed", async () => {
      const path = `/agents/${agent.handle}/disconnect`
      counted.push((await operators[0].ok<{ sockets: number }>("POST", path, {})).sockets)
      return over || undefined
    })
    assert.strictEqual((await socket.closed).code, 1013)
    if (MEASURES) assert.strictEqual(counted[0], 1)
  })

  it("a limit is felt on every node within a second, by the agent that it is for, until it is taken back", async () => {
    const [slow, other] = [await newAgent(nodes[0], "slow"), await newAgent(nodes[0], "other")]
    const read = async (agent: typeof slow, node: Server) =>
      (await on(node, agent).http.get(`/v1/agents/${other.handle}`)).header("ratelimit-limit")
    assert.strictEqual(await read(slow, nodes[0]), "1000000")
    await operators[0].ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", {
      value: 500,
      agent: slow.handle,
      reason: "a test"
    })
    const known = (value: string) =>
      Promise.all(
        nodes.map((node) => eventually("the limit", async () => (await read(slow, node)) === value || undefined))
      )
    await promptly("the limit on both nodes", nodes, known("500"), 1_000)
    for (const node of nodes) assert.strictEqual(await read(other, node), "1000000")
    const { code, stderr, stdout } = await adminHere(
      { ...nodes[1].place, PORT: new URL(nodes[1].url).port },
      "limits",
      "reset",
      "LIMITS_CARDS_PER_MINUTE",
      "--agent",
      slow.handle
    )
    assert.strictEqual(code, 0, stderr)
    assert.include(stdout, "LIMITS_CARDS_PER_MINUTE")
    await promptly("the end on both nodes", nodes, known("1000000"), 1_000)
  })

  it("an agent that divides its requests over the nodes is near its limit as their sum is", async () => {
    const [divided, single] = [await newAgent(nodes[0], "divided"), await newAgent(nodes[0], "single")]
    for (const { handle } of [divided, single])
      await operators[0].ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 50, agent: handle })
    const read = async (node: Server, agent: typeof divided) =>
      (await on(node, agent).http.get(`/v1/agents/${single.handle}`)).header("ratelimit-limit")
    for (const node of nodes)
      await eventually("the limit", async () => (await read(node, divided)) === "50" || undefined)
    for (let i = 0; i < 30; i++) await read(nodes[0], single)
    interface Near {
      readonly near: ReadonlyArray<{ readonly agent: string; readonly limit: string; readonly count: number }>
    }
    await eventually("both to show the sum", async () => {
      for (let i = 0; i < 20; i++) await Promise.all(nodes.map((node) => read(node, divided)))
      const shown = await Promise.all(operators.map((operator) => operator.ok<Near>("GET", "/limits/near")))
      for (const { near } of shown) assert.isFalse(near.some(({ agent }) => agent === single.handle))
      return shown.every(({ near }) =>
        near.some(({ agent, count, limit }) =>
          agent === divided.handle && limit === "LIMITS_CARDS_PER_MINUTE" && count >= 40
        )
      ) || undefined
    })
  })

  it("a drained node gives up sockets and shards and stays; undrained it serves again", async () => {
    const agent = await newAgent(nodes[0], "drained")
    const socket = await Socket.hello(nodes[1], agent.key)
    const { nodes: [, second] } = await operators[0].ok<Overview>("GET", "/overview")
    const address = second!.address
    await until200(operators[0], "POST", `/nodes/${address}/drain`)
    assert.strictEqual((await socket.closed).code, 1001)
    assert.strictEqual((await fetch(`${nodes[1].url}/v1/ready`)).status, 503)
    const moved = await eventually("the shards", async () => {
      const overview = await operators[1].ok<Overview>("GET", "/overview")
      const drained = overview.nodes.find((node) => node.address === address)
      return drained?.state === "drained" && drained.shards === 0 && overview.totals.shards === 300
        ? overview
        : undefined
    })
    assert.strictEqual(moved.nodes.find((node) => node.address !== address)?.state, "ready")
    // Who still asks it is served, by the other's shards.
    const sent = await on(nodes[1], agent).http.post("/v1/messages", {
      to: (await newAgent(nodes[0], "peer")).handle,
      client_msg_id: "through-the-drained-one",
      type: "text",
      content: { text: "hello" }
    })
    assert.strictEqual(sent.status, 201, `${sent}`)
    // The last one that serves cannot be drained.
    const last = moved.nodes.find((node) => node.address !== address)!.address
    await eventually(
      "a refusal",
      async () => (await operators[1].ask("POST", `/nodes/${last}/drain`)).status === 409 || undefined
    )
    await until200(operators[1], "POST", `/nodes/${address}/undrain`)
    await eventually("readiness", async () => (await fetch(`${nodes[1].url}/v1/ready`)).ok || undefined)
    await eventually("its share", async () => {
      const { nodes: all, totals } = await operators[0].ok<Overview>("GET", "/overview")
      return all.every(({ shards, state }) => state === "ready" && shards > 0) && totals.shards === 300 || undefined
    })
    await (await Socket.hello(nodes[1], agent.key)).close()
  })

  it("the log's level is set from the other node", async () => {
    const { nodes: [, second] } = await operators[0].ok<Overview>("GET", "/overview")
    const changed = await until200(operators[0], "PUT", `/nodes/${second!.address}/log-level`, { level: "warn" })
    assert.strictEqual((changed as Node).log_level, "warn")
    const before = nodes[1].stderr.length
    await nodes[1].http().get("/v1/agents/me")
    await until200(operators[0], "PUT", `/nodes/${second!.address}/log-level`, { level: "debug" })
    assert.notInclude(nodes[1].stderr.slice(before), '"level":"debug"')
    await nodes[1].http().get("/v1/agents/me")
    await eventually("a debug line", () => nodes[1].stderr.slice(before).includes('"level":"debug"') || undefined)
  })

  it("a node that hangs is shown as silent, and no request waits for it; one that was killed is shown as killed", async () => {
    const agent = await newAgent(nodes[0], "left")
    nodes[1].process.kill("SIGSTOP")
    // A second for the node, and what the rest takes.
    const inTime = <A>(method: string, path: string): Promise<A> =>
      promptly(path, [nodes[0]], operators[0].ok<A>(method, path, method === "POST" ? {} : undefined), 1_300)
    for (let round = 0; round < 2; round++) {
      const seen = await inTime<Overview>("GET", "/overview")
      assert.deepStrictEqual(seen.nodes.map(({ state }) => state), ["ready", "silent"])
      if (MEASURES) assert.include(seen.nodes[1]?.words, "did not answer")
      const [detail, why, closed] = await Promise.all([
        inTime<{ silent_nodes: ReadonlyArray<string> }>("GET", `/agents/${agent.handle}`),
        inTime<{ chain: ReadonlyArray<{ link: string; state: string }> }>("GET", `/agents/${agent.handle}/why`),
        inTime<{ message: string }>("POST", `/agents/${agent.handle}/disconnect`)
      ])
      assert.deepStrictEqual(detail.silent_nodes, [seen.nodes[1]!.address])
      assert.strictEqual(why.chain.find(({ link }) => link === "nodes")?.state, "unknown")
      assert.include(closed.message, "did not answer")
    }
    nodes[1].process.kill("SIGCONT")
    await eventually(
      "it is back",
      async () => (await operators[0].ok<Overview>("GET", "/overview")).totals.silent === 0 || undefined
    )
    await nodes[1].kill()
    cluster.nodes.pop()
    const gone = await eventually("it is gone", async () => {
      const overview = await operators[0].ok<Overview>("GET", "/overview")
      return overview.nodes[1]?.state === "silent" && overview.totals.shards === 300 ? overview : undefined
    })
    assert.include(gone.nodes[1]?.words, "cannot be reached")
  })

  it("a node that starts has the limits that were changed while it was away", async () => {
    const agent = await newAgent(nodes[0], "away")
    await operators[0].ok("PUT", "/limits/LIMITS_CARDS_PER_MINUTE", { value: 400 })
    const back = await cluster.add()
    assert.strictEqual((await on(back, agent).http.get(`/v1/agents/${agent.handle}`)).header("ratelimit-limit"), "400")
    await operators[0].ok("DELETE", "/limits/LIMITS_CARDS_PER_MINUTE")
  })
}
