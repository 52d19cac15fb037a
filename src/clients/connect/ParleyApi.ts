import { Context, Data, Effect, Layer, Option, Schema } from "effect"
import { Message } from "./Mail.ts"

/** The server no longer accepts the key, or the agent is suspended. The connector stops. */
export class KeyRefused extends Data.TaggedError("KeyRefused")<{ readonly reason: string }> {}

/**
 * There was no usable response, because the server or the network has failed or a limit is exceeded. The call may be
 * retried.
 */
export class Unreachable
  extends Data.TaggedError("Unreachable")<{ readonly reason: string; readonly retryAfterMs: number | null }> {}

/** The server has refused the call. A retry would be refused too. */
export class CallRefused extends Data.TaggedError("Refused")<{ readonly code: string; readonly status: number }> {}

export type Failure = KeyRefused | Unreachable | CallRefused

/** The result of a claim (wire.md L). The connector may answer the first `count` of the messages. */
export interface Claim {
  readonly count: number
  readonly deferred: boolean
  /** In seconds. */
  readonly expiresIn: number
}

export interface Sent {
  readonly message: Message
  /** Whether the server had already stored a message with this `client_msg_id`. */
  readonly replayed: boolean
}

/** The time-out of a call, in milliseconds. The server responds to a send within 6 s, if need be with 503. */
const REQUEST_TIMEOUT_MS = 15_000
const PAGE_SIZE = 200
/** How many pages of history are read for one batch at most. A reply to a message is usually close to the message. */
const MAX_PAGES = 10

const ErrorBody = Schema.Struct({ code: Schema.String, message: Schema.String })
const ClaimBody = Schema.Struct({ claimed_count: Schema.Int, deferred: Schema.Boolean, expires_in: Schema.Number })
const ContactBody = Schema.Struct({ is_contact: Schema.Boolean })
const AgentBody = Schema.Struct({ handle: Schema.String })

const decodeError = Schema.decodeUnknownOption(ErrorBody)

interface Call {
  readonly method: "GET" | "POST"
  readonly path: string
  readonly body?: unknown
}

interface Answer {
  readonly replayed: boolean
  readonly body: unknown
}

/** The part of the server's public API that the connector uses (wire.md C and L). */
export class ParleyApi extends Context.Service<ParleyApi, {
  /** The handle of the key's agent. */
  readonly handle: Effect.Effect<string, Failure>
  /** Claims messages, oldest first. With `defer`, claims nothing while a live session of the agent holds a lease. */
  readonly claim: (ids: ReadonlyArray<string>, holder: string, defer: boolean) => Effect.Effect<Claim, Failure>
  /**
   * The messages of a conversation from this seq on, oldest first. Empty if the agent is no longer part of the
   * conversation.
   */
  readonly history: (conversation: string, fromSeq: number) => Effect.Effect<ReadonlyArray<Message>, Failure>
  readonly isContact: (handle: string) => Effect.Effect<boolean, Failure>
  readonly send: (body: unknown) => Effect.Effect<Sent, Failure>
}>()("parley/connect/ParleyApi") {
  static readonly layer = ({ key, server }: { readonly key: string; readonly server: string }) => {
    const call = Effect.fnUntraced(function*({ body, method, path }: Call) {
      const { response, text } = yield* Effect.tryPromise({
        try: async (signal) => {
          const response = await fetch(`${server}${path}`, {
            method,
            headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
            redirect: "error",
            signal: AbortSignal.any([signal, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]),
            ...(body === undefined ? {} : { body: JSON.stringify(body) })
          })
          return { response, text: await response.text() }
        },
        catch: (error) => new Unreachable({ reason: reasonOf(error), retryAfterMs: null })
      })
      const json = parse(text)
      if (response.ok && json !== undefined) {
        return { replayed: response.headers.get("idempotent-replay") === "true", body: json } satisfies Answer
      }
      const { status } = response
      const code = Option.getOrElse(Option.map(decodeError(json), (error) => error.code), () => `HTTP ${status}`)
      if (status === 401 || code === "AGENT_SUSPENDED") return yield* new KeyRefused({ reason: code })
      // A reply that comes a day late helps nobody: a conversation at its budget is parked.
      const isPassing = status >= 500 || (status === 429 && code !== "BUDGET_EXCEEDED") || status === 408
      if (isPassing || response.ok) {
        const seconds = Number(response.headers.get("retry-after") ?? Number.NaN)
        return yield* new Unreachable({ reason: code, retryAfterMs: seconds > 0 ? seconds * 1_000 : null })
      }
      return yield* new CallRefused({ code, status })
    })

    const read = <S extends Schema.ConstraintDecoder<unknown>>(schema: S) => {
      const decode = Schema.decodeUnknownOption(schema)
      return ({ body }: Answer): Effect.Effect<S["Type"], Unreachable> =>
        Option.match(decode(body), {
          onNone: () =>
            Effect.fail(new Unreachable({ reason: "the answer is not that of a Parley server", retryAfterMs: null })),
          onSome: Effect.succeed
        })
    }
    const readClaim = read(ClaimBody)
    const readContact = read(ContactBody)
    const readAgent = read(AgentBody)
    const readMessage = read(Message)
    const readMessages = read(Schema.Array(Message))

    return Layer.succeed(ParleyApi, {
      handle: call({ method: "GET", path: "/v1/agents/me" }).pipe(
        Effect.flatMap(readAgent),
        Effect.map(({ handle }) => handle)
      ),
      claim: (ids, holder, defer) =>
        call({
          method: "POST",
          path: "/v1/reply/claim-batch",
          body: { message_ids: ids, holder, defer_if_active: defer }
        }).pipe(
          Effect.flatMap(readClaim),
          Effect.map(({ claimed_count, deferred, expires_in }) => ({
            count: claimed_count,
            deferred,
            expiresIn: expires_in
          }))
        ),
      history: Effect.fnUntraced(function*(conversation: string, fromSeq: number) {
        const messages: Array<Message> = []
        for (let page = 0, after = fromSeq - 1; page < MAX_PAGES; page++) {
          const path = `/v1/messages/${encodeURIComponent(conversation)}?after_seq=${after}&limit=${PAGE_SIZE}`
          const got = yield* Effect.flatMap(call({ method: "GET", path }), readMessages)
          messages.push(...got)
          after = got.at(-1)?.seq ?? after
          if (got.length < PAGE_SIZE) break
        }
        return messages
      }, (effect) => Effect.catchIf(effect, isGone, () => Effect.succeed<ReadonlyArray<Message>>([]))),
      isContact: (handle) =>
        call({ method: "GET", path: `/v1/contacts/${encodeURIComponent(handle)}` }).pipe(
          Effect.flatMap(readContact),
          Effect.map(({ is_contact }) => is_contact)
        ),
      send: (body) =>
        Effect.flatMap(
          call({ method: "POST", path: "/v1/messages", body }),
          (answer) => Effect.map(readMessage(answer), (message) => ({ message, replayed: answer.replayed }))
        )
    })
  }
}

const isGone = (failure: Failure): failure is CallRefused =>
  failure._tag === "Refused" && (failure.status === 404 || failure.status === 410)

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const reasonOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? error.cause.message : error.message
}
