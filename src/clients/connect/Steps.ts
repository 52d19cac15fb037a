import { Clock, Effect, Option } from "effect"
import { randomUUID } from "node:crypto"
import { budgetFreeAt } from "./Budget.ts"
import { makeClaims } from "./Claims.ts"
import { Journal } from "./Journal.ts"
import { answersOf, causeOf, hopOf, type Message, type Sorted, sortOut } from "./Mail.ts"
import { type Failure, ParleyApi } from "./ParleyApi.ts"
import { ParleySocket } from "./ParleySocket.ts"
import type { Adapter } from "./programs/Adapters.ts"
import { type Outcome, readOutcome } from "./programs/Outcome.ts"
import { Runs } from "./programs/Runs.ts"
import type { Tools } from "./programs/ToolGate.ts"
import { type ToolOutcome, withTools } from "./programs/ToolRun.ts"
import { promptOf } from "./Prompt.ts"
import { clientMsgIdOf, isSilent, sendBody } from "./Reply.ts"
import { RunLog } from "./RunLog.ts"
import type { Settings } from "./Settings.ts"
import { type Arrived, callAgainMs, type Hold, lookAgainMs, nextStep, type Reply, type Step } from "./Work.ts"

const SECOND_MS = 1_000

const idsOf = (messages: ReadonlyArray<{ readonly id: string }>): ReadonlyArray<string> => messages.map(({ id }) => id)

/**
 * The steps of a conversation. `look` decides the next step, and `act` runs it. Invariants:
 *
 * - Each step begins with the journal, so a crash at any point loses nothing. The next process reads the same journal
 *   and runs the same step.
 * - A program runs only for messages that this connector has claimed. If the claim fails or is lost, nothing runs and
 *   nothing is sent.
 * - A reply is on disk before it is sent, and its `client_msg_id` depends only on the agent and the oldest message. The
 *   reply's metadata contains the ids of the messages that it answers. Before each run and each send, the history of the
 *   conversation is searched for such replies.
 * - A message is acknowledged after its reply is committed, the newest message first. Until the server shows the
 *   message as acknowledged, the journal keeps it as handled, and the connector repeats the acknowledgement.
 */
export const makeSteps = Effect.fnUntraced(function*(settings: Settings, adapter: Adapter, holder: string) {
  const journal = yield* Journal
  const api = yield* ParleyApi
  const socket = yield* ParleySocket
  const runs = yield* Runs
  const log = yield* RunLog

  const claims = yield* makeClaims(holder)
  /** How many calls in a row have failed, for each conversation. */
  const failedCalls = new Map<string, number>()

  const holdBack = Effect.fnUntraced(function*(conversation: string, waitMs: number, hold: Hold, more: string) {
    const now = yield* Clock.currentTimeMillis
    yield* journal.hold(conversation, now + waitMs, hold)
    yield* log.note("waits", { conversation, hold, why: more, seconds: Math.round(waitMs / SECOND_MS) })
  })

  /**
   * Makes a conversation wait after a failed call. The delay grows with each call of the conversation that fails in a
   * row.
   */
  const unreachable = Effect.fnUntraced(function*(conversation: string, failure: Failure) {
    if (failure._tag === "KeyRefused") return yield* failure
    const failures = failedCalls.get(conversation) ?? 0
    failedCalls.set(conversation, failures + 1)
    const retryAfterMs = failure._tag === "Unreachable" ? failure.retryAfterMs : null
    yield* holdBack(
      conversation,
      retryAfterMs ?? callAgainMs(failures),
      "unreachable",
      failure._tag === "Refused" ? failure.code : failure.reason
    )
  })

  const park = (conversation: string, why: string) =>
    Effect.andThen(journal.park(conversation, why), log.note("parked", { conversation, why }))

  /**
   * Acknowledges messages, the newest first. If a crash leaves some unacknowledged, the next batch then still begins
   * with the same message, and its reply gets the same `client_msg_id`.
   */
  const acknowledge = (ids: ReadonlyArray<string>) =>
    ids.length === 0 ? Effect.void : socket.acknowledge(ids.toReversed())

  const read = (conversation: string, batch: ReadonlyArray<Arrived>) =>
    Effect.map(
      api.history(conversation, batch[0]?.seq ?? 0),
      (history) => sortOut(idsOf(batch), history, settings.handle)
    )

  /** Updates the journal for messages that need no run according to the history. */
  const settle = Effect.fnUntraced(function*(conversation: string, { answered, stale }: Sorted) {
    if (stale.length > 0) {
      yield* journal.forget(stale)
      yield* log.note("dropped", { conversation, messages: stale.length, why: "acknowledged elsewhere" })
    }
    if (answered.length > 0) {
      yield* journal.handled(conversation, answered, yield* Clock.currentTimeMillis)
      yield* acknowledge(answered)
    }
  })

  /**
   * Claims a batch and returns the messages to answer. If there is a reason to wait, stores the reason in the journal
   * and returns no messages.
   */
  const claimed = Effect.fnUntraced(function*(conversation: string, batch: ReadonlyArray<Arrived>) {
    const claim = yield* claims.first(conversation, idsOf(batch))
    if (claim.deferred) {
      yield* holdBack(conversation, lookAgainMs(claim.expiresIn), "deferred", "a live session of the agent answers")
      return []
    }
    const sorted = yield* read(conversation, claim.count === 0 ? batch : batch.slice(0, claim.count))
    yield* settle(conversation, sorted)
    if (claim.count > 0) return sorted.fresh
    if (sorted.fresh.length > 0)
      yield* holdBack(conversation, lookAgainMs(claim.expiresIn), "claimed elsewhere", "another process answers")
    return []
  })

  const begin = Effect.fnUntraced(
    function*(conversation: string, batch: ReadonlyArray<Arrived>, session: string | null) {
      const fresh = yield* claimed(conversation, batch)
      failedCalls.delete(conversation)
      const [first, last] = [fresh[0], fresh.at(-1)]
      if (first === undefined || last === undefined) return
      const hop = hopOf(last) + 1
      if (hop > settings.hops) return yield* park(conversation, `${settings.hops} automatic replies in a row`)
      const ids = idsOf(fresh)
      const run = randomUUID()
      const now = yield* Clock.currentTimeMillis
      // Other conversations may have used up the budget while the messages of this conversation were claimed.
      if (budgetFreeAt(yield* journal.starts(now), conversation, settings, now) > now) return
      yield* journal.begin(conversation, ids, run, now)
      yield* log.note("runs", { conversation, run, messages: ids.length, resumed: session !== null })
      const prompt = promptOf(settings, fresh, now)
      const program = (tools: Tools | null): Effect.Effect<Outcome> =>
        Effect.map(
          runs.run({ run, conversation, session, prompt, tools }),
          (ended) => readOutcome(adapter, ended, session)
        )
      const running = settings.reply === "output"
        ? program(null)
        : withTools(settings, { batch: [first, ...fresh.slice(1)], hop }, claims.again(conversation, ids), program)
      const outcome = yield* Effect.raceFirst(running, claims.untilLost(conversation, ids)).pipe(
        Effect.onInterrupt(() => journal.release(conversation, 0, null))
      )
      yield* finish(conversation, first, ids, hop, outcome)
    }
  )

  const finish = Effect.fnUntraced(function*(
    conversation: string,
    first: Message,
    ids: ReadonlyArray<string>,
    hop: number,
    outcome: Outcome | ToolOutcome | { readonly _tag: "Lost" }
  ) {
    const now = yield* Clock.currentTimeMillis
    if (outcome._tag === "Lost") {
      yield* journal.release(conversation, now + lookAgainMs(0), "claimed elsewhere")
      return yield* log.note("lost", { conversation, why: "another process has claimed the messages" })
    }
    if (outcome._tag === "Failed") {
      const parked = yield* journal.failed(conversation, outcome.why, settings.retrySeconds, now)
      return yield* log.note(parked ? "parked" : "failed", { conversation, why: outcome.why })
    }
    const seconds = Math.round((now - Date.parse(first.created_at)) / SECOND_MS)
    if (outcome._tag === "Done" || isSilent(outcome.text)) {
      yield* journal.silent(conversation, outcome.session, now)
      yield* acknowledge(ids)
      return yield* outcome._tag === "Done"
        ? log.note("replied", { conversation, sent: outcome.sent, seconds })
        : log.note("silent", { conversation, seconds })
    }
    const reply: Reply = {
      clientMsgId: clientMsgIdOf(settings.handle, first.id),
      to: first.context.conversation.type === "direct" ? { to: first.sender } : { conversation_id: conversation },
      text: outcome.text,
      hop
    }
    yield* journal.replying(conversation, reply, outcome.session)
  })

  const answer = Effect.fnUntraced(function*(conversation: string, batch: ReadonlyArray<Arrived>, reply: Reply) {
    const ids = idsOf(batch)
    const now = yield* Clock.currentTimeMillis
    const claim = yield* claims.again(conversation, ids)
    if (claim.deferred)
      return yield* holdBack(
        conversation,
        lookAgainMs(claim.expiresIn),
        "deferred",
        "a live session of the agent answers"
      )
    const sorted = yield* read(conversation, batch)
    if (sorted.fresh.length === 0) {
      yield* journal.answered(conversation, sorted.answered, now)
      yield* acknowledge(sorted.answered)
      yield* journal.forget(sorted.stale)
      return yield* log.note("dropped", { conversation, messages: ids.length, why: "answered or acknowledged already" })
    }
    if (claim.count < ids.length) {
      yield* journal.release(conversation, now + lookAgainMs(claim.expiresIn), "claimed elsewhere")
      return yield* log.note("lost", { conversation, why: "another process has claimed the messages" })
    }
    const sent = yield* Effect.catchTag(
      api.send(sendBody(reply, ids, settings.outputBytes, causeOf(sorted.fresh))),
      "Refused",
      ({ code }) => Effect.succeed(code)
    )
    failedCalls.delete(conversation)
    if (sent === "TOO_MANY_HOPS") {
      // No later reply to these messages has fewer hops. A newer message must not share their fate.
      yield* journal.answered(conversation, ids, yield* Clock.currentTimeMillis)
      yield* acknowledge(ids)
      return yield* log.note("ended", { conversation, why: `the server refuses the reply: ${sent}` })
    }
    if (typeof sent === "string") return yield* park(conversation, `the server refuses the reply: ${sent}`)
    const named = new Set(answersOf(sent.message))
    const answered = sent.replayed && named.size > 0 ? ids.filter((id) => named.has(id)) : ids
    yield* journal.answered(conversation, answered, yield* Clock.currentTimeMillis)
    yield* acknowledge(answered)
    yield* log.note("replied", {
      conversation,
      message: sent.message.id,
      answers: answered.length,
      replayed: sent.replayed
    })
  })

  const confirm = Effect.fnUntraced(function*(conversation: string, handled: ReadonlyArray<Arrived>) {
    // If the call fails, the acknowledgements are repeated later.
    const sorted = yield* Effect.catchTags(read(conversation, handled), {
      Unreachable: () => Effect.succeed(undefined),
      Refused: () => Effect.succeed(undefined)
    })
    yield* journal.confirmed(conversation, sorted?.stale ?? [], yield* Clock.currentTimeMillis)
    yield* acknowledge(sorted === undefined ? [] : idsOf(handled).filter((id) => !sorted.stale.includes(id)))
  })

  const recover = Effect.fnUntraced(function*(conversation: string) {
    const run = yield* journal.runOf(conversation)
    if (run !== null) yield* runs.endLeftovers(run)
    const why = "the connector ended during the run"
    const parked = yield* journal.failed(conversation, why, settings.retrySeconds, yield* Clock.currentTimeMillis)
    yield* log.note(parked ? "parked" : "failed", { conversation, why })
  })

  const look = Effect.fnUntraced(function*(conversation: string) {
    const now = yield* Clock.currentTimeMillis
    const work = yield* journal.work(conversation)
    if (work === undefined) return { work, step: { _tag: "Rest" } satisfies Step }
    const budgetAt = budgetFreeAt(yield* journal.starts(now), conversation, settings, now)
    const paused = Option.isSome(yield* journal.fact("paused"))
    return { work, step: nextStep(work, { now, paused, budgetAt }, settings) }
  })

  /** Runs the step of a conversation that is due now. */
  const act = Effect.fnUntraced(function*(conversation: string) {
    const { step, work } = yield* look(conversation)
    if (work === undefined) return
    switch (step._tag) {
      case "Recover":
        return yield* recover(conversation)
      case "Begin":
        return yield* begin(conversation, step.batch, work.session)
      case "Reply":
        return yield* answer(conversation, work.batch, step.reply)
      case "Confirm":
        return yield* confirm(conversation, work.handled)
    }
  })

  return { acknowledge, act, look, unreachable }
})
