import { type Admission, admissionOf } from "#domain/registration/Admissions"
import { type Applicant, Registration } from "#domain/registration/Registration"
import type { Settings } from "#infrastructure/platform/Config"
import { Invitations } from "#interfaces/operator/Invitations"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { TestClock } from "effect/testing"
import { eachDatabase, layerPgliteTest } from "../support/Databases.ts"
import { codeTo, fresh, layerRoom, mailsTo, newAccount } from "./Module.ts"

const DAY_MS = 86_400_000
const CLOSED = "REGISTRATION_CLOSED"

describe("who may register", () => {
  const nobody = undefined
  const anybody = { email: null }
  const named = { email: "ada@example.org" }
  const other = { email: "bob@example.org" }
  const invitations = { nobody, anybody, named, other }
  type Row = readonly [
    Settings["REGISTRATION"],
    ReadonlyArray<string>,
    Readonly<Record<keyof typeof invitations, Admission>>
  ]
  const table: ReadonlyArray<Row> = [
    ["open", [], { nobody: "open", anybody: "open", named: "invited", other: "open" }],
    ["open", ["example.org"], { nobody: "open", anybody: "open", named: "invited", other: "open" }],
    ["open", ["example.com"], { nobody: "refused", anybody: "refused", named: "invited", other: "refused" }],
    ["invite", [], { nobody: "refused", anybody: "invited", named: "invited", other: "refused" }],
    ["invite", ["example.com"], { nobody: "refused", anybody: "refused", named: "invited", other: "refused" }],
    ["closed", [], { nobody: "refused", anybody: "refused", named: "refused", other: "refused" }]
  ]
  it("depends on REGISTRATION, on the domain of the address, and on an invitation", () => {
    for (const [REGISTRATION, REGISTRATION_DOMAINS, wanted] of table) {
      for (const [name, invitation] of Object.entries(invitations)) {
        const admission = admissionOf({ REGISTRATION, REGISTRATION_DOMAINS }, "ada@example.org", invitation)
        const what = `${REGISTRATION} ${REGISTRATION_DOMAINS.join()} ${name}`
        assert.strictEqual(admission, wanted[name as keyof typeof invitations], what)
      }
    }
  })
  it("a domain is compared as a whole", () => {
    const rules = { REGISTRATION: "open", REGISTRATION_DOMAINS: ["example.org"] } as const
    for (const email of ["a@sub.example.org", "a@notexample.org", "a@example.org.evil"])
      assert.strictEqual(admissionOf(rules, email, undefined), "refused", email)
  })
})

const invite = (given: { readonly uses?: number; readonly email?: string; readonly lifetimeMs?: number } = {}) =>
  Effect.flatMap(Invitations, (invitations) =>
    invitations.create({
      uses: given.uses ?? 1,
      lifetimeMs: given.lifetimeMs ?? DAY_MS,
      email: given.email ?? null,
      note: null,
      operator: "ops"
    }))

const codeOf = <A, E extends { readonly code: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.result(effect), (result) => Result.isSuccess(result) ? "ok" : result.failure.code)

const used = (id: string) =>
  Effect.flatMap(
    Invitations,
    (invitations) => Effect.map(invitations.list(null, 1_000), (rows) => rows.find((row) => row.id === id)?.used)
  )

/** Begins a registration, and returns the answer with which it can be completed. */
const begin = Effect.fnUntraced(function*(applicant: Applicant) {
  const pendingId = yield* (yield* Registration).register(applicant)
  return { pendingId, code: yield* codeTo(applicant.email) }
})

describe("registration by invitation", () => {
  eachDatabase((database) => {
    layer(Layer.provideMerge(Invitations.layer, layerRoom(database, { REGISTRATION: "invite" })))((it) => {
      it.effect("without one is refused before any mail leaves, and alike for addresses with an account", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const stranger = fresh()
          assert.strictEqual(yield* codeOf(registration.register(stranger)), CLOSED)
          assert.lengthOf(yield* mailsTo(stranger.email), 0)
          const { code } = yield* invite()
          const known = yield* newAccount({ inviteCode: code })
          const before = (yield* mailsTo(known.email)).length
          for (const inviteCode of [null, code, "inv_unknown"]) {
            // Neither the address nor the handle changes the answer.
            assert.strictEqual(yield* codeOf(registration.register({ ...known, inviteCode })), CLOSED)
          }
          assert.lengthOf(yield* mailsTo(known.email), before)
          // Recovery stays open.
          yield* registration.recover(known.email)
        }))

      it.effect("admits exactly as many agents as it has uses, whoever comes at once", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const { code, invitation } = yield* invite({ uses: 3 })
          const answers = yield* Effect.forEach(
            Array.from({ length: 8 }, () => ({ ...fresh(), inviteCode: code })),
            begin
          )
          // A code is used up when the agent is created, not when it is mailed.
          assert.strictEqual(yield* used(invitation.id), 0)
          const ends = yield* Effect.all(answers.map((answer) => codeOf(registration.completeRegistration(answer))), {
            concurrency: "unbounded"
          })
          assert.deepStrictEqual(ends.toSorted(), [...Array.from({ length: 5 }, () => CLOSED), "ok", "ok", "ok"])
          assert.strictEqual(yield* used(invitation.id), 3)
          assert.strictEqual(yield* codeOf(registration.register({ ...fresh(), inviteCode: code })), CLOSED)
        }))

      it.effect("is not used up by a registration that fails", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const { code, invitation } = yield* invite({ uses: 2 })
          const [one, two] = [{ ...fresh(), inviteCode: code }, { ...fresh(), inviteCode: code }]
          const first = yield* begin(one)
          const second = yield* begin({ ...two, handle: one.handle })
          assert.strictEqual(yield* codeOf(registration.completeRegistration(first)), "ok")
          assert.strictEqual(yield* codeOf(registration.completeRegistration(second)), "HANDLE_TAKEN")
          assert.strictEqual(yield* used(invitation.id), 1)
        }))

      it.effect("for an address admits it without the code, and no other address with it", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const [ada, bob] = [fresh(), fresh()]
          const { code, invitation } = yield* invite({ email: ada.email })
          assert.strictEqual(yield* codeOf(registration.register({ ...bob, inviteCode: code })), CLOSED)
          assert.strictEqual(yield* codeOf(registration.completeRegistration(yield* begin(ada))), "ok")
          assert.strictEqual(yield* used(invitation.id), 1)
        }))

      it.effect("admits nobody after its end, also not with a code that was mailed before", () =>
        Effect.gen(function*() {
          const registration = yield* Registration
          const invitations = yield* Invitations
          const [timed, ended] = [yield* invite({ lifetimeMs: 60_000 }), yield* invite()]
          const answers = [
            yield* begin({ ...fresh(), inviteCode: timed.code }),
            yield* begin({ ...fresh(), inviteCode: ended.code })
          ]
          yield* TestClock.adjust("61 seconds")
          yield* invitations.end(ended.invitation.id, "ops")
          for (const answer of answers)
            assert.strictEqual(yield* codeOf(registration.completeRegistration(answer)), CLOSED)
          for (const inviteCode of [timed.code, ended.code])
            assert.strictEqual(yield* codeOf(registration.register({ ...fresh(), inviteCode })), CLOSED)
        }))
    })
  })
})

describe("registration that is closed", () => {
  layer(Layer.provideMerge(Invitations.layer, layerRoom(layerPgliteTest, { REGISTRATION: "closed" })))((it) => {
    it.effect("refuses everybody, invited or not", () =>
      Effect.gen(function*() {
        const applicant = fresh()
        const { code } = yield* invite({ email: applicant.email })
        const registration = yield* Registration
        assert.strictEqual(yield* codeOf(registration.register({ ...applicant, inviteCode: code })), CLOSED)
        assert.lengthOf(yield* mailsTo(applicant.email), 0)
      }))
  })
})

describe("registration for some domains", () => {
  const rules = { REGISTRATION_DOMAINS: ["example.org"] }
  layer(Layer.provideMerge(Invitations.layer, layerRoom(layerPgliteTest, rules)))((it) => {
    it.effect("admits their addresses, and any address that an invitation names", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const [inside, outside, named] = [{ ...fresh(), email: `${fresh().handle}@example.org` }, fresh(), fresh()]
        yield* invite({ email: named.email })
        assert.strictEqual(yield* codeOf(registration.completeRegistration(yield* begin(inside))), "ok")
        assert.strictEqual(yield* codeOf(registration.register(outside)), CLOSED)
        assert.strictEqual(yield* codeOf(registration.completeRegistration(yield* begin(named))), "ok")
      }))
  })
})
