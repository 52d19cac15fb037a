import { Clock, Console, Context, Data, Effect, Exit, Layer, Redacted, Semaphore } from "effect"
import { access, constants, mkdir, rename, rm, writeFile } from "node:fs/promises"
import { join, sep } from "node:path"
import { createTransport, type SendMailOptions } from "nodemailer"
import { Config, ConfigInvalid } from "./Config.ts"
import { Ids } from "./Ids.ts"

/** A plain mail to one address. The address must have been checked: it goes into a header. */
export interface Mail {
  readonly to: string
  readonly subject: string
  readonly text: string
  /** What a person at the terminal of a standalone server is told instead of being mailed. */
  readonly note: string
}

/** The mail did not leave. `reason` names the failure and holds nothing of the mail. */
export class MailFailed extends Data.TaggedError("MailFailed")<{ readonly reason: string }> {}

/**
 * Sends mail, one attempt each: an effect that succeeds means that the next server
 * (or the outbox) has it. Neither text nor address of a mail is ever logged.
 */
export class Mailer extends Context.Service<Mailer, {
  readonly send: (mail: Mail) => Effect.Effect<void, MailFailed>
  /**
   * Whether mail can leave at all, as it was some seconds ago at the most. No mail that
   * was sent has a part in the answer, so that it tells nothing of any address.
   */
  readonly ready: Effect.Effect<void, MailFailed>
}>()("parley/platform/Mailer") {
  /** Through SMTP_URL: a few connections that are kept, ten seconds for each mail, a bound on how many wait. */
  static readonly layerSmtp = Layer.effect(
    Mailer,
    Effect.gen(function*() {
      const config = yield* Config
      const compose = yield* composer
      const url = config.SMTP_URL
      if (url === undefined) return yield* new ConfigInvalid({ problems: ["SMTP_URL: required to send mail"] })
      const transport = yield* Effect.acquireRelease(
        Effect.sync(() =>
          createTransport({
            url: Redacted.value(url),
            pool: true,
            maxConnections: CONNECTIONS,
            maxRequeues: 1,
            connectionTimeout: 5_000,
            greetingTimeout: 5_000,
            socketTimeout: 8_000,
            dnsTimeout: 5_000
          })
        ),
        (transport) => Effect.sync(() => transport.close())
      )
      const connections = yield* Semaphore.make(CONNECTIONS)
      let waiting = 0
      const tooMany = () => new MailFailed({ reason: "too many mails are waiting" })
      const answers = yield* Effect.cachedWithTTL(
        Effect.tryPromise({
          try: () => transport.verify(),
          catch: (error) => new MailFailed({ reason: codeOf(error) })
        }).pipe(
          Effect.timeoutOrElse({
            duration: READY_TIMEOUT,
            orElse: () => Effect.fail(new MailFailed({ reason: "no answer in time" }))
          }),
          Effect.asVoid
        ),
        (exit) => Exit.isSuccess(exit) ? "10 seconds" : "1 second"
      )
      return Mailer.of({
        ready: Effect.suspend(() => waiting >= MAX_WAITING ? Effect.fail(tooMany()) : answers),
        send: (mail) =>
          Effect.suspend(() => {
            if (waiting >= MAX_WAITING) return Effect.fail(tooMany())
            waiting++
            return Effect.flatMap(compose(mail), (options) =>
              Effect.tryPromise({
                try: (signal) => transport.sendMail({ ...options, signal }),
                catch: (error) => new MailFailed({ reason: codeOf(error) })
              })).pipe(
                connections.withPermit,
                Effect.timeoutOrElse({
                  duration: SEND_TIMEOUT,
                  orElse: () => Effect.fail(new MailFailed({ reason: "no answer in time" }))
                }),
                Effect.ensuring(Effect.sync(() => waiting--)),
                Effect.asVoid
              )
          })
      })
    })
  )

  /** Into MAIL_OUTBOX: a file for each mail, there whole or not at all, and its note on standard output. */
  static readonly layerOutbox = Layer.effect(
    Mailer,
    Effect.gen(function*() {
      const config = yield* Config
      const ids = yield* Ids
      const compose = yield* composer
      const folder = config.MAIL_OUTBOX ?? join(config.DATA_DIR, "outbox")
      const render = createTransport({ streamTransport: true, buffer: true, newline: "unix" })
      const write = async (name: string, message: Buffer): Promise<void> => {
        const unfinished = join(folder, `.${name}.tmp`)
        try {
          await writeFile(unfinished, message, { mode: 0o600 })
          await rename(unfinished, join(folder, name))
        } catch (error) {
          await rm(unfinished, { force: true })
          throw error
        }
      }
      const unwritable = (error: unknown) =>
        new ConfigInvalid({ problems: [`MAIL_OUTBOX: mail cannot be written to ${folder} (${codeOf(error)})`] })
      yield* Effect.tryPromise({
        try: async () => {
          await mkdir(folder, { recursive: true })
          const probe = join(folder, `.probe-${ids.bytes(6).toString("hex")}`)
          await writeFile(probe, "")
          await rm(probe)
        },
        catch: unwritable
      })
      return Mailer.of({
        ready: Effect.tryPromise({
          // With a separator at its end only a folder will do.
          try: () => access(folder + sep, constants.W_OK | constants.X_OK),
          catch: (error) => new MailFailed({ reason: codeOf(error) })
        }),
        send: (mail) =>
          Effect.gen(function*() {
            const options = yield* compose(mail)
            const name = `${yield* Clock.currentTimeMillis}-${ids.bytes(6).toString("hex")}.eml`
            yield* Effect.tryPromise({
              try: async () => write(name, (await render.sendMail(options)).message as Buffer),
              catch: (error) => new MailFailed({ reason: codeOf(error) })
            })
            yield* Console.log(`Mail to ${mail.to}: ${mail.note}`)
          })
      })
    })
  )

  /** SMTP when SMTP_URL is set, and then never the outbox. */
  static readonly layer = Layer.unwrap(
    Effect.map(Config, (config) => config.SMTP_URL === undefined ? Mailer.layerOutbox : Mailer.layerSmtp)
  )
}

const CONNECTIONS = 5
const MAX_WAITING = 1_000
const SEND_TIMEOUT = "10 seconds"
const READY_TIMEOUT = "5 seconds"

/** What went wrong, without what it went wrong with: a server's answer may quote the mail. */
const codeOf = (error: unknown): string => {
  if (typeof error !== "object" || error === null) return "unknown"
  const { code, responseCode } = error as { readonly code?: unknown; readonly responseCode?: unknown }
  return [code, responseCode].filter((part) => typeof part === "string" || typeof part === "number").join(" ") || "unknown"
}

const SENDER = /^(?:([^<>\r\n]*)<([^<>\s@]+@[^<>\s@]+)>|([^<>\s@]+@[^<>\s@]+))$/

/** Turns a mail into a single text/plain part with the headers that a mail has. */
const composer = Effect.gen(function*() {
  const config = yield* Config
  const ids = yield* Ids
  const parts = SENDER.exec(config.MAIL_FROM.trim())
  const address = parts?.[2] ?? parts?.[3]
  if (address === undefined) {
    return yield* new ConfigInvalid({ problems: [`MAIL_FROM: expected an address or "Name <address>", got ${JSON.stringify(config.MAIL_FROM)}`] })
  }
  const name = (parts?.[1] ?? "").trim().replace(/^"(.*)"$/, "$1")
  const domain = address.slice(address.lastIndexOf("@") + 1)
  return (mail: Mail): Effect.Effect<SendMailOptions> =>
    Effect.map(Clock.currentTimeMillis, (now) => ({
      from: { name, address },
      to: { name: "", address: mail.to },
      envelope: { from: address, to: [mail.to] },
      subject: mail.subject,
      text: mail.text,
      date: new Date(now),
      messageId: `<${ids.bytes(16).toString("hex")}@${domain}>`,
      headers: { "Auto-Submitted": "auto-generated" },
      disableFileAccess: true,
      disableUrlAccess: true
    }))
})
