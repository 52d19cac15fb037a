import * as NodeSocket from "@effect/platform-node/NodeSocket"
import { Context, Effect, Layer, Scope } from "effect"
import { type RunnerAddress, Runners } from "effect/cluster"
import { RpcClient, RpcSerialization } from "effect/rpc"
import { Socket } from "effect/socket"
import { connect, type Socket as NetSocket } from "node:net"
import { connect as connectTls } from "node:tls"
import type { Settings } from "../platform/Config.ts"
import { nameOf } from "./NodeAddress.ts"
import { clientTls } from "./NodeSecret.ts"

/** Disables Nagle's algorithm: the second of two small writes would wait for the peer's delayed ACK (40 ms). */
export const AT_ONCE = { noDelay: true }
/** The time-out of one attempt to connect; the call that needs the connection is tried again. */
const PATIENCE = "1 second"
/** The number of nodes whose last connection is remembered. */
const MAX_REMEMBERED = 1_000

/** The results of this node's last attempts to connect to other nodes. */
export class NodeLinks extends Context.Service<NodeLinks, {
  /** Why the last attempt to connect to a node failed, written for operators; undefined: it did not fail. */
  readonly problem: (node: string) => string | undefined
}>()("parley/cluster/NodeLinks") {}

/** What `problem` says of a node that takes no connection in time. */
export const SILENT = "it does not answer within a second"

/** Explains a failed connection to operators, as far as its error code tells. */
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

/** One attempt to connect; `opened` is the event of success. */
const attempt = (open: () => NetSocket, opened: string): Effect.Effect<NetSocket, NodeJS.ErrnoException> =>
  Effect.callback<NetSocket, NodeJS.ErrnoException>((resume) => {
    const connection = open()
    connection.once(opened, () => resume(Effect.succeed(connection)))
    // The reader handles later errors. Without this listener an error on an unread connection would end the process.
    connection.on("error", (error) => resume(Effect.fail(error)))
    connection.on("close", () => resume(Effect.fail(Object.assign(new Error("closed"), { code: "ECONNRESET" }))))
    return Effect.sync(() => connection.destroy())
  }).pipe(
    Effect.timeoutOrElse({ duration: PATIENCE, orElse: () => Effect.fail(timedOut) })
  )

/** Whether the error came from this machine or the network, so that trying another secret is useless. */
const isFromNetwork = ({ code }: NodeJS.ErrnoException): boolean =>
  code !== undefined && ["ECONNREFUSED", "ETIMEDOUT", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"].includes(code)

/** The connections from this node to others. Each tries the secrets in turn, beginning with the one that worked last. */
export const layer = ({ RUNNER_SECRET }: Pick<Settings, "RUNNER_SECRET">) =>
  Layer.effectContext(Effect.gen(function*() {
    const serialization = yield* RpcSerialization.RpcSerialization
    const ways = RUNNER_SECRET === undefined ? [] : clientTls(RUNNER_SECRET)
    const problems = new Map<string, string>()
    /** The index in `ways` that worked last, by node. */
    const preferred = new Map<string, number>()

    const remember = <A>(known: Map<string, A>, node: string, value: A): void => {
      if (known.size >= MAX_REMEMBERED) known.clear()
      known.set(node, value)
    }

    const dial = Effect.fnUntraced(function*(address: RunnerAddress.RunnerAddress) {
      const { host, port } = address
      if (ways.length === 0) return yield* attempt(() => connect({ ...AT_ONCE, host, port }), "connect")
      const node = nameOf(address)
      const first = preferred.get(node) ?? 0
      let failure: NodeJS.ErrnoException = timedOut
      for (const [i] of ways.entries()) {
        const way = (first + i) % ways.length
        const result = yield* Effect.result(attempt(() => connectTls({ ...ways[way], ...AT_ONCE, host, port }), "secureConnect"))
        if (result._tag === "Success") {
          remember(preferred, node, way)
          return result.success
        }
        failure = result.failure
        if (isFromNetwork(failure)) break
      }
      return yield* Effect.fail(failure)
    })

    const open = (address: RunnerAddress.RunnerAddress) =>
      Effect.gen(function*() {
        const node = nameOf(address)
        const connection = yield* dial(address).pipe(
          Effect.mapError((cause) => {
            remember(problems, node, explain(cause, RUNNER_SECRET !== undefined))
            return new Socket.SocketError({ reason: new Socket.SocketOpenError({ kind: "Unknown", cause }) })
          })
        )
        problems.delete(node)
        yield* Scope.addFinalizer(yield* Effect.scope, Effect.sync(() => connection.destroySoon()))
        return connection
      })

    return Context.make(Runners.RpcClientProtocol, {
      codecFor: serialization.codecFor,
      make: Effect.fnUntraced(function*(address: RunnerAddress.RunnerAddress) {
        const socket = yield* NodeSocket.fromDuplex(open(address))
        return yield* RpcClient.makeProtocolSocket().pipe(
          Effect.provideService(Socket.Socket, socket),
          Effect.provideService(RpcSerialization.RpcSerialization, serialization)
        )
      }, Effect.orDie)
    }).pipe(Context.add(NodeLinks, NodeLinks.of({ problem: (node) => problems.get(node) })))
  }))
