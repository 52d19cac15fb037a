import { Accounts } from "#domain/agents/Accounts"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { codeTo, mailsTo, Neighbours, newAccount, other } from "../registration/Module.ts"
import { layerWeb, refused, Web } from "../registration/Web.ts"
import { layerPgliteTest } from "../support/Databases.ts"

layer(layerWeb(layerPgliteTest, { LIMITS_ROTATE_PER_HOUR: 1_000 }))("agents over HTTP", (it) => {
  it.effect("GET /v1/agents/me returns the whole own record (J 35)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const account = yield* newAccount({ displayName: "Ada" })
      const me = yield* web.send("GET", "/v1/agents/me", { key: account.apiKey })
      const { created_at, updated_at, ...rest } = me.body
      assert.deepStrictEqual(rest, {
        id: account.id,
        handle: account.handle,
        email: account.email,
        email_masked: "a****@example.com",
        display_name: "Ada",
        description: null,
        avatar_url: null,
        skills: [],
        status: "active",
        paused_by_owner: "none",
        settings: {
          inbox_mode: "open",
          group_invite_policy: "open",
          budget: { per_conversation_per_day: null, per_day: null }
        }
      })
      for (const time of [created_at, updated_at])
        assert.match(String(time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    }))

  it.effect("a card has neither id nor e-mail, under any spelling of the handle (J 7, 36)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const [reader, shown] = [yield* newAccount(), yield* newAccount()]
      for (const spelling of [shown.handle, shown.handle.toUpperCase(), `@${shown.handle}`, `%40${shown.handle}`]) {
        const card = yield* web.send("GET", `/v1/agents/${spelling}`, { key: reader.apiKey })
        assert.strictEqual(card.status, 200)
        assert.deepStrictEqual(Object.keys(card.body).sort(), [
          "avatar_url",
          "created_at",
          "description",
          "display_name",
          "handle",
          "skills",
          "status"
        ])
        assert.strictEqual(card.body["display_name"], shown.handle)
      }
    }))

  it.effect("an unknown and a deleted handle both have no card", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const [reader, gone] = [yield* newAccount(), yield* newAccount()]
      yield* (yield* Accounts).remove(gone.id)
      const answers = [
        yield* web.send("GET", `/v1/agents/${gone.handle}`, { key: reader.apiKey }),
        yield* web.send("GET", "/v1/agents/nobody-here", { key: reader.apiKey })
      ]
      for (const answer of answers) refused(answer, 404, "AGENT_NOT_FOUND")
      assert.strictEqual(answers[0]?.text, answers[1]?.text)
    }))

  it.effect("a suspended agent's card says so", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const sql = yield* SqlClient.SqlClient
      const [reader, shown] = [yield* newAccount(), yield* newAccount()]
      yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${shown.id}`
      const card = yield* web.send("GET", `/v1/agents/${shown.handle}`, { key: reader.apiKey })
      assert.deepStrictEqual([card.status, card.body["status"]], [200, "suspended"])
    }))

  it.effect("an update changes what it names, and is seen at once (J 38, 39)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const account = yield* newAccount({ displayName: "Old" })
      const reader = yield* newAccount()
      const path = `/v1/agents/${account.handle}`
      const patch = (body: unknown) => web.send("PATCH", path, { key: account.apiKey, body })
      yield* web.send("GET", path, { key: reader.apiKey })
      yield* TestClock.adjust(5)
      const named = yield* patch({
        display_name: "New",
        settings: { inbox_mode: "contacts_only", discoverable: false }
      })
      assert.deepInclude(named.body, {
        display_name: "New",
        description: null,
        settings: {
          inbox_mode: "contacts_only",
          group_invite_policy: "open",
          budget: { per_conversation_per_day: null, per_day: null }
        }
      })
      assert.isAbove(Date.parse(String(named.body["updated_at"])), Date.parse(String(named.body["created_at"])))
      assert.strictEqual((yield* web.send("GET", path, { key: reader.apiKey })).body["display_name"], "New")
      assert.deepInclude((yield* patch({ description: "Cooks." })).body, { display_name: "New", description: "Cooks." })
      for (const empty of ["", null]) {
        yield* patch({ display_name: "Name", description: "Text" })
        assert.deepInclude((yield* patch({ display_name: empty, description: empty })).body, {
          display_name: account.handle,
          description: null
        })
      }
      assert.deepInclude((yield* patch({ status: "suspended", handle: "x", email: "x@example.com" })).body, {
        status: "active",
        handle: account.handle,
        email: account.email
      })
      for (
        const bad of [
          { display_name: "x".repeat(101) },
          { display_name: "a\0b" },
          { display_name: "\ud800" },
          { description: "x".repeat(501) },
          { settings: { inbox_mode: "closed" } },
          { settings: 1 }
        ]
      ) refused(yield* patch(bad), 400, "VALIDATION_ERROR")
    }))

  it.effect("a change of another's account is refused with 403, whether the account exists or not", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const [one, two] = [yield* newAccount(), yield* newAccount()]
      for (const handle of [two.handle, "nobody-here"]) {
        const path = `/v1/agents/${handle}`
        const key = one.apiKey
        refused(yield* web.send("PATCH", path, { key, body: { display_name: "Mine" } }), 403, "FORBIDDEN")
        refused(yield* web.send("DELETE", path, { key }), 403, "FORBIDDEN")
        refused(yield* web.send("POST", `${path}/rotate-key`, { key }), 403, "FORBIDDEN")
        const body = { pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" }
        refused(yield* web.send("POST", `${path}/rotate-key/verify`, { key, body }), 403, "FORBIDDEN")
      }
      assert.strictEqual((yield* web.send("GET", "/v1/agents/me", { key: two.apiKey })).status, 200)
    }))

  it.effect("a rotation replaces the key (J 40)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const account = yield* newAccount()
      const path = `/v1/agents/@${account.handle.toUpperCase()}/rotate-key`
      const key = account.apiKey
      const begun = yield* web.send("POST", path, { key })
      assert.deepStrictEqual([begun.status, Object.keys(begun.body).sort()], [200, ["message", "pending_id"]])
      refused(yield* web.send("POST", path, { key }), 429, "OTP_COOLDOWN")
      const code = yield* codeTo(account.email)
      const answer = (tried: string) =>
        web.send("POST", `${path}/verify`, { key, body: { pending_id: begun.body["pending_id"], code: tried } })
      assert.deepStrictEqual(refused(yield* answer(other(code)), 400, "INVALID_CODE")["details"], {
        attempts_remaining: 4
      })
      const issued = yield* answer(code)
      assert.deepStrictEqual(Object.keys(issued.body).sort(), ["api_key", "handle"])
      refused(yield* answer(code), 401, "UNAUTHORIZED")
      const renewed = yield* web.send("GET", "/v1/agents/me", { key: String(issued.body["api_key"]) })
      assert.strictEqual(renewed.body["id"], account.id)
    }))

  it.effect("a caller that has the code of another agent's rotation is refused with 403", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const [owner, thief] = [yield* newAccount(), yield* newAccount()]
      const begun = yield* web.send("POST", `/v1/agents/${owner.handle}/rotate-key`, { key: owner.apiKey })
      const body = { pending_id: begun.body["pending_id"], code: yield* codeTo(owner.email) }
      const verify = ({ apiKey, handle }: typeof owner) =>
        web.send("POST", `/v1/agents/${handle}/rotate-key/verify`, { key: apiKey, body })
      refused(yield* verify(thief), 403, "FORBIDDEN")
      assert.strictEqual((yield* verify(owner)).status, 200)
    }))

  it.effect("a deletion ends the account, and is confirmed (J 45)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const neighbours = yield* Neighbours
      const [account, reader] = [yield* newAccount(), yield* newAccount()]
      const path = `/v1/agents/${account.handle}`
      yield* web.send("GET", path, { key: reader.apiKey })
      const confirmed = yield* web.send("DELETE", path, { key: account.apiKey })
      assert.deepStrictEqual([confirmed.status, confirmed.body["ok"]], [200, true])
      assert.isString(confirmed.body["message"])
      refused(yield* web.send("GET", "/v1/agents/me", { key: account.apiKey }), 401, "UNAUTHORIZED")
      refused(yield* web.send("DELETE", path, { key: account.apiKey }), 401, "UNAUTHORIZED")
      refused(yield* web.send("GET", path, { key: reader.apiKey }), 404, "AGENT_NOT_FOUND")
      refused(
        yield* web.send("POST", "/v1/register", { body: { email: "next@example.com", handle: account.handle } }),
        409,
        "HANDLE_TAKEN"
      )
      assert.strictEqual((yield* mailsTo("next@example.com")).length, 0)
      assert.include(neighbours.deleted, account.id)
    }))

  it.effect("a mailbox of one character is masked too", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const account = yield* newAccount({ email: "x@example.com" })
      const me = yield* web.send("GET", "/v1/agents/me", { key: account.apiKey })
      assert.strictEqual(me.body["email_masked"], "x****@example.com")
    }))
})

layer(layerWeb(layerPgliteTest, { LIMITS_CARDS_PER_MINUTE: 2 }))("limits of agents over HTTP", (it) => {
  it.effect("cards are counted per agent and minute (wire.md G.16)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const [one, two] = [yield* newAccount(), yield* newAccount()]
      const card = (key: string) => web.send("GET", `/v1/agents/${two.handle}`, { key })
      for (let i = 0; i < 2; i++) assert.strictEqual((yield* card(one.apiKey)).status, 200)
      const answer = yield* card(one.apiKey)
      refused(answer, 429, "RATE_LIMITED")
      assert.strictEqual(answer.headers.get("retry-after"), "60")
      assert.strictEqual((yield* card(two.apiKey)).status, 200)
      assert.strictEqual((yield* web.send("GET", "/v1/agents/me", { key: one.apiKey })).status, 200)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual((yield* card(one.apiKey)).status, 200)
    }))

  it.effect("rotations are counted per IP address: three begun an hour, ten tried in ten minutes (wire.md G.15)", () =>
    Effect.gen(function*() {
      const web = yield* Web
      const ip = "203.0.113.9"
      for (let i = 0; i < 4; i++) {
        const { apiKey: key, handle } = yield* newAccount()
        const answer = yield* web.send("POST", `/v1/agents/${handle}/rotate-key`, { key, ip })
        if (i < 3) assert.strictEqual(answer.status, 200)
        else assert.strictEqual((refused(answer, 429, "RATE_LIMITED")["details"] as { limit: number }).limit, 3)
      }
      const { apiKey: key, handle } = yield* newAccount()
      const verify = web.send("POST", `/v1/agents/${handle}/rotate-key/verify`, {
        key,
        ip,
        body: { pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" }
      })
      for (let i = 0; i < 10; i++) refused(yield* verify, 400, "EXPIRED")
      refused(yield* verify, 429, "RATE_LIMITED")
    }))
})
