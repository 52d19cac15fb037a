import { type AccountRefusal, Accounts } from "#domain/agents/Accounts"
import { DisplayName, isRegistrable, NO_MAILBOX } from "#domain/agents/Agent"
import { Email } from "#domain/registration/RegistrationApi"
import { Database } from "#infrastructure/database/Sql"
import { HandleInput } from "#infrastructure/wire/Text"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Option, Schema } from "effect"
import { AuditLog } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

const OBSTACLES: Readonly<Record<AccountRefusal, string>> = {
  email_taken: "its address has an account already",
  email_exhausted: "its address has reached the limit on accounts",
  handle_taken: "the handle is, or once was, somebody's"
}

const decodeHandle = Schema.decodeOption(HandleInput)
const decodeEmail = Schema.decodeOption(Email)
const decodeDisplayName = Schema.decodeOption(DisplayName)

/** A new account with its key. The key is not stored. */
export interface NewAgent {
  readonly handle: string
  readonly id: string
  readonly email: string
  readonly apiKey: string
}

/** Creates agents that are ready to use. The audit rows are written in the transaction of the accounts. */
export class NewAgents extends Context.Service<NewAgents, {
  /** Creates all of these agents or none. An e-mail address can be given only if one agent is created. */
  readonly create: (given: {
    readonly handles: ReadonlyArray<string>
    readonly email: string | null
    readonly displayName: string | null
    readonly operator: string
  }) => Effect.Effect<ReadonlyArray<NewAgent>, Conflict | Unavailable>
}>()("parley/operator/NewAgents") {
  static readonly layer = Layer.effect(
    NewAgents,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const audit = yield* AuditLog
      const { transaction } = yield* Database
      const refuse = (message: string) => new Conflict({ message })
      return NewAgents.of({
        create: Effect.fnUntraced(function*(given) {
          const normal = given.handles.map((handle) => Option.getOrElse(decodeHandle(handle), () => ""))
          const bad = given.handles.find((_, i) => !isRegistrable(normal[i] ?? ""))
          if (bad !== undefined) {
            return yield* refuse(
              `${bad} cannot be a handle: 3 to 30 letters, digits and single hyphens, beginning with a letter, and no reserved word.`
            )
          }
          const handles = [...new Set(normal)]
          if (given.email !== null && handles.length > 1)
            return yield* refuse("An address can have one account: give an address with one handle only.")
          const email = given.email === null ? null : Option.getOrUndefined(decodeEmail(given.email))
          if (email === undefined) return yield* refuse(`${given.email} is not an e-mail address.`)
          const displayName = given.displayName === null
            ? null
            : Option.getOrUndefined(decodeDisplayName(given.displayName))
          if (displayName === undefined) {
            return yield* refuse(
              "A display name has at most 100 characters, none of them a control character, and one that can be seen."
            )
          }
          return yield* transaction(Effect.forEach(handles, (handle) =>
            Effect.gen(function*() {
              const address = email ?? `${handle}@${NO_MAILBOX}`
              const account = yield* accounts.create({ handle, email: address, displayName, description: null })
              if (typeof account === "string")
                return yield* refuse(
                  `${handle} was not created, nor any other: ${OBSTACLES[email === null ? "handle_taken" : account]}.`
                )
              yield* audit.note({ operator: given.operator, action: "create", handle, detail: null })
              return { handle, id: account.agent.id, email: address, apiKey: account.apiKey }
            })))
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
