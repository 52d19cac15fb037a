import { DataDir } from "#infrastructure/platform/disk/DataDir"
import { AdminSocketLive, askServer } from "#interfaces/admin/AdminSocket"
import { Operator } from "#interfaces/admin/Operator"
import { OperatorRefused } from "#interfaces/admin/OperatorCommand"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Latch, Layer, Logger } from "effect"
import { writeFileSync } from "node:fs"
import { mkdtemp, stat } from "node:fs/promises"
import { connect, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { within } from "../support/Eventually.ts"
import { makeDataDir } from "../support/Server.ts"

/** What comes back for bytes as they are; empty if the door just closes. */
const tell = (path: string, ...parts: ReadonlyArray<string>): Promise<string> =>
  within(
    "the door's answer",
    new Promise((resolve) => {
      let answer = ""
      const socket = connect(path, () => parts.forEach((part) => socket.write(part)))
      socket.on("data", (part) => answer += String(part)).on("error", () => undefined).on(
        "close",
        () => resolve(answer)
      )
    })
  )

it.live("a backup ends with its connection, and a command that changes something does not", () =>
  Effect.gen(function*() {
    const dataDir = yield* Effect.promise(() => mkdtemp(join(tmpdir(), "parley-door-")))
    const begun = yield* Latch.make()
    const hangUp = yield* Latch.make()
    const ends = { Backup: yield* Deferred.make<string>(), Restored: yield* Deferred.make<string>() }
    const operator = Operator.of({
      run: (command) =>
        command._tag !== "Backup" && command._tag !== "Restored"
          ? new OperatorRefused({ message: "none of this" })
          : begun.open.pipe(
            Effect.andThen(command._tag === "Backup" ? Effect.never : hangUp.await),
            Effect.as({ text: "done", data: null }),
            Effect.onExit((exit) => Deferred.succeed(ends[command._tag], exit._tag))
          )
    })
    yield* Effect.gen(function*() {
      const hear = (command: string) =>
        Effect.gen(function*() {
          yield* begun.close
          const socket = connect(join(dataDir, "admin.sock"))
          socket.write(`${command}\n`)
          yield* begun.await
          yield* Effect.callback<void>((resume) => void socket.on("close", () => resume(Effect.void)).destroy())
        })
      yield* hear(JSON.stringify({ _tag: "Restored", operator: "ops" }))
      yield* hear(JSON.stringify({ _tag: "Backup", target: "/a.tar", operator: "ops" }))
      assert.strictEqual(yield* Deferred.await(ends.Backup), "Failure")
      yield* hangUp.open
      assert.strictEqual(yield* Deferred.await(ends.Restored), "Success")
    }).pipe(
      Effect.provide(Layer.provide(AdminSocketLive, [Layer.succeed(Operator, operator), DataDir.layerAt(dataDir)]))
    )
  }))

it.live("the operators' socket takes one line of bounded length, survives any input, and logs what failed", () =>
  Effect.gen(function*() {
    const dataDir = yield* Effect.promise(makeDataDir)
    const path = join(dataDir, "admin.sock")
    // What a server that was killed has left behind.
    writeFileSync(path, "")
    let commands = 0
    const log: Array<string> = []
    const operator = Operator.of({
      run: (command) => {
        commands++
        if (command._tag === "Audit") return Effect.die(new Error("what nobody thought of"))
        return command._tag === "Show"
          ? new OperatorRefused({ message: `no ${command.handle}` })
          : Effect.succeed({ text: command._tag, data: null })
      }
    })
    const door = AdminSocketLive.pipe(
      Layer.provide([Layer.succeed(Operator, operator), DataDir.layerAt(dataDir)]),
      Layer.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))]))
    )
    yield* Effect.gen(function*() {
      assert.strictEqual((yield* Effect.promise(() => stat(path))).mode & 0o777, 0o600)
      const config = `${JSON.stringify({ _tag: "Config" })}\n`
      const done = `${JSON.stringify({ _tag: "Done", answer: { text: "Config", data: null } })}\n`
      assert.strictEqual(yield* Effect.promise(() => tell(path, config)), done)
      // More than the line is not listened to.
      assert.strictEqual(yield* Effect.promise(() => tell(path, config, config, "x".repeat(4_000_000))), done)
      assert.strictEqual(commands, 2)
      assert.strictEqual(yield* Effect.promise(() => tell(path, "x".repeat(2_000_000))), "")
      assert.include(yield* Effect.promise(() => tell(path, "{}\n")), `"Refused"`)
      assert.strictEqual(commands, 2)
      const refused = yield* Effect.flip(askServer(dataDir, { _tag: "Show", handle: "ada", operator: "ops" }))
      assert.strictEqual(refused.message, "no ada")
      assert.deepStrictEqual(log, [])
      const failed = yield* Effect.flip(
        askServer(dataDir, { _tag: "Audit", limit: 1, handle: null, by: null, looks: true, operator: "ops" })
      )
      assert.include(failed.message, "see its log")
      assert.deepStrictEqual(log, ["An operator's command failed"])
      assert.strictEqual((yield* askServer(dataDir, { _tag: "Config" }))?.text, "Config")
    }).pipe(Effect.provide(door))
    assert.strictEqual(yield* askServer(dataDir, { _tag: "Config" }), undefined)
    // Empty lines only say that a command takes long.
    const slow = createServer((socket) => {
      socket.write("\n\n")
      socket.once(
        "data",
        () => socket.end(`\n${JSON.stringify({ _tag: "Done", answer: { text: "at last", data: null } })}\n`)
      )
    })
    yield* Effect.acquireUseRelease(
      Effect.callback<void>((resume) => void slow.listen(path, () => resume(Effect.void))),
      () =>
        Effect.map(askServer(dataDir, { _tag: "Config" }), (answer) => {
          assert.strictEqual(answer?.text, "at last")
        }),
      () => Effect.sync(() => slow.close())
    )
  }))
