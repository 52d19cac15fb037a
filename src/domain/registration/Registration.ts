import { Accounts, type Issued } from "#domain/agents/Accounts"
import type { Agent, AgentId } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Forbidden, type Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { Admissions } from "./Admissions.ts"
import {
  CodeExpired,
  type CodeInvalid,
  EmailExhausted,
  EmailTaken,
  HandleTaken,
  type OtpAttemptsExhausted,
  type OtpCooldown,
  type OtpFailed,
  type OtpHourlyCap,
  RegistrationClosed
} from "./Code.ts"
import { Codes } from "./Codes.ts"

export interface Applicant {
  readonly handle: string
  readonly email: string
  readonly displayName: string | null
  readonly description: string | null
  /** The code of an invitation, or null. */
  readonly inviteCode: string | null
}

export interface Answer {
  readonly pendingId: string
  readonly code: string
}

type NotSent = OtpCooldown | OtpHourlyCap | OtpFailed | Unavailable
type NotRedeemed = CodeExpired | CodeInvalid | OtpAttemptsExhausted | Unavailable

/**
 * Creates accounts, replaces lost or leaked keys, and verifies who owns an account. Whether an e-mail address has an
 * account is revealed only to those who have proved access to its mailbox.
 */
export class Registration extends Context.Service<Registration, {
  /**
   * Sends a code by e-mail and returns its pending id. The handle must be registrable. This call does not reserve the
   * handle. Whether the registration is admitted is decided first, so that a refusal reveals nothing else.
   */
  readonly register: (applicant: Applicant) => Effect.Effect<string, RegistrationClosed | HandleTaken | NotSent>
  /**
   * Creates the account, and uses up its invitation. The code is used up even if the handle or the address has been
   * taken in the meantime, or the registration is not admitted any more; the invitation then is not.
   */
  readonly completeRegistration: (
    answer: Answer
  ) => Effect.Effect<Issued, EmailTaken | EmailExhausted | HandleTaken | RegistrationClosed | NotRedeemed>
  /**
   * If the address has an account, suspended or not, sends an e-mail with a code for a new key. Returns a pending id in
   * either case.
   */
  readonly recover: (email: string) => Effect.Effect<string, Unavailable>
  readonly completeRecovery: (answer: Answer) => Effect.Effect<Issued, NotRedeemed>
  /**
   * If the address has an account, suspended or not, sends an e-mail with a code to sign in. Returns a pending id in
   * either case.
   */
  readonly signIn: (email: string) => Effect.Effect<string, Unavailable>
  /** Returns the account for which the code was issued. The account keeps its key. */
  readonly completeSignIn: (answer: Answer) => Effect.Effect<Agent, NotRedeemed>
  readonly rotate: (
    agent: { readonly id: AgentId; readonly handle: string; readonly email: string }
  ) => Effect.Effect<string, NotSent>
  readonly completeRotation: (answer: Answer, agentId: AgentId) => Effect.Effect<Issued, Forbidden | NotRedeemed>
}>()("parley/registration/Registration") {
  static readonly layer = Layer.effect(
    Registration,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const admissions = yield* Admissions
      const agents = yield* Agents
      const codes = yield* Codes

      /**
       * After the commit, and before the new key is returned, drops the old key from the caches and closes its sockets.
       * Callers run this uninterruptibly, so that the sockets are closed even if the client disconnects.
       */
      const issued = Effect.fnUntraced(function*(issue: Issued | undefined) {
        if (issue === undefined) return yield* new CodeExpired()
        yield* accounts.keyReplaced(issue.agent.id)
        return issue
      })

      return Registration.of({
        register: Effect.fn("Registration.register")(function*(applicant: Applicant) {
          const invitationId = yield* admissions.admit(applicant)
          if (yield* accounts.isHandleTaken(applicant.handle)) return yield* new HandleTaken()
          const existing = yield* accounts.byEmail(applicant.email)
          return yield* codes.send({ ...applicant, purpose: "register", existing, invitationId })
        }),

        completeRegistration: Effect.fn("Registration.completeRegistration")(function*(answer: Answer) {
          const outcome = yield* codes.redeem({ ...answer, purpose: "register" }, (code) =>
            admissions.using(
              code,
              accounts.create({
                // The handle is never null in a code for a registration.
                handle: code.handle ?? "",
                email: code.email,
                displayName: code.displayName,
                description: code.description
              })
            ))
          switch (outcome) {
            case "email_taken":
              return yield* new EmailTaken()
            case "email_exhausted":
              return yield* new EmailExhausted()
            case "handle_taken":
              return yield* new HandleTaken()
            case "closed":
              return yield* new RegistrationClosed()
            default:
              return outcome
          }
        }),

        recover: Effect.fn("Registration.recover")(function*(email: string) {
          return yield* codes.sendQuietly("recover", email, yield* accounts.byEmail(email))
        }),

        completeRecovery: Effect.fn("Registration.completeRecovery")(function*(answer: Answer) {
          return yield* issued(
            yield* codes.redeem(
              { ...answer, purpose: "recover" },
              (code) => accounts.replaceKey(code.agentId ?? "", code.email)
            )
          )
        }, Effect.uninterruptible),

        signIn: Effect.fn("Registration.signIn")(function*(email: string) {
          return yield* codes.sendQuietly("sign_in", email, yield* accounts.byEmail(email))
        }),

        completeSignIn: Effect.fn("Registration.completeSignIn")(function*(answer: Answer) {
          const { agentId, email } = yield* codes.redeem({ ...answer, purpose: "sign_in" }, Effect.succeed)
          // The account may have been deleted since the code was sent. If its address has another account now, the code
          // proves nothing about that account.
          const agent = (yield* agents.byIds([agentId ?? ""])).get(agentId ?? "")
          return agent === undefined || agent.deletedAt !== null || agent.email !== email
            ? yield* new CodeExpired()
            : agent
        }),

        rotate: Effect.fn("Registration.rotate")(function*(agent) {
          return yield* codes.send({ purpose: "rotate", email: agent.email, agent })
        }),

        completeRotation: Effect.fn("Registration.completeRotation")(function*(answer: Answer, agentId: AgentId) {
          const redeemed = codes.redeem(
            { ...answer, purpose: "rotate", agentId },
            ({ email }) => accounts.replaceKey(agentId, email)
          )
          return yield* issued(
            yield* Effect.catchTag(
              redeemed,
              "CodeExpired",
              (error) =>
                Effect.flatMap(
                  codes.isAnothers(answer.pendingId, "rotate", agentId),
                  (foreign) =>
                    Effect.fail(foreign ? new Forbidden({ message: "This code is for another agent." }) : error)
                )
            )
          )
        }, Effect.uninterruptible)
      })
    })
  )
}
