import { CurrentCaller } from "#domain/auth/OptionalAuthorization"
import { Avatars } from "#domain/avatars/Avatars"
import { Conversations } from "#domain/conversations/Conversations"
import { DirectoryBudget } from "#domain/directory/DirectoryBudget"
import { AddressLimits, type LimitedRoute } from "#domain/registration/AddressLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import type { RateLimited } from "#infrastructure/wire/WireError"
import { Clock, Effect, Exit, Layer, Option } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import type { TestDatabase } from "../../../test/support/Databases.ts"
import { leap } from "../../../test/support/Leap.ts"
import { draft, layerModules, newAgent } from "../../../test/support/Modules.ts"
import { WindowModel } from "../../../test/support/WindowModel.ts"
import type { Reaches } from "../Search.ts"
import { check, Violation } from "../Violation.ts"
import type { Ledger } from "./Ledger.ts"

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** The limited operations, with the key by which each is counted and its windows. */
const METERS = {
  send: { by: "agent", windows: [{ limit: 4, windowMs: SECOND, window: "second" }] },
  directory: {
    by: "agent",
    windows: [{ limit: 3, windowMs: MINUTE, window: "minute" }, { limit: 7, windowMs: DAY, window: "day" }]
  },
  "anonymous directory": { by: "address", windows: [{ limit: 3, windowMs: MINUTE, window: "minute" }] },
  avatar: { by: "agent", windows: [{ limit: 2, windowMs: MINUTE, window: "minute" }] },
  register: { by: "address", windows: [{ limit: 5, windowMs: HOUR, window: "hour" }] },
  register_verify: { by: "address", windows: [{ limit: 10, windowMs: 10 * MINUTE, window: "10 minutes" }] },
  recover: { by: "address", windows: [{ limit: 3, windowMs: HOUR, window: "hour" }] },
  recover_verify: { by: "address", windows: [{ limit: 10, windowMs: 10 * MINUTE, window: "10 minutes" }] },
  rotate: { by: "address", windows: [{ limit: 3, windowMs: HOUR, window: "hour" }] },
  rotate_verify: { by: "address", windows: [{ limit: 10, windowMs: 10 * MINUTE, window: "10 minutes" }] }
} as const

type Meter = keyof typeof METERS
const NAMES = Object.keys(METERS) as ReadonlyArray<Meter>

export const layerRates = (database: TestDatabase) =>
  DirectoryBudget.layer.pipe(Layer.provideMerge(layerModules(database, {
    LIMITS_SENDS_PER_SECOND: METERS.send.windows[0].limit,
    LIMITS_DIRECTORY_PER_MINUTE: METERS.directory.windows[0].limit,
    LIMITS_DIRECTORY_PER_DAY: METERS.directory.windows[1].limit,
    LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: METERS["anonymous directory"].windows[0].limit,
    LIMITS_AVATAR_WRITES_PER_MINUTE: METERS.avatar.windows[0].limit
  })))

export interface RateStep {
  readonly meter: Meter
  readonly who: 0 | 1
  readonly times: number
  /**
   * The time before the step: a number of parts of the meter's window, or the wait that the meter reports, plus `more`
   * milliseconds.
   */
  readonly pause: { readonly parts: number } | { readonly more: -1 | 0 | 1 }
}

const rateStep = fc.record<RateStep>({
  meter: fc.constantFrom(...NAMES),
  who: fc.constantFrom(0, 1),
  times: fc.integer({ min: 1, max: 6 }),
  pause: fc.oneof(
    fc.record({ parts: fc.constantFrom(0, 0, 0.01, 0.1, 0.3, 0.6, 1) }),
    fc.record({ more: fc.constantFrom(-1 as const, 0 as const, 1 as const) })
  )
})

/** The steps of one history. It uses only a few meters, because with more of them none would ever be full. */
export const rateStepsOf = (seed: number, length: number): ReadonlyArray<RateStep> => {
  const some = [NAMES[seed % NAMES.length]!, NAMES[(seed * 7 + 3) % NAMES.length]!]
  const steps = fc.sample(fc.noBias(fc.array(rateStep, { minLength: length, maxLength: length + 20, size: "max" })), {
    numRuns: 1,
    seed
  })[0] ?? []
  return steps.map((step) => ({ ...step, meter: some[NAMES.indexOf(step.meter) % 2] ?? step.meter }))
}

export const rateStepInWords = ({ meter, times, who }: RateStep): string =>
  `after a pause, ${meter} is asked for ${times} times by ${
    meter === "anonymous directory" ? "address" : "agent or address"
  } ${who}`

let serial = 0

/**
 * Runs histories of limited operations with pauses of all lengths. Every answer and every wait must follow the
 * definition of the limit.
 */
export const makeRatesWorld = Effect.fnUntraced(function*(ledger: Ledger) {
  const addresses = yield* AddressLimits
  const avatars = yield* Avatars
  const conversations = yield* Conversations
  const sql = yield* SqlClient.SqlClient
  // The router calls it like this. It reads only the request and its caller.
  const budget = (yield* DirectoryBudget) as unknown as (
    effect: Effect.Effect<HttpServerResponse.HttpServerResponse>
  ) => Effect.Effect<
    HttpServerResponse.HttpServerResponse,
    RateLimited,
    CurrentCaller | HttpServerRequest.HttpServerRequest
  >
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  // TestClock prints a warning if a test never moves its clock.
  yield* TestClock.adjust(1)

  return Effect.fnUntraced(function*(history: ReadonlyArray<RateStep>, reaches: Reaches = () => {}) {
    const n = serial++
    const agents = [yield* newAgent(`rate-${n}-a`), yield* newAgent(`rate-${n}-b`)] as const
    const requests = [0, 1].map((i) =>
      HttpServerRequest.fromWeb(new Request("http://parley.example/")).modify({
        remoteAddress: Option.some(`10.${n >> 8}.${n & 255}.${i + 1}`)
      })
    )
    const models = new Map<string, ReadonlyArray<{ readonly window: string; readonly model: WindowModel }>>()
    const modelsOf = (meter: Meter, who: number) => {
      const key = `${meter} ${who}`
      const known = models.get(key)
      if (known !== undefined) return known
      const fresh = METERS[meter].windows.map((rule) => ({
        window: rule.window,
        model: new WindowModel({ name: meter, ...rule } satisfies RateRule)
      }))
      models.set(key, fresh)
      return fresh
    }
    const directory = (agent: CurrentCaller["Service"]["agent"], who: number) =>
      budget(Effect.succeed(HttpServerResponse.empty())).pipe(
        Effect.provideService(CurrentCaller, { agent }),
        Effect.provideService(HttpServerRequest.HttpServerRequest, requests[who]!)
      )
    let sends = 0

    const attempt = (
      meter: Meter,
      who: 0 | 1
    ): Effect.Effect<unknown, { readonly _tag: string; readonly details?: unknown }> => {
      const agent = agents[who]
      switch (meter) {
        case "send":
          // The recipient does not exist, but every validated attempt counts.
          return conversations.send(agent, { _tag: "Direct", handle: "nobody-at-all" }, draft(`m${sends++}`)).pipe(
            Effect.catchTag("AgentNotFound", () => Effect.void)
          )
        case "directory":
          // Only the caller's id is read.
          return directory({ id: agent.id } as CurrentCaller["Service"]["agent"], who)
        case "anonymous directory":
          return directory(null, who)
        case "avatar":
          return Effect.andThen(
            Effect.orDie(sql`UPDATE agents SET avatar_key = ${"0".repeat(64)} WHERE id = ${agent.id}`),
            avatars.clear(agent.id)
          )
        default:
          return addresses.take(meter satisfies LimitedRoute, requests[who]!)
      }
    }

    for (const [index, { meter, pause, times, who }] of history.entries()) {
      reaches(index)
      const windows = modelsOf(meter, who)
      const waits = () => windows.map(({ model, window }) => ({ window, ms: model.wait(now()) }))
      const longest = () => waits().reduce((a, b) => b.ms > a.ms ? b : a)
      const ms = "more" in pause
        ? longest().ms + pause.more
        : Math.floor(METERS[meter].windows[0].windowMs * pause.parts)
      if (ms > 0) yield* leap(ms)
      for (let i = 0; i < times; i++) {
        const wait = longest()
        const exit = yield* Effect.exit(attempt(meter, who))
        const failure = Exit.isSuccess(exit) ? undefined : exit.cause.reasons.find((one) => one._tag === "Fail")?.error
        if (!Exit.isSuccess(exit) && failure === undefined)
          throw new Violation("answered", `died: ${String(exit.cause)}`)
        const details = failure?.details as { readonly retry_after_ms?: number; readonly window?: string } | undefined
        const got = failure === undefined
          ? "done"
          : `${failure._tag}, window ${details?.window}, wait ${details?.retry_after_ms}`
        const expected = wait.ms === 0 ? "done" : `RateLimited, window ${wait.window}, wait ${wait.ms}`
        check("limits", got === expected, () => `${meter} of ${who}: got ${got}, expected ${expected}`)
        if (wait.ms === 0) { for (const { model } of windows) model.add(now()) }
        ledger.answered(`${meter}: ${wait.ms === 0 ? "passed" : `limited by the ${wait.window}`}`)
      }
    }
  })
})
