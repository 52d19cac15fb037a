import type { Agent } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import type { ApiCalls } from "#domain/auth/ApiCalls"
import { DirectFeed } from "#domain/direct/DirectFeed"
import { HandleInput } from "#infrastructure/wire/Text"
import { Effect, Schema } from "effect"
import { type Failure, taskNotFound } from "./Failure.ts"
import type { Task } from "./Task.ts"
import { type Side, Tasks } from "./Tasks.ts"

/** One request of a caller to the agent of the path. */
export interface Call {
  readonly caller: Agent
  readonly key: string
  /** The handle of the called agent, as it stands in the path. */
  readonly handle: string
  /** This server's own API, for the same caller. */
  readonly api: ApiCalls
}

/** Finds the agent that a call is made to, and the caller's tasks with it. */
export const makeLookUp = Effect.gen(function*() {
  const agents = yield* Agents
  const feed = yield* DirectFeed
  const tasks = yield* Tasks
  const decodeHandle = Schema.decodeUnknownEffect(HandleInput)

  /** The called agent and the conversation with it; undefined if there is no such agent. */
  const sideOf = Effect.fnUntraced(function*({ caller, handle }: Call) {
    const normal = yield* Effect.orElseSucceed(decodeHandle(handle), () => "")
    const recipient = yield* agents.byHandle(normal)
    if (recipient === undefined) return undefined
    const side: Side = {
      callerId: caller.id,
      recipientId: recipient.id,
      conversationId: feed.direct(caller.id, recipient.id)
    }
    return { side, recipient }
  })

  /**
   * A task of the caller with this agent. Fails in the same way for a task of others and for a task that does not
   * exist.
   */
  const taskOf = Effect.fnUntraced(
    function*(call: Call, id: string): Effect.fn.Return<{ side: Side; task: Task }, Failure> {
      const known = yield* sideOf(call)
      const task = known === undefined || !/^msg_[A-Za-z0-9_-]{1,64}$/.test(id)
        ? undefined
        : yield* tasks.find(known.side, id)
      return known === undefined || task === undefined ? yield* Effect.fail(taskNotFound()) : { side: known.side, task }
    }
  )

  return { sideOf, taskOf }
})

export type LookUp = Effect.Success<typeof makeLookUp>
