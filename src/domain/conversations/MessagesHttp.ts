import { CurrentAgent } from "#domain/auth/Authorization"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Outcomes } from "#domain/deliveries/Outcomes"
import { REPLAYED } from "#domain/idempotency/Idempotency"
import { messagePage } from "#domain/messages/MessagePage"
import type { OutcomeState, Report } from "#domain/messages/Outcome"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { confirm } from "#infrastructure/wire/Confirmation"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { Conversations, type SendAnswer, type SendTarget } from "./Conversations.ts"
import { draftOf } from "./DraftOf.ts"
import { HISTORY, MessagesApi, type SendBody, SYNC } from "./MessagesApi.ts"
import type { BudgetLeft } from "./SendBudgets.ts"

/** Responds with a text that is already JSON. */
const jsonText = (text: string, status = 200, headers?: Record<string, string>) =>
  HttpServerResponse.text(text, {
    status,
    contentType: "application/json",
    ...(headers === undefined ? {} : { headers })
  })

const targetOf = (body: typeof SendBody.Type): SendTarget | ValidationFailed => {
  if (body.to !== undefined && body.conversation_id !== undefined) {
    return ValidationFailed.field("to", "cannot be combined with conversation_id: name one of them")
  }
  if (body.to !== undefined) return { _tag: "Direct", handle: body.to }
  if (body.conversation_id !== undefined) return { _tag: "Conversation", id: body.conversation_id }
  return ValidationFailed.field("to", "name the handle to write to, or a group's conversation_id")
}

/** The header of a response whose message is in another conversation than the one that the send names (wire.md C.6). */
const CONFLICT = { "x-client-msg-id-conflict": "conversation" }

/** The headers that say how many messages the sender may still send (wire.md G.19). */
const budgetHeaders = ({ left, limit, scope }: BudgetLeft) => ({
  "x-budget-left": String(left),
  "x-budget-limit": String(limit),
  "x-budget-scope": scope
})

const sentJson = (payload: typeof SendBody.Type, { backlog, body, budget, created, isElsewhere }: SendAnswer) => {
  const warning = backlog === null || payload.to === undefined
    ? undefined
    : { "x-backlog-warning": `${payload.to}=${backlog}` }
  return created
    ? jsonText(body, 201, budget === undefined ? warning : { ...warning, ...budgetHeaders(budget) })
    : jsonText(body, 200, { ...REPLAYED, ...(isElsewhere ? CONFLICT : {}), ...warning })
}

/** Returns what the body of a read reports, or undefined if it reports nothing. An empty reason counts as none. */
const reportOf = (
  body: { readonly outcome?: OutcomeState; readonly reason?: string | null } | null
): Report | ValidationFailed | undefined => {
  const reason = body?.reason ?? ""
  if (body?.outcome !== undefined) return { state: body.outcome, reason: reason === "" ? null : reason }
  return reason === "" ? undefined : ValidationFailed.field("reason", "needs an outcome")
}

/** Returns the seq, or `null` if the parameter is missing, empty or the text `null`. */
const seqOrNull = (value: number | "" | "null" | undefined): number | null => typeof value === "number" ? value : null

/** Returns the id, or `null` if the parameter is missing or empty. */
const idOrNull = (value: string | undefined): string | null => value === undefined || value === "" ? null : value

export const MessagesHttp = Endpoints.group(
  Endpoints.apiOf(MessagesApi),
  "messages",
  Effect.fnUntraced(function*(handlers) {
    const config = yield* Config
    const conversations = yield* Conversations
    const deliveries = yield* Deliveries
    const outcomes = yield* Outcomes
    const reads = yield* LargeReads

    return handlers.handleAll({
      // Written without a generator, because most requests are sends.
      send: ({ payload }) =>
        Effect.flatMap(CurrentAgent, (agent) => {
          const target = targetOf(payload)
          if (target instanceof ValidationFailed) return Effect.fail(target)
          return Effect.flatMapEager(draftOf(payload, config.LIMITS_MESSAGE_BYTES), (draft) =>
            Effect.map(conversations.send(agent, target, draft), (sent) => sentJson(payload, sent)))
        }),
      history: Effect.fnUntraced(function*({ params, query }) {
        const agent = yield* CurrentAgent
        const before = seqOrNull(query.before_seq)
        const after = seqOrNull(query.after_seq)
        const around = idOrNull(query.around_message_id)
        const thread = idOrNull(query.thread)
        if ([before, after, around].filter((cursor) => cursor !== null).length > 1) {
          return yield* ValidationFailed.field(
            "before_seq",
            "give at most one of before_seq, after_seq, around_message_id"
          )
        }
        if (thread !== null && (before !== null || around !== null)) {
          return yield* ValidationFailed.field("thread", "cannot be combined with before_seq or around_message_id")
        }
        const read = conversations.history(agent.id, params.id, {
          limit: Math.min(query.limit ?? HISTORY.usual, HISTORY.max),
          before,
          after,
          around,
          thread
        })
        return yield* messagePage(yield* thread === null ? read : reads.search(agent.id, read))
      }),
      sync: Effect.fnUntraced(function*({ query }) {
        const agent = yield* CurrentAgent
        const after = query.after === "" ? undefined : query.after
        const rows = yield* deliveries.sync(agent.id, after, Math.min(query.limit ?? SYNC.usual, SYNC.max))
        return yield* messagePage(rows)
      }),
      syncAck: Effect.fnUntraced(function*({ payload }) {
        const agent = yield* CurrentAgent
        return { acked: yield* deliveries.acknowledgeThrough(agent.id, payload.last_delivery_id) }
      }),
      read: Effect.fnUntraced(function*({ params, payload }) {
        const agent = yield* CurrentAgent
        const report = reportOf(payload)
        if (report instanceof ValidationFailed) return yield* report
        const message = yield* deliveries.read(agent.id, agent.handle, params.id, report)
        return jsonText(`${message.slice(0, -1)},"ok":true}`)
      }),
      outcomes: Effect.fnUntraced(function*({ params }) {
        const agent = yield* CurrentAgent
        return yield* outcomes.ofMessage(agent.id, params.id)
      }),
      hide: Effect.fnUntraced(function*({ params }) {
        const agent = yield* CurrentAgent
        yield* conversations.hideMessage(agent.id, params.id)
        return confirm("The message is hidden from you; the other side still has it.")
      })
    })
  })
)
