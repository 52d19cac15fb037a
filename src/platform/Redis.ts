import { Context, Data, Effect, Exit, Layer, Redacted, Stream } from "effect"
import { CircuitBreaker } from "effect/persistence"
import { Redis as Client } from "ioredis"
import { createHash } from "node:crypto"
import { Config, ConfigInvalid } from "./Config.ts"

/**
 * Why there is no answer. `down`: not connected; `slow`: none in time; `open`: it was
 * slow lately and is left alone for a moment; `refused`: an answer, but an error.
 */
export class RedisFailed extends Data.TaggedError("RedisFailed")<{
  readonly reason: "down" | "slow" | "open" | "refused"
  readonly message: string
}> {}

/** A Lua script, which the server keeps under its hash. */
export interface RedisScript {
  readonly lua: string
  readonly hash: string
}

export const redisScript = (lua: string): RedisScript => ({
  lua,
  hash: createHash("sha1").update(lua).digest("hex")
})

type Argument = string | number

/**
 * The one connection to REDIS_URL. What is asked of it is optional by nature: nothing
 * ever waits for a connection or longer than REDIS_TIMEOUT_MS, and nothing is sent
 * twice. It connects again by itself, and after a few time-outs in a row asks only
 * once a second whether answers come in time again.
 */
export class Redis extends Context.Service<Redis, {
  /** Runs the script in one round trip; in two where the server does not have it yet. */
  readonly run: (
    script: RedisScript,
    keys: ReadonlyArray<string>,
    args: ReadonlyArray<Argument>
  ) => Effect.Effect<unknown, RedisFailed>
  readonly command: (name: string, ...args: ReadonlyArray<Argument>) => Effect.Effect<unknown, RedisFailed>
}>()("parley/platform/Redis") {
  static readonly layer = Layer.effect(
    Redis,
    Effect.gen(function*() {
      const config = yield* Config
      if (config.REDIS_URL === undefined) return yield* new ConfigInvalid({ problems: ["REDIS_URL: required for Redis"] })
      const url = Redacted.value(config.REDIS_URL)
      const log = Effect.runForkWith(yield* Effect.context<never>())
      let connected = false
      const client = yield* Effect.acquireRelease(
        Effect.sync(() =>
          new Client(url, {
            lazyConnect: true,
            enableOfflineQueue: false,
            autoResendUnfulfilledCommands: false,
            maxRetriesPerRequest: 0,
            connectTimeout: 2_000,
            // A connection on which nothing comes any more is given up.
            socketTimeout: 5_000,
            retryStrategy: (times) => Math.min(100 * times, 1_000),
            // Nothing that needs the newer one is asked for, and proxies know the older.
            protocol: 2,
            connectionName: "parley",
            disableClientInfo: true
          })
        ),
        (client) =>
          Effect.sync(() => {
            connected = false
            client.disconnect()
          })
      )
      // It tries on for ever: why in vain is said once, not each second.
      const problems = new Set<string>()
      client.on("error", ({ message }: Error) => {
        if (problems.has(message) || problems.size >= MAX_PROBLEMS) return
        problems.add(message)
        log(Effect.logWarning(`Redis cannot be used: ${message}`))
      })
      client.on("ready", () => {
        connected = true
        problems.clear()
        log(Effect.logInfo("Connected to Redis"))
      })
      client.on("close", () => {
        if (connected) log(Effect.logWarning("The connection to Redis is lost"))
        connected = false
      })

      const breaker = yield* CircuitBreaker.make({
        tripPolicy: CircuitBreaker.consecutive(SLOW_IN_A_ROW),
        openDuration: LEFT_ALONE
      })
      yield* breaker.transitions.pipe(
        Stream.runForEach(({ from, to }) =>
          from === "Closed" && to === "Open"
            ? Effect.logWarning("Redis does not answer in time")
            : to === "Closed"
            ? Effect.logInfo("Redis answers in time again")
            : Effect.void),
        Effect.forkScoped({ startImmediately: true })
      )

      const ask = (request: () => Promise<unknown>): Effect.Effect<unknown, RedisFailed> =>
        Effect.suspend(() =>
          client.status === "ready"
            ? Effect.tryPromise({ try: request, catch: (error) => failureOf(client, error) })
            : Effect.fail(new RedisFailed({ reason: "down", message: "not connected" }))
        ).pipe(
          Effect.timeoutOrElse({
            duration: config.REDIS_TIMEOUT_MS,
            orElse: () => Effect.fail(new RedisFailed({ reason: "slow", message: "no answer in time" }))
          }),
          breaker.execute({ key: "redis", classify }),
          Effect.catchTag("CircuitBreakerError", () => Effect.fail(new RedisFailed({ reason: "open", message: "left alone" })))
        )

      const service = Redis.of({
        run: (script, keys, args) =>
          ask(async () => {
            try {
              return await client.evalsha(script.hash, keys.length, ...keys, ...args)
            } catch (error) {
              if (!(error instanceof Error) || !error.message.startsWith("NOSCRIPT")) throw error
              return await client.eval(script.lua, keys.length, ...keys, ...args)
            }
          }),
        command: (name, ...args) => ask(() => client.call(name, ...args))
      })

      // Whoever starts first is limited too, if Redis is there; a server that is away delays no start for longer.
      yield* Effect.tryPromise(() => client.connect()).pipe(
        Effect.timeout(FIRST_CONNECT),
        Effect.catchCause(() => Effect.logWarning("Starting without Redis: rates are not limited until it is there"))
      )
      return service
    })
  ).pipe(Layer.provide(CircuitBreaker.layerStoreMemory()))
}

const SLOW_IN_A_ROW = 3
const MAX_PROBLEMS = 10
const LEFT_ALONE = "1 second"
const FIRST_CONNECT = "1 second"

const failureOf = (client: Client, error: unknown): RedisFailed => {
  const message = error instanceof Error ? error.message : String(error)
  return new RedisFailed({
    reason: error instanceof Error && error.name === "ReplyError" ? "refused" : client.status === "ready" ? "refused" : "down",
    message
  })
}

/** Only waiting in vain counts against it: without a connection there is nothing to wait for. */
const classify = (exit: Exit.Exit<unknown, RedisFailed>): CircuitBreaker.Outcome => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success
  const reason = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error.reason
  return reason === "slow" ? CircuitBreaker.failure() : reason === "refused" ? CircuitBreaker.success : CircuitBreaker.ignored
}
