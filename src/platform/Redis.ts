import { Context, Data, Effect, Layer, Redacted } from "effect"
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

/** Told exactly once: the failure, or undefined and the answer. */
export type Answered = (failure: RedisFailed | undefined, answer: unknown) => void

/**
 * What one purpose asks of Redis. It has a circuit of its own: after answers that did not
 * come in time nothing is asked for a second, and then only whether they do again, by
 * a PING that no request waits for.
 */
export interface RedisChannel {
  /** Why nothing can be asked right now; undefined if it can. */
  readonly unusable: () => "down" | "open" | undefined
  /** Runs the script, in one round trip if the server has it already. For hot paths: no fiber takes part. */
  readonly send: (
    script: RedisScript,
    keys: ReadonlyArray<string>,
    args: ReadonlyArray<Argument>,
    answered: Answered
  ) => void
  /** Removes the last such entry of a list, if it can; nobody is told. */
  readonly remove: (key: string, entry: Argument) => void
  readonly run: (
    script: RedisScript,
    keys: ReadonlyArray<string>,
    args: ReadonlyArray<Argument>
  ) => Effect.Effect<unknown, RedisFailed>
  readonly command: (name: string, ...args: ReadonlyArray<Argument>) => Effect.Effect<unknown, RedisFailed>
}

/**
 * The one connection to REDIS_URL. What is asked of it is optional by nature: nothing
 * ever waits for a connection or longer than REDIS_TIMEOUT_MS, and nothing is sent
 * twice. It connects again by itself.
 *
 * The deadline counts the time that Redis takes. A process that is busy with other things, or
 * gets no processor, must not take an answer that waits to be read for one that is late: time is
 * counted in turns of the event loop, and the sockets are read before anything is given up.
 */
export class Redis extends Context.Service<Redis, {
  readonly channel: (purpose: string) => RedisChannel
}>()("parley/platform/Redis") {
  static readonly layer = Layer.effect(
    Redis,
    Effect.gen(function*() {
      const config = yield* Config
      if (config.REDIS_URL === undefined) return yield* new ConfigInvalid({ problems: ["REDIS_URL: required for Redis"] })
      const url = Redacted.value(config.REDIS_URL)
      const log = Effect.runForkWith(yield* Effect.context<never>())
      let connected = false
      const channels: Array<Channel> = []
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
            for (const channel of channels) channel.end()
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
        // It has just answered.
        for (const channel of channels) channel.close()
      })
      client.on("close", () => {
        if (connected) log(Effect.logWarning("The connection to Redis is lost"))
        connected = false
      })

      // Whoever starts first is limited with the others, if Redis is there; a server that is away delays no start for longer.
      yield* Effect.tryPromise(() => client.connect()).pipe(
        Effect.timeout(FIRST_CONNECT),
        Effect.catchCause(() => Effect.logWarning("Starting without Redis: this server counts rates alone until it is there"))
      )
      return Redis.of({
        channel: (purpose) => {
          const channel = new Channel(client, config.REDIS_TIMEOUT_MS, (open) =>
            log(
              (open ? Effect.logWarning("Redis does not answer in time") : Effect.logInfo("Redis answers in time again")).pipe(
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

/** Parts of the deadline; what is asked has waited for one part more or less. */
const TICKS = 3
const SLOW_IN_A_ROW = 3
const LEFT_ALONE_MS = 1_000
const MAX_PROBLEMS = 10
const FIRST_CONNECT = "1 second"

interface Question {
  /** The tick at which it was asked. */
  readonly asked: number
  readonly answered: Answered
}

class Channel implements RedisChannel {
  private readonly client: Client
  private readonly tickMs: number
  private readonly changed: (open: boolean) => void
  /** What waits for an answer, in the order in which it was asked. */
  private readonly waiting = new Set<Question>()
  /** Goes on only while something waits, and by one however late the event loop is. */
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

  run(script: RedisScript, keys: ReadonlyArray<string>, args: ReadonlyArray<Argument>): Effect.Effect<unknown, RedisFailed> {
    return toEffect((answered) => this.send(script, keys, args, answered))
  }

  command(name: string, ...args: ReadonlyArray<Argument>): Effect.Effect<unknown, RedisFailed> {
    return toEffect((answered) => this.ask(() => this.client.call(name, ...args), answered))
  }

  /** Ends the circuit's break. */
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
      // Between a timer and an immediate the event loop reads its sockets: an answer that is there is taken before this looks.
      setImmediate(() => this.look())
    }, this.tickMs)
  }

  private look(): void {
    let slow = false
    for (const question of this.waiting) {
      if (this.tick - question.asked <= TICKS) break
      this.waiting.delete(question)
      slow = true
      question.answered(new RedisFailed({ reason: "slow", message: MESSAGES.slow }), undefined)
    }
    // However many wait together, it is one answer that does not come.
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
      // Without a connection there is nothing to ask; one that comes back has answered already.
      if (this.client.status !== "ready") return this.probeLater()
      this.exchange(() => this.client.ping(), (failure) => {
        if (!this.open || this.ended) return
        if (failure === undefined || failure.reason === "refused") this.close()
        else this.probeLater()
      })
    }, LEFT_ALONE_MS)
  }
}

const MESSAGES = { down: "not connected", open: "left alone", slow: "no answer in time" }

const toEffect = (ask: (answered: Answered) => void): Effect.Effect<unknown, RedisFailed> =>
  Effect.callback<unknown, RedisFailed>((resume) =>
    ask((failure, answer) => resume(failure === undefined ? Effect.succeed(answer) : Effect.fail(failure)))
  )

const failureOf = (client: Client, error: unknown): RedisFailed => {
  const message = error instanceof Error ? error.message : String(error)
  return new RedisFailed({
    reason: error instanceof Error && error.name === "ReplyError" ? "refused" : client.status === "ready" ? "refused" : "down",
    message
  })
}
