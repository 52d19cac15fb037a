import type { Settings } from "#infrastructure/platform/Config"
import { Effect } from "effect"
import { connect, type Socket } from "node:net"
import { connect as connectTls } from "node:tls"
import { addressOf } from "./NodeAddress.ts"
import { clientTls } from "./NodeSecret.ts"

/**
 * Disables Nagle's algorithm. With this algorithm, the second of two small writes would wait for the peer's delayed ACK
 * (40 ms).
 */
export const NO_DELAY = { noDelay: true }
/** The time-out of one attempt to connect. */
const CONNECT_TIMEOUT = "1 second"
/** How many nodes are remembered with the secret that was tried last. */
const MAX_REMEMBERED = 1_000

/** The reason that is reported for a node that accepts no connection in time. */
export const SILENT = "it does not respond within a second"

/** Explains a failed connection to operators, as far as its error code shows the reason. */
const explain = (error: NodeJS.ErrnoException, hasSecret: boolean): string => {
  const code = error.code ?? ""
  if (code === "ECONNREFUSED") return "nothing listens there (RUNNER_HOST and RUNNER_PORT of that node)"
  if (code === "ETIMEDOUT") return SILENT
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "its host name is not known here"
  if (code === "EHOSTUNREACH" || code === "ENETUNREACH") return `there is no way to it from here (${code})`
  if (!hasSecret) return `the connection fails (${code || error.message})`
  return code === "ECONNRESET" || code === "EPROTO" || code.includes("WRONG_VERSION") || code.includes("PACKET_LENGTH")
    ? "it ends the encrypted connection: it has no RUNNER_SECRET, or another one"
    : "it has another RUNNER_SECRET than this node"
}

const timedOut: NodeJS.ErrnoException = Object.assign(new Error("no connection in time"), { code: "ETIMEDOUT" })

/** One attempt to connect. `opened` is the event that reports success. */
const attempt = (open: () => Socket, opened: string): Effect.Effect<Socket, NodeJS.ErrnoException> =>
  Effect.callback<Socket, NodeJS.ErrnoException>((resume) => {
    const connection = open()
    connection.once(opened, () => resume(Effect.succeed(connection)))
    // The reader handles later errors. Without this listener an error on an unread connection would end the process.
    connection.on("error", (error) => resume(Effect.fail(error)))
    connection.on("close", () => resume(Effect.fail(Object.assign(new Error("closed"), { code: "ECONNRESET" }))))
    return Effect.sync(() => connection.destroy())
  }).pipe(
    Effect.timeoutOrElse({ duration: CONNECT_TIMEOUT, orElse: () => Effect.fail(timedOut) })
  )

/** Whether the error came from this machine or the network. Then it is useless to try another secret. */
const isFromNetwork = ({ code }: NodeJS.ErrnoException): boolean =>
  code !== undefined &&
  ["ECONNREFUSED", "ETIMEDOUT", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"].includes(code)

/**
 * Makes a function that connects to a node by name. It tries each secret of this node in turn, beginning with the
 * secret that it tried last: that one worked, or the node did not respond to it after it had refused the others. It
 * fails with the reason, written for operators.
 */
export const makeDial = (
  { RUNNER_SECRET }: Pick<Settings, "RUNNER_SECRET">
): (node: string) => Effect.Effect<Socket, string> => {
  const ways = RUNNER_SECRET === undefined ? [] : clientTls(RUNNER_SECRET)
  /** The index in `ways` that was tried last for each node. */
  const triedLast = new Map<string, number>()

  const dial = Effect.fnUntraced(function*(node: string) {
    const { host, port } = addressOf(node)
    if (ways.length === 0) return yield* attempt(() => connect({ ...NO_DELAY, host, port }), "connect")
    const first = triedLast.get(node) ?? 0
    let failure: NodeJS.ErrnoException = timedOut
    for (const [i] of ways.entries()) {
      const way = (first + i) % ways.length
      if (triedLast.size >= MAX_REMEMBERED) triedLast.clear()
      triedLast.set(node, way)
      const result = yield* Effect.result(
        attempt(() => connectTls({ ...ways[way], ...NO_DELAY, host, port }), "secureConnect")
      )
      if (result._tag === "Success") return result.success
      failure = result.failure
      if (isFromNetwork(failure)) break
    }
    return yield* Effect.fail(failure)
  })
  return (node) => Effect.mapError(dial(node), (error) => explain(error, RUNNER_SECRET !== undefined))
}
