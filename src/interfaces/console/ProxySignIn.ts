import { addressOf, networksOf } from "#infrastructure/http/ClientAddress"
import type { Settings } from "#infrastructure/platform/Config"
import { sha256 } from "#infrastructure/platform/Ids"
import { type ConsolePerson, consolePerson } from "#infrastructure/platform/Setting"
import { Redacted, Result } from "effect"
import type { HttpServerRequest } from "effect/http"
import { timingSafeEqual } from "node:crypto"

/**
 * Makes the function that returns the person whom the proxy of CONSOLE_PROXY_PEOPLE names in a request (wire.md O.1). It
 * fails with the reason if the request does not come directly from this proxy, or if it names nobody of this setting.
 */
export const personNamedBy = (config: Settings) => {
  const isProxy = networksOf(config.CONSOLE_PROXY_ADDRESSES)
  const people = new Map(
    config.CONSOLE_PROXY_PEOPLE.flatMap((entry) => consolePerson(entry) ?? []).map((person) => [person.name, person])
  )
  const secret = config.CONSOLE_PROXY_SECRET
  const hash = secret === undefined ? undefined : sha256(Redacted.value(secret))
  return (request: HttpServerRequest.HttpServerRequest): Result.Result<ConsolePerson, string> => {
    const { headers } = request
    const address = addressOf(request, 0)
    if (!isProxy(address)) return Result.fail(`CONSOLE_PROXY_ADDRESSES does not contain ${address}`)
    if (hash === undefined || !timingSafeEqual(sha256(headers["x-parley-proxy-secret"] ?? ""), hash))
      return Result.fail("X-Parley-Proxy-Secret is not CONSOLE_PROXY_SECRET")
    const person = people.get((headers["x-parley-person"] ?? "").toLowerCase())
    return person === undefined
      ? Result.fail("CONSOLE_PROXY_PEOPLE does not contain the name in X-Parley-Person")
      : Result.succeed(person)
  }
}
