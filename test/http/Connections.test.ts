import { boundsOf, openFilesLimit } from "#infrastructure/http/Connections"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { rm } from "node:fs/promises"
import { inbox, newPair, say } from "../contract/Talk.ts"
import { Crowd, freshSend, median, untilQuiet } from "../support/Crowd.ts"
import { eventually, within } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { exchange, RawConnection } from "../support/RawConnection.ts"
import { makeDataDir, newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"

const MANY = 2_000
const GIB = 1_073_741_824

const bounds = (changes: Partial<Settings>, files: number, heap = 4 * GIB) =>
  Effect.map(Config, (config) => boundsOf(config, files, heap)).pipe(Effect.provide(Config.layerTest(changes)))

const onPostgres = { DATABASE_URL: Redacted.make("postgres://localhost") }
const STANDALONE = { RUNNER_CONNECTIONS: 0 }

describe("the bounds of connections", () => {
  it.effect("follow from the limit of open files and what the server needs for itself", () =>
    Effect.gen(function*() {
      const table: Array<readonly [clients: number, perPeer: number | undefined, nodes: number]> = []
      for (
        const [changes, files] of [
          [STANDALONE, 4_096],
          [{ ...STANDALONE, ...onPostgres }, 4_096],
          [onPostgres, 4_096],
          // No file passes through a server whose store is S3.
          [{ ...onPostgres, S3_BUCKET: "files" }, 4_096],
          [{ ...onPostgres, HTTP_CONNECTIONS_RESERVE: 1_000 }, 4_096],
          [{ ...onPostgres, HTTP_CONNECTIONS: 50, HTTP_CONNECTIONS_PER_PEER: 7, RUNNER_CONNECTIONS: 5 }, 4_096],
          [{ ...onPostgres, TRUST_PROXY: 1 }, 4_096],
          [{ ...onPostgres, TRUST_PROXY: 1, TRUST_PROXY_ADDRESSES: ["10.0.0.0/8"] }, 4_096],
          [STANDALONE, Number.POSITIVE_INFINITY]
        ] as const
      ) {
        const { clients, nodes, perPeer, warnings } = yield* bounds(changes, files)
        assert.deepStrictEqual(warnings, [])
        table.push([clients, perPeer, nodes])
      }
      assert.deepStrictEqual(table, [
        [4_096 - 100 - 64 - 128 - 500, 826, 0],
        [4_096 - 100 - 64 - 128 - 10, 949, 0],
        [4_096 - 100 - 64 - 128 - 10 - 512, 821, 256],
        [4_096 - 100 - 64 - 10 - 512, 853, 256],
        [4_096 - 1_000 - 512, 646, 256],
        [50, 7, 5],
        [3_282, undefined, 256],
        [3_282, 821, 256],
        [262_144, 65_536, 0]
      ])
    }))

  it.effect("are reported if the limit of open files is too low for them, and leave a quarter of it to clients", () =>
    Effect.gen(function*() {
      const low = yield* bounds(STANDALONE, 512)
      assert.strictEqual(low.clients, 128)
      assert.match(
        low.warnings.join("\n"),
        /ulimit -n is 512, .* needs 792 file descriptors for itself and 128 for clients\. Raise ulimit -n to 920,/
      )
      const wanted = yield* bounds({ ...STANDALONE, HTTP_CONNECTIONS: 5_000 }, 4_096)
      assert.match(
        wanted.warnings.join("\n"),
        /ulimit -n is 4096, .* needs 792 file descriptors for itself and 5000 for clients\. Raise ulimit -n to 5792,/
      )
      const blind = yield* bounds({ TRUST_PROXY: 1, HTTP_CONNECTIONS_PER_PEER: 10 }, 65_536)
      assert.match(blind.warnings.join("\n"), /HTTP_CONNECTIONS_PER_PEER has no effect/)
    }))

  it.skipIf(process.platform === "win32")("follow from the limit of this process", () => {
    assert.isAtLeast(openFilesLimit(), 64)
  })
})

describe.skipIf(process.platform !== "linux")("connections to a server", () => {
  let small: Server
  let strict: Server
  let hasty: Server
  let agent: TestAgent

  beforeAll(async () => {
    ;[small, strict, hasty] = await Promise.all([
      startServer({
        env: { HTTP_CONNECTIONS: "6", HTTP_FIRST_BYTE_SECONDS: "120", HTTP_HEADERS_SECONDS: "120" }
      }),
      // 127.0.0.1 is trusted, and other addresses of this machine are not. No connection ends because it sends nothing.
      startServer({
        env: {
          HTTP_CONNECTIONS_PER_PEER: "5",
          TRUST_PROXY_ADDRESSES: "127.0.0.1",
          HTTP_FIRST_BYTE_SECONDS: "120",
          HTTP_HEADERS_SECONDS: "120"
        }
      }),
      // Less than the time that the server leaves for the head of a request that has begun.
      startServer({ env: { HTTP_FIRST_BYTE_SECONDS: "5", HTTP_HEADERS_SECONDS: "100" } })
    ])
    agent = await newAgent(small, "held")
  })
  afterAll(() => Promise.all([small, strict, hasty].map((server) => server?.stop())))

  /** The status line of a request on a connection of its own; empty if the server closes it without an answer. */
  const asked = async (server: Server): Promise<string> => {
    const answer = await exchange(server, "GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    return answer.split("\r\n")[0] ?? ""
  }
  const OK = "HTTP/1.1 200 OK"
  const isOver = (connection: RawConnection): Promise<true> =>
    within("a connection to end", connection.closed).then(() => true)
  const turnedAway = (server: Server, reason: string) =>
    metricOf(server, "connections_turned_away_total", { port: "http", reason })

  it("without a byte, more than it may have files open, end for others, and sends of another agent are stored as before", async () => {
    const dataDir = await makeDataDir()
    // On PGlite, whose files are those of the server's process.
    const server = await startServer({ openFiles: 1_024, dataDir, env: { NODE_OPTIONS: "--max-old-space-size=512" } })
    const { alice, bob } = await newPair(server)
    const [before, during]: [Array<number>, Array<number>] = [[], []]
    for (let i = 0; i < 20; i++) before.push(await freshSend(alice, bob, `before ${i}`))
    const crowd = await Crowd.gather(server.url, MANY)
    await untilQuiet(server, "http")
    for (let i = 0; i < 60; i++) {
      during.push(await freshSend(alice, bob, `during ${i}`))
      // On a connection that is kept, too.
      await say(bob, alice)
      crowd.more(i % 20 === 0 ? 200 : 5)
    }
    assert.isAtMost(
      await metricOf(server, "connections_open", { port: "http" }),
      await metricOf(server, "connections_bound", { port: "http" })
    )
    assert.isAbove(await turnedAway(server, "gave_way"), MANY / 2)
    assert.isBelow(median(during), Math.max(3 * median(before), 1_000), `${before} -> ${during}`)
    crowd.leave()
    const texts = (await inbox(bob)).map(({ content }) => content["text"])
    for (let i = 0; i < 60; i++) assert.include(texts, `during ${i}`)
    const lines = server.stderr.split("\n").filter((line) =>
      line.includes("Closed an idle connection from 127.0.0.1 for a new one")
    )
    assert.isAtLeast(lines.length, 1)
    // Once a minute.
    assert.isBelow(lines.length, 5)
    await server.stop()
    await rm(dataDir, { recursive: true })
  })

  it("give way to others if nothing is under way on them, and only then", async () => {
    const socket = () => RawConnection.upgraded(small, agent.key)
    const sockets = [await socket(), await socket(), await socket()]
    const silent = [await RawConnection.open(small), await RawConnection.open(small), await RawConnection.open(small)]
    assert.strictEqual(await asked(small), OK)
    assert.isTrue(await isOver(silent[0]!))
    sockets.push(await socket(), await socket(), await socket())
    await Promise.all(silent.map(isOver))
    assert.deepStrictEqual(silent.map(({ received }) => received), ["", "", ""])
    // Sockets are not idle, whatever is said on them.
    assert.strictEqual(await asked(small), "")
    const last = sockets.pop()
    last?.drop()
    await eventually("a place", async () => (await asked(small)) === OK || undefined)
    for (const one of sockets) {
      one.frame({ opcode: 1, payload: `{"type":"ping"}` })
      await eventually("a pong", () => one.received.includes(`{"type":"pong"}`) || undefined)
    }
    for (const one of sockets) one.drop()
    await eventually(
      "places",
      async () =>
        (await asked(small)) === OK && await metricOf(small, "connections_open", { port: "http" }) < 3 || undefined
    )
    assert.isAtLeast(await turnedAway(small, "full"), 1)
    assert.include(
      small.stderr,
      "Refused a connection from 127.0.0.1: 6 connections are open and have work under way (HTTP_CONNECTIONS)."
    )
  })

  it("between two requests give way before new ones, if there are more of them", async () => {
    const kept: Array<RawConnection> = []
    for (let i = 0; i < 4; i++) {
      const connection = await RawConnection.open(small)
      connection.write("GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
      await eventually("an answer", () => connection.received.startsWith(OK) || undefined)
      kept.push(connection)
    }
    const fresh = [await RawConnection.open(small), await RawConnection.open(small), await RawConnection.open(small)]
    assert.isTrue(await isOver(kept[0]!))
    for (const connection of [...kept.slice(1), ...fresh]) {
      connection.write("GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
      const answers = (await connection.end()).split(OK).length - 1
      assert.strictEqual(answers, fresh.includes(connection) ? 1 : 2)
    }
  })

  it("from one address are bounded, unless the address is trusted", async () => {
    const upTo = async (count: number, from: string, kept: number): Promise<void> => {
      const refused = await turnedAway(strict, "peer")
      const open = await metricOf(strict, "connections_open", { port: "http" })
      const crowd = await Crowd.gather(strict.url, count, from)
      // The server may accept the last of them a little later.
      await eventually(
        "the last of them",
        async () => await turnedAway(strict, "peer") - refused >= count - kept || undefined
      )
      await eventually(
        "the open ones",
        async () => await metricOf(strict, "connections_open", { port: "http" }) >= open + kept || undefined
      )
      assert.strictEqual(await turnedAway(strict, "peer") - refused, count - kept)
      await eventually("the others to end", () => crowd.open === kept || undefined)
    }
    await upTo(8, "127.0.0.2", 5)
    await upTo(6, "127.0.0.3", 5)
    await upTo(40, "127.0.0.1", 40)
    assert.include(strict.stderr, "Refused a connection from 127.0.0.2: this address has 5 connections open.")
    assert.strictEqual(await asked(strict), OK)
  })

  it("without a byte end in time, without an answer, and others do not", async () => {
    const kept = await RawConnection.open(hasty)
    kept.write("GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
    const silent = await RawConnection.open(hasty)
    const begun = await RawConnection.open(hasty)
    begun.write("G")
    assert.strictEqual(await silent.end(), "")
    assert.isAtLeast(await metricOf(hasty, "connections_silent_total"), 1)
    begun.write("ET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    kept.write("GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert.match(await begun.end(), /^HTTP\/1\.1 200 OK/)
    assert.match(await kept.end(), /^HTTP\/1\.1 200 OK.*HTTP\/1\.1 200 OK/s)
  })
})
