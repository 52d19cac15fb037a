import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { MailQueue } from "#infrastructure/platform/Mailer"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import {
  CodeExpired,
  CodeInvalid,
  OtpAttemptsExhausted,
  OtpCooldown,
  OtpFailed,
  OtpHourlyCap,
  type Purpose
} from "./Code.ts"
import { codeMail } from "./CodeMail.ts"
import { type Allowance, CodesRepo, type NewCode, type RedeemedCode } from "./CodesRepo.ts"

interface Recipient {
  readonly id: string
  readonly handle: string
}

export type CodeRequest =
  | {
    readonly purpose: "register"
    readonly email: string
    readonly handle: string
    readonly displayName: string | null
    readonly description: string | null
    readonly invitationId: string | null
    /** The account that already uses the e-mail address. The e-mail names this account. The response never does. */
    readonly existing: Recipient | undefined
  }
  | { readonly purpose: "rotate"; readonly email: string; readonly agent: Recipient }

/**
 * One-time codes: six digits that prove access to a mailbox (wire.md D, OTP). Several pending ids may stand for one
 * code. Each pending id has its own count of wrong attempts. So an outsider who requests a code for an address does not
 * use up the attempts of the address's owner. All pending ids of a code share a second limit, which bounds the guesses
 * of a caller who requests a code again and again.
 *
 * E-mails are sent in the background with a few retries. No request waits for its e-mail, because the time would reveal
 * what the mail server knows about the address. A registration or rotation is refused immediately if no e-mail can be
 * sent at all. If the e-mail still fails after the retries, the code is withdrawn and counts neither for the cooldown
 * nor for the hourly cap.
 */
export class Codes extends Context.Service<Codes, {
  /**
   * Returns a pending id for a code that is sent by e-mail in the background. Fails with `OtpFailed` if no e-mail can
   * be sent right now.
   */
  readonly send: (request: CodeRequest) => Effect.Effect<string, OtpCooldown | OtpHourlyCap | OtpFailed | Unavailable>
  /**
   * Returns a pending id for a recovery or a sign-in, whether or not the address has an account. During the cooldown
   * and above the hourly cap, the id stands for the code that was sent last. An e-mail that still fails after a few
   * retries is logged. The code stays valid, although nobody has received it.
   */
  readonly sendQuietly: (
    purpose: "recover" | "sign_in",
    email: string,
    agent: Recipient | undefined
  ) => Effect.Effect<string, Unavailable>
  /**
   * Checks a code and, if the code is right, runs `use` in the same transaction. Of any number of concurrent attempts
   * with the right code, exactly one succeeds.
   */
  readonly redeem: <A>(
    answer: {
      readonly purpose: Purpose
      readonly pendingId: string
      readonly code: string
      /** If given, only a code of this agent is accepted. */
      readonly agentId?: string
    },
    use: (code: RedeemedCode) => Effect.Effect<A, Unavailable>
  ) => Effect.Effect<A, CodeExpired | CodeInvalid | OtpAttemptsExhausted | Unavailable>
  /** Closes all open codes of an agent. The next code for its address, `email`, is mailed without a cooldown. */
  readonly withdrawAllOf: (agentId: string, email: string) => Effect.Effect<void, Unavailable>
  /** Whether a pending id stands for a code for this purpose that belongs to another agent. */
  readonly isAnothers: (pendingId: string, purpose: Purpose, agentId: string) => Effect.Effect<boolean, Unavailable>
}>()("parley/registration/Codes") {
  static readonly layer = Layer.effect(
    Codes,
    Effect.gen(function*() {
      const config = yield* Config
      const ids = yield* Ids
      const mails = yield* MailQueue
      const repo = yield* CodesRepo
      const { transaction } = yield* Database
      const base = publicUrl(config)
      const allowance: Allowance = {
        cooldownMs: config.LIMITS_OTP_COOLDOWN_SECONDS * 1000,
        perHour: config.LIMITS_OTP_PER_HOUR,
        ttlMs: config.LIMITS_OTP_TTL_SECONDS * 1000
      }
      const tries = { perPending: config.LIMITS_OTP_ATTEMPTS, perCode: config.LIMITS_OTP_ATTEMPTS_PER_CODE }

      const make = (fields: RedeemedCode & { readonly purpose: Purpose; readonly decoy: boolean }) => {
        const { decoy, ...rest } = fields
        const id = ids.make("pnd")
        const code = ids.code()
        // The hash is computed even for a decoy, so that a decoy takes the same time.
        const hash = hashOf(id, code)
        return { code, stored: { ...rest, id, pendingId: ids.make("pnd"), hash: decoy ? null : hash } }
      }

      /**
       * Issues a code, then runs `then`. Uninterruptible, because otherwise the disconnection of a caller could leave a
       * cooldown without an e-mail.
       */
      const issueWith = (code: NewCode, now: number, then: Effect.Effect<unknown>) =>
        Effect.uninterruptible(
          Effect.tap(repo.issue(code, allowance, now), (issued) => issued ? then : Effect.void)
        )

      const refusal = (email: string, purpose: Purpose, now: number) =>
        Effect.flatMap(repo.wait(email, purpose, allowance, now), ({ capMs, cooldownMs }) =>
          Effect.fail(
            // Report the longer of the two waits, because both are over after it.
            capMs > cooldownMs
              ? new OtpHourlyCap({ details: { retry_after_ms: capMs, limit: allowance.perHour, window: "hour" } })
              // Both waits are 0 if another request took the slot and has returned it since. The response then contains
              // a wait of 1 ms.
              : new OtpCooldown({ details: { retry_after_ms: Math.max(1, cooldownMs) } })
          ))

      return Codes.of({
        send: Effect.fn("Codes.send")(
          function*(request: CodeRequest) {
            const { email, purpose } = request
            yield* Effect.catch(mails.ready, ({ reason }) => failed(purpose, reason))
            const now = yield* Clock.currentTimeMillis
            const { code, stored } = make(
              request.purpose === "register"
                ? {
                  purpose,
                  email,
                  agentId: null,
                  handle: request.handle,
                  displayName: request.displayName,
                  description: request.description,
                  invitationId: request.invitationId,
                  decoy: false
                }
                : {
                  purpose,
                  email,
                  agentId: request.agent.id,
                  handle: null,
                  displayName: null,
                  description: null,
                  invitationId: null,
                  decoy: false
                }
            )
            const mail = codeMail({
              purpose,
              to: email,
              code,
              handle: request.purpose === "register" ? request.handle : request.agent.handle,
              existing: request.purpose === "register" ? request.existing?.handle : undefined,
              base,
              ttlSeconds: config.LIMITS_OTP_TTL_SECONDS
            })
            const mailed = mails.begin(
              mails.deliver(mail),
              (reason) =>
                Effect.andThen(complain(purpose, reason), Effect.ignore(repo.withdraw(stored.id, email, purpose, now)))
            )
            const issued = yield* issueWith(stored, now, mailed)
            if (!issued) return yield* refusal(email, purpose, now)
            return stored.pendingId
          }
        ),

        sendQuietly: Effect.fn("Codes.sendQuietly")(
          function*(purpose: "recover" | "sign_in", email: string, agent: Recipient | undefined) {
            const now = yield* Clock.currentTimeMillis
            const { code, stored } = make({
              purpose,
              email,
              agentId: agent?.id ?? null,
              handle: null,
              displayName: null,
              description: null,
              invitationId: null,
              decoy: agent === undefined
            })
            const mailed = agent === undefined
              ? Effect.void
              : Effect.suspend(() =>
                mails.deliver(codeMail({
                  purpose,
                  to: email,
                  code,
                  handle: agent.handle,
                  base,
                  ttlSeconds: config.LIMITS_OTP_TTL_SECONDS
                }))
              )
            const later = mails.begin(
              Effect.andThen(Effect.sleep(100 + ids.bytes(1).readUInt8()), mailed),
              (reason) => complain(purpose, reason)
            )
            const issued = yield* issueWith(stored, now, later)
            if (!issued) yield* repo.again(stored.pendingId, email, purpose, now)
            return stored.pendingId
          }
        ),

        redeem: (answer, use) =>
          Effect.gen(function*() {
            const now = yield* Clock.currentTimeMillis
            const settled = yield* transaction(Effect.gen(function*() {
              const tried = yield* repo.attempt(
                {
                  pendingId: answer.pendingId,
                  purpose: answer.purpose,
                  digest: sha256(answer.code),
                  agentId: answer.agentId,
                  ...tries
                },
                now
              )
              return tried.outcome === "used" ? { ...tried, result: yield* use(tried.code) } : tried
            }))
            switch (settled.outcome) {
              case "used":
                return settled.result
              case "wrong":
                return yield* new CodeInvalid({ details: { attempts_remaining: settled.remaining } })
              case "exhausted":
                return yield* new OtpAttemptsExhausted()
              case "none":
                return yield* new CodeExpired()
            }
          }).pipe(Effect.withSpan("Codes.redeem")),

        withdrawAllOf: (agentId, email) =>
          Effect.flatMap(Clock.currentTimeMillis, (now) => repo.withdrawAllOf(agentId, email, now)),

        isAnothers: repo.isAnothers
      })
    })
  )
}

const complain = (purpose: Purpose, reason: string) =>
  Effect.logWarning("A mail could not be sent", { purpose, reason })

const failed = (purpose: Purpose, reason: string) =>
  Effect.andThen(complain(purpose, reason), Effect.fail(new OtpFailed()))

const hashOf = (id: string, code: string): Buffer => sha256(Buffer.concat([Buffer.from(id), sha256(code)]))
