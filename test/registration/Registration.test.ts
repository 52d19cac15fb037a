import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { Auth } from "#domain/auth/Auth"
import { Registration } from "#domain/registration/Registration"
import { registrationTables } from "#domain/registration/RegistrationTables"
import { MailFailed } from "#infrastructure/platform/Mailer"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Exit, Fiber, Result } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { away, back } from "../support/Away.ts"
import { eachDatabase, layerPgliteTest } from "../support/Databases.ts"
import { sweepExpired } from "../support/Expiry.ts"
import { codeTo, fresh, layerRoom, mailsTo, Neighbours, newAccount, other } from "./Module.ts"

const UNKNOWN = "pnd_AAAAAAAAAAAAAAAA"

/** The stable code of whatever an effect fails with. */
const codeOf = <A, E extends { readonly code: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.flip(effect), (error) => error.code)

/** How often each answer was given; successes are "ok". */
const tally = <A, E extends { readonly code: string }>(answers: ReadonlyArray<Result.Result<A, E>>) => {
  const counts: Record<string, number> = {}
  for (const answer of answers) {
    const key = Result.isSuccess(answer) ? "ok" : answer.failure.code
    counts[key] = (counts[key] ?? 0) + 1
  }
  return counts
}

const atOnce = <A, E extends { readonly code: string }, R>(effects: ReadonlyArray<Effect.Effect<A, E, R>>) =>
  Effect.map(Effect.all(effects.map(Effect.result), { concurrency: "unbounded" }), tally)

const count = (table: string) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly n: number }>`SELECT count(*) AS n FROM ${sql(table)}`
    return rows[0]?.n ?? 0
  })

describe("a registration", () => {
  layer(layerRoom(layerPgliteTest))((it) => {
    it.effect("becomes an account whose key works (J 21, 22)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const applicant = { ...fresh(), displayName: "Reg", description: "one of many" }
        const pendingId = yield* registration.register(applicant)
        assert.match(pendingId, /^pnd_[A-Za-z0-9_-]{16}$/)
        const { agent, apiKey } = yield* registration.completeRegistration({
          pendingId,
          code: yield* codeTo(applicant.email)
        })
        const { inviteCode: _, ...profile } = applicant
        assert.deepInclude(agent, { ...profile, status: "active", deletedAt: null })
        assert.match(agent.id, /^agt_[A-Za-z0-9_-]{16}$/)
        assert.match(apiKey, /^ac_[A-Za-z0-9_-]{43}$/)
        assert.strictEqual((yield* (yield* Auth).authenticate(apiKey)).id, agent.id)
      }))

    it.effect("mails the code alone on a line, and keeps neither code nor key in the clear", () =>
      Effect.gen(function*() {
        const applicant = fresh()
        const registration = yield* Registration
        const pendingId = yield* registration.register(applicant)
        const code = yield* codeTo(applicant.email)
        const mails = yield* mailsTo(applicant.email)
        assert.strictEqual(mails.length, 1)
        assert.include(mails[0]?.text, `@${applicant.handle}`)
        assert.include(mails[0]?.text, "10 minutes")
        assert.include(mails[0]?.note, code)
        const { apiKey } = yield* registration.completeRegistration({ pendingId, code })
        const sql = yield* SqlClient.SqlClient
        const stored = JSON.stringify([
          yield* sql`SELECT * FROM codes WHERE email = ${applicant.email}`,
          yield* sql`SELECT * FROM pending_codes`,
          yield* sql`SELECT * FROM agents WHERE email = ${applicant.email}`
        ])
        assert.notInclude(stored, apiKey)
        assert.notInclude(stored, `"${code}"`)
      }))

    it.effect("a taken handle is told at once, a deleted account's too (J 25, 45)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const [alive, dead] = [yield* newAccount(), yield* newAccount()]
        yield* (yield* Accounts).remove(dead.id)
        for (const { handle } of [alive, dead]) {
          assert.strictEqual(yield* codeOf(registration.register({ ...fresh(), handle })), "HANDLE_TAKEN")
        }
      }))

    it.effect("a taken address is told by the mail, and to who has the code (J 26)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const owner = yield* newAccount()
        const pendingId = yield* registration.register({ ...fresh(), email: owner.email })
        const mail = (yield* mailsTo(owner.email)).at(-1)
        assert.match(mail?.text ?? "", /already have an account: @/)
        assert.include(mail?.text, owner.handle)
        assert.include(mail?.text, "https://parley.example/v1/agents/recover")
        const code = yield* codeTo(owner.email)
        assert.strictEqual(
          yield* codeOf(registration.completeRegistration({ pendingId, code: other(code) })),
          "INVALID_CODE"
        )
        assert.strictEqual(yield* codeOf(registration.completeRegistration({ pendingId, code })), "EMAIL_TAKEN")
        assert.strictEqual(yield* codeOf(registration.completeRegistration({ pendingId, code })), "EXPIRED")
      }))

    it.effect("reserves nothing: the first verify wins a handle, the other's code is used up", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const [one, two] = [fresh(), fresh()]
        const first = yield* registration.register({ ...one, handle: "wanted" })
        const second = yield* registration.register({ ...two, handle: "wanted" })
        yield* registration.completeRegistration({ pendingId: second, code: yield* codeTo(two.email) })
        const answer = { pendingId: first, code: yield* codeTo(one.email) }
        assert.strictEqual(yield* codeOf(registration.completeRegistration(answer)), "HANDLE_TAKEN")
        assert.strictEqual(yield* codeOf(registration.completeRegistration(answer)), "EXPIRED")
      }))

    it.effect("an address has one account at a time and three in its life (J 34)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const accounts = yield* Accounts
        const { email } = fresh()
        for (let i = 0; i < 3; i++) yield* accounts.remove((yield* newAccount({ ...fresh(), email })).id)
        const pendingId = yield* registration.register({ ...fresh(), email })
        const answer = { pendingId, code: yield* codeTo(email) }
        assert.strictEqual(yield* codeOf(registration.completeRegistration(answer)), "EMAIL_EXHAUSTED")
        assert.strictEqual(yield* codeOf(registration.completeRegistration(answer)), "EXPIRED")
      }))

    it.effect("an exhausted address with a live account is taken, not exhausted", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const accounts = yield* Accounts
        const { email } = fresh()
        for (let i = 0; i < 2; i++) yield* accounts.remove((yield* newAccount({ ...fresh(), email })).id)
        yield* newAccount({ ...fresh(), email })
        const pendingId = yield* registration.register({ ...fresh(), email })
        assert.strictEqual(
          yield* codeOf(registration.completeRegistration({ pendingId, code: yield* codeTo(email) })),
          "EMAIL_TAKEN"
        )
      }))

    it.effect("while no mail can leave it is OTP_FAILED, and begins no cooldown", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const applicant = fresh()
        neighbours.ready = Effect.fail(new MailFailed({ reason: "ECONNREFUSED" }))
        for (let i = 0; i < 25; i++) {
          const error = yield* Effect.flip(registration.register(applicant))
          assert.deepInclude(error, { code: "OTP_FAILED", status: 500 })
        }
        neighbours.ready = Effect.void
        const pendingId = yield* registration.register(applicant)
        yield* registration.completeRegistration({ pendingId, code: yield* codeTo(applicant.email) })
      }))

    it.effect("does not wait for its mail, for a taken address no more than for a free one", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const owner = yield* newAccount()
        const applicant = fresh()
        neighbours.beforeMail = Effect.sleep("30 seconds")
        for (const email of [owner.email, applicant.email]) {
          const before = (yield* mailsTo(email)).length
          const pendingId = yield* registration.register({ ...applicant, email })
          assert.strictEqual((yield* mailsTo(email)).length, before)
          yield* TestClock.adjust("30 seconds")
          assert.strictEqual((yield* mailsTo(email)).length, before + 1)
          assert.strictEqual(
            yield* codeOf(registration.completeRegistration({ pendingId, code: other(yield* codeTo(email)) })),
            "INVALID_CODE"
          )
        }
        neighbours.beforeMail = Effect.void
      }))

    it.effect("is withdrawn if sending its mail fails unexpectedly", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const applicant = fresh()
        neighbours.beforeMail = Effect.die(new Error("a defect"))
        yield* registration.register(applicant)
        yield* TestClock.adjust(400)
        neighbours.beforeMail = Effect.void
        // The withdrawal is on its way to the database.
        yield* Effect.retry(registration.register(applicant), { times: 50 })
      }))

    it.effect("is withdrawn if its mail never leaves: its address may ask again at once", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const applicant = fresh()
        let tries = 0
        neighbours.beforeMail = Effect.suspend(() => {
          tries++
          return Effect.fail(new MailFailed({ reason: "550" }))
        })
        const lost = yield* registration.register(applicant)
        assert.strictEqual(yield* codeOf(registration.register(applicant)), "OTP_COOLDOWN")
        yield* TestClock.adjust("15 seconds")
        assert.strictEqual(tries, 4)
        neighbours.beforeMail = Effect.void
        // The withdrawal is on its way to the database.
        yield* Effect.retry(registration.register(applicant), { times: 50 })
        assert.strictEqual(
          yield* codeOf(registration.completeRegistration({ pendingId: lost, code: "000000" })),
          "EXPIRED"
        )
      }))
  })
})

describe("a code", () => {
  layer(layerRoom(layerPgliteTest))((it) => {
    const begun = Effect.fnUntraced(function*() {
      const applicant = fresh("code")
      const registration = yield* Registration
      const pendingId = yield* registration.register(applicant)
      const code = yield* codeTo(applicant.email)
      return {
        applicant,
        code,
        pendingId,
        register: registration.register(applicant),
        verify: (tried: string) => registration.completeRegistration({ pendingId, code: tried })
      }
    })

    it.effect("survives five wrong tries; the sixth verify burns it even if it is right (J 27, 28)", () =>
      Effect.gen(function*() {
        const { code, verify } = yield* begun()
        for (const remaining of [4, 3, 2, 1, 0]) {
          const error = yield* Effect.flip(verify(other(code)))
          assert.deepInclude(error, { code: "INVALID_CODE", status: 400, details: { attempts_remaining: remaining } })
        }
        const error = yield* Effect.flip(verify(code))
        assert.deepInclude(error, { code: "OTP_ATTEMPTS_EXHAUSTED", status: 429 })
        assert.isUndefined(error.retryAfterMs)
        assert.strictEqual(yield* codeOf(verify(code)), "EXPIRED")
      }))

    it.effect("works after four wrong tries, once (J 29)", () =>
      Effect.gen(function*() {
        const { code, verify } = yield* begun()
        for (let i = 0; i < 4; i++) yield* Effect.flip(verify(other(code)))
        yield* verify(code)
        assert.strictEqual(yield* codeOf(verify(code)), "EXPIRED")
      }))

    it.effect("is good for ten minutes", () =>
      Effect.gen(function*() {
        const [early, late] = [yield* begun(), yield* begun()]
        yield* TestClock.adjust(599_999)
        yield* early.verify(early.code)
        yield* TestClock.adjust(1)
        assert.strictEqual(yield* codeOf(late.verify(late.code)), "EXPIRED")
      }))

    it.effect("is refused for another purpose, and unknown ids are EXPIRED", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const { code, pendingId, verify } = yield* begun()
        assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId, code })), "EXPIRED")
        assert.strictEqual(yield* codeOf(registration.completeRotation({ pendingId, code }, account.id)), "EXPIRED")
        for (const unknown of [UNKNOWN, "nonsense", "' OR 1=1 --"]) {
          assert.strictEqual(yield* codeOf(registration.completeRegistration({ pendingId: unknown, code })), "EXPIRED")
        }
        yield* verify(code)
      }))

    it.effect("can be asked for again after a minute (J 31)", () =>
      Effect.gen(function*() {
        const { applicant, register } = yield* begun()
        yield* TestClock.adjust(20_000)
        const error = yield* Effect.flip(register)
        assert.deepInclude(error, { code: "OTP_COOLDOWN", status: 429, details: { retry_after_ms: 40_000 } })
        assert.strictEqual((yield* mailsTo(applicant.email)).length, 1)
        yield* TestClock.adjust(39_999)
        assert.strictEqual((yield* Effect.flip(register)).retryAfterMs, 1)
        yield* TestClock.adjust(1)
        yield* register
        assert.strictEqual((yield* mailsTo(applicant.email)).length, 2)
      }))

    it.effect("cools down by address and purpose only", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        yield* registration.register({ ...fresh(), email: account.email })
        yield* registration.recover(account.email)
        yield* registration.rotate(account)
        yield* TestClock.adjust(400)
        assert.strictEqual((yield* mailsTo(account.email)).length, 4)
        yield* registration.register(fresh())
      }))

    it.effect("ends its cooldown when it is used, and only then", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const pendingId = yield* registration.rotate(account)
        const code = yield* codeTo(account.email)
        yield* Effect.flip(registration.completeRotation({ pendingId, code: other(code) }, account.id))
        assert.strictEqual(yield* codeOf(registration.rotate(account)), "OTP_COOLDOWN")
        yield* registration.completeRotation({ pendingId, code }, account.id)
        yield* registration.rotate(account)
      }))

    it.effect("goes on with its cooldown when its tries are used up (wire.md C.2)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const pendingId = yield* registration.rotate(account)
        const wrong = other(yield* codeTo(account.email))
        const outcomes: Array<string> = []
        for (let i = 0; i < 6; i++)
          outcomes.push(yield* codeOf(registration.completeRotation({ pendingId, code: wrong }, account.id)))
        assert.deepStrictEqual(outcomes, [...Array<string>(5).fill("INVALID_CODE"), "OTP_ATTEMPTS_EXHAUSTED"])
        assert.isTrue(
          Exit.isFailure(yield* Effect.exit(registration.rotate(account))),
          "a second code within the minute"
        )
        assert.strictEqual(yield* codeOf(registration.rotate(account)), "OTP_COOLDOWN")
      }))

    it.effect("an older code that is used leaves the newer one's cooldown alone", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const pendingId = yield* registration.rotate(account)
        const code = yield* codeTo(account.email)
        yield* TestClock.adjust(60_000)
        yield* registration.rotate(account)
        yield* registration.completeRotation({ pendingId, code }, account.id)
        assert.strictEqual(yield* codeOf(registration.rotate(account)), "OTP_COOLDOWN")
      }))

    it.effect("is mailed twenty times an hour, the window sliding", () =>
      Effect.gen(function*() {
        const { applicant, register } = yield* begun()
        for (let i = 1; i < 20; i++) {
          yield* TestClock.adjust(100_000)
          yield* register
        }
        // It cools down too, for a minute, which would not be enough.
        assert.deepInclude(yield* Effect.flip(register), { code: "OTP_HOURLY_CAP", retryAfterMs: 1_700_000 })
        yield* TestClock.adjust(60_000)
        const error = yield* Effect.flip(register)
        // The first was 1960 s ago.
        assert.deepInclude(error, { code: "OTP_HOURLY_CAP", status: 429 })
        assert.deepStrictEqual(error.code === "OTP_HOURLY_CAP" && error.details, {
          retry_after_ms: 1_640_000,
          limit: 20,
          window: "hour"
        })
        yield* TestClock.adjust(1_639_999)
        assert.strictEqual((yield* Effect.flip(register)).retryAfterMs, 1)
        yield* TestClock.adjust(1)
        yield* register
        yield* TestClock.adjust(60_000)
        assert.strictEqual((yield* Effect.flip(register)).retryAfterMs, 40_000)
        assert.strictEqual((yield* mailsTo(applicant.email)).length, 21)
      }))

    it.effect("used codes count for the hour", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        for (let i = 0; i < 20; i++) {
          const pendingId = yield* registration.rotate(account)
          yield* registration.completeRotation({ pendingId, code: yield* codeTo(account.email) }, account.id)
        }
        assert.strictEqual(yield* codeOf(registration.rotate(account)), "OTP_HOURLY_CAP")
      }))

    it.effect("is mailed although its caller goes away", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const applicant = fresh()
        neighbours.beforeMail = Effect.sleep("1 second")
        const left = yield* Effect.forkChild(registration.register(applicant), { startImmediately: true })
        yield* Fiber.interrupt(left)
        yield* TestClock.adjust("1 second")
        neighbours.beforeMail = Effect.void
        assert.strictEqual((yield* mailsTo(applicant.email)).length, 1)
        assert.strictEqual(yield* codeOf(registration.register(applicant)), "OTP_COOLDOWN")
      }))

    it.effect("is removed when it is old", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { register } = yield* begun()
        yield* sql`
          INSERT INTO codes (id, purpose, email, expires_at)
          SELECT 'old' || n, 'register', n || '@old.example', 1 FROM generate_series(1, 1234) AS n`
        yield* sql`INSERT INTO pending_codes (id, code_id, created_at) SELECT id, id, 1 FROM codes WHERE id LIKE 'old%'`
        yield* sql`
          INSERT INTO code_addresses (email, purpose, code_id, last_sent_at, sent_at)
          SELECT email, purpose, id, 1, '{1}' FROM codes WHERE id LIKE 'old%'`
        yield* TestClock.adjust("3 hours")
        yield* register
        while ((yield* sweepExpired(registrationTables, "codes")).more);
        assert.deepStrictEqual([yield* count("codes"), yield* count("pending_codes"), yield* count("code_addresses")], [
          1,
          1,
          1
        ])
      }))
  })
})

describe("a recovery", () => {
  layer(layerRoom(layerPgliteTest))((it) => {
    /** Lets the mail go that leaves after the answer. */
    const settle = TestClock.adjust(400)

    it.effect("replaces the key: the new one works, the old one and its sockets are dead (J 33)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const auth = yield* Auth
        const neighbours = yield* Neighbours
        const account = yield* newAccount()
        assert.strictEqual((yield* auth.authenticate(account.apiKey)).id, account.id)
        const pendingId = yield* registration.recover(account.email)
        yield* settle
        const code = yield* codeTo(account.email)
        const { agent, apiKey } = yield* registration.completeRecovery({ pendingId, code })
        assert.strictEqual(agent.handle, account.handle)
        assert.strictEqual((yield* auth.authenticate(apiKey)).id, account.id)
        assert.strictEqual(yield* codeOf(auth.authenticate(account.apiKey)), "UNAUTHORIZED")
        assert.deepInclude(neighbours.disconnected, { agentId: account.id, code: 1008, text: "key rotated" })
        assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId, code })), "EXPIRED")
      }))

    it.effect("looks the same for an unknown address, to the end (J 32)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const unknown = `un${account.email}`
        const [one, two] = [yield* registration.recover(account.email), yield* registration.recover(unknown)]
        yield* settle
        const code = yield* codeTo(account.email)
        assert.strictEqual((yield* mailsTo(unknown)).length, 0)
        for (let i = 0; i < 7; i++) {
          const [known, decoy] = [
            yield* Effect.flip(registration.completeRecovery({ pendingId: one, code: other(code) })),
            yield* Effect.flip(registration.completeRecovery({ pendingId: two, code: other(code) }))
          ]
          assert.deepStrictEqual([decoy.code, decoy.message, decoy.details], [known.code, known.message, known.details])
          assert.strictEqual(decoy.code, i < 5 ? "INVALID_CODE" : i === 5 ? "OTP_ATTEMPTS_EXHAUSTED" : "EXPIRED")
        }
      }))

    it.effect("within the cooldown another pending id stands for the code already mailed", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const first = yield* registration.recover(account.email)
        yield* settle
        const second = yield* registration.recover(account.email)
        yield* settle
        assert.notStrictEqual(first, second)
        assert.strictEqual((yield* mailsTo(account.email)).length, 2, "the registration's and one")
        const code = yield* codeTo(account.email)
        yield* registration.completeRecovery({ pendingId: second, code })
        assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId: first, code })), "EXPIRED")
      }))

    it.effect("above the hourly cap another pending id stands for the code already mailed", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        for (let i = 0; i < 20; i++) {
          yield* registration.recover(account.email)
          yield* TestClock.adjust(60_000)
        }
        const mails = (yield* mailsTo(account.email)).length
        const pendingId = yield* registration.recover(account.email)
        yield* settle
        assert.strictEqual((yield* mailsTo(account.email)).length, mails)
        yield* registration.completeRecovery({ pendingId, code: yield* codeTo(account.email) })
      }))

    /**
     * What the wrong code gets with each of these pending ids, one after the other: the tries that are left, or the
     * error.
     */
    const tryAll = Effect.fnUntraced(function*(pendings: ReadonlyArray<string>, wrong: string) {
      const registration = yield* Registration
      const answers: Array<unknown> = []
      for (const pendingId of pendings) {
        const error = yield* Effect.flip(registration.completeRecovery({ pendingId, code: wrong }))
        answers.push(error.code === "INVALID_CODE" ? error.details?.attempts_remaining : error.code)
      }
      return answers
    })
    const times = <A>(n: number, one: A): ReadonlyArray<A> => Array.from({ length: n }, () => one)

    it.effect("six wrong tries of an outsider use up his own pending id, and the owner's still works", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const [own, outsiders] = [
          yield* registration.recover(account.email),
          yield* registration.recover(account.email)
        ]
        yield* settle
        const code = yield* codeTo(account.email)
        const answers = yield* tryAll(times(7, outsiders), other(code))
        assert.deepStrictEqual(answers, [4, 3, 2, 1, 0, "OTP_ATTEMPTS_EXHAUSTED", "EXPIRED"])
        assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId: outsiders, code })), "EXPIRED")
        assert.deepStrictEqual(yield* tryAll([own], other(code)), [4])
        yield* registration.completeRecovery({ pendingId: own, code })
      }))

    it.effect("all pending ids of a code together have twenty tries, of a decoy no more and no fewer", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        for (const email of [account.email, `un${account.email}`]) {
          const pendings = yield* Effect.all(times(5, registration.recover(email)))
          yield* settle
          const code = yield* codeTo(account.email)
          for (const pendingId of pendings.slice(0, 4))
            assert.deepStrictEqual(yield* tryAll(times(4, pendingId), other(code)), [4, 3, 2, 1])
          // 16 of 20 are used: the code has fewer left than this pending id.
          assert.deepStrictEqual(yield* tryAll(times(4, pendings[4]!), other(code)), [3, 2, 1, 0])
          assert.strictEqual(
            yield* codeOf(registration.completeRecovery({ pendingId: pendings[0]!, code })),
            "OTP_ATTEMPTS_EXHAUSTED"
          )
          for (const pendingId of pendings)
            assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId, code })), "EXPIRED")
        }
      }))

    it.effect("does not wait for the mail", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const account = yield* newAccount()
        neighbours.beforeMail = Effect.sleep("30 seconds")
        const pendingId = yield* registration.recover(account.email)
        const before = (yield* mailsTo(account.email)).length
        yield* TestClock.adjust("31 seconds")
        neighbours.beforeMail = Effect.void
        assert.strictEqual((yield* mailsTo(account.email)).length, before + 1)
        yield* registration.completeRecovery({ pendingId, code: yield* codeTo(account.email) })
      }))

    it.effect("tries a mail four times; when it never leaves, the pending id is as good as a decoy", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const account = yield* newAccount()
        let tries = 0
        neighbours.beforeMail = Effect.suspend(() => {
          tries++
          return Effect.fail(new MailFailed({ reason: "ECONNREFUSED" }))
        })
        const lost = yield* registration.recover(account.email)
        yield* TestClock.adjust("15 seconds")
        assert.strictEqual(tries, 4)
        neighbours.beforeMail = Effect.void
        assert.strictEqual(
          yield* codeOf(registration.completeRecovery({ pendingId: lost, code: "000000" })),
          "INVALID_CODE"
        )
        yield* TestClock.adjust("1 minute")
        const pendingId = yield* registration.recover(account.email)
        yield* settle
        yield* registration.completeRecovery({ pendingId, code: yield* codeTo(account.email) })
      }))

    it.effect("a mail that leaves at the third try is enough", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const neighbours = yield* Neighbours
        const account = yield* newAccount()
        let tries = 0
        neighbours.beforeMail = Effect.suspend(() =>
          ++tries < 3 ? Effect.fail(new MailFailed({ reason: "421" })) : Effect.void
        )
        const pendingId = yield* registration.recover(account.email)
        yield* TestClock.adjust("7 seconds")
        neighbours.beforeMail = Effect.void
        yield* registration.completeRecovery({ pendingId, code: yield* codeTo(account.email) })
      }))

    it.effect("works for a suspended account and leaves it suspended", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const sql = yield* SqlClient.SqlClient
        const account = yield* newAccount()
        yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${account.id}`
        const pendingId = yield* registration.recover(account.email)
        yield* settle
        const { apiKey } = yield* registration.completeRecovery({ pendingId, code: yield* codeTo(account.email) })
        assert.strictEqual((yield* (yield* Auth).authenticate(apiKey)).status, "suspended")
      }))

    it.effect("a deleted account cannot be recovered, not with a code mailed before either (J 45)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const account = yield* newAccount()
        const before = yield* registration.recover(account.email)
        yield* settle
        const code = yield* codeTo(account.email)
        yield* (yield* Accounts).remove(account.id)
        assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId: before, code })), "EXPIRED")
        yield* TestClock.adjust("2 minutes")
        const mails = (yield* mailsTo(account.email)).length
        const after = yield* registration.recover(account.email)
        yield* settle
        assert.strictEqual((yield* mailsTo(account.email)).length, mails)
        assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId: after, code })), "INVALID_CODE")
      }))
  })
})

describe("a rotation", () => {
  layer(layerRoom(layerPgliteTest))((it) => {
    it.effect("replaces the key, at once (J 40)", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const auth = yield* Auth
        const neighbours = yield* Neighbours
        const account = yield* newAccount()
        yield* auth.authenticate(account.apiKey)
        const pendingId = yield* registration.rotate(account)
        const { apiKey } = yield* registration.completeRotation(
          { pendingId, code: yield* codeTo(account.email) },
          account.id
        )
        assert.strictEqual(yield* codeOf(auth.authenticate(account.apiKey)), "UNAUTHORIZED")
        assert.strictEqual((yield* auth.authenticate(apiKey)).id, account.id)
        assert.deepStrictEqual(neighbours.disconnected, [{ agentId: account.id, code: 1008, text: "key rotated" }])
      }))

    it.effect("of another agent is 403 and costs its owner nothing", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const [owner, thief] = [yield* newAccount(), yield* newAccount()]
        const answer = { pendingId: yield* registration.rotate(owner), code: yield* codeTo(owner.email) }
        for (let i = 0; i < 7; i++) {
          assert.strictEqual(yield* codeOf(registration.completeRotation(answer, thief.id)), "FORBIDDEN")
        }
        yield* registration.completeRotation(answer, owner.id)
      }))
  })
})

describe("the end of an account", () => {
  layer(layerRoom(layerPgliteTest))((it) => {
    it.effect("is the end of its key, its handle's card and its sockets, and closes its inbox (J 45)", () =>
      Effect.gen(function*() {
        const agents = yield* Agents
        const auth = yield* Auth
        const neighbours = yield* Neighbours
        const account = yield* newAccount()
        yield* auth.authenticate(account.apiKey)
        yield* agents.byHandle(account.handle)
        yield* (yield* Accounts).remove(account.id)
        assert.strictEqual(yield* codeOf(auth.authenticate(account.apiKey)), "UNAUTHORIZED")
        assert.isUndefined(yield* agents.byHandle(account.handle))
        assert.deepStrictEqual(neighbours.disconnected, [{ agentId: account.id, code: 1008, text: "account deleted" }])
        assert.deepStrictEqual(neighbours.deleted, [account.id])
      }))
  })
})

eachDatabase((database) => {
  describe("registrations at the same time", () => {
    layer(layerRoom(database))((it) => {
      it.effect("fifty verifies with the right code make one account", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const applicant = fresh()
          const pendingId = yield* registration.register(applicant)
          const code = yield* codeTo(applicant.email)
          const before = yield* count("agents")
          const answers = yield* atOnce(
            Array.from({ length: 50 }, () => registration.completeRegistration({ pendingId, code }))
          )
          assert.deepStrictEqual(answers, { ok: 1, EXPIRED: 49 })
          assert.strictEqual(yield* count("agents"), before + 1)
        }))

      it.effect("fifty verifies with wrong codes are five tries and one exhaustion", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const applicant = fresh()
          const pendingId = yield* registration.register(applicant)
          const wrong = other(yield* codeTo(applicant.email))
          const answers = yield* atOnce(
            Array.from({ length: 50 }, () => registration.completeRegistration({ pendingId, code: wrong }))
          )
          assert.deepStrictEqual(answers, { INVALID_CODE: 5, OTP_ATTEMPTS_EXHAUSTED: 1, EXPIRED: 44 })
        }))

      it.effect("fifty wrong verifies over ten pending ids of one code are twenty tries", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          // Of an address without an account, so that no code is right.
          const { email } = fresh()
          const pendings = yield* Effect.all(Array.from({ length: 10 }, () => registration.recover(email)))
          const answers = yield* atOnce(
            pendings.flatMap((pendingId) =>
              Array.from({ length: 5 }, () => registration.completeRecovery({ pendingId, code: "123456" }))
            )
          )
          assert.deepStrictEqual(answers, { INVALID_CODE: 20, OTP_ATTEMPTS_EXHAUSTED: 1, EXPIRED: 29 })
        }))

      it.effect("twenty registrations with one new address mail one code", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const { email } = fresh()
          const answers = yield* atOnce(Array.from({ length: 20 }, () => registration.register({ ...fresh(), email })))
          assert.deepStrictEqual(answers, { ok: 1, OTP_COOLDOWN: 19 })
          assert.strictEqual((yield* mailsTo(email)).length, 1)
          yield* TestClock.adjust(60_000)
          const later = yield* atOnce(Array.from({ length: 20 }, () => registration.register({ ...fresh(), email })))
          assert.deepStrictEqual(later, { ok: 1, OTP_COOLDOWN: 19 })
        }))

      it.effect("a recovery whose caller goes away leaves no cooldown without a mail", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          for (let turns = 0; turns < 40; turns++) {
            const { email } = yield* newAccount()
            const before = (yield* mailsTo(email)).length
            const left = yield* Effect.forkChild(registration.recover(email))
            for (let turn = 0; turn < turns / 2; turn++) yield* Effect.yieldNow
            yield* Fiber.interrupt(left)
            yield* registration.recover(email)
            yield* TestClock.adjust(400)
            assert.strictEqual((yield* mailsTo(email)).length, before + 1, `after ${turns / 2} turns`)
          }
        }))

      it.effect("twenty recoveries mail one code, and every pending id stands for it", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const account = yield* newAccount()
          const before = (yield* mailsTo(account.email)).length
          const pendings = yield* Effect.all(
            Array.from({ length: 20 }, () => registration.recover(account.email)),
            { concurrency: "unbounded" }
          )
          yield* TestClock.adjust(400)
          assert.strictEqual(new Set(pendings).size, 20)
          assert.strictEqual((yield* mailsTo(account.email)).length, before + 1)
          const code = yield* codeTo(account.email)
          const answers = yield* atOnce(pendings.map((pendingId) => registration.completeRecovery({ pendingId, code })))
          assert.deepStrictEqual(answers, { ok: 1, EXPIRED: 19 })
        }))

      it.effect("one of ten registrations at once gets a handle", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const handle = fresh("popular").handle
          const answers = yield* Effect.forEach(
            Array.from({ length: 10 }, () => ({ ...fresh(), handle })),
            (applicant) =>
              Effect.gen(function*() {
                return { pendingId: yield* registration.register(applicant), code: yield* codeTo(applicant.email) }
              })
          )
          assert.deepStrictEqual(
            yield* atOnce(answers.map((answer) => registration.completeRegistration(answer))),
            { ok: 1, HANDLE_TAKEN: 9 }
          )
        }))

      it.effect("an address never has more than one live account, nor more than three in its life", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const accounts = yield* Accounts
          const sql = yield* SqlClient.SqlClient
          const { email } = fresh()
          const answers: Array<{ readonly pendingId: string; readonly code: string }> = []
          for (let i = 0; i < 8; i++) {
            answers.push({ pendingId: yield* registration.register({ ...fresh(), email }), code: yield* codeTo(email) })
            yield* TestClock.adjust(60_000)
          }
          // Each that wins is ended at once, so that the next may win.
          const outcomes = yield* atOnce(
            answers.map((answer) =>
              Effect.tap(registration.completeRegistration(answer), ({ agent }) => accounts.remove(agent.id))
            )
          )
          assert.isAtMost(outcomes["ok"] ?? 0, 3)
          assert.isAtLeast(outcomes["ok"] ?? 0, 1)
          const rows = yield* sql<
            { readonly no: number }
          >`SELECT email_no AS no FROM agents WHERE email = ${email} ORDER BY 1`
          assert.deepStrictEqual(rows.map(({ no }) => no), Array.from(rows, (_, i) => i + 1))
        }))

      it.effect("a code for an address that the account no longer has replaces no key", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const accounts = yield* Accounts
          const { email, id } = yield* newAccount()
          const pendingId = yield* registration.recover(email)
          yield* TestClock.adjust("1 second")
          const code = yield* codeTo(email)
          // As if the code had been issued while the address was replaced.
          yield* accounts.replaceEmail(id, fresh().email)
          assert.strictEqual(yield* codeOf(registration.completeRecovery({ pendingId, code })), "EXPIRED")
        }))

      it.effect("addresses that move from one account to another keep their accounts apart, erased ones too", () =>
        Effect.gen(function*() {
          const accounts = yield* Accounts
          const sql = yield* SqlClient.SqlClient
          yield* sql`INSERT INTO secrets (name, value) VALUES ('erased_addresses', '\\x00') ON CONFLICT (name) DO NOTHING`
          const erase = (id: string) =>
            sql`
            UPDATE agents SET email = erased_address(email), deleted_at = 1, key_hash = NULL WHERE id = ${id}`
          const [first, second, third] = [yield* newAccount(), yield* newAccount(), yield* newAccount()]
          yield* erase(first.id)
          assert.isObject(yield* accounts.replaceEmail(second.id, first.email))
          assert.strictEqual(yield* accounts.replaceEmail(third.id, first.email), "email_taken")
          yield* erase(second.id)
          assert.isObject(yield* accounts.replaceEmail(third.id, first.email))
          // The address that the second one left is free.
          assert.strictEqual((yield* newAccount({ email: second.email })).email, second.email)
        }))

      it.effect("a caller that goes away leaves either key, and never old sockets with a new key", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const auth = yield* Auth
          const neighbours = yield* Neighbours
          const kept: Array<boolean> = []
          for (let turns = 0; turns < 40; turns++) {
            const account = yield* newAccount()
            const pendingId = yield* registration.rotate(account)
            const answer = { pendingId, code: yield* codeTo(account.email) }
            const rotating = yield* Effect.forkChild(registration.completeRotation(answer, account.id))
            for (let turn = 0; turn < turns / 2; turn++) yield* Effect.yieldNow
            yield* Fiber.interrupt(rotating)
            const old = yield* Effect.result(auth.authenticate(account.apiKey))
            const disconnected = neighbours.disconnected.some(({ agentId }) => agentId === account.id)
            assert.strictEqual(disconnected, Result.isFailure(old))
            kept.push(Result.isSuccess(old))
          }
          assert.include(kept, false)
        }))

      it.effect("a failure of the database inside leaves the code as it was", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const applicant = fresh()
          const pendingId = yield* registration.register(applicant)
          const answer = { pendingId, code: yield* codeTo(applicant.email) }
          yield* away("inboxes")
          assert.strictEqual(yield* codeOf(registration.completeRegistration(answer)), "UNAVAILABLE")
          yield* back("inboxes")
          const made = yield* Effect.forkChild(registration.completeRegistration(answer))
          assert.strictEqual((yield* Fiber.join(made)).agent.handle, applicant.handle)
        }))
    })
  })
})
