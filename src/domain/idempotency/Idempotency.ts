import { CurrentAgent } from "#domain/auth/Authorization"
import { STATEMENT_TIMEOUT_MILLIS } from "#infrastructure/database/SqlValues"
import { RawBody } from "#infrastructure/http/EndpointOptions"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { Unavailable, WireError } from "#infrastructure/wire/WireError"
import { answer } from "#infrastructure/wire/WireErrors"
import { ByteSize, Clock, Context, Effect, Fiber, FiberSet, Layer } from "effect"
import { HttpIncomingMessage, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"
import type { unhandled } from "effect/Types"
import { hash } from "node:crypto"
import { type AttemptId, IdempotencyRepo, type StoredAnswer } from "./IdempotencyRepo.ts"
import { CurrentAttempt } from "./IdempotentIds.ts"

export class IdempotencyKeyInvalid extends WireError<IdempotencyKeyInvalid>()("IdempotencyKeyInvalid", {
  code: "IDEMPOTENCY_KEY_INVALID",
  status: 400,
  message: "An Idempotency-Key is 1 to 255 printable ASCII characters."
}) {}

export class IdempotentInProgress extends WireError<IdempotentInProgress>()("IdempotentInProgress", {
  code: "IDEMPOTENT_IN_PROGRESS",
  status: 409,
  message: "The first request with this Idempotency-Key is still in progress: repeat the request in a moment.",
  retryAfterMs: 1000
}) {}

export class IdempotencyKeyConflict extends WireError<IdempotencyKeyConflict>()("IdempotencyKeyConflict", {
  code: "IDEMPOTENCY_KEY_CONFLICT",
  status: 422,
  message: "This Idempotency-Key was used for another request: use a new key for a new request."
}) {}

type Refusal = IdempotencyKeyInvalid | IdempotentInProgress | IdempotencyKeyConflict | Unavailable

/**
 * Annotates an endpoint with the status of a refusal that is not stored, because a repeated request may succeed soon
 * afterwards.
 */
export const UnstoredStatus = Context.Reference<number | undefined>("parley/idempotency/Idempotency/UnstoredStatus", {
  defaultValue: () => undefined
})

/**
 * How long the last statement of an interrupted handler may still be under way, on the network and in the database, in
 * milliseconds.
 */
const LAST_STATEMENT_MILLIS = 5_000 + STATEMENT_TIMEOUT_MILLIS

/** After which time the handler of a request with a key is interrupted, in milliseconds. */
const deadlineMillis = (config: Settings): number => config.IDEMPOTENCY_DEADLINE_SECONDS * 1_000

/** After which time an attempt that has not ended counts as abandoned, in milliseconds. */
export const lapseMillis = (config: Settings): number => deadlineMillis(config) + LAST_STATEMENT_MILLIS

/** How long a response is delayed at most while it is being stored, in milliseconds. */
const FINISH_TIMEOUT_MS = 5_000

const HOUR_MS = 3_600_000

const KEY = /^[ -~]{1,255}$/

/**
 * Returns the bytes of a response's body, `null` if there is no body, or undefined if the body is a stream or has
 * another form that cannot be stored.
 */
const bytesOf = ({ body }: HttpServerResponse.HttpServerResponse): Buffer | null | undefined =>
  body._tag === "Empty" ? null : body._tag === "Uint8Array" ? Buffer.from(body.body) : undefined

/** The header of a response to a repeated request whose effect had already taken place (wire.md C.0, Idempotency). */
export const REPLAYED = { "idempotent-replay": "true" }

const replay = ({ body, headers, status }: StoredAnswer): HttpServerResponse.HttpServerResponse => {
  const options = { status, headers: { ...headers, ...REPLAYED } }
  return body === null ? HttpServerResponse.empty(options) : HttpServerResponse.uint8Array(body, options)
}

/**
 * Gives repeated requests with the same Idempotency-Key one effect and one response (wire.md C.0, Idempotency). Put
 * this middleware on every endpoint that changes something for an agent, before the group's `Authorization`. The
 * exception is an endpoint whose response contains an API key, because keys must not be stored.
 *
 * A claimed request runs to its end even if the client disconnects, so that a repeat finds the response. If the process
 * crashes, the same request may be attempted again after `lapseMillis`. So handlers must tolerate a second attempt:
 * they take the ids of created rows from `IdempotentIds`.
 *
 * The middleware reads the body of a request with a key before the handler does. So the handler of an endpoint with a
 * RawBody must use `request.arrayBuffer`, which caches the body, and not the stream.
 */
export class Idempotency extends HttpApiMiddleware.Service<Idempotency, { requires: CurrentAgent }>()(
  "parley/idempotency/Idempotency",
  { error: [IdempotencyKeyInvalid, IdempotentInProgress, IdempotencyKeyConflict, Unavailable] }
) {
  static readonly layer = Layer.effect(
    Idempotency,
    Effect.gen(function*() {
      const config = yield* Config
      const ids = yield* Ids
      const repo = yield* IdempotencyRepo
      const retentionMs = config.IDEMPOTENCY_RETENTION_HOURS * HOUR_MS

      const work = yield* FiberSet.make<HttpServerResponse.HttpServerResponse, Refusal>()
      yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(FiberSet.awaitEmpty(work), "5 seconds")))

      /**
       * Ends a claim: stores the response, releases the claim (5xx), or removes the key (401, 429, and the status of
       * `UnstoredStatus`). If this fails, the claim lapses.
       */
      const settle = (
        attempt: AttemptId,
        response: HttpServerResponse.HttpServerResponse,
        unstored: number | undefined
      ) => {
        const { status } = response
        const body = bytesOf(response)
        const settled = status >= 500 || body === undefined
          ? repo.release(attempt)
          : status === 429 || status === 401 || status === unstored
          ? repo.forget(attempt)
          : repo.finish(attempt, { status, headers: { ...response.headers }, body })
        return settled.pipe(
          Effect.timeout(FINISH_TIMEOUT_MS),
          Effect.catchCause((cause) =>
            Effect.logWarning("The response to a request with an Idempotency-Key could not be stored", cause)
          )
        )
      }

      const run = <E, R>(
        httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>,
        attempt: AttemptId,
        claim: { readonly createdAt: number; readonly begunAt: number },
        unstored: number | undefined
      ) =>
        Effect.gen(function*() {
          const left = claim.begunAt + deadlineMillis(config) - (yield* Clock.currentTimeMillis)
          if (left <= 0) return yield* new Unavailable()
          let late = false
          const response = yield* httpEffect.pipe(
            Effect.timeoutOrElse({
              duration: left,
              orElse: () => {
                late = true
                return Effect.fail(new Unavailable())
              }
            }),
            Effect.provideService(CurrentAttempt, {
              agentId: attempt.agentId,
              key: attempt.key,
              createdAt: claim.createdAt
            }),
            Effect.catchCause((cause) => answer(cause))
          )
          // An interrupted handler may still have a statement under way, so do not end its claim before it lapses.
          if (!late) yield* settle(attempt, response, unstored)
          return response
        })

      const keyed = <E>(
        httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, E>,
        request: HttpServerRequest.HttpServerRequest,
        key: string,
        rawBody: RawBody | undefined,
        unstored: number | undefined
      ) =>
        Effect.gen(function*() {
          if (!KEY.test(key)) return yield* new IdempotencyKeyInvalid()
          const agent = yield* CurrentAgent
          const body = typeof rawBody !== "number"
            ? yield* Effect.orDie(request.text)
            : new Uint8Array(
              yield* request.arrayBuffer.pipe(
                Effect.orDie,
                Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(rawBody))
              )
            )
          const [path = ""] = request.url.split(/[?#]/, 1)
          const fingerprint = hash(
            "sha256",
            Buffer.concat([Buffer.from(`${request.method} ${path}\n`), Buffer.from(body)]),
            "buffer"
          )
          const attempt = { agentId: agent.id, key, nonce: ids.bytes(16) }
          const fiber = yield* FiberSet.run(
            work,
            Effect.gen(function*() {
              const now = yield* Clock.currentTimeMillis
              const claim = yield* repo.claim(attempt, {
                fingerprint,
                now,
                lapsesAt: now + lapseMillis(config),
                expired: now - retentionMs
              })
              switch (claim._tag) {
                case "Claimed":
                  return yield* run(httpEffect, attempt, { createdAt: claim.createdAt, begunAt: now }, unstored)
                case "Running":
                  return yield* new IdempotentInProgress()
                case "Conflict":
                  return yield* new IdempotencyKeyConflict()
                case "Done":
                  return replay(claim.answer)
              }
            })
          )
          return yield* Fiber.join(fiber)
        })

      return (httpEffect, { endpoint }) => {
        const rawBody = Context.get(endpoint.annotations, RawBody)
        const unstored = Context.get(endpoint.annotations, UnstoredStatus)
        return Effect.withFiber<HttpServerResponse.HttpServerResponse, unhandled | Refusal, CurrentAgent>((fiber) => {
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const key = request.headers["idempotency-key"]
          return key === undefined ? httpEffect : keyed(httpEffect, request, key, rawBody, unstored)
        })
      }
    })
  )
}
