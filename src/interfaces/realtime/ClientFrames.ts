import type { CloseReason } from "#domain/agents/Sessions"
import type { Conversations } from "#domain/conversations/Conversations"
import type { Deliveries } from "#domain/deliveries/Deliveries"
import type { Presences } from "#domain/presence/Presences"
import { refusals } from "#infrastructure/platform/Metrics"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { WindowLog } from "#infrastructure/rates/SlidingWindows"
import { exactId, inexactNumber, numberRefused } from "#infrastructure/wire/InexactNumber"
import { isStorableJson } from "#infrastructure/wire/Text"
import { InternalError, type WireFailure } from "#infrastructure/wire/WireError"
import { Effect, Option, Schema } from "effect"
import { clientFrames } from "./Frames.ts"
import { type Asking, hold, letGo, withBackpressure } from "./ReadBackpressure.ts"
import { Refusals, SLOWED_MS } from "./Refusals.ts"
import type { SocketSession } from "./SocketSession.ts"

const FLOODING: CloseReason = { code: 1013, text: "too many refused frames" }

/** The fields of a socket that the handling of its frames needs. */
export interface FrameSource extends Asking {
  readonly socket: Asking["socket"] & { readonly readyState: number }
  /** The id of the socket's upgrade request. All work for the socket's frames is attributed to this request. */
  readonly requestId: string | undefined
  /** When the frames that count towards the limit arrived. */
  frames: WindowLog | undefined
  /**
   * Counts the frames for which the server sent an error. `slowed` is true while the socket is read more slowly because
   * of them.
   */
  refusals: Refusals | undefined
  slowed: boolean
  /**
   * Conversations to be marked as read, each up to a seq. A later mark of a conversation is merged into the waiting
   * mark.
   */
  reads: Map<string, number> | undefined
}

export interface FrameDependencies {
  readonly conversations: Pick<Conversations["Service"], "participation" | "typing">
  readonly deliveries: Pick<Deliveries["Service"], "find" | "readThrough">
  readonly presences: Pick<Presences["Service"], "put">
  readonly framesPerSecond: number
  readonly refusalsPerSecond: number
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number
  /** Runs work for a frame of the socket. */
  readonly fork: (source: FrameSource) => (effect: Effect.Effect<void>) => void
  readonly logDefect: (defect: unknown) => Effect.Effect<void>
}

/** A frame that is a JSON object with a type. */
interface RawFrame {
  readonly type: string
  readonly [key: string]: unknown
}

/** Parses a frame as a JSON object with a type. Returns undefined for any other text. */
export const parseClientFrame = (text: string): RawFrame | undefined => {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string"
      ? value as RawFrame
      : undefined
  } catch {
    return undefined
  }
}

const decodeReadAck = Schema.decodeUnknownOption(clientFrames["message.read_ack"])
const decodeTyping = Schema.decodeUnknownOption(
  Schema.Union([clientFrames["typing.start"], clientFrames["typing.stop"]])
)
const decodePresence = Schema.decodeUnknownOption(clientFrames["presence.update"])

/**
 * Handles the frames of an authenticated socket (wire.md E): runs them, limits their rate, and sends errors for bad
 * frames.
 */
export const makeClientFrames = (deps: FrameDependencies) => {
  const { conversations, deliveries, now, presences } = deps
  const rule: RateRule = { name: "frames", limit: deps.framesPerSecond, windowMs: 1_000, window: "second" }

  /** Sends an error for a frame. Slows down or closes a socket that gets too many errors. */
  const refuse = (
    source: FrameSource,
    session: SocketSession,
    code: string,
    message: string,
    action: string | null,
    id: unknown
  ): void => {
    // The error does not repeat an id that is nested too deep to be serialised.
    const echoed = id !== undefined && isStorableJson(id) ? { id } : {}
    refusals.at("socket", code).add()
    session.event(JSON.stringify({ type: "error", ...echoed, payload: { code, message, action } }))
    if (source.socket.readyState !== 1) return
    const outcome = (source.refusals ??= new Refusals()).add(deps.refusalsPerSecond, now())
    if (outcome === "closed") return session.close(FLOODING)
    if (outcome === "stays" || source.slowed) return
    source.slowed = true
    hold(source)
    deps.fork(source)(Effect.map(Effect.sleep(SLOWED_MS), () => {
      source.slowed = false
      letGo(source)
    }))
  }

  /** Runs the queries of a frame. */
  const run = (source: FrameSource, session: SocketSession, effect: Effect.Effect<void>): void =>
    withBackpressure(source, session.agent, effect, { now, fork: deps.fork(source) })

  /** Runs the queries of a frame. Sends an error for the frame if the queries fail. Logs a defect. */
  const runOrRefuse = (
    source: FrameSource,
    session: SocketSession,
    { id, type }: RawFrame,
    effect: Effect.Effect<unknown, WireFailure>
  ): void =>
    run(
      source,
      session,
      Effect.match(
        Effect.catchDefect(
          effect,
          (defect) => Effect.andThen(deps.logDefect(defect), Effect.fail(new InternalError()))
        ),
        {
          onFailure: ({ code, message }) => refuse(source, session, code, message, type, id),
          onSuccess: () => undefined
        }
      )
    )

  /** Whether the limit allows one more frame of the socket. The limit applies to every period of one second. */
  const mayReceive = (source: FrameSource): boolean => {
    const time = now()
    const frames = source.frames ??= new WindowLog()
    if (frames.wait(rule, time) > 0) return false
    frames.add(rule, time)
    return true
  }

  /** Handles one frame. */
  const receive = (source: FrameSource, session: SocketSession, text: string): void => {
    const frame = parseClientFrame(text)
    const inexact = frame === undefined ? undefined : inexactNumber(text)
    if (frame !== undefined && inexact !== undefined) {
      return refuse(source, session, "VALIDATION_ERROR", numberRefused(inexact).message, frame.type, exactId(frame.id))
    }
    if (frame?.type === "ack") {
      if (typeof frame.message_id !== "string") {
        return refuse(source, session, "VALIDATION_ERROR", "ack needs a message_id", "ack", frame.id)
      }
      const lookUp = session.acknowledge(frame.message_id)
      return lookUp === undefined ? undefined : run(source, session, lookUp)
    }
    if (frame?.type !== "message.read_ack" && !mayReceive(source)) {
      return refuse(source, session, "RATE_LIMITED", "too many frames within a second", frame?.type ?? null, frame?.id)
    }
    if (frame === undefined) {
      return refuse(source, session, "VALIDATION_ERROR", "a frame is a JSON object with a type", null, undefined)
    }
    switch (frame.type) {
      case "ping":
        return session.event(`{"type":"pong"}`)
      case "message.read_ack":
        return readAck(source, session, frame)
      case "typing.start":
      case "typing.stop":
        return typing(source, session, frame)
      case "presence.update":
        return presence(source, session, frame)
      case "message.send":
        return refuse(
          source,
          session,
          "UNSUPPORTED_ACTION",
          "messages are sent with POST /v1/messages",
          frame.type,
          frame.id
        )
      default:
        return refuse(source, session, "UNSUPPORTED_ACTION", "this server knows no such frame", frame.type, frame.id)
    }
  }

  const typing = (source: FrameSource, session: SocketSession, raw: RawFrame): void => {
    const frame = Option.getOrUndefined(decodeTyping(raw))
    if (frame === undefined) {
      return refuse(source, session, "VALIDATION_ERROR", "typing needs a conversation_id", raw.type, raw.id)
    }
    runOrRefuse(
      source,
      session,
      raw,
      conversations.typing(session.agent.id, session.handle, frame.payload.conversation_id, frame.type)
    )
  }

  const presence = (source: FrameSource, session: SocketSession, raw: RawFrame): void => {
    const frame = Option.getOrUndefined(decodePresence(raw))
    if (frame === undefined) {
      return refuse(
        source,
        session,
        "VALIDATION_ERROR",
        "presence needs a status (online, offline or busy) and takes a custom_message of at most 200 characters",
        raw.type,
        raw.id
      )
    }
    runOrRefuse(source, session, raw, presences.put({ id: session.agent.id, handle: session.handle }, frame.payload))
  }

  const readAck = (source: FrameSource, session: SocketSession, raw: RawFrame): void => {
    const frame = Option.getOrUndefined(decodeReadAck(raw))
    const { conversation_id, message_id, through_seq } = frame?.payload ?? {}
    if (conversation_id === undefined || (through_seq === undefined && message_id === undefined)) {
      return refuse(
        source,
        session,
        "VALIDATION_ERROR",
        "message.read_ack needs a conversation_id and a through_seq or message_id",
        raw.type,
        raw.id
      )
    }
    const reads = source.reads ??= new Map()
    const waiting = reads.get(conversation_id)
    if (waiting !== undefined && through_seq !== undefined) {
      reads.set(conversation_id, Math.max(waiting, through_seq))
      return
    }
    reads.set(conversation_id, Math.max(waiting ?? 0, through_seq ?? 0))
    runOrRefuse(
      source,
      session,
      raw,
      Effect.onError(
        markRead(session, reads, conversation_id, message_id),
        () => Effect.sync(() => reads.delete(conversation_id))
      )
    )
  }

  const markRead = Effect.fnUntraced(function*(
    session: SocketSession,
    reads: Map<string, number>,
    conversationId: string,
    messageId: string | undefined
  ) {
    const { agent, handle } = session
    yield* conversations.participation(agent.id, conversationId)
    let named = 0
    if (messageId !== undefined) {
      const found = yield* deliveries.find(agent.id, messageId)
      if (found !== undefined && found.message.conversationId === conversationId) named = found.message.seq
    }
    const through = Math.max(named, reads.get(conversationId) ?? 0)
    reads.delete(conversationId)
    if (through > 0) yield* deliveries.readThrough(agent.id, handle, conversationId, through)
  })

  return { receive, refuse }
}
