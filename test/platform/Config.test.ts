import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Redacted } from "effect"
import { Config, ConfigInvalid, settings } from "../../src/platform/Config.ts"
import { publicUrl } from "../../src/platform/PublicUrl.ts"

const loaded = (env: Record<string, string>) =>
  Config.load.pipe(Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromUnknown(env)))

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

  it.effect("takes what is set, and an empty variable for one that is not", () =>
    Effect.gen(function*() {
      const config = yield* loaded({
        PORT: " 8080 ",
        HOST: "",
        PUBLIC_URL: "https://parley.example/",
        ECHO_OWN: "off",
        SMTP_URL: "smtp://user:secret@mail.example:587"
      })
      assert.deepInclude(config, { PORT: 8080, HOST: "127.0.0.1", PUBLIC_URL: "https://parley.example", ECHO_OWN: "off" })
      assert.strictEqual(config.SMTP_URL === undefined ? "" : Redacted.value(config.SMTP_URL), "smtp://user:secret@mail.example:587")
      assert.notInclude(`${JSON.stringify(config)} ${String(config.SMTP_URL)}`, "secret")
    }))

  it.effect("tells all problems at once, and no secret", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(loaded({
        PORT: "70000",
        PUBLIC_URL: "parley.example",
        ECHO_OWN: "maybe",
        LIMITS_OTP_ATTEMPTS: "0",
        LIMITS_OTP_TTL_SECONDS: "1.5",
        LOG_LEVEL: "loud",
        DATABASE_URL: "mysql://user:s3cret@db",
        SMTP_URL: "mail.example?password=s3cret"
      }))
      assert.instanceOf(error, ConfigInvalid)
      const names = error.problems.map((problem) => problem.split(":")[0])
      assert.sameMembers(names, [
        "PORT",
        "PUBLIC_URL",
        "ECHO_OWN",
        "LIMITS_OTP_ATTEMPTS",
        "LIMITS_OTP_TTL_SECONDS",
        "LOG_LEVEL",
        "DATABASE_URL",
        "SMTP_URL"
      ])
      assert.notInclude(error.message, "s3cret")
      assert.include(error.message, "PORT: expected a whole number from 0 to 65535, got \"70000\"")
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
