import { Accounts } from "#domain/agents/Accounts"
import { Auth } from "#domain/auth/Auth"
import { Registration } from "#domain/registration/Registration"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { codeTo, newAccount } from "../registration/Module.ts"
import { layerWeb, refused, Web, type WebRequest } from "../registration/Web.ts"
import { away, back } from "../support/Away.ts"
import { layerPgliteTest } from "../support/Databases.ts"

layer(layerWeb(layerPgliteTest))("a key", (it) => {
  it.effect("is taken from the Authorization header, whatever the case of the scheme", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const { apiKey, handle } = yield* newAccount()
      for (const authorization of [`Bearer ${apiKey}`, `bearer ${apiKey}`, `BEARER   ${apiKey}`]) {
        const answer = yield* web.send("GET", "/v1/agents/me", { authorization })
        assert.deepStrictEqual([answer.status, answer.body["handle"]], [200, handle])
      }
    }))

  it.effect("is refused in one way if it is missing, malformed, unknown, replaced or of a deleted account (J 4)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const registration = yield* Registration
      const [alive, rotated, deleted] = [yield* newAccount(), yield* newAccount(), yield* newAccount()]
      for (const { apiKey } of [rotated, deleted]) {
        assert.strictEqual((yield* web.send("GET", "/v1/agents/me", { key: apiKey })).status, 200)
      }
      const pendingId = yield* registration.rotate(rotated)
      yield* registration.completeRotation({ pendingId, code: yield* codeTo(rotated.email) }, rotated.id)
      yield* (yield* Accounts).remove(deleted.id)
      const requests: ReadonlyArray<WebRequest> = [
        {},
        { authorization: "" },
        { authorization: "Bearer" },
        { authorization: "Bearer " },
        { authorization: alive.apiKey },
        { authorization: `Basic ${alive.apiKey}` },
        { authorization: `Bearer: ${alive.apiKey}` },
        { authorization: `Bearer ${alive.apiKey} x` },
        { authorization: `Bearer ${alive.apiKey}, Bearer ${alive.apiKey}` },
        { key: "ac_" },
        { key: alive.apiKey.slice(0, -1) },
        { key: `${alive.apiKey}A` },
        { key: alive.apiKey.toLowerCase().padEnd(46, "a") },
        { key: `ac_${"A".repeat(43)}` },
        { key: alive.id },
        { key: rotated.apiKey },
        { key: deleted.apiKey }
      ]
      const texts = new Set<string>()
      for (const request of requests) {
        for (const path of ["/v1/agents/me", `/v1/agents/${alive.handle}`]) {
          const answer = yield* web.send("GET", path, request)
          refused(answer, 401, "UNAUTHORIZED")
          assert.strictEqual(answer.headers.get("www-authenticate"), "Bearer")
          texts.add(answer.text)
        }
      }
      assert.strictEqual(texts.size, 1)
      assert.strictEqual((yield* web.send("GET", "/v1/agents/me", { key: alive.apiKey })).status, 200)
    }))

  it.effect("is ignored in a query string", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const { apiKey } = yield* newAccount()
      for (const name of ["api_key", "key", "token", "access_token", "authorization"]) {
        refused(yield* web.send("GET", `/v1/agents/me?${name}=${apiKey}`), 401, "UNAUTHORIZED")
      }
    }))

  it.effect("opens only its own status if its account is suspended", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const sql = yield* SqlClient.SqlClient
      const { apiKey: key, handle, id } = yield* newAccount()
      assert.strictEqual((yield* web.send("GET", `/v1/agents/${handle}`, { key })).status, 200)
      yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${id}`
      yield* TestClock.adjust("1 second")
      const me = yield* web.send("GET", "/v1/agents/me", { key })
      assert.deepStrictEqual([me.status, me.body["status"]], [200, "suspended"])
      for (
        const [method, path] of [
          ["GET", `/v1/agents/${handle}`],
          ["PATCH", `/v1/agents/${handle}`],
          ["DELETE", `/v1/agents/${handle}`],
          ["POST", `/v1/agents/${handle}/rotate-key`],
          ["POST", `/v1/agents/${handle}/rotate-key/verify`]
        ] as const
      ) {
        refused(
          yield* web.send(method, path, { key, ...(method === "GET" ? {} : { body: {} }) }),
          403,
          "AGENT_SUSPENDED"
        )
      }
      assert.strictEqual((yield* (yield* Auth).authenticate(key)).status, "suspended")
    }))

  it.effect("works if its account is restricted", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const sql = yield* SqlClient.SqlClient
      const { apiKey: key, handle, id } = yield* newAccount()
      yield* sql`UPDATE agents SET restricted_until = ${Number.MAX_SAFE_INTEGER} WHERE id = ${id}`
      const card = yield* web.send("GET", `/v1/agents/${handle}`, { key })
      assert.deepStrictEqual([card.status, card.body["status"]], [200, "restricted"])
    }))

  it.effect("gets 503, and never 401, if it cannot be checked", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const { apiKey: key } = yield* newAccount()
      yield* TestClock.adjust("1 second")
      yield* away("agents")
      const answer = yield* web.send("GET", "/v1/agents/me", { key })
      yield* back("agents")
      refused(answer, 503, "UNAVAILABLE")
      assert.strictEqual(answer.headers.get("retry-after"), "2")
      assert.strictEqual((yield* web.send("GET", "/v1/agents/me", { key })).status, 200)
    }))
})

layer(layerWeb(layerPgliteTest, { LIMITS_REQUESTS_PER_MINUTE: 3, LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: 4 }))(
  "the general budget",
  (it) => {
    const budget = (headers: Headers) => ["limit", "remaining", "reset"].map((name) => headers.get(`ratelimit-${name}`))

    it.effect("of an agent counts every request with its key, and every answer shows the rest", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const [one, two] = [yield* newAccount(), yield* newAccount()]
        const key = one.apiKey
        assert.deepStrictEqual(budget((yield* web.send("GET", "/v1/agents/me", { key })).headers), ["3", "2", "60"])
        yield* TestClock.adjust("10 seconds")
        const missing = yield* web.send("GET", "/v1/agents/nobody-here", { key })
        assert.deepStrictEqual([missing.status, ...budget(missing.headers)], [404, "3", "1", "50"])
        const bad = yield* web.send("PATCH", `/v1/agents/${one.handle}`, { key, body: { display_name: 7 } })
        assert.deepStrictEqual([bad.status, ...budget(bad.headers)], [400, "3", "0", "50"])
        const answer = yield* web.send("GET", "/v1/agents/me", { key })
        assert.deepStrictEqual(refused(answer, 429, "RATE_LIMITED")["details"], {
          retry_after_ms: 50_000,
          limit: 3,
          window: "minute"
        })
        assert.strictEqual(answer.headers.get("retry-after"), "50")
        assert.deepStrictEqual(budget(answer.headers), ["3", "0", "50"])
        assert.strictEqual((yield* web.send("GET", "/v1/agents/me", { key: two.apiKey })).status, 200)
        yield* TestClock.adjust("50 seconds")
        assert.strictEqual((yield* web.send("GET", "/v1/agents/me", { key })).status, 200)
      }))

    it.effect("of an address counts requests without a key", () =>
      Effect.gen(function*() {
        const web = yield* Web
        const verify = (ip: string) =>
          web.send("POST", "/v1/register/verify", { ip, body: { pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" } })
        for (const remaining of ["3", "2", "1", "0"]) {
          const answer = yield* verify("198.51.100.7")
          refused(answer, 400, "EXPIRED")
          assert.deepStrictEqual(budget(answer.headers), ["4", remaining, "60"])
        }
        refused(yield* verify("198.51.100.7"), 429, "RATE_LIMITED")
        refused(yield* verify("198.51.100.8"), 400, "EXPIRED")
      }))
  }
)
