import type { Agent } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import type { ApiCalls } from "#domain/auth/ApiCalls"
import { DirectFeed } from "#domain/direct/DirectFeed"
import { HandleInput } from "#infrastructure/wire/Text"
import { Effect, Schema } from "effect"
import { type Failure, taskNotFound } from "./Failure.ts"
import type { Task } from "./Task.ts"
import { type Side, Tasks } from "./Tasks.ts"

/** One request of a caller to the agent that the path names. */
export interface Call {
  readonly caller: Agent
  readonly key: string
  /** The handle of the called agent, as written in the path. */
  readonly handle: string
  /** This server's own API, called as the same caller. */
  readonly api: ApiCalls
}

/** Finds the called agent, and the caller's tasks with that agent. */
export const makeLookUp = Effect.gen(function*() {
  const agents = yield* Agents
  const feed = yield* DirectFeed
  const tasks = yield* Tasks
  const decodeHandle = Schema.decodeUnknownEffect(HandleInput)

  /** The called agent and its conversation with the caller; undefined if there is no such agent. */
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
   * A task of the caller with this agent. The failure is the same for a task of other agents as for a task that does
   * not exist.
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
