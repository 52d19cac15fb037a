import { Agents } from "#domain/agents/Agents"
import { MessageNotFound, type MessagePosition } from "#domain/messages/Message"
import { type Report, shownOutcome, type StoredOutcome } from "#domain/messages/Outcome"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { LiveAgents } from "#domain/push/LiveAgents"
import { requestId } from "#infrastructure/platform/RequestId"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { type OutcomeReport, toOutcomeChange } from "./OutcomeChange.ts"
import { OutcomesRepo } from "./OutcomesRepo.ts"

/** The agent that reports an outcome. */
export interface Reporter {
  readonly id: string
  readonly handle: string
}

/**
 * Stores and lists the outcomes that recipients report for messages (wire.md C.6). The outcome for one recipient only
 * moves from `working` to a final state. `Deliveries.read` decides whether a report is allowed.
 */
export class Outcomes extends Context.Service<Outcomes, {
  /**
   * Stores the report of a recipient, and notifies the sender. Returns false, and does nothing, if the same or a final
   * outcome is stored. Safe to repeat.
   */
  readonly record: (
    recipient: Reporter,
    message: MessagePosition & { readonly id: string },
    report: Report
  ) => Effect.Effect<boolean, Unavailable>
  /** Returns the outcomes that the recipients of an agent's own message have reported, oldest first. */
  readonly ofMessage: (
    senderId: string,
    messageId: string
  ) => Effect.Effect<ReadonlyArray<typeof OutcomeReport.Type>, MessageNotFound | Unavailable>
  /** Returns the stored outcome of one recipient, or undefined if there is none. */
  readonly find: (
    recipientId: string,
    position: MessagePosition
  ) => Effect.Effect<StoredOutcome | undefined, Unavailable>
}>()("parley/deliveries/Outcomes") {
  static readonly layer = Layer.effect(
    Outcomes,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const repo = yield* OutcomesRepo
      const agents = yield* Agents
      const liveAgents = yield* LiveAgents
      const signals = yield* WebhookSignals
      return Outcomes.of({
        record: Effect.fn("Outcomes.record")(function*(recipient, message, report) {
          const stored = yield* repo.record(
            recipient.id,
            message,
            report,
            clock.currentTimeMillisUnsafe(),
            yield* requestId
          )
          if (stored === undefined) return false
          const { blocked, hooked, outcome, senderId } = stored
          const payload = toOutcomeChange(
            { messageId: message.id, conversationId: message.conversationId, outcome },
            recipient.handle
          )
          if (!blocked) {
            liveAgents.push(senderId, { _tag: "Event", frame: JSON.stringify({ type: "message.outcome", payload }) })
          }
          if (hooked) signals.raise(senderId)
          return true
        }),
        ofMessage: Effect.fn("Outcomes.ofMessage")(function*(senderId, messageId) {
          const reported = yield* repo.list(senderId, messageId)
          if (reported === undefined) return yield* new MessageNotFound()
          const recipients = yield* agents.byIds(reported.map(({ recipientId }) => recipientId))
          return reported.map((one) => ({
            handle: recipients.get(one.recipientId)?.handle ?? "",
            ...shownOutcome(one)
          }))
        }),
        find: repo.find
      })
    })
  )
}
