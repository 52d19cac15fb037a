import { Accounts } from "#domain/agents/Accounts"
import { Deletions } from "#domain/agents/Deletions"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { DirectFeed } from "#domain/direct/DirectFeed"
import { PostSources } from "#domain/webhooks/PostSources"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { type Post, WebhookClient } from "#domain/webhooks/WebhookClient"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import { Database } from "#infrastructure/database/Sql"
import { NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { PushConfigsRepo } from "#interfaces/a2a/PushConfigsRepo"
import { asOf, type Change, LOG, type Task } from "#interfaces/a2a/Task"
import { TaskPushes } from "#interfaces/a2a/TaskPushes"
import { type Side, Tasks } from "#interfaces/a2a/Tasks"
import { TasksRepo } from "#interfaces/a2a/TasksRepo"
import { assert, describe, it, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { breath, eventually } from "../support/Eventually.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent, type Party } from "../support/Modules.ts"

const posts: Array<Post> = []
/** URLs that never answer. */
const dead = new Set<string>()
const internet = Layer.mergeAll(
  Layer.succeed(NameLookup, () => Effect.succeed(["93.184.216.34"])),
  Layer.succeed(WebhookClient, (post: Post) =>
    Effect.suspend(() => {
      posts.push(post)
      return dead.has(post.url.href) ? Effect.never : Effect.succeed(200)
    }))
)

const statesAt = (url: string): ReadonlyArray<string> =>
  posts.filter((post) => post.url.href === url)
    .map(({ body }) =>
      (JSON.parse(body) as { task: { status: { state: string } } }).task.status.state.replace("TASK_STATE_", "")
    )

let serial = 0

const say = Effect.fnUntraced(function*(from: Party, to: Party, metadata: object, id?: string) {
  const conversations = yield* Conversations
  const key = id === undefined ? `plain-${serial++}` : `a2a:${id}`
  return yield* conversations.send(from, { _tag: "Direct", handle: to.handle }, {
    ...draft(key),
    metadata: JSON.stringify(metadata),
    ...(id === undefined ? {} : { messageId: id })
  })
})

const newTask = Effect.fnUntraced(function*(a: Party, b: Party) {
  const id = (yield* Ids).make("msg")
  yield* say(a, b, { a2a: { task_id: id } }, id)
  return id
})

/** Two agents that may write to each other, and a task of the first with the second. */
const world = Effect.gen(function*() {
  const [a, b] = [yield* newAgent(`pusher-${serial++}`), yield* newAgent(`pushed-${serial++}`)]
  yield* say(a, b, {})
  yield* say(b, a, {})
  const side = { callerId: a.id, recipientId: b.id, conversationId: (yield* DirectFeed).direct(a.id, b.id) }
  yield* (yield* Tasks).begin(side.conversationId)
  return { a, b, side, id: yield* newTask(a, b), url: `https://world-${serial++}.example/hook` }
})

const configOf = (url: string, name = "one") => ({ name, target: { url, token: "token" } })

const refresh = Effect.flatMap(TaskPushes, (pushes) => pushes.refresh)

/** What the outbox holds for a task, and how many of its configurations and webhooks there are. */
const storedOf = Effect.fnUntraced(function*(task: string) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ subject: string }>`
    SELECT subject FROM webhook_deliveries WHERE event = 'a2a.task' AND subject LIKE ${`%${task}%`} ORDER BY no`
  const [counted] = yield* sql<{ configs: number; hooks: number }>`
    SELECT (SELECT count(*) FROM a2a_push_configs WHERE task_id = ${task})::integer AS configs,
      (SELECT count(*) FROM webhooks w WHERE w.slot IS NULL AND w.deleted_at IS NULL AND w.url LIKE '%' || ${task} || '%')::integer AS hooks`
  return { changes: rows.map(({ subject }) => (JSON.parse(subject) as { change: number }).change), ...counted! }
})

class Crash {}

/** A service that dies before or after one of all calls to it and its likes. */
const dying = <S extends object>(service: S, calls: { made: number }, at: number): S =>
  new Proxy(service, {
    get: (target, name) => {
      const method: unknown = Reflect.get(target, name)
      if (typeof method !== "function") return method
      return (...given: ReadonlyArray<unknown>) => {
        const call = method.apply(target, given) as Effect.Effect<unknown, unknown, unknown>
        const step = Effect.suspend(() => calls.made++ === at ? Effect.die(new Crash()) : Effect.void)
        return Effect.andThen(step, Effect.tap(call, () => step))
      }
    }
  })

/** Tasks and pushes as a process has them that has just begun, and that dies at one of its steps. */
const processDyingAt = Effect.fnUntraced(function*(calls: { made: number }, at: number) {
  const repos = Layer.mergeAll(
    Layer.succeed(TasksRepo, dying(yield* TasksRepo, calls, at)),
    Layer.succeed(PushConfigsRepo, dying(yield* PushConfigsRepo, calls, at)),
    Layer.succeed(Webhooks, dying(yield* Webhooks, calls, at)),
    PostSources.layer
  )
  return Layer.fresh(TaskPushes.layer.pipe(Layer.provideMerge(Tasks.layer), Layer.provide(repos)))
})

/** Runs something in processes that die at each of its steps in turn, until one lives to the end; how many died. */
const atEachStep = <E, R, E2, R2>(prepare: Effect.Effect<Effect.Effect<void, E, R>, E2, R2>) =>
  Effect.gen(function*() {
    for (let at = 0;; at++) {
      const calls = { made: 0 }
      const process = yield* processDyingAt(calls, at)
      const run = yield* prepare
      const exit = yield* Effect.exit(Effect.provide(run, process))
      if (calls.made <= at) {
        assert.isTrue(Exit.isSuccess(exit))
        return at
      }
      assert.isFalse(Exit.isSuccess(exit))
    }
  })

layer(layerModules(layerPgliteTest).pipe(Layer.provide(internet)))("tasks and what is posted of them", (it) => {
  it.effect("a change is posted once, and survives a crash at any step of what takes it into account", () =>
    Effect.gen(function*() {
      const worlds: Array<Effect.Success<typeof world>> = []
      const died = yield* atEachStep(Effect.gen(function*() {
        const { a, b, id, side, url } = yield* world
        worlds.push({ a, b, id, side, url })
        yield* (yield* TaskPushes).put(side, id, configOf(url))
        yield* say(b, a, { a2a: { task_id: id, state: "INPUT_REQUIRED" } })
        yield* say(b, a, { reply_to: id })
        return Effect.asVoid(refresh)
      }))
      assert.isAbove(died, 6)
      yield* refresh
      // What died after the commit has woken nobody.
      yield* (yield* WebhookActors).wakeDue
      for (const { id, url } of worlds) {
        assert.deepStrictEqual((yield* storedOf(id)).changes, [2, 3])
        yield* Effect.promise(() => eventually("the posts", () => statesAt(url).length === 2 || undefined))
        assert.sameMembers([...statesAt(url)], ["INPUT_REQUIRED", "COMPLETED"])
      }
    }))

  it.effect("a configuration whose creation died at any step is created by its repeat, once, and misses no change", () =>
    Effect.gen(function*() {
      const worlds: Array<Effect.Success<typeof world>> = []
      const died = yield* atEachStep(Effect.gen(function*() {
        const made = yield* world
        worlds.push(made)
        return Effect.gen(function*() {
          yield* (yield* TaskPushes).put(made.side, made.id, configOf(`https://twice.example/${made.id}`))
        })
      }))
      assert.isAbove(died, 6)
      for (const { a, b, id, side } of worlds) {
        const pushes = yield* TaskPushes
        const url = `https://twice.example/${id}`
        assert.strictEqual((yield* pushes.put(side, id, configOf(url)))?.state, "SUBMITTED")
        yield* say(b, a, { reply_to: id })
        yield* refresh
        assert.deepStrictEqual(yield* storedOf(id), { changes: [2], configs: 1, hooks: 1 })
      }
    }))

  it.effect("configurations created while the task changes miss nothing of what comes after their answer", () =>
    Effect.gen(function*() {
      for (let round = 0; round < 10; round++) {
        const { a, b, id, side, url } = yield* world
        const [task] = yield* Effect.all([
          Effect.flatMap(TaskPushes, (pushes) => pushes.put(side, id, configOf(url))),
          say(b, a, { a2a: { task_id: id, state: "WORKING" } }),
          refresh
        ], { concurrency: "unbounded" })
        yield* say(b, a, { reply_to: id })
        yield* refresh
        assert.deepStrictEqual(
          (yield* storedOf(id)).changes,
          Array.from({ length: 3 - task!.changes }, (_, i) => task!.changes + 1 + i)
        )
      }
    }))

  it.effect("while no task has a configuration, a refresh reads only that", () =>
    Effect.gen(function*() {
      const repos = Layer.mergeAll(
        Layer.mock(TasksRepo)({}),
        Layer.mock(PushConfigsRepo)({ watched: () => Effect.succeed([]) }),
        PostSources.layer
      )
      const process = Layer.fresh(TaskPushes.layer.pipe(Layer.provideMerge(Tasks.layer), Layer.provide(repos)))
      assert.deepStrictEqual(yield* Effect.provide(refresh, process), { rows: 0, more: false })
    }))

  it.effect("the limit holds for many at once", () =>
    Effect.gen(function*() {
      const { id, side, url } = yield* world
      const pushes = yield* TaskPushes
      const outcomes = yield* Effect.forEach(
        Array.from({ length: 14 }),
        (_, i) =>
          Effect.match(pushes.put(side, id, configOf(url, `config-${i}`)), {
            onSuccess: () => "made",
            onFailure: ({ _tag }) => _tag
          }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(outcomes.toSorted(), [
        ...Array.from({ length: 4 }, () => "TooManyPushConfigs"),
        ...Array.from({ length: 10 }, () => "made")
      ])
      assert.lengthOf(yield* pushes.list(id), 10)
    }))

  it.effect("a deleted caller or called agent gets no more posts, and no row of its configurations is kept", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const gone = [yield* world, yield* world]
      for (const [i, { a, b, id, side, url }] of gone.entries()) {
        yield* (yield* TaskPushes).put(side, id, configOf(url))
        yield* say(b, a, { reply_to: id })
        const ending = i === 0 ? a : b
        yield* (yield* Accounts).remove(ending.id)
        yield* (yield* Deletions).sweep
        yield* refresh
      }
      yield* (yield* Tasks).sweep
      for (const { id, url } of gone) {
        assert.deepStrictEqual(statesAt(url), [])
        assert.strictEqual((yield* storedOf(id)).configs, 0)
        assert.deepStrictEqual(
          yield* sql`SELECT secret FROM webhooks WHERE url = ${url} AND (secret <> '' OR deleted_at IS NULL)`,
          []
        )
      }
    }))

  it.effect("configurations of a task that has ended are removed once its posts are forgotten, not before", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const pushes = yield* TaskPushes
      const { a, b, id, side, url } = yield* world
      yield* pushes.put(side, id, configOf(url))
      yield* say(b, a, { reply_to: id })
      yield* refresh
      yield* Effect.promise(() => eventually("the post", () => statesAt(url).at(-1)))
      yield* pushes.retire
      assert.lengthOf(yield* pushes.list(id), 1)
      yield* sql`DELETE FROM webhook_deliveries WHERE subject LIKE ${`%${id}%`}`
      yield* pushes.retire
      assert.deepStrictEqual([yield* pushes.list(id), (yield* storedOf(id)).configs], [[], 0])
    }))

  it.effect("configurations go with the webhooks of an agent that is deleted", () =>
    Effect.gen(function*() {
      const pushes = yield* TaskPushes
      const { a, id, side, url } = yield* world
      const other = yield* world
      yield* pushes.put(side, id, configOf(url))
      yield* pushes.put(other.side, other.id, configOf(other.url))
      yield* (yield* Webhooks).removeAgent(a.id)
      yield* pushes.retire
      assert.deepStrictEqual([(yield* storedOf(id)).configs, (yield* storedOf(other.id)).configs], [0, 1])
    }))

  it.effect("a webhook of a task is none of its agent's webhooks", () =>
    Effect.gen(function*() {
      const { a, id, side, url } = yield* world
      const webhooks = yield* Webhooks
      yield* (yield* TaskPushes).put(side, id, configOf(url))
      const [{ webhook_id }] = (yield* (yield* SqlClient.SqlClient)<{ webhook_id: string }>`
        SELECT webhook_id FROM a2a_push_configs WHERE task_id = ${id}`) as unknown as [{ webhook_id: string }]
      assert.deepStrictEqual((yield* webhooks.list(a.id, {})).total, 0)
      assert.strictEqual((yield* Effect.flip(webhooks.find(a.id, webhook_id)))._tag, "NotFound")
      assert.strictEqual((yield* Effect.flip(webhooks.remove(a.id, webhook_id)))._tag, "NotFound")
    }))

  it.effect("a conversation in which no task was made is forgotten a day later, and one is followed again that is called there", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const tasks = yield* Tasks
      const followed = (id: string) =>
        Effect.map(
          sql`SELECT conversation_id FROM a2a_conversations WHERE conversation_id = ${id}`,
          (rows) => rows.length
        )
      const unasked = yield* world
      const [a, b] = [yield* newAgent(`refused-${serial++}`), yield* newAgent(`refusing-${serial++}`)]
      yield* sql`UPDATE agents SET inbox_mode = 'contacts_only' WHERE id = ${b.id}`
      const conversationId = (yield* DirectFeed).direct(a.id, b.id)
      const call = Effect.gen(function*() {
        const id = (yield* Ids).make("msg")
        yield* tasks.begin(conversationId)
        const sent = yield* Effect.result(say(a, b, { a2a: { task_id: id } }, id))
        return { id, refused: sent._tag === "Failure" }
      })
      assert.isTrue((yield* call).refused)
      yield* tasks.forget
      assert.strictEqual(yield* followed(conversationId), 1)
      yield* leap("23 hours")
      assert.isTrue((yield* call).refused)
      yield* leap("2 hours")
      yield* tasks.forget
      assert.strictEqual(yield* followed(conversationId), 1)
      yield* leap("23 hours")
      yield* tasks.forget
      assert.strictEqual(yield* followed(conversationId), 0)
      // Its task was never asked for.
      assert.strictEqual(yield* followed(unasked.side.conversationId), 1)
      assert.strictEqual((yield* tasks.find(unasked.side, unasked.id))?.state, "SUBMITTED")
      yield* sql`UPDATE agents SET inbox_mode = 'open' WHERE id = ${b.id}`
      yield* leap("2 seconds")
      const { id, refused } = yield* call
      assert.isFalse(refused)
      assert.strictEqual(
        (yield* tasks.find({ callerId: a.id, recipientId: b.id, conversationId }, id))?.state,
        "SUBMITTED"
      )
    }))

  it.effect("only those of 5,000 open tasks of a pair are read that the new messages may change", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { a, b, id, side } = yield* world
      yield* (yield* Tasks).find(side, id)
      // As if they had been made before: the first of them is the oldest.
      yield* sql`
        INSERT INTO a2a_tasks (id, conversation_id, seq, caller_id, recipient_id, state, open, updated_at, changes, log)
        SELECT 'msg_many' || i || '_' || ${id}, ${side.conversationId}, -i, ${a.id}, ${b.id}, 'WORKING', true, 0, 1,
          '[{"state":"WORKING","at":0,"seq":' || -i || ',"messageId":"msg_turn' || i || '"}]'
        FROM generate_series(1, 5000) i`
      /** The number of rows that each statement on tasks returned. */
      const returned: Array<number> = []
      const database = yield* Database
      const counting = Database.of({
        ...database,
        prepared: <Row extends object>(name: string, text: string) => {
          const run = database.prepared<Row>(name, text)
          return (params: ReadonlyArray<unknown>) =>
            Effect.tap(run(params), ({ length }) => Effect.sync(() => returned.push(length)))
        }
      })
      const process = Layer.fresh(TaskPushes.layer.pipe(
        Layer.provideMerge(Tasks.layer),
        Layer.provide(
          Layer.merge(TasksRepo.layer.pipe(Layer.provide(Layer.succeed(Database, counting))), PostSources.layer)
        )
      ))
      yield* Effect.gen(function*() {
        const tasks = yield* Tasks
        const many = (i: number) => `msg_many${i}_${id}`
        const stateOf = (task: string) => Effect.map(tasks.find(side, task), (found) => found?.state)
        yield* say(b, a, {})
        yield* say(b, a, {})
        assert.deepStrictEqual(
          [yield* stateOf(many(5_000)), yield* stateOf(many(4_999)), yield* stateOf(many(4_998))],
          ["COMPLETED", "COMPLETED", "WORKING"]
        )
        yield* say(b, a, { reply_to: many(7) })
        yield* say(b, a, { a2a: { task_id: many(8), state: "FAILED" } })
        yield* say(b, a, { reply_to: "msg_turn9" })
        yield* say(a, b, { a2a: { task_id: many(10) } })
        yield* say(b, a, { reply_to: "msg_unknown" })
        assert.deepStrictEqual(
          [yield* stateOf(many(7)), yield* stateOf(many(8)), yield* stateOf(many(9)), yield* stateOf(many(10))],
          ["COMPLETED", "FAILED", "COMPLETED", "SUBMITTED"]
        )
        assert.isAtMost(Math.max(...returned), 6)
        const { tasks: page, total } = yield* tasks.list(side, { state: "WORKING", since: null }, null, 10)
        assert.deepStrictEqual([page.length, total], [10, 5_000 - 6])
        assert.isAtMost(Math.max(...returned), 11)
      }).pipe(Effect.provide(process))
    }))

  it.effect("a list compares open tasks with their deliveries only after a delivery to the called agent", () =>
    Effect.gen(function*() {
      const { a, b, id, side } = yield* world
      yield* newTask(a, b)
      const compared: Array<string> = []
      const database = yield* Database
      const counting = Database.of({
        ...database,
        prepared: <Row extends object>(name: string, text: string) => {
          const run = database.prepared<Row>(name, text)
          return (params: ReadonlyArray<unknown>) =>
            Effect.tap(
              run(params),
              () => Effect.sync(() => void (name === "undelivered_a2a_tasks" && compared.push(name)))
            )
        }
      })
      const repo = TasksRepo.layer.pipe(Layer.provide(Layer.succeed(Database, counting)))
      yield* Effect.gen(function*() {
        const tasks = yield* Tasks
        const states = Effect.map(
          tasks.list(side, { state: null, since: null }, null, 10),
          (listed) => listed.tasks.map(({ state }) => state)
        )
        assert.deepStrictEqual([yield* states, yield* states], [["SUBMITTED", "SUBMITTED"], ["SUBMITTED", "SUBMITTED"]])
        yield* say(b, a, { a2a: { task_id: id, state: "INPUT_REQUIRED" } })
        assert.sameMembers([...(yield* states)], ["SUBMITTED", "INPUT_REQUIRED"])
        assert.lengthOf(compared, 1)
        yield* (yield* Deliveries).closeAll(b.id, 1)
        assert.sameMembers([...(yield* states)], ["WORKING", "INPUT_REQUIRED"])
        yield* say(a, b, { a2a: { task_id: id } })
        assert.sameMembers([...(yield* states)], ["WORKING", "SUBMITTED"])
        yield* (yield* Deliveries).closeAll(b.id, 2)
        assert.sameMembers([...(yield* states)], ["WORKING", "WORKING"])
        assert.lengthOf(compared, 3)
      }).pipe(Effect.provide(Layer.fresh(Tasks.layer.pipe(Layer.provide(repo)))))
    }))

  it.effect("every read that derives tasks waits for a slot of its caller, and the job that posts changes does not", () =>
    Effect.gen(function*() {
      const { HTTP_LARGE_READS: slots } = yield* Config
      const reads = yield* LargeReads
      const tasks = yield* Tasks
      const { a, b, id, side, url } = yield* world
      const other = yield* world
      const config = configOf(url)
      assert.strictEqual((yield* tasks.find(side, id))?.state, "SUBMITTED")
      const all = Effect.forEach(
        Array.from({ length: slots }),
        () => reads.during(a.id, { usual: 1, max: 1, bytes: 1 }, Effect.never),
        { concurrency: "unbounded" }
      )
      const taken = yield* Effect.forkChild(all)
      const time = yield* Effect.forkChild(
        Effect.forever(Effect.andThen(TestClock.adjust(1_000), Effect.promise(breath)))
      )
      const refused = <A, E extends { readonly _tag: string }, R>(read: Effect.Effect<A, E, R>) =>
        Effect.map(Effect.flip(read), ({ _tag }) => _tag)
      yield* Effect.yieldNow
      // A task that is up to date is read without a slot.
      assert.strictEqual((yield* tasks.find(side, id))?.state, "SUBMITTED")
      yield* say(b, a, { a2a: { task_id: id, state: "WORKING" } })
      assert.deepStrictEqual(
        yield* Effect.all([
          refused(tasks.find(side, id)),
          refused(tasks.list(side, { state: null, since: null }, null, 1)),
          refused(tasks.cancel(side, id)),
          refused((yield* TaskPushes).put(side, id, config))
        ], { concurrency: "unbounded" }),
        ["RateLimited", "RateLimited", "RateLimited", "RateLimited"]
      )
      assert.strictEqual((yield* tasks.find(other.side, other.id))?.state, "SUBMITTED")
      yield* tasks.renew(side, id)
      assert.strictEqual((yield* tasks.find(side, id))?.state, "WORKING")
      yield* Fiber.interrupt(time)
      yield* Fiber.interrupt(taken)
      assert.lengthOf((yield* tasks.list(side, { state: null, since: null }, null, 1)).tasks, 1)
    }))
})

layer(layerModules(layerPgliteTest, { LIMITS_PUSH_CONFIGS_PER_AGENT: 6 }).pipe(Layer.provide(internet)))(
  "an agent's limit of configurations",
  (it) => {
    const put = (side: Side, task: string, url: string, name: string) =>
      Effect.flatMap(TaskPushes, (pushes) =>
        Effect.match(pushes.put(side, task, configOf(url, name)), {
          onSuccess: () => "made",
          onFailure: ({ _tag }) => _tag as string
        }))

    it.effect("holds for many at once, over all its tasks, and for each agent by itself", () =>
      Effect.gen(function*() {
        const { a, b, id, side, url } = yield* world
        const other = yield* world
        const tasks = [id, yield* newTask(a, b), yield* newTask(a, b)]
        const outcomes = yield* Effect.forEach(Array.from({ length: 15 }), (_, i) =>
          put(side, tasks[i % 3]!, url, `config-${i}`), { concurrency: "unbounded" })
        assert.deepStrictEqual(outcomes.toSorted(), [
          ...Array.from({ length: 9 }, () =>
            "TooManyPushConfigsOfAgent"),
          ...Array.from({ length: 6 }, () =>
            "made")
        ])
        assert.strictEqual(yield* put(other.side, other.id, other.url, "one"), "made")
        // To change one that exists takes no room, and one that is removed leaves its own.
        const pushes = yield* TaskPushes
        const { name } = (yield* pushes.list(id))[0]!
        assert.strictEqual(yield* put(side, id, `${url}/changed`, name), "made")
        assert.strictEqual(
          (yield* Effect.flip(pushes.checkRoom(a.id, id, "another")))._tag,
          "TooManyPushConfigsOfAgent"
        )
        assert.strictEqual(
          (yield* Effect.flip(pushes.checkRoom(a.id, undefined, "another")))._tag,
          "TooManyPushConfigsOfAgent"
        )
        yield* pushes.checkRoom(a.id, id, name)
        yield* pushes.remove(id, name)
        yield* pushes.checkRoom(a.id, undefined, "another")
        assert.deepStrictEqual([yield* put(side, id, url, "another"), yield* put(side, id, url, "one-more")], [
          "made",
          "TooManyPushConfigsOfAgent"
        ])
      }))

    it.effect("counts what can still post: not what an ended task has posted, and what still waits for a dead target", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { a, b, id, side, url } = yield* world
        const later = yield* newTask(a, b)
        dead.add(`${url}/dead`)
        for (let i = 0; i < 6; i++)
          assert.strictEqual(yield* put(side, id, i < 2 ? `${url}/dead` : `${url}/${i}`, `config-${i}`), "made")
        assert.strictEqual(yield* put(side, later, url, "before the end"), "TooManyPushConfigsOfAgent")
        yield* say(b, a, { reply_to: id })
        yield* refresh
        // A post to the dead target holds the agent's only place for unknown targets until its time is up.
        const posted = () => [2, 3, 4, 5].every((i) => statesAt(`${url}/${i}`).at(-1) === "COMPLETED")
        const time = yield* Effect.forkChild(
          Effect.forever(Effect.andThen(TestClock.adjust(1_000), Effect.promise(breath)))
        )
        yield* Effect.promise(() => eventually("the posts", () => posted() || undefined))
        yield* Fiber.interrupt(time)
        const waiting = sql<{ n: number }>`
        SELECT count(*)::integer AS n FROM webhook_deliveries WHERE due_at IS NOT NULL AND subject LIKE ${`%${id}%`}`
        yield* Effect.promise(() =>
          eventually("what was posted", async () => (await Effect.runPromise(waiting))[0]?.n === 2 || undefined)
        )
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 6 }),
          (_, i) => put(side, later, url, `later-${i}`),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(outcomes.toSorted(), [
          "TooManyPushConfigsOfAgent",
          "TooManyPushConfigsOfAgent",
          "made",
          "made",
          "made",
          "made"
        ])
        // Those of the ended task are still there to be read.
        assert.lengthOf(yield* (yield* TaskPushes).list(id), 6)
      }))
  }
)

describe.skipIf(!isInstalled(18))("creations of configurations at once", () => {
  layer(layerModules(layerPostgresTest(18)).pipe(Layer.provide(internet)))((it) => {
    it.effect("lock their caller before its configurations, so that they do not wait for each other", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const pushes = yield* TaskPushes
        const { a, id, side, url } = yield* world
        yield* pushes.put(side, id, configOf(url))
        const [config] = yield* (yield* PushConfigsRepo).of([id])
        // As a removal leaves it that dies half way: the row is there, its webhook is gone.
        yield* (yield* Webhooks).removeUnlisted([config!.webhookId])
        const [locked, end] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const holder = yield* Effect.forkChild(sql.withTransaction(
          sql`SELECT set_config('idle_in_transaction_session_timeout', '0', true)`.pipe(
            Effect.andThen(sql`SELECT FROM agents WHERE id = ${a.id} FOR NO KEY UPDATE`),
            Effect.andThen(Deferred.succeed(locked, undefined)),
            Effect.andThen(Deferred.await(end))
          )
        ))
        yield* Deferred.await(locked)
        const creation = yield* Effect.forkChild(pushes.put(side, id, configOf(`${url}/again`)))
        const waits =
          sql`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`
        yield* Effect.promise(() =>
          eventually(
            "the creation to wait for its caller",
            async () => (await Effect.runPromise(waits)).length === 1 || undefined
          )
        )
        yield* sql`SELECT FROM a2a_push_configs WHERE webhook_id = ${config!.webhookId} FOR UPDATE NOWAIT`
        yield* Deferred.succeed(end, undefined)
        yield* Fiber.join(holder)
        assert.strictEqual((yield* Fiber.join(creation))?.id, id)
        assert.deepStrictEqual((yield* pushes.list(id)).map(({ target }) => target.url), [`${url}/again`])
      }))
  })
})

describe("a task as it was", () => {
  const change = (i: number): Change => ({
    state: i === 1 ? "SUBMITTED" : "WORKING",
    at: i,
    seq: i,
    messageId: `m${i}`
  })
  const task = (changes: number): Task => {
    const all = Array.from({ length: changes }, (_, i) => change(i + 1))
    const log = [all[0]!, ...all.slice(1).slice(-LOG)]
    const last = log.at(-1)!
    return {
      id: "m1",
      conversationId: "c",
      seq: 1,
      callerId: "a",
      recipientId: "b",
      state: last.state,
      updatedAt: last.at,
      changes,
      log
    }
  }

  it("after any change that the log still has, and as it is after one that it has not", () => {
    for (const changes of [1, 2, 5, LOG + 1, LOG + 50]) {
      const now = task(changes)
      for (let n = 1; n <= changes + 1; n++) {
        const then = asOf(now, n)
        const isKept = n <= changes && (n === 1 ? changes <= LOG + 1 : changes - n < LOG)
        assert.deepStrictEqual(
          then,
          isKept ? { ...task(n), log: now.log.slice(0, now.log.length - (changes - n)) } : now,
          `${n} of ${changes}`
        )
      }
    }
  })
})
