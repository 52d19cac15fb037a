import { Effect } from "effect"
import { apiOf } from "../http/ApiOf.ts"
import * as Endpoints from "../http/Endpoints.ts"
import { CurrentAgent } from "../auth/Authorization.ts"
import { Presences } from "./Presences.ts"
import { PresenceApi } from "./PresenceApi.ts"

export const PresenceHttp = Endpoints.group(
  apiOf(PresenceApi),
  "presence",
  Effect.fnUntraced(function*(handlers) {
    const presences = yield* Presences
    return handlers.handleAll({
      get: Effect.fnUntraced(function*({ params }) {
        return yield* presences.get((yield* CurrentAgent).id, params.handle)
      }),
      put: Effect.fnUntraced(function*({ payload }) {
        return yield* presences.put(yield* CurrentAgent, payload)
      }),
      batch: Effect.fnUntraced(function*({ payload }) {
        return { presences: yield* presences.getMany((yield* CurrentAgent).id, payload.handles) }
      })
    })
  })
)
