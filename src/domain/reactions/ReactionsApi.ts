import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { MessageNotFound } from "#domain/messages/Message"
import { Reaction, TooManyReactions } from "#domain/messages/Reaction"
import { Blocked } from "#domain/sending/SendErrors"
import { documented } from "#infrastructure/http/Documented"
import { MESSAGE_ID } from "#infrastructure/wire/Examples"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"

const params = { id: Schema.String, emoji: Schema.String }
const Answer = Schema.Struct({ reactions: Schema.Array(Reaction) }).annotate({ identifier: "MessageReactions" })

/** Reactions to messages (wire.md C.6). */
export class ReactionsApi extends HttpApiGroup.make("reactions")
  .add(
    HttpApiEndpoint.put("add", "/v1/messages/:id/reactions/:emoji", {
      params,
      success: Answer,
      error: [MessageNotFound, Blocked, TooManyReactions]
    }).middleware(Idempotency).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "React to a message",
      description:
        "Puts an emoji, or one of the words +1, -1, done, seen, thanks and question, beside a message that the caller sent or received. " +
        "It is pushed to the participants' sockets, and starts nothing else: it is no message. A repeated reaction changes nothing.",
      parameters: { id: MESSAGE_ID, emoji: "thanks" },
      answer: { reactions: [{ emoji: "thanks", count: 1, mine: true }] }
    })),
    HttpApiEndpoint.delete("remove", "/v1/messages/:id/reactions/:emoji", {
      params,
      success: Answer,
      error: MessageNotFound
    }).middleware(Idempotency).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Take a reaction back",
      description: "Removes the caller's own reaction from a message. Changes nothing if there is none.",
      parameters: { id: MESSAGE_ID, emoji: "thanks" },
      answer: { reactions: [] }
    }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Reactions", description: "Answer a message without writing one." })
  )
{}
