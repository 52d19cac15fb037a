import { Cause, Effect, Exit, Layer, Result, Schema } from "effect"
import { chmodSync, rmSync } from "node:fs"
import { connect, createServer, type Socket } from "node:net"
import { join, relative, resolve } from "node:path"
import { DataDir } from "../platform/DataDir.ts"
import { Operator, OperatorRefused } from "./Operator.ts"
import { OperatorAnswer, OperatorCommand } from "./OperatorCommand.ts"

const MAX_LINE = 1_048_576
/** A command is one statement or a few; whoever connects and says nothing is not waited for. */
const PATIENCE_MS = 60_000
/** What the kernel has room for in a socket's address. */
const MAX_PATH = 103

const Reply = Schema.Union([
  Schema.TaggedStruct("Done", { answer: OperatorAnswer }),
  Schema.TaggedStruct("Refused", { message: Schema.String })
])

const decodeCommand = Schema.decodeUnknownEffect(Schema.fromJsonString(OperatorCommand))
const decodeReply = Schema.decodeUnknownEffect(Schema.fromJsonString(Reply))

/** The shorter way to it, for sockets cannot have long names; undefined: neither is short enough. */
const doorOf = (dataDir: string): string | undefined => {
  const absolute = join(resolve(dataDir), "admin.sock")
  return [absolute, relative(process.cwd(), absolute)].find((path) => Buffer.byteLength(path) <= MAX_PATH)
}

/** The first line that the other side says. */
const line = (socket: Socket): Effect.Effect<string, OperatorRefused> =>
  Effect.callback((resume) => {
    const parts: Array<Buffer> = []
    let size = 0
    const fail = (message: string) => resume(Effect.fail(new OperatorRefused({ message })))
    socket.setTimeout(PATIENCE_MS, () => socket.destroy(new Error("it took too long")))
    socket.on("error", (error) => fail(`The server's door failed: ${error.message}`))
    socket.on("close", () => fail("The server's door was closed before it answered; whether it was done is open."))
    const heard = (part: Buffer) => {
      parts.push(part)
      size += part.length
      if (part.includes(10)) {
        // What comes after the line is read, so that the other side gets to its answer, and forgotten.
        socket.off("data", heard).resume()
        return resume(Effect.succeed(Buffer.concat(parts).toString("utf8").split("\n")[0] ?? ""))
      }
      if (size > MAX_LINE) socket.destroy(new Error("it said too much"))
    }
    socket.on("data", heard)
  })

/**
 * The way in for operators' commands while a standalone server runs, whose database no
 * other process may open: a socket in DATA_DIR that only the server's own user can
 * open. One line of JSON asks, one answers.
 */
export const AdminSocketLive = Layer.effectDiscard(Effect.gen(function*() {
  const operator = yield* Operator
  const { path: dataDir } = yield* DataDir
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const path = doorOf(dataDir)
  if (path === undefined) {
    return yield* Effect.logWarning("DATA_DIR has too long a name for operators' commands while the server runs")
  }

  const answer = Effect.fnUntraced(function*(text: string): Effect.fn.Return<typeof Reply.Type> {
    const decoded = yield* Effect.result(decodeCommand(text))
    if (Result.isFailure(decoded)) {
      return { _tag: "Refused", message: `The server does not understand this command: ${decoded.failure.message}` }
    }
    const exit = yield* Effect.exit(operator.run(decoded.success))
    if (Exit.isSuccess(exit)) return { _tag: "Done", answer: exit.value }
    const failure = exit.cause.reasons.find(Cause.isFailReason)?.error
    if (failure instanceof OperatorRefused) return { _tag: "Refused", message: failure.message }
    yield* Effect.logError("An operator's command failed", exit.cause)
    return { _tag: "Refused", message: `The server failed: ${failure?.message ?? "see its log"}` }
  })

  const open = new Set<Socket>()
  const server = createServer((socket) => {
    open.add(socket)
    socket.on("close", () => open.delete(socket))
    socket.on("error", () => undefined)
    runFork(Effect.match(Effect.flatMap(line(socket), answer), {
      onFailure: () => socket.destroy(),
      onSuccess: (reply) => socket.end(`${JSON.stringify(reply)}\n`)
    }))
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.once("error", (error) =>
        resume(Effect.logWarning(`Operators' commands cannot reach this server while it runs: ${error.message}`)))
      // Whoever left one behind is gone: the lock of DATA_DIR is ours.
      rmSync(path, { force: true })
      const before = process.umask(0o177)
      server.listen(path, () => resume(Effect.sync(() => chmodSync(path, 0o600))))
      process.umask(before)
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        for (const socket of open) socket.destroy()
      })
  )
}))

/** Asks the server that has this DATA_DIR; undefined: there is none with a door. */
export const askServer = (dataDir: string, command: OperatorCommand): Effect.Effect<OperatorAnswer | undefined, OperatorRefused> =>
  Effect.gen(function*() {
    const path = doorOf(dataDir)
    const socket = path === undefined ? undefined : yield* knock(path)
    if (socket === undefined) return undefined
    socket.write(`${JSON.stringify(command)}\n`)
    const reply = yield* Effect.mapError(Effect.flatMap(line(socket), decodeReply), (error) =>
      error instanceof OperatorRefused ? error : new OperatorRefused({ message: "The server is of another version: its answer is not understood." }))
    socket.destroy()
    return reply._tag === "Done" ? reply.answer : yield* new OperatorRefused({ message: reply.message })
  })

const knock = (path: string): Effect.Effect<Socket | undefined, OperatorRefused> =>
  Effect.callback((resume) => {
    const socket = connect(path)
    const failed = (error: NodeJS.ErrnoException) =>
      resume(
        error.code === "ENOENT" || error.code === "ECONNREFUSED" || error.code === "ENOTDIR"
          ? Effect.succeed(undefined)
          : Effect.fail(new OperatorRefused({
            message: error.code === "EACCES"
              ? "The server belongs to another user: give this command as that user."
              : `The server's door cannot be opened: ${error.message}`
          }))
      )
    socket.once("error", failed)
    socket.once("connect", () => {
      socket.off("error", failed)
      resume(Effect.succeed(socket))
    })
  })
