import { assert } from "@effect/vitest"
import { type Answer, untilTaken } from "../support/Http.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"

let serial = 0

/** A text that no other message has. */
export const words = (): string => `a few words, number ${serial++} of ${process.pid}`

export const freshMsgId = (): string => `cm-${process.pid}-${serial++}`

/** Sends, whatever comes of it. */
export const attempt = (from: TestAgent, to: TestAgent | string, fields: object = {}): Promise<Answer> =>
  from.http.post("/v1/messages", {
    to: typeof to === "string" ? to : to.handle,
    client_msg_id: freshMsgId(),
    content: { text: words() },
    ...fields
  })

/** Sends a new message, and asserts the answer's shape. */
export const say = async (from: TestAgent, to: TestAgent, fields: object = {}): Promise<Shapes.Message> => {
  const same = { client_msg_id: freshMsgId(), content: { text: words() }, ...fields }
  const answer = await untilTaken(() => attempt(from, to, same))
  return answer.ok(answer.repeated && answer.status === 200 ? 200 : 201, Shapes.Message)
}

/** The caller's undelivered messages, at most 500 of them. */
export const inbox = async (agent: TestAgent): Promise<typeof Shapes.SyncRows.Type> =>
  (await agent.http.get("/v1/messages/sync?limit=500")).ok(200, Shapes.SyncRows)

/** Marks everything in the inbox as delivered. */
export const catchUp = async (agent: TestAgent): Promise<void> => {
  const last = (await inbox(agent)).at(-1)
  if (last === undefined) return
  const answer = await untilTaken(() =>
    agent.http.post("/v1/messages/sync/ack", { last_delivery_id: last.delivery_id })
  )
  assert.isAbove(answer.ok(200, Shapes.Acked).acked, answer.repeated ? -1 : 0)
}

export const history = async (
  agent: TestAgent,
  conversation: string,
  query = ""
): Promise<ReadonlyArray<Shapes.Message>> =>
  (await agent.http.get(`/v1/messages/${conversation}${query}`)).ok(200, Shapes.Messages)

export const contextOf = async (agent: TestAgent, conversation: string): Promise<typeof Shapes.DirectContext.Type> =>
  (await agent.http.get(`/v1/conversations/${conversation}/context`)).ok(200, Shapes.DirectContext)

export const conversationsOf = async (agent: TestAgent): Promise<typeof Shapes.Conversations.Type> =>
  (await agent.http.get("/v1/conversations?limit=200")).ok(200, Shapes.ConversationPage).conversations

export const markRead = async (agent: TestAgent, messageId: string): Promise<typeof Shapes.ReadMessage.Type> =>
  (await agent.http.post(`/v1/messages/${messageId}/read`)).ok(200, Shapes.ReadMessage)

/** A pair of agents that have each written once. */
export interface Pair {
  readonly alice: TestAgent
  readonly bob: TestAgent
  readonly conversation: string
  /** From alice, seq 1. */
  readonly first: Shapes.Message
  /** From bob, seq 2. */
  readonly reply: Shapes.Message
}

/** Two agents whose conversation is established and whose inboxes are empty. */
export const newPair = async (server: Server): Promise<Pair> => {
  const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
  const first = await say(alice, bob)
  const reply = await say(bob, alice)
  await Promise.all([catchUp(alice), catchUp(bob)])
  assert.deepStrictEqual([first.seq, reply.seq], [1, 2])
  return { alice, bob, conversation: first.conversation_id, first, reply }
}

export const idsOf = (messages: ReadonlyArray<{ readonly id: string }>): ReadonlyArray<string> =>
  messages.map((message) => message.id)

export const seqsOf = (messages: ReadonlyArray<{ readonly seq: number }>): ReadonlyArray<number> =>
  messages.map((message) => message.seq)
