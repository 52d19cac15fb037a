import { Config, ConfigInvalid, settings } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { Environment } from "#infrastructure/platform/UnknownSettings"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"

const within = (env: Record<string, string>) =>
  Effect.provideService(Environment, { PARLEY_CONFIG: "/dev/null", ...env })

const loaded = (env: Record<string, string>) => within(env)(Config.load)

describe("the configuration", () => {
  it.effect("has a default for everything", () =>
    Effect.gen(function*() {
      const config = yield* loaded({})
      assert.deepInclude(config, {
        PORT: 3000,
        HOST: "127.0.0.1",
        PUBLIC_URL: undefined,
        DATA_DIR: "./data",
        TRUST_PROXY: 0,
        ECHO_OWN: "on",
        LIMITS_SENDS_PER_SECOND: 60,
        LIMITS_REGISTER_PER_HOUR: 5,
        LIMITS_OTP_ATTEMPTS: 5
      })
      assert.deepStrictEqual(Object.keys(config), Object.keys(settings))
    }))

  it.effect("listens by default where no system takes the ports of outgoing connections from", () =>
    Effect.map(loaded({}), (config) => {
      // Linux begins at 32768, the others at 49152.
      for (const port of [config.PORT, config.RUNNER_PORT]) assert.isBelow(port, 32_768)
    }))

  it.effect("has the contract's limits by default", () =>
    Effect.map(loaded({}), (config) =>
      assert.deepInclude(config, {
        LIMITS_SENDS_PER_SECOND: 60,
        LIMITS_GROUP_SENDS_PER_SECOND: 0,
        LIMITS_WARNING_PERCENT: 80,
        LIMITS_WARNING_SECONDS: 10,
        LIMITS_COLD_CONVERSATIONS: 100,
        LIMITS_COLD_WINDOW_SECONDS: 86_400,
        LIMITS_COLD_RETRY_SECONDS: 3_600,
        LIMITS_RESTRICT_BLOCKS: 15,
        LIMITS_RESTRICT_WINDOW_SECONDS: 86_400,
        LIMITS_SUSPEND_BLOCKS: 50,
        LIMITS_SUSPEND_REPORTS: 10,
        LIMITS_SUSPEND_WINDOW_SECONDS: 604_800,
        LIMITS_BACKLOG_SOFT: 5_000,
        LIMITS_GROUP_REFUSAL_SECONDS: 86_400,
        LIMITS_AVATAR_PIXELS: 24_000_000,
        LIMITS_AVATAR_SIDE: 128,
        WEBHOOK_TIMEOUT_SECONDS: 10,
        WEBHOOK_RETRY_SECONDS: [10, 30, 60, 300, 900, 3_600, 21_600, 86_400],
        WEBHOOK_CIRCUIT_IN_A_ROW: 5,
        WEBHOOK_CIRCUIT_PER_MINUTE: 10,
        WEBHOOK_CIRCUIT_PAUSE_SECONDS: 300,
        WEBHOOK_DEAD_IN_A_ROW: 50,
        IDEMPOTENCY_DEADLINE_SECONDS: 30,
        LIMITS_BACKLOG_HARD: 10_000,
        LIMITS_REGISTER_PER_HOUR: 5,
        LIMITS_REGISTER_VERIFY_PER_10_MINUTES: 10,
        LIMITS_RECOVER_PER_HOUR: 3,
        LIMITS_RECOVER_VERIFY_PER_10_MINUTES: 10,
        LIMITS_ROTATE_PER_HOUR: 3,
        LIMITS_ROTATE_VERIFY_PER_10_MINUTES: 10,
        LIMITS_CARDS_PER_MINUTE: 300,
        LIMITS_CONVERSATION_LISTS_PER_MINUTE: 1_200,
        LIMITS_CONTACT_LISTS_PER_MINUTE: 1_200,
        LIMITS_CONTACT_CHECKS_PER_MINUTE: 1_200,
        LIMITS_DIRECTORY_PER_MINUTE: 60,
        LIMITS_DIRECTORY_PER_DAY: 1_000,
        LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: 30,
        LIMITS_MUTE_WRITES_PER_SECOND: 10,
        LIMITS_REACTIONS_PER_MINUTE: 60,
        LIMITS_REPLY_CALLS_PER_MINUTE: 1_200,
        LIMITS_WEBHOOKS_PER_AGENT: 5,
        LIMITS_PUSH_CONFIGS_PER_TASK: 10,
        LIMITS_PUSH_CONFIGS_PER_AGENT: 200,
        WEBHOOK_POSTS_PER_AGENT: 8,
        LIMITS_GROUP_MEMBERS: 256,
        LIMITS_GROUP_INVITES_PER_DAY: 500,
        LIMITS_AVATAR_WRITES_PER_MINUTE: 5,
        LIMITS_BODY_BYTES: 1_048_576,
        LIMITS_MESSAGE_BYTES: 32_768,
        LIMITS_ATTACHMENT_BYTES: 26_214_400,
        LIMITS_AVATAR_BYTES: 5_242_880,
        LIMITS_STORAGE_PER_AGENT: 1_073_741_824,
        LIMITS_OTP_TTL_SECONDS: 600,
        LIMITS_OTP_ATTEMPTS: 5,
        LIMITS_OTP_ATTEMPTS_PER_CODE: 20,
        LIMITS_OTP_COOLDOWN_SECONDS: 60,
        LIMITS_OTP_ANSWER_MS: 50,
        LIMITS_REGISTRATIONS_PER_EMAIL: 3,
        LIMITS_SOCKETS_PER_AGENT: 20,
        LIMITS_FRAMES_PER_SECOND: 100,
        LIMITS_REFUSALS_PER_SECOND: 200,
        SOCKETS_HELLO_SECONDS: 5,
        SOCKETS_FRAME_BYTES: 65_536,
        SOCKETS_BACKLOG_BYTES: 1_048_576,
        SOCKETS_UNSENT_BYTES: 4_194_304,
        SOCKETS_PING_SECONDS: 30,
        SOCKETS_PONG_SECONDS: 10,
        PRESENCE_LIFETIME_SECONDS: 300,
        IDEMPOTENCY_RETENTION_HOURS: 24,
        UPLOADS_URL_SECONDS: 900,
        DOWNLOADS_URL_SECONDS: 300
      })))

  it.effect("takes the variables that are set, and an empty one as not set", () =>
    Effect.gen(function*() {
      const config = yield* loaded({
        PORT: " 8080 ",
        HOST: "",
        PUBLIC_URL: "https://parley.example/",
        ECHO_OWN: "off",
        WEBHOOK_RETRY_SECONDS: "1, 2,30",
        SMTP_URL: "smtp://user:secret@mail.example:587"
      })
      assert.deepInclude(config, {
        PORT: 8080,
        HOST: "127.0.0.1",
        PUBLIC_URL: "https://parley.example",
        ECHO_OWN: "off"
      })
      assert.deepStrictEqual(config.WEBHOOK_RETRY_SECONDS, [1, 2, 30])
      assert.strictEqual(
        config.SMTP_URL === undefined ? "" : Redacted.value(config.SMTP_URL),
        "smtp://user:secret@mail.example:587"
      )
      assert.notInclude(`${JSON.stringify(config)} ${String(config.SMTP_URL)}`, "secret")
    }))

  it.effect("takes addresses and networks of proxies, and nothing else", () =>
    Effect.gen(function*() {
      const taken = (text: string) =>
        Effect.map(loaded({ TRUST_PROXY_ADDRESSES: text }), (config) => config.TRUST_PROXY_ADDRESSES)
      assert.deepStrictEqual(yield* taken("10.0.0.0/8, 192.0.2.1,fd00::/8"), ["10.0.0.0/8", "192.0.2.1", "fd00::/8"])
      assert.deepStrictEqual(yield* taken("none"), [])
      for (
        const text of [
          "proxy.example",
          "10.0.0.0/33",
          "fd00::/129",
          "10.0.0.0/8/8",
          "10.0.0.0/",
          "10.0.0.1,",
          "10.0.0/8"
        ]
      ) {
        const error = yield* Effect.flip(taken(text))
        assert.match(error.message, /^TRUST_PROXY_ADDRESSES: expected IP addresses and networks/, text)
      }
    }))

  it.effect("reports all problems at once, and no secret", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(loaded({
        PORT: "70000",
        PUBLIC_URL: "parley.example",
        ECHO_OWN: "maybe",
        LIMITS_OTP_ATTEMPTS: "0",
        LIMITS_OTP_TTL_SECONDS: "1.5",
        IDEMPOTENCY_DEADLINE_SECONDS: "60",
        LOG_LEVEL: "loud",
        WEBHOOK_RETRY_SECONDS: "10,,30",
        DATABASE_URL: "mysql://user:s3cret@db",
        SMTP_URL: "mail.example?password=s3cret",
        METRICS_TOKEN: "a s3cret"
      }))
      assert.instanceOf(error, ConfigInvalid)
      const names = error.problems.map((problem) => problem.split(":")[0])
      assert.sameMembers(names, [
        "PORT",
        "PUBLIC_URL",
        "ECHO_OWN",
        "LIMITS_OTP_ATTEMPTS",
        "LIMITS_OTP_TTL_SECONDS",
        "IDEMPOTENCY_DEADLINE_SECONDS",
        "LOG_LEVEL",
        "WEBHOOK_RETRY_SECONDS",
        "DATABASE_URL",
        "SMTP_URL",
        "METRICS_TOKEN"
      ])
      assert.notInclude(error.message, "s3cret")
      assert.include(error.message, 'PORT: expected a whole number from 0 to 65535, got "70000"')
    }))

  it("says of each setting in a row that stands alone what it is, and in which unit", () => {
    const units: ReadonlyArray<readonly [ending: RegExp, unit: RegExp]> = [
      [/_PER_10_MINUTES$/, /per 10 minutes/],
      [/_PER_SECOND$/, /per second/],
      [/_PER_MINUTE$/, /per minute/],
      [/_PER_HOUR$/, /per hour/],
      [/_PER_DAY$/, /24 hours/],
      [/_MS$/, /milliseconds/],
      [/_SECONDS$/, /seconds/],
      [/_HOURS$/, /hours/],
      [/_DAYS$/, /days/],
      [/_BYTES$/, /bytes/],
      [/_PERCENT$/, /percent/],
      [/_PORT$|^PORT$/, /TCP port/],
      [/_URL$|_ENDPOINT$/, /URL/]
    ]
    // What points at another row, or asks a question that only that one answers.
    const leaning =
      /^(and|the same|such|who|whose|how|whether)\b|\b(such a|those of them|towards that|in the window|it is, too)\b/
    for (const [name, { about, shown }] of Object.entries(settings)) {
      assert.notMatch(about, leaning, name)
      assert.isAbove(about.split(" ").length, 3, name)
      assert.notStrictEqual(shown, "", name)
      const unit = units.find(([ending]) => ending.test(name))
      if (unit !== undefined) assert.match(about, unit[1], name)
    }
  })

  it.effect("reports settings that contradict each other", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(loaded({
        HTTP_HEADERS_SECONDS: "31",
        HTTP_REQUEST_SECONDS: "30",
        S3_ACCESS_KEY_ID: "alone",
        SOCKETS_UNSENT_BYTES: "1048576",
        SOCKETS_PING_SECONDS: "50",
        PRESENCE_LIFETIME_SECONDS: "60"
      }))
      assert.instanceOf(error, ConfigInvalid)
      assert.deepStrictEqual(error.problems.map((problem) => problem.split(":")[0]), [
        "HTTP_HEADERS_SECONDS",
        "S3_ACCESS_KEY_ID",
        "SOCKETS_BACKLOG_BYTES",
        "PRESENCE_LIFETIME_SECONDS"
      ])
      yield* loaded({
        HTTP_HEADERS_SECONDS: "30",
        HTTP_REQUEST_SECONDS: "30",
        SOCKETS_UNSENT_BYTES: "1048577",
        SOCKETS_PING_SECONDS: "49",
        PRESENCE_LIFETIME_SECONDS: "60"
      })
    }))
})

describe("variables that are no settings", () => {
  const told = (...names: ReadonlyArray<string>) => {
    const env = Object.fromEntries(names.map((name) => [name, "1"]))
    return Effect.map(within(env)(Config.warnings), (warnings) => warnings.map((warning) => warning.split(" ")))
  }

  it.effect("are reported with the setting that is meant", () =>
    Effect.gen(function*() {
      const mistakes = {
        RUNNER_SECRT: "RUNNER_SECRET",
        RUNNER_SCERET: "RUNNER_SECRET",
        SOCKETS_PING_SECS: "SOCKETS_PING_SECONDS",
        SOCKETS_PING_SECOND: "SOCKETS_PING_SECONDS",
        SOCKETS_SOMETHING: undefined,
        SOCKET_PING_SECONDS: "SOCKETS_PING_SECONDS",
        LIMIT_SENDS_PER_SECOND: "LIMITS_SENDS_PER_SECOND",
        RETENTION_DAYS: "RETENTION_MESSAGES_DAYS",
        HTTP_HEADER_SECONDS: "HTTP_HEADERS_SECONDS",
        REDIS_URI: "REDIS_URL",
        REDIS_TIMEOUT: "REDIS_TIMEOUT_MS",
        DATABASE_URI: "DATABASE_URL",
        DATABASEURL: "DATABASE_URL",
        S3_SECRET_KEY: "S3_SECRET_ACCESS_KEY",
        S3_ACCESS_KEY: "S3_ACCESS_KEY_ID",
        SMTP_URI: "SMTP_URL",
        MAIL_FORM: "MAIL_FROM",
        WEBHOOK_TIMEOUT: "WEBHOOK_TIMEOUT_SECONDS",
        LOG_LEVL: "LOG_LEVEL"
      }
      const warnings = yield* told(...Object.keys(mistakes))
      const meant = new Map(
        warnings.map((words) => [words[0], words.find((word) => word !== words[0] && word in settings)])
      )
      assert.deepStrictEqual([...meant.keys()], Object.keys(mistakes))
      for (const [name, nearest] of Object.entries(mistakes)) {
        if (nearest !== undefined) assert.strictEqual(meant.get(name), nearest, name)
      }
    }))

  it.effect("are ignored if they belong to other programs, or are not set", () =>
    Effect.gen(function*() {
      const service = (name: string) => [
        `${name}_SERVICE_HOST`,
        `${name}_SERVICE_PORT`,
        `${name}_SERVICE_PORT_HTTP`,
        `${name}_PORT`,
        `${name}_PORT_6379_TCP`,
        `${name}_PORT_6379_TCP_ADDR`,
        `${name}_PORT_6379_TCP_PORT`,
        `${name}_PORT_6379_TCP_PROTO`
      ]
      const others = [
        ...["REDIS", "DATABASE", "RUNNER", "LIMITS", "UPLOADS", "S3", "SMTP", "WEBHOOK", "PARLEY"].flatMap(service)
          .filter((name) => name !== "RUNNER_PORT"),
        ..."OS ARCH NAME TEMP TOOL_CACHE DEBUG ENVIRONMENT TRACKING_ID WORKSPACE".split(" ").map((name) =>
          `RUNNER_${name}`
        ),
        ..."HOME PATH PWD USER SHELL LANG TERM HOSTNAME LOGNAME MAIL NODE_ENV NODE_OPTIONS CI TMPDIR DISPLAY TZ".split(
          " "
        ),
        ..."HTTP_PROXY HTTPS_PROXY NO_PROXY AWS_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN".split(
          " "
        ),
        ..."DATABASE_HOST DATABASE_USER DATABASE_NAME DATABASE_PASSWORD REDIS_HOST REDIS_PASSWORD SMTP_HOST SMTP_USER MAIL_HOST"
          .split(" "),
        ..."GITHUB_TOKEN PGHOST PGPORT POSTGRES_USER MINIO_ROOT_USER npm_config_loglevel HTTP_HOST BIND PROT ROOT HOTS"
          .split(" ")
      ]
      assert.deepStrictEqual(yield* told(...others), [])
      yield* loaded(Object.fromEntries(others.map((name) => [name, "1"])))
      yield* loaded({ LIMITS_SENDS_PER_SEC: " " })
      assert.deepStrictEqual(yield* told(...Object.keys(settings)), [])
    }))

  it.effect("stop the start if one is meant for a limit, and say which", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(
        loaded({ LIMITS_SENDS_PER_SEC: "1", LIMITS_OTP_ATTEMPS: "2", LIMITS_WHATEVER: "3", PORT: "x" })
      )
      assert.instanceOf(error, ConfigInvalid)
      const [port, ...limits] = error.problems
      assert.match(port ?? "", /^PORT: /)
      assert.deepStrictEqual(limits.slice(0, 2), [
        "LIMITS_SENDS_PER_SEC: no setting has this name; the most similar name is LIMITS_SENDS_PER_SECOND",
        "LIMITS_OTP_ATTEMPS: no setting has this name; the most similar name is LIMITS_OTP_ATTEMPTS"
      ])
      assert.match(limits[2] ?? "", /^LIMITS_WHATEVER: no setting has this name; the most similar name is LIMITS_/)
    }))
})

describe("the public address", () => {
  const url = (changes: Parameters<typeof Config.layerTest>[0]) =>
    Effect.runSync(Effect.provide(Effect.map(Config, publicUrl), Config.layerTest(changes)))

  it("is PUBLIC_URL, or made from HOST and PORT", () => {
    assert.strictEqual(url({ PUBLIC_URL: "https://parley.example" }), "https://parley.example")
    assert.strictEqual(url({ PORT: 8080 }), "http://127.0.0.1:8080")
    assert.strictEqual(url({ HOST: "0.0.0.0" }), "http://localhost:3000")
    assert.strictEqual(url({ HOST: "::" }), "http://localhost:3000")
    assert.strictEqual(url({ HOST: "2001:db8::1" }), "http://[2001:db8::1]:3000")
  })
})
