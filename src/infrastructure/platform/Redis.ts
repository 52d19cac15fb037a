import { Context, Data, Effect, Layer, Redacted } from "effect"
import type { Redis as Client } from "ioredis"
import { createHash } from "node:crypto"
import { Config, ConfigInvalid } from "./Config.ts"

/**
 * Why a command failed:
 * - `down`: the client is not connected.
 * - `slow`: Redis did not respond in time.
 * - `open`: the circuit is open after slow responses, so nothing was sent.
 * - `refused`: Redis returned an error.
 */
export class RedisFailed extends Data.TaggedError("RedisFailed")<{
  readonly reason: "down" | "slow" | "open" | "refused"
  readonly message: string
}> {}

/** A Lua script and the SHA-1 under which Redis caches it. */
export interface RedisScript {
  readonly lua: string
  readonly hash: string
}

export const redisScript = (lua: string): RedisScript => ({
  lua,
  hash: createHash("sha1").update(lua).digest("hex")
})

type Argument = string | number

/** A callback that is called exactly once: with the failure, or with undefined and the response. */
export type Answered = (failure: RedisFailed | undefined, answer: unknown) => void

/**
 * The commands for one purpose, with their own circuit breaker. After repeated timeouts the circuit opens, and no
 * command is sent. Then a PING once a second tests whether Redis responds again. No request waits for the PING.
 */
export interface RedisChannel {
  /** Returns why no command can be sent at present, or undefined if one can be sent. */
  readonly unusable: () => "down" | "open" | undefined
  /**
   * Runs the script. This takes one round trip if Redis has cached the script. The result goes to a callback and needs
   * no fiber, for hot paths.
   */
  readonly send: (
    script: RedisScript,
    keys: ReadonlyArray<string>,
    args: ReadonlyArray<Argument>,
    answered: Answered
  ) => void
  /** Removes the last occurrence of an entry from a list. Failures are ignored. */
  readonly remove: (key: string, entry: Argument) => void
  readonly run: (
    script: RedisScript,
    keys: ReadonlyArray<string>,
    args: ReadonlyArray<Argument>
  ) => Effect.Effect<unknown, RedisFailed>
  readonly command: (name: string, ...args: ReadonlyArray<Argument>) => Effect.Effect<unknown, RedisFailed>
}

/**
 * The only connection of this process to REDIS_URL. All its users must also work without Redis. No command waits for a
 * connection, none waits longer than REDIS_TIMEOUT_MS, and none is sent twice. The client reconnects by itself.
 *
 * Delays of this process must not cause timeouts. While the process is busy or gets no CPU time, a response may have
 * arrived that the process has not read yet, and such a response is not late. So the deadline is measured in ticks of a
 * timer, and sockets are read before a command times out.
 */
export class Redis extends Context.Service<Redis, {
  readonly channel: (purpose: string) => RedisChannel
}>()("parley/platform/Redis") {
  static readonly layer = Layer.effect(
    Redis,
    Effect.gen(function*() {
      const config = yield* Config
      if (config.REDIS_URL === undefined)
        return yield* new ConfigInvalid({ problems: ["REDIS_URL: required for Redis"] })
      const url = Redacted.value(config.REDIS_URL)
      // Imported here so that a standalone server does not load ioredis.
      const { Redis: Connection } = yield* Effect.promise(() => import("ioredis"))
      const log = Effect.runForkWith(yield* Effect.context<never>())
      let connected = false
      const channels: Array<Channel> = []
      const client = yield* Effect.acquireRelease(
        Effect.sync(() =>
          new Connection(url, {
            lazyConnect: true,
            enableOfflineQueue: false,
            autoResendUnfulfilledCommands: false,
            maxRetriesPerRequest: 0,
            connectTimeout: 2_000,
            // Closes the connection if nothing arrives while a command waits.
            socketTimeout: 5_000,
            retryStrategy: (times) => Math.min(100 * times, 1_000),
            // RESP2 is enough for these commands, and proxies support it.
            protocol: 2,
            connectionName: "parley",
            disableClientInfo: true
          })
        ),
        (client) =>
          Effect.sync(() => {
            connected = false
            client.disconnect()
            for (const channel of channels) channel.end()
          })
      )
      // The client reconnects for ever, so each distinct error is logged once instead of at every attempt.
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
        // Redis has just responded, so the circuits can close.
        for (const channel of channels) channel.close()
      })
      client.on("close", () => {
        if (connected) log(Effect.logWarning("The connection to Redis is lost"))
        connected = false
      })

      // Waits for the connection, but at most FIRST_CONNECT_TIMEOUT, so that even the first requests use the shared
      // limits.
      yield* Effect.tryPromise(() => client.connect()).pipe(
        Effect.timeout(FIRST_CONNECT_TIMEOUT),
        Effect.catchCause(() =>
          Effect.logWarning("Starting without Redis: rate limits apply per process until Redis connects")
        )
      )
      return Redis.of({
        channel: (purpose) => {
          const channel = new Channel(client, config.REDIS_TIMEOUT_MS, (open) =>
            log(
              (open
                ? Effect.logWarning("Redis does not respond in time")
                : Effect.logInfo("Redis responds in time again")).pipe(
                  Effect.annotateLogs({ purpose })
                )
            ))
          channels.push(channel)
          return channel
        }
      })
    })
  )
}

/** How many ticks the deadline consists of. The deadline is accurate to one tick. */
const TICKS = 3
const SLOW_IN_A_ROW = 3
const PAUSE_MS = 1_000
const MAX_PROBLEMS = 10
const FIRST_CONNECT_TIMEOUT = "1 second"

interface Question {
  /** The tick at which the command was sent. */
  readonly asked: number
  readonly answered: Answered
}

class Channel implements RedisChannel {
  private readonly client: Client
  private readonly tickMs: number
  private readonly changed: (open: boolean) => void
  /** The commands that wait for a response, in the order in which they were sent. */
  private readonly waiting = new Set<Question>()
  /** Counts timer ticks while a command waits. It advances by one per tick, even if the event loop is late. */
  private tick = 0
  private ticking = false
  private slowInARow = 0
  private lastSlow = -TICKS
  private open = false
  private ended = false
  private probe: NodeJS.Timeout | undefined

  constructor(client: Client, timeoutMs: number, changed: (open: boolean) => void) {
    this.client = client
    this.tickMs = Math.max(1, timeoutMs / TICKS)
    this.changed = changed
  }

  unusable(): "down" | "open" | undefined {
    return this.client.status !== "ready" ? "down" : this.open ? "open" : undefined
  }

  send(script: RedisScript, keys: ReadonlyArray<string>, args: ReadonlyArray<Argument>, answered: Answered): void {
    this.ask(() =>
      this.client.evalsha(script.hash, keys.length, ...keys, ...args).catch((error: unknown) => {
        if (!(error instanceof Error) || !error.message.startsWith("NOSCRIPT")) throw error
        return this.client.eval(script.lua, keys.length, ...keys, ...args)
      }), answered)
  }

  remove(key: string, entry: Argument): void {
    this.ask(() => this.client.lrem(key, -1, entry), () => undefined)
  }

  run(
    script: RedisScript,
    keys: ReadonlyArray<string>,
    args: ReadonlyArray<Argument>
  ): Effect.Effect<unknown, RedisFailed> {
    return toEffect((answered) => this.send(script, keys, args, answered))
  }

  command(name: string, ...args: ReadonlyArray<Argument>): Effect.Effect<unknown, RedisFailed> {
    return toEffect((answered) => this.ask(() => this.client.call(name, ...args), answered))
  }

  /** Closes the circuit, so that commands are sent again. */
  close(): void {
    this.slowInARow = 0
    if (!this.open) return
    this.open = false
    clearTimeout(this.probe)
    this.changed(false)
  }

  end(): void {
    this.ended = true
    clearTimeout(this.probe)
  }

  private ask(request: () => Promise<unknown>, answered: Answered): void {
    const reason = this.unusable()
    if (reason !== undefined) return answered(new RedisFailed({ reason, message: MESSAGES[reason] }), undefined)
    this.exchange(request, answered)
  }

  private exchange(request: () => Promise<unknown>, answered: Answered): void {
    const question: Question = { asked: this.tick, answered }
    this.waiting.add(question)
    if (!this.ticking) this.wind()
    request().then(
      (answer) => {
        if (!this.waiting.delete(question)) return
        this.slowInARow = 0
        answered(undefined, answer)
      },
      (error: unknown) => {
        if (!this.waiting.delete(question)) return
        const failure = failureOf(this.client, error)
        if (failure.reason === "refused") this.slowInARow = 0
        answered(failure, undefined)
      }
    )
  }

  private wind(): void {
    this.ticking = true
    setTimeout(() => {
      this.tick++
      // The event loop reads sockets between timers and immediates. So responses that have arrived are handled before
      // `expire`.
      setImmediate(() => this.expire())
    }, this.tickMs)
  }

  private expire(): void {
    let slow = false
    for (const question of this.waiting) {
      if (this.tick - question.asked <= TICKS) break
      this.waiting.delete(question)
      slow = true
      question.answered(new RedisFailed({ reason: "slow", message: MESSAGES.slow }), undefined)
    }
    // Commands that time out together count as one slow response.
    if (slow && this.tick - this.lastSlow >= TICKS) {
      this.lastSlow = this.tick
      if (++this.slowInARow >= SLOW_IN_A_ROW && !this.open && !this.ended) {
        this.open = true
        this.changed(true)
        this.probeLater()
      }
    }
    if (this.waiting.size > 0) this.wind()
    else this.ticking = false
  }

  private probeLater(): void {
    this.probe = setTimeout(() => {
      // Without a connection there is nothing to test. When the client has reconnected, the `ready` event closes the
      // circuit.
      if (this.client.status !== "ready") return this.probeLater()
      this.exchange(() => this.client.ping(), (failure) => {
        if (!this.open || this.ended) return
        if (failure === undefined || failure.reason === "refused") this.close()
        else this.probeLater()
      })
    }, PAUSE_MS)
  }
}

const MESSAGES = { down: "not connected", open: "paused after slow answers", slow: "no answer in time" }

const toEffect = (ask: (answered: Answered) => void): Effect.Effect<unknown, RedisFailed> =>
  Effect.callback<unknown, RedisFailed>((resume) =>
    ask((failure, answer) => resume(failure === undefined ? Effect.succeed(answer) : Effect.fail(failure)))
  )

const failureOf = (client: Client, error: unknown): RedisFailed => {
  const { message, name } = error instanceof Error ? error : { message: String(error), name: "" }
  return new RedisFailed({ reason: name === "ReplyError" || client.status === "ready" ? "refused" : "down", message })
}
