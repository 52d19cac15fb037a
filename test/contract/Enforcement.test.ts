import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { stat } from "node:fs/promises"
import { join } from "node:path"
import { admin, adminHere } from "../support/Admin.ts"
import { eventually, within } from "../support/Eventually.ts"
import { promptly } from "../support/Promptly.ts"
import type { ProgramResult } from "../support/RunParley.ts"
import { agentOf, freshHandle, newAgent, NODES, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { type OpenApiDocument, operationsOf } from "./Document.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, freshMsgId, inbox, say, words } from "./Talk.ts"

describe("wire.md J, Enforcement, at the default thresholds", () => {
  let server: Server
  /** Strangers to everybody, each used once. */
  let fleet: Array<TestAgent>

  const command = (...args: ReadonlyArray<string>): Promise<ProgramResult> => adminHere(server.place, ...args)
  const succeeded = ({ code, stderr, stdout }: ProgramResult): string => {
    assert.deepStrictEqual([code, stderr], [0, ""], stdout)
    return stdout
  }
  const told = async (...args: ReadonlyArray<string>): Promise<string> => succeeded(await command(...args))
  const toldAsProcess = async (...args: ReadonlyArray<string>): Promise<string> =>
    succeeded(await admin(server.place, ...args))

  beforeAll(async () => {
    server = await sharedServer()
    const handles = Array.from({ length: 75 }, () => freshHandle("flt"))
    const made = JSON.parse(await toldAsProcess("agents", "create", ...handles, "--json")) as ReadonlyArray<
      { readonly handle: string; readonly id: string; readonly email: string; readonly api_key: string }
    >
    assert.deepStrictEqual(made.map(({ handle }) => handle), handles)
    fleet = made.map(({ api_key, ...account }) => agentOf(server, account, api_key))
  })
  afterAll(() => server.stop())

  const some = (n: number): ReadonlyArray<TestAgent> => {
    assert.isAtLeast(fleet.length, n)
    return fleet.splice(0, n)
  }
  const one = (): TestAgent => some(1)[0]!
  const block = async (from: TestAgent, to: TestAgent): Promise<void> => {
    ;(await from.http.post(`/v1/contacts/${to.handle}/block`)).ok(200, Shapes.Confirmation)
  }
  const report = async (from: TestAgent, to: TestAgent): Promise<void> => {
    ;(await from.http.post(`/v1/contacts/${to.handle}/report`, { reason: "spam" })).ok(200, Shapes.Confirmation)
  }
  const statusOf = async (agent: TestAgent): Promise<string> =>
    (await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent).status
  const listed = async (agent: TestAgent): Promise<boolean> =>
    (await server.http().get(`/v1/directory?q=${agent.handle}`)).ok(200, Shapes.AnonymousDirectory).agents.length === 1

  it("144 and 146. 15 counted blocks restrict, 14 do not; an unblock lifts it", async () => {
    const [target, friend, ...strangers] = some(6) as [TestAgent, TestAgent, ...Array<TestAgent>]
    const blockers = some(15)
    await say(target, friend)
    await say(friend, target)
    for (const blocker of blockers) await say(target, blocker)
    await Promise.all(blockers.slice(0, 14).map((blocker) => block(blocker, target)))
    assert.strictEqual(await statusOf(target), "active")
    await say(target, strangers[0]!)

    await block(blockers[14]!, target)
    assert.strictEqual(await statusOf(target), "restricted")
    ;(await attempt(target, strangers[1]!)).refused(403, "AGENT_RESTRICTED")
    assert.deepStrictEqual(await inbox(strangers[1]!), [])
    await say(target, friend)
    await say(friend, target) // One that exists and is cold stays what it was.
    ;(await attempt(target, strangers[0]!)).refused(403, "AWAITING_REPLY")
    assert.strictEqual((await friend.http.get(`/v1/agents/${target.handle}`)).ok(200, Shapes.Card).status, "restricted")
    assert.isTrue(await listed(target))
    const { group } = (await target.http.post("/v1/groups", { name: "Band" })).ok(200, Shapes.CreatedGroup)
    const invite = (handle: string) => target.http.post(`/v1/groups/${group.id}/members`, { handle })
    ;(await invite(strangers[2]!.handle)).refused(403, "AGENT_RESTRICTED")
    assert.strictEqual((await invite(friend.handle)).ok(200, Shapes.AddResult).outcome, "invited")
    ;(await blockers[0]!.http.delete(`/v1/contacts/${target.handle}/block`)).ok(200, Shapes.Confirmation)
    assert.strictEqual(await statusOf(target), "active")
    await say(target, strangers[1]!)
  })

  it("145. blocks and reports by agents who wrote first, or with whom there was nothing, do not count", async () => {
    const [target, stranger] = some(2) as [TestAgent, TestAgent]
    const others = some(15)
    for (const other of others.slice(0, 10)) await say(other, target)
    await Promise.all(others.map((other, i) => i < 12 ? report(other, target) : block(other, target)))
    assert.strictEqual(await statusOf(target), "active")
    await say(target, stranger)
    const shown = JSON.parse(await told("agents", "show", target.handle, "--json")) as {
      counts: ReadonlyArray<{ counted: number }>
    }
    assert.deepStrictEqual(shown.counts.map(({ counted }) => counted), [0, 0, 0])
  })

  it("147. 10 counted reports suspend, 9 do not: 403 everywhere but at me, sockets closed, inbound stored; a restore ends it", async () => {
    const [target, friend] = some(2) as [TestAgent, TestAgent]
    const reporters = some(10)
    const opening = { to: friend.handle, client_msg_id: freshMsgId(), content: { text: words() } }
    ;(await target.http.post("/v1/messages", opening)).ok(201, Shapes.Message)
    await say(friend, target)
    for (const reporter of reporters) await say(target, reporter)
    await Promise.all(reporters.slice(0, 9).map((reporter) => report(reporter, target)))
    assert.strictEqual(await statusOf(target), "active")
    const socket = await Socket.hello(server, target.key)

    await report(reporters[9]!, target)
    ;(await attempt(target, friend)).refused(403, "AGENT_SUSPENDED")
    const closed = await promptly("the close", [server], socket.closed, 1_000)
    assert.deepStrictEqual(closed, { code: 1008, reason: "account suspended" })
    assert.strictEqual(await statusOf(target), "suspended")
    const { http } = target
    const operations = operationsOf((await server.http().get("/v1/openapi.json")).body as OpenApiDocument)
      .filter(({ name, needsKey }) => needsKey && name !== "GET /v1/agents/me")
    assert.isAbove(operations.length, 50)
    for (const { method, name, path } of operations) {
      const answer = await http.request(method, path.replace("{handle}", target.handle).replaceAll(/\{\w+\}/g, "x"))
      assert.strictEqual(answer.status, 403, `${name}: ${answer}`)
      answer.refused(403, "AGENT_SUSPENDED")
    }
    ;(await http.post("/v1/messages", opening)).refused(403, "AGENT_SUSPENDED")
    ;(await http.get(`/v1/directory?q=${friend.handle}`)).refused(403, "AGENT_SUSPENDED")
    ;(await Socket.refusal(server, { authorization: `Bearer ${target.key}` })).refused(403, "AGENT_SUSPENDED")
    const again = await Socket.open(server)
    again.send({ type: "hello", api_key: target.key })
    assert.deepStrictEqual(await within("the refusal", again.closed), { code: 1008, reason: "account suspended" })
    assert.strictEqual((await friend.http.get(`/v1/agents/${target.handle}`)).ok(200, Shapes.Card).status, "suspended")
    assert.isFalse(await listed(target))
    const inbound = await say(friend, target)

    assert.include(await told("agents", "show", target.handle), "10 counted reports within")
    await told("agents", "restore", target.handle, "--reason", "a mistake")
    // By every node there is: one request after the other meets them in turn.
    const isActive = async () => await statusOf(target) === "active" && await statusOf(target) === "active"
    await promptly(
      "the restore to be known",
      [server],
      eventually("it", async () => await isActive() || undefined),
      1_500
    )
    assert.include((await inbox(target)).map(({ id }) => id), inbound.id)
    await say(target, friend)
    assert.isTrue(await listed(target))
    const reporter = one()
    await say(target, reporter)
    await report(reporter, target)
    assert.strictEqual(await statusOf(target), "active", "the ten from before count no more")
  })

  it("an operator's suspension closes sockets within a second while the server runs; recovery works and changes nothing", async () => {
    const target = await newAgent(server, "gone")
    const socket = await Socket.hello(server, target.key)
    await toldAsProcess("agents", "suspend", target.handle, "--reason", "an operator's own")
    const closed = await promptly("the close", [server], socket.closed, 1_000)
    assert.deepStrictEqual(closed, { code: 1008, reason: "account suspended" })
    ;(await target.http.get("/v1/conversations")).refused(403, "AGENT_SUSPENDED")
    const { pending_id } = (await server.http().post("/v1/agents/recover", { email: target.email })).body as {
      pending_id: string
    }
    const verified = await server.http().post("/v1/agents/recover/verify", {
      pending_id,
      code: await server.code(target.email)
    })
    assert.strictEqual(verified.status, 200, `${verified}`)
    const renewed = server.http((verified.body as { api_key: string }).api_key)
    assert.strictEqual((await renewed.get("/v1/agents/me")).ok(200, Shapes.Agent).status, "suspended")
    ;(await renewed.get("/v1/conversations")).refused(403, "AGENT_SUSPENDED")

    const log = JSON.parse(await told("audit", "list", "--agent", target.handle, "--json")) as ReadonlyArray<object>
    assert.lengthOf(log, 2)
    assert.deepInclude(log[0], { action: "show audit", handle: target.handle })
    assert.deepInclude(log[1], { action: "suspend", handle: target.handle, reason: "an operator's own" })
    assert.strictEqual((await command("agents", "suspend", target.handle)).code, 1)
    assert.strictEqual((await command("agents", "show", "nobody-here")).code, 1)
  })

  it.skipIf(NODES > 0)("operators' other commands work beside the server, whose door is its user's alone", async () => {
    assert.strictEqual((await stat(join(server.dataDir, "admin.sock"))).mode & 0o777, 0o600)
    const [taken, free] = [one(), freshHandle("new")]
    const refused = await command("agents", "create", free, taken.handle)
    assert.strictEqual(refused.code, 1)
    assert.include(refused.stderr, taken.handle)
    ;(await server.http(taken.key).get(`/v1/agents/${free}`)).refused(404, "AGENT_NOT_FOUND")
    const target = one()
    await report(taken, target)
    const reports = JSON.parse(await told("reports", "list", "--json")) as ReadonlyArray<object>
    assert.deepInclude(reports[0], { reported: target.handle, reporter: taken.handle, reason: "spam", counts: false })
    assert.deepStrictEqual(JSON.parse(await told("webhooks", "dead", "--json")), [])
    await told("agents", "suspend", target.handle)
    await told("agents", "restore", target.handle, "--reason", "enough")
    const shown = JSON.parse(await told("agents", "show", target.handle, "--json")) as {
      log: ReadonlyArray<{ action: string }>
    }
    // Whoever looks at an agent is told what was done to it, not who looked.
    assert.deepStrictEqual(shown.log.map(({ action }) => action), ["restore", "suspend", "create"])
    const log = JSON.parse(await told("audit", "list", "--json")) as ReadonlyArray<Record<string, unknown>>
    const operator = log[0]?.["operator"]
    assert.isString(operator)
    assert.deepStrictEqual(log.slice(0, 6).map(({ at: _at, no: _no, ...row }) => row), [
      { operator, action: "show audit", handle: null, reason: "npm run admin ?limit=50" },
      { operator, action: "show agent", handle: target.handle, reason: "npm run admin" },
      { operator, action: "restore", handle: target.handle, reason: "enough" },
      { operator, action: "suspend", handle: target.handle, reason: null },
      { operator, action: "show dead", handle: null, reason: "npm run admin ?limit=50" },
      { operator, action: "show reports", handle: null, reason: "npm run admin ?state=all&limit=50" }
    ])
    // What was refused made nobody.
    assert.notInclude(log.map(({ handle }) => handle), free)
    const config = await told("config")
    assert.match(config, /^LIMITS_SENDS_PER_SECOND +1000000 +environment$/m)
    assert.match(config, /^LIMITS_SUSPEND_REPORTS +10 +default$/m)
    assert.include(await told("agents", "suspend", "--help"), "--reason")
  })
})
