import { Clock, Deferred, Effect, Exit, Option, Queue, Schedule, Semaphore } from "effect"
import { randomUUID } from "node:crypto"
import { type Adapter, type Outcome, readOutcome } from "./Adapters.ts"
import { budgetFreeAt } from "./Budget.ts"
import { Journal } from "./Journal.ts"
import { answersOf, hopOf, type Message, permits, type Sorted, sortOut, wakes } from "./Mail.ts"
import { type Failure, KeyRefused, ParleyApi } from "./ParleyApi.ts"
import { ParleySocket } from "./ParleySocket.ts"
import { promptOf } from "./Prompt.ts"
import { clientMsgIdOf, isSilent, sendBody } from "./Reply.ts"
import { RunLog } from "./RunLog.ts"
import { Runs } from "./Runs.ts"
import { type Settings, SettingsInvalid } from "./Settings.ts"
import { type Arrived, callAgainMs, type Hold, lookAgainMs, nextStep, type Reply, type Step } from "./Work.ts"

/** How often the claims of a run are renewed. A claim lasts 600 s (wire.md L). */
const RENEW_MS = 60_000
const CLAIM_MS = 600_000
/** How long an answer about a contact is used again. */
const CONTACT_MS = 30_000
/** How often the journal is looked at for what another process has written to it. */
const LOOK_MS = 1_000
const SECOND_MS = 1_000
/** The longest timer that Node has. */
const LONGEST_MS = 2_147_483_647

const idsOf = (messages: ReadonlyArray<{ readonly id: string }>): ReadonlyArray<string> => messages.map(({ id }) => id)

/**
 * Runs the connector of one agent until its key is refused. Invariants:
 *
 * - One fiber drives a conversation, and does one step after the other. Each step begins from the journal, so a crash between any two
 *   lines loses nothing: the next process reads the same journal and takes the same step.
 * - A program runs only for messages that this connector has claimed. If the claim fails or is lost, nothing runs and nothing is sent.
 * - A reply is on disk before it is sent, and its `client_msg_id` depends only on the agent and the oldest message. The reply's metadata
 *   names the messages that it answers, and the history of the conversation is read for such replies before each run and each send.
 * - A message is acknowledged after its reply is committed, the newest first. Until the server shows the acknowledgement, the journal
 *   keeps the message as handled, and the acknowledgement is repeated.
 */
export const connect = Effect.fnUntraced(function*(settings: Settings, adapter: Adapter) {
  const journal = yield* Journal
  const api = yield* ParleyApi
  const socket = yield* ParleySocket
  const runs = yield* Runs
  const log = yield* RunLog
  const scope = yield* Effect.scope
  const slots = yield* Semaphore.make(settings.concurrency)
  const stopped = yield* Deferred.make<never, KeyRefused>()
  const installation = Option.getOrElse(yield* journal.fact("installation"), () => randomUUID())
  yield* journal.setFact("installation", installation)
  const holder = `daemon:${installation}`

  /** The conversations with a fiber. An entry in the queue says that something may have changed. */
  const driven = new Map<string, Queue.Queue<void>>()
  /** When the claims of this process end, for each conversation, and how often calls have failed in a row. */
  const claimedUntil = new Map<string, number>()
  const failedCalls = new Map<string, number>()

  const holdBack = Effect.fnUntraced(function*(conversation: string, waitMs: number, hold: Hold, more: string) {
    const now = yield* Clock.currentTimeMillis
    yield* journal.hold(conversation, now + waitMs, hold)
    yield* log.note("waits", { conversation, hold, why: more, seconds: Math.round(waitMs / SECOND_MS) })
  })

  /** Waits after a call that failed; the longer, the more calls of this conversation failed in a row. */
  const unreachable = Effect.fnUntraced(function*(conversation: string, failure: Failure) {
    if (failure._tag === "KeyRefused") return yield* failure
    const failures = failedCalls.get(conversation) ?? 0
    failedCalls.set(conversation, failures + 1)
    const retryAfterMs = failure._tag === "Unreachable" ? failure.retryAfterMs : null
    yield* holdBack(conversation, retryAfterMs ?? callAgainMs(failures), "unreachable", failure._tag === "Refused" ? failure.code : failure.reason)
  })

  /** Acknowledges messages, the newest first, so that a batch that begins alike is found as long as one of them is left. */
  const acknowledge = (ids: ReadonlyArray<string>) => socket.acknowledge(ids.toReversed())

  const read = (conversation: string, batch: ReadonlyArray<Arrived>) =>
    Effect.map(api.history(conversation, batch[0]?.seq ?? 0), (history) => sortOut(idsOf(batch), history, settings.handle))

  /** Notes what the history says about messages that need no run. */
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

  /** Claims a batch. Returns the messages to answer; none if there is a reason to wait, which the journal then has. */
  const claimed = Effect.fnUntraced(function*(conversation: string, batch: ReadonlyArray<Arrived>) {
    const claim = yield* api.claim(idsOf(batch), holder, true)
    if (claim.deferred) {
      yield* holdBack(conversation, lookAgainMs(claim.expiresIn), "deferred", "a live session of the agent answers")
      return []
    }
    claimedUntil.set(conversation, (yield* Clock.currentTimeMillis) + CLAIM_MS)
    const sorted = yield* read(conversation, claim.count === 0 ? batch : batch.slice(0, claim.count))
    yield* settle(conversation, sorted)
    if (claim.count > 0) return sorted.fresh
    if (sorted.fresh.length > 0) yield* holdBack(conversation, lookAgainMs(claim.expiresIn), "claimed elsewhere", "another process answers")
    return []
  })

  /** Renews the claims of a run. Returns once they are lost. */
  const untilLost = Effect.fnUntraced(function*(conversation: string, ids: ReadonlyArray<string>) {
    for (;;) {
      yield* Effect.sleep(RENEW_MS)
      const claim = yield* Effect.option(api.claim(ids, holder, false))
      const now = yield* Clock.currentTimeMillis
      if (Option.isSome(claim) && claim.value.count === ids.length) claimedUntil.set(conversation, now + CLAIM_MS)
      else if (Option.isSome(claim) || now > (claimedUntil.get(conversation) ?? 0)) return { _tag: "Lost" } as const
    }
  })

  const begin = Effect.fnUntraced(function*(conversation: string, batch: ReadonlyArray<Arrived>, session: string | null) {
    const fresh = yield* claimed(conversation, batch)
    failedCalls.delete(conversation)
    const [first, last] = [fresh[0], fresh.at(-1)]
    if (first === undefined || last === undefined) return
    const hop = hopOf(last) + 1
    if (hop > settings.hops) {
      yield* journal.park(conversation, `${settings.hops} automatic replies in a row`)
      return yield* log.note("parked", { conversation, why: `${settings.hops} automatic replies in a row` })
    }
    const ids = idsOf(fresh)
    const run = randomUUID()
    const now = yield* Clock.currentTimeMillis
    // Other conversations may have used up the budget while this one was claimed.
    if (budgetFreeAt(yield* journal.starts(now), conversation, settings, now) > now) return
    yield* journal.begin(conversation, ids, run, now)
    yield* log.note("runs", { conversation, run, messages: ids.length, resumed: session !== null })
    const running: Effect.Effect<Outcome> = Effect.map(
      runs.run({ run, conversation, session, prompt: promptOf(settings.handle, fresh, now) }),
      (ended) => readOutcome(adapter, ended, session)
    )
    const outcome = yield* Effect.raceFirst(running, untilLost(conversation, ids)).pipe(
      Effect.onInterrupt(() => journal.release(conversation, 0, null))
    )
    yield* finish(conversation, first, ids, hop, outcome)
  })

  const finish = Effect.fnUntraced(function*(
    conversation: string,
    first: Message,
    ids: ReadonlyArray<string>,
    hop: number,
    outcome: Outcome | { readonly _tag: "Lost" }
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
    if (isSilent(outcome.text)) {
      yield* journal.silent(conversation, outcome.session, now)
      yield* acknowledge(ids)
      return yield* log.note("silent", { conversation, seconds: Math.round((now - Date.parse(first.created_at)) / SECOND_MS) })
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
    // A claim that may have ended is made again as if it were new: a live session has precedence.
    const claim = yield* api.claim(ids, holder, now > (claimedUntil.get(conversation) ?? 0))
    if (claim.deferred) return yield* holdBack(conversation, lookAgainMs(claim.expiresIn), "deferred", "a live session of the agent answers")
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
    claimedUntil.set(conversation, now + CLAIM_MS)
    const sent = yield* Effect.catchTag(api.send(sendBody(reply, ids, settings.outputBytes)), "Refused", ({ code }) => Effect.succeed(code))
    failedCalls.delete(conversation)
    if (typeof sent === "string") {
      yield* journal.park(conversation, `the server refuses the reply: ${sent}`)
      return yield* log.note("parked", { conversation, why: sent })
    }
    const named = new Set(answersOf(sent.message))
    const answered = sent.replayed && named.size > 0 ? ids.filter((id) => named.has(id)) : ids
    yield* journal.answered(conversation, answered, yield* Clock.currentTimeMillis)
    yield* acknowledge(answered)
    yield* log.note("replied", { conversation, message: sent.message.id, answers: answered.length, replayed: sent.replayed })
  })

  const confirm = Effect.fnUntraced(function*(conversation: string, handled: ReadonlyArray<Arrived>) {
    // A failed call counts like an acknowledgement that has not arrived: it is looked at again, later.
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

  /** Does what is due in a conversation now. */
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

  const drive = Effect.fnUntraced(function*(conversation: string, changed: Queue.Queue<void>) {
    for (;;) {
      const { step } = yield* look(conversation)
      if (step._tag === "Rest") {
        // Nothing may come between the check and the removal, or a change could be missed.
        if (Queue.sizeUnsafe(changed) > 0) yield* Queue.take(changed)
        else return void driven.delete(conversation)
      } else if (step._tag === "Wait") {
        const waitMs = step.until - (yield* Clock.currentTimeMillis)
        yield* Effect.timeoutOption(Queue.take(changed), Math.min(Math.max(waitMs, 1), LONGEST_MS))
      } else {
        yield* slots.withPermit(
          Effect.catchTags(act(conversation), {
            Unreachable: (failure) => unreachable(conversation, failure),
            Refused: (failure) => unreachable(conversation, failure)
          })
        )
      }
    }
  })

  /** Makes sure that a fiber looks at the conversation after now. */
  const poke = Effect.fnUntraced(function*(conversation: string) {
    const known = driven.get(conversation)
    if (known !== undefined) return void Queue.offerUnsafe(known, undefined)
    const changed = yield* Queue.sliding<void>(1)
    driven.set(conversation, changed)
    const failing = Effect.onExit(drive(conversation, changed), (exit) =>
      Exit.isFailure(exit) ? Deferred.failCause(stopped, exit.cause) : Effect.void)
    yield* Effect.forkIn(failing, scope)
  })

  const pokeAll = Effect.flatMap(journal.unfinished, (all) => Effect.forEach(new Set([...all, ...driven.keys()]), poke, { discard: true }))

  const contacts = new Map<string, { readonly is: boolean; readonly until: number }>()
  const isContact = Effect.fnUntraced(function*(handle: string) {
    const now = yield* Clock.currentTimeMillis
    const known = contacts.get(handle)
    if (known !== undefined && known.until > now) return known.is
    // Without an answer nothing is decided: a message that is passed over is not offered again before the next connect.
    const is = yield* Effect.retry(api.isContact(handle), { while: ({ _tag }) => _tag === "Unreachable", schedule: Schedule.spaced("1 second") }).pipe(
      Effect.catchTag("Refused", () => Effect.succeed(false))
    )
    contacts.set(handle, { is, until: now + CONTACT_MS })
    return is
  })

  const permitted = (message: Message) => {
    const known = permits(message.sender, settings.allow)
    return known === undefined ? isContact(message.sender) : Effect.succeed(known)
  }

  const receive = Effect.fnUntraced(function*() {
    const wanted: Array<Message> = []
    for (const event of yield* socket.take) {
      if (event._tag === "Connected") {
        if (event.handle !== settings.handle) {
          return yield* new SettingsInvalid({ message: `the key of ${settings.handle} in connect.json is that of ${event.handle}` })
        }
        yield* journal.setFact("connected", new Date(yield* Clock.currentTimeMillis).toISOString())
        yield* log.note("connected", { server: settings.server })
      } else if (event._tag === "Disconnected") {
        yield* journal.setFact("connected", null)
        yield* log.note("disconnected", { why: event.reason })
      } else if (wakes(event.message, settings)) {
        if (yield* permitted(event.message)) wanted.push(event.message)
        else yield* log.note("ignored", { message: event.message.id, why: "the sender may not start runs" })
      }
    }
    if (wanted.length === 0) return
    const arrivals = wanted.map(({ conversation_id, id, seq }) => ({ id, conversation: conversation_id, seq }))
    const known = yield* journal.arrived(arrivals, yield* Clock.currentTimeMillis)
    yield* acknowledge(idsOf(arrivals).filter((_, at) => known[at] === "handled"))
    const fresh = new Set(arrivals.filter((_, at) => known[at] === "new").map(({ conversation }) => conversation))
    yield* Effect.forEach(fresh, poke, { discard: true })
  })

  const lookForChanges = Effect.gen(function*() {
    for (let version = yield* journal.dataVersion;;) {
      yield* Effect.sleep(LOOK_MS)
      const next = yield* journal.dataVersion
      if (next === version) continue
      version = next
      yield* pokeAll
    }
  })

  yield* journal.setFact("process", String(process.pid))
  yield* journal.setFact("stopped", null)
  yield* Effect.addFinalizer(() => Effect.andThen(journal.setFact("process", null), journal.setFact("connected", null)))
  yield* pokeAll
  yield* Effect.forkScoped(lookForChanges)
  return yield* Effect.raceFirst(Effect.forever(receive()), Deferred.await(stopped)).pipe(
    Effect.tapError((error) => journal.setFact("stopped", error._tag === "KeyRefused" ? `the server refuses the key: ${error.reason}` : error.message))
  )
})
