import { Accounts } from "#domain/agents/Accounts"
import { Contacts } from "#domain/contacts/Contacts"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { CurrentAttempt } from "#domain/idempotency/IdempotentIds"
import type { WebhookEvent } from "#domain/messages/Outbox"
import { Mutes } from "#domain/mutes/Mutes"
import { Presences } from "#domain/presence/Presences"
import { type Post, WebhookClient } from "#domain/webhooks/WebhookClient"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { ExchangeFailed } from "#infrastructure/http/GuardedClient"
import { LookupFailed, NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { settings } from "#infrastructure/platform/Config"
import { assert, describe, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { createHmac } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { eachDatabase, layerPostgresTest } from "../support/Databases.ts"
import { chanceFor, eventually, eventuallyEffect } from "../support/Eventually.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const RETRY_MS = settings.WEBHOOK_RETRY_SECONDS.fallback.map((seconds) => seconds * 1_000)

const PUBLIC = "93.184.216.34"

/** The internet as a test has it: names, and what answers at each URL. */
class Internet extends Context.Service<Internet, {
  readonly names: Map<string, ReadonlyArray<string>>
  readonly lookups: Array<string>
  readonly posts: Array<Post & { readonly at: number }>
  /** 200 unless told otherwise; 0 is no answer at all. */
  readonly answers: Map<string, number | "never">
}>()("parley/test/Internet") {
  static readonly layer = Layer.sync(Internet, () => ({
    names: new Map(),
    lookups: [],
    posts: [],
    answers: new Map()
  }))
}

const internet = Layer.mergeAll(
  Layer.effect(
    NameLookup,
    Effect.map(Internet, ({ lookups, names }) => (name: string) =>
      Effect.suspend(() => {
        lookups.push(name)
        const found = names.get(name)
        return found === undefined
          ? Effect.fail(new LookupFailed({ reason: `${name} is unknown` }))
          : Effect.succeed(found)
      }))
  ),
  Layer.effect(
    WebhookClient,
    Effect.map(Internet, ({ answers, posts }) => (post: Post) =>
      Effect.gen(function*() {
        posts.push({ ...post, at: yield* Clock.currentTimeMillis })
        const answer = answers.get(post.url.href) ?? 200
        if (answer === "never") return yield* Effect.never
        return answer === 0 ? yield* new ExchangeFailed({ reason: "connection refused" }) : answer
      }))
  )
).pipe(Layer.provideMerge(Internet.layer))

const parse = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>

const soon = <A>(what: string, ask: () => A | undefined) => Effect.promise(() => eventually(what, ask))

/** What would have happened by now if it were going to. */
const aMoment = Effect.promise(() => chanceFor("another post", 30))

/** Asserts that storage comes to show this. */
const shows = Effect.fnUntraced(function*<A, E, R>(ask: Effect.Effect<A, E, R>, wanted: A) {
  let found = yield* ask
  yield* eventuallyEffect(
    () => `${JSON.stringify(wanted)} instead of ${JSON.stringify(found)}`,
    Effect.map(ask, (shown) => isDeepStrictEqual(found = shown, wanted) || undefined)
  )
})

/**
 * Moves the clock until there is an answer. The steps are not counted: on a busy machine a statement of a job takes
 * several of them, and the pause of the job begins only after it.
 */
const inTime = <A>(what: string, ask: () => A | undefined, step: number) =>
  eventuallyEffect(
    () => what,
    Effect.gen(function*() {
      const answer = ask()
      if (answer === undefined) yield* TestClock.adjust(step)
      return answer
    })
  )

let serial = 0

/** Two agents that may write to each other, and a webhook of the second. */
const hooked = Effect.fnUntraced(function*(
  name: string,
  events: ReadonlyArray<WebhookEvent> = ["message.new"],
  answer: number | "never" = 200
) {
  const world = yield* Internet
  const webhooks = yield* Webhooks
  const conversations = yield* Conversations
  const [a, b] = [yield* newAgent(`${name}-a`), yield* newAgent(`${name}-b`)]
  yield* conversations.send(a, { _tag: "Direct", handle: b.handle }, draft(`${name}-1`))
  yield* conversations.send(b, { _tag: "Direct", handle: a.handle }, draft(`${name}-2`))
  const host = `${name}.example`
  world.names.set(host, [PUBLIC])
  const url = `https://${host}/hook`
  world.answers.set(url, answer)
  const { secret, webhook } = yield* webhooks.create(b.id, url, events, undefined)
  return {
    a,
    b,
    url,
    host,
    secret,
    webhook,
    posts: () => world.posts.filter((post) => post.url.href === url),
    say: Effect.suspend(() =>
      Effect.map(
        conversations.send(a, { _tag: "Direct", handle: b.handle }, draft(`${name}-say-${serial++}`)),
        ({ body }) => parse(body)
      )
    )
  }
})

/**
 * Two webhooks of an agent to targets that never answer: the first post holds the agent's only place for such targets,
 * and the other waits.
 */
const oneWaits = Effect.fnUntraced(function*(name: string) {
  const world = yield* Internet
  const webhooks = yield* Webhooks
  const { b, host, say, url, webhook } = yield* hooked(name, ["message.new"], "never")
  const another = `https://${host}/another`
  world.answers.set(another, "never")
  const made = yield* webhooks.create(b.id, another, ["message.new"], undefined)
  const both = [{ id: webhook.id, url }, { id: made.webhook.id, url: another }] as const
  const postsTo = (to: string) => world.posts.filter((post) => post.url.href === to)
  yield* say
  const first = yield* soon("the first post", () => both.find((one) => postsTo(one.url).length > 0))
  const waits = both.find((one) => one !== first)!
  yield* shows(Effect.map(rowsOf(waits.id), (rows) => rows.length), 1)
  yield* aMoment
  assert.lengthOf(postsTo(waits.url), 0)
  return { agentId: b.id, first, waits, postsTo }
})

const rowsOf = (webhookId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql<
        { attempts: number; delivered: boolean | null; due_at: number | null; failure: string | null; event: string }
      >`
      SELECT event, attempts, delivered, due_at, failure FROM webhook_deliveries WHERE webhook_id = ${webhookId} ORDER BY no`
  )

eachDatabase((database) => {
  layer(
    layerModules(database, { LIMITS_SENDS_PER_SECOND: 100_000 }).pipe(Layer.provideMerge(internet))
  )((it) => {
    it.effect("an agent gets five webhooks and no more, however many are asked for at once", () =>
      Effect.gen(function*() {
        const webhooks = yield* Webhooks
        const [a, other] = [yield* newAgent("limit-a"), yield* newAgent("limit-b")]
        const create = webhooks.create(a.id, "https://nowhere.example/", ["message.new", "message.new"], undefined)
        const outcomes = yield* Effect.all(
          Array.from(
            { length: 12 },
            () => Effect.match(create, { onSuccess: () => "made", onFailure: ({ _tag }) => _tag })
          ),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(
          outcomes.filter((outcome) => outcome === "made").length,
          5
        )
        assert.strictEqual(outcomes.filter((outcome) => outcome === "TooManyWebhooks").length, 7)
        const page = yield* webhooks.list(a.id, { limit: 2 })
        assert.deepStrictEqual([page.items.length, page.total, page.limit, page.offset], [2, 5, 2, 0])
        const rest = yield* webhooks.list(a.id, { cursor: page.nextCursor ?? "" })
        assert.strictEqual(new Set([...page.items, ...rest.items].map(({ id }) => id)).size, 5)
        assert.strictEqual(rest.nextCursor, null)
        assert.deepStrictEqual(
          (yield* webhooks.list(a.id, { offset: 2 })).items.map(({ id }) => id),
          rest.items.map(({ id }) => id)
        )
        assert.deepStrictEqual(page.items[0]?.events, ["message.new"])
        const { id } = page.items[0]!
        assert.strictEqual((yield* Effect.flip(webhooks.find(other.id, id)))._tag, "NotFound")
        assert.strictEqual((yield* Effect.flip(webhooks.remove(other.id, id)))._tag, "NotFound")
        yield* webhooks.remove(a.id, id)
        assert.strictEqual((yield* Effect.flip(webhooks.find(a.id, id)))._tag, "NotFound")
        assert.strictEqual((yield* Effect.flip(webhooks.remove(a.id, id)))._tag, "NotFound")
        const made = yield* webhooks.create(a.id, "https://nowhere.example/", ["message.read"], "a secret of sixteen")
        assert.strictEqual(made.secret, "a secret of sixteen")
        assert.strictEqual((yield* Effect.flip(create))._tag, "TooManyWebhooks")
      }))

    it.effect("another attempt at the same request meets the webhook of the first, with its secret", () =>
      Effect.gen(function*() {
        const webhooks = yield* Webhooks
        const a = yield* newAgent("again")
        const again = Effect.provideService(
          webhooks.create(a.id, "https://nowhere.example/", ["message.new"], undefined),
          CurrentAttempt,
          { agentId: a.id, key: "once", createdAt: 1_000 }
        )
        assert.deepStrictEqual(yield* again, yield* again)
        assert.strictEqual((yield* webhooks.list(a.id, {})).total, 1)
      }))

    it.effect("a deleted account gets no webhook, because its key is dead", () =>
      Effect.gen(function*() {
        const webhooks = yield* Webhooks
        const a = yield* newAgent("no-more")
        yield* (yield* Accounts).remove(a.id)
        const create = webhooks.create(a.id, "https://nowhere.example/", ["message.new"], undefined)
        assert.strictEqual((yield* Effect.flip(create))._tag, "Unauthorized")
      }))

    it.effect("pages of webhooks, oldest first, have no gap and no repeat while webhooks come and go", () =>
      Effect.gen(function*() {
        const webhooks = yield* Webhooks
        const a = yield* newAgent("paged")
        const create = Effect.gen(function*() {
          yield* leap(1)
          return (yield* webhooks.create(a.id, "https://nowhere.example/", ["message.new"], undefined)).webhook.id
        })
        const ids = [yield* create, yield* create, yield* create, yield* create]
        const first = yield* webhooks.list(a.id, { limit: 2 })
        yield* webhooks.remove(a.id, ids[0]!)
        // It takes the place of the one that went, and still comes last.
        ids.push(yield* create)
        const rest = yield* webhooks.list(a.id, { cursor: first.nextCursor ?? "" })
        assert.deepStrictEqual([...first.items, ...rest.items].map(({ id }) => id), ids)
        assert.deepStrictEqual([rest.total, rest.nextCursor], [4, null])
      }))

    it.effect("only the public internet is a target, by whatever name", () =>
      Effect.gen(function*() {
        const webhooks = yield* Webhooks
        const { names } = yield* Internet
        const a = yield* newAgent("targets")
        names.set("inner.example", ["10.1.2.3"])
        names.set("mixed.example", [PUBLIC, "192.168.0.1"])
        names.set("six.example", ["2606:2800:220:1::1", "fd00::1"])
        for (
          const url of [
            "no url",
            "ftp://public.example/",
            "//public.example/",
            "http://user:pass@public.example/",
            "http://user@public.example/",
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:93.184.216.34]/",
            "http://169.254.169.254/latest/meta-data",
            "http://localhost:3000/",
            "http://a.localhost/",
            "http://LOCALHOST./",
            "https://inner.example/",
            "https://mixed.example/",
            "https://six.example/"
          ]
        ) {
          const error = yield* Effect.flip(webhooks.create(a.id, url, ["message.new"], undefined))
          assert.strictEqual(error._tag, "ValidationFailed", url)
        }
        assert.strictEqual((yield* webhooks.list(a.id, {})).total, 0)
      }))

    it.effect("a message is posted with its delivery id, and delivered with the answer", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { a, b, host, posts, say, secret } = yield* hooked("posted")
        const message = yield* say
        const [post] = yield* soon("the post", () => posts().length > 0 ? posts() : undefined)
        assert.deepStrictEqual(post?.addresses, [PUBLIC])
        assert.match(secret, /^[0-9a-f]{64}$/)
        const body = parse(post?.body ?? "")
        assert.deepStrictEqual(Object.keys(body), ["event", "timestamp", "data"])
        assert.strictEqual(body["event"], "message.new")
        const data = body["data"] as Record<string, unknown>
        assert.deepStrictEqual([data["id"], data["sender"], data["status"]], [message["id"], a.handle, "stored"])
        assert.match(String(data["delivery_id"]), /^del_/)
        assert.match(post?.headers["X-AgentChat-Delivery"] ?? "", /^whd_[A-Za-z0-9_-]{16}$/)
        yield* Effect.promise(() =>
          eventually("the acknowledgement", () =>
            Effect.runPromise(Effect.map(deliveries.find(b.id, String(message["id"])), (found) =>
              found?.deliveredAt === null ? undefined : true)))
        )
        assert.deepStrictEqual(
          (yield* Internet).lookups.filter((name) =>
            name === host
          ).length,
          2
        )
      }))

    it.effect("a name that leads elsewhere since creation is not followed there", () =>
      Effect.gen(function*() {
        const world = yield* Internet
        const { host, posts, say, webhook } = yield* hooked("rebinds")
        world.names.set(host, ["127.0.0.1"])
        yield* say
        yield* shows(
          Effect.map(rowsOf(webhook.id), ([row]) => [row?.attempts, row?.failure]),
          [1, "leads to a private network"]
        )
        assert.deepStrictEqual(posts(), [])
        world.names.set(host, [PUBLIC])
        yield* TestClock.adjust(10_000)
        yield* soon("the post", () => posts().length > 0 ? true : undefined)
      }))

    it.effect("only what was asked for is posted: reads, the first block, nothing muted", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const mutes = yield* Mutes
        const { a, b, posts, say } = yield* hooked("kinds", ["message.read", "contact.blocked"])
        const events = () => posts().map((post) => parse(post.body))
        yield* say
        const own = parse((yield* conversations.send(b, { _tag: "Direct", handle: a.handle }, draft("kinds-own"))).body)
        yield* deliveries.read(a.id, a.handle, String(own["id"]))
        const [read] = yield* soon("the read", () => posts().length > 0 ? events() : undefined)
        assert.strictEqual(read?.["event"], "message.read")
        const { at, read_at, ...data } = (read?.["data"] ?? {}) as Record<string, unknown>
        assert.strictEqual(at, read_at)
        assert.deepStrictEqual(data, {
          message_id: own["id"],
          conversation_id: own["conversation_id"],
          seq: own["seq"],
          read_by: a.handle,
          reader: a.handle,
          // The second message of the conversation is still unread.
          through_seq: 1
        } as Record<string, unknown>)
        const at0 = new Date(yield* Clock.currentTimeMillis).toISOString()
        yield* contacts.block(a.id, b.handle)
        yield* contacts.block(a.id, b.handle)
        yield* soon("the block", () => posts().length > 1 ? true : undefined)
        yield* aMoment
        assert.deepStrictEqual(events().slice(1).map(({ data, event }) => [event, data]), [
          ["contact.blocked", { blocked_by: a.handle, blocked_at: at0 }]
        ])

        const muted = yield* hooked("muted")
        yield* mutes.mute(muted.b.id, { kind: "agent", handle: muted.a.handle }, null)
        yield* muted.say
        yield* mutes.lift(muted.b.id, { kind: "agent", handle: muted.a.handle })
        const heard = yield* muted.say
        const [post] = yield* soon("the post", () => muted.posts().length > 0 ? muted.posts() : undefined)
        assert.strictEqual((parse(post?.body ?? "")["data"] as Record<string, unknown>)["id"], heard["id"])
        assert.strictEqual((yield* rowsOf(muted.webhook.id)).length, 1)
      }))

    it.effect("a mute that has ended, but has not been swept, suppresses no post (wire.md G.11)", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { a, b, posts, say, webhook } = yield* hooked("mute-ended")
        const conversationId = String((yield* say)["conversation_id"])
        const now = yield* Clock.currentTimeMillis
        // The clock does not move from here on, so no sweep runs.
        yield* sql`
          INSERT INTO mutes (muter_id, kind, target_id, created_at, muted_until)
          VALUES (${b.id}, 'agent', ${a.id}, 0, ${now}), (${b.id}, 'conversation', ${conversationId}, 0, ${now})`
        yield* say
        assert.strictEqual((yield* rowsOf(webhook.id)).length, 2)
        yield* soon("the posts", () => posts().length === 2 ? true : undefined)
        assert.strictEqual((yield* sql`SELECT FROM mutes WHERE muter_id = ${b.id}`).length, 2)
      }))

    it.effect("a delivery is attempted nine times on the schedule under one id, each signed again, then dead and listed", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { b, posts, say, webhook } = yield* hooked("schedule", ["message.new"], 500)
        yield* say
        yield* soon("the first attempt", () => posts().length === 1 ? true : undefined)
        for (const [i, wait] of RETRY_MS.entries()) {
          yield* shows(Effect.map(rowsOf(webhook.id), ([row]) => row?.attempts), i + 1)
          // The sweep that woke it for the last one may have done so within a step of the clock.
          const left = posts()[i]!.at + wait - (yield* Clock.currentTimeMillis)
          const slept = Math.min(left, 60_000)
          yield* leap(left - slept)
          yield* TestClock.adjust(slept - 1)
          yield* aMoment
          assert.strictEqual(posts().length, i + 1, `before retry ${i + 1}`)
          yield* TestClock.adjust(1)
          if (wait <= 60_000) yield* soon(`retry ${i + 1}`, () => posts().length === i + 2 ? true : undefined)
          yield* inTime(`retry ${i + 1}`, () => posts().length === i + 2 ? true : undefined, 1_000)
        }
        yield* shows(
          Effect.map(rowsOf(webhook.id), (rows) => rows.map((row) => [row.attempts, row.delivered, row.due_at])),
          [
            [9, false, null]
          ]
        )
        const waits = posts().slice(1).map((post, i) => post.at - posts()[i]!.at)
        // How much later an attempt is, is up to the sweep, and on a busy machine the clock runs on meanwhile.
        for (const [i, wait] of RETRY_MS.entries()) assert.isAtLeast(waits[i]!, wait)
        assert.deepStrictEqual(waits.slice(0, 3), RETRY_MS.slice(0, 3))
        assert.strictEqual(new Set(posts().map((post) => post.headers["X-AgentChat-Delivery"])).size, 1)
        assert.strictEqual(new Set(posts().map((post) => post.body)).size, 1)
        assert.strictEqual(new Set(posts().map((post) => post.headers["Agentchat-Signature"])).size, 9)
        const dead = yield* sql<{ handle: string; attempts: number; failure: string }>`
          SELECT handle, attempts, failure FROM dead_webhook_deliveries WHERE webhook_id = ${webhook.id}`
        assert.deepStrictEqual(dead, [{ handle: b.handle, attempts: 9, failure: "answered 500" }])
      }))

    it.effect("five failures in a row pause for five minutes, which costs no attempt; then one probe decides", () =>
      Effect.gen(function*() {
        const world = yield* Internet
        const { posts, say, url, webhook } = yield* hooked("circuit", ["message.new"], 0)
        for (let i = 0; i < 12; i++) yield* say
        yield* soon("the failures", () => posts().length >= 5 ? true : undefined)
        yield* aMoment
        const attempts = Effect.map(rowsOf(webhook.id), (rows) => rows.reduce((sum, row) => sum + row.attempts, 0))
        const before = posts().length
        // Those that were under way at once may fail after the fifth.
        assert.isAtMost(before, 8)
        yield* shows(attempts, before)
        yield* TestClock.adjust(290_000)
        yield* aMoment
        assert.strictEqual(posts().length, before)
        yield* inTime("the probe", () => posts().length > before ? true : undefined, 1_000)
        yield* aMoment
        assert.strictEqual(posts().length, before + 1)
        yield* TestClock.adjust(200_000)
        yield* aMoment
        assert.strictEqual(posts().length, before + 1)
        world.answers.set(url, 200)
        yield* inTime("everything", () => posts().length === before + 13 ? true : undefined, 5_000)
        yield* shows(Effect.map(rowsOf(webhook.id), (rows) => rows.every((row) => row.delivered === true)), true)
      }))

    it.effect("an answer that does not come within ten seconds, and one that leads elsewhere, are failures", () =>
      Effect.gen(function*() {
        const slow = yield* hooked("slow", ["message.new"], "never")
        const elsewhere = yield* hooked("elsewhere", ["message.new"], 302)
        yield* slow.say
        yield* elsewhere.say
        yield* soon("the posts", () => slow.posts().length + elsewhere.posts().length === 2 ? true : undefined)
        yield* shows(Effect.map(rowsOf(elsewhere.webhook.id), ([row]) => row?.failure), "answered 302")
        yield* TestClock.adjust(9_999)
        yield* aMoment
        assert.strictEqual((yield* rowsOf(slow.webhook.id))[0]?.attempts, 0)
        yield* TestClock.adjust(1)
        yield* shows(Effect.map(rowsOf(slow.webhook.id), (rows) => rows.map((row) => [row.attempts, row.failure])), [
          [1, "no answer within 10 seconds"]
        ])
      }))

    it.effect("a post that waits for a place is not sent once its webhook is deleted", () =>
      Effect.gen(function*() {
        const webhooks = yield* Webhooks
        const { agentId, first, postsTo, waits } = yield* oneWaits("deleted-meanwhile")
        yield* webhooks.remove(agentId, waits.id)
        yield* inTime(
          "the second attempt of the other",
          () => postsTo(first.url).length === 2 ? true : undefined,
          1_000
        )
        yield* aMoment
        assert.lengthOf(postsTo(waits.url), 0)
      }))

    it.effect("a post that waits for a place goes to the address, and is signed with the secret, of then", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { postsTo, waits } = yield* oneWaits("changed-meanwhile")
        const url = `${waits.url}/changed`
        const secret = "a secret of the changed webhook"
        yield* sql`UPDATE webhooks SET url = ${url}, secret = ${secret} WHERE id = ${waits.id}`
        const post = yield* inTime("the post", () => postsTo(url)[0], 1_000)
        assert.lengthOf(postsTo(waits.url), 0)
        assert.strictEqual(
          post.headers["X-AgentChat-Signature"],
          createHmac("sha256", secret).update(post.body).digest("hex")
        )
      }))

    it.effect("a post of presence that waits for a place is not sent once its webhook is deleted", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const presences = yield* Presences
        const webhooks = yield* Webhooks
        const { a, b, posts, webhook } = yield* hooked("absent-meanwhile", ["presence.update"], "never")
        const other = yield* newAgent("absent-meanwhile-c")
        for (const agent of [a, other]) {
          yield* contacts.add(b.id, agent.handle, null)
          yield* presences.put(agent, { status: "online", custom_message: null })
        }
        yield* presences.told
        yield* inTime("the first post", () => posts().length === 1 ? true : undefined, 1_000)
        yield* TestClock.adjust(2_000)
        yield* aMoment
        yield* webhooks.remove(b.id, webhook.id)
        yield* TestClock.adjust(10_000)
        yield* aMoment
        yield* TestClock.adjust(10_000)
        yield* aMoment
        assert.lengthOf(posts(), 1)
      }))

    it.effect("the fiftieth dead delivery in a row gives the webhook up, and what waits for it", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const webhooks = yield* Webhooks
        const { b, posts, say, webhook } = yield* hooked("given-up", ["message.new"], 500)
        yield* sql`UPDATE webhooks SET dead_in_a_row = 49 WHERE id = ${webhook.id}`
        yield* say
        yield* soon("the first attempt", () => posts().length === 1 ? true : undefined)
        yield* shows(Effect.map(rowsOf(webhook.id), ([row]) => row?.attempts), 1)
        yield* sql`UPDATE webhook_deliveries SET attempts = 8 WHERE webhook_id = ${webhook.id}`
        yield* TestClock.adjust(9_000)
        assert.isTrue((yield* webhooks.find(b.id, webhook.id)).active)
        yield* TestClock.adjust(1_000)
        yield* soon("the last attempt", () => posts().length === 2 ? true : undefined)
        yield* shows(Effect.map(webhooks.find(b.id, webhook.id), ({ active }) => active), false)
        yield* sql`
          INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, due_at)
          VALUES (${webhook.id}, 'message.new', 'msg_late', 0, 0)`
        yield* say
        yield* TestClock.adjust(600_000)
        yield* shows(
          Effect.map(rowsOf(webhook.id), (rows) => rows.map((row) => [row.attempts, row.delivered, row.failure])),
          [
            [9, false, "answered 500"],
            [0, false, "the webhook was given up"]
          ]
        )
        assert.strictEqual(posts().length, 2)
      }))

    it.effect("a success ends a row of dead deliveries: fifty in a row are counted from there (wire.md C.12)", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const world = yield* Internet
        const { b, posts, say, url, webhook } = yield* hooked("forgiven")
        yield* sql`UPDATE webhooks SET dead_in_a_row = 49 WHERE id = ${webhook.id}`
        yield* say
        yield* shows(Effect.map(rowsOf(webhook.id), (rows) => rows.map((row) => row.delivered)), [true])
        world.answers.set(url, 500)
        yield* say
        yield* shows(Effect.map(rowsOf(webhook.id), (rows) => rows.map((row) => row.attempts)), [1, 1])
        // The ninth and last attempt follows.
        yield* sql`UPDATE webhook_deliveries SET attempts = 8 WHERE webhook_id = ${webhook.id} AND due_at IS NOT NULL`
        yield* TestClock.adjust(10_000)
        yield* soon("the last attempt", () => posts().length === 3 ? true : undefined)
        yield* shows(Effect.map(rowsOf(webhook.id), (rows) => rows.map((row) => row.delivered)), [true, false])
        assert.isTrue((yield* (yield* Webhooks).find(b.id, webhook.id)).active)
      }))

    it.effect("presence is posted as it is a second later, to who holds the contact and asked for it, once", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const presences = yield* Presences
        const { a, b, posts } = yield* hooked("present", ["presence.update"], 500)
        const blocked = yield* hooked("unseen", ["presence.update"])
        yield* contacts.add(b.id, a.handle, null)
        yield* contacts.add(blocked.b.id, a.handle, null)
        yield* contacts.block(a.id, blocked.b.handle)
        for (const status of ["online", "busy"] as const) {
          yield* presences.put(a, { status, custom_message: `I am ${status}` })
          yield* presences.told
        }
        yield* aMoment
        assert.deepStrictEqual(posts(), [])
        yield* inTime("the post", () => posts().length > 0 ? true : undefined, 1_000)
        yield* TestClock.adjust(60_000)
        yield* aMoment
        assert.deepStrictEqual(posts().map(({ body }) => [parse(body)["event"], parse(body)["data"]]), [
          ["presence.update", yield* presences.get(b.id, a.handle)]
        ])
        assert.deepStrictEqual(blocked.posts(), [])
      }))

    it.effect("a delivery without a notice is found by the sweep", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { b, posts, webhook } = yield* hooked("swept")
        const sent = yield* sql<{ id: string }>`
          SELECT m.id FROM envelopes e JOIN messages m USING (conversation_id, seq) WHERE e.recipient_id = ${b.id}`
        yield* sql`
          INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, due_at)
          VALUES (${webhook.id}, 'message.new', ${sent[0]!.id}, 0, 0)`
        yield* inTime("the post", () => posts().length === 1 ? true : undefined, 1_000)
      }))

    it.effect("a deleted account, and a deleted webhook, leave nothing; what has ended is kept for its time", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const accounts = yield* Accounts
        const webhooks = yield* Webhooks
        const kept = yield* hooked("kept")
        const dropped = yield* hooked("dropped", ["message.new"], 500)
        const ended = yield* hooked("ended", ["message.new"], 500)
        for (const { say } of [kept, dropped, ended]) yield* say
        yield* soon(
          "the posts",
          () => kept.posts().length + dropped.posts().length + ended.posts().length === 3 ? true : undefined
        )
        yield* aMoment
        yield* webhooks.remove(dropped.b.id, dropped.webhook.id)
        yield* accounts.remove(ended.b.id)
        yield* TestClock.adjust(120_000)
        yield* aMoment
        assert.deepStrictEqual([dropped.posts().length, ended.posts().length], [1, 1])
        yield* TestClock.adjust(600_000)
        yield* aMoment
        yield* shows(sql`SELECT id FROM webhooks WHERE id = ANY (${[dropped.webhook.id, ended.webhook.id]})`, [])
        yield* shows(Effect.all([rowsOf(dropped.webhook.id), rowsOf(ended.webhook.id)]), [[], []])
        assert.strictEqual((yield* rowsOf(kept.webhook.id)).length, 1)
        yield* leap("24 hours")
        yield* aMoment
        yield* TestClock.adjust(600_000)
        yield* shows(rowsOf(kept.webhook.id), [])
      }))
  })
})

describe.skipIf(!isInstalled(18))("settings of webhooks", () => {
  layer(
    layerModules(layerPostgresTest(), {
      WEBHOOK_RETRY_SECONDS: [1, 4],
      WEBHOOK_TIMEOUT_SECONDS: 2,
      WEBHOOK_CIRCUIT_IN_A_ROW: 4,
      WEBHOOK_CIRCUIT_PAUSE_SECONDS: 20,
      WEBHOOK_DEAD_IN_A_ROW: 2
    }).pipe(Layer.provideMerge(internet))
  )((it) => {
    it.effect("say how long, how often and how far apart is tried, when there is a pause, and when an end", () =>
      Effect.gen(function*() {
        const { posts, say, webhook } = yield* hooked("settings", ["message.new"], "never")
        yield* say
        yield* inTime("three attempts", () => posts().length === 3 ? true : undefined, 100)
        // Two seconds without an answer, then the wait. The clock goes on while a statement of the job is under way.
        const [first, second, third] = posts().map(({ at }) => at) as [number, number, number]
        assert.isAtLeast(second - first, 3_000)
        assert.isAtLeast(third - second, 6_000)
        yield* TestClock.adjust(2_000)
        yield* shows(Effect.map(rowsOf(webhook.id), (rows) => rows.map(({ due_at, failure }) => [due_at, failure])), [
          [null, "no answer within 2 seconds"]
        ])
        // The fourth failure in a row begins a pause, after which there is one probe.
        yield* say
        yield* inTime("the fourth", () => posts().length === 4 ? true : undefined, 100)
        const fourth = posts()[3]!.at
        yield* inTime("the probe", () => posts().length === 5 ? true : undefined, 500)
        assert.isAtLeast(posts()[4]!.at - fourth, 22_000)
        // Two dead in a row: it is given up.
        const webhooks = yield* Webhooks
        yield* inTime("the last", () => posts().length === 6 ? true : undefined, 500)
        yield* TestClock.adjust(2_000)
        yield* shows(Effect.map(webhooks.list(webhook.agentId, {}), (page) => page.items.map(({ active }) => active)), [
          false
        ])
      }))
  })
})
