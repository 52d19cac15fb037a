import { Config as EffectConfig, Context, Data, Effect, Layer, Redacted, Result } from "effect"
import { Environment, type Misspelt, misspelt } from "./Misspelt.ts"

/** A variable that cannot be used, with what to do about it; all of them are reported together. */
export class ConfigInvalid extends Data.TaggedError("ConfigInvalid")<{ readonly problems: ReadonlyArray<string> }> {
  override get message(): string {
    return this.problems.join("\n")
  }
}

interface Setting<A> {
  readonly parse: (text: string) => Result.Result<A, string>
  readonly fallback: A
  /** The default as a person would write it. */
  readonly shown: string
  readonly about: string
  readonly secret: boolean
}

const make = <A>(
  parse: Setting<A>["parse"],
  fallback: A,
  about: string,
  options?: { readonly shown?: string; readonly secret?: boolean }
): Setting<A> => ({
  parse,
  fallback,
  shown: options?.shown ?? String(fallback),
  about,
  secret: options?.secret ?? false
})

const wholeNumber = (min: number, max: number): Setting<number>["parse"] => (text) =>
  /^-?\d+$/.test(text) && Number(text) >= min && Number(text) <= max
    ? Result.succeed(Number(text))
    : Result.fail(`expected a whole number from ${min} to ${max}`)

const int = (fallback: number, about: string, min = 0, max = Number.MAX_SAFE_INTEGER) =>
  make(wholeNumber(min, max), fallback, about)

const maybe = <A>(parse: Setting<A>["parse"], about: string, shown = "none", secret = false) =>
  make<A | undefined>(parse, undefined, about, { shown, secret })

const seconds: Setting<ReadonlyArray<number>>["parse"] = (text) => {
  const parts = text.split(",").map((part) => part.trim())
  return parts.length <= 32 && parts.every((part) => /^\d{1,7}$/.test(part) && Number(part) >= 1)
    ? Result.succeed(parts.map(Number))
    : Result.fail("expected up to 32 whole numbers of seconds with commas between them")
}

const anyText: Setting<string>["parse"] = (text) => Result.succeed(text)

const oneOf = <const L extends ReadonlyArray<string>>(...options: L): Setting<L[number]>["parse"] => (text) => {
  const found = options.find((option) => option === text)
  return found === undefined ? Result.fail(`expected one of ${options.join(", ")}`) : Result.succeed(found)
}

const url = (...protocols: ReadonlyArray<string>): Setting<string>["parse"] => (text) =>
  URL.canParse(text) && protocols.includes(new URL(text).protocol)
    ? Result.succeed(text.replace(/\/+$/, ""))
    : Result.fail(`expected a URL beginning with ${protocols.map((p) => `${p}//`).join(" or ")}`)

const secretUrl = (...protocols: ReadonlyArray<string>): Setting<Redacted.Redacted<string>>["parse"] => (text) =>
  Result.map(url(...protocols)(text), (value) => Redacted.make(value))

/** One secret, or while it is changed the new one and the old one. */
const secrets: Setting<Redacted.Redacted<string>>["parse"] = (text) => {
  const parts = text.split(",").map((part) => part.trim())
  return parts.length <= 2 && parts.every((part) => part !== "")
    ? Result.succeed(Redacted.make(text))
    : Result.fail("expected one secret, or two with a comma between them: the new one, the old one")
}

/**
 * Every variable that Parley reads, in the order of the README's table. Rates
 * are numbers of accepted requests in a sliding window.
 */
export const settings = {
  PORT: make(wholeNumber(0, 65535), 3000, "port of the HTTP API and the socket; 0 takes a free one"),
  HOST: make(anyText, "127.0.0.1", "address to listen on"),
  PUBLIC_URL: maybe(url("http:", "https:"), "base of the absolute URLs it hands out", "from HOST and PORT"),
  DATA_DIR: make(anyText, "./data", "database, files and outbox of a standalone server"),
  DATABASE_URL: maybe(secretUrl("postgres:", "postgresql:"), "PostgreSQL instead of the built-in database", "none: PGlite in DATA_DIR", true),
  DATABASE_POOL: int(10, "connections to PostgreSQL", 4, 1000),
  REDIS_URL: maybe(secretUrl("redis:", "rediss:"), "Redis in which several servers count rates together and keep who is there", "none: each keeps its own", true),
  REDIS_TIMEOUT_MS: int(50, "milliseconds that a request waits for Redis before the server's own count decides alone", 1, 10_000),
  S3_BUCKET: maybe(anyText, "bucket for files", "none: files in DATA_DIR"),
  S3_ENDPOINT: maybe(url("http:", "https:"), "address of the store that has the bucket, as clients reach it", "Amazon's"),
  S3_INTERNAL_ENDPOINT: maybe(url("http:", "https:"), "the same as the servers reach it, where that is another one", "S3_ENDPOINT"),
  S3_REGION: make(anyText, "us-east-1", "region of the bucket"),
  S3_ACCESS_KEY_ID: maybe(anyText, "who the store takes the server for", "from the machine"),
  S3_SECRET_ACCESS_KEY: maybe<Redacted.Redacted<string>>((text) => Result.succeed(Redacted.make(text)), "and the secret that proves it", "from the machine", true),
  S3_FORCE_PATH_STYLE: make(oneOf("on", "off"), "off", "whether the bucket is a part of the path, not of the host name"),
  DATABASE_LANES: int(1, "batches of sends under way at once on PostgreSQL; more pay where it has cores to spare", 1, 16),
  SMTP_URL: maybe(secretUrl("smtp:", "smtps:"), "mail server for one-time codes", "none: mail goes to MAIL_OUTBOX", true),
  MAIL_FROM: make(anyText, "Parley <parley@localhost>", "sender of mail"),
  MAIL_OUTBOX: maybe(anyText, "folder that gets each mail as an .eml file when SMTP_URL is not set", "DATA_DIR/outbox"),
  TRUST_PROXY: int(0, "how many proxies in front may set X-Forwarded-For", 0, 16),
  ECHO_OWN: make(oneOf("on", "off"), "on", "whether an agent's own messages come back on its sockets"),
  ALLOWED_ORIGINS: make(anyText, "*", "origins that may call from a browser: * or a comma list"),
  WEBHOOK_ALLOW_PRIVATE: make(oneOf("none", "loopback", "all"), "none", "which addresses besides public ones webhooks may reach"),
  WEBHOOK_TIMEOUT_SECONDS: int(10, "seconds in which a webhook's host must have answered", 1, 60),
  WEBHOOK_RETRY_SECONDS: make<ReadonlyArray<number>>(seconds, [10, 30, 60, 300, 900, 3_600, 21_600, 86_400], "seconds from each failed attempt of a delivery to the next; what fails once more is dead"),
  WEBHOOK_CIRCUIT_IN_A_ROW: int(5, "failures in a row after which a webhook is left alone for a while", 1, 100_000),
  WEBHOOK_CIRCUIT_PER_MINUTE: int(10, "failures within a minute after which it is, too", 1, 100_000),
  WEBHOOK_CIRCUIT_PAUSE_SECONDS: int(300, "and for how long", 1, 86_400),
  WEBHOOK_DEAD_IN_A_ROW: int(50, "dead deliveries in a row after which a webhook is given up", 1, 100_000),
  WEBHOOK_POSTS: int(64, "posts to webhooks that a server has under way at once", 1, 10_000),
  WEBHOOK_POSTS_PER_HOST: int(8, "and those of them to the same host", 1, 10_000),
  RETENTION_MESSAGES_DAYS: maybe(wholeNumber(1, 36_500), "how long messages are kept, and the files in them", "for ever"),
  RETENTION_CODES_HOURS: int(1, "how long one-time codes are kept after they are over", 0, 8_760),
  RETENTION_WEBHOOKS_DELIVERED_HOURS: int(24, "how long webhook deliveries that arrived are kept", 1, 876_000),
  RETENTION_WEBHOOKS_DEAD_HOURS: int(720, "how long webhook deliveries that never arrived are kept and listed", 1, 876_000),
  LOG_LEVEL: make(oneOf("debug", "info", "warn", "error"), "info", "least severe log line to write"),
  METRICS_TOKEN: maybe<Redacted.Redacted<string>>((text) => Result.succeed(Redacted.make(text)), "bearer token for /internal/metrics", "none: open", true),
  ROLE: make(oneOf("runner", "gateway"), "runner", "what a node is: a runner, or a gateway, which serves requests and sockets and owns nothing"),
  RUNNER_HOST: make(anyText, "127.0.0.1", "address of a node for the other nodes, and the only one that it listens on for them"),
  RUNNER_PORT: make(wholeNumber(1, 65535), 14431, "and its port"),
  RUNNER_SECRET: maybe(secrets, "secret that nodes prove to each other that they know, and with which what they say is encrypted; two while it is changed: new,old", "none: whoever reaches RUNNER_PORT is a node", true),
  SHARED_DIR: maybe(anyText, "folder for files that every node has, in place of a bucket"),
  DRAIN_SECONDS: maybe(wholeNumber(0, 5), "seconds for which a server that is asked to stop still serves while it is not ready", "2 for a node, else 0"),
  LIMITS_SENDS_PER_SECOND: int(60, "sends of an agent per second, direct and group together", 1),
  LIMITS_GROUP_SENDS_PER_SECOND: int(0, "sends to a group per second, of all members together; 0 is no such limit"),
  LIMITS_WARNING_PERCENT: int(80, "share of its sends per second from which on an agent is warned on its sockets", 1, 100),
  LIMITS_WARNING_SECONDS: int(10, "seconds in which it is warned once", 1),
  LIMITS_COLD_CONVERSATIONS: int(100, "unanswered conversations that an agent may have begun in the window", 1),
  LIMITS_COLD_WINDOW_SECONDS: int(86_400, "seconds for which an unanswered conversation counts towards that", 1),
  LIMITS_COLD_RETRY_SECONDS: int(3_600, "seconds before time frees a place from which on a refusal says Retry-After"),
  LIMITS_RESTRICT_BLOCKS: int(15, "blocks by agents it wrote to first that restrict an agent", 1, 100_000),
  LIMITS_RESTRICT_WINDOW_SECONDS: int(86_400, "seconds for which a block counts towards that", 1),
  LIMITS_SUSPEND_BLOCKS: int(50, "such blocks that suspend an agent", 1, 100_000),
  LIMITS_SUSPEND_REPORTS: int(10, "reports by agents it wrote to first that suspend an agent", 1, 100_000),
  LIMITS_SUSPEND_WINDOW_SECONDS: int(604_800, "seconds for which a block or report counts towards a suspension", 1),
  LIMITS_BACKLOG_SOFT: int(5_000, "undelivered messages of a recipient from which on a sender is warned", 1),
  LIMITS_BACKLOG_HARD: int(10_000, "undelivered messages of a recipient from which on direct sends are refused", 1),
  LIMITS_REGISTER_PER_HOUR: int(5, "registrations begun per IP address and hour", 1),
  LIMITS_REGISTER_VERIFY_PER_10_MINUTES: int(10, "registration codes tried per IP address and 10 minutes", 1),
  LIMITS_RECOVER_PER_HOUR: int(3, "recoveries begun per IP address and hour", 1),
  LIMITS_RECOVER_VERIFY_PER_10_MINUTES: int(10, "recovery codes tried per IP address and 10 minutes", 1),
  LIMITS_ROTATE_PER_HOUR: int(3, "key rotations begun per IP address and hour", 1),
  LIMITS_ROTATE_VERIFY_PER_10_MINUTES: int(10, "rotation codes tried per IP address and 10 minutes", 1),
  LIMITS_CARDS_PER_MINUTE: int(300, "public cards read by an agent per minute", 1),
  LIMITS_CONVERSATION_LISTS_PER_MINUTE: int(1_200, "conversation lists read by an agent per minute", 1),
  LIMITS_CONTACT_LISTS_PER_MINUTE: int(1_200, "contact lists read by an agent per minute", 1),
  LIMITS_CONTACT_CHECKS_PER_MINUTE: int(1_200, "contacts looked up by an agent per minute", 1),
  LIMITS_DIRECTORY_PER_MINUTE: int(60, "directory searches of an agent per minute", 1),
  LIMITS_DIRECTORY_PER_DAY: int(1_000, "directory searches of an agent in 24 hours", 1),
  LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: int(30, "directory searches without a key per IP address and minute", 1),
  LIMITS_MUTE_WRITES_PER_SECOND: int(10, "mutes set or lifted by an agent per second", 1),
  LIMITS_MUTES_PER_AGENT: int(10_000, "mutes that an agent may have at once", 1),
  LIMITS_WEBHOOKS_PER_AGENT: int(5, "webhooks that an agent may have", 1, 100),
  LIMITS_GROUP_MEMBERS: int(256, "active members that a group may have", 1),
  LIMITS_GROUP_INVITES_PER_DAY: int(500, "group invites of an agent in 24 hours", 1),
  LIMITS_GROUP_REFUSAL_SECONDS: int(86_400, "seconds for which a group cannot ask an agent again that refused", 1),
  LIMITS_AVATAR_WRITES_PER_MINUTE: int(5, "avatars set or removed by an agent per minute", 1),
  LIMITS_BODY_BYTES: int(1_048_576, "bytes of a request's body, files and pictures apart", 1_024, 16_777_216),
  LIMITS_MESSAGE_BYTES: int(32_768, "bytes of a message's content and metadata as JSON", 1, 262_144),
  LIMITS_ATTACHMENT_BYTES: int(26_214_400, "bytes of a file", 1, 26_214_400),
  LIMITS_AVATAR_BYTES: int(5_242_880, "bytes of a picture that is to be an avatar", 1, 5_242_880),
  LIMITS_AVATAR_PIXELS: int(24_000_000, "pixels of such a picture", 1, 268_402_689),
  LIMITS_AVATAR_SIDE: int(128, "pixels that both of its sides must have", 1, 512),
  LIMITS_STORAGE_PER_AGENT: int(1_073_741_824, "bytes of files that an agent may have uploaded and reserved", 1),
  LIMITS_REQUESTS_PER_MINUTE: int(12_000, "requests of an agent per minute, of every kind", 1),
  LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: int(1_200, "requests without a key per IP address and minute", 1),
  LIMITS_OTP_TTL_SECONDS: int(600, "how long a one-time code is good for", 1),
  LIMITS_OTP_ATTEMPTS: int(5, "wrong tries that a one-time code survives", 1),
  LIMITS_OTP_COOLDOWN_SECONDS: int(60, "seconds between two codes to the same address for the same purpose"),
  LIMITS_OTP_PER_HOUR: int(20, "codes to the same address for the same purpose per hour", 1),
  LIMITS_REGISTRATIONS_PER_EMAIL: int(3, "accounts that an e-mail address may ever have had", 1),
  LIMITS_SOCKETS_PER_AGENT: int(20, "sockets that an agent may hold at once", 1),
  LIMITS_FRAMES_PER_SECOND: int(100, "frames that a socket may send per second, acknowledgements apart", 1),
  LIMITS_REFUSALS_PER_SECOND: int(200, "frames of a socket that are answered with an error per second before it is read more slowly; one that goes on is closed", 1),
  SOCKETS_HELLO_SECONDS: int(5, "seconds in which a new socket must say who it is", 1, 60),
  SOCKETS_FRAME_BYTES: int(65_536, "bytes of a frame that a socket may send", 1_024, 16_777_216),
  SOCKETS_BACKLOG_BYTES: int(1_048_576, "bytes unsent on a socket with which its backlog waits", 1_024),
  SOCKETS_UNSENT_BYTES: int(4_194_304, "bytes unsent on a socket with which it is closed for being slow", 1_024),
  SOCKETS_PING_SECONDS: int(30, "seconds from one ping of a socket to the next", 1, 3_600),
  SOCKETS_PONG_SECONDS: int(10, "seconds in which a ping must be answered", 1, 3_600),
  PRESENCE_LIFETIME_SECONDS: int(300, "seconds after an agent's last sign of life from which on it is offline", 60, 86_400),
  HTTP_HEADERS_SECONDS: int(10, "seconds in which the head of a request must have arrived", 1, 3_600),
  HTTP_REQUEST_SECONDS: int(120, "seconds in which a request must have arrived, uploads included", 1, 3_600),
  HTTP_STALLED_SECONDS: int(60, "seconds for which a peer may take nothing of an answer", 1, 3_600),
  IDEMPOTENCY_DEADLINE_SECONDS: int(30, "seconds in which a request with an Idempotency-Key must be done", 1, 600),
  IDEMPOTENCY_RETENTION_HOURS: int(24, "hours for which the answer to an Idempotency-Key is kept", 1, 876_000),
  UPLOADS_URL_SECONDS: int(900, "seconds for which the address to upload a file to is good", 1, 604_800),
  DOWNLOADS_URL_SECONDS: int(300, "seconds for which the address to download a file from is good", 1, 604_800),
  UPLOADS_RETENTION_HOURS: int(24, "hours for which an uploaded file is kept that no message has used", 1, 876_000)
} satisfies Record<string, Setting<unknown>>

export type Settings = { readonly [K in keyof typeof settings]: (typeof settings)[K]["fallback"] }

/** What is wrong with settings that are each right alone. */
const disagreements = (config: Settings): ReadonlyArray<string> => {
  const problems: Array<string> = []
  if (config.HTTP_HEADERS_SECONDS > config.HTTP_REQUEST_SECONDS) {
    problems.push(`HTTP_HEADERS_SECONDS: the head is a part of the request: at most HTTP_REQUEST_SECONDS, ${config.HTTP_REQUEST_SECONDS}`)
  }
  if ((config.S3_ACCESS_KEY_ID === undefined) !== (config.S3_SECRET_ACCESS_KEY === undefined)) {
    problems.push("S3_ACCESS_KEY_ID: goes with S3_SECRET_ACCESS_KEY: set both, or none to take what the machine has")
  }
  if (config.SOCKETS_BACKLOG_BYTES >= config.SOCKETS_UNSENT_BYTES) {
    problems.push(`SOCKETS_BACKLOG_BYTES: a backlog would close its socket: less than SOCKETS_UNSENT_BYTES, ${config.SOCKETS_UNSENT_BYTES}`)
  }
  const signOfLife = config.SOCKETS_PING_SECONDS + config.SOCKETS_PONG_SECONDS
  if (config.PRESENCE_LIFETIME_SECONDS <= signOfLife) {
    problems.push(`PRESENCE_LIFETIME_SECONDS: agents with sockets would go offline between two pings: more than SOCKETS_PING_SECONDS and SOCKETS_PONG_SECONDS together, ${signOfLife}`)
  }
  return problems
}

/** A limit that is not set because its name is wrong would be missed when it is too late: it stops the start. */
const stops = ({ name }: Misspelt): boolean => name.startsWith("LIMITS_")

const strangers = Effect.map(Environment, (environment) => misspelt(environment, Object.keys(settings)))

/** The effective configuration, validated as a whole before anything starts. */
export class Config extends Context.Service<Config, Settings>()("parley/platform/Config") {
  /** Reads every variable from the `ConfigProvider` (the environment unless told otherwise); fails with all problems at once. */
  static readonly load = Effect.gen(function*() {
    const problems: Array<string> = []
    const values: Record<string, unknown> = {}
    for (const [name, setting] of Object.entries(settings) as ReadonlyArray<[string, Setting<unknown>]>) {
      const text = (yield* EffectConfig.String(name).pipe(EffectConfig.withDefault(""))).trim()
      if (text === "") {
        values[name] = setting.fallback
        continue
      }
      const parsed = setting.parse(text)
      if (Result.isSuccess(parsed)) values[name] = parsed.success
      else problems.push(`${name}: ${parsed.failure}${setting.secret ? "" : `, got ${JSON.stringify(text)}`}`)
    }
    for (const { name, nearest } of (yield* strangers).filter(stops)) {
      problems.push(`${name}: there is no such limit; the nearest is ${nearest}`)
    }
    if (problems.length === 0) problems.push(...disagreements(values as Settings))
    if (problems.length > 0) return yield* new ConfigInvalid({ problems })
    return Config.of(values as Settings)
  })

  static readonly layer = Layer.effect(Config, Config.load)

  /** What an operator should know of variables that are set and change nothing. */
  static readonly warnings = Effect.map(strangers, (found) =>
    found.filter((one) => !stops(one)).map(({ name, nearest }) => `${name} is set and means nothing here: ${nearest} may be meant`))

  /** The defaults with these changes, for tests. */
  static readonly layerTest = (changes: Partial<Settings> = {}) =>
    Layer.sync(Config, () => {
      const defaults = Object.fromEntries(Object.entries(settings).map(([name, s]) => [name, s.fallback]))
      return Config.of({ ...defaults, ...changes } as Settings)
    })
}

/** One setting as it is in effect, in the words of the README's table. */
export interface EffectiveSetting {
  readonly name: string
  /** A secret is only said to be set. */
  readonly value: string
  readonly isDefault: boolean
  readonly about: string
}

/** Every setting with its effective value, secrets redacted, in the order of the README's table. */
export const effective = (config: Settings): ReadonlyArray<EffectiveSetting> =>
  (Object.entries(settings) as ReadonlyArray<[keyof Settings, Setting<unknown>]>).map(([name, { about, fallback, secret, shown }]) => {
    const value = config[name]
    const isDefault = value === fallback
    return { name, value: isDefault ? shown : secret ? "(set, not shown)" : String(value), isDefault, about }
  })
