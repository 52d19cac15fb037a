import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../Api.ts"
import { Unavailable } from "../platform/WireError.ts"

/** Stands in for a room whose handlers are not written: every route answers 503. */
export const notYet = <const Group extends "registration" | "agents" | "messages" | "conversations">(group: Group) =>
  HttpApiBuilder.group(Api, group, (handlers) => {
    let all: unknown = handlers
    for (const name of Object.keys(Api.groups[group].endpoints)) {
      all = (all as { handle: (name: string, f: () => unknown) => unknown }).handle(name, () => Effect.fail(new Unavailable()))
    }
    return all as never
  })

