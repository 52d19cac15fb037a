import { AgentNotFound } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { IdempotentIds } from "#domain/idempotency/IdempotentIds"
import type { GroupDeleted } from "#domain/memberships/GroupDeletion"
import { type GroupNotFound } from "#domain/memberships/GroupDeletion"
import { GroupReads } from "#domain/memberships/GroupReads"
import {
  AttachmentNotFound,
  AttachmentNotReady,
  AttachmentWrongScope,
  Blocked,
  type fileErrors
} from "#domain/sending/SendErrors"
import { type Batch, batchUpTo } from "#infrastructure/cluster/Job"
import { Blobs, LAST_BYTES_MS, objectOfFile, type StorageUnavailable, type Verdict } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { NotFound, type Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { type Attachment, type AttachmentScope, isWithin, QuotaExceeded } from "./Attachment.ts"
import { AttachmentsRepo, type Overdue } from "./AttachmentsRepo.ts"

/** The announcement of a file. */
export interface NewUpload {
  readonly to: { readonly _tag: "Handle"; readonly handle: string } | {
    readonly _tag: "Group"
    readonly groupId: string
  }
  readonly filename: string
  readonly contentType: string
  readonly size: number
  readonly sha256: string
}

export type AttachmentRefusal = (typeof fileErrors)[number]["Type"] | Unavailable

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const SWEEP_ROWS = 100
/**
 * After which time a file that could not be checked or removed is tried again, in milliseconds. The delay keeps the
 * file from delaying the others.
 */
const RETRY_DELAY_MS = 600_000

/**
 * Files that agents send each other. An agent first announces a file, which reserves the file's size in the agent's
 * quota, and then uploads it to the store. From then on, the file is immutable. It can be sent any number of times to
 * the agent or group for which it was announced. If a file was never uploaded, the sweep removes it soon after its
 * upload URL has expired. If no message uses a file, the sweep removes it UPLOADS_RETENTION_HOURS after its
 * announcement. A used file is removed when the retention of the messages that use it ends.
 */
export class Attachments extends Context.Service<Attachments, {
  /**
   * Announces a file and returns the URL for its bytes. A repeat with the same Idempotency-Key returns the same file.
   */
  readonly reserve: (uploaderId: string, upload: NewUpload) => Effect.Effect<
    { readonly id: string; readonly uploadUrl: string },
    | AgentNotFound
    | GroupNotFound
    | GroupDeleted
    | Blocked
    | QuotaExceeded
    | ValidationFailed
    | StorageUnavailable
    | Unavailable
  >
  /**
   * Returns a URL for the uploader, the recipient or a member of the group. Fails with `NotFound` for all other agents.
   */
  readonly downloadUrl: (
    agentId: string,
    id: string
  ) => Effect.Effect<string, NotFound | GroupDeleted | StorageUnavailable | Unavailable>
  /** Returns the name, type and size of a stored file, for agents that may download it. */
  readonly describe: (agentId: string, id: string) => Effect.Effect<
    Pick<Attachment, "filename" | "contentType" | "size">,
    NotFound | GroupDeleted | StorageUnavailable | Unavailable
  >
  /**
   * Stores the bytes of a file that this agent has announced, instead of an upload. The caller must make sure that
   * these are the announced bytes.
   */
  readonly fill: (
    uploaderId: string,
    id: string,
    bytes: Buffer
  ) => Effect.Effect<void, NotFound | StorageUnavailable | Unavailable>
  /**
   * Returns a stored file with its bytes, for agents that may download it. Leaves out the bytes if there are more than
   * `maxBytes`.
   */
  readonly open: (agentId: string, id: string, maxBytes: number) => Effect.Effect<
    {
      readonly filename: string
      readonly contentType: string
      readonly size: number
      readonly bytes: Buffer | undefined
    },
    NotFound | GroupDeleted | StorageUnavailable | Unavailable
  >
  /**
   * Checks that a message to this target may contain the file, and marks the file as used, so that it is kept. If this
   * needs a request to the store, `asks` is called with true before the request and with false after it.
   */
  readonly use: (
    senderId: string,
    target: AttachmentScope,
    id: string,
    asks: (isAsked: boolean) => void
  ) => Effect.Effect<void, AttachmentRefusal>
  /** Condemns a batch of the files whose last message is past its retention. The sweep then removes these files. */
  readonly retire: Effect.Effect<Batch, Unavailable>
  /** Checks a batch of the files that are due, and removes the abandoned ones with their bytes. */
  readonly sweep: Effect.Effect<Batch, Unavailable | StorageUnavailable>
}>()("parley/attachments/Attachments") {
  static readonly layer = Layer.effect(
    Attachments,
    Effect.gen(function*() {
      const agents = yield* Agents
      const blobs = yield* Blobs
      const clock = yield* Clock.Clock
      const groups = yield* GroupReads
      const config = yield* Config
      const ids = yield* IdempotentIds
      const repo = yield* AttachmentsRepo
      const now = () => clock.currentTimeMillisUnsafe()
      const kept = config.UPLOADS_RETENTION_HOURS * HOUR_MS

      const scopeOf = Effect.fnUntraced(function*(
        uploaderId: string,
        to: NewUpload["to"]
      ): Effect.fn.Return<
        AttachmentScope,
        AgentNotFound | GroupNotFound | GroupDeleted | ValidationFailed | Unavailable
      > {
        if (to._tag === "Group") {
          yield* groups.admit(to.groupId, uploaderId)
          return to
        }
        const recipient = yield* agents.byHandle(to.handle)
        if (recipient === undefined) return yield* new AgentNotFound()
        if (recipient.id === uploaderId) {
          return yield* ValidationFailed.field("to", "is yourself: name the agent that the file is for")
        }
        return { _tag: "Agent", agentId: recipient.id }
      })

      /**
       * Returns the state of the uploaded bytes. Sends requests to the store only until the bytes are known to be
       * stored.
       */
      const verdictOn = (attachment: Attachment): Effect.Effect<Verdict, StorageUnavailable> =>
        attachment.storedAt === null ? blobs.verify(attachment) : Effect.succeed("stored")

      const notFound = () => new NotFound({ message: "No file with this id is visible to you." })

      /** Returns a stored file that this agent may download. */
      const storedFor = Effect.fn("Attachments.storedFor")(function*(agentId: string, id: string) {
        const attachment = yield* repo.byId(id)
        if (attachment === undefined) return yield* notFound()
        const { scope } = attachment
        if (attachment.uploaderId !== agentId) {
          if (scope._tag === "Group") {
            yield* Effect.catchTag(groups.admit(scope.groupId, agentId), "GroupNotFound", () => Effect.fail(notFound()))
          } else if (scope.agentId !== agentId) return yield* notFound()
        }
        if ((yield* verdictOn(attachment)) !== "stored") return yield* notFound()
        if (attachment.storedAt === null) yield* repo.markStored(id, now())
        return attachment
      })

      const look = Effect.fnUntraced(function*(file: Overdue) {
        if (file.used && !file.condemned) {
          yield* blobs.tidy(file.id)
          return yield* repo.lookAgain(file, null)
        }
        const until = file.createdAt + kept
        if (!file.condemned) {
          if (until > now() && (yield* blobs.verify(file)) === "stored") return yield* repo.lookAgain(file, until)
          // A message has just used the file. The next sweep takes the use into account.
          if (!(yield* repo.condemn(file.id))) return
        }
        yield* blobs.remove(file.id)
        yield* repo.remove(file.id)
      })

      const sweep = Effect.gen(function*() {
        const files = yield* repo.overdue(now(), SWEEP_ROWS)
        for (const file of files) {
          yield* Effect.tapError(look(file), () => Effect.ignore(repo.lookAgain(file, now() + RETRY_DELAY_MS)))
        }
        return batchUpTo(SWEEP_ROWS)(files.length)
      })

      return Attachments.of({
        sweep,
        retire: Effect.suspend(() => {
          const days = config.RETENTION_MESSAGES_DAYS
          if (days === undefined) return Effect.succeed({ rows: 0, more: false })
          // Add two days, because `usedAt` is only accurate to a day and the message is stored slightly later.
          return Effect.map(repo.retire(now() - (days + 2) * DAY_MS, now(), SWEEP_ROWS), batchUpTo(SWEEP_ROWS))
        }),
        reserve: Effect.fn("Attachments.reserve")(function*(uploaderId, { contentType, filename, sha256, size, to }) {
          const scope = yield* scopeOf(uploaderId, to)
          const at = now()
          const id = yield* ids.make("att")
          const outcome = yield* repo.reserve(
            { id, uploaderId, scope, filename, contentType, size, sha256, createdAt: at },
            config.LIMITS_STORAGE_PER_AGENT,
            at + config.UPLOADS_URL_SECONDS * 1_000 + LAST_BYTES_MS
          )
          if (outcome === "blocked") return yield* new Blocked()
          if (outcome === "full") return yield* new QuotaExceeded()
          return { id, uploadUrl: yield* blobs.uploadUrl({ id, size, sha256 }) }
        }),
        downloadUrl: Effect.fn("Attachments.downloadUrl")(function*(agentId, id) {
          return yield* blobs.downloadUrl(id, yield* storedFor(agentId, id))
        }),
        describe: storedFor,
        fill: Effect.fn("Attachments.fill")(function*(uploaderId, id, bytes) {
          const attachment = yield* repo.byId(id)
          if (attachment === undefined || attachment.uploaderId !== uploaderId) return yield* notFound()
          if (attachment.storedAt !== null) return
          yield* blobs.putObject(objectOfFile(id), bytes, attachment.contentType)
          yield* repo.markStored(id, now())
        }),
        open: Effect.fn("Attachments.open")(function*(agentId, id, maxBytes) {
          const { contentType, filename, size } = yield* storedFor(agentId, id)
          const bytes = size > maxBytes ? undefined : yield* blobs.getObject(objectOfFile(id))
          return { contentType, filename, size, bytes }
        }),
        use: Effect.fn("Attachments.use")(function*(senderId, target, id, asks) {
          const attachment = yield* repo.byId(id)
          if (attachment === undefined || attachment.uploaderId !== senderId) return yield* new AttachmentNotFound()
          if (!isWithin(attachment.scope, target)) return yield* new AttachmentWrongScope()
          let verdict: Verdict = "stored"
          if (attachment.storedAt === null) {
            asks(true)
            verdict = yield* Effect.ensuring(blobs.verify(attachment), Effect.sync(() => asks(false)))
          }
          if (verdict !== "stored") return yield* new AttachmentNotReady({ details: { reason: verdict } })
          const fresh = attachment.usedAt !== null && now() - attachment.usedAt < DAY_MS
          if (!fresh && !(yield* repo.markUsed(id, now()))) {
            return yield* new AttachmentNotFound()
          }
        })
      })
    })
  )
}
