import { MailFailed } from "#infrastructure/platform/Mailer"
import { assert, layer } from "@effect/vitest"
import { Cause, Clock, Effect, Fiber, Layer, Logger, References } from "effect"
import { TestClock } from "effect/testing"
import { away, back } from "../support/Away.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { RESERVED } from "../support/ReservedHandles.ts"
import { codeTo, fresh, mailsTo, Neighbours, newAccount, other } from "./Module.ts"
import { layerWeb, refused, Web } from "./Web.ts"

const lines: Array<string> = []

/** Everything that is logged, with all that a logger could make of it. */
const capture = Layer.mergeAll(
  Logger.layer([
    Logger.make(({ cause, fiber, message }) => {
      lines.push(JSON.stringify([message, fiber.getRef(References.CurrentLogAnnotations)]), Cause.pretty(cause))
    })
  ]),
  Layer.succeed(References.MinimumLogLevel, "All")
)

let addresses = 0
/** An IP address that no other test comes from. */
const anyIp = () => `10.0.${++addresses >> 8}.${addresses & 255}`

layer(Layer.provideMerge(layerWeb(layerPgliteTest, { LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: 100_000 }), capture))(
  "registration over HTTP",
  (it) => {
    it.effect("a registration leads to a key (J 21, 22, 24)", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const { email, handle } = fresh()
        const begun = yield* web.send("POST", "/v1/register", {
          ip: anyIp(),
          body: {
            email: `  ${email.toUpperCase()} `,
            handle: ` @${handle.toUpperCase()}`,
            display_name: "",
            description: "One."
          }
        })
        assert.strictEqual(begun.status, 200, begun.text)
        assert.deepStrictEqual(Object.keys(begun.body).sort(), ["expires_in", "message", "pending_id"])
        assert.strictEqual(begun.body["expires_in"], 600)
        const done = yield* web.send("POST", "/v1/register/verify", {
          ip: anyIp(),
          body: { pending_id: begun.body["pending_id"], code: ` ${yield* codeTo(email)} ` }
        })
        assert.strictEqual(done.status, 200, done.text)
        const agent = done.body["agent"] as Record<string, unknown>
        assert.deepInclude(agent, { handle, email, display_name: handle, description: "One.", status: "active" })
        const me = yield* web.send("GET", "/v1/agents/me", { key: String(done.body["api_key"]) })
        assert.deepStrictEqual(me.body, agent)
      }))

    it.effect("impossible handles are INVALID_HANDLE, and cost nothing (J 23)", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const ip = anyIp()
        const bad = [
          "",
          "ab",
          "x".repeat(31),
          "-abc",
          "abc-",
          "a--b",
          "1abc",
          "a_b",
          "a.b",
          "äbc",
          "\u0430bc",
          "a\nbc",
          ...RESERVED
        ]
        for (const handle of bad) {
          const body = { email: "somebody@example.com", handle }
          refused(yield* web.send("POST", "/v1/register", { ip, body }), 400, "INVALID_HANDLE")
        }
        for (const handle of ["abc", "x".repeat(30), "a-b-c", "a1-2b"]) {
          const body = { email: `${handle}@example.com`, handle }
          assert.strictEqual((yield* web.send("POST", "/v1/register", { ip, body })).status, 200)
        }
      }))

    it.effect("a text that is no e-mail address, or more than one, is refused before a mail", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const neighbours = yield* Neighbours
        const before = neighbours.mails.length
        const bad = [
          "",
          "nobody",
          "@example.com",
          "a@",
          "a@b",
          "a b@example.com",
          "a@b@example.com",
          "a@example.com,b@example.com",
          "a@example.com;b@example.com",
          "<a@example.com>",
          "A <a@example.com>",
          "a@example.com\r\nBcc: b@example.com",
          '"a b"@example.com',
          ".a@example.com",
          "a..b@example.com",
          "a@-example.com",
          "a@example..com",
          "a@exa mple.com",
          "a@[127.0.0.1]",
          "\u00e4@example.com",
          `${"x".repeat(243)}@example.com`,
          `${" ".repeat(100_000)}`
        ]
        for (const email of bad) {
          const { handle } = fresh()
          refused(
            yield* web.send("POST", "/v1/register", { ip: anyIp(), body: { email, handle } }),
            400,
            "VALIDATION_ERROR"
          )
          refused(
            yield* web.send("POST", "/v1/agents/recover", { ip: anyIp(), body: { email } }),
            400,
            "VALIDATION_ERROR"
          )
        }
        assert.strictEqual(neighbours.mails.length, before)
        for (const email of ["o'neil+parley@mail.example.com", `${"x".repeat(242)}@example.com`, "1@2.example"]) {
          const body = { email, handle: fresh().handle }
          assert.strictEqual((yield* web.send("POST", "/v1/register", { ip: anyIp(), body })).status, 200)
        }
      }))

    it.effect("a code that is not six digits is a mistake, not a try", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const { email, handle } = fresh()
        const begun = yield* web.send("POST", "/v1/register", { ip: anyIp(), body: { email, handle } })
        const pending_id = begun.body["pending_id"]
        const code = yield* codeTo(email)
        for (const bad of ["", "12345", "1234567", "12345a", "１２３４５６", Number(code), null]) {
          for (const path of ["/v1/register/verify", "/v1/agents/recover/verify"]) {
            refused(
              yield* web.send("POST", path, { ip: anyIp(), body: { pending_id, code: bad } }),
              400,
              "VALIDATION_ERROR"
            )
          }
        }
        const body = { pending_id, code: other(code) }
        const answer = yield* web.send("POST", "/v1/register/verify", { ip: anyIp(), body })
        assert.deepStrictEqual(refused(answer, 400, "INVALID_CODE")["details"], { attempts_remaining: 4 })
      }))

    it.effect("each route has its limit per IP address (J 30, wire.md G.15)", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const unknown = { pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" }
        const routes: ReadonlyArray<readonly [string, () => unknown, number, number, number]> = [
          ["/v1/register", () => fresh(), 200, 5, 3_600],
          ["/v1/agents/recover", () => ({ email: fresh().email }), 200, 3, 3_600],
          ["/v1/register/verify", () => unknown, 400, 10, 600],
          ["/v1/agents/recover/verify", () => unknown, 400, 10, 600]
        ]
        for (const [path, body, status, limit, seconds] of routes) {
          const [ip, elsewhere] = [anyIp(), anyIp()]
          const send = (from: string) => {
            return web.send("POST", path, { ip: from, body: body() })
          }
          for (let i = 0; i < limit; i++) {
            assert.strictEqual((yield* send(ip)).status, status)
            yield* TestClock.adjust(1_000)
          }
          const answer = yield* send(ip)
          refused(answer, 429, "RATE_LIMITED")
          assert.strictEqual(answer.headers.get("retry-after"), String(seconds - limit))
          assert.strictEqual((yield* send(elsewhere)).status, status)
          yield* TestClock.adjust((seconds - limit) * 1_000)
          assert.strictEqual((yield* send(ip)).status, status)
        }
      }))

    it.effect("an IPv6 subscriber is one address, and IPv4 in IPv6 is IPv4", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const recover = (ip: string) =>
          Effect.map(web.send("POST", "/v1/agents/recover", { ip, body: { email: fresh().email } }), ({ status }) =>
            status)
        for (let i = 0; i < 3; i++)
          assert.strictEqual(yield* recover(`2001:db8:1:2:${i}::1`), 200)
        assert.strictEqual(yield* recover("2001:db8:1:2:ffff::1"), 429)
        assert.strictEqual(yield* recover("2001:db8:1:3::1"), 200)
        for (const ip of ["192.0.2.77", "::ffff:192.0.2.77", "::ffff:c000:24d"])
          assert.strictEqual(yield* recover(ip), 200)
        assert.strictEqual(yield* recover("192.0.2.77"), 429)
      }))

    it.effect("a taken address looks like a free one until the code is right (J 26)", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const owner = yield* newAccount()
        const register = (email: string) =>
          web.send("POST", "/v1/register", { ip: anyIp(), body: { email, handle: fresh().handle } })
        const [taken, free] = [yield* register(owner.email), yield* register(fresh().email)]
        assert.strictEqual(taken.status, 200)
        assert.deepStrictEqual({ ...taken.body, pending_id: "" }, { ...free.body, pending_id: "" })
        const answer = yield* web.send("POST", "/v1/register/verify", {
          ip: anyIp(),
          body: { pending_id: taken.body["pending_id"], code: yield* codeTo(owner.email) }
        })
        refused(answer, 409, "EMAIL_TAKEN")
      }))

    it.effect("a recovery looks the same whether or not there is an account (J 32)", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const owner = yield* newAccount()
        const recover = (email: string) => web.send("POST", "/v1/agents/recover", { ip: anyIp(), body: { email } })
        const known = yield* recover(owner.email)
        const unknown = yield* recover(fresh().email)
        const unsent = yield* Effect.gen(function*() {
          const neighbours = yield* Neighbours
          neighbours.beforeMail = Effect.fail(new MailFailed({ reason: "ECONNREFUSED" }))
          const answer = yield* recover((yield* newAccountWithout(neighbours)).email)
          yield* TestClock.adjust("20 seconds")
          neighbours.beforeMail = Effect.void
          return answer
        })
        for (const answer of [known, unknown, unsent]) {
          assert.deepStrictEqual([answer.status, Object.keys(answer.body).sort()], [200, ["message", "pending_id"]])
          assert.match(String(answer.body["pending_id"]), /^pnd_[A-Za-z0-9_-]{16}$/)
          assert.strictEqual(answer.body["message"], known.body["message"])
        }
      }))

    it.effect("a registration is OTP_FAILED for a free and a taken address alike while no mail can leave", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const neighbours = yield* Neighbours
        const owner = yield* newAccount()
        neighbours.ready = Effect.fail(new MailFailed({ reason: "ECONNREFUSED" }))
        const texts = new Set<string>()
        for (const email of [owner.email, fresh().email]) {
          const answer = yield* web.send("POST", "/v1/register", {
            ip: anyIp(),
            body: { email, handle: fresh().handle }
          })
          refused(answer, 500, "OTP_FAILED")
          texts.add(answer.text)
        }
        neighbours.ready = Effect.void
        assert.strictEqual(texts.size, 1)
      }))

    it.effect("a registration is 503 with Retry-After while the database is away", () =>
      Effect.gen(function*() {
        const web = yield* Web
        yield* away("agents")
        const { email, handle } = fresh()
        const answers = [
          yield* web.send("POST", "/v1/register", { ip: anyIp(), body: { email, handle } }),
          yield* web.send("POST", "/v1/agents/recover", { ip: anyIp(), body: { email } })
        ]
        yield* back("agents")
        for (const answer of answers) {
          refused(answer, 503, "UNAVAILABLE")
          assert.strictEqual(answer.headers.get("retry-after"), "2")
        }
      }))

    // The last: it looks at what all of the above logged, too.
    it.effect("no log line holds a key, a code or an address", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const neighbours = yield* Neighbours
        const account = yield* newAccount()
        const pending = yield* web.send("POST", "/v1/agents/recover", { ip: anyIp(), body: { email: account.email } })
        yield* TestClock.adjust(400)
        const code = yield* codeTo(account.email)
        yield* away("agents")
        yield* TestClock.adjust("2 seconds")
        yield* web.send("POST", "/v1/agents/recover/verify", {
          ip: anyIp(),
          body: { pending_id: pending.body["pending_id"], code }
        })
        yield* web.send("GET", "/v1/agents/me", { key: account.apiKey })
        yield* back("agents")
        neighbours.beforeMail = Effect.fail(new MailFailed({ reason: "550" }))
        yield* web.send("POST", "/v1/register", { ip: anyIp(), body: fresh() })
        yield* TestClock.adjust("20 seconds")
        neighbours.beforeMail = Effect.void
        const log = lines.join("\n")
        assert.isAbove(lines.length, 5, "the failures were logged")
        assert.notMatch(log, /ac_[A-Za-z0-9_-]{10}/)
        assert.notInclude(log, "@example.com")
        const codes = neighbours.mails.map((mail) => /^(\d{6})$/m.exec(mail.text)?.[1] ?? "no code")
        assert.isAbove(codes.length, 10)
        for (const mailed of codes) assert.notInclude(log, mailed)
        assert.strictEqual((yield* mailsTo(account.email)).length, 2)
      }))
  }
)

layer(layerWeb(layerPgliteTest, { LIMITS_OTP_ANSWER_MS: 50 }))("the time of an answer", (it) => {
  it.effect("the time of an answer is a multiple of 50 ms for a known and an unknown address, a success and a failure", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const neighbours = yield* Neighbours
      const owner = yield* newAccount()
      const begun = yield* Clock.currentTimeMillis
      const times: Array<number> = []
      for (const ready of [Effect.void, Effect.fail(new MailFailed({ reason: "ECONNREFUSED" }))]) {
        neighbours.ready = ready
        for (const path of ["/v1/register", "/v1/agents/recover"]) {
          for (const email of [owner.email, fresh().email]) {
            const sent = yield* Effect.forkChild(
              Effect.andThen(
                web.send("POST", path, { ip: anyIp(), body: { email, handle: fresh().handle } }),
                Clock.currentTimeMillis
              )
            )
            for (;;) {
              // The statements run in real time, the delay on the test's clock.
              for (let turn = 0; turn < 20; turn++)
                yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
              if (sent.pollUnsafe() !== undefined) break
              yield* TestClock.adjust(10)
            }
            times.push((yield* Fiber.join(sent)) - begun)
          }
        }
      }
      const waits = times.map((at, i) => at - (times[i - 1] ?? 0))
      assert.isTrue(waits.every((wait) => wait >= 50 && wait % 50 === 0), waits.join(" "))
      // The mails in the background end, so that the module can.
      yield* TestClock.adjust("20 seconds")
    }))
})

/** An account made while mail works, whatever it does afterwards. */
const newAccountWithout = (neighbours: Neighbours["Service"]) =>
  Effect.gen(function*() {
    const broken = neighbours.beforeMail
    neighbours.beforeMail = Effect.void
    const account = yield* newAccount()
    neighbours.beforeMail = broken
    return account
  })
