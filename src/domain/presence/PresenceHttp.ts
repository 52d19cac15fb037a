import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Effect } from "effect"
import { PresenceApi } from "./PresenceApi.ts"
import { Presences } from "./Presences.ts"

export const PresenceHttp = Endpoints.group(
  Endpoints.apiOf(PresenceApi),
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
