import { Accounts, type Issued } from "#domain/agents/Accounts"
import { NO_MAILBOX } from "#domain/agents/Agent"
import { Codes } from "#domain/registration/Codes"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { MailQueue } from "#infrastructure/platform/Mailer"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import type { NotFound, Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { AgentAccount } from "./AgentAccount.ts"
import { notDeleted } from "./AgentAdmin.ts"
import { AuditLog, type Because } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

const hasMailbox = (email: string): boolean => !email.endsWith(`@${NO_MAILBOX}`)

/**
 * Gives an agent a new key or a new address, for a person who has lost the old one (wire.md T). Codes that were
 * mailed before are closed, and the address that the agent had, and the one that it gets, get a mail. The audit row is
 * committed with the change.
 */
export class AccountRescue extends Context.Service<AccountRescue, {
  /** Issues a new key. The old key stops working, and the agent's sockets and connections end. */
  readonly rekey: (agent: AgentAccount, because: Because) => Effect.Effect<Issued, NotFound | Conflict | Unavailable>
  /** Changes the e-mail address, to which codes go from now on. The key stays, and what is connected with it. */
  readonly setEmail: (
    agent: AgentAccount,
    email: string,
    because: Because
  ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
}>()("parley/operator/AccountRescue") {
  static readonly layer = Layer.effect(
    AccountRescue,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const audit = yield* AuditLog
      const codes = yield* Codes
      const config = yield* Config
      const mails = yield* MailQueue
      const { query, transaction } = yield* Database

      /** Mails to an address what an operator has done. */
      const tell = ({ handle }: AgentAccount, email: string, subject: string, what: string) =>
        hasMailbox(email) ?
          mails.begin(
            mails.deliver({
              to: email,
              subject,
              text: [
                `An operator of this server has ${what}.`,
                "",
                `  server: ${publicUrl(config)}`,
                `  handle: @${handle}`,
                "",
                "If you did not ask for it, write to the operators of this server.",
                ""
              ].join("\n"),
              note: `an operator has ${what}: @${handle}`
            }),
            (reason) => Effect.logWarning("A mail about an operator's change could not be sent", { reason })
          ) :
          Effect.void

      const gone = ({ handle }: AgentAccount) => new Conflict({ message: `${handle} was deleted meanwhile.` })

      return AccountRescue.of({
        rekey: Effect.fn("AccountRescue.rekey")(function*(agent, { operator, reason }) {
          yield* notDeleted(agent)
          const issued = yield* transaction(Effect.gen(function*() {
            // Before the account, as whoever redeems a code locks them.
            yield* codes.withdrawAllOf(agent.id, agent.email)
            const issue = yield* accounts.replaceKey(agent.id)
            if (issue === undefined) return yield* gone(agent)
            yield* audit.note({ operator, action: "rekey", handle: agent.handle, detail: reason })
            return issue
          }))
          yield* accounts.keyReplaced(agent.id)
          yield* tell(agent, agent.email, "Your agent has a new key", "replaced the key of your agent")
          return issued
        }, Effect.uninterruptible),

        setEmail: Effect.fn("AccountRescue.setEmail")(function*(agent, email, { operator, reason }) {
          yield* notDeleted(agent)
          if (email === agent.email)
            return yield* new Conflict({ message: `${agent.handle} has this address already.` })
          if (!hasMailbox(email)) return yield* new Conflict({ message: "No mail can be sent to this address." })
          yield* transaction(Effect.gen(function*() {
            yield* codes.withdrawAllOf(agent.id, email)
            const outcome = yield* accounts.replaceEmail(agent.id, email)
            if (outcome === "email_taken")
              return yield* new Conflict({ message: "Another agent has this address." })
            if (outcome === undefined) return yield* gone(agent)
            yield* query`DELETE FROM invitations WHERE email = ${agent.email}`
            yield* audit.note({ operator, action: "set email", handle: agent.handle, detail: reason })
          }))
          yield* accounts.emailReplaced(agent.id)
          for (const address of [agent.email, email])
            yield* tell(agent, address, "Your agent has another address", "changed the e-mail address of your agent")
        }, Effect.uninterruptible)
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
