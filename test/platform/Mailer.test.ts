import { codeMail } from "#domain/registration/CodeMail"
import { Config, ConfigInvalid, type Settings } from "#infrastructure/platform/Config"
import { FullDisk, FullDisks } from "#infrastructure/platform/disk/DiskSpace"
import { Ids } from "#infrastructure/platform/Ids"
import { type Mail, Mailer, MailFailed } from "#infrastructure/platform/Mailer"
import { assert, describe, it } from "@effect/vitest"
import { Console, Effect, Exit, Fiber, Layer, Logger, Redacted, References } from "effect"
import { TestClock } from "effect/testing"
import { existsSync } from "node:fs"
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises"
import { type AddressInfo, createServer, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { SMTPServer, type SMTPServerOptions } from "smtp-server"
import { missingForDisks, SmallDisk } from "../support/SmallDisk.ts"

const mail: Mail = codeMail({
  purpose: "register",
  to: "ada@example.com",
  code: "012345",
  handle: "ada",
  base: "https://parley.example",
  ttlSeconds: 600
})

/** Header names lower-cased, and the body's lines. */
const parse = (raw: string) => {
  const text = raw.replaceAll("\r\n", "\n")
  const end = text.indexOf("\n\n")
  const headers = new Map(
    text.slice(0, end).replaceAll(/\n[ \t]+/g, " ").split("\n").map((line) => {
      const colon = line.indexOf(":")
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const
    })
  )
  return { headers, lines: text.slice(end + 2).split("\n") }
}

const assertIsTheMail = (raw: string) => {
  const { headers, lines } = parse(raw)
  assert.match(headers.get("content-type") ?? "", /^text\/plain; charset=utf-8/)
  assert.strictEqual(headers.get("to"), "ada@example.com")
  assert.strictEqual(headers.get("subject"), mail.subject)
  assert.match(headers.get("message-id") ?? "", /^<[0-9a-f]{32}@parley\.example>$/)
  assert.strictEqual(headers.get("auto-submitted"), "auto-generated")
  assert.strictEqual(lines.filter((line) => line === "012345").length, 1)
  assert.deepStrictEqual(lines.join("\n").trimEnd(), mail.text.trimEnd())
  return headers
}

interface Received {
  readonly from: string
  readonly to: ReadonlyArray<string>
  readonly user: string | undefined
  readonly raw: string
}

/** A mail server on a free port of 127.0.0.1. */
const smtpServer = (options: SMTPServerOptions = {}, port = 0) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const received: Array<Received> = []
      let sessions = 0
      const server = new SMTPServer({
        authOptional: true,
        disabledCommands: ["STARTTLS"],
        allowInsecureAuth: true,
        logger: false,
        // How long a server that closes waits for the connections of the pool, in milliseconds.
        closeTimeout: 100,
        onConnect: (_session, done) => {
          sessions++
          done()
        },
        onAuth: (auth, _session, done) =>
          auth.password === "s3cret" ? done(null, { user: auth.username ?? "" }) : done(new Error("no")),
        onData: (stream, session, done) => {
          const chunks: Array<Buffer> = []
          stream.on("data", (chunk: Buffer) => chunks.push(chunk))
          stream.on("end", () => {
            const { mailFrom, rcptTo } = session.envelope
            received.push({
              from: mailFrom === false ? "" : mailFrom.address,
              to: rcptTo.map((recipient) => recipient.address),
              user: session.user,
              raw: Buffer.concat(chunks).toString("utf8")
            })
            done()
          })
        },
        ...options
      })
      server.on("error", () => {})
      await new Promise<void>((resolve) => void server.listen(port, "127.0.0.1", resolve))
      const address = server.server.address() as AddressInfo
      return { server, received, port: address.port, sessions: () => sessions }
    }),
    ({ server }) => Effect.promise(() => new Promise<void>((resolve) => void server.close(resolve)))
  )

const through = (url: string, changes: Partial<Settings> = {}) =>
  Mailer.layer.pipe(
    Layer.provide(Layer.mergeAll(
      Config.layerTest({ SMTP_URL: Redacted.make(url), MAIL_FROM: "Parley <parley@parley.example>", ...changes }),
      Ids.layer
    ))
  )

const ready = Effect.flatMap(Mailer, (mailer) => mailer.ready)

const send = (message: Mail = mail) => Effect.flatMap(Mailer, (mailer) => mailer.send(message))

describe("mail through SMTP", () => {
  it.effect("arrives as one text/plain part with the code alone on a line", () =>
    Effect.gen(function*() {
      const { port, received } = yield* smtpServer()
      yield* TestClock.setTime(Date.UTC(2024, 4, 6, 7, 8, 9))
      yield* send().pipe(Effect.provide(through(`smtp://127.0.0.1:${port}`)))
      assert.deepInclude(received[0], { from: "parley@parley.example", to: ["ada@example.com"] })
      const headers = assertIsTheMail(received[0]?.raw ?? "")
      assert.strictEqual(headers.get("from"), "Parley <parley@parley.example>")
      assert.strictEqual(headers.get("date"), "Mon, 06 May 2024 07:08:09 +0000")
    }))

  it.effect("keeps its connections, and logs in with the URL's user", () =>
    Effect.gen(function*() {
      const { port, received, sessions } = yield* smtpServer({ authOptional: false })
      yield* Effect.gen(function*() {
        for (let i = 0; i < 5; i++) yield* send()
      }).pipe(Effect.provide(through(`smtp://parley:s3cret@127.0.0.1:${port}`)))
      assert.strictEqual(received.length, 5)
      assert.strictEqual(received[0]?.user, "parley")
      assert.strictEqual(sessions(), 1)
    }))

  it.effect("is ready while the server answers, which is asked every ten seconds, and never learnt from a mail", () =>
    Effect.gen(function*() {
      const { port, server, sessions } = yield* smtpServer()
      yield* Effect.gen(function*() {
        yield* send()
        assert.strictEqual(sessions(), 1)
        yield* Effect.all([ready, ready, ready], { concurrency: "unbounded" })
        yield* ready
        assert.strictEqual(sessions(), 2)
        yield* Effect.promise(() => new Promise<void>((resolve) => void server.close(resolve)))
        yield* ready
        yield* TestClock.adjust("10 seconds")
        const error = yield* Effect.flip(ready)
        assert.instanceOf(error, MailFailed)
        assert.match(error.reason, /^E/)
      }).pipe(Effect.provide(through(`smtp://127.0.0.1:${port}`)))
    }))

  it.effect("cannot get a header or a recipient by its texts", () =>
    Effect.gen(function*() {
      const { port, received } = yield* smtpServer()
      yield* send({ ...mail, subject: "Hello\r\nBcc: eve@example.com\r\n\r\nEve" }).pipe(
        Effect.provide(through(`smtp://127.0.0.1:${port}`))
      )
      const { headers, lines } = parse(received[0]?.raw ?? "")
      assert.isFalse(headers.has("bcc"))
      assert.notInclude(lines, "Eve")
      assert.deepStrictEqual(received[0]?.to, ["ada@example.com"])
    }))

  it.effect("fails while the server is down, and arrives once it is up again", () =>
    Effect.gen(function*() {
      const first = yield* smtpServer()
      yield* Effect.promise(() => new Promise<void>((resolve) => void first.server.close(resolve)))
      yield* Effect.gen(function*() {
        const error = yield* Effect.flip(send())
        assert.instanceOf(error, MailFailed)
        assert.match(error.reason, /ECONNREFUSED|ESOCKET|ECONNECTION/)
        const again = yield* smtpServer({}, first.port)
        yield* send()
        assert.strictEqual(again.received.length, 1)
      }).pipe(Effect.provide(through(`smtp://127.0.0.1:${first.port}`)))
    }))

  it.effect("reports a server that refuses by its status, not by its text", () =>
    Effect.gen(function*() {
      const { port } = yield* smtpServer({
        onRcptTo: (address, _session, done) =>
          done(Object.assign(new Error(`no ${address.address} here`), { responseCode: 550 }))
      })
      const error = yield* Effect.flip(send()).pipe(Effect.provide(through(`smtp://127.0.0.1:${port}`)))
      assert.strictEqual(error.reason, "EENVELOPE 550")
    }))

  it.effect("fails with a wrong password", () =>
    Effect.gen(function*() {
      const { port } = yield* smtpServer({ authOptional: false })
      const error = yield* Effect.flip(send()).pipe(Effect.provide(through(`smtp://parley:wrong@127.0.0.1:${port}`)))
      assert.match(error.reason, /^EAUTH/)
    }))

  it.effect("fails after ten seconds if the server never answers, and the mails that wait are bounded", () =>
    Effect.gen(function*() {
      const sockets = new Set<Socket>()
      const silent = yield* Effect.acquireRelease(
        Effect.callback<ReturnType<typeof createServer>>((resume) => {
          const server = createServer((socket) => {
            sockets.add(socket)
            socket.on("error", () => {})
          }).listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
        }),
        (server) =>
          Effect.sync(() => {
            for (const socket of sockets) socket.destroy()
            server.close()
          })
      )
      yield* Effect.gen(function*() {
        const waiting = yield* Effect.forEach(
          Array.from({ length: 1_000 }),
          () => Effect.forkChild(Effect.exit(send()))
        )
        yield* Effect.yieldNow
        const refused = yield* Effect.flip(send())
        assert.strictEqual(refused.reason, "too many mails are waiting")
        yield* TestClock.adjust("10 seconds")
        for (const exit of yield* Fiber.joinAll(waiting)) {
          assert.deepStrictEqual(exit, Exit.fail(new MailFailed({ reason: "no answer in time" })))
        }
        const next = yield* Effect.forkChild(Effect.flip(send()))
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual((yield* Fiber.join(next)).reason, "no answer in time")
      }).pipe(Effect.provide(through(`smtp://127.0.0.1:${(silent.address() as AddressInfo).port}`)))
    }))

  it.effect("goes into no outbox", () =>
    Effect.gen(function*() {
      const { port } = yield* smtpServer()
      const folder = yield* temporary
      yield* send().pipe(
        Effect.provide(through(`smtp://127.0.0.1:${port}`, { DATA_DIR: folder, MAIL_OUTBOX: join(folder, "mail") }))
      )
      assert.deepStrictEqual(yield* Effect.promise(() => readdir(folder)), [])
    }))
})

const temporary = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "parley-mail-"))),
  (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
)

const outbox = (changes: Partial<Settings>) =>
  Mailer.layer.pipe(
    Layer.provide(Layer.mergeAll(Config.layerTest({ MAIL_FROM: "parley@parley.example", ...changes }), Ids.layer))
  )

/** Runs with what is printed and what is logged kept apart. */
const observed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const printed: Array<string> = []
    const logged: Array<string> = []
    const console: Console.Console = Object.assign(Object.create(yield* Console.Console), {
      log: (...parts: ReadonlyArray<unknown>) => void printed.push(parts.map(String).join(" "))
    })
    const value = yield* effect.pipe(
      Effect.provideService(Console.Console, console),
      Effect.provide(Logger.layer([Logger.make(({ message }) => void logged.push(String(message)))])),
      Effect.provideService(References.MinimumLogLevel, "All")
    )
    return { value, printed, logged }
  })

describe("mail into the outbox", () => {
  it.effect.skipIf(missingForDisks !== "")(
    `is refused on a full disk, with the reason, and the log says it once a minute${missingForDisks}`,
    () =>
      Effect.gen(function*() {
        const disk = yield* Effect.acquireRelease(Effect.sync(() => new SmallDisk(4)), (disk) =>
          Effect.sync(() => disk.unmount()))
        const lines: Array<string> = []
        yield* Effect.gen(function*() {
          const mailer = yield* Mailer
          yield* mailer.ready
          disk.fill()
          const full = new MailFailed({ reason: `no space left on ${disk.folder}/outbox (0.0 MB free)` })
          for (const refused of [mailer.send(mail), mailer.ready, mailer.send(mail)])
            assert.deepStrictEqual(yield* Effect.flip(refused), full)
          assert.deepStrictEqual(
            yield* Effect.promise(() =>
              readdir(join(disk.folder, "outbox"))
            ),
            []
          )
          disk.clear()
          yield* mailer.ready
          yield* mailer.send(mail)
        }).pipe(
          Effect.provide(outbox({ DATA_DIR: disk.folder })),
          Effect.provideService(FullDisk, new FullDisks()),
          Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
        )
        assert.deepStrictEqual(lines, [
          `E-mails cannot be written to the outbox: no space left on ${disk.folder}/outbox (0.0 MB free)`
        ])
      })
  )

  it.effect("is one file, there whole or not at all, and its code is shown to the person", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      const { logged, printed } = yield* observed(send().pipe(Effect.provide(outbox({ DATA_DIR: folder }))))
      const names = yield* Effect.promise(() => readdir(join(folder, "outbox")))
      assert.strictEqual(names.length, 1)
      assert.match(names[0] ?? "", /^\d+-[0-9a-f]{12}\.eml$/)
      const file = join(folder, "outbox", names[0] ?? "")
      assertIsTheMail(yield* Effect.promise(() => readFile(file, "utf8")))
      assert.strictEqual((yield* Effect.promise(() => stat(file))).mode & 0o777, 0o600)
      assert.deepStrictEqual(printed, ["Mail to ada@example.com: the code to register @ada is 012345"])
      assert.deepStrictEqual(logged, [])
    }))

  it.effect("keeps many mails at once apart", () =>
    Effect.gen(function*() {
      const folder = join(yield* temporary, "deep", "outbox")
      yield* observed(
        Effect.all(
          Array.from({ length: 50 }, (_, i) => send({ ...mail, to: `a${i}@example.com` })),
          { concurrency: "unbounded" }
        ).pipe(Effect.provide(outbox({ MAIL_OUTBOX: folder })))
      )
      const names = yield* Effect.promise(() => readdir(folder))
      const recipients = new Set<string | undefined>()
      for (const name of names) {
        recipients.add(parse(yield* Effect.promise(() => readFile(join(folder, name), "utf8"))).headers.get("to"))
      }
      assert.deepStrictEqual([names.length, recipients.size], [50, 50])
    }))

  it.effect("stops the start with a clear line if the folder cannot be used", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      yield* Effect.promise(() => writeFile(join(folder, "file"), ""))
      const error = yield* Effect.flip(Layer.build(outbox({ MAIL_OUTBOX: join(folder, "file", "outbox") })))
      assert.instanceOf(error, ConfigInvalid)
      assert.match(error.message, /^MAIL_OUTBOX: mail cannot be written to .*: a part of the path is a file$/)
    }))

  it.effect("fails if the folder goes away, and leaves nothing behind", () =>
    Effect.gen(function*() {
      const folder = join(yield* temporary, "outbox")
      yield* Effect.gen(function*() {
        yield* Effect.promise(() => rm(folder, { recursive: true }))
        const { printed, value } = yield* observed(Effect.flip(send()))
        assert.strictEqual(value.reason, "ENOENT")
        assert.deepStrictEqual(printed, [])
      }).pipe(Effect.provide(outbox({ MAIL_OUTBOX: folder })))
      assert.isFalse(existsSync(folder))
    }))
})

describe("MAIL_FROM", () => {
  it.effect("is an address, with a name or without", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      for (
        const [from, header] of [
          ["p@example.com", "p@example.com"],
          ["Parley <p@example.com>", "Parley <p@example.com>"],
          ['"Parley, Inc." <p@example.com>', '"Parley, Inc." <p@example.com>']
        ] as const
      ) {
        const sent = outbox({ MAIL_OUTBOX: join(folder, header.length.toString()), MAIL_FROM: from })
        yield* observed(send().pipe(Effect.provide(sent)))
        const [name = ""] = yield* Effect.promise(() => readdir(join(folder, header.length.toString())))
        const raw = yield* Effect.promise(() => readFile(join(folder, header.length.toString(), name), "utf8"))
        assert.strictEqual(parse(raw).headers.get("from"), header)
      }
      for (const from of ["nobody", "a@b, c@d", "Parley <a@b>\r\nBcc: <c@d>", "<>"]) {
        const error = yield* Effect.flip(Layer.build(outbox({ MAIL_OUTBOX: folder, MAIL_FROM: from })))
        assert.match(error.message, /^MAIL_FROM: /)
      }
    }))
})
