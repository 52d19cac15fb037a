import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatClient, RealtimeClient } from "agentchatme"
import { createHash } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { request } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import S3rver from "s3rver"
import { freePort } from "../../runners/local/FreePort.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Haproxy, missingHaproxy } from "../../test/support/Haproxy.ts"
import { Cluster, missingForNodes } from "../../test/support/Nodes.ts"
import { newAgent, type TestAgent } from "../../test/support/Server.ts"

const missing = missingHaproxy || missingForNodes

/** What a node answers to this very path, with nothing made tidy on the way. */
const statusOf = (url: string, path: string): Promise<number | undefined> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url)
    request({ hostname, port, path }, (answer) => {
      answer.resume()
      resolve(answer.statusCode)
    }).on("error", reject).end()
  })

describe.skipIf(missing !== "")(`deploy/haproxy.cfg before three nodes${missing}`, () => {
  let folder: string
  let store: S3rver
  let cluster: Cluster
  let haproxy: Haproxy
  let url: string
  let ada: TestAgent
  let bob: TestAgent

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "parley-haproxy-"))
    store = new S3rver({
      port: 0,
      address: "127.0.0.1",
      silent: true,
      directory: join(folder, "bucket"),
      configureBuckets: [{ name: "parley-files" }]
    })
    const { port: storePort } = await store.run()
    const port = await freePort()
    url = `http://127.0.0.1:${port}`
    cluster = await Cluster.start(1, {
      TRUST_PROXY: "1",
      DRAIN_SECONDS: "5",
      S3_BUCKET: "parley-files",
      S3_ENDPOINT: url,
      S3_INTERNAL_ENDPOINT: `http://127.0.0.1:${storePort}`,
      S3_ACCESS_KEY_ID: "S3RVER",
      S3_SECRET_ACCESS_KEY: "S3RVER",
      S3_FORCE_PATH_STYLE: "on"
    })
    for (let i = 0; i < 2; i++) await cluster.add()
    haproxy = await Haproxy.start({
      port,
      nodes: cluster.nodes.map((node) => new URL(node.url).host),
      files: `127.0.0.1:${storePort}`
    })
    await eventually(
      "a ready node behind the balancer",
      () => fetch(`${url}/v1/ready`).then((answer) => answer.ok || undefined, () => undefined),
      10_000
    )
      .catch((error: unknown) => assert.fail(`${String(error)}\n${haproxy.log}`))
    const [one, two] = cluster.nodes
    ada = await newAgent(one!, "ada")
    bob = await newAgent(two!, "bob")
  }, 180_000)
  afterAll(async () => {
    await haproxy?.stop()
    await cluster?.stop()
    await store?.close()
    await rm(folder, { recursive: true, force: true })
  })

  /** The published client, through the balancer. */
  const clientOf = (agent: TestAgent) => new AgentChatClient({ apiKey: agent.key, baseUrl: url })

  it("requests, sockets and files pass; what belongs to operators does not", async () => {
    const heard: Array<unknown> = []
    const socket = new RealtimeClient({ apiKey: bob.key, baseUrl: url.replace("http", "ws"), client: clientOf(bob) })
    socket.on("message.new", ({ payload }) => void heard.push(payload["id"]))
    await socket.connect()
    const { message } = await clientOf(ada).sendMessage({ to: bob.handle, content: { text: "through the balancer" } })
    await eventually("the message on the socket", () => heard.includes(message.id) || undefined)
    socket.disconnect()

    const bytes = new TextEncoder().encode("a file")
    const upload = await clientOf(ada).createUpload({
      to: bob.handle,
      filename: "a.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    })
    assert.isTrue(upload.upload_url.startsWith(`${url}/parley-files/`), upload.upload_url)
    assert.strictEqual((await fetch(upload.upload_url, { method: "PUT", body: bytes })).status, 200)
    await clientOf(bob).sendMessage({ to: ada.handle, content: { text: "an answer" } })
    await clientOf(ada).sendMessage({ to: bob.handle, type: "file", content: { attachment_id: upload.attachment_id } })
    const fetched = await fetch(await clientOf(bob).getAttachmentDownloadUrl(upload.attachment_id))
    assert.strictEqual(await fetched.text(), "a file")

    assert.strictEqual((await fetch(`${cluster.nodes[0]!.url}/internal/metrics`)).status, 200)
    for (
      const path of [
        "/internal/metrics",
        "//internal/metrics",
        "/%69nternal/metrics",
        "/internal/metrics/",
        "/v1/../internal/metrics"
      ]
    ) {
      assert.strictEqual(await statusOf(url, path), 404, path)
    }
  })

  it("a node that stops gets no more requests while it still serves, and no send fails over a rolling restart", {
    timeout: 120_000
  }, async () => {
    const state = { over: false, sent: 0, slowest: 0 }
    const failures: Array<unknown> = []
    const talk = async () => {
      const client = clientOf(ada)
      while (!state.over) {
        const at = performance.now()
        await client.sendMessage({ to: bob.handle, content: { text: "on and on" } }).then(
          () => state.sent++,
          (error: unknown) => failures.push(error)
        )
        state.slowest = Math.max(state.slowest, performance.now() - at)
        await pause(20)
      }
    }
    const talks = [talk(), talk()]
    for (const [i, node] of [...cluster.nodes].entries()) {
      const before = state.sent
      node.terminate()
      await eventually(
        "no from /v1/ready",
        async () => (await fetch(`${node.url}/v1/ready`)).status === 503 || undefined,
        1_000
      )
      await eventually(
        "the balancer to see it",
        () => haproxy.log.includes(`Server nodes/node-${i + 1} is DOWN`) || undefined,
        2_000
      )
      // It serves on: what the balancer has not yet heard of is not refused.
      assert.strictEqual((await fetch(`${node.url}/`)).status, 200)
      assert.strictEqual(await node.exit(), 0)
      await cluster.add(node)
      await eventually(
        "the balancer to have it back",
        () => haproxy.log.includes(`Server nodes/node-${i + 1} is UP`) || undefined,
        10_000
      )
      assert.isAbove(state.sent, before)
    }
    state.over = true
    await Promise.all(talks)
    console.log(`${state.sent} sends over three restarts, the slowest took ${state.slowest.toFixed(0)} ms`)
    assert.deepStrictEqual(failures, [])
  })

  it("while no node is ready they are asked all the same, and when there is none the answer is one that clients know", {
    timeout: 60_000
  }, async () => {
    for (const node of cluster.nodes) node.terminate()
    await eventually(
      "no node that is ready",
      async () =>
        (await Promise.all(cluster.nodes.map(({ url }) => fetch(`${url}/v1/ready`)))).every(({ status }) =>
          status === 503
        ) || undefined
    )
    await eventually(
      "the balancer to see it",
      () => haproxy.log.includes("backend nodes has no server available") || undefined
    )
    const { message } = await clientOf(ada).sendMessage({ to: bob.handle, content: { text: "the last one" } })
    assert.strictEqual(message.sender, ada.handle)
    await Promise.all(cluster.nodes.map((node) => node.exit()))
    const answer = await fetch(`${url}/v1/agents/me`)
    assert.strictEqual(answer.status, 503)
    assert.strictEqual(answer.headers.get("retry-after"), "2")
    assert.strictEqual((await answer.json() as { readonly code: string }).code, "UNAVAILABLE")
  })
})
