import { AgentNotFound } from "#domain/agents/Agent"
import { Attachments } from "#domain/attachments/Attachments"
import { Conversations } from "#domain/conversations/Conversations"
import { draftOf } from "#domain/conversations/DraftOf"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect, Predicate } from "effect"
import { createHash, hash } from "node:crypto"
import type { Call, LookUp } from "./Call.ts"
import { A2aFailure, type Failure } from "./Failure.ts"
import { type Json, objectOf, parsed } from "./Fields.ts"
import { incoming, type RawFile } from "./MessageParts.ts"
import type { PushConfigs } from "./PushConfigs.ts"
import { isFinal, type Task } from "./Task.ts"
import { KEY_PREFIX, type Side, Tasks } from "./Tasks.ts"

/**
 * The client_msg_id of a message. The id depends only on the handle and the caller's `messageId`, so that a repeated
 * send is recognized.
 */
const clientMsgIdOf = (handle: string, messageId: string): string =>
  KEY_PREFIX + createHash("sha256").update(`${handle}\n${messageId}`).digest("base64url")

/** The task that a just committed message creates. The task has no other message, so nothing has to be read. */
const newTask = (side: Side, id: string, body: string): Task => {
  const { created_at, seq } = JSON.parse(body) as { readonly created_at: string; readonly seq: number }
  const at = Date.parse(created_at)
  return {
    ...side,
    id,
    seq,
    state: "SUBMITTED",
    updatedAt: at,
    changes: 1,
    log: [{ state: "SUBMITTED", at, seq, messageId: id }]
  }
}

/** Makes the function that sends a message and returns its task. */
export const makeSend = ({ sideOf, taskOf }: LookUp, configs: PushConfigs) =>
  Effect.gen(function*() {
    const attachments = yield* Attachments
    const config = yield* Config
    const conversations = yield* Conversations
    const ids = yield* Ids
    const tasks = yield* Tasks

    const upload = Effect.fnUntraced(
      function*({ api, caller }: Call, handle: string, { bytes, contentType, filename }: RawFile) {
        const { body } = yield* api.call<{ readonly attachment_id: string }>("POST", "/v1/uploads", {
          to: handle,
          filename,
          content_type: contentType,
          size: bytes.length,
          sha256: hash("sha256", bytes, "hex")
        })
        yield* attachments.fill(caller.id, body.attachment_id, bytes)
        return body.attachment_id
      }
    )

    /** The task to which a stored message belongs. */
    const taskOfMessage = Effect.fnUntraced(function*(side: Side, body: string): Effect.fn.Return<Task, Failure> {
      const { metadata } = JSON.parse(body) as { readonly metadata: Json }
      const id = Predicate.isObject(metadata["a2a"]) ? metadata["a2a"]["task_id"] : undefined
      const task = typeof id === "string" ? yield* tasks.find(side, id) : undefined
      return task ??
        (yield* new ValidationFailed({
          message: "message.messageId: you have sent a message with this id that belongs to no task"
        }))
    })

    /** The task of the message with this client_msg_id; undefined if the caller has not sent the message. */
    const taskSentBefore = Effect.fnUntraced(function*(side: Side, clientMsgId: string) {
      const sent = yield* conversations.original(side.callerId, clientMsgId)
      return sent && (yield* taskOfMessage(side, sent.body))
    })

    const sendOnly = Effect.fnUntraced(
      function*(call: Call, params: Json): Effect.fn.Return<{ side: Side; task: Task }, Failure> {
        const message = yield* parsed(() => {
          const given = objectOf(params, "message")
          if (given === undefined) throw ValidationFailed.field("message", "is required")
          return incoming(given, objectOf(params, "metadata"))
        })
        const known = yield* sideOf(call)
        if (known === undefined) return yield* new AgentNotFound()
        const { recipient, side } = known
        if (recipient.id === call.caller.id) {
          return yield* ValidationFailed.field("handle", "is yourself: write to another agent")
        }
        const clientMsgId = clientMsgIdOf(recipient.handle, message.messageId)
        if (message.contextId !== undefined && message.contextId !== side.conversationId) {
          return yield* ValidationFailed.field(
            "message.contextId",
            "must be the id of your conversation with this agent, or absent"
          )
        }
        if (message.taskId !== undefined) {
          const { task } = yield* taskOf(call, message.taskId)
          if (isFinal(task.state)) {
            const earlier = yield* taskSentBefore(side, clientMsgId)
            if (earlier !== undefined) return { side, task: earlier }
            return yield* Effect.fail(
              new A2aFailure(
                "UNSUPPORTED_OPERATION",
                "The task has ended: send the message without taskId, as a new task.",
                {
                  state: `TASK_STATE_${task.state}`
                }
              )
            )
          }
        }
        let attachmentId: string | undefined
        if (message.file !== undefined) {
          const earlier = yield* taskSentBefore(side, clientMsgId)
          if (earlier !== undefined) return { side, task: earlier }
          attachmentId = yield* upload(call, recipient.handle, message.file)
        }
        const id = ids.make("msg")
        const draft = yield* draftOf({
          client_msg_id: clientMsgId,
          type: attachmentId !== undefined ? "file" : message.text === undefined ? "structured" : "text",
          content: {
            ...(message.text === undefined ? {} : { text: message.text }),
            ...(message.data === undefined ? {} : { data: message.data }),
            ...(attachmentId === undefined ? {} : { attachment_id: attachmentId })
          },
          metadata: { a2a: { task_id: message.taskId ?? id, context_id: side.conversationId, ...message.a2a } }
        }, config.LIMITS_MESSAGE_BYTES)
        if (message.taskId === undefined) yield* tasks.begin(side.conversationId)
        const sent = yield* conversations.send(call.caller, { _tag: "Direct", handle: recipient.handle }, {
          ...draft,
          messageId: id
        })
        if (!sent.created || message.taskId !== undefined) return { side, task: yield* taskOfMessage(side, sent.body) }
        return { side, task: newTask(side, id, sent.body) }
      }
    )

    /** Whether the caller has sent a message with this `messageId` to the called agent before. */
    const wasSent = Effect.fnUntraced(function*(call: Call, messageId: string) {
      const known = yield* sideOf(call)
      return known !== undefined &&
        (yield* conversations.original(call.caller.id, clientMsgIdOf(known.recipient.handle, messageId))) !== undefined
    })

    /**
     * Sends a message. Stores the push configuration of the request before the response, so that every change after the
     * response is posted.
     */
    const send = Effect.fnUntraced(
      function*(call: Call, params: Json): Effect.fn.Return<{ side: Side; task: Task }, Failure> {
        const asked = yield* parsed(() => {
          const given = objectOf(objectOf(params, "configuration") ?? {}, "taskPushNotificationConfig")
          const { messageId, taskId } = objectOf(params, "message") ?? {}
          // The name depends only on the request, so that a repeated request creates no second configuration.
          const name = `send-${hash("sha256", String(messageId), "hex").slice(0, 16)}`
          return given &&
            {
              given,
              messageId: String(messageId),
              taskId: typeof taskId === "string" && taskId !== "" ? taskId : undefined,
              name
            }
        })
        const config = asked && (yield* configs.read(asked.given, asked.taskId, asked.name))
        if (asked !== undefined && config !== undefined) {
          const taskId = asked.taskId === undefined ? undefined : (yield* taskOf(call, asked.taskId)).task.id
          // The configuration of a repeated send may exist already. In that case `put` decides whether the limit allows
          // it.
          yield* configs.checkRoom(call.caller.id, taskId, config.name).pipe(
            Effect.catchTag("TooManyPushConfigsOfAgent", (full) =>
              Effect.flatMap(wasSent(call, asked.messageId), (sent) => sent ? Effect.void : Effect.fail(full)))
          )
        }
        const { side, task } = yield* sendOnly(call, params)
        return { side, task: config === undefined ? task : yield* configs.put(side, task.id, config) }
      }
    )

    return send
  })
