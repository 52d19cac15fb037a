import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Agent, request as httpRequest } from "node:http"
import { registerAgents } from "../../test/support/RegisterAgents.ts"
import { freshHandle, type Server, startServer } from "../../test/support/Server.ts"

const SAMPLES = 200
const ATTEMPTS = 3
const TOLERANCE = 0.05

interface Exchange {
  readonly ms: number
  readonly status: number
  readonly body: { readonly pending_id?: string; readonly code?: string }
}

const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  return ((sorted[(sorted.length - 1) >> 1] ?? 0) + (sorted[sorted.length >> 1] ?? 0)) / 2
}

/*
 * Whether an address has an account must not be told by how long an answer takes. The
 * two kinds take turns on one connection, so that whatever else the machine does meets
 * both. A machine that is busy may need more samples than the first 200 of each, which
 * does not hide a difference that is really there. Both kinds are asked about equally
 * often: that somebody has asked about an address before may show, with an account or not.
 */
describe("answers about an address that has an account take as long as about one that has none", () => {
  let server: Server
  let known: ReadonlyArray<string>
  /** As many without an account, and some of each to warm up with. */
  let unknown: ReadonlyArray<string>
  let others: ReadonlyArray<string>
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })

  beforeAll(async () => {
    server = await startServer({
      env: {
        LOG_LEVEL: "warn",
        LIMITS_OTP_COOLDOWN_SECONDS: "0",
        LIMITS_OTP_PER_HOUR: "1000000",
        LIMITS_OTP_ATTEMPTS: "1000000",
        LIMITS_OTP_ATTEMPTS_PER_CODE: "1000000"
      }
    })
    const addresses = (prefix: string, n: number) => Array.from({ length: n }, () => `${freshHandle(prefix)}@agents.example`)
    known = addresses("known", SAMPLES)
    unknown = addresses("nobody", SAMPLES)
    const warm = addresses("known", 40)
    others = [...warm, ...addresses("nobody", 40)]
    await registerAgents(server.url, server.outbox.folder, [...known, ...warm].map((address) => address.replace(/@.*/, "")))
  }, 120_000)
  afterAll(async () => {
    agent.destroy()
    await server.stop()
  }, 20_000)

  const post = (path: string, json: object): Promise<Exchange> =>
    new Promise((resolve, reject) => {
      const body = JSON.stringify(json)
      const began = performance.now()
      const request = httpRequest(server.url + path, {
        agent,
        method: "POST",
        headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) }
      })
      request.on("error", reject)
      request.on("response", (response) => {
        let text = ""
        response.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
          resolve({ ms: performance.now() - began, status: response.statusCode ?? 0, body: JSON.parse(text) })
        })
      })
      request.end(body)
    })

  /** Asserts equal medians of what is asked about each of the known addresses and of the unknown ones. */
  const assertAlike = async (
    what: string,
    ask: (email: string) => Promise<Exchange>,
    status: number
  ): Promise<void> => {
    const seen: Array<string> = []
    const times = { known: [] as Array<number>, unknown: [] as Array<number> }
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      for (let i = 0; i < SAMPLES; i++) {
        for (const kind of i % 2 === 0 ? ["known", "unknown"] as const : ["unknown", "known"] as const) {
          const exchange = await ask((kind === "known" ? known : unknown)[i] ?? "")
          assert.strictEqual(exchange.status, status, JSON.stringify(exchange.body))
          times[kind].push(exchange.ms)
        }
      }
      const [one, two] = [median(times.known), median(times.unknown)]
      const difference = Math.abs(one - two) / Math.min(one, two)
      seen.push(`${one.toFixed(3)} ms and ${two.toFixed(3)} ms, ${(difference * 100).toFixed(1)} %`)
      if (difference <= TOLERANCE) {
        console.log(`${what}: with an account and without ${seen.join("; ")}`)
        return
      }
    }
    assert.fail(`${what}: with an account and without ${seen.join("; ")}`)
  }

  const register = (email: string) => post("/v1/register", { email, handle: freshHandle("probe") })
  const recover = (email: string) => post("/v1/agents/recover", { email })

  /** What is asked about the code that a first request began. */
  const guessing = async (begin: (email: string) => Promise<Exchange>, path: string) => {
    const pending = new Map<string, string | undefined>()
    for (const address of [...known, ...unknown]) pending.set(address, (await begin(address)).body.pending_id)
    // Six digits that are right once in a million times.
    return (email: string) => post(path, { pending_id: pending.get(email), code: "314159" })
  }

  it("warms up", async () => {
    for (const address of others) {
      await register(address)
      await recover(address)
    }
  }, 60_000)

  it("a registration", () => assertAlike("POST /v1/register", register, 200), 120_000)

  it("a recovery", () => assertAlike("POST /v1/agents/recover", recover, 200), 120_000)

  it("a guess at a registration's code", async () =>
    assertAlike("POST /v1/register/verify", await guessing(register, "/v1/register/verify"), 400), 120_000)

  it("a guess at a recovery's code, of which there may be none", async () =>
    assertAlike("POST /v1/agents/recover/verify", await guessing(recover, "/v1/agents/recover/verify"), 400), 120_000)
})
