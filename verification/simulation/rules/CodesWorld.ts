import { Accounts, type Issued } from "#domain/agents/Accounts"
import { Registration } from "#domain/registration/Registration"
import type { Settings } from "#infrastructure/platform/Config"
import { Clock, Effect, Exit, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { layerRoom, Neighbours, other } from "../../../test/registration/Module.ts"
import type { TestDatabase } from "../../../test/support/Databases.ts"
import { layerLeapingClock, leap } from "../../../test/support/Leap.ts"
import type { Reaches } from "../Search.ts"
import { check, same, Violation } from "../Violation.ts"
import { inWordsBy } from "../Words.ts"
import { CODES, Codes, type Purpose, type Tried } from "./Codes.ts"
import type { Ledger } from "./Ledger.ts"

const EMAILS = 2
const HANDLES = 10

export const layerCodes = (database: TestDatabase, changes: Partial<Settings> = {}) =>
  layerRoom(database, { LIMITS_OTP_PER_HOUR: CODES.perHour, LIMITS_OTP_ATTEMPTS_PER_CODE: CODES.perCode, ...changes })
    .pipe(Layer.provideMerge(layerLeapingClock))

export type CodeStep =
  | { readonly _tag: "Jump"; readonly ms: number }
  | { readonly _tag: "Edge"; readonly pick: number; readonly offset: -1 | 0 | 1 }
  | { readonly _tag: "Register"; readonly email: number; readonly handle: number }
  | { readonly _tag: "Recover"; readonly email: number }
  | { readonly _tag: "Rotate"; readonly pick: number }
  /**
   * Several attempts with wrong codes, or one with the right code; sometimes for another purpose, or by another
   * account.
   */
  | {
    readonly _tag: "Try"
    readonly pick: number
    readonly right: boolean
    readonly times: number
    readonly wild: number
  }
  /** Two attempts with right codes at once. */
  | { readonly _tag: "Race"; readonly pick: number; readonly other: number }
  | { readonly _tag: "Delete"; readonly pick: number }

const pick = fc.nat(10_000)
const step = <T extends CodeStep["_tag"], R>(tag: T, fields: fc.Arbitrary<R>) =>
  fields.map((rest) => ({ _tag: tag, ...rest }))
const email = fc.nat(EMAILS - 1)

const steps = fc.oneof(
  { weight: 3, arbitrary: step("Jump", fc.record({ ms: fc.constantFrom(1, 1_000, 30_000, 61_000, 61_000, 300_000) })) },
  {
    weight: 5,
    arbitrary: step("Edge", fc.record({ pick, offset: fc.constantFrom(-1 as const, 0 as const, 1 as const) }))
  },
  { weight: 9, arbitrary: step("Register", fc.record({ email, handle: fc.nat(HANDLES - 1) })) },
  { weight: 7, arbitrary: step("Recover", fc.record({ email })) },
  { weight: 5, arbitrary: step("Rotate", fc.record({ pick })) },
  {
    weight: 12,
    arbitrary: step(
      "Try",
      fc.record({ pick, right: fc.boolean(), times: fc.integer({ min: 1, max: 7 }), wild: fc.nat(11) })
    )
  },
  { weight: 3, arbitrary: step("Race", fc.record({ pick, other: pick })) },
  { weight: 5, arbitrary: step("Delete", fc.record({ pick })) }
) as fc.Arbitrary<CodeStep>

export const codeStepsOf = (seed: number, length: number): ReadonlyArray<CodeStep> =>
  fc.sample(fc.noBias(fc.array(steps, { minLength: length, maxLength: length + 20, size: "max" })), {
    numRuns: 1,
    seed
  })[0] ?? []

export const codeStepInWords = inWordsBy<CodeStep>({
  Jump: "the clock advances by {ms} ms",
  Edge: "the clock advances to {offset} ms beside a moment at which something changes",
  Register: "address {email} is registered with handle {handle}",
  Recover: "address {email} asks for a recovery",
  Rotate: "an account asks for another key",
  Try: "a code is tried {times} times (with the right digits: {right})",
  Race: "two codes are redeemed at the same time",
  Delete: "an account is deleted"
})

const choose = <A>(among: ReadonlyArray<A>, n: number): A | undefined => among[n % Math.max(1, among.length)]

let serial = 0

/** Runs histories of requests for codes and attempts with them, and compares every answer with the model. */
export const makeCodesWorld = Effect.fnUntraced(function*(ledger: Ledger) {
  const accounts = yield* Accounts
  const registration = yield* Registration
  const { mails } = yield* Neighbours
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()

  return Effect.fnUntraced(function*(history: ReadonlyArray<CodeStep>, reaches: Reaches = () => {}) {
    let model = new Codes()
    const mark = (serial++).toString(36)
    const addressOf = (n: number) => `c${mark}-${n}@example.com`
    const handleOf = (n: number) => `c${mark}-${"abcdefghij"[n]}`
    /** The ids of the model's pendings. */
    const ids: Array<string> = []
    const openPendings = () =>
      [...ids.keys()].filter((n) => model.stateOf(n) === "open" && model.codeOf(n).expires > now())
    /** Pending ids that have expired and were not used since. */
    const expired = new Set<number>()

    const failureOf = (
      exit: Exit.Exit<unknown, unknown>
    ): { readonly _tag?: string; readonly details?: Record<string, unknown> } | undefined => {
      if (Exit.isSuccess(exit)) return undefined
      const reason = exit.cause.reasons.find((one) => one._tag === "Fail")
      if (reason === undefined) throw new Violation("answered", `died: ${String(exit.cause)}`)
      return reason.error as { readonly _tag?: string }
    }

    const expect = (exit: Exit.Exit<unknown, unknown>, refused: string | undefined, what: string): boolean => {
      const failure = failureOf(exit)
      check(
        "codes",
        failure?._tag === refused,
        () => `${what}: got ${JSON.stringify(failure ?? "a success")}, expected ${refused ?? "a success"}`
      )
      ledger.answered(`${what}: ${refused ?? "done"}`)
      return refused === undefined
    }

    const asked = Effect.fnUntraced(function*(
      what: Purpose,
      ask: Effect.Effect<string, unknown>,
      outcome: ReturnType<Codes["register"]>
    ) {
      const before = mails.length
      const exit = yield* Effect.exit(ask)
      if ("refused" in outcome) {
        expect(exit, outcome.refused, what)
        if (outcome.wait > 0)
          same("codes", failureOf(exit)?.details?.["retry_after_ms"], outcome.wait, `${outcome.refused}: the wait`)
        same("codes", mails.length, before, "mails of what is refused")
        return
      }
      expect(exit, undefined, what)
      if (!Exit.isSuccess(exit)) return
      check("codes", exit.value.startsWith("pnd_"), () => `an id ${exit.value}`)
      ids[outcome.pending] = exit.value
      const code = model.codeOf(outcome.pending)
      // The mail of a recovery is sent a moment after the answer.
      if (what === "recover") yield* TestClock.adjust(400)
      const fresh = mails.slice(before)
      same(
        "codes",
        fresh.map((mail) => mail.to),
        outcome.bound || code.decoy ? [] : [addressOf(code.email)],
        "who is mailed"
      )
      if (outcome.bound) ledger.add("Pending code", "none → open: bound to the code already mailed")
      else if (code.decoy) ledger.add("Pending code", "none → open: decoy")
      else {
        ledger.add("Pending code", "none → open")
        code.digits = /^(\d{6})$/m.exec(fresh[0]?.text ?? "")?.[1] ?? ""
      }
    })

    const complete = (
      purpose: Purpose,
      pendingId: string,
      digits: string,
      by: number | undefined
    ): Effect.Effect<Issued, { readonly _tag: string }> => {
      const answer = { pendingId, code: digits }
      switch (purpose) {
        case "register":
          return registration.completeRegistration(answer)
        case "recover":
          return registration.completeRecovery(answer)
        case "rotate":
          return registration.completeRotation(answer, model.accounts[by ?? 0]?.id ?? "")
      }
    }

    const agrees = (
      tried: Tried,
      exit: Exit.Exit<{ readonly agent: { readonly id: string; readonly handle: string } }, unknown>
    ): boolean => {
      const failure = failureOf(exit)
      if (typeof tried === "string") return failure?._tag === tried
      if ("remaining" in tried)
        return failure?._tag === "CodeInvalid" && failure.details?.["attempts_remaining"] === tried.remaining
      return Exit.isSuccess(exit) && exit.value.agent.handle === handleOf(model.accounts[tried.account]?.handle ?? -1)
    }

    const settle = (tried: Tried, exit: Exit.Exit<{ readonly agent: { readonly id: string } }, unknown>): void => {
      if (typeof tried === "object" && "account" in tried && Exit.isSuccess(exit))
        model.accounts[tried.account]!.id = exit.value.agent.id
      ledger.answered(
        `try: ${
          typeof tried === "string" ? tried : "remaining" in tried ? `CodeInvalid, ${tried.remaining} left` : "done"
        }`
      )
    }

    const attempt = Effect.fnUntraced(function*(n: number, purpose: Purpose, digits: string, by: number | undefined) {
      const code = model.codeOf(n)
      const was = model.stateOf(n)
      const late = was === "open" && code.expires <= now()
      const exit = yield* Effect.exit(complete(purpose, ids[n]!, digits, by))
      const tried = model.attempt(n, purpose, digits, by, now())
      check(
        "codes",
        agrees(tried, exit),
        () =>
          `a try of a code for ${purpose}: got ${JSON.stringify(failureOf(exit) ?? "a success")}, expected ${
            JSON.stringify(tried)
          }`
      )
      settle(tried, exit)
      if (code.purpose !== purpose) return
      if (tried === "OtpAttemptsExhausted") {
        ledger.add(
          "Pending code",
          code.state === "exhausted" ? "open → exhausted: all tries of its code" : "open → exhausted: its own tries"
        )
      } else if (was === "open" && code.state === "used") ledger.add("Pending code", "open → used")
      if (tried !== "CodeExpired") return
      if (late) {
        if (!expired.has(n)) ledger.add("Pending code", "open → expired")
        expired.add(n)
        ledger.add("Pending code", "expired → EXPIRED")
      } else if (was !== "open") ledger.add("Pending code", was === "used" ? "used → EXPIRED" : "exhausted → EXPIRED")
    })

    /** The account that attempts a rotation: its owner, or another account. */
    const rotator = (n: number, wild: boolean): number | undefined => {
      const live = model.accounts.flatMap((account, i) => account.alive ? [i] : [])
      const owner = model.codeOf(n).account
      return wild ? live.find((one) => one !== owner) ?? live[0] : live.find((one) => one === owner)
    }

    const execute = Effect.fnUntraced(function*(one: CodeStep) {
      switch (one._tag) {
        case "Jump":
        case "Edge":
          return
        case "Register": {
          const applicant = {
            email: addressOf(one.email),
            handle: handleOf(one.handle),
            displayName: null,
            description: null,
            inviteCode: null
          }
          return yield* asked(
            "register",
            registration.register(applicant),
            model.register(one.email, one.handle, now())
          )
        }
        case "Recover":
          return yield* asked("recover", registration.recover(addressOf(one.email)), model.recover(one.email, now()))
        case "Rotate": {
          const live = model.accounts.flatMap((account, i) => account.alive ? [i] : [])
          const n = choose(live, one.pick)
          if (n === undefined) return
          const { email, handle, id } = model.accounts[n]!
          return yield* asked(
            "rotate",
            registration.rotate({ id, handle: handleOf(handle), email: addressOf(email) }),
            model.rotate(n, now())
          )
        }
        case "Try": {
          // Mostly, an open pending id is chosen.
          const open = openPendings()
          const n = choose(one.pick % 3 === 0 || open.length === 0 ? [...ids.keys()] : open, one.pick >> 2)
          if (n === undefined) return
          const code = model.codeOf(n)
          const purpose = one.wild === 0 ? choose(["register", "recover", "rotate"] as const, one.pick)! : code.purpose
          const by = purpose === "rotate" ? rotator(n, one.wild === 1) : undefined
          if (purpose === "rotate" && by === undefined) return
          const wrong = other(code.digits === "" ? "123456" : code.digits)
          for (let i = 0; i < (one.right ? 1 : one.times); i++) {
            yield* attempt(n, purpose, one.right ? (code.digits === "" ? "123456" : code.digits) : wrong, by)
          }
          return
        }
        case "Race": {
          const open = openPendings()
          const first = choose(open, one.pick)
          const second = one.other % 3 === 0 ? first : choose(open, one.other)
          if (first === undefined || second === undefined) return
          const racers = [first, second].flatMap((n) => {
            const { digits, purpose } = model.codeOf(n)
            const by = purpose === "rotate" ? rotator(n, false) : undefined
            return purpose === "rotate" && by === undefined
              ? []
              : [{ id: ids[n]!, n, purpose, by, digits: digits === "" ? "123456" : digits }]
          })
          const exits = yield* Effect.all(
            racers.map((racer) => Effect.exit(complete(racer.purpose, racer.id, racer.digits, racer.by))),
            { concurrency: "unbounded" }
          )
          const tried = racers.map((racer, i) => ({ ...racer, exit: exits[i]! }))
          const before = model
          // There must be an order of the two attempts that explains both answers.
          for (const order of [tried, tried.toReversed()]) {
            model = before.clone()
            const outcomes = order.map((racer) => model.attempt(racer.n, racer.purpose, racer.digits, racer.by, now()))
            if (!order.every(({ exit }, i) => agrees(outcomes[i]!, exit))) continue
            order.forEach(({ exit }, i) => settle(outcomes[i]!, exit))
            for (const n of new Set(order.map((racer) => model.pendings[racer.n]!.code))) {
              if (before.codes[n]!.state === "open" && model.codes[n]!.state === "used")
                ledger.add("Pending code", "open → used")
            }
            ledger.answered("race")
            return
          }
          model = before
          throw new Violation(
            "concurrent",
            `no order explains a race: ${
              exits.map((exit) => JSON.stringify(failureOf(exit) ?? "a success")).join(", ")
            }`
          )
        }
        case "Delete": {
          const account = choose(model.accounts.filter(({ alive }) => alive), one.pick)
          if (account === undefined) return
          yield* accounts.remove(account.id)
          account.alive = false
        }
      }
    })

    for (const [i, one] of history.entries()) {
      reaches(i)
      let ms = 1
      if (one._tag === "Jump") ms = one.ms
      if (one._tag === "Edge") {
        // Mostly, a near time is chosen, because codes expire soon.
        const edges = model.edges().filter((at) => at + one.offset > now()).toSorted((a, b) => a - b)
        const edge = choose(one.pick % 3 === 0 ? edges : edges.slice(0, 3), one.pick >> 2)
        if (edge !== undefined) ms = edge + one.offset - now()
      }
      yield* leap(ms)
      yield* execute(one)
    }
    reaches(history.length)
    for (const [n, account] of model.accounts.entries()) {
      const found = yield* accounts.byEmail(addressOf(account.email))
      if (account.alive) same("accounts", found?.id, account.id, `account ${n}`)
    }
  })
})
