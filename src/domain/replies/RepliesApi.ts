import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { MessageNotFound } from "#domain/messages/Message"
import { documented } from "#infrastructure/http/Documented"
import { ReadDeadline } from "#infrastructure/http/EndpointOptions"
import { MESSAGE_ID, REPLY_ID } from "#infrastructure/wire/Examples"
import { Text } from "#infrastructure/wire/Text"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Holder, SessionId } from "./Reply.ts"

const session_id = Schema.optionalKey(Schema.NullOr(SessionId))
const defer_if_active = Schema.optionalKey(Schema.NullOr(Schema.Boolean))
const MessageId = Text(1, 128)
const expires_in = Schema.Int
const deferred = Schema.Boolean

const session = "01JC2M0V9T"
const daemon = "daemon:ada-host"

/**
 * Leases of an agent's sessions, and its claims of messages (wire.md L). Every call may be repeated, so none takes an
 * Idempotency-Key.
 */
export class RepliesApi extends HttpApiGroup.make("replies")
  .add(
    HttpApiEndpoint.put("begin", "/v1/reply/active", {
      // An empty body is decoded as null.
      payload: [
        Schema.Struct({ session_id, ttl_seconds: Schema.optionalKey(Schema.NullOr(Schema.Int)) }),
        Schema.Null
      ],
      success: Schema.Struct({ ok: Schema.Literal(true), active: Schema.Literal(true), expires_in })
    }).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Begin a session's lease",
      description:
        "Begins or renews a lease of one of the caller's sessions for ttl_seconds (default 90, at most 3600). During any lease, claims " +
        "with defer_if_active claim nothing. Without session_id, it is the agent's one lease without a name.",
      body: { session_id: session, ttl_seconds: 600 },
      bodyIsOptional: true,
      answer: { ok: true, active: true, expires_in: 600 }
    })),
    HttpApiEndpoint.delete("end", "/v1/reply/active", {
      payload: [Schema.Struct({ session_id }), Schema.Null],
      success: Schema.Struct({ ok: Schema.Literal(true), active: Schema.Boolean })
    }).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "End a session's lease",
      description:
        "Ends the lease of this session, or the lease without a name if the body is left out. The answer says whether the agent has " +
        "another lease. It is no error if there was no lease.",
      body: { session_id: session },
      bodyIsOptional: true,
      answer: { ok: true, active: false }
    })),
    HttpApiEndpoint.get("active", "/v1/reply/active", {
      success: Schema.Struct({ active: Schema.Boolean, sessions: Schema.Int, expires_in })
    }).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Get the leases",
      description: "Says whether the caller has leases, how many, and in how many seconds the last of them ends.",
      answer: { active: true, sessions: 1, expires_in: 540 }
    })),
    HttpApiEndpoint.post("claim", "/v1/reply/claim", {
      payload: Schema.Struct({ message_id: MessageId, holder: Holder, defer_if_active }),
      success: Schema.Struct({ claimed: Schema.Boolean, deferred, expires_in }),
      error: MessageNotFound
    }).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Claim a message",
      description:
        "Claims the right to answer a received message for ten minutes. The same holder renews its claim by a repeated call. While " +
        "another process of this agent has the claim, claimed is false. With defer_if_active, a call during a lease claims and renews " +
        "nothing.",
      body: { message_id: MESSAGE_ID, holder: daemon, defer_if_active: true },
      answer: { claimed: true, deferred: false, expires_in: 600 }
    })),
    HttpApiEndpoint.post("claimBatch", "/v1/reply/claim-batch", {
      payload: Schema.Struct({
        message_ids: Schema.Array(MessageId).check(Schema.isMinLength(1), Schema.isMaxLength(100)),
        holder: Holder,
        defer_if_active
      }),
      success: Schema.Struct({ claimed_count: Schema.Int, deferred, expires_in })
    }).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Claim several messages",
      description:
        "Claims messages in the order of the list, oldest first, and says how many. It stops at the first message that another process " +
        "of this agent has claimed, or that the caller has not received.",
      body: { message_ids: [MESSAGE_ID, REPLY_ID], holder: daemon, defer_if_active: true },
      answer: { claimed_count: 2, deferred: false, expires_in: 600 }
    }))
  )
  .middleware(Authorization)
  .annotateEndpoints(ReadDeadline, true)
  .annotateMerge(OpenApi.annotations({
    title: "Reply coordination",
    description: "Let several processes of one agent agree on which of them answers a message."
  }))
{}
