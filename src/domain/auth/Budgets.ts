import { LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { addressKey, addressOf, networksOf } from "#infrastructure/http/ClientAddress"
import { Probe } from "#infrastructure/http/EndpointOptions"
import { ServerRequest } from "#infrastructure/http/ServerRequest"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { type Charge, MINUTE, type Rate, type RateState, ruleOf } from "#infrastructure/rates/RateRule"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { RateLimited, Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { type HttpApiEndpoint, HttpApiMiddleware } from "effect/http-api"

/**
 * Annotates an endpoint whose handler first counts against a rate limit of its own. Both limits are then counted in one
 * round trip (`RateLimits.takeTogether`).
 */
export const OwnBudget = Context.Reference("parley/auth/Budgets/OwnBudget", { defaultValue: () => false })

/**
 * Whether the fiber's request has been counted. A call to this API from inside a counted request is not counted again.
 */
export const Counted = Context.Reference("parley/auth/Budgets/Counted", { defaultValue: () => false })

/** How many requests an agent may make, and an IP address without a key. */
export const REQUESTS: Rate = { name: "requests", setting: "LIMITS_REQUESTS_PER_MINUTE", ...MINUTE }
export const ANONYMOUS_REQUESTS: Rate = {
  name: "anonymous_requests",
  setting: "LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE",
  ...MINUTE
}
/** How many files of the server's own pages an IP address may load. */
export const ASSETS: Rate = { name: "assets", setting: "LIMITS_ASSETS_PER_MINUTE", ...MINUTE }

/**
 * Describes, for the log, what is wrong with the header of a request without a live key. The text contains no part of
 * the header.
 */
const whyUnauthorized = (authorization: string | undefined): string =>
  authorization === undefined || authorization === ""
    ? "It has no Authorization header."
    : bearerOf(authorization) === ""
    ? "Its Authorization header does not begin with `Bearer ` and a key."
    : "No agent has this key: it is wrong, or was replaced, or its account was deleted."

/**
 * The general request budgets (wire.md C.0): per agent for requests with a key, per IP address for all other requests.
 * A request with a large response also takes a slot of its agent or address (`LargeReads`).
 */
export class Budgets extends Context.Service<Budgets, {
  /** Counts a request of an agent to the endpoint, and runs or refuses the request. */
  readonly countAgent: Counting<string>
  /** Counts a request without a key to the endpoint, and runs or refuses the request. */
  readonly countAddress: Counting<HttpServerRequest.HttpServerRequest>
  /** Counts a request of an agent to a route that is not an endpoint. */
  readonly ofAgent: (
    request: HttpServerRequest.HttpServerRequest,
    agentId: string
  ) => Effect.Effect<RateState, RateLimited>
  /** Counts a request without a key to a route that is not an endpoint. */
  readonly ofAddress: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<RateState, RateLimited>
  /** Counts a request with a missing or dead key against its IP address, and refuses the request. */
  readonly unauthorized: (
    request: HttpServerRequest.HttpServerRequest
  ) => Effect.Effect<never, Unauthorized | RateLimited>
  /** Counts a socket of an agent once its key is checked. */
  readonly socketOfAgent: (agentId: string) => Effect.Effect<RateState, RateLimited>
  /** Counts a socket with a dead key against its IP address. `address` is an `addressKey`. */
  readonly socketOfAddress: (address: string) => Effect.Effect<RateState, RateLimited>
  /** Counts a request for a file of the server's own pages. A page loads many such files. */
  readonly ofAsset: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<RateState, RateLimited>
  /** Counts a request to a `Probe`, unless it comes from one of PROBE_ADDRESSES. */
  readonly ofProbe: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<void, RateLimited>
  /** The key of the IP address that a request comes from. */
  readonly addressOf: (request: HttpServerRequest.HttpServerRequest) => string
}>()("parley/auth/Budgets") {
  static readonly layer = Layer.effect(
    Budgets,
    Effect.gen(function*() {
      const config = yield* Config
      const limits = yield* RateLimits
      const reads = yield* LargeReads
      const probes = networksOf(config.PROBE_ADDRESSES)
      const perAgent = ruleOf(config, REQUESTS)
      const perAddress = ruleOf(config, ANONYMOUS_REQUESTS)
      const assets = ruleOf(config, ASSETS)
      const keyOf = (request: HttpServerRequest.HttpServerRequest): string =>
        addressKey(addressOf(request, config.TRUST_PROXY))

      /** Attributes the memory that the request uses in this process to the agent from now on. */
      const attribute = ({ source }: HttpServerRequest.HttpServerRequest, agentId: string): void => {
        if (source instanceof ServerRequest) source.agentId = agentId
      }

      const count = <A, E, R>(
        { key, rule }: Charge,
        endpoint: HttpApiEndpoint.Top,
        effect: Effect.Effect<A, E, R>
      ): Effect.Effect<A, E | RateLimited | Unavailable, R> => {
        const large = Context.get(endpoint.annotations, LargeAnswer)
        const bounded = large === undefined ? effect : reads.ofAgent(key, large, effect)
        return Effect.withFiber((fiber) => {
          if (fiber.getRef(Counted)) return bounded
          return Context.get(endpoint.annotations, OwnBudget)
            ? limits.takeTogether({ key, rule }, bounded)
            : Effect.andThen(limits.take(rule, key), bounded)
        })
      }

      return Budgets.of({
        countAgent: (agentId, endpoint, effect) =>
          Effect.withFiber((fiber) => {
            attribute(Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest), agentId)
            return count({ rule: perAgent, key: agentId }, endpoint, effect)
          }),
        countAddress: (request, endpoint, effect) => count({ rule: perAddress, key: keyOf(request) }, endpoint, effect),
        ofAgent: (request, agentId) =>
          Effect.suspend(() => {
            attribute(request, agentId)
            return limits.take(perAgent, agentId)
          }),
        ofAddress: (request) => limits.take(perAddress, keyOf(request)),
        unauthorized: (request) =>
          Effect.withFiber((fiber) =>
            fiber.getRef(Counted)
              ? Effect.fail(new Unauthorized())
              : Effect.andThen(
                limits.take(perAddress, keyOf(request)),
                Effect.suspend(() => {
                  const { headers, source } = request
                  if (source instanceof ServerRequest)
                    source.refused = { code: "UNAUTHORIZED", why: whyUnauthorized(headers["authorization"]) }
                  return Effect.fail(new Unauthorized())
                })
              )
          ),
        socketOfAgent: (agentId) => limits.take(perAgent, agentId),
        socketOfAddress: (address) => limits.take(perAddress, address),
        ofAsset: (request) => limits.take(assets, keyOf(request)),
        ofProbe: (request) =>
          Effect.suspend(() =>
            probes(addressOf(request, config.TRUST_PROXY)) ? Effect.void : limits.take(perAddress, keyOf(request))
          ),
        addressOf: keyOf
      })
    })
  )
}

type Counting<Who> = <A, E, R>(
  who: Who,
  endpoint: HttpApiEndpoint.Top,
  effect: Effect.Effect<A, E, R>
) => Effect.Effect<A, E | RateLimited | Unavailable, R>

/** Counts a request without a key against the budget of its IP address. */
export class AnonymousBudget extends HttpApiMiddleware.Service<AnonymousBudget>()("parley/auth/AnonymousBudget", {
  error: [RateLimited, Unavailable]
}) {
  static readonly layer = Layer.effect(
    AnonymousBudget,
    Effect.map(Budgets, (budgets) => (httpEffect, { endpoint }) =>
      Effect.withFiber((fiber) => {
        const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        return Context.get(endpoint.annotations, Probe)
          ? Effect.andThen(budgets.ofProbe(request), httpEffect)
          : budgets.countAddress(request, endpoint, httpEffect)
      }))
  )
}
