import { Database } from "#infrastructure/database/Sql"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** Identifies one attempt of a request. */
export interface AttemptId {
  readonly agentId: string
  readonly key: string
  readonly nonce: Buffer
}

/** A response as it was sent. */
export interface StoredAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** `null` if there is no body. This is different from an empty body. */
  readonly body: Buffer | null
}

export type Claim =
  /** This attempt holds the claim. `createdAt` is when the first attempt began. */
  | { readonly _tag: "Claimed"; readonly createdAt: number }
  | { readonly _tag: "Running" }
  | { readonly _tag: "Conflict" }
  | { readonly _tag: "Done"; readonly answer: StoredAnswer }

interface Row {
  readonly nonce: Buffer
  readonly fingerprint: Buffer
  readonly createdAt: number
  readonly status: number | null
  readonly headers: string | null
  readonly body: Buffer | null
}

interface AnswerColumns {
  readonly status: number
  readonly headers: string
  readonly body: Buffer | null
}

interface AnsweredRow extends AttemptId, AnswerColumns {}

/**
 * All SQL on the table idempotency_keys. A claim is one statement. Of any number of attempts of the same request, in
 * any number of processes, one holds the claim until the attempt ends or the claim lapses. `finish`, `release` and
 * `forget` do nothing after another attempt has taken over.
 */
export class IdempotencyRepo extends Context.Service<IdempotencyRepo, {
  readonly claim: (attempt: AttemptId, request: {
    readonly fingerprint: Buffer
    readonly now: number
    readonly lapsesAt: number
    /** Rows that were created at this time or earlier are expired and count as absent. */
    readonly expired: number
  }) => Effect.Effect<Claim, Unavailable>
  readonly finish: (attempt: AttemptId, answer: StoredAnswer) => Effect.Effect<void, Unavailable>
  /**
   * Immediately allows another attempt of the same request, but no other request with this key, because it is unknown
   * whether the request had an effect.
   */
  readonly release: (attempt: AttemptId) => Effect.Effect<void, Unavailable>
  /** Removes the key of a request that had no effect. */
  readonly forget: (attempt: AttemptId) => Effect.Effect<void, Unavailable>
  /**
   * Returns the end of the next slice of rows that were created after `after`, both in milliseconds, or `null` if there
   * are no more rows.
   */
  readonly slice: (after: number, size: number) => Effect.Effect<number | null, Unavailable>
  /** Returns the responses in a slice whose bodies contain these bytes, each with the attempt that stored it. */
  readonly mentioning: (
    bytes: Buffer,
    after: number,
    last: number
  ) => Effect.Effect<ReadonlyArray<{ readonly attempt: AttemptId; readonly answer: StoredAnswer }>, Unavailable>
}>()("parley/idempotency/IdempotencyRepo") {
  static readonly layer = Layer.effect(
    IdempotencyRepo,
    Effect.gen(function*() {
      const { prepared, query } = yield* Database
      const claim = prepared<Row>("idempotency_claim", CLAIM)
      const finish = prepared("idempotency_finish", FINISH)
      const slice = prepared<{ readonly last: number | null }>("idempotency_slice", SLICE)
      const mentioning = prepared<AnsweredRow>("idempotency_mentioning", MENTIONING)
      return IdempotencyRepo.of({
        claim: ({ agentId, key, nonce }, { expired, fingerprint, lapsesAt, now }) =>
          Effect.flatMap(
            claim([agentId, key, fingerprint, nonce, now, lapsesAt, expired]),
            ([row]) =>
              row === undefined ? Effect.die(new Error("no row")) : Effect.succeed(outcome(row, nonce, fingerprint))
          ),
        finish: ({ agentId, key, nonce }, { body, headers, status }) =>
          Effect.asVoid(finish([agentId, key, nonce, status, JSON.stringify(headers), body])),
        release: ({ agentId, key, nonce }) =>
          Effect.asVoid(query`
            UPDATE idempotency_keys SET lapses_at = 0
            WHERE agent_id = ${agentId} AND key = ${key} AND nonce = ${nonce} AND status IS NULL`),
        forget: ({ agentId, key, nonce }) =>
          Effect.asVoid(query`
            DELETE FROM idempotency_keys WHERE agent_id = ${agentId} AND key = ${key} AND nonce = ${nonce}`),
        slice: (after, size) => Effect.map(slice([after, size]), ([row]) => row?.last ?? null),
        mentioning: (bytes, after, last) =>
          Effect.map(
            mentioning([bytes, after, last]),
            (rows) =>
              rows.map(({ agentId, key, nonce, ...stored }) => ({
                attempt: { agentId, key, nonce },
                answer: answerOf(stored)
              }))
          )
      })
    })
  )
}

const outcome = (row: Row, nonce: Buffer, fingerprint: Buffer): Claim => {
  if (row.nonce.equals(nonce)) return { _tag: "Claimed", createdAt: row.createdAt }
  if (!row.fingerprint.equals(fingerprint)) return { _tag: "Conflict" }
  if (row.status === null || row.headers === null) return { _tag: "Running" }
  return { _tag: "Done", answer: answerOf({ status: row.status, headers: row.headers, body: row.body }) }
}

const answerOf = ({ body, headers, status }: AnswerColumns): StoredAnswer => ({
  status,
  // Safe without a check, because `finish` wrote this text.
  headers: JSON.parse(headers) as Record<string, string>,
  body
})

/** An expired row counts as absent. A lapsed row without a response can be taken over, but only by the same request. */
const EXPIRED = "k.created_at <= $7"
const TAKEN = `(${EXPIRED} OR (k.status IS NULL AND k.lapses_at <= $5 AND k.fingerprint = excluded.fingerprint))`

/**
 * The new time of lapse of a claim that is not taken over. If a claim would lapse later than a new one, it was made
 * before the clock was set back, or by a node whose clock is ahead. The request may still be under way, so the claim
 * gets the lifetime of a new claim.
 */
const LAPSES = `CASE WHEN k.lapses_at > $6 + ${SET_BACK_MS} THEN excluded.lapses_at ELSE k.lapses_at END`

// Updates an existing row even if nothing changes, so that the statement returns the row, even if another session has
// just committed it.
const CLAIM = `
  INSERT INTO idempotency_keys AS k (agent_id, key, fingerprint, nonce, created_at, lapses_at)
  VALUES ($1, $2, $3::bytea, $4::bytea, $5::bigint, $6::bigint)
  ON CONFLICT (agent_id, key) DO UPDATE SET
    fingerprint = CASE WHEN ${EXPIRED} THEN excluded.fingerprint ELSE k.fingerprint END,
    created_at = CASE WHEN ${EXPIRED} THEN excluded.created_at ELSE k.created_at END,
    nonce = CASE WHEN ${TAKEN} THEN excluded.nonce ELSE k.nonce END,
    lapses_at = CASE WHEN ${TAKEN} THEN excluded.lapses_at ELSE ${LAPSES} END,
    status = CASE WHEN ${EXPIRED} THEN NULL ELSE k.status END,
    headers = CASE WHEN ${EXPIRED} THEN NULL ELSE k.headers END,
    body = CASE WHEN ${EXPIRED} THEN NULL ELSE k.body END
  RETURNING nonce, fingerprint, created_at AS "createdAt", status, headers, body`

const FINISH = `
  UPDATE idempotency_keys SET status = $4::integer, headers = $5::text, body = $6::bytea
  WHERE agent_id = $1 AND key = $2 AND nonce = $3::bytea`

/**
 * Reads in the order of the index on `created_at`. This is the order of insertion, so the rows of a slice are next to
 * each other on disk.
 */
const SLICE = `
  SELECT max(created_at) AS last FROM (
    SELECT created_at FROM idempotency_keys WHERE created_at > $1 ORDER BY created_at LIMIT $2
  ) s`

const MENTIONING = `
  SELECT agent_id AS "agentId", key, nonce, status, headers, body FROM idempotency_keys
  WHERE created_at > $2 AND created_at <= $3 AND status IS NOT NULL AND position($1::bytea IN body) > 0`
