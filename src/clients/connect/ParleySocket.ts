import { Context, Data, Effect, Layer, Option, Queue, Schema } from "effect"
import type { WebSocket } from "ws"
import { Message } from "./Mail.ts"
import { KeyRefused } from "./ParleyApi.ts"

/** The socket was closed or could not be opened. */
class Disconnected extends Data.TaggedError("Disconnected")<{ readonly reason: string }> {}

/** An event of the socket. */
export type Event =
  | { readonly _tag: "Connected"; readonly handle: string }
  | { readonly _tag: "Mail"; readonly message: Message }
  | { readonly _tag: "Disconnected"; readonly reason: string }

const Hello = Schema.Struct({ type: Schema.Literal("hello.ok"), agent: Schema.Struct({ handle: Schema.String }) })
const New = Schema.Struct({ type: Schema.Literal("message.new"), payload: Message })
const decodeFrame = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Union([Hello, New])))

/** After how many milliseconds without a frame or ping the connection counts as dead. The server pings every 30 s. */
const SILENCE_TIMEOUT_MS = 75_000
const HANDSHAKE_TIMEOUT_MS = 20_000
const FIRST_RETRY_MS = 1_000
const MAX_RETRY_MS = 30_000
/** How many events may wait. While the queue is full, the connector does not read from the socket. */
const MAX_EVENTS = 256
/** The close code with which the server refuses a key or an agent (wire.md E.4). */
const POLICY_VIOLATION = 1008
const MAX_FRAME_BYTES = 1_048_576

/**
 * The socket of the connector, in acknowledging mode (wire.md E.2). The server keeps a message until `acknowledge`, and
 * offers it again at the next connect. The socket reconnects until the server refuses the key.
 */
export class ParleySocket extends Context.Service<ParleySocket, {
  /** Waits for at least one event and takes all waiting events. Fails after the server has refused the key. */
  readonly take: Effect.Effect<ReadonlyArray<Event>, KeyRefused>
  /**
   * Sends acknowledgements if the socket is open. Otherwise the server offers the messages again at the next connect.
   */
  readonly acknowledge: (ids: ReadonlyArray<string>) => Effect.Effect<void>
}>()("parley/connect/ParleySocket") {
  static readonly layer = ({ key, server }: { readonly key: string; readonly server: string }) =>
    Layer.effect(
      ParleySocket,
      Effect.gen(function*() {
        const events = yield* Queue.unbounded<Event, KeyRefused>()
        let current: WebSocket | undefined
        const ws = yield* Effect.promise(() => import("ws"))

        const once = Effect.callback<void, Disconnected | KeyRefused>((resume) => {
          const socket = new ws.WebSocket(`${server.replace(/^http/, "ws")}/v1/ws`, {
            handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
            maxPayload: MAX_FRAME_BYTES
          })
          let greeted = false
          let silence: NodeJS.Timeout | undefined
          const alive = (): void => {
            clearTimeout(silence)
            silence = setTimeout(() => socket.terminate(), SILENCE_TIMEOUT_MS)
          }
          socket.on("open", () => {
            alive()
            socket.send(
              JSON.stringify({ type: "hello", api_key: key, capabilities: ["ack"], client: "parley_connect" })
            )
          })
          socket.on("ping", alive)
          socket.on("message", (data) => {
            alive()
            const frame = Option.getOrUndefined(decodeFrame(String(data)))
            if (frame === undefined) return
            if (frame.type === "hello.ok") {
              greeted = true
              current = socket
              Queue.offerUnsafe(events, { _tag: "Connected", handle: frame.agent.handle })
            } else if (greeted) {
              Queue.offerUnsafe(events, { _tag: "Mail", message: frame.payload })
              if (Queue.sizeUnsafe(events) >= MAX_EVENTS) socket.pause()
            }
          })
          let problem = ""
          socket.on("error", (error) => (problem = error.message))
          socket.on("close", (code, reason) => {
            clearTimeout(silence)
            if (current === socket) current = undefined
            const why = String(reason) || problem || `closed with ${code}`
            if (code === POLICY_VIOLATION) return resume(Effect.fail(new KeyRefused({ reason: why })))
            // After a connection that worked, reconnect at once. After any other failure, wait first.
            resume(
              greeted
                ? Effect.sync(() => void Queue.offerUnsafe(events, { _tag: "Disconnected", reason: why }))
                : Effect.fail(new Disconnected({ reason: why }))
            )
          })
          return Effect.sync(() => {
            clearTimeout(silence)
            socket.close()
            socket.terminate()
          })
        })

        const forever = Effect.gen(function*() {
          for (let failures = 0;;) {
            const failed = yield* Effect.match(
              once.pipe(Effect.catchTag("KeyRefused", (refused) => Effect.as(Queue.fail(events, refused), refused))),
              {
                onFailure: (error) => error,
                onSuccess: (refused) => refused
              }
            )
            if (failed?._tag === "KeyRefused") return
            failures = failed === undefined ? 0 : failures + 1
            if (failed !== undefined) Queue.offerUnsafe(events, { _tag: "Disconnected", reason: failed.reason })
            const longest = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(failures, 6))
            // Randomize the delay, so that many connectors do not reconnect to a restarted server at the same moment.
            yield* Effect.sleep(longest * (0.5 + Math.random() / 2))
          }
        })
        yield* Effect.forkScoped(forever)

        return ParleySocket.of({
          take: Queue.takeAll(events).pipe(
            Effect.tap(() => Effect.sync(() => current?.isPaused === true && current.resume()))
          ),
          acknowledge: (ids) =>
            Effect.sync(() => {
              if (current?.readyState !== ws.WebSocket.OPEN) return
              for (const id of ids) current.send(JSON.stringify({ type: "ack", message_id: id }))
            })
        })
      })
    )
}
