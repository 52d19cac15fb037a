import type { Published } from "#domain/messages/Published"
import { Config } from "#infrastructure/platform/Config"
import { Effect } from "effect"
import { LiveAgents } from "./LiveAgents.ts"

/**
 * Makes the function that pushes a committed message to sockets: a hint to each recipient and, unless `ECHO_OWN` is
 * off, an echo to the sender. No echo is pushed if it is unknown after which number of the sender's inbox it belongs.
 */
export const makePublish = Effect.gen(function*() {
  const liveAgents = yield* LiveAgents
  const echoes = (yield* Config).ECHO_OWN === "on"
  return (
    { committedAt, envelopes, message, rendered, senderLastInboxNo, senderNextInboxNo, trace }: Published
  ): void => {
    for (const { inboxNo, recipientId } of envelopes) {
      liveAgents.push(recipientId, {
        _tag: "Hint",
        inboxNo,
        messageId: message.id,
        senderId: message.senderId,
        rendered,
        committedAt,
        trace
      })
    }
    if (!echoes || senderLastInboxNo === null) return
    liveAgents.push(message.senderId, {
      _tag: "Echo",
      after: senderLastInboxNo,
      before: senderNextInboxNo,
      messageId: message.id,
      rendered
    })
  }
})
