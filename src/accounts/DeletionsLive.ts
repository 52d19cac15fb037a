import { Cause, Clock, Effect, Fiber, FiberSet, Layer } from "effect"
import { Contacts } from "../contacts/Contacts.ts"
import { Deliveries } from "../deliveries/Deliveries.ts"
import { Groups } from "../groups/Groups.ts"
import { Mutes } from "../mutes/Mutes.ts"
import { batchUpTo } from "../cluster/Job.ts"
import { unavailableOnSqlError } from "../database/UnavailableOnSqlError.ts"
import { Unavailable } from "../wire/WireError.ts"
import { Presences } from "../presence/Presences.ts"
import { Sessions } from "../agents/Sessions.ts"
import { Webhooks } from "../webhooks/Webhooks.ts"
import { type Deletion, Deletions } from "../agents/Deletions.ts"
import { DeletionsRepo } from "./DeletionsRepo.ts"

/** How long a statement that began before the account ended, or a cache that did not know, may still write for it. */
const LATE_WRITES_MS = 60_000
const AGAIN_MS = 30_000
const AT_ONCE = 20
/** How long an answer waits for the rest. */
const PATIENCE = "2 seconds"

/**
 * What is to be done once an account is dead (wire.md G.12): a list of steps, each
 * idempotent, remembered by a row that the account's last statement wrote and that
 * goes with the last of them. So it does not matter where a process dies, or that two
 * work on one account at once. Everything is done a second time a minute later, for
 * what was on its way while the account ended.
 *
 * Its messages, blocks, reports and handle stay, as do the files in its messages; its
 * other files and its picture go with the sweeps of those.
 */
export const DeletionsLive = Layer.effect(
  Deletions,
  Effect.gen(function*() {
    const contacts = yield* Contacts
    const clock = yield* Clock.Clock
    const groups = yield* Groups
    const deliveries = yield* Deliveries
    const mutes = yield* Mutes
    const presences = yield* Presences
    const repo = yield* DeletionsRepo
    const sessions = yield* Sessions
    const webhooks = yield* Webhooks
    const begun = yield* FiberSet.make<void, never>()
    const now = () => clock.currentTimeMillisUnsafe()

    const finish = Effect.fn("Deletions.finish")(function*({ agentId, since }: Deletion) {
      yield* sessions.disconnect(agentId, { code: 1008, text: "account deleted" })
      // Before its contacts go: they are told.
      yield* presences.end(agentId)
      yield* contacts.removeAgent(agentId)
      yield* mutes.removeAgent(agentId)
      yield* webhooks.removeAgent(agentId)
      // Before the groups, whose leaving would close what is theirs at its own time, and after, for what came till then.
      yield* deliveries.closeAll(agentId, since)
      yield* groups.leaveAll(agentId)
      yield* deliveries.closeAll(agentId, since)
      const last = since + LATE_WRITES_MS
      yield* unavailableOnSqlError(now() < last ? repo.postpone(agentId, last) : repo.forget(agentId))
    })

    const complain = (cause: Cause.Cause<unknown>) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.interrupt
        : Effect.logWarning("A deleted account is not gone yet; it is tried again", cause)

    return Deletions.of({
      begin: (deletion) =>
        FiberSet.run(begun, Effect.interruptible(Effect.catchCause(finish(deletion), complain))).pipe(
          Effect.flatMap((fiber) => Effect.interruptible(Effect.timeoutOption(Fiber.await(fiber), PATIENCE))),
          Effect.asVoid
        ),
      sweep: Effect.gen(function*() {
        const due = yield* unavailableOnSqlError(repo.due(now(), AT_ONCE))
        let failed = 0
        for (const deletion of due) {
          // Later than now, so that one that cannot be done does not stand before the others for ever.
          yield* unavailableOnSqlError(repo.postpone(deletion.agentId, now() + AGAIN_MS))
          yield* Effect.catchCause(finish(deletion), (cause) => {
            failed++
            return complain(cause)
          })
        }
        if (failed > 0) return yield* new Unavailable()
        return batchUpTo(AT_ONCE)(due.length)
      })
    })
  })
)
