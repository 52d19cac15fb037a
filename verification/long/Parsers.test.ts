import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { request } from "node:http"
import { Host, pkce } from "../../test/signin/Flow.ts"
import { newAgent, parley, type Server, startServer } from "../../test/support/Server.ts"
import { type Ask, makeRows, REDIRECT, type World } from "./ParserRows.ts"

/** How often each size is sent. The fastest answer counts. */
const TIMES = 7
/** Four times as many parts may take this many times as long: a linear parser needs 4, a quadratic one 16. */
const RATIO = 8
/**
 * An answer within this time is fast enough, whatever the ratio is: the time of a small request is mostly constant. An
 * address may send 1,200 requests a minute without a key, and an agent 12,000 with one. The floor of a frame is that of
 * a request without a key, because a socket may send 100 frames a second.
 */
const FLOOR_MS = { open: 8, keyed: 25 }

interface Fastest {
  readonly ms: number
  readonly status: number
  readonly text: string
}
const NONE: Fastest = { ms: 0, status: 0, text: "" }

/**
 * Parsers that a stranger can reach, with or without a key. A request of 4 n parts takes some four times as long as one
 * of n.
 */
describe("a request of four times as many parts", () => {
  let server: Server
  let world: World
  const table: Array<Readonly<Record<string, string | number>>> = []

  beforeAll(async () => {
    server = await startServer({
      program: parley("start"),
      env: {
        LOG_LEVEL: "error",
        TRUST_PROXY: "1",
        LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "1000000",
        LIMITS_MUTE_WRITES_PER_SECOND: "1000000",
        LIMITS_SEARCHES_PER_MINUTE: "1000000"
      }
    })
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const host = await Host.register(server, REDIRECT, { token_endpoint_auth_method: "none" })
    const page = await host.begin(pkce())
    await alice.client.sendMessage({ to: bob.handle, content: { text: "A first word." } })
    await bob.client.sendMessage({ to: alice.handle, content: { text: "Go on." } })
    const bytes = Buffer.from("A file.")
    const { attachment_id, upload_url } = await alice.client.createUpload({
      filename: "a.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex"),
      to: bob.handle
    })
    await fetch(upload_url, { method: "PUT", body: bytes })
    const signed = new URL(await alice.client.getAttachmentDownloadUrl(attachment_id))
    world = {
      key: alice.key,
      alice: alice.handle,
      bob: bob.handle,
      clientId: host.clientId,
      file: `${signed.pathname}${signed.search}`,
      signIn: {
        path: new URL(page.url()).pathname,
        headers: { cookie: page.cookie, origin: server.url }
      }
    }
  }, 60_000)
  afterAll(async () => {
    console.table(table)
    await server?.stop()
  }, 20_000)

  const answerTo = ({ body = "", headers = {}, method = "GET", path = "/" }: Ask): Promise<Fastest> =>
    new Promise((resolve, reject) => {
      const began = performance.now()
      const { hostname, port } = new URL(server.url)
      const asked = request({
        agent: false,
        hostname,
        port,
        method,
        path,
        headers: { "content-length": Buffer.byteLength(body), ...headers }
      }, (answer) => {
        let text = ""
        answer.setEncoding("utf8")
        answer.on("data", (part: string) => text += part)
        answer.on("end", () => resolve({ ms: performance.now() - began, status: answer.statusCode ?? 0, text }))
        answer.on("error", reject)
      })
      asked.on("error", reject)
      asked.end(body)
    })

  /**
   * Sends a frame and a ping on a new socket, after a HELLO unless the frame itself is a HELLO. Resolves with the first
   * answer of the server, which is a frame or the close of the socket.
   */
  const answerToFrame = (frame: string): Promise<Fastest> =>
    new Promise((resolve) => {
      const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/ws`)
      let began = 0
      const send = () => {
        began = performance.now()
        socket.send(frame)
        socket.send(`{"type":"ping"}`)
      }
      const answered = (text: string) => resolve({ ms: performance.now() - began, status: 101, text })
      socket.addEventListener("open", () => {
        if (frame.startsWith(`{"type":"hello"`)) send()
        else socket.send(`{"type":"hello","api_key":"${world.key}"}`)
      })
      socket.addEventListener("message", ({ data }) => {
        const text = String(data)
        const { type } = JSON.parse(text) as { readonly type: string }
        if (type === "hello.ok" && began === 0) return send()
        // Messages of the backlog are no answer.
        if (type !== "hello.ok" && type !== "pong" && type !== "error") return
        answered(text)
        socket.close()
      })
      socket.addEventListener("close", ({ code, reason }) => answered(`closed with ${code} ${reason}`))
    })

  const fastest = async (answerOf: (length: number) => Promise<Fastest>, length: number): Promise<Fastest> => {
    const answers: Array<Fastest> = []
    for (let times = 0; times < TIMES; times++) answers.push(await answerOf(length))
    return answers.reduce((one, other) => one.ms <= other.ms ? one : other)
  }

  const compare = async (
    what: string,
    size: number,
    floor: number,
    answerOf: (length: number) => Promise<Fastest>,
    status: number,
    has?: RegExp
  ): Promise<void> => {
    const isLinear = () => ratio < RATIO || large.ms < floor
    let [small, large, ratio]: [Fastest, Fastest, number] = [NONE, NONE, 0]
    for (let tries = 0; tries === 0 || (tries < 3 && !isLinear()); tries++) {
      small = await fastest(answerOf, size)
      large = await fastest(answerOf, 4 * size)
      ratio = large.ms / small.ms
    }
    table.push({
      request: what,
      "n ms": Number(small.ms.toFixed(1)),
      "4 n ms": Number(large.ms.toFixed(1)),
      ratio: Number(ratio.toFixed(1)),
      status: large.status
    })
    for (const one of [small, large]) {
      assert.strictEqual(one.status, status, `${what}: ${one.text.slice(0, 300)}`)
      assert.isTrue(has?.test(one.text) ?? true, `${what}: ${one.text.slice(0, 300)}`)
    }
    assert.isTrue(isLinear(), `${what}: ${small.ms} ms and ${large.ms} ms`)
  }

  const { frames: [frameSize, frames], requests } = makeRows(() => world)
  for (const [what, [has, frame]] of Object.entries(frames)) {
    it(
      what,
      { timeout: 60_000 },
      () => compare(what, frameSize, FLOOR_MS.open, (length) => answerToFrame(frame(length)), 101, has)
    )
  }
  for (const [size, rows] of requests) {
    for (const [what, [status, ask, has]] of Object.entries(rows)) {
      it(what, { timeout: 60_000 }, () => {
        const floor = ask(size).headers?.["authorization"] === undefined ? FLOOR_MS.open : FLOOR_MS.keyed
        return compare(what, size, floor, (length) => answerTo(ask(length)), status, has)
      })
    }
  }
})
