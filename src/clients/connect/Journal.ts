import { Context, Effect, Layer, Option, Schema } from "effect"
import { chmodSync, closeSync, openSync } from "node:fs"
import { DatabaseSync, type SQLInputValue } from "node:sqlite"
import { BUDGET_WINDOW_MS, type Started } from "./Budget.ts"
import { afterFailure, type Hold, HOLDS, type Reply, type Work } from "./Work.ts"

const VERSION = 1

/** The journal stores no texts of other agents. It stores a reply only until the server has stored the reply. */
const TABLES = `
CREATE TABLE IF NOT EXISTS conversations (
  id TEXT PRIMARY KEY,
  phase TEXT NOT NULL DEFAULT 'idle',
  run TEXT,
  reply TEXT,
  failures INTEGER NOT NULL DEFAULT 0,
  not_before INTEGER NOT NULL DEFAULT 0,
  hold TEXT,
  parked TEXT,
  session TEXT,
  confirm_at INTEGER NOT NULL DEFAULT 0,
  confirm_tries INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS messages (
  id TEXT PRIMARY KEY,
  conversation TEXT NOT NULL,
  seq INTEGER NOT NULL,
  at INTEGER NOT NULL,
  state TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS messages_of ON messages (conversation, seq);
CREATE TABLE IF NOT EXISTS starts (at INTEGER NOT NULL, conversation TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
PRAGMA user_version = ${VERSION};`

/** A message that has arrived. */
export interface Arrival {
  readonly id: string
  readonly conversation: string
  readonly seq: number
}

const Target = Schema.Union([Schema.Struct({ to: Schema.String }), Schema.Struct({ conversation_id: Schema.String })])
const StoredReply = Schema.fromJsonString(
  Schema.Struct({ clientMsgId: Schema.String, to: Target, text: Schema.String, hop: Schema.Int })
)
const Row = Schema.Struct({
  phase: Schema.Literals(["idle", "running", "replying"]),
  run: Schema.NullOr(Schema.String),
  reply: Schema.NullOr(StoredReply),
  failures: Schema.Int,
  not_before: Schema.Int,
  hold: Schema.NullOr(Schema.Literals(HOLDS)),
  parked: Schema.NullOr(Schema.String),
  session: Schema.NullOr(Schema.String),
  confirm_at: Schema.Int,
  confirm_tries: Schema.Int
})
const MessageRow = Schema.Struct({
  id: Schema.String,
  seq: Schema.Int,
  at: Schema.Int,
  state: Schema.Literals(["waiting", "batch", "handled"])
})

const decodeRow = Schema.decodeUnknownSync(Row)
const decodeMessages = Schema.decodeUnknownSync(Schema.Array(MessageRow))
const decodeStarts = Schema.decodeUnknownSync(
  Schema.Array(Schema.Struct({ at: Schema.Int, conversation: Schema.String }))
)
const decodeIds = Schema.decodeUnknownSync(Schema.Array(Schema.Struct({ id: Schema.String })))
const decodeFact = Schema.decodeUnknownOption(Schema.Struct({ value: Schema.String }))
const decodeDataVersion = Schema.decodeUnknownSync(Schema.Struct({ data_version: Schema.Int }))

const encodeReply = Schema.encodeSync(StoredReply)

/**
 * How long after an acknowledgement the connector checks that the server has received it, in milliseconds. The time
 * doubles with each check, up to a minute.
 */
const CONFIRM_MS = 2_000
const confirmAfter = (tries: number): number => Math.min(60_000, CONFIRM_MS * 2 ** Math.min(tries, 5))

const open = (path: string) => {
  // SQLite gives its other files the mode of this file. Earlier versions may have created the journal readable for
  // other users.
  if (path !== ":memory:") {
    closeSync(openSync(path, "a", 0o600))
    chmodSync(path, 0o600)
  }
  const db = new DatabaseSync(path, { timeout: 5_000 })
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON")
  db.exec(TABLES)
  const run = (sql: string, ...values: ReadonlyArray<SQLInputValue>): void => {
    db.prepare(sql).run(...values)
  }
  const all = (sql: string, ...values: ReadonlyArray<SQLInputValue>): ReadonlyArray<unknown> =>
    db.prepare(sql).all(...values)
  const one = (sql: string, ...values: ReadonlyArray<SQLInputValue>): unknown => db.prepare(sql).get(...values)
  /** Runs `change` in a transaction, and returns when the change is on disk. */
  const commit = <A>(change: () => A): Effect.Effect<A> =>
    Effect.sync(() => {
      db.exec("BEGIN IMMEDIATE")
      try {
        const result = change()
        db.exec("COMMIT")
        return result
      } catch (error) {
        db.exec("ROLLBACK")
        throw error
      }
    })
  return { db, run, all, one, commit }
}

const ids = (list: ReadonlyArray<string>): string => JSON.stringify(list)
const AMONG = "id IN (SELECT value FROM json_each(?))"

const make = (path: string) => {
  const { all, commit, db, one, run } = open(path)

  /** Sets a conversation back to `idle`. Messages of its batch that have not been handled wait again. */
  const toIdle = (conversation: string): void => {
    run("UPDATE messages SET state = 'waiting' WHERE conversation = ? AND state = 'batch'", conversation)
    run(
      "UPDATE conversations SET phase = 'idle', run = NULL, reply = NULL, not_before = 0, hold = NULL WHERE id = ?",
      conversation
    )
  }
  const toHandled = (conversation: string, list: ReadonlyArray<string>, now: number): void => {
    run(`UPDATE messages SET state = 'handled' WHERE conversation = ? AND ${AMONG}`, conversation, ids(list))
    run("UPDATE conversations SET confirm_at = ?, confirm_tries = 0 WHERE id = ?", now + confirmAfter(0), conversation)
  }
  const remove = (list: ReadonlyArray<string>): void => run(`DELETE FROM messages WHERE ${AMONG}`, ids(list))
  const holdUntil = (conversation: string, until: number, hold: Hold): void =>
    run("UPDATE conversations SET not_before = ?, hold = ? WHERE id = ?", Math.ceil(until), hold, conversation)

  const read = (conversation: string): { readonly work: Work; readonly run: string | null } | undefined => {
    const found = one("SELECT * FROM conversations WHERE id = ?", conversation)
    if (found === undefined) return undefined
    const row = decodeRow(found)
    const messages = decodeMessages(
      all("SELECT id, seq, at, state FROM messages WHERE conversation = ? ORDER BY seq", conversation)
    )
    const work: Work = {
      conversation,
      phase: row.phase,
      waiting: messages.filter(({ state }) => state === "waiting"),
      batch: messages.filter(({ state }) => state === "batch"),
      reply: row.reply,
      handled: messages.filter(({ state }) => state === "handled"),
      confirm: { at: row.confirm_at, tries: row.confirm_tries },
      failures: row.failures,
      notBefore: row.not_before,
      hold: row.hold,
      parked: row.parked,
      session: row.session
    }
    return { work, run: row.run }
  }

  return Journal.of({
    arrived: (arrivals, now) =>
      commit(() =>
        arrivals.map(({ conversation, id, seq }) => {
          const known = all("SELECT state FROM messages WHERE id = ?", id) as ReadonlyArray<{ readonly state: string }>
          if (known[0] !== undefined) return known[0].state === "handled" ? "handled" : "known"
          run("INSERT INTO conversations (id) VALUES (?) ON CONFLICT DO NOTHING", conversation)
          run(
            "UPDATE conversations SET parked = NULL, failures = 0, not_before = 0, hold = NULL WHERE id = ? AND parked IS NOT NULL",
            conversation
          )
          run(
            "INSERT INTO messages (id, conversation, seq, at, state) VALUES (?, ?, ?, ?, 'waiting')",
            id,
            conversation,
            seq,
            now
          )
          return "new"
        })
      ),
    unfinished: Effect.sync(() =>
      decodeIds(all("SELECT DISTINCT conversation AS id FROM messages")).map(({ id }) => id)
    ),
    work: (conversation) => Effect.sync(() => read(conversation)?.work),
    runOf: (conversation) => Effect.sync(() => read(conversation)?.run ?? null),
    forget: (list) => commit(() => remove(list)),
    handled: (conversation, list, now) => commit(() => toHandled(conversation, list, now)),
    hold: (conversation, until, hold) => commit(() => holdUntil(conversation, until, hold)),
    begin: (conversation, list, name, now) =>
      commit(() => {
        run(
          "UPDATE conversations SET phase = 'running', run = ?, not_before = 0, hold = NULL WHERE id = ?",
          name,
          conversation
        )
        run(`UPDATE messages SET state = 'batch' WHERE conversation = ? AND ${AMONG}`, conversation, ids(list))
        run("DELETE FROM starts WHERE at <= ?", now - BUDGET_WINDOW_MS)
        run("INSERT INTO starts (at, conversation) VALUES (?, ?)", now, conversation)
      }),
    replying: (conversation, reply, session) =>
      commit(() =>
        run(
          "UPDATE conversations SET phase = 'replying', run = NULL, reply = ?, failures = 0, session = ? WHERE id = ?",
          encodeReply(reply),
          session,
          conversation
        )
      ),
    silent: (conversation, session, now) =>
      commit(() => {
        const batch = read(conversation)?.work.batch ?? []
        toHandled(conversation, batch.map(({ id }) => id), now)
        toIdle(conversation)
        run("UPDATE conversations SET failures = 0, session = ? WHERE id = ?", session, conversation)
      }),
    answered: (conversation, list, now) =>
      commit(() => {
        toHandled(conversation, list, now)
        toIdle(conversation)
      }),
    failed: (conversation, why, retrySeconds, now) =>
      commit(() => {
        const failures = (read(conversation)?.work.failures ?? 0) + 1
        const waitMs = afterFailure(failures, retrySeconds)
        toIdle(conversation)
        // Drop the session. If it cannot be resumed, it must not make every later run fail.
        run(
          "UPDATE conversations SET failures = ?, session = NULL, parked = ? WHERE id = ?",
          failures,
          waitMs === null ? why : null,
          conversation
        )
        if (waitMs !== null) holdUntil(conversation, now + waitMs, "retry")
        return waitMs === null
      }),
    release: (conversation, until, hold) =>
      commit(() => {
        toIdle(conversation)
        if (hold !== null) holdUntil(conversation, until, hold)
      }),
    park: (conversation, why) =>
      commit(() => {
        toIdle(conversation)
        run("UPDATE conversations SET parked = ? WHERE id = ?", why, conversation)
      }),
    confirmed: (conversation, list, now) =>
      commit(() => {
        remove(list)
        const tries = (read(conversation)?.work.confirm.tries ?? 0) + 1
        run(
          "UPDATE conversations SET confirm_at = ?, confirm_tries = ? WHERE id = ?",
          now + confirmAfter(tries),
          tries,
          conversation
        )
      }),
    retry: (conversation) =>
      commit(() => {
        const found = read(conversation)
        if (found === undefined) return false
        run(
          "UPDATE conversations SET parked = NULL, failures = 0, not_before = 0, hold = NULL WHERE id = ?",
          conversation
        )
        return true
      }),
    starts: (now) =>
      Effect.sync(() => decodeStarts(all("SELECT at, conversation FROM starts WHERE at > ?", now - BUDGET_WINDOW_MS))),
    fact: (name) =>
      Effect.sync(() =>
        Option.map(decodeFact(one("SELECT value FROM facts WHERE name = ?", name)), ({ value }) => value)
      ),
    setFact: (name, value) =>
      commit(() =>
        value === null
          ? run("DELETE FROM facts WHERE name = ?", name)
          : run(
            "INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name,
            value
          )
      ),
    dataVersion: Effect.sync(() => decodeDataVersion(one("PRAGMA data_version")).data_version),
    close: Effect.sync(() => db.close())
  })
}

/**
 * The state of the connector on disk. Each method is one transaction, and returns when the transaction is on disk.
 * After a crash between any two calls, the rows show what remains to be done. The connector is the only process that
 * runs conversations. `status`, `retry` and `pause` open the same file in other processes.
 */
export class Journal extends Context.Service<Journal, {
  /**
   * Stores messages as waiting. Returns for each message whether it is new, was stored before, or needs only an
   * acknowledgement.
   */
  readonly arrived: (
    arrivals: ReadonlyArray<Arrival>,
    now: number
  ) => Effect.Effect<ReadonlyArray<"new" | "known" | "handled">>
  /** The conversations with messages in the journal. */
  readonly unfinished: Effect.Effect<ReadonlyArray<string>>
  readonly work: (conversation: string) => Effect.Effect<Work | undefined>
  /** The name of the run in a conversation of phase `running`. */
  readonly runOf: (conversation: string) => Effect.Effect<string | null>
  /** Removes messages that this connector has finished. */
  readonly forget: (ids: ReadonlyArray<string>) => Effect.Effect<void>
  /** Marks waiting messages as handled. They need only an acknowledgement. */
  readonly handled: (conversation: string, ids: ReadonlyArray<string>, now: number) => Effect.Effect<void>
  readonly hold: (conversation: string, until: number, hold: Hold) => Effect.Effect<void>
  /** Stores that a run for these messages starts now. */
  readonly begin: (conversation: string, ids: ReadonlyArray<string>, run: string, now: number) => Effect.Effect<void>
  /** Stores that the run has ended with a reply, which has not been sent yet. */
  readonly replying: (conversation: string, reply: Reply, session: string | null) => Effect.Effect<void>
  /** Stores that the run has ended without a reply. */
  readonly silent: (conversation: string, session: string | null, now: number) => Effect.Effect<void>
  /** Stores that the server has the reply to these messages. The other messages of the batch wait again. */
  readonly answered: (conversation: string, ids: ReadonlyArray<string>, now: number) => Effect.Effect<void>
  /**
   * Stores that the run has failed. The run is retried after the next of `retrySeconds`. If no retry is left, parks the
   * conversation and returns true.
   */
  readonly failed: (
    conversation: string,
    why: string,
    retrySeconds: ReadonlyArray<number>,
    now: number
  ) => Effect.Effect<boolean>
  /** Makes the batch wait again without counting a failure. Drops a reply that was not sent. */
  readonly release: (conversation: string, until: number, hold: Hold | null) => Effect.Effect<void>
  readonly park: (conversation: string, why: string) => Effect.Effect<void>
  /**
   * Stores that the server shows these messages as acknowledged. Sets the time of the next check for the other
   * messages.
   */
  readonly confirmed: (conversation: string, ids: ReadonlyArray<string>, now: number) => Effect.Effect<void>
  /** Makes a parked or waiting conversation continue at once. Returns false if the conversation is unknown. */
  readonly retry: (conversation: string) => Effect.Effect<boolean>
  /** The runs that count towards the budgets. */
  readonly starts: (now: number) => Effect.Effect<ReadonlyArray<Started>>
  readonly fact: (name: Fact) => Effect.Effect<Option.Option<string>>
  readonly setFact: (name: Fact, value: string | null) => Effect.Effect<void>
  /** Changes whenever another process has written to the journal. */
  readonly dataVersion: Effect.Effect<number>
  readonly close: Effect.Effect<void>
}>()("parley/connect/Journal") {
  /**
   * Opens the journal in this file. Creates the file if it does not exist. `:memory:` makes a journal that is lost when
   * the process ends.
   */
  static readonly layerAt = (path: string) =>
    Layer.effect(Journal, Effect.acquireRelease(Effect.sync(() => make(path)), ({ close }) => close))
}

/**
 * Facts about the connector. `installation` is its name as a holder of claims. `paused` is set while no run may start.
 */
export type Fact = "installation" | "paused" | "process" | "connected" | "stopped"
