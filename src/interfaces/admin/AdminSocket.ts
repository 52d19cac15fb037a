import { DataDir } from "#infrastructure/platform/disk/DataDir"
import { ownerInWords } from "#infrastructure/platform/disk/Folder"
import { answer } from "#infrastructure/wire/WireErrors"
import { CommandLine } from "#interfaces/console/ConsoleAuthorization"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { ByteSize, Effect, Layer } from "effect"
import { HttpIncomingMessage, HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { chmodSync, rmSync } from "node:fs"
import { createServer, request } from "node:http"
import { dirname, join, relative, resolve } from "node:path"
import { type ApiCall, type ApiResponse, OperatorRefused, OTHER_VERSION, requestOf } from "./ApiCall.ts"

/** How many bytes the body of a call may have. */
const MAX_BODY_BYTES = 1_048_576
/**
 * After how many milliseconds without a byte from the server a command fails. Most calls run only a few statements, but
 * a backup may take minutes.
 */
const IDLE_TIMEOUT_MS = 60_000
/** How often the server reports that a call is still running, in milliseconds. */
const ALIVE_MS = 10_000
/** The longest path of a Unix socket that all kernels accept, in bytes. */
const MAX_PATH = 103

/**
 * The absolute path of the socket, or the relative path if the absolute one is too long; undefined if both are too
 * long.
 */
const socketPathOf = (dataDir: string): string | undefined => {
  const absolute = join(resolve(dataDir), "admin.sock")
  return [absolute, relative(process.cwd(), absolute)].find((path) => Buffer.byteLength(path) <= MAX_PATH)
}

/** The header with the name of a command's operator. The name may have up to `OPERATOR_LENGTH` UTF-16 units. */
const OPERATOR = "x-parley-operator"
const OPERATOR_LENGTH = 200

/** Runs requests from an operator's command line. */
const routesOf = <A, E, R>(routes: Layer.Layer<A, E, R>) =>
  Effect.map(
    HttpRouter.toHttpEffect(routes),
    (routed) => (operator: string) =>
      Effect.provideService(Effect.catchCause(routed, (cause) => answer(cause)), CommandLine, operator)
  )

/** Makes a function that calls the operators' API in this process. */
export const callsOf = <A, E, R>(routes: Layer.Layer<A, E, R>) =>
  Effect.map(routesOf(routes), (routed) => (operator: string, call: ApiCall) => {
    const { path, ...request } = requestOf(call, {})
    return routed(operator).pipe(
      Effect.flatMap((response) =>
        Effect.map(
          Effect.promise(() => HttpServerResponse.toWeb(response).text()),
          (body) => ({ status: response.status, body })
        )
      ),
      Effect.scoped,
      Effect.provideService(
        HttpServerRequest.HttpServerRequest,
        HttpServerRequest.fromWeb(new Request(`http://localhost${path}`, request))
      )
    )
  })

/**
 * Serves the operators' API for the command line on a Unix socket. Commands need it because no second process can open
 * the database of a standalone server. The socket is in DATA_DIR, and only the server's own user can connect to it.
 */
export const layer = <A, E, R>(routes: Layer.Layer<A, E, R>) =>
  Layer.effectDiscard(Effect.gen(function*() {
    const { path: dataDir } = yield* DataDir
    const path = socketPathOf(dataDir)
    if (path === undefined) {
      return yield* Effect.logWarning(
        "The path of DATA_DIR is too long for a Unix socket: operators' commands cannot reach this server while it runs"
      )
    }
    const scope = yield* Effect.scope
    const routed = yield* routesOf(routes)
    const handled = Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers }) =>
      routed(decodeURIComponent(headers[OPERATOR] ?? "unknown").slice(0, OPERATOR_LENGTH)))
    const handle = yield* Effect.provideService(
      NodeHttpServer.makeHandler(handled, { scope }),
      HttpIncomingMessage.MaxBodySize,
      ByteSize.bytes(MAX_BODY_BYTES)
    )
    const server = createServer((request, response) => {
      const alive = setInterval(() => {
        if (!response.headersSent)
          response.writeProcessing()
      }, ALIVE_MS)
      response.on("close", () =>
        clearInterval(alive))
      handle(request, response)
    })
    yield* Effect.acquireRelease(
      Effect.callback<void>((resume) => {
        server.once(
          "error",
          (error) =>
            resume(Effect.logWarning(`Operators' commands cannot reach this server while it runs: ${error.message}`))
        )
        // This process holds the lock of DATA_DIR, so an existing socket was left by a process that has ended.
        rmSync(path, { force: true })
        const before = process.umask(0o177)
        server.listen(path, () => resume(Effect.sync(() => chmodSync(path, 0o600))))
        process.umask(before)
      }),
      () =>
        Effect.callback<void>((resume) => {
          server.close(() => resume(Effect.void))
          server.closeAllConnections()
        })
    )
  }))

/** Calls the server that runs on this DATA_DIR. Returns undefined if there is no such server with an admin socket. */
export const callServer = (
  dataDir: string,
  operator: string,
  call: ApiCall
): Effect.Effect<ApiResponse | undefined, OperatorRefused> => {
  const socketPath = socketPathOf(dataDir)
  return socketPath === undefined ? Effect.succeed(undefined) : Effect.callback((resume) => {
    const { body, ...options } = requestOf(call, { [OPERATOR]: encodeURIComponent(operator) })
    let isConnected = false
    const fail = (message: string) => resume(Effect.fail(new OperatorRefused({ message })))
    const sent = request({ ...options, socketPath, agent: false }, (response) => {
      const parts: Array<Buffer> = []
      response.on("data", (part: Buffer) => parts.push(part)).on("error", failed).on(
        "end",
        () => resume(Effect.succeed({ status: response.statusCode ?? 0, body: Buffer.concat(parts).toString("utf8") }))
      )
    })
    const failed = (error: NodeJS.ErrnoException) => {
      if (isConnected) {
        return fail(
          error.code === "ECONNRESET"
            ? "The server's admin socket was closed before an answer came; the command may or may not have been carried out."
            : error.code?.startsWith("HPE_") === true
            ? OTHER_VERSION
            : `The server's admin socket failed: ${error.message}`
        )
      }
      if (error.code === "ENOENT" || error.code === "ECONNREFUSED" || error.code === "ENOTDIR")
        return resume(Effect.succeed(undefined))
      fail(
        error.code === "EACCES"
          ? `The server belongs to another user: ${ownerInWords(dirname(socketPath))}.`
          : `The server's admin socket cannot be reached: ${error.message}`
      )
    }
    sent.on("socket", (socket) => socket.on("connect", () => isConnected = true))
    sent.setTimeout(
      IDLE_TIMEOUT_MS,
      () => sent.destroy(new Error(`nothing came for ${IDLE_TIMEOUT_MS / 1_000} seconds`))
    )
    sent.on("error", failed).end(body)
    return Effect.sync(() => sent.destroy())
  })
}
