import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { AgentsRepo } from "#domain/agents/AgentsRepo"
import { Deletions } from "#domain/agents/Deletions"
import { Sessions } from "#domain/agents/Sessions"
import { Skills } from "#domain/agents/Skills"
import { Auth } from "#domain/auth/Auth"
import { Admissions } from "#domain/registration/Admissions"
import { Codes } from "#domain/registration/Codes"
import { CodesRepo } from "#domain/registration/CodesRepo"
import { InvitationsRepo } from "#domain/registration/InvitationsRepo"
import { type Applicant, Registration } from "#domain/registration/Registration"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { type Mail, Mailer, MailFailed, MailQueue } from "#infrastructure/platform/Mailer"
import { Context, Effect, Layer } from "effect"
import type { TestDatabase } from "../support/Databases.ts"

/** What the module said to its neighbours, and how they behave. */
export class Neighbours extends Context.Service<Neighbours, {
  readonly mails: Array<Mail>
  readonly disconnected: Array<{ readonly agentId: string; readonly code: number; readonly text: string }>
  readonly deleted: Array<string>
  /** Whether mail can leave at all. */
  ready: Effect.Effect<void, MailFailed>
  /** Runs before each mail is taken. */
  beforeMail: Effect.Effect<void, MailFailed>
}>()("test/registration/Neighbours") {
  static readonly layer = Layer.sync(Neighbours, () => ({
    mails: [],
    disconnected: [],
    deleted: [],
    ready: Effect.void,
    beforeMail: Effect.void
  }))
}

const recording = Layer.mergeAll(
  Layer.effect(
    Mailer,
    Effect.map(Neighbours, (neighbours) =>
      Mailer.of({
        ready: Effect.suspend(() => neighbours.ready),
        send: (mail) =>
          Effect.suspend(() =>
            Effect.andThen(neighbours.beforeMail, Effect.sync(() => void neighbours.mails.push(mail)))
          )
      }))
  ),
  Layer.effect(
    Sessions,
    Effect.map(Neighbours, (neighbours) =>
      Sessions.of({
        changed: () => Effect.void,
        disconnect: (agentId, { code, text }) =>
          Effect.sync(() => void neighbours.disconnected.push({ agentId, code, text }))
      }))
  ),
  Layer.effect(
    Deletions,
    Effect.map(Neighbours, (neighbours) =>
      Deletions.of({
        begin: ({ agentId }) => Effect.sync(() => void neighbours.deleted.push(agentId)),
        sweep: Effect.succeed({ rows: 0, more: false })
      }))
  )
)

/** Registration and accounts on a database, with neighbours that only record. */
export const layerRoom = (database: TestDatabase, changes: Partial<Settings> = {}) =>
  Layer.mergeAll(Registration.layer, Auth.layer).pipe(
    Layer.provideMerge(Admissions.layer),
    Layer.provideMerge(Layer.mergeAll(Accounts.layer, Codes.layer)),
    Layer.provideMerge(Layer.mergeAll(Agents.layer, CodesRepo.layer, InvitationsRepo.layer)),
    Layer.provideMerge(Layer.mergeAll(AgentsRepo.layer, Skills.layer)),
    Layer.provideMerge(Layer.provideMerge(MailQueue.layer, recording)),
    Layer.provideMerge(Neighbours.layer),
    Layer.provideMerge(
      Layer.mergeAll(Config.layerTest({ PUBLIC_URL: "https://parley.example", ...changes }), Ids.layer)
    ),
    Layer.provideMerge(database)
  )

export const mailsTo = (address: string) =>
  Effect.map(Neighbours, ({ mails }) => mails.filter((mail) => mail.to === address))

/** The code of the latest mail to an address. */
export const codeTo = Effect.fnUntraced(function*(address: string) {
  const mail = (yield* mailsTo(address)).at(-1)
  const code = /^(\d{6})$/m.exec(mail?.text ?? "")?.[1]
  return code ?? (yield* Effect.die(new Error(`no code for ${address}`)))
})

/** A code that is not this one. */
export const other = (code: string): string => String((Number(code) + 1) % 1_000_000).padStart(6, "0")

let count = 0

/** Handle and address that no other test has. */
export const fresh = (prefix = "reg"): Applicant => {
  const handle = `${prefix}-${++count}`
  return { handle, email: `${handle}@example.com`, displayName: null, description: null, inviteCode: null }
}

/** An account that went through registration. */
export const newAccount = Effect.fnUntraced(function*(changes: Partial<Applicant> = {}) {
  const applicant = { ...fresh("agent"), ...changes }
  const registration = yield* Registration
  const pendingId = yield* registration.register(applicant)
  const { agent, apiKey } = yield* registration.completeRegistration({
    pendingId,
    code: yield* codeTo(applicant.email)
  })
  return { ...applicant, id: agent.id, apiKey }
})
