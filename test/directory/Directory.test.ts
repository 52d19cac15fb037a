import { Accounts } from "#domain/agents/Accounts"
import { CurrentCaller } from "#domain/auth/OptionalAuthorization"
import { Contacts } from "#domain/contacts/Contacts"
import { Directory, type Sought } from "#domain/directory/Directory"
import { DirectoryBudget } from "#domain/directory/DirectoryBudget"
import { COUNT, COUNT_TAG, SEARCH, SEARCH_TAG } from "#domain/directory/DirectoryRepo"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateLimited } from "#infrastructure/wire/WireError"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { eachDatabase, layerPostgresTest } from "../support/Databases.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

const handlesOf = (page: { readonly items: ReadonlyArray<{ readonly handle: string }> }) =>
  page.items.map(({ handle }) => handle)

/** A search by the beginning of a handle, by a tag, or by both. */
const by = (prefix: string | null, tag: string | null = null): Sought => ({ prefix, tag })

eachDatabase((database) => {
  layer(layerModules(database))((it) => {
    it.effect("a prefix is literal, a range of handles by code unit, without the suspended and the deleted", () =>
      Effect.gen(function*() {
        const directory = yield* Directory
        const contacts = yield* Contacts
        const sql = yield* SqlClient.SqlClient
        const names = ["lin", "lin-a", "lin0", "lina", "linz", "lio", "lim", "li-n", "xlin"]
        const made = new Map<string, string>()
        for (const name of names) made.set(name, (yield* newAgent(name)).id)
        const suspended = yield* newAgent("lin-suspended")
        const restricted = yield* newAgent("lin-restricted")
        const deleted = yield* newAgent("lin-deleted")
        yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${suspended.id}`
        yield* sql`UPDATE agents SET restricted_until = ${Number.MAX_SAFE_INTEGER} WHERE id = ${restricted.id}`
        yield* (yield* Accounts).remove(deleted.id)
        const found = yield* directory.search(null, by("lin"), {})
        assert.deepStrictEqual(handlesOf(found), ["lin", "lin-a", "lin-restricted", "lin0", "lina", "linz"])
        assert.deepInclude(found, { total: 6, limit: 20, offset: 0, nextCursor: null })
        assert.isFalse(found.items.some((item) => "in_contacts" in item))
        for (const prefix of ["li%", "li_", "l%n", "%%", "__", "lin\\", "LIN", "lin ", "lín", "zz", "lin'--"]) {
          assert.deepInclude(yield* directory.search(null, by(prefix), {}), { items: [], total: 0 }, prefix)
        }
        const me = made.get("lio")!
        yield* contacts.add(me, "lina", null)
        assert.deepStrictEqual(
          (yield* directory.search(me, by("lin"), {})).items.filter((item) => item.in_contacts === true).map((
            { handle }
          ) => handle),
          ["lina"]
        )
      }))

    it.effect("a tag is exact, alone or with a prefix, in the order of handles", () =>
      Effect.gen(function*() {
        const accounts = yield* Accounts
        const directory = yield* Directory
        const sql = yield* SqlClient.SqlClient
        const made = new Map<string, string>()
        const skilled = Effect.fnUntraced(function*(handle: string, ...tags: ReadonlyArray<string>) {
          const { id } = made.has(handle) ? { id: made.get(handle) ?? "" } : yield* newAgent(handle)
          made.set(handle, id)
          yield* accounts.update(id, {}, tags.length === 0 ? [] : [{ id: "a", name: "A", description: "about", tags }])
        })
        yield* skilled("tag-b", "Go", "été", "c++")
        yield* skilled("tag-a0", "Go")
        yield* skilled("tag-a-", "go")
        yield* skilled("tagger", "Go", "Golang")
        yield* skilled("tag-away", "Go")
        yield* skilled("tag-late", "Go")
        yield* skilled("tag-gone", "Go")
        yield* skilled("tag-held", "Go")
        yield* skilled("tag-away")
        yield* skilled("tag-late", "Rust")
        yield* accounts.remove(made.get("tag-gone")!)
        yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${made.get("tag-held")!}`
        const found = Effect.fnUntraced(function*(prefix: string | null, tag: string) {
          const page = yield* directory.search(null, by(prefix, tag), {})
          assert.strictEqual(page.total, page.items.length)
          return handlesOf(page)
        })
        assert.deepStrictEqual(yield* found(null, "Go"), ["tag-a0", "tag-b", "tagger"])
        assert.deepStrictEqual(yield* found("tag-", "Go"), ["tag-a0", "tag-b"])
        assert.deepStrictEqual(yield* found("zz", "Go"), [])
        assert.deepStrictEqual(yield* found("g%", "Go"), [])
        assert.deepStrictEqual(yield* found(null, "go"), ["tag-a-"])
        assert.deepStrictEqual(yield* found(null, "Rust"), ["tag-late"])
        assert.deepStrictEqual(yield* found(null, "été"), ["tag-b"])
        for (const tag of ["G", "Go ", "G%", "G_", "GO", "Gol", "' OR ''='"])
          assert.deepStrictEqual(yield* found(null, tag), [], tag)
        assert.deepStrictEqual((yield* directory.search(null, by("tag-b"), {})).items[0]?.tags, ["Go", "c++", "été"])
        const first = yield* directory.search(null, by(null, "Go"), { limit: 2 })
        assert.deepStrictEqual([...handlesOf(first), first.total], ["tag-a0", "tag-b", 3])
        const rest = yield* directory.search(null, by(null, "Go"), { limit: 2, cursor: first.nextCursor ?? "" })
        assert.deepStrictEqual([...handlesOf(rest), rest.nextCursor], ["tagger", null])
        assert.deepStrictEqual(handlesOf(yield* directory.search(null, by(null, "Go"), { limit: 2, offset: 1 })), [
          "tag-b",
          "tagger"
        ])
        assert.deepStrictEqual(yield* sql`SELECT tag FROM agent_tags WHERE handle IN ('tag-gone', 'tag-away')`, [])
      }))

    it.effect("pages by cursor and by offset agree, also while agents come", () =>
      Effect.gen(function*() {
        const directory = yield* Directory
        const stay = ["b", "d", "f", "h", "j"].map((letter) => `many-${letter}`)
        for (const handle of stay) yield* newAgent(handle)
        const seen: Array<string> = []
        let query: { readonly cursor?: string } = {}
        for (const comes of ["many-a", "many-z"]) {
          const page = yield* directory.search(null, by("many-"), { limit: 2, ...query })
          seen.push(...handlesOf(page))
          if (page.nextCursor === null) assert.fail("too early")
          query = { cursor: page.nextCursor }
          yield* newAgent(comes)
        }
        const last = yield* directory.search(null, by("many-"), { limit: 2, ...query })
        seen.push(...handlesOf(last))
        assert.deepStrictEqual(seen.filter((handle) => stay.includes(handle)), stay)
        assert.deepStrictEqual(seen, [...new Set(seen)].sort())
        assert.deepStrictEqual(
          handlesOf(yield* directory.search(null, by("many-"), { limit: 3, offset: 2 })),
          ["many-d", "many-f", "many-h"]
        )
        assert.strictEqual((yield* directory.search(null, by("many-"), { limit: 1_000 })).limit, 50)
        assert.strictEqual(
          (yield* Effect.flip(directory.search(null, by("ma"), { cursor: "e30", offset: 0 })))._tag,
          "ValidationFailed"
        )
        for (const cursor of ["x", "e30", Buffer.from(`{"handle":"a\\u0000"}`).toString("base64url")]) {
          assert.strictEqual(
            (yield* Effect.flip(directory.search(null, by("ma"), { cursor })))._tag,
            "ValidationFailed"
          )
        }
      }))
  })
})

describe.skipIf(!isInstalled(18))("100,000 agents, PostgreSQL 18", () => {
  layer(layerModules(layerPostgresTest(18)))((it) => {
    it.effect("are searched through the index, whatever the planner may choose", () =>
      Effect.gen(function*() {
        const directory = yield* Directory
        const sql = yield* SqlClient.SqlClient
        yield* sql`
          INSERT INTO agents (id, handle, email, created_at, updated_at)
          SELECT 'agt_' || i, 'bulk-' || lpad(i::text, 6, '0'), i || '@example.com', 0, 0
          FROM generate_series(0, 99999) i`
        // One tag that all have, and one for each ten.
        yield* sql`
          INSERT INTO agent_tags (tag, handle, agent_id)
          SELECT tag, 'bulk-' || lpad(i::text, 6, '0'), 'agt_' || i FROM generate_series(0, 99999) i, unnest(ARRAY['common', 'tag' || i / 10]) tag`
        yield* sql`VACUUM ANALYZE agents`
        yield* sql`VACUUM ANALYZE agent_tags`
        const plans = yield* sql.withTransaction(Effect.gen(function*() {
          // The planner as it comes, and a plan that must do for every prefix.
          yield* sql`SET LOCAL enable_seqscan = on`
          yield* sql.unsafe(`PREPARE search_plan(text, text, text, bigint, bigint) AS ${SEARCH}`)
          yield* sql.unsafe(`PREPARE count_plan(text, text) AS ${COUNT}`)
          yield* sql.unsafe(`PREPARE search_tag_plan(text, text, text, bigint, bigint, text) AS ${SEARCH_TAG}`)
          yield* sql.unsafe(`PREPARE count_tag_plan(text, text, text) AS ${COUNT_TAG}`)
          const explained: Array<string> = []
          for (const mode of ["force_custom_plan", "force_generic_plan"]) {
            yield* sql.unsafe(`SET LOCAL plan_cache_mode = ${mode}`)
            for (
              const statement of [
                "search_plan('bulk-0420', 'bulk-0421', 'agt_1', 0, 21)",
                "search_plan('bulk-', 'bulk.', NULL, 10000, 51)",
                "search_plan('bulk-099999 ', 'bulk.', 'agt_1', 0, 51)",
                "count_plan('bulk-', 'bulk.')",
                "search_tag_plan('', '{', 'agt_1', 0, 21, 'common')",
                "search_tag_plan('', '{', NULL, 10000, 51, 'common')",
                "search_tag_plan('', '{', NULL, 0, 51, 'tag420')",
                "search_tag_plan('bulk-042001 ', 'bulk.', 'agt_1', 0, 51, 'common')",
                "count_tag_plan('', '{', 'common')",
                "count_tag_plan('', '{', 'tag420')"
              ]
            ) {
              const rows = yield* sql.unsafe(
                `EXPLAIN ${statement.startsWith("count") ? "" : "(ANALYZE, TIMING OFF) "}EXECUTE ${statement}`
              ).values
              explained.push(rows.map(([line]) => String(line)).join("\n"))
            }
          }
          return explained
        }))
        assert.strictEqual(plans.length, 20)
        for (const [index, plan] of plans.entries()) {
          // Of each mode, the first four search all agents.
          assert.match(
            plan,
            index % 10 < 4
              ? /Index (Only )?Scan using agents_listed on agents/
              : /Index (Only )?Scan using agent_tags_pkey/,
            plan
          )
          assert.notMatch(plan, /Seq Scan|Sort|Hash|Merge/, plan)
        }
        const found = yield* directory.search(null, by("bulk-0420"), { limit: 2 })
        assert.deepStrictEqual(handlesOf(found), ["bulk-042000", "bulk-042001"])
        assert.strictEqual(found.total, 100)
        assert.deepStrictEqual(found.items.map(({ tags }) => tags), [["common", "tag4200"], ["common", "tag4200"]])
        assert.strictEqual((yield* directory.search(null, by("bulk-"), {})).total, 10_000)
        assert.strictEqual((yield* directory.search(null, by(null, "common"), {})).total, 10_000)
      }))
  })
})

describe("the directory's limits", () => {
  const request = HttpServerRequest.fromWeb(new Request("http://127.0.0.1/v1/directory"))

  layer(DirectoryBudget.layer.pipe(
    Layer.provideMerge(RateLimits.layerMemory),
    Layer.provideMerge(Config.layerTest())
  ))((it) => {
    /** Calls whose query is not even read: they count all the same. */
    const call = Effect.fnUntraced(function*(id: string) {
      const budget = yield* DirectoryBudget
      // The rest of what a route is given is not looked at.
      const judged = budget(Effect.succeed(HttpServerResponse.empty()), {} as never) as Effect.Effect<
        unknown,
        RateLimited,
        CurrentCaller | HttpServerRequest.HttpServerRequest
      >
      return yield* Effect.match(
        judged.pipe(
          Effect.provideService(CurrentCaller, { agent: { id, handle: id, displayName: null, status: "active" } }),
          Effect.provideService(HttpServerRequest.HttpServerRequest, request)
        ),
        { onSuccess: () => undefined, onFailure: (error) => error }
      )
    })

    it.effect("an agent has 60 a minute and 1,000 in 24 hours, and is told which of them is used up", () =>
      Effect.gen(function*() {
        let accepted = 0
        for (let minute = 0; accepted < 1_000; minute++) {
          for (let i = 0; i < 60 && accepted < 1_000; i++) {
            assert.isUndefined(yield* call("agt_a"))
            accepted++
          }
          if (minute === 0) {
            const refused = yield* call("agt_a")
            assert.include(refused?.message, "per-minute")
            assert.deepStrictEqual(refused?.details, { retry_after_ms: 60_000, limit: 60, window: "minute" })
            assert.isUndefined(yield* call("agt_b"), "others are not concerned")
          }
          if (accepted < 1_000) yield* TestClock.adjust(60_000)
        }
        // 16 full minutes and 40 more.
        const refused = yield* call("agt_a")
        assert.include(refused?.message, "24-hour")
        assert.deepStrictEqual(refused?.details, {
          retry_after_ms: 86_400_000 - 16 * 60_000,
          limit: 1_000,
          window: "day"
        })
        yield* TestClock.adjust(86_400_000 - 16 * 60_000 - 1)
        assert.include((yield* call("agt_a"))?.message, "24-hour")
        yield* TestClock.adjust(1)
        assert.isUndefined(yield* call("agt_a"))
      }))
  })
})
