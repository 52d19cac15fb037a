import { WebhookClient } from "#domain/webhooks/WebhookClient"
import { exchange } from "#infrastructure/http/GuardedClient"
import { type AllowPrivate, askNameServers, isAllowed, placeOf } from "#infrastructure/http/PrivateAddressGuard"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { createSocket } from "node:dgram"
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http"
import { chanceFor, eventually, LONGEST_WAIT_MS } from "../support/Eventually.ts"

describe("placeOf", () => {
  it("distinguishes public addresses from all others", () => {
    const places = {
      public: [
        "8.8.8.8",
        "93.184.216.34",
        "172.15.255.255",
        "172.32.0.0",
        "100.63.255.255",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450::1"
      ],
      loopback: ["127.0.0.1", "127.255.255.254", "::1"],
      private: [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "192.0.2.1",
        "198.18.0.1",
        "203.0.113.9",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12::1",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::ffff:808:808",
        "::8.8.8.8",
        "64:ff9b::8.8.8.8",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "3fff::1",
        "",
        "host"
      ]
    } as const
    for (const [place, addresses] of Object.entries(places)) {
      for (const address of addresses) assert.strictEqual(placeOf(address), place, address)
    }
  })

  it("private places are open by setting only", () => {
    const allowed = (allow: AllowPrivate) => ["8.8.8.8", "127.0.0.1", "::1", "10.0.0.1"].map((a) => isAllowed(a, allow))
    assert.deepStrictEqual(allowed("none"), [true, false, false, false])
    assert.deepStrictEqual(allowed("loopback"), [true, true, true, false])
    assert.deepStrictEqual(allowed("all"), [true, true, true, true])
  })
})

/** A name server that knows one name, and never answers for any other. */
const nameServer = (name: string, address: string) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly at: string; readonly asked: ReadonlySet<string>; readonly close: () => void }>(
      (resume) => {
        const socket = createSocket("udp4")
        const asked = new Set<string>()
        const question = Buffer.concat([
          ...name.split(".").map((label) => Buffer.from([label.length, ...Buffer.from(label)])),
          Buffer.of(0)
        ])
        socket.on("message", (query, { port }) => {
          // Without the end of the name, type and class: A and AAAA, and repeats, count once.
          asked.add(query.subarray(12, query.indexOf(0, 12)).toString().toLowerCase())
          if (!query.subarray(12).toString().toLowerCase().startsWith(question.toString())) return
          const end = 12 + question.length + 4
          const isV4 = query.readUInt16BE(end - 4) === 1
          const head = Buffer.from(query.subarray(0, end))
          head.writeUInt16BE(0x8180, 2)
          head.writeUInt16BE(isV4 ? 1 : 0, 6)
          head.fill(0, 8, 12)
          const answer = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...address.split(".").map(Number)])
          socket.send(isV4 ? Buffer.concat([head, answer]) : head, port, "127.0.0.1")
        })
        socket.bind(0, "127.0.0.1", () =>
          resume(Effect.succeed({
            at: `127.0.0.1:${socket.address().port}`,
            asked,
            close: () => socket.close()
          })))
      }
    ),
    ({ close }) => Effect.sync(close)
  )

describe("look-ups of names", () => {
  it.live("delay no other look-up while the name servers are dead", () =>
    Effect.gen(function*() {
      const { asked, at } = yield* nameServer("healthy.example", "93.184.216.34")
      const dead = yield* Effect.forEach(
        Array.from({ length: 100 }),
        // One that is given up begins again, so that there are always 100 under way.
        (_, i) => Effect.forkChild(Effect.forever(Effect.exit(askNameServers(`name-${i}.dead.example`, [at]))))
      )
      yield* Effect.promise(() => eventually("100 look-ups under way", () => asked.size >= 100 || undefined))
      const healthy = yield* Effect.retry(askNameServers("healthy.example", [at]), { times: 3 })
      assert.deepStrictEqual(healthy, ["93.184.216.34"])
      yield* Fiber.interruptAll(dead)
    }).pipe(Effect.scoped), LONGEST_WAIT_MS)
})

interface Receiver {
  readonly port: number
  readonly requests: Array<IncomingMessage>
}

const receiving = (answer: RequestListener) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly server: Server; readonly receiver: Receiver }>((resume) => {
      const requests: Array<IncomingMessage> = []
      const server = createServer((request, response) => {
        requests.push(request)
        answer(request, response)
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        resume(Effect.succeed({ server, receiver: { port, requests } }))
      })
    }),
    ({ server }) =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  ).pipe(Effect.map(({ receiver }) => receiver))

const post = (url: string, addresses: ReadonlyArray<string>) =>
  Effect.flatMap(
    WebhookClient,
    (post) => post({ url: new URL(url), addresses, headers: { "x-test": "1" }, body: "{}" })
  )

describe("WebhookClient", () => {
  it.live("goes to the address that was checked, under the name that was asked for", () =>
    Effect.gen(function*() {
      const receiver = yield* receiving((_request, response) => response.writeHead(204).end())
      // No resolver knows this name.
      assert.strictEqual(yield* post(`http://hook.invalid:${receiver.port}/a?b=c`, ["127.0.0.1"]), 204)
      const [request] = receiver.requests
      assert.deepStrictEqual(
        [request?.method, request?.url, request?.headers.host, request?.headers["x-test"]],
        ["POST", "/a?b=c", `hook.invalid:${receiver.port}`, "1"]
      )
      // The name would lead here, the address does not.
      const elsewhere = yield* Effect.exit(post(`http://localhost:${receiver.port}/`, ["127.0.0.9"]))
      assert.isTrue(Exit.isFailure(elsewhere))
      assert.strictEqual(receiver.requests.length, 1)
    }))

  it.live("follows no redirect", () =>
    Effect.gen(function*() {
      const target = yield* receiving((_request, response) => response.end())
      const receiver = yield* receiving((_request, response) =>
        response.writeHead(307, { location: `http://127.0.0.1:${target.port}/` }).end()
      )
      assert.strictEqual(yield* post(`http://127.0.0.1:${receiver.port}/`, ["127.0.0.1"]), 307)
      assert.deepStrictEqual(target.requests, [])
    }))

  it.live("reads no more of an answer than it must", () =>
    Effect.gen(function*() {
      let written = 0
      const receiver = yield* receiving((_request, response) => {
        const piece = Buffer.alloc(65_536)
        const more = () => {
          while (!response.destroyed && written < 1_000) {
            written++
            if (!response.write(piece)) return void response.once("drain", more)
          }
        }
        response.writeHead(200)
        more()
      })
      assert.strictEqual(yield* post(`http://127.0.0.1:${receiver.port}/`, ["127.0.0.1"]), 200)
      yield* Effect.promise(() => chanceFor("more of the answer"))
      assert.isBelow(written, 1_000)
    }))

  it.live("an interrupted post leaves no connection", () =>
    Effect.gen(function*() {
      let gone: (() => void) | undefined
      const left = new Promise<void>((resolve) => gone = resolve)
      let come: (() => void) | undefined
      const arrived = new Promise<void>((resolve) => come = resolve)
      const receiver = yield* receiving((_request, response) => {
        response.on("close", () => gone?.())
        come?.()
      })
      const fiber = yield* Effect.forkChild(post(`http://127.0.0.1:${receiver.port}/`, ["127.0.0.1"]))
      yield* Effect.promise(() => arrived)
      yield* Fiber.interrupt(fiber)
      yield* Effect.promise(() => left)
    }))

  it.live("an answer that is refused unread leaves no connection", () =>
    Effect.gen(function*() {
      let gone: (() => void) | undefined
      const left = new Promise<void>((resolve) => gone = resolve)
      const receiver = yield* receiving((_request, response) => {
        response.on("close", () => gone?.())
        response.writeHead(404)
        response.flushHeaders()
      })
      const url = new URL(`http://127.0.0.1:${receiver.port}/`)
      const refused = yield* Effect.flip(
        exchange({ url, addresses: ["127.0.0.1"], headers: {} }, ({ statusCode }) => Effect.fail(statusCode))
      )
      assert.strictEqual(refused, 404)
      yield* Effect.promise(() => left)
    }))
})
