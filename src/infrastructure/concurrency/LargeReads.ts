import { type Reading, ServerRequest } from "#infrastructure/http/ServerRequest"
import { Config } from "#infrastructure/platform/Config"
import { largeReads } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { BlockedMillis } from "#infrastructure/platform/StallGuard"
import { RateLimited, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { LargeReadQueue, Slot, type Timing } from "./LargeReadQueue.ts"

/** After how many milliseconds a client may repeat a refused request. */
const RETRY_MS = 1_000

/**
 * How large the response of an endpoint can be: at most `max` items of `bytes` each, and `usual` items if the query has
 * no `limit`. If `max` and `usual` are the same, the query's `limit` is ignored. `"message"` stands for the size of the
 * largest message.
 */
export interface LargeAnswer {
  readonly usual: number
  readonly max: number
  readonly bytes: number | "message"
}

/** Annotates an endpoint whose responses can be larger than 256 kB. */
export const LargeAnswer = Context.Reference<LargeAnswer | undefined>("parley/concurrency/LargeAnswer", {
  defaultValue: () => undefined
})

/** How many searches and reads of threads one process runs at once, and how many of one agent may wait. */
const MAX_SEARCHES = 2
const MAX_WAITING_SEARCHES = 4

/** An estimate of how many bytes of JSON a message takes in addition to its content and metadata. */
const BESIDE_CONTENT = 2_048

type Bounded = <A, E, R>(
  key: string,
  size: LargeAnswer,
  effect: Effect.Effect<A, E, R>
) => Effect.Effect<A, E | RateLimited | Unavailable, R>

/**
 * Bounds large responses, so that a peer that reads many of them, or does not read them, does not slow down other peers
 * (wire.md C.0, Large answers). A request that gets no slot in time is refused. The status is 429 if its peer already
 * has too many large responses in progress, and 503 if the whole process is at its bound.
 */
export class LargeReads extends Context.Service<LargeReads, {
  /**
   * Runs the effect in a slot of this agent. The slot becomes free when the response to the current request was sent.
   */
  readonly ofAgent: Bounded
  /**
   * Runs the transfer of a file in a slot of this IP address. The slot becomes free when the response to the current
   * request was sent.
   */
  readonly file: <A, E, R>(
    address: string,
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | RateLimited | Unavailable, R>
  /**
   * Runs a search or a read of a thread, which go through many rows for a small response, in the only such slot of this
   * agent. The slot becomes free when the effect has ended.
   */
  readonly search: <A, E, R>(
    agentId: string,
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | RateLimited | Unavailable, R>
  /**
   * Runs the effect, which may take minutes, in a slot of this agent. The slot becomes free when the effect has ended.
   */
  readonly during: Bounded
}>()("parley/concurrency/LargeReads") {
  static readonly layer = Layer.effect(
    LargeReads,
    Effect.gen(function*() {
      const config = yield* Config
      const waiting = config.HTTP_LARGE_READS_WAITING
      const run = Effect.runForkWith(yield* Effect.context<never>())
      const timing: Timing = {
        now: monotonicMillis(yield* Clock.Clock),
        later: (ms, then) => void run(Effect.map(Effect.sleep(ms), then)),
        soon: (then) => void setImmediate(then)
      }
      const cutMs = config.HTTP_LARGE_READS_SECONDS * 1_000
      const answers = new LargeReadQueue({ waiting, bytes: config.HTTP_READING_BYTES, cutMs }, timing)
      // Transfers are bounded by the number of open files, so each transfer counts as 1.
      const files = new LargeReadQueue({ waiting, bytes: config.HTTP_FILES, cutMs }, timing)
      const searches = new LargeReadQueue({ waiting: MAX_WAITING_SEARCHES, bytes: MAX_SEARCHES, cutMs }, timing)
      const queues = [answers, files, searches]
      yield* largeReads.at("under way").readsIn(() => queues.reduce((sum, { underWay }) => sum + underWay, 0))
      yield* largeReads.at("waiting").readsIn(() => queues.reduce((sum, { waiting }) => sum + waiting, 0))
      const perItem = { message: config.LIMITS_MESSAGE_BYTES + BESIDE_CONTENT }

      const refused = (message: string, slots: number) =>
        new RateLimited({ message, details: { limit: slots, window: "at once", retry_after_ms: RETRY_MS } })

      const tooMany = (queue: LargeReadQueue, slots: number) =>
        refused(
          queue === answers
            ? `You have ${slots} large answers under way, and may not have more at once: read them first.`
            : queue === searches
            ? "A search or a read of a thread by this agent is under way, and others wait for it. Wait until it ends."
            : `Your address has ${slots} uploads and downloads under way, and may not have more at once: wait until one of them ends.`,
          slots
        )

      const inDebt = (slots: number) =>
        refused("The reads of this agent take more than their share of the server's time. Read less often.", slots)

      /** Waits for a slot. Calls `granted` synchronously when the slot is granted. */
      const slotOf = (
        queue: LargeReadQueue,
        key: string,
        slots: number,
        bytes: number,
        granted: (slot: Slot) => void
      ) =>
        Effect.suspend((): Effect.Effect<Slot, RateLimited | Unavailable> => {
          const entered = queue.enter(key, slots, bytes)
          if (entered === "full") return Effect.fail(tooMany(queue, slots))
          if (entered === "busy") return Effect.fail(new Unavailable())
          if (entered instanceof Slot) {
            granted(entered)
            return Effect.succeed(entered)
          }
          // Why the request has no slot, at the time when it stopped waiting.
          let refusal: RateLimited | Unavailable = tooMany(queue, slots)
          return Effect.callback<Slot>((resume) => {
            entered.granted = (slot) => {
              granted(slot)
              resume(Effect.succeed(slot))
            }
            return Effect.sync(() => {
              if (queue.hasFreeSlot(key)) refusal = new Unavailable()
              else if (queue.isInDebt(key)) refusal = inDebt(slots)
              entered.leave()
            })
          }).pipe(Effect.timeoutOrElse({
            duration: config.HTTP_LARGE_READS_SECONDS * 1_000,
            orElse: () => Effect.fail(refusal)
          }))
        })

      const bytesOf = ({ bytes, max, usual }: LargeAnswer, context: Context.Context<never>): number => {
        const given = usual === max
          ? max
          : Number(Context.getOrUndefined(context, HttpServerRequest.ParsedSearchParams)?.["limit"])
        return (given >= 1 ? Math.min(given, max) : usual) * (bytes === "message" ? perItem.message : bytes)
      }

      /** Counts the statements of the effect for its slot, and for the slot inside of which it runs. */
      const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) => ({ blocked }: Pick<Reading, "blocked">) =>
        Effect.withFiber<A, E, R>((fiber) => {
          const outer = fiber.getRef(BlockedMillis)
          if (outer === undefined || blocked === undefined || outer === blocked)
            return Effect.provideService(effect, BlockedMillis, blocked)
          const both = {
            get ms() {
              return blocked.ms
            },
            set ms(ms) {
              outer.ms += ms - blocked.ms
              blocked.ms = ms
            }
          }
          return Effect.provideService(effect, BlockedMillis, both)
        })

      const during = <A, E, R>(
        queue: LargeReadQueue,
        key: string,
        slots: number,
        bytes: number,
        effect: Effect.Effect<A, E, R>
      ) =>
        Effect.suspend(() => {
          // Set synchronously when the slot is granted, so that an interruption cannot leak the slot.
          let slot: Slot | undefined
          const granted = (it: Slot) => {
            slot = it
          }
          return Effect.ensuring(
            Effect.flatMap(slotOf(queue, key, slots, bytes, granted), timed(effect)),
            Effect.sync(() => slot?.left())
          )
        })

      const attach = (source: ServerRequest, reading: Reading): void => {
        // If the client disconnected while the request waited, no response is sent.
        if (source.isOver || source.socket.destroyed || source.reading !== undefined) reading.left()
        else source.reading = reading
      }

      const readingDuring = (slots: number): Bounded => (key, size, effect) =>
        Effect.withFiber((fiber) => during(answers, key, slots, bytesOf(size, fiber.context), effect))

      const untilLeft = (slots: number): Bounded => (key, size, effect) =>
        Effect.withFiber((fiber) => {
          const source = Context.getOrUndefined(fiber.context, HttpServerRequest.HttpServerRequest)?.source
          if (!(source instanceof ServerRequest)) return readingDuring(slots)(key, size, effect)
          // If a request calls other endpoints for its response, one slot covers all these calls.
          if (source.reading !== undefined) return timed(effect)(source.reading)
          return Effect.flatMap(
            slotOf(answers, key, slots, bytesOf(size, fiber.context), (slot) => attach(source, slot)),
            // Another call of this request may have got its slot first. It pays for both.
            (slot) => timed(effect)(source.reading ?? slot)
          )
        })

      return LargeReads.of({
        ofAgent: untilLeft(config.HTTP_LARGE_READS),
        file: (address, effect) =>
          Effect.withFiber((fiber) => {
            const { source } = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
            return Effect.andThen(
              slotOf(files, address, config.HTTP_FILES_PER_ADDRESS, 1, (slot) =>
                // The file stays open until the response was sent, even if its last bytes were read much earlier.
                attach(source as ServerRequest, {
                  encoded: () => undefined,
                  cut: () => undefined,
                  left: () => slot.left()
                })),
              effect
            )
          }),
        search: (agentId, effect) => during(searches, agentId, 1, 1, effect),
        during: readingDuring(config.HTTP_LARGE_READS)
      })
    })
  )
}
