import { Database } from "#infrastructure/database/Sql"
import { Blobs } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { Mailer } from "#infrastructure/platform/Mailer"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Redis } from "#infrastructure/platform/Redis"
import { Clock, Context, Effect, Layer } from "effect"
import { NodeSampler } from "./NodeSampler.ts"
import type { DatabasePart, Part } from "./Overview.ts"

/**
 * How long a dependency may take to respond before it counts as down. It is shorter than the time within which a node
 * must respond to another node.
 */
const PROBE_TIMEOUT = "800 millis"
/** After how many milliseconds a response counts as slow. */
const SLOW_MS = 250
/** How old a shown state may be. The database and Redis are probed for each event of a stream, once a second. */
const DATABASE_CHECK_AGE = "500 millis"
const OTHER_CHECK_AGE = "10 seconds"
/** The name of an object that is never stored. The probe checks that the store reports the object as not existing. */
const NOTHING = "console/nothing"

interface DatabaseRow {
  readonly locked: boolean
  readonly size: number
  readonly connections: number
  readonly connections_max: number
  readonly oldest: number | null
}

const LOCKED = "It accepts no writes: DATABASE_URL leads to a standby, or the database is read-only."

const DATABASE = `
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS locked,
  pg_database_size(current_database()) AS size,
  (SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()) AS connections,
  current_setting('max_connections')::int AS connections_max,
  (SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
    WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()) AS oldest`

/** The state of the dependencies of this node. Each probe has a time-out, and concurrent requests share one probe. */
export class Dependencies extends Context.Service<Dependencies, {
  readonly database: Effect.Effect<DatabasePart>
  readonly redis: Effect.Effect<Part>
  readonly files: Effect.Effect<Part>
  readonly mail: Effect.Effect<Part>
}>()("parley/operator/Dependencies") {
  static readonly layer = Layer.effect(
    Dependencies,
    Effect.gen(function*() {
      const blobs = yield* Blobs
      const config = yield* Config
      const database = yield* Database
      const mailer = yield* Mailer
      const sampler = yield* NodeSampler
      const redis = config.REDIS_URL === undefined
        ? undefined
        : (yield* Effect.provide(Redis, Redis.layer)).channel("console")
      const now = monotonicMillis(yield* Clock.Clock)

      /** Runs a probe and returns the state of the dependency. `down` explains a failure. */
      const look = <A, E>(
        kind: string,
        effect: Effect.Effect<A, E>,
        words: { readonly ok: string; readonly down: (error: E | undefined) => string }
      ): Effect.Effect<{ readonly part: Part; readonly answer: A | undefined }> =>
        Effect.suspend(() => {
          const began = now()
          return Effect.match(Effect.timeoutOption(effect, PROBE_TIMEOUT), {
            onFailure: (error) => ({
              part: { state: "down" as const, words: words.down(error), kind, answer_ms: null },
              answer: undefined
            }),
            onSuccess: (answer) => {
              const took = Math.round((now() - began) * 10) / 10
              if (answer._tag === "None") {
                return {
                  part: { state: "down" as const, words: words.down(undefined), kind, answer_ms: null },
                  answer: undefined
                }
              }
              const slow = took > SLOW_MS
              return {
                part: {
                  state: slow ? "slow" as const : "ok" as const,
                  words: slow ? `It responds, but takes ${Math.round(took)} ms.` : words.ok,
                  kind,
                  answer_ms: took
                },
                answer: answer.value
              }
            }
          })
        })

      const driver = database.driver === "pg" ? "PostgreSQL" : "PGlite"
      const databasePart = look(driver, database.probe<DatabaseRow>(DATABASE), {
        ok: "It responds and accepts writes.",
        down: () => "It does not respond: until it does, no message is accepted."
      }).pipe(Effect.map(({ answer, part }): DatabasePart => {
        const row = answer?.[0]
        const isShared = database.driver === "pg"
        const isLocked = row?.locked === true
        return {
          ...part,
          ...isLocked ? { state: "down" as const, words: LOCKED } : {},
          size_bytes: row?.size ?? null,
          connections: isShared ? row?.connections ?? null : null,
          connections_max: isShared ? row?.connections_max ?? null : null,
          oldest_transaction_seconds: isShared ? row?.oldest ?? null : null,
          batch_ms: sampler.batchMs()
        }
      }))

      const off = (words: string): Effect.Effect<Part> =>
        Effect.succeed({ state: "off", words, kind: "none", answer_ms: null })

      return Dependencies.of({
        database: yield* Effect.cachedWithTTL(databasePart, DATABASE_CHECK_AGE),
        redis: redis === undefined
          ? off("Not used: this server counts rates and presence alone.")
          : yield* Effect.cachedWithTTL(
            Effect.map(
              look("Redis", redis.command("PING"), {
                ok: "It responds.",
                down: () => "It does not respond: until it does, each node counts rates and presence alone."
              }),
              ({ part }) => part
            ),
            DATABASE_CHECK_AGE
          ),
        files: yield* Effect.cachedWithTTL(
          Effect.map(
            look(config.S3_BUCKET === undefined ? "folder" : "S3", blobs.getObject(NOTHING), {
              ok: "It responds.",
              down: () => "It does not respond: until it does, uploads, downloads and pictures are refused."
            }),
            ({ part }) => part
          ),
          OTHER_CHECK_AGE
        ),
        mail: yield* Effect.cachedWithTTL(
          Effect.map(
            look(config.SMTP_URL === undefined ? "outbox" : "SMTP", mailer.ready, {
              ok: config.SMTP_URL === undefined
                ? "Mails are files in a folder: nobody gets them but you."
                : "The mail server takes mail.",
              down: (error) =>
                `It accepts no e-mail${
                  error === undefined ? "" : ` (${error.reason})`
                }: nobody can register, recover or rotate a key until it does.`
            }),
            ({ part }) => part
          ),
          OTHER_CHECK_AGE
        )
      })
    })
  )
}
