import { Attachments, type NewUpload } from "#domain/attachments/Attachments"
import { Conversations } from "#domain/conversations/Conversations"
import { CurrentAttempt } from "#domain/idempotency/IdempotentIds"
import { Blobs } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import { access, mkdir, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Readable } from "node:stream"
import { eachDatabase, type TestDatabase } from "../support/Databases.ts"
import { breath } from "../support/Eventually.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const QUOTA = 1_000

const layerFiles = (database: TestDatabase) =>
  Layer.unwrap(Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => mkdtemp(join(tmpdir(), "parley-attachments-"))),
      (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
    ),
    (DATA_DIR) => layerModules(database, { DATA_DIR, LIMITS_STORAGE_PER_AGENT: QUOTA })
  ))

const uploadOf = (handle: string, bytes: Buffer): NewUpload => ({
  to: { _tag: "Handle", handle },
  filename: "a.txt",
  contentType: "text/plain",
  size: bytes.length,
  sha256: createHash("sha256").update(bytes).digest("hex")
})

const put = (url: string, bytes: Buffer) =>
  Effect.flatMap(
    Blobs,
    ({ signedFiles }) =>
      signedFiles?.accept(url.replace(/^.*\//, ""), Readable.from([bytes]), bytes.length) ??
        Effect.die("no signed files")
  )

/** A file that has been put, for this agent. */
const uploaded = Effect.fnUntraced(function*(from: string, to: string, text: string) {
  const bytes = Buffer.from(text)
  const { id, uploadUrl } = yield* (yield* Attachments).reserve(from, uploadOf(to, bytes))
  yield* put(uploadUrl, bytes)
  return id
})

const isOnDisk = (id: string) =>
  Effect.flatMap(
    Config,
    ({ DATA_DIR }) => Effect.promise(() => access(join(DATA_DIR, "blobs", "files", id)).then(() => true, () => false))
  )

const usage = (agentId: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ bytes: number; sum: number }>`
        SELECT bytes, (SELECT coalesce(sum(size), 0)::bigint FROM attachments WHERE uploader_id = ${agentId}) AS sum
        FROM attachment_usage WHERE agent_id = ${agentId}`,
      ([row]) => row === undefined ? [0, 0] : [row.bytes, row.sum]
    ))

const isKnown = (id: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => Effect.map(sql`SELECT FROM attachments WHERE id = ${id}`, (rows) => rows.length > 0)
  )

const carrying = (clientMsgId: string, attachmentId: string) => ({ ...draft(clientMsgId), attachmentId })

eachDatabase((database) => {
  layer(layerFiles(database))((it) => {
    it.effect("the quota is exact for reservations that come at once", () =>
      Effect.gen(function*() {
        const attachments = yield* Attachments
        const [a, b] = [yield* newAgent("quota-a"), yield* newAgent("quota-b")]
        const all = yield* Effect.all(
          Array.from({ length: 30 }, (_, i) =>
            Effect.result(attachments.reserve(a.id, uploadOf(b.handle, Buffer.alloc(90, i))))),
          { concurrency: "unbounded" }
        )
        const refused = all.flatMap((result) =>
          result._tag === "Failure" ? [result.failure._tag] : []
        )
        assert.strictEqual(all.length - refused.length, 11)
        assert.deepStrictEqual(new Set(refused), new Set(["QuotaExceeded"]))
        assert.deepStrictEqual(yield* usage(a.id), [990, 990])
        yield* attachments.reserve(a.id, uploadOf(b.handle, Buffer.alloc(10)))
        const over = yield* Effect.flip(attachments.reserve(a.id, uploadOf(b.handle, Buffer.alloc(1))))
        assert.strictEqual(over._tag, "QuotaExceeded")
        // One that is larger than the quota itself, of an agent that has nothing yet.
        const huge = yield* Effect.flip(attachments.reserve(b.id, uploadOf(a.handle, Buffer.alloc(QUOTA + 1))))
        assert.strictEqual(huge._tag, "QuotaExceeded")
        assert.deepStrictEqual(yield* usage(b.id), [0, 0])
      }))

    it.effect("another attempt at the same request meets the first one's reservation", () =>
      Effect.gen(function*() {
        const attachments = yield* Attachments
        const [a, b] = [yield* newAgent("retry-a"), yield* newAgent("retry-b")]
        const again = Effect.provideService(
          attachments.reserve(a.id, uploadOf(b.handle, Buffer.alloc(QUOTA))),
          CurrentAttempt,
          { agentId: a.id, key: "once", createdAt: 1_000 }
        )
        const [first, second] = [yield* again, yield* again]
        assert.strictEqual(second.id, first.id)
        assert.deepStrictEqual(yield* usage(a.id), [QUOTA, QUOTA])
      }))

    it.effect("an upload is refused for an unknown recipient, for oneself, across a block, and for a group of others", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const attachments = yield* Attachments
        const [a, b] = [yield* newAgent("for-a"), yield* newAgent("for-b")]
        const refusal = (to: NewUpload["to"], by = a) =>
          Effect.map(
            Effect.flip(attachments.reserve(by.id, { ...uploadOf("", Buffer.from("x")), to })),
            ({ _tag }) => _tag
          )
        assert.strictEqual(yield* refusal({ _tag: "Handle", handle: "nobody-at-all" }), "AgentNotFound")
        assert.strictEqual(yield* refusal({ _tag: "Handle", handle: a.handle }), "ValidationFailed")
        assert.strictEqual(yield* refusal({ _tag: "Group", groupId: "grp_AAAAAAAAAAAAAAAA" }), "GroupNotFound")
        yield* sql`INSERT INTO blocks (agent_id, blocked_id, created_at) VALUES (${b.id}, ${a.id}, 0)`
        assert.strictEqual(yield* refusal({ _tag: "Handle", handle: b.handle }), "Blocked")
        assert.strictEqual(yield* refusal({ _tag: "Handle", handle: a.handle }, b), "Blocked")
        assert.deepStrictEqual(yield* usage(a.id), [0, 0])
      }))

    it.effect("only uploader and recipient get a URL, and only once the bytes are there", () =>
      Effect.gen(function*() {
        const attachments = yield* Attachments
        const [a, b, c] = [yield* newAgent("see-a"), yield* newAgent("see-b"), yield* newAgent("see-c")]
        const bytes = Buffer.from("seen by two")
        const { id, uploadUrl } = yield* attachments.reserve(a.id, uploadOf(b.handle, bytes))
        const refusal = (agentId: string, file = id) =>
          Effect.map(Effect.flip(attachments.downloadUrl(agentId, file)), ({ message }) => message)
        const unknown = yield* refusal(a.id, "att_AAAAAAAAAAAAAAAA")
        for (const agent of [a, b, c]) assert.strictEqual(yield* refusal(agent.id), unknown)
        yield* put(uploadUrl, bytes)
        for (const agent of [a, b]) assert.match(yield* attachments.downloadUrl(agent.id, id), /^http.*\/v1\/files\//)
        assert.strictEqual(yield* refusal(c.id), unknown)
      }))

    it.effect("a message carries a file of its sender, for its recipient, whose bytes are there; a refused one leaves nothing", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const attachments = yield* Attachments
        const [a, b, c] = [yield* newAgent("carry-a"), yield* newAgent("carry-b"), yield* newAgent("carry-c")]
        let n = 0
        const send = (from: typeof a, to: typeof a, id: string) =>
          conversations.send(from, { _tag: "Direct", handle: to.handle }, carrying(`carry-${n++}`, id))
        const refusal = (from: typeof a, to: typeof a, id: string) =>
          Effect.map(Effect.flip(send(from, to, id)), ({ _tag }) => _tag)
        const bytes = Buffer.from("carried")
        const { id, uploadUrl } = yield* attachments.reserve(a.id, uploadOf(b.handle, bytes))
        const foreign = yield* uploaded(c.id, b.handle, "foreign")

        const refusals = Effect.gen(function*() {
          assert.strictEqual(yield* refusal(a, b, "att_AAAAAAAAAAAAAAAA"), "AttachmentNotFound")
          assert.strictEqual(yield* refusal(a, b, foreign), "AttachmentNotFound")
          assert.strictEqual(yield* refusal(a, c, id), "AttachmentWrongScope")
        })
        // Of a conversation that would begin with it: there is none after.
        yield* refusals
        assert.strictEqual(yield* refusal(a, b, id), "AttachmentNotReady")
        assert.strictEqual((yield* conversations.list(a.id, {})).total, 0)

        yield* put(uploadUrl, bytes)
        const first = JSON.parse((yield* send(a, b, id)).body) as { readonly seq: number }
        assert.strictEqual(first.seq, 1)
        yield* conversations.send(b, { _tag: "Direct", handle: a.handle }, draft("carry-reply"))
        // And of one that goes on.
        yield* refusals
        const bare = yield* attachments.reserve(a.id, uploadOf(b.handle, Buffer.from("bare")))
        assert.strictEqual(yield* refusal(a, b, bare.id), "AttachmentNotReady")
        const again = JSON.parse((yield* send(a, b, id)).body) as { readonly seq: number }
        assert.strictEqual(again.seq, 3)
      }))

    it.effect("a replay is never refused for its file, and a block comes before it", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const conversations = yield* Conversations
        const [a, b] = [yield* newAgent("replay-a"), yield* newAgent("replay-b")]
        const to = { _tag: "Direct", handle: b.handle } as const
        const id = yield* uploaded(a.id, b.handle, "replayed")
        yield* conversations.send(b, { _tag: "Direct", handle: a.handle }, draft("replay-0"))
        const sent = yield* conversations.send(a, to, carrying("replay-1", id))
        const replay = yield* conversations.send(a, to, carrying("replay-1", "att_AAAAAAAAAAAAAAAA"))
        assert.isFalse(replay.created)
        assert.strictEqual(replay.body, sent.body)
        yield* conversations.block({ agentId: b.id, blockedId: a.id, at: 0, report: null })
        const blocked = yield* Effect.flip(conversations.send(a, to, carrying("replay-2", "att_AAAAAAAAAAAAAAAA")))
        assert.strictEqual(blocked._tag, "Blocked")
        assert.isTrue((yield* sql`SELECT FROM attachments WHERE id = ${id} AND used_at IS NOT NULL`).length === 1)
      }))

    it.effect("bytes that cannot be removed do not stand before others", () =>
      Effect.gen(function*() {
        const attachments = yield* Attachments
        const { DATA_DIR } = yield* Config
        const [a, b] = [yield* newAgent("stuck-a"), yield* newAgent("stuck-b")]
        const reserve = Effect.andThen(
          leap("1 second"),
          attachments.reserve(a.id, uploadOf(b.handle, Buffer.from("bare")))
        )
        const [stuck, other] = [yield* reserve, yield* reserve]
        const inTheWay = join(DATA_DIR, "blobs", "files", stuck.id)
        yield* Effect.promise(() => mkdir(inTheWay, { recursive: true }))
        yield* leap("25 hours")
        assert.strictEqual((yield* Effect.flip(attachments.sweep))._tag, "StorageUnavailable")
        yield* attachments.sweep
        assert.deepStrictEqual([yield* isKnown(stuck.id), yield* isKnown(other.id)], [true, false])
        yield* Effect.promise(() => rm(inTheWay, { recursive: true }))
        yield* leap("10 minutes")
        yield* attachments.sweep
        assert.isFalse(yield* isKnown(stuck.id))
        assert.deepStrictEqual(yield* usage(a.id), [0, 0])
      }))

    it.effect("an upload without bytes is removed soon, an unused file later, and a used one stays", () =>
      Effect.gen(function*() {
        const attachments = yield* Attachments
        const conversations = yield* Conversations
        const [a, b] = [yield* newAgent("sweep-a"), yield* newAgent("sweep-b")]
        const { id: bare } = yield* attachments.reserve(a.id, uploadOf(b.handle, Buffer.from("bare")))
        const unused = yield* uploaded(a.id, b.handle, "unused")
        const used = yield* uploaded(a.id, b.handle, "the used one")
        yield* conversations.send(a, { _tag: "Direct", handle: b.handle }, carrying("sweep-1", used))
        const began = yield* Clock.currentTimeMillis
        assert.deepStrictEqual(yield* usage(a.id), [22, 22])

        /** The job works beside the test, on real files and a real database, and comes again every ten minutes. */
        const until = Effect.fnUntraced(function*(holds: Effect.Effect<boolean, unknown, SqlClient.SqlClient>) {
          for (let i = 0; i < 40_000 && !(yield* holds); i++) {
            if (i < 400) yield* TestClock.adjust("1 minute")
            yield* Effect.promise(breath)
          }
          assert.isTrue(yield* holds)
        })
        const gone = (id: string) => Effect.map(isKnown(id), (known) => !known)

        yield* TestClock.adjust("30 minutes")
        yield* until(gone(bare))
        assert.isTrue(yield* isKnown(unused))
        assert.deepStrictEqual(yield* usage(a.id), [18, 18])
        assert.isTrue(yield* isOnDisk(unused))
        // Still good to be sent, or fetched.
        yield* attachments.downloadUrl(b.id, unused)

        yield* leap("25 hours")
        yield* until(gone(unused))
        assert.isFalse(yield* isOnDisk(unused))
        assert.deepStrictEqual(yield* usage(a.id), [12, 12])
        assert.strictEqual((yield* Effect.flip(attachments.downloadUrl(b.id, unused)))._tag, "NotFound")
        assert.isTrue(yield* isOnDisk(used))
        yield* attachments.downloadUrl(b.id, used)
        assert.isAbove((yield* Clock.currentTimeMillis) - began, 86_400_000)
      }))
  })
})
