import { HttpApi, type HttpApiGroup } from "effect/http-api"
import { WireErrors } from "../wire/WireErrors.ts"

/**
 * One room's group of endpoints as an API of its own, which is all that the room's
 * handlers need to know: `Api.ts` adds the same group, under the same name, to the whole.
 */
export const apiOf = <Group extends HttpApiGroup.Constraint>(group: Group) =>
  HttpApi.make("parley").add(group).middleware(WireErrors)
