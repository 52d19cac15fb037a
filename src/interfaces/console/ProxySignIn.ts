import { addressOf, networksOf } from "#infrastructure/http/ClientAddress"
import type { Settings } from "#infrastructure/platform/Config"
import { sha256 } from "#infrastructure/platform/Ids"
import { type ConsolePerson, consolePerson } from "#infrastructure/platform/Setting"
import { Redacted } from "effect"
import type { HttpServerRequest } from "effect/http"
import { timingSafeEqual } from "node:crypto"

/**
 * Makes the function that returns the person whom the proxy of CONSOLE_PROXY_PEOPLE names in a request (wire.md O.1).
 * Undefined if the request does not come directly from this proxy, or if it names nobody of this setting.
 */
export const personNamedBy = (config: Settings) => {
  const isProxy = networksOf(config.CONSOLE_PROXY_ADDRESSES)
  const people = new Map(
    config.CONSOLE_PROXY_PEOPLE.flatMap((entry) => consolePerson(entry) ?? []).map((person) => [person.name, person])
  )
  const secret = config.CONSOLE_PROXY_SECRET
  const hash = secret === undefined ? undefined : sha256(Redacted.value(secret))
  return (request: HttpServerRequest.HttpServerRequest): ConsolePerson | undefined => {
    const { headers } = request
    if (hash === undefined || !isProxy(addressOf(request, 0))) return undefined
    if (!timingSafeEqual(sha256(headers["x-parley-proxy-secret"] ?? ""), hash)) return undefined
    return people.get((headers["x-parley-person"] ?? "").toLowerCase())
  }
}
