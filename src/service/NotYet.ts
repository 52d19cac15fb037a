import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../Api.ts"
import { Authorization, AuthorizationEvenSuspended } from "../auth/Authorization.ts"
import { Unauthorized, Unavailable } from "../platform/WireError.ts"
import { refuse } from "../platform/WireErrors.ts"
import { Gateway } from "../realtime/Gateway.ts"

/** Stands in for a room whose handlers are not written: every route answers 503. */
export const notYet = <const Group extends "registration" | "agents" | "messages" | "conversations">(group: Group) =>
  HttpApiBuilder.group(Api, group, (handlers) => {
    let all: unknown = handlers
    for (const name of Object.keys(Api.groups[group].endpoints)) {
      all = (all as { handle: (name: string, f: () => unknown) => unknown }).handle(name, () => Effect.fail(new Unavailable()))
    }
    return all as never
  })

export const authorizationNotYet = Layer.mergeAll(
  Layer.succeed(Authorization, { bearer: () => Effect.fail(new Unauthorized()) }),
  Layer.succeed(AuthorizationEvenSuspended, { bearer: () => Effect.fail(new Unauthorized()) })
)

export const gatewayNotYet = Layer.succeed(Gateway, {
  upgrade: (_request, socket, _head, requestId) => refuse(socket, new Unavailable(), requestId),
  drain: Effect.void,
  size: () => 0
})
