import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Agent, request as httpRequest } from "node:http"
import { registerAgents } from "../../test/support/RegisterAgents.ts"
import { freshHandle, parley, type Server, startServer } from "../../test/support/Server.ts"

const TRIES = 1_000
const TOLERANCE = 0.05

interface Exchange {
  readonly ms: number
  readonly status: number
  readonly body: { readonly pending_id?: string; readonly code?: string }
}

/**
 * The probability that a random one of `some` is larger than a random one of `others`: 0.5 if they cannot be told
 * apart.
 */
const auc = (some: ReadonlyArray<number>, others: ReadonlyArray<number>): number => {
  const all = [...some.map((ms) => ({ ms, counts: 1 })), ...others.map((ms) => ({ ms, counts: 0 }))].toSorted((a, b) =>
    a.ms - b.ms
  )
  const ranks = all.reduce((sum, { counts }, i) => sum + counts * (i + 1), 0)
  return (ranks - some.length * (some.length + 1) / 2) / (some.length * others.length)
}

const shuffled = <A>(values: ReadonlyArray<A>): ReadonlyArray<A> =>
  values.map((value) => ({ value, at: Math.random() })).toSorted((a, b) => a.at - b.at).map(({ value }) => value)

/*
 * The time of an answer must not reveal whether an address has an account. Each address is asked about once per route, on
 * one connection and in random order, so that other load of the machine affects both kinds. The accounts are new: their
 * addresses have asked for a code before, and the other addresses have not.
 */
describe.each(["PGlite", "PostgreSQL"])(
  "on %s, answers about an address with an account take as long as about one without",
  (database) => {
    let server: Server
    let known: ReadonlyArray<string>
    let unknown: ReadonlyArray<string>
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })

    beforeAll(async () => {
      server = await startServer({
        ...database === "PGlite" ? { program: parley("start") } : {},
        env: {
          LOG_LEVEL: "warn",
          LIMITS_OTP_ANSWER_MS: "50",
          LIMITS_OTP_COOLDOWN_SECONDS: "0",
          LIMITS_OTP_PER_HOUR: "1000000",
          LIMITS_OTP_ATTEMPTS: "1000000",
          LIMITS_OTP_ATTEMPTS_PER_CODE: "1000000"
        }
      })
      const addresses = (prefix: string, n: number) =>
        Array.from({ length: n }, () => `${freshHandle(prefix)}@agents.example`)
      known = addresses("known", TRIES)
      unknown = addresses("nobody", TRIES)
      await registerAgents(server.url, server.outbox.folder, known.map((address) => address.replace(/@.*/, "")))
    }, 300_000)
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

    const assertAlike = async (
      what: string,
      ask: (email: string) => Promise<Exchange>,
      status: number
    ): Promise<void> => {
      const times = { known: [] as Array<number>, unknown: [] as Array<number> }
      const kinds = [
        ...known.map((email) => ({ email, kind: "known" as const })),
        ...unknown.map((email) => ({ email, kind: "unknown" as const }))
      ]
      for (const { email, kind } of shuffled(kinds)) {
        const exchange = await ask(email)
        assert.strictEqual(exchange.status, status, JSON.stringify(exchange.body))
        times[kind].push(exchange.ms)
      }
      const found = auc(times.known, times.unknown)
      console.log(`${database}, ${what}: AUC ${found.toFixed(3)}`)
      assert.closeTo(found, 0.5, TOLERANCE, what)
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
      for (let i = 0; i < 40; i++) {
        const address = `${freshHandle("warm")}@agents.example`
        await register(address)
        await recover(address)
      }
    }, 60_000)

    it("a registration", () => assertAlike("POST /v1/register", register, 200), 600_000)

    it("a recovery", () => assertAlike("POST /v1/agents/recover", recover, 200), 600_000)

    it(
      "a guess at a registration's code",
      async () => assertAlike("POST /v1/register/verify", await guessing(register, "/v1/register/verify"), 400),
      600_000
    )

    it(
      "a guess at a recovery's code, of which there may be none",
      async () =>
        assertAlike("POST /v1/agents/recover/verify", await guessing(recover, "/v1/agents/recover/verify"), 400),
      600_000
    )
  }
)
