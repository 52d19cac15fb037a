import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import { copyFileSync, mkdtempSync, readdirSync, rmSync } from "node:fs"
import { request } from "node:https"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { freePort } from "../../runners/local/FreePort.ts"
import { Host, pkce } from "../../test/signin/Flow.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"
import { Socket } from "../../test/support/Socket.ts"
import { missingWebProxies, WEB_PROXIES, WebProxy } from "../../test/support/WebProxy.ts"

const ROOT = resolve(import.meta.dirname, "../..")

/** How long a socket stays open without a message. */
const OPEN_MS = 600_000
const REQUESTS = 10_000
const AT_ONCE = 50
const FILE_BYTES = 25 * 1024 * 1024
/** The limit of requests without a key of one address, which forged addresses would not reach. */
const PER_ADDRESS = 300

/** The status of this very path, with nothing made tidy on the way. */
const statusOf = (url: string, path: string): Promise<number | undefined> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url)
    request({ hostname, port, path, agent: false }, (answer) => {
      answer.resume()
      resolve(answer.statusCode)
    }).on("error", reject).end()
  })

/** A web server in front of a server, with two agents that know each other. */
interface Door {
  readonly server: Server
  readonly proxy: WebProxy
  /** The server as clients see it. */
  readonly outside: Server
  readonly ada: TestAgent
  readonly bob: TestAgent
  /** A socket of bob's, on which nothing happens after `opened`. */
  readonly silent: Socket
  readonly opened: number
}

const openDoor = async (file: typeof WEB_PROXIES[number]): Promise<Door> => {
  const [port, own] = [await freePort(), await freePort()]
  const server = await startServer({
    env: {
      PORT: String(own),
      PUBLIC_URL: `https://localhost:${port}`,
      TRUST_PROXY: "1",
      LOG_LEVEL: "warn",
      LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: String(PER_ADDRESS)
    }
  })
  const proxy = await WebProxy.start(file, port, `127.0.0.1:${own}`)
  const isReady = () => fetch(`${proxy.url}/v1/ready`).then(({ ok }) => ok || undefined, () => undefined)
  await eventually("the server behind the proxy", isReady)
    .catch((error: unknown) => assert.fail(`${String(error)}\n${proxy.log}`))
  const ada = await newAgent(server, "ada")
  const bob = await newAgent(server, "bob")
  await ada.client.sendMessage({ to: bob.handle, content: { text: "a question" } })
  await bob.client.sendMessage({ to: ada.handle, content: { text: "an answer" } })
  const outside = { url: proxy.url, wsUrl: proxy.url.replace("https", "wss") } as Server
  const silent = await Socket.hello(outside, bob.key)
  return { server, proxy, outside, ada, bob, silent, opened: Date.now() }
}

const doors = new Map<string, Door>()

describe.skipIf(missingWebProxies !== "")(`a web server in front of a server${missingWebProxies}`, () => {
  beforeAll(async () => {
    for (const file of WEB_PROXIES) doors.set(file, await openDoor(file))
  })
  afterAll(async () => {
    for (const { proxy, server } of doors.values()) {
      await proxy.stop()
      await server.stop()
    }
  })

  describe.each(WEB_PROXIES)("%s", (file) => {
    it("the metrics are not for clients", async () => {
      const { proxy, server } = doors.get(file)!
      assert.strictEqual((await fetch(`${server.url}/internal/metrics`)).status, 200)
      const paths = [
        "/internal/metrics",
        "//internal/metrics",
        "/internal//metrics",
        "/Internal/metrics",
        "/internal%2fmetrics"
      ]
      for (
        const path of [...paths, "/v1/../internal/metrics", "/%69nternal/metrics", "/internal/metrics/", "/internal"]
      )
        assert.notStrictEqual(await statusOf(proxy.url, path), 200, path)
    })

    it(`passes ${REQUESTS} requests`, async () => {
      const { ada, proxy } = doors.get(file)!
      const statuses = new Map<number, number>()
      let left = REQUESTS
      await Promise.all(Array.from({ length: AT_ONCE }, async () => {
        while (left-- > 0) {
          const answer = await fetch(`${proxy.url}/v1/agents/me`, { headers: { authorization: `Bearer ${ada.key}` } })
          await answer.arrayBuffer()
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
        }
      }))
      assert.deepStrictEqual([...statuses], [[200, REQUESTS]])
    })

    it("passes a file of 25 MB there and back", async () => {
      const { ada, bob, proxy } = doors.get(file)!
      const bytes = randomBytes(FILE_BYTES)
      const asked = await fetch(`${proxy.url}/v1/uploads`, {
        method: "POST",
        headers: { authorization: `Bearer ${ada.key}`, "content-type": "application/json" },
        body: JSON.stringify({
          to: bob.handle,
          filename: "large.mp4",
          content_type: "video/mp4",
          size: bytes.length,
          sha256: createHash("sha256").update(bytes).digest("hex")
        })
      })
      assert.strictEqual(asked.status, 201, await asked.clone().text())
      const upload = await asked.json() as { readonly upload_url: string; readonly attachment_id: string }
      assert.isTrue(upload.upload_url.startsWith(`${proxy.url}/`), JSON.stringify(upload))
      assert.strictEqual((await fetch(upload.upload_url, { method: "PUT", body: bytes })).status, 200)
      const sent = await fetch(`${proxy.url}/v1/messages`, {
        method: "POST",
        headers: { authorization: `Bearer ${ada.key}`, "content-type": "application/json" },
        body: JSON.stringify({
          to: bob.handle,
          client_msg_id: "a file",
          type: "file",
          content: { attachment_id: upload.attachment_id }
        })
      })
      assert.strictEqual(sent.status, 201, await sent.text())
      const found = await fetch(`${proxy.url}/v1/attachments/${upload.attachment_id}`, {
        headers: { authorization: `Bearer ${bob.key}` }
      })
      const back = Buffer.from(await found.arrayBuffer())
      assert.isTrue(back.equals(bytes))
    })

    it("passes each part of a stream of /mcp at once", async () => {
      const { ada, bob, proxy } = doors.get(file)!
      // A message that waits would be the answer, before there is anything to wait for.
      const waiting = (await ada.http.get("/v1/messages/sync")).body as ReadonlyArray<{ readonly delivery_id: string }>
      await ada.http.post("/v1/messages/sync/ack", { last_delivery_id: waiting.at(-1)?.delivery_id ?? "" })
      const answer = await fetch(`${proxy.url}/mcp`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${ada.key}`,
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          "mcp-protocol-version": "2025-06-18"
        },
        body: JSON.stringify({
          jsonrpc: "2.0",
          id: 1,
          method: "tools/call",
          params: {
            name: "agentchat_wait_for_messages",
            arguments: { timeout_seconds: 20 },
            _meta: { progressToken: "p" }
          }
        })
      })
      assert.match(answer.headers.get("content-type") ?? "", /^text\/event-stream/)
      const reader = answer.body!.getReader()
      const { value } = await reader.read()
      // The answer itself comes after twenty seconds, or with the message that is sent now.
      const first = Buffer.from(value!).toString()
      assert.notInclude(first, `"result"`)
      await bob.client.sendMessage({ to: ada.handle, content: { text: "for the one who waits" } })
      let text = first
      for (let part = await reader.read(); !part.done; part = await reader.read())
        text += Buffer.from(part.value).toString()
      assert.include(text, "for the one who waits")
      assert.include(first, "notifications/progress")
    })

    it("lets a host sign in with OAuth, and call /mcp with its token", async () => {
      const { ada, outside, proxy } = doors.get(file)!
      const proof = pkce()
      const host = await Host.register(outside)
      const page = await host.begin(proof)
      assert.strictEqual((await page.show()).status, 200)
      await page.signIn(ada)
      const code = (await page.allow()).searchParams.get("code") ?? ""
      const { body, status, text } = await host.redeem(code, proof)
      assert.strictEqual(status, 200, text)
      const answer = await fetch(`${proxy.url}/mcp`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${body.access_token}`,
          "content-type": "application/json",
          accept: "application/json, text/event-stream"
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" })
      })
      assert.strictEqual(answer.status, 200)
      assert.include(await answer.text(), "agentchat_wait_for_messages")
    })

    it("counts a client by the address that the proxy saw, whatever the client says", async () => {
      const { proxy } = doors.get(file)!
      const statuses = await Promise.all(Array.from({ length: PER_ADDRESS + 1 }, async (_, i) => {
        const forged = `198.51.${Math.floor(i / 250)}.${i % 250}`
        const answer = await fetch(`${proxy.url}/v1/directory?q=nobody`, {
          headers: { "x-forwarded-for": forged, forwarded: `for=${forged}` }
        })
        await answer.arrayBuffer()
        return answer.status
      }))
      assert.include(statuses, 429)
    })

    it("keeps a socket open that is silent for ten minutes", async () => {
      const { ada, bob, opened, silent } = doors.get(file)!
      await pause(Math.max(0, opened + OPEN_MS - Date.now()))
      const { message } = await ada.client.sendMessage({ to: bob.handle, content: { text: "after ten minutes" } })
      await eventually(
        "the message on the socket",
        () => silent.frames.some(({ payload }) => payload?.["id"] === message.id) || undefined
      )
      silent.close()
    }, 2 * OPEN_MS)
  })
})

const analyze = (...args: ReadonlyArray<string>) => spawnSync("systemd-analyze", args, { encoding: "utf8" })
const missingSystemd = analyze("--version").status === 0
  ? ""
  : " (systemd-analyze not found: apt-get install --no-install-recommends systemd)"

/** The highest exposure that `systemd-analyze security` may find, in tenths: 2.0 of 10. */
const EXPOSURE = 20

describe.skipIf(missingSystemd !== "")(`the units in deploy/systemd${missingSystemd}`, () => {
  const source = join(ROOT, "deploy/systemd")
  const units = readdirSync(source).filter((name) => /\.(service|timer)$/.test(name))
  let folder: string
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "parley-units-"))
    for (const unit of units) copyFileSync(join(source, unit), join(folder, unit))
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it("are what systemd understands", () => {
    for (const unit of units) {
      const { stderr, status } = analyze("verify", "--recursive-errors=no", join(folder, unit))
      // The program is not installed in /opt on this machine.
      const said = stderr.split("\n").filter((line) => line.includes(unit) && !line.includes("is not executable"))
      assert.deepStrictEqual(said, [], `${unit} ${status}`)
    }
  })

  it("give the program little of the machine", () => {
    for (const unit of units.filter((name) => name.endsWith(".service"))) {
      const { status, stderr, stdout } = analyze(
        "security",
        "--offline=true",
        `--threshold=${EXPOSURE}`,
        join(folder, unit)
      )
      console.log(`${unit}: ${stdout.trim().split("\n").at(-1)}`)
      assert.strictEqual(status, 0, `${stdout}${stderr}`)
    }
  })
})
