import { LiveAgents } from "#domain/push/LiveAgents"
import { Database } from "#infrastructure/database/Sql"
import { iso } from "#infrastructure/wire/Text"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Option, Schema } from "effect"
import { AuditLog, type Because } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

/** For how long the bytes of a quarantined file are kept, in milliseconds. */
const QUARANTINE_MS = 30 * 86_400_000

/** How long a released file that no message uses stays at least, in milliseconds. */
const RELEASED_MS = 86_400_000

const EMPTY = "{}"

/** An id, which says nothing. */
const Id = Schema.String.check(Schema.isPattern(/^[\w:.-]{1,64}$/))

/** The metadata that stay with a removed message: what it answers, what caused it, and its A2A task. */
const Kept = Schema.Struct({
  reply_to: Schema.optionalKey(Id),
  caused_by: Schema.optionalKey(Id),
  hops: Schema.optionalKey(Schema.Int),
  a2a: Schema.optionalKey(Schema.Struct({
    task_id: Schema.optionalKey(Id),
    context_id: Schema.optionalKey(Id),
    state: Schema.optionalKey(Id),
    message_id: Schema.optionalKey(Id)
  }))
})

/** The metadata of the removed message as JSON text. */
const metadataAfter = (metadata: string, at: number): string => {
  const before = JSON.parse(metadata) as Readonly<Record<string, unknown>>
  // Each field on its own, so that a field with another shape does not take the others along.
  const kept = Object.keys(Kept.fields).map((name) =>
    Option.getOrElse(Schema.decodeUnknownOption(Kept)(name in before ? { [name]: before[name] } : {}), () => ({}))
  )
  return JSON.stringify(Object.assign({ removed: { by: "operator", at: iso(at) } }, ...kept))
}

/** Removes messages and hides files for all agents (wire.md T). The audit row of each action is committed with it. */
export class Removals extends Context.Service<Removals, {
  /**
   * Removes a message. The row keeps its id, seq, sender and times. Its content becomes empty, as no sender's can be,
   * and its metadata say who removed it. The outcomes that its recipients reported lose their reasons. Everything that
   * shows messages reads the row, so retries of the send, waiting webhooks and exports show the same.
   */
  readonly message: (id: string, because: Because) => Effect.Effect<void, NotFound | Conflict | Unavailable>
  /** Hides a file from all agents. The sweep of uploads deletes it after 30 days, unless it is released before. */
  readonly file: (id: string, because: Because) => Effect.Effect<void, NotFound | Unavailable>
  /** Shows a quarantined file again. */
  readonly releaseFile: (id: string, because: Because) => Effect.Effect<void, NotFound | Unavailable>
}>()("parley/operator/Removals") {
  static readonly layer = Layer.effect(
    Removals,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const liveAgents = yield* LiveAgents
      const { query, transaction } = yield* Database

      const wordsGone = (conversationId: string, seq: number) =>
        query`DELETE FROM message_words WHERE conversation_id = ${conversationId} AND seq = ${seq}`

      const detailOf = (id: string, reason: string | null) => reason === null ? id : `${id}: ${reason}`

      return Removals.of({
        message: Effect.fn("Removals.message")(function*(messageId, { operator, reason }) {
          const at = yield* Clock.currentTimeMillis
          const removed = yield* transaction(Effect.gen(function*() {
            const [message] = yield* query<{
              conversation_id: string
              seq: number
              type: string
              content: string
              metadata: string
              sender: string
              agents: ReadonlyArray<string>
            }>`
              SELECT m.conversation_id, m.seq, m.type, m.content, m.metadata, a.handle AS sender,
                ARRAY(SELECT p.agent_id FROM participants p WHERE p.conversation_id = m.conversation_id) AS agents
              FROM messages m JOIN agents a ON a.id = m.sender_id
              WHERE m.id = ${messageId} FOR NO KEY UPDATE OF m`
            if (message === undefined || message.type === "system") {
              return yield* new NotFound({
                message: message === undefined ? "There is no such message." : "System messages cannot be removed."
              })
            }
            if (message.content === EMPTY)
              return yield* new Conflict({ message: "The message is removed already." })
            yield* query`
              UPDATE messages SET content = ${EMPTY}, metadata = ${metadataAfter(message.metadata, at)}
              WHERE id = ${messageId}`
            yield* wordsGone(message.conversation_id, message.seq)
            yield* query`
              DELETE FROM reactions WHERE conversation_id = ${message.conversation_id} AND seq = ${message.seq}`
            yield* query`
              UPDATE outcomes SET reason = NULL
              WHERE conversation_id = ${message.conversation_id} AND seq = ${message.seq} AND reason IS NOT NULL`
            yield* audit.note({
              operator,
              action: "remove message",
              handle: message.sender,
              detail: detailOf(messageId, reason)
            })
            return message
          }))
          const frame = JSON.stringify({
            type: "message.removed",
            payload: { message_id: messageId, conversation_id: removed.conversation_id, seq: removed.seq }
          })
          for (const agentId of removed.agents) liveAgents.push(agentId, { _tag: "Event", frame })
          // A process that has read the message before may have added its words meanwhile.
          yield* Effect.ignore(wordsGone(removed.conversation_id, removed.seq))
        }, Effect.uninterruptible),

        file: Effect.fn("Removals.file")(function*(id, { operator, reason }) {
          const now = yield* Clock.currentTimeMillis
          yield* transaction(Effect.gen(function*() {
            const [file] = yield* query<{ readonly handle: string }>`
              UPDATE attachments f SET condemned = true, quarantined_at = ${now}, look_at = ${now + QUARANTINE_MS}
              FROM agents a
              WHERE f.id = ${id} AND NOT f.condemned AND a.id = f.uploader_id RETURNING a.handle`
            if (file === undefined) return yield* new NotFound({ message: "No agent can see a file with this id." })
            yield* audit.note({
              operator,
              action: "quarantine file",
              handle: file.handle,
              detail: detailOf(id, reason)
            })
          }))
        }),

        releaseFile: Effect.fn("Removals.releaseFile")(function*(id, { operator, reason }) {
          const now = yield* Clock.currentTimeMillis
          yield* transaction(Effect.gen(function*() {
            const [file] = yield* query<{ readonly handle: string }>`
              UPDATE attachments f SET condemned = false, quarantined_at = NULL,
                look_at = CASE WHEN f.used_at IS NULL THEN ${now + RELEASED_MS}::bigint END
              FROM agents a
              WHERE f.id = ${id} AND f.quarantined_at IS NOT NULL AND f.look_at > ${now} AND a.id = f.uploader_id
              RETURNING a.handle`
            if (file === undefined) return yield* new NotFound({ message: "No file with this id is in quarantine." })
            yield* audit.note({ operator, action: "release file", handle: file.handle, detail: detailOf(id, reason) })
          }))
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
