import { Effect, Semaphore } from "effect"
import { causeOf, type Message, sortOut } from "../Mail.ts"
import { type Claim, type Failure, ParleyApi } from "../ParleyApi.ts"
import { clientMsgIdOf, isSilent, replyMetadata } from "../Reply.ts"
import type { Outcome } from "./Outcome.ts"
import { openTools, type ToolAnswer, type Tools, type ToSend } from "./ToolGate.ts"

/** How many messages one run may send. */
const MAX_SENDS = 20

const answer = (text: string): ToolAnswer => ({ text, refused: false })
const refusal = (text: string): ToolAnswer => ({ text, refused: true })

const whyNot = (failure: Failure): string =>
  failure._tag === "Refused"
    ? `Refused: ${JSON.stringify({ code: failure.code })}`
    : failure._tag === "KeyRefused"
    ? "The server refuses the key of this agent. End now."
    : "The server did not respond, so the outcome is unknown. Repeat the call: the message is sent only once."

/**
 * Sends the messages of one run with `"reply": "tools"`. The metadata of a message to the run's conversation contains
 * the ids of the batch, as for a reply in mode `output`. So the history shows that the batch is answered. The
 * `client_msg_id` depends on the agent, the oldest message of the batch, the recipient, and how many messages the run
 * has sent to this recipient. A run that is repeated after a crash therefore sends nothing twice.
 */
export const makeSender = Effect.fnUntraced(function*(
  { batch, handle, hop }: {
    readonly handle: string
    readonly batch: readonly [Message, ...ReadonlyArray<Message>]
    readonly hop: number
  },
  claimAgain: Effect.Effect<Claim, Failure>
) {
  const api = yield* ParleyApi
  const [first] = batch
  const ids = batch.map(({ id }) => id)
  const here = first.context.conversation.type === "direct" ? first.sender : first.conversation_id
  const sent = new Map<string, number>()
  const count = (): number => [...sent.values()].reduce((sum, one) => sum + one, 0)
  const recipientOf = (given: string): string => {
    const to = given.trim().replace(/^@/, "")
    return to === first.conversation_id || to.toLowerCase() === here ? here : to
  }
  /** A model may call the tool several times at once. Run the calls one after the other, so that the count is exact. */
  const inTurn = Semaphore.withPermit(yield* Semaphore.make(1))

  const send = ({ replyTo, text, to: given }: ToSend): Effect.Effect<ToolAnswer> =>
    Effect.gen(function*() {
      const to = recipientOf(given)
      if (count() >= MAX_SENDS)
        return refusal(`This run has sent ${MAX_SENDS} messages and may send no more. End now.`)
      const claim = yield* claimAgain
      if (claim.count < ids.length)
        return refusal("Another session of this agent handles these messages. Send nothing more, and end now.")
      const { message } = yield* api.send({
        ...(to.startsWith("grp_") ? { conversation_id: to } : { to }),
        client_msg_id: clientMsgIdOf(
          handle,
          first.id,
          ...(to === here && !sent.has(here) ? [] : [to, sent.get(to) ?? 0])
        ),
        type: "text",
        content: { text },
        metadata: {
          ...replyMetadata(hop, to === here ? ids : [], causeOf(batch)),
          ...(replyTo === undefined ? {} : { reply_to: replyTo })
        }
      })
      sent.set(to, (sent.get(to) ?? 0) + 1)
      return answer(
        JSON.stringify({ ok: true, message_id: message.id, conversation_id: message.conversation_id, seq: message.seq })
      )
    }).pipe(Effect.catch((failure) => Effect.succeed(refusal(whyNot(failure)))), inTurn)

  return {
    send,
    /** How many messages were sent. `hasAnswered` tells whether one of them answers the batch. */
    count,
    hasAnswered: (): boolean => sent.has(here)
  }
})

/** The outcome of a run with tools that has sent at least one message. */
export interface ToolOutcome {
  readonly _tag: "Done"
  readonly sent: number
  readonly session: string | null
}

/**
 * Runs a program that sends messages itself. A message to the conversation counts as the answer, even if the run fails
 * afterwards. A program whose own configuration has access to `/mcp` bypasses the connector, so the history is also
 * searched for an answer. A run that has sent nothing must end with NO_REPLY. Any other final text counts as a failure,
 * because it is not sent in this mode.
 */
export const withTools = (
  settings: { readonly handle: string; readonly key: string; readonly server: string },
  about: { readonly batch: readonly [Message, ...ReadonlyArray<Message>]; readonly hop: number },
  claimAgain: Effect.Effect<Claim, Failure>,
  program: (tools: Tools) => Effect.Effect<Outcome>
): Effect.Effect<Outcome | ToolOutcome, never, ParleyApi> =>
  Effect.scoped(Effect.gen(function*() {
    const api = yield* ParleyApi
    const [first] = about.batch
    const sender = yield* makeSender({ ...about, handle: settings.handle }, claimAgain)
    const outcome = yield* program(yield* openTools(settings, sender.send))
    const session = outcome._tag === "Said" ? outcome.session : null
    const sent = sender.count()
    if (sender.hasAnswered() || (sent > 0 && outcome._tag === "Said")) return { _tag: "Done", sent, session }
    const history = yield* Effect.orElseSucceed(
      api.history(first.conversation_id, first.seq),
      (): ReadonlyArray<Message> => []
    )
    const { answered } = sortOut(about.batch.map(({ id }) => id), history, settings.handle)
    if (answered.length > 0) return { _tag: "Done", sent: answered.length, session }
    return outcome._tag === "Failed" || isSilent(outcome.text)
      ? outcome
      : { _tag: "Failed", why: "the run sent nothing, and its final text is not NO_REPLY" }
  }))
