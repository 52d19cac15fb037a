import { Clock, Console, Context, Data, Effect, Exit, FiberSet, Layer, Redacted, Schedule, Semaphore } from "effect"
import { access, constants, rename, rm, writeFile } from "node:fs/promises"
import { join, resolve, sep } from "node:path"
import type { SendMailOptions } from "nodemailer"
import { Config, ConfigInvalid } from "./Config.ts"
import { FreeDisk, FullDisk, isNoSpace, noSpaceLeftOn } from "./disk/DiskSpace.ts"
import { makeFolder, reasonOf } from "./disk/Folder.ts"
import { Ids } from "./Ids.ts"
import { loadOnce } from "./LazyLoad.ts"
import { mail as mails, mailQueue } from "./Metrics.ts"

/** It is loaded when the server needs it, because its 39 files would delay each start. */
const nodemailer = Effect.promise(() => import("nodemailer"))

/** A plain-text e-mail to one address. The address is written into a header, so it must already be validated. */
export interface Mail {
  readonly to: string
  readonly subject: string
  readonly text: string
  /** The line that a standalone server prints to its terminal when the e-mail goes to the outbox. */
  readonly note: string
}

/** The e-mail could not be sent. `reason` contains nothing from the e-mail. */
export class MailFailed extends Data.TaggedError("MailFailed")<{ readonly reason: string }> {}

/**
 * Sends each e-mail with one attempt. Success means that the mail server, or the outbox, has accepted the e-mail.
 * Neither the text nor the address of an e-mail is ever logged.
 */
export class Mailer extends Context.Service<Mailer, {
  readonly send: (mail: Mail) => Effect.Effect<void, MailFailed>
  /**
   * Succeeds if e-mail can be sent at present. The result may be up to 10 seconds old. It does not depend on the
   * outcome of any e-mail, so it reveals nothing about any address.
   */
  readonly ready: Effect.Effect<void, MailFailed>
}>()("parley/platform/Mailer") {
  /**
   * Sends through SMTP_URL over a pool of connections. Sending an e-mail may take 10 seconds, including the wait for a
   * connection. At most 1,000 e-mails may wait.
   */
  static readonly layerSmtp = Layer.effect(
    Mailer,
    Effect.gen(function*() {
      const config = yield* Config
      const compose = yield* composer
      const url = config.SMTP_URL
      if (url === undefined) return yield* new ConfigInvalid({ problems: ["SMTP_URL: required to send mail"] })
      const { createTransport } = yield* nodemailer
      const transport = yield* Effect.acquireRelease(
        Effect.sync(() =>
          createTransport({
            url: Redacted.value(url),
            pool: true,
            maxConnections: MAX_CONNECTIONS,
            maxRequeues: 1,
            connectionTimeout: 5_000,
            greetingTimeout: 5_000,
            socketTimeout: 8_000,
            dnsTimeout: 5_000
          })
        ),
        (transport) => Effect.sync(() => transport.close())
      )
      const connections = yield* Semaphore.make(MAX_CONNECTIONS)
      let waiting = 0
      yield* mailQueue.readsIn(() => waiting)
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
                counted
              )
          })
      })
    })
  )

  /** Writes each e-mail atomically as a file into MAIL_OUTBOX, and prints its note to standard output. */
  static readonly layerOutbox = Layer.effect(
    Mailer,
    Effect.gen(function*() {
      const config = yield* Config
      const ids = yield* Ids
      const compose = yield* composer
      const folder = config.MAIL_OUTBOX ?? join(config.DATA_DIR, "outbox")
      const freeDisk = yield* FreeDisk
      const fullDisk = yield* FullDisk
      /** Fails because the outbox has no space left, and logs this at most once a minute. */
      const full = Effect.suspend(() => {
        const reason = noSpaceLeftOn(resolve(folder), freeDisk(folder))
        return Effect.andThen(fullDisk.report("mail", reason), Effect.fail(new MailFailed({ reason })))
      })
      // E-mail that is written to a folder never waits.
      yield* mailQueue.readsIn(() => 0)
      const renderer = yield* loadOnce(
        "The library for mail",
        Effect.map(
          nodemailer,
          ({ createTransport }) => createTransport({ streamTransport: true, buffer: true, newline: "unix" })
        ),
        () => new MailFailed({ reason: "the library for mail could not be loaded" })
      )
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
        new ConfigInvalid({ problems: [`MAIL_OUTBOX: mail cannot be written to ${folder}: ${reasonOf(error)}`] })
      yield* Effect.tryPromise({
        try: async () => {
          makeFolder(folder, 0o700)
          const probe = join(folder, `.probe-${ids.bytes(6).toString("hex")}`)
          await writeFile(probe, "")
          await rm(probe)
        },
        catch: unwritable
      })
      return Mailer.of({
        ready: Effect.tryPromise({
          // With a trailing separator, the check fails unless the path is a folder.
          try: () => access(folder + sep, constants.W_OK | constants.X_OK),
          catch: (error) => new MailFailed({ reason: codeOf(error) })
        }).pipe(Effect.andThen(Effect.suspend(() => freeDisk(folder) < LEAST_OUTBOX_BYTES ? full : Effect.void))),
        send: (mail) =>
          Effect.gen(function*() {
            const options = yield* compose(mail)
            const render = yield* renderer
            const name = `${yield* Clock.currentTimeMillis}-${ids.bytes(6).toString("hex")}.eml`
            yield* Effect.tryPromise({
              try: async () => write(name, (await render.sendMail(options)).message as Buffer),
              catch: (error) => error
            }).pipe(
              Effect.catch((error) => isNoSpace(error) ? full : Effect.fail(new MailFailed({ reason: codeOf(error) })))
            )
            yield* Console.log(`Mail to ${mail.to}: ${mail.note}`)
          }).pipe(counted)
      })
    })
  )

  /** Uses SMTP if SMTP_URL is set, and the outbox otherwise. */
  static readonly layer = Layer.unwrap(
    Effect.map(Config, (config) => config.SMTP_URL === undefined ? Mailer.layerOutbox : Mailer.layerSmtp)
  )
}

/**
 * Sends e-mails in the background, because no request waits for its e-mail. At most 1,000 e-mails may wait. At shutdown
 * the waiting e-mails get five seconds. An e-mail that is not sent by then is lost.
 */
export class MailQueue extends Context.Service<MailQueue, {
  /** Succeeds if e-mail can be sent at present (`Mailer.ready`) and one more e-mail may wait. */
  readonly ready: Effect.Effect<void, MailFailed>
  /** Sends an e-mail, with retries after 2, 4 and 8 seconds. */
  readonly deliver: (mail: Mail) => Effect.Effect<void, MailFailed>
  /**
   * Starts an effect that sends an e-mail, and returns at once. If the effect fails or dies, `failed` runs with the
   * reason. If too many e-mails wait, `failed` runs instead of the effect.
   */
  readonly begin: (
    sending: Effect.Effect<void, MailFailed>,
    failed: (reason: string) => Effect.Effect<void>
  ) => Effect.Effect<void>
}>()("parley/platform/MailQueue") {
  static readonly layer = Layer.effect(
    MailQueue,
    Effect.gen(function*() {
      const mailer = yield* Mailer
      const background = yield* FiberSet.make<void, never>()
      const place = Effect.flatMap(
        FiberSet.size(background),
        (size) => size < MAX_WAITING ? Effect.void : Effect.fail(tooMany())
      )
      yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(FiberSet.awaitEmpty(background), "5 seconds")))
      return MailQueue.of({
        ready: Effect.andThen(mailer.ready, place),
        deliver: (mail) => Effect.retry(mailer.send(mail), again),
        begin: (sending, failed) =>
          Effect.match(place, {
            onFailure: ({ reason }) => failed(reason),
            onSuccess: () =>
              sending.pipe(
                Effect.catchDefect((defect) =>
                  Effect.andThen(
                    // Its message may quote the mail.
                    Effect.logError(
                      `Sending a mail failed unexpectedly: ${defect instanceof Error ? defect.name : "a defect"}`
                    ),
                    Effect.fail(new MailFailed({ reason: "unexpected failure" }))
                  )
                ),
                Effect.catch(({ reason }) => failed(reason))
              )
          }).pipe(
            Effect.flatMap((effect) => FiberSet.run(background, effect)),
            Effect.asVoid
          )
      })
    })
  )
}

/** Retries after 2, 4 and 8 seconds. */
const again = Schedule.exponential("2 seconds").pipe(Schedule.upTo({ times: 3 }))

/** Counts whether an e-mail was sent or failed. */
const counted = <R>(sending: Effect.Effect<unknown, MailFailed, R>): Effect.Effect<void, MailFailed, R> =>
  Effect.asVoid(
    Effect.onExit(sending, (exit) => Effect.sync(() => mails.at(Exit.isSuccess(exit) ? "sent" : "failed").add()))
  )

const tooMany = () => new MailFailed({ reason: "too many mails are waiting" })

const MAX_CONNECTIONS = 5
/** With fewer free bytes than this, the outbox accepts no e-mail. An e-mail takes about 1 kB. */
const LEAST_OUTBOX_BYTES = 1_000_000
const MAX_WAITING = 1_000
const SEND_TIMEOUT = "10 seconds"
const READY_TIMEOUT = "5 seconds"

/** Returns the codes of an error without its message, because the message of a mail server may quote the e-mail. */
const codeOf = (error: unknown): string => {
  if (typeof error !== "object" || error === null) return "unknown"
  const { code, responseCode } = error as { readonly code?: unknown; readonly responseCode?: unknown }
  return [code, responseCode].filter((part) => typeof part === "string" || typeof part === "number").join(" ") ||
    "unknown"
}

const SENDER = /^(?:([^<>\r\n]*)<([^<>\s@]+@[^<>\s@]+)>|([^<>\s@]+@[^<>\s@]+))$/

/**
 * Makes a function that composes a message: one text/plain part with the usual headers. Fails if MAIL_FROM is invalid.
 */
const composer = Effect.gen(function*() {
  const config = yield* Config
  const ids = yield* Ids
  const parts = SENDER.exec(config.MAIL_FROM.trim())
  const address = parts?.[2] ?? parts?.[3]
  if (address === undefined) {
    return yield* new ConfigInvalid({
      problems: [`MAIL_FROM: expected an address or "Name <address>", got ${JSON.stringify(config.MAIL_FROM)}`]
    })
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
