import { Webhooks } from "#domain/webhooks/Webhooks"
import { Ids } from "#infrastructure/platform/Ids"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import type { Call, LookUp } from "./Call.ts"
import { A2aFailure, type Failure, pushConfigNotFound, taskNotFound } from "./Failure.ts"
import { idOf, intOf, type Json, MAX_PAGE_SIZE, parsed, taskIdOf, textOf } from "./Fields.ts"
import { type PushConfig, pushConfigOf, shownPushConfig } from "./PushConfig.ts"
import { isFinal, type Task } from "./Task.ts"
import { TaskPushes } from "./TaskPushes.ts"
import type { Side } from "./Tasks.ts"

/** The operations on push notification configurations, and the parts of them that a send needs. */
export const makePushConfigs = ({ taskOf }: LookUp) =>
  Effect.gen(function*() {
    const ids = yield* Ids
    const pushes = yield* TaskPushes
    const webhooks = yield* Webhooks

    /** Reads a configuration and checks that the server may post to its URL. */
    const read = Effect.fnUntraced(function*(given: Json, taskId: string | undefined, fallback: string) {
      const config = yield* parsed(() => pushConfigOf(given, taskId, fallback))
      yield* webhooks.check(config.target.url)
      return config
    })

    const put = Effect.fnUntraced(
      function*(side: Side, taskId: string, config: PushConfig): Effect.fn.Return<Task, Failure> {
        return (yield* pushes.put(side, taskId, config)) ?? (yield* Effect.fail(taskNotFound()))
      }
    )

    return {
      read,
      put,
      checkRoom: pushes.checkRoom,
      create: Effect.fn("A2a.createPushConfig")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
        const { side, task } = yield* taskOf(call, yield* parsed(() => taskIdOf(params)))
        const config = yield* read(params, task.id, `push-${ids.bytes(12).toString("hex")}`)
        if (isFinal((yield* put(side, task.id, config)).state)) {
          return yield* Effect.fail(
            new A2aFailure(
              "UNSUPPORTED_OPERATION",
              "The task has ended, so nothing more is pushed: read it with GetTask."
            )
          )
        }
        return shownPushConfig(task.id, config)
      }),
      get: Effect.fn("A2a.getPushConfig")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
        const { task } = yield* taskOf(call, yield* parsed(() => taskIdOf(params)))
        const name = yield* parsed(() => idOf(params))
        const config = (yield* pushes.list(task.id)).find((one) => one.name === name)
        return config === undefined ? yield* Effect.fail(pushConfigNotFound()) : shownPushConfig(task.id, config)
      }),
      list: Effect.fn("A2a.listPushConfigs")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
        const { task } = yield* taskOf(call, yield* parsed(() => taskIdOf(params)))
        const asked = yield* parsed(() => ({
          size: intOf(params, "pageSize", 0, MAX_PAGE_SIZE) || MAX_PAGE_SIZE,
          token: textOf(params, "pageToken")
        }))
        const all = yield* pushes.list(task.id)
        const from = asked.token === undefined ? 0 : all.findIndex(({ name }) => name === asked.token) + 1
        if (asked.token !== undefined && from === 0) {
          return yield* ValidationFailed.field("pageToken", "is not one that this server gave out")
        }
        const page = all.slice(from, from + asked.size)
        return {
          configs: page.map((config) => shownPushConfig(task.id, config)),
          nextPageToken: from + page.length < all.length ? page.at(-1)?.name ?? "" : ""
        }
      }),
      remove: Effect.fn("A2a.deletePushConfig")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
        const { task } = yield* taskOf(call, yield* parsed(() => taskIdOf(params)))
        yield* pushes.remove(task.id, yield* parsed(() => idOf(params)))
        return {}
      })
    }
  })

export type PushConfigs = Effect.Success<ReturnType<typeof makePushConfigs>>
