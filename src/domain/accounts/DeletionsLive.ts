import { type Deletion, Deletions } from "#domain/agents/Deletions"
import { Sessions } from "#domain/agents/Sessions"
import { Skills } from "#domain/agents/Skills"
import { Contacts } from "#domain/contacts/Contacts"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Groups } from "#domain/groups/Groups"
import { StoredAnswers } from "#domain/idempotency/StoredAnswers"
import { Mutes } from "#domain/mutes/Mutes"
import { Grants } from "#domain/oauth/Grants"
import { Presences } from "#domain/presence/Presences"
import { Replies } from "#domain/replies/Replies"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { batchUpTo } from "#infrastructure/cluster/Job"
import { LAST_BYTES_MS } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Clock, Effect, Fiber, FiberSet, Layer } from "effect"
import { DeletionsRepo } from "./DeletionsRepo.ts"
import { ErasuresRepo } from "./ErasuresRepo.ts"

/**
 * How long statements that began before an account ended, and nodes with a stale cache, may still write rows of the
 * account, in milliseconds.
 */
const LATE_WRITES_MS = 60_000
const RETRY_DELAY_MS = 30_000
const BATCH_ROWS = 20
const MAX_ROWS_PER_STATEMENT = 1_000
/** How long the response to the deletion waits for the steps to finish. */
const ANSWER_TIMEOUT = "2 seconds"

/**
 * The steps that follow the end of an account (wire.md G.12). Each step is idempotent. The statement that ends the
 * account writes a row in `deletions`. The row is kept until the last step is done. So a process may crash at any
 * point, and two processes may work on the same account at the same time. All steps run again a minute later, because
 * rows may have been written while the account ended.
 *
 * The account's messages, blocks, reports and handle are kept, and so are the files in its messages. Other sweeps
 * remove its other files and its picture. An erasure runs the same steps and further ones.
 */
export const DeletionsLive = Layer.effect(
  Deletions,
  Effect.gen(function*() {
    const connections = yield* Grants
    const contacts = yield* Contacts
    const clock = yield* Clock.Clock
    const groups = yield* Groups
    const deliveries = yield* Deliveries
    const erasures = yield* ErasuresRepo
    const ids = yield* Ids
    /** How long after the announcement of a file its bytes may still arrive, in milliseconds. */
    const uploadMs = (yield* Config).UPLOADS_URL_SECONDS * 1_000 + LAST_BYTES_MS
    const mutes = yield* Mutes
    const presences = yield* Presences
    const replies = yield* Replies
    const repo = yield* DeletionsRepo
    const sessions = yield* Sessions
    const skills = yield* Skills
    const storedAnswers = yield* StoredAnswers
    const webhooks = yield* Webhooks
    const begun = yield* FiberSet.make<void, never>()
    const now = () => clock.currentTimeMillisUnsafe()

    /**
     * The steps that only an erasure runs. The address is removed last, because other steps find rows by the address.
     * Files, stored responses and the audit log are read completely, in slices. A table of a million rows costs a
     * thousand short statements.
     */
    const eraseRest = Effect.fnUntraced(function*(agentId: string) {
      for (const batch of erasures.batches) while ((yield* batch(agentId, MAX_ROWS_PER_STATEMENT)) > 0);
      yield* erasures.few(agentId)
      for (let after = "";;) {
        const last = yield* erasures.slice(after, MAX_ROWS_PER_STATEMENT)
        if (last === null) break
        yield* erasures.uploads(agentId, after, last, now(), uploadMs)
        after = last
      }
      const account = yield* erasures.account(agentId)
      if (account === undefined) return
      yield* storedAnswers.eraseTexts(agentId, account.handle)
      for (let after = 0;;) {
        const last = yield* erasures.auditSlice(after, MAX_ROWS_PER_STATEMENT)
        if (last === null) break
        yield* erasures.audit(account.email, after, last)
        after = last
      }
      yield* erasures.address(agentId, now(), ids.bytes(32))
    })

    const finish = Effect.fn("Deletions.finish")(function*({ agentId, since }: Deletion) {
      yield* sessions.disconnect(agentId, { code: 1008, text: "account deleted" })
      // The presence ends before the contacts are removed, because ending it notifies agents according to their
      // contacts.
      yield* presences.end(agentId)
      yield* skills.removeAgent(agentId)
      yield* contacts.removeAgent(agentId)
      yield* connections.removeAgent(agentId)
      yield* mutes.removeAgent(agentId)
      yield* replies.removeAgent(agentId)
      yield* webhooks.removeAgent(agentId)
      // Envelopes are marked as delivered before the agent leaves its groups, because leaving would mark the groups'
      // envelopes with a later time. The second call marks envelopes that were stored in between.
      yield* deliveries.closeAll(agentId, since)
      yield* groups.leaveAll(agentId)
      yield* deliveries.closeAll(agentId, since)
      const erase = yield* repo.isErasure(agentId)
      if (erase) yield* eraseRest(agentId)
      const last = since + LATE_WRITES_MS
      yield* now() < last ? repo.postpone(agentId, last) : repo.forget(agentId, erase)
    })

    const complain = (cause: Cause.Cause<unknown>) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.interrupt
        : Effect.logWarning("The deletion of an account could not be finished and will be retried", cause)

    return Deletions.of({
      begin: (deletion) =>
        FiberSet.run(begun, Effect.interruptible(Effect.catchCause(finish(deletion), complain))).pipe(
          Effect.flatMap((fiber) => Effect.interruptible(Effect.timeoutOption(Fiber.await(fiber), ANSWER_TIMEOUT))),
          Effect.asVoid
        ),
      sweep: Effect.gen(function*() {
        const due = yield* repo.due(now(), BATCH_ROWS)
        let failed = 0
        for (const deletion of due) {
          // Postpone the deletion first, so that a deletion that keeps failing does not delay the others.
          yield* repo.postpone(deletion.agentId, now() + RETRY_DELAY_MS)
          yield* Effect.catchCause(finish(deletion), (cause) => {
            failed++
            return complain(cause)
          })
        }
        if (failed > 0) return yield* new Unavailable()
        return batchUpTo(BATCH_ROWS)(due.length)
      })
    })
  })
)
