import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, Page } from "playwright-core"
import { elapse, eventually } from "../support/Eventually.ts"
import { Cluster, missingForNodes, on } from "../support/Nodes.ts"
import { newLink, newToken, request } from "../support/Operating.ts"
import { MEASURES, promptly } from "../support/Promptly.ts"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { picture, takesPictures } from "./Pictures.ts"

const ALL = process.env["PAGES"] === "all"
/** A node that does not answer is waited for a second; the rest is what this machine takes for an answer under load. */
const LONGEST_MS = 1_000 + 750

let browser: Browser
let cluster: Cluster
let nodes: readonly [Server, Server]
let load: Load

/** Agents that write to each other through both nodes, until it is stopped. */
class Load {
  readonly failed: Array<string> = []
  sent = 0
  /** The nodes that are asked. */
  through: ReadonlyArray<Server>
  private going = true
  private done: Promise<unknown> = Promise.resolve()
  /** The open socket of each agent. */
  private readonly sockets: Array<Socket | undefined> = []
  private readonly agents: ReadonlyArray<TestAgent>

  private constructor(agents: ReadonlyArray<TestAgent>, through: ReadonlyArray<Server>) {
    this.agents = agents
    this.through = through
  }

  static async start(through: readonly [Server, Server]): Promise<Load> {
    const agents = await Promise.all(Array.from({ length: 8 }, (_, i) => newAgent(through[i % 2]!, `load-${i}`)))
    const load = new Load(agents, through)
    load.done = Promise.all(agents.flatMap((_, i) => [load.listen(i), load.write(i)]))
    return load
  }

  /** Keeps a socket open as the published client does, because a busy node may close one. */
  private async listen(i: number): Promise<void> {
    for (let attempt = 0; this.going; attempt++) {
      const socket = await Socket.hello(this.through[(i + attempt) % this.through.length]!, this.agents[i]!.key).catch(
        () => undefined
      )
      this.sockets[i] = socket
      if (socket === undefined) await elapse("the time after which a client connects again", 250)
      else if (this.going) await socket.closed
      else await socket.close()
    }
  }

  private async write(i: number): Promise<void> {
    for (let n = 0; this.going; n++) {
      const from = this.agents[i]!
      // A node shows the sends of the conversations that it owns. All eight write to each other, in 28 conversations, so
      // that each node owns some. Each partner answers, so that a conversation is established after one round.
      const to = this.agents[i ^ (1 + n % 7)]!
      // As the published client: the same message again while a node is away or busy, by the next one.
      for (let attempt = 0;; attempt++) {
        const node = this.through[(n + i + attempt) % this.through.length]!
        const status = await on(node, from).http.post("/v1/messages", {
          to: to.handle,
          client_msg_id: `${i}-${n}`,
          content: { text: `load ${n}` }
        })
          .then((answer) => answer.status, () => 0)
        if (status === 200 || status === 201) this.sent++
        if (status > 0 && status < 500) break
        if (attempt === 20) this.failed.push(`${status} of ${node.url}`)
        if (attempt === 20 || !this.going) break
        await elapse("the time after which a client sends again", 250)
      }
      await elapse("the time between two messages of the load", 60)
    }
  }

  async stop(): Promise<void> {
    this.going = false
    await Promise.all(this.sockets.map((socket) => socket?.close().catch(() => undefined)))
    await this.done
  }
}

/** Whether this is the state of a node that is ready. The number of its warnings may follow. */
const isReady = (state: string | undefined): boolean => state?.startsWith("ready") === true

const go = (page: Page, name: string) =>
  page.getByRole("navigation", { name: "Console" }).getByRole("link", { name }).click()
const nodesTable = (page: Page) => page.getByRole("region", { name: "Nodes" })
const openAgent = async (page: Page, handle: string) => {
  await go(page, "Agents")
  await page.getByLabel("Handle begins with").fill(handle)
  await page.getByRole("button", { name: "Find" }).click()
  await page.getByRole("link", { name: `@${handle}` }).click()
  await page.getByRole("button", { name: "Why does it get nothing?" }).waitFor()
}

/** The page of an operator on the first node; keeps how long each answer of the API took, in milliseconds. */
const signIn = async (): Promise<{ readonly watched: Watched; readonly took: Array<readonly [string, number]> }> => {
  const watched = await Watched.open(browser, nodes[0].url, { viewport: { width: 1440, height: 900 } })
  const { page } = watched
  const took: Array<readonly [string, number]> = []
  page.on("response", (response) => {
    const { requestStart, responseStart } = response.request().timing()
    if (response.url().includes("/console/api/")) took.push([response.url(), responseStart - requestStart])
  })
  await page.goto(`${nodes[0].url}/console#${await newLink(nodes[0])}`)
  await nodesTable(page).waitFor()
  return { watched, took }
}

const missing = `${MISSING}${missingForNodes}${ALL ? "" : " (npm run test:pages)"}`

describe.skipIf(CHROMIUM === undefined || missingForNodes !== "" || !ALL)(
  `/console of two nodes under load${missing}`,
  () => {
    beforeAll(async () => {
      ;[browser, cluster] = await Promise.all([
        launch(),
        Cluster.start(2, {
          WEBHOOK_ALLOW_PRIVATE: "loopback",
          WEBHOOK_RETRY_SECONDS: "1",
          WEBHOOK_CIRCUIT_IN_A_ROW: "1000",
          WEBHOOK_CIRCUIT_PER_MINUTE: "1000"
        })
      ])
      nodes = cluster.pair
      load = await Load.start(nodes)
    })
    afterAll(async () => {
      await load?.stop()
      await browser?.close()
      await cluster?.stop()
    })

    it("shows both nodes live, with what they do", async () => {
      const { watched } = await signIn()
      const { page } = watched
      const figures = async () =>
        (await Promise.all(
          [1, 2].map((i) => nodesTable(page).getByRole("row").nth(i).getByRole("cell").allTextContents())
        ))
          // State, version, up, shards, sockets, sends/s, …
          .map(([state, , , shards, sockets, sends]) => ({
            state,
            shards: Number(shards),
            sockets: Number(sockets),
            sends: Number(sends)
          }))
      const both = async (name: "shards" | "sockets") => (await figures()).reduce((sum, one) => sum + one[name], 0)
      await eventually("both nodes", async () => (await figures()).every(({ state }) => isReady(state)) || undefined)
      await eventually("all shards", async () => await both("shards") === 300 || undefined)
      await eventually("all sockets", async () => await both("sockets") === 8 || undefined)
      // A busy machine may stop one node for a second, so each node's figure is awaited by itself.
      for (const i of [0, 1]) await eventually("sends", async () => ((await figures())[i]?.sends ?? 0) > 0 || undefined)
      const requests = page.getByRole("img", { name: /^Requests\/s: now/ })
      const before = await requests.getAttribute("aria-label")
      await eventually(
        "another figure, without asking",
        async () => (await requests.getAttribute("aria-label")) !== before || undefined
      )
      await watched.accessible()
      // The picture shows some history.
      if (takesPictures)
        await elapse("ten seconds of figures to be shown", 10_000)
      await picture(page, "console-overview")
      await watched.close()
    })

    it("an agent on the other node is disconnected, suspended and restored", async () => {
      const [agent, peer] = [await newAgent(nodes[1], "watched"), await newAgent(nodes[0], "peer")]
      const { watched } = await signIn()
      const { page } = watched
      const socket = await Socket.hello(nodes[1], agent.key)
      await openAgent(page, agent.handle)
      const address = `127.0.0.1:${cluster.runnerPort(nodes[1])}`
      await page.getByRole("region", { name: "Sockets" }).getByText(address).waitFor()
      await page.getByRole("button", { name: "Disconnect" }).click()
      await page.getByText("1 socket is closed.").waitFor()
      assert.strictEqual((await socket.closed).code, 1013)
      await page.getByRole("region", { name: "Sockets" }).waitFor({ state: "detached" })

      const again = await Socket.hello(nodes[1], agent.key)
      await page.getByLabel("Reason, for the audit log").fill("floods a group")
      await page.getByRole("button", { name: "Suspend" }).click()
      await page.getByRole("group").getByRole("button", { name: "Suspend" }).click()
      await page.getByText(`@${agent.handle} is suspended.`).waitFor()
      for (const node of nodes) {
        ;(await on(node, agent).http.post("/v1/messages", {
          to: peer.handle,
          client_msg_id: "no",
          content: { text: "no" }
        })).refused(403, "AGENT_SUSPENDED")
      }
      assert.strictEqual((await promptly("the close", nodes, again.closed, 1_000)).code, 1008)
      await page.getByRole("button", { name: "Why does it get nothing?" }).click()
      await page.getByText("stops here").first().waitFor()
      await watched.accessible()
      await page.getByRole("button", { name: "Restore" }).click()
      await page.getByText("is restored").waitFor()
      for (const node of nodes) {
        const sends = eventually(
          "the send",
          async () =>
            (await on(node, agent).http.post("/v1/messages", {
                to: peer.handle,
                client_msg_id: "yes",
                content: { text: "yes" }
              })).status < 300 || undefined
        )
        await promptly("the restore", nodes, sends, 1_000)
      }
      await page.getByRole("region", { name: "Log" }).getByText("floods a group").first().waitFor()
      await watched.close()
    })

    it("a slow agent is found, with the most waiting first, and the reason", async () => {
      const [slow, stuck, writer] = [
        await newAgent(nodes[1], "billing"),
        await newAgent(nodes[0], "archive"),
        await newAgent(nodes[0], "orders")
      ]
      for (const [agent, count] of [[slow, 40], [stuck, 12]] as const) {
        await agent.http.post("/v1/messages", { to: writer.handle, client_msg_id: "begin", content: { text: "begin" } })
        for (let i = 0; i < count; i++) {
          const answer = await writer.http.post("/v1/messages", {
            to: agent.handle,
            client_msg_id: `${agent.handle} ${i}`,
            content: { text: `${i}` }
          })
          assert.strictEqual(answer.status, 201, `${answer}`)
        }
      }
      const { watched } = await signIn()
      const { page } = watched
      await go(page, "Agents")
      await page.getByLabel("Order").selectOption("waiting")
      const rows = page.getByRole("region", { name: "Agents" }).getByRole("row")
      await eventually("the one with more of them first", async () => {
        const handles = (await rows.getByRole("link").allTextContents()).filter((text) =>
          [slow, stuck].some(({ handle }) => text === `@${handle}`)
        )
        return handles.join() === `@${slow.handle},@${stuck.handle}` || undefined
      })
      await rows.filter({ hasText: `@${slow.handle}` }).getByText("40", { exact: true }).waitFor()
      await watched.accessible()
      await picture(page, "console-agents")
      await page.getByRole("link", { name: `@${slow.handle}` }).click()
      await page.getByRole("button", { name: "Why does it get nothing?" }).click()
      await page.getByText("40 messages wait").waitFor()
      await page.getByText("The agent is not connected: its client must open a socket, or fetch messages by sync.")
        .first()
        .waitFor()
      await watched.accessible()
      await picture(page, "console-agent")
      await watched.close()
    })

    it("a limit that is changed is felt on both nodes within a second, and taken back", async () => {
      const [agent, other] = [await newAgent(nodes[0], "limited"), await newAgent(nodes[1], "other")]
      const limitOn = async (node: Server) =>
        (await on(node, agent).http.get(`/v1/agents/${other.handle}`)).header("ratelimit-limit")
      const known = (value: string) =>
        Promise.all(
          nodes.map((node) => eventually("the limit", async () => (await limitOn(node)) === value || undefined))
        )
      const { watched } = await signIn()
      const { page } = watched
      await go(page, "Limits")
      await page.getByLabel("For one agent (handle)").fill(agent.handle)
      await page.getByRole("button", { name: "Find" }).click()
      await page.getByText(`The limits of @${agent.handle}`).waitFor()
      const row = page.getByRole("row").filter({ hasText: "LIMITS_CARDS_PER_MINUTE" })
      await row.getByLabel("New value of LIMITS_CARDS_PER_MINUTE").fill("12")
      await row.getByRole("button", { name: "Set" }).click()
      await page.getByText(`LIMITS_CARDS_PER_MINUTE is 12 for @${agent.handle}.`).waitFor()
      await promptly("the limit", nodes, known("12"), 1_000)
      // Over both nodes together: what was asked so far counts too.
      const statuses = await Promise.all(
        Array.from({ length: 14 }, (_, i) => on(nodes[i % 2]!, agent).http.get(`/v1/agents/${other.handle}`))
      )
      assert.isAtLeast(statuses.filter(({ status }) => status === 429).length, 2)
      await row.getByText("12").first().waitFor()
      await watched.accessible()
      await row.getByRole("button", { name: "Take back" }).click()
      await page.getByText("the change is reset").waitFor()
      await promptly("the end", nodes, known("1000000"), 1_000)
      await watched.close()
    })

    it("a dead webhook delivery is posted again", async () => {
      const receiver = await Receiver.start()
      receiver.status = 503
      const [agent, peer] = [await newAgent(nodes[1], "hooked"), await newAgent(nodes[0], "poster")]
      await agent.http.post("/v1/webhooks", { url: receiver.url("/hook"), events: ["message.new"] })
      await peer.http.post("/v1/messages", {
        to: agent.handle,
        client_msg_id: "1",
        content: { text: "for the webhook" }
      })
      const { watched } = await signIn()
      const { page } = watched
      await go(page, "Webhooks")
      await page.getByLabel("Of the agent (handle)").fill(agent.handle)
      await eventually("the dead delivery", async () => {
        await page.getByRole("button", { name: "Find" }).click()
        await go(page, "Audit")
        await go(page, "Webhooks")
        await page.getByRole("region", { name: "Dead deliveries" }).or(page.getByText("No dead deliveries:")).waitFor()
        return (await page.getByRole("row").filter({ hasText: agent.handle }).count()) === 1 || undefined
      })
      await watched.accessible()
      await picture(page, "console-webhooks")
      receiver.status = 200
      const posted = receiver.posts.length
      await page.getByRole("row").filter({ hasText: agent.handle }).getByRole("button", { name: "Retry" }).click()
      await page.getByText("1 delivery is tried again.").waitFor()
      await eventually("the post", () => receiver.posts.length > posted || undefined)
      await page.getByText("No dead deliveries:").waitFor()
      receiver.stop()
      await watched.close()
    })

    it("groups, reports, the audit log and sessions are shown, whichever node has them", async () => {
      const [planner, research, seller] = [
        await newAgent(nodes[0], "planner"),
        await newAgent(nodes[1], "research"),
        await newAgent(nodes[1], "seller")
      ]
      for (
        const [name, description] of [["Lisbon offer", "What we send to Casco and Norte"], ["Night shift", ""], [
          "Release 4.2",
          "Who tests what"
        ]] as const
      ) {
        await planner.http.post("/v1/groups", { name, description, member_handles: [research.handle] })
      }
      for (const { id } of (await research.http.get("/v1/groups/invites")).body as ReadonlyArray<{ id: string }>) {
        await research.http.post(`/v1/groups/invites/${id}/accept`)
      }
      for (
        const [to, reason] of [[planner, "The same offer every hour"], [
          research,
          "Asks for our customers' addresses"
        ]] as const
      ) {
        await seller.http.post("/v1/messages", { to: to.handle, client_msg_id: reason, content: { text: "Buy now" } })
        await to.http.post(`/v1/contacts/${seller.handle}/report`, { reason })
      }
      const { watched } = await signIn()
      const { page } = watched
      await go(page, "Groups")
      await page.getByRole("link", { name: "Lisbon offer" }).waitFor()
      await watched.accessible()
      await picture(page, "console-groups")
      await page.getByLabel("Name contains").fill("lisbon")
      await page.getByRole("button", { name: "Find" }).click()
      await page.getByRole("link", { name: "Night shift" }).waitFor({ state: "detached" })
      await page.getByRole("link", { name: "Lisbon offer" }).click()
      await page.getByRole("region", { name: "Members" }).getByText(`@${research.handle}`).waitFor()
      await watched.accessible()

      await go(page, "Reports")
      const report = (reason: string) => page.getByRole("row").filter({ hasText: reason })
      await report("every hour").waitFor()
      await watched.accessible()
      await picture(page, "console-reports")
      await report("every hour").getByRole("button", { name: "Uphold" }).click()
      await page.getByText("Upheld: the report still counts.").waitFor()
      await report("every hour").waitFor({ state: "detached" })
      await report("customers").getByRole("button", { name: "Dismiss" }).click()
      await page.getByText("Dismissed: the report no longer counts.").waitFor()
      await page.getByText("No report matches the filters.").waitFor()
      await openAgent(page, seller.handle)
      const counted = page.getByRole("region", { name: "Counts" }).getByRole("row").filter({ hasText: "reports" })
      assert.deepStrictEqual((await counted.getByRole("cell").allTextContents()).slice(0, 1), ["1"])

      await go(page, "Audit")
      await page.getByRole("row").filter({ hasText: "dismiss report" }).first().waitFor()
      await watched.accessible()
      await picture(page, "console-audit")
      await page.getByLabel("Show").selectOption("true")
      await page.getByRole("row").filter({ hasText: "show audit" }).first().waitFor()
      await watched.accessible()

      const token = await newToken(nodes[1])
      await go(page, "Sessions")
      await page.getByText("this one").waitFor()
      await watched.accessible()
      await picture(page, "console-sessions")
      await page.getByRole("row").filter({ hasText: "token" }).first().getByRole("button", { name: "End" }).click()
      await page.getByText("The session is ended.").waitFor()
      for (const node of nodes)
        assert.strictEqual((await request(node, "GET", "/session", { authorization: `Bearer ${token}` })).status, 404)
      await watched.close()
    })

    it("a node is drained and undrained; sends go on", async () => {
      const agent = await newAgent(nodes[1], "drained")
      const { watched } = await signIn()
      const { page } = watched
      const address = `127.0.0.1:${cluster.runnerPort(nodes[1])}`
      const socket = await Socket.hello(nodes[1], agent.key)
      await nodesTable(page).getByRole("link", { name: address }).click()
      await page.getByRole("button", { name: "Drain" }).click()
      await page.getByRole("group").getByRole("button", { name: "Drain" }).click()
      await page.getByText("The node drains: its sockets close").waitFor()
      assert.strictEqual((await socket.closed).code, 1001)
      assert.strictEqual((await fetch(`${nodes[1].url}/v1/ready`)).status, 503)
      await watched.accessible()
      await go(page, "Overview")
      const row = nodesTable(page).getByRole("row").filter({ hasText: address })
      await eventually("no shard, no socket", async () => {
        const [state, , , shards, sockets] = await row.getByRole("cell").allTextContents()
        return state?.startsWith("drained") === true && shards === "0" && sockets === "0" || undefined
      })
      await watched.accessible()
      await row.getByRole("link").click()
      await page.getByRole("button", { name: "Undrain" }).click()
      await page.getByText("The node accepts requests again.").waitFor()
      await go(page, "Overview")
      await eventually("its share of the shards", async () => {
        const [state, , , shards] = await row.getByRole("cell").allTextContents()
        return isReady(state) && Number(shards) > 0 || undefined
      })
      assert.deepStrictEqual(load.failed, [])
      await watched.close()
    })

    it("165. a node that hangs or is killed is shown as not answering, and nothing waits longer than a second for it", async () => {
      const agent = await newAgent(nodes[0], "left")
      const { took, watched } = await signIn()
      const { page } = watched
      const address = `127.0.0.1:${cluster.runnerPort(nodes[1])}`
      const row = nodesTable(page).getByRole("row").filter({ hasText: address })
      await row.getByText("ready").waitFor()
      load.through = [nodes[0]]
      took.length = 0
      nodes[1].process.kill("SIGSTOP")
      await row.getByText("silent").waitFor()
      await row.getByText("did not answer").waitFor()
      await watched.accessible()
      await picture(page, "console-node-silent")
      await openAgent(page, agent.handle)
      await page.getByText(`${address} did not answer`).first().waitFor()
      await page.getByRole("button", { name: "Why does it get nothing?" }).click()
      await page.getByText("It may have sockets there").or(page.getByText("it may have sockets there")).first()
        .waitFor()
      await page.getByRole("button", { name: "Disconnect" }).click()
      await page.getByText(`0 sockets are closed. ${address} did not answer.`).waitFor()
      await watched.accessible()
      await page.goto(`${nodes[0].url}/console#/nodes/${encodeURIComponent(address)}`)
      await page.getByRole("heading", { name: address }).getByText("silent").waitFor()
      assert.isTrue(await page.getByRole("button", { name: "Drain" }).isDisabled())
      for (const name of ["Overview", "Groups", "Reports", "Webhooks", "Limits", "Audit", "Sessions"]) {
        await go(page, name)
        await page.getByRole("heading", { name, level: 2 }).waitFor()
      }
      nodes[1].process.kill("SIGCONT")
      await go(page, "Overview")
      await row.getByText("ready").waitFor()
      await nodes[1].kill()
      cluster.nodes.pop()
      await row.getByText("silent").waitFor()
      await eventually("all shards on the other", async () => {
        const [, , , shards] = await nodesTable(page).getByRole("row").filter({ hasText: "answers you" }).getByRole(
          "cell"
        ).allTextContents()
        return shards === "300" || undefined
      })
      const slow = took.filter(([, ms]) => ms > LONGEST_MS)
      console.info(
        `${took.length} answers while a node was silent, the slowest after ${
          Math.max(...took.map(([, ms]) => ms)).toFixed(0)
        } ms`
      )
      if (MEASURES) assert.deepStrictEqual(slow, [])
      await watched.accessible()
      // Whoever runs it is not needed for the rest to go on.
      const sent = load.sent
      await eventually("sends go on", () => load.sent > sent + 20 || undefined)
      await watched.close()
    })
  }
)
