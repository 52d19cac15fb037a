import { DataDir } from "#infrastructure/platform/disk/DataDir"
import { ownerInWords } from "#infrastructure/platform/disk/Folder"
import { Cause, Effect, Exit, Layer, Result, Schema } from "effect"
import { chmodSync, rmSync } from "node:fs"
import { connect, createServer, type Socket } from "node:net"
import { dirname, join, relative, resolve } from "node:path"
import { Operator } from "./Operator.ts"
import { OperatorAnswer, OperatorCommand, OperatorRefused } from "./OperatorCommand.ts"

/** The longest command, and the longest answer: a page of an export, or a part of a file. */
const MAX_COMMAND = 1_048_576
const MAX_ANSWER = 67_108_864
/**
 * After this time without a byte, a connection is closed. Most commands take a few statements, but a backup may take
 * minutes.
 */
const IDLE_TIMEOUT_MS = 60_000
/** How often an empty line says that a command is being carried out. */
const ALIVE_MS = 10_000
/** The longest path of a Unix socket that all kernels accept, in bytes. */
const MAX_PATH = 103

const Reply = Schema.Union([
  Schema.TaggedStruct("Done", { answer: OperatorAnswer }),
  Schema.TaggedStruct("Refused", { message: Schema.String })
])

const NEWLINE = 10

const decodeCommand = Schema.decodeUnknownEffect(Schema.fromJsonString(OperatorCommand))
const decodeReply = Schema.decodeUnknownEffect(Schema.fromJsonString(Reply))

/** The absolute path of the socket, or the relative one if the absolute one is too long; undefined if both are. */
const doorOf = (dataDir: string): string | undefined => {
  const absolute = join(resolve(dataDir), "admin.sock")
  return [absolute, relative(process.cwd(), absolute)].find((path) => Buffer.byteLength(path) <= MAX_PATH)
}

/** The first line from the other side that is not empty, of at most `most` bytes. */
const line = (socket: Socket, most: number): Effect.Effect<string, OperatorRefused> =>
  Effect.callback((resume) => {
    const parts: Array<Buffer> = []
    let size = 0
    const fail = (message: string) => resume(Effect.fail(new OperatorRefused({ message })))
    socket.setTimeout(IDLE_TIMEOUT_MS, () =>
      socket.destroy(new Error(`nothing came for ${IDLE_TIMEOUT_MS / 1_000} seconds`)))
    socket.on("error", (error) =>
      fail(`The server's admin socket failed: ${error.message}`))
    socket.on("close", () =>
      fail(
        "The server's admin socket was closed before an answer came; the command may or may not have been carried out."
      ))
    const heard = (part: Buffer) => {
      const from = size > 0 ? 0 : part.findIndex((byte) => byte !== NEWLINE)
      if (from === -1)
        return
      const begun = part.subarray(from)
      parts.push(begun)
      size += begun.length
      if (begun.includes(NEWLINE)) {
        // The rest is read and dropped. Otherwise the other side could block on writing and not read the answer.
        socket.off("data", heard).resume()
        return resume(Effect.succeed(Buffer.concat(parts).toString("utf8").split("\n")[0] ?? ""))
      }
      if (size > most) socket.destroy(new Error(`more than ${most} bytes came without the end of a line`))
    }
    socket.on("data", heard)
  })

/**
 * The Unix socket for operators' commands to a running standalone server, whose database no other process can open. It
 * is in DATA_DIR, and only the server's own user can connect. A connection carries one line of JSON with the command,
 * and one line with the answer. A command is carried out even if the connection is closed before its end. Only a backup
 * ends with its connection.
 */
export const AdminSocketLive = Layer.effectDiscard(Effect.gen(function*() {
  const operator = yield* Operator
  const { path: dataDir } = yield* DataDir
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const path = doorOf(dataDir)
  if (path === undefined) {
    return yield* Effect.logWarning(
      "The path of DATA_DIR is too long for a Unix socket: operators' commands cannot reach this server while it runs"
    )
  }

  const answer = Effect.fnUntraced(
    function*(text: string, gone: Effect.Effect<never, OperatorRefused>): Effect.fn.Return<typeof Reply.Type> {
      const decoded = yield* Effect.result(decodeCommand(text))
      if (Result.isFailure(decoded)) {
        return { _tag: "Refused", message: `The server does not understand this command: ${decoded.failure.message}` }
      }
      const done = operator.run(decoded.success)
      // Only a backup ends with its connection. A command that changes something is carried out to its end.
      const exit = yield* Effect.exit(decoded.success._tag === "Backup" ? Effect.raceFirst(done, gone) : done)
      if (Exit.isSuccess(exit)) return { _tag: "Done", answer: exit.value }
      const failure = exit.cause.reasons.find(Cause.isFailReason)?.error
      if (failure instanceof OperatorRefused) return { _tag: "Refused", message: failure.message }
      yield* Effect.logError("An operator's command failed", exit.cause)
      return {
        _tag: "Refused",
        message: `The server failed: ${
          (failure?.cause instanceof Error ? failure.cause : failure)?.message ?? "see its log"
        }`
      }
    }
  )

  const open = new Set<Socket>()
  const server = createServer((socket) => {
    open.add(socket)
    socket.on("close", () => open.delete(socket))
    socket.on("error", () => undefined)
    const alive = setInterval(() => socket.write("\n"), ALIVE_MS)
    socket.on("close", () => clearInterval(alive))
    const gone = Effect.callback<never, OperatorRefused>((resume) => {
      const refuse = () => resume(Effect.fail(new OperatorRefused({ message: "Nobody waits for the answer." })))
      if (socket.destroyed) refuse()
      else socket.on("close", refuse)
    })
    runFork(Effect.match(Effect.flatMap(line(socket, MAX_COMMAND), (text) => answer(text, gone)), {
      onFailure: () => socket.destroy(),
      onSuccess: (reply) => {
        clearInterval(alive)
        socket.end(`${JSON.stringify(reply)}\n`)
      }
    }))
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.once(
        "error",
        (error) =>
          resume(Effect.logWarning(`Operators' commands cannot reach this server while it runs: ${error.message}`))
      )
      // An existing socket was left by a process that has ended, because this process holds the lock of DATA_DIR.
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

/** Sends a command to the server that runs on this DATA_DIR; undefined if no server with an admin socket does. */
export const askServer = (
  dataDir: string,
  command: OperatorCommand
): Effect.Effect<OperatorAnswer | undefined, OperatorRefused> =>
  Effect.gen(function*() {
    const path = doorOf(dataDir)
    const socket = path === undefined ? undefined : yield* knock(path)
    if (socket === undefined) return undefined
    socket.write(`${JSON.stringify(command)}\n`)
    const reply = yield* Effect.mapError(Effect.flatMap(line(socket, MAX_ANSWER), decodeReply), (error) =>
      error instanceof OperatorRefused
        ? error
        : new OperatorRefused({ message: "The server has another version, so its answer cannot be read." }))
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
          : Effect.fail(
            new OperatorRefused({
              message: error.code === "EACCES"
                ? `The server belongs to another user: ${ownerInWords(dirname(path))}.`
                : `The server's admin socket cannot be reached: ${error.message}`
            })
          )
      )
    socket.once("error", failed)
    socket.once("connect", () => {
      socket.off("error", failed)
      resume(Effect.succeed(socket))
    })
  })
