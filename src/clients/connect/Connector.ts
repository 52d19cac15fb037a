import { Clock, Deferred, Effect, Exit, Option, Queue, Schedule, Semaphore } from "effect"
import { randomUUID } from "node:crypto"
import { Journal } from "./Journal.ts"
import { type Message, permits, wakes } from "./Mail.ts"
import { type KeyRefused, ParleyApi } from "./ParleyApi.ts"
import { ParleySocket } from "./ParleySocket.ts"
import type { Adapter } from "./programs/Adapters.ts"
import { RunLog } from "./RunLog.ts"
import { type Settings, SettingsInvalid } from "./Settings.ts"
import { makeSteps } from "./Steps.ts"

/** How long the connector caches whether an agent is a contact, in milliseconds. */
const CONTACT_CACHE_MS = 30_000
/** How often the connector polls the journal for changes by another process, in milliseconds. */
const POLL_INTERVAL_MS = 1_000
/** The longest timer that Node supports, in milliseconds. */
const MAX_TIMER_MS = 2_147_483_647

/**
 * Runs the connector of one agent until its key is refused. Each conversation with work to do has one fiber, which runs
 * one step after the other (Steps.ts). The fiber ends when nothing is left to do. A new message then starts another
 * fiber.
 */
export const connect = Effect.fnUntraced(function*(settings: Settings, adapter: Adapter) {
  const journal = yield* Journal
  const api = yield* ParleyApi
  const socket = yield* ParleySocket
  const log = yield* RunLog
  const scope = yield* Effect.scope
  const slots = yield* Semaphore.make(settings.concurrency)
  const stopped = yield* Deferred.make<never, KeyRefused>()
  const installation = Option.getOrElse(yield* journal.fact("installation"), () => randomUUID())
  yield* journal.setFact("installation", installation)
  const { acknowledge, act, look, unreachable } = yield* makeSteps(settings, adapter, `daemon:${installation}`)

  /** The conversations that have a fiber. An entry in the queue means that something may have changed. */
  const driven = new Map<string, Queue.Queue<void>>()

  const drive = Effect.fnUntraced(function*(conversation: string, changed: Queue.Queue<void>) {
    for (;;) {
      const { step } = yield* look(conversation)
      if (step._tag === "Rest") {
        // Check and remove in one synchronous step. Otherwise a change could be missed.
        if (Queue.sizeUnsafe(changed) > 0) yield* Queue.take(changed)
        else return void driven.delete(conversation)
      } else if (step._tag === "Wait") {
        const waitMs = step.until - (yield* Clock.currentTimeMillis)
        yield* Effect.timeoutOption(Queue.take(changed), Math.min(Math.max(waitMs, 1), MAX_TIMER_MS))
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

  /** Notifies the fiber of a conversation of a change, or starts the fiber. */
  const poke = Effect.fnUntraced(function*(conversation: string) {
    const known = driven.get(conversation)
    if (known !== undefined) return void Queue.offerUnsafe(known, undefined)
    const changed = yield* Queue.sliding<void>(1)
    driven.set(conversation, changed)
    const failing = Effect.onExit(
      drive(conversation, changed),
      (exit) => Exit.isFailure(exit) ? Deferred.failCause(stopped, exit.cause) : Effect.void
    )
    yield* Effect.forkIn(failing, scope)
  })

  const pokeAll = Effect.flatMap(
    journal.unfinished,
    (all) => Effect.forEach(new Set([...all, ...driven.keys()]), poke, { discard: true })
  )

  const contacts = new Map<string, { readonly is: boolean; readonly until: number }>()
  const isContact = Effect.fnUntraced(function*(handle: string) {
    const now = yield* Clock.currentTimeMillis
    const known = contacts.get(handle)
    if (known !== undefined && known.until > now) return known.is
    // Retry the call until the server responds. The server does not offer an ignored message again before the next
    // connect.
    const is = yield* Effect.retry(api.isContact(handle), {
      while: ({ _tag }) => _tag === "Unreachable",
      schedule: Schedule.spaced("1 second")
    }).pipe(
      Effect.catchTag("Refused", () => Effect.succeed(false))
    )
    contacts.set(handle, { is, until: now + CONTACT_CACHE_MS })
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
          return yield* new SettingsInvalid({
            message: `the key of ${settings.handle} in connect.json is that of ${event.handle}`
          })
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
    yield* acknowledge(arrivals.filter((_, at) => known[at] === "handled").map(({ id }) => id))
    const fresh = new Set(arrivals.filter((_, at) => known[at] === "new").map(({ conversation }) => conversation))
    yield* Effect.forEach(fresh, poke, { discard: true })
  })

  const lookForChanges = Effect.gen(function*() {
    for (let version = yield* journal.dataVersion;;) {
      yield* Effect.sleep(POLL_INTERVAL_MS)
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
    Effect.tapError((error) =>
      journal.setFact(
        "stopped",
        error._tag === "KeyRefused" ? `the server refuses the key: ${error.reason}` : error.message
      )
    )
  )
})
