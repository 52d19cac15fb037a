import { HttpApi, type HttpApiGroup } from "effect/http-api"
import { WireErrors } from "#ground/wire/WireErrors"

/**
 * One room's group of endpoints as an API of its own, so that the room's handlers do not depend on the other rooms.
 * `Api.ts` adds the same group, under the same name, to the whole API.
 */
export const apiOf = <Group extends HttpApiGroup.Constraint>(group: Group) =>
  HttpApi.make("parley").add(group).middleware(WireErrors)
