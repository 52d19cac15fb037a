import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { Contacts } from "#domain/contacts/Contacts"
import { Conversations } from "#domain/conversations/Conversations"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { EnforcementRepo } from "#domain/enforcement/EnforcementRepo"
import { EnforcementWatch } from "#domain/enforcement/EnforcementWatch"
import { Groups } from "#domain/groups/Groups"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import type { Poll } from "#infrastructure/database/SharedPoll"
import { Database } from "#infrastructure/database/Sql"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import type { Settings } from "#infrastructure/platform/Config"
import { assert, describe, it, layer, type Vitest } from "@effect/vitest"
import { Clock, Effect, Layer, Redacted, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { freshDatabase, layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { draft, layerModules, newAgents, type Party } from "../support/Modules.ts"

let serial = 0

const say = (from: Party, to: Party) =>
  Effect.flatMap(
    Conversations,
    (conversations) => conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(`m${serial++}`))
  )

const tagOf = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onSuccess: () => "ok", onFailure: ({ _tag }) => _tag as string })

const block = (from: Party, to: Party) => Effect.flatMap(Contacts, (contacts) => contacts.block(from.id, to.handle))
const unblock = (from: Party, to: Party) => Effect.flatMap(Contacts, (contacts) => contacts.unblock(from.id, to.handle))
const report = (from: Party, to: Party) =>
  Effect.flatMap(Contacts, (contacts) => contacts.report(from.id, to.handle, "spam"))

/** Reads and handles the rows of one poll, without the other polls. */
const readNow = Effect.fnUntraced(function*<Row extends object>({ handle, name, params, select }: Poll<Row>) {
  const { prepared } = yield* Database
  yield* handle(yield* prepared<Row>(`test ${name}`, select)(yield* params))
})

/** As the rest of the world is told. */
const statusOf = (agent: Party) =>
  Effect.gen(function*() {
    const agents = yield* Agents
    agents.forget(agent.id)
    return (yield* agents.byHandle(agent.handle))?.status
  })

/** An agent, and others to whom it has written. */
const spammer = (victims: number) =>
  Effect.gen(function*() {
    const [target, ...others] = yield* newAgents(victims + 1)
    for (const other of others) yield* say(target!, other)
    return [target!, others] as const
  })

const small: Partial<Settings> = {
  LIMITS_RESTRICT_BLOCKS: 3,
  LIMITS_RESTRICT_WINDOW_SECONDS: 60,
  LIMITS_SUSPEND_BLOCKS: 5,
  LIMITS_SUSPEND_REPORTS: 2,
  LIMITS_SUSPEND_WINDOW_SECONDS: 300,
  LIMITS_SENDS_PER_SECOND: 1_000_000
}

type Modules = Layer.Success<ReturnType<typeof layerModules>>

const suite = (it: Vitest.MethodsNonLive<Modules>) => {
  it.effect("blocks by those it wrote to restrict it, until enough of them have left the window", () =>
    Effect.gen(function*() {
      const [target, others] = yield* spammer(4)
      const [stranger] = yield* newAgents(1)
      yield* block(others[0]!, target)
      yield* TestClock.adjust("10 seconds")
      yield* block(others[1]!, target)
      assert.strictEqual(yield* statusOf(target), "active")
      yield* block(others[2]!, target)
      assert.strictEqual(yield* statusOf(target), "restricted")
      assert.strictEqual(yield* tagOf(say(target, stranger!)), "AgentRestricted")
      assert.strictEqual(yield* tagOf(say(target, others[3]!)), "AwaitingReply")
      yield* say(others[3]!, target)
      assert.strictEqual(yield* tagOf(say(target, others[3]!)), "ok")
      yield* TestClock.adjust("49999 millis")
      assert.strictEqual(yield* tagOf(say(target, stranger!)), "AgentRestricted")
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(yield* statusOf(target), "active")
      assert.strictEqual(yield* tagOf(say(target, stranger!)), "ok")
    }))

  it.effect("blocks and reports by agents that wrote first do not count, nor does a repeated one", () =>
    Effect.gen(function*() {
      const [target, others] = yield* spammer(2)
      const strangers = yield* newAgents(8)
      for (const stranger of strangers.slice(0, 4)) {
        yield* say(stranger, target)
        yield* report(stranger, target)
      }
      for (const stranger of strangers.slice(4)) yield* report(stranger, target)
      for (const other of others) {
        yield* block(other, target)
        yield* block(other, target)
      }
      assert.strictEqual(yield* statusOf(target), "active")
      assert.deepStrictEqual(
        yield* Effect.flatMap(Enforcement, (enforcement) => enforcement.tally(target.id, null)),
        { blocksToRestrict: 2, blocksToSuspend: 2, reportsToSuspend: 0 }
      )
    }))

  it.effect("taking a block back takes it out of the count; a new one has a new age", () =>
    Effect.gen(function*() {
      const [target, others] = yield* spammer(3)
      for (const other of others) yield* block(other, target)
      assert.strictEqual(yield* statusOf(target), "restricted")
      yield* unblock(others[0]!, target)
      assert.strictEqual(yield* statusOf(target), "active")
      yield* TestClock.adjust("30 seconds")
      yield* block(others[0]!, target)
      assert.strictEqual(yield* statusOf(target), "restricted")
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual(yield* statusOf(target), "active", "the two older ones have left")
    }))

  it.effect("enough reports suspend it for good, those of deleted accounts included; a restore begins anew", () =>
    Effect.gen(function*() {
      const [target, others] = yield* spammer(5)
      const enforcement = yield* Enforcement
      yield* report(others[0]!, target)
      yield* Effect.flatMap(Accounts, (accounts) => accounts.remove(others[0]!.id))
      assert.strictEqual(yield* statusOf(target), "active")
      yield* TestClock.adjust("299 seconds")
      yield* report(others[1]!, target)
      assert.strictEqual(yield* statusOf(target), "suspended")
      assert.strictEqual(yield* tagOf(say(target, others[2]!)), "AgentSuspended")
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(yield* statusOf(target), "suspended", "no window ends a suspension")
      yield* unblock(others[1]!, target)
      assert.strictEqual(yield* statusOf(target), "suspended", "nor does taking a block back")
      assert.isTrue(yield* enforcement.restore({ agentId: target.id, operator: "ops", reason: null }))
      assert.strictEqual(yield* statusOf(target), "active")
      yield* TestClock.adjust("1 second")
      yield* report(others[2]!, target)
      assert.strictEqual(yield* statusOf(target), "active", "one report since the restore")
      yield* report(others[3]!, target)
      assert.strictEqual(yield* statusOf(target), "suspended")
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(
        (yield* sql<{ action: string; operator: string | null }>`
          SELECT action, operator FROM audit_log WHERE agent_id = ${target.id} ORDER BY no`).map((row) => ({ ...row })),
        [
          { action: "suspend", operator: null },
          { action: "restore", operator: "ops" },
          { action: "suspend", operator: null }
        ]
      )
    }))

  it.effect("a report by an agent that it wrote to only later counts; blocks in seven days suspend too", () =>
    Effect.gen(function*() {
      const [target, others] = yield* spammer(5)
      const [early] = yield* newAgents(1)
      yield* report(early!, target)
      yield* unblock(early!, target)
      yield* say(target, early!)
      yield* block(early!, target)
      const { reportsToSuspend } = yield* Effect.flatMap(
        Enforcement,
        (enforcement) => enforcement.tally(target.id, null)
      )
      assert.strictEqual(reportsToSuspend, 1)
      for (const other of others.slice(0, 3)) {
        yield* block(other, target)
        yield* TestClock.adjust("61 seconds")
      }
      assert.strictEqual(yield* statusOf(target), "active")
      yield* block(others[3]!, target)
      assert.strictEqual(yield* statusOf(target), "suspended")
    }))

  it.effect("reports by agents that had blocked it before are recounted too (wire.md G.8)", () =>
    Effect.gen(function*() {
      const [target, others] = yield* spammer(2)
      for (const other of others) yield* block(other, target)
      for (const other of others) {
        assert.strictEqual(yield* statusOf(target), "active")
        yield* report(other, target)
      }
      assert.strictEqual(yield* statusOf(target), "suspended")
    }))

  it.effect("a recount that a node died before is swept", () =>
    Effect.gen(function*() {
      const [target, others] = yield* spammer(3)
      const conversations = yield* Conversations
      for (const { id } of others) {
        yield* conversations.block({
          agentId: id,
          blockedId: target.id,
          at: yield* Clock.currentTimeMillis,
          report: null
        })
      }
      assert.strictEqual(yield* statusOf(target), "active")
      yield* Effect.flatMap(Enforcement, (enforcement) => enforcement.sweep)
      assert.strictEqual(yield* statusOf(target), "restricted")
      yield* conversations.unblock({ agentId: others[0]!.id, blockedId: target.id })
      yield* Effect.flatMap(Enforcement, (enforcement) => enforcement.sweep)
      assert.strictEqual(yield* statusOf(target), "active")
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql`SELECT no FROM recounts`, [])
    }))

  it.effect("an evaluation that keeps failing does not delay the others, and is made once it can be", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const conversations = yield* Conversations
      const enforcement = yield* Enforcement
      const at = yield* Clock.currentTimeMillis
      const targets: Array<Party> = []
      for (let i = 0; i < 4; i++) {
        const [target, others] = yield* spammer(3)
        for (const { id } of others) yield* conversations.block({ agentId: id, blockedId: target.id, at, report: null })
        targets.push(target)
      }
      const [failing, ...judged] = targets as [Party, ...Array<Party>]
      yield* sql.unsafe(`ALTER TABLE agents ADD CONSTRAINT never_judged CHECK (id <> '${failing.id}' OR judged = 0)`)
      assert.deepStrictEqual(yield* enforcement.sweep, { rows: 3, more: true })
      for (const target of judged) assert.strictEqual(yield* statusOf(target), "restricted")
      assert.strictEqual(yield* statusOf(failing), "active")
      assert.deepStrictEqual(yield* enforcement.sweep, { rows: 0, more: false }, "it waits for the next sweep")
      yield* sql`ALTER TABLE agents DROP CONSTRAINT never_judged`
      yield* enforcement.sweep
      assert.strictEqual(yield* statusOf(failing), "restricted")
    }))

  it.effect("all agents that were suspended in the same millisecond are disconnected, even if they are more than are read at once", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const liveAgents = yield* LiveAgents
      const watch = yield* EnforcementWatch
      const everybody = yield* newAgents(1_001)
      let left = everybody.length
      for (const { id } of everybody) {
        const session: LiveSession = {
          hint: () => {},
          echo: () => {},
          event: () => {},
          close: () => {
            left--
            liveAgents.detach(id, session)
          }
        }
        liveAgents.attach(id, session)
      }
      yield* sql`
        UPDATE agents SET status = 'suspended', suspended_at = ${yield* Clock.currentTimeMillis}
        WHERE ${sql.in("id", everybody.map(({ id }) => id))}`
      yield* readNow(watch.poll)
      assert.strictEqual(left, 0)
    }))

  it.effect("a suspension that was committed after a poll, with a time before it, is found by the next poll (wire.md G.8b)", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const liveAgents = yield* LiveAgents
      const watch = yield* EnforcementWatch
      const agents = yield* Agents
      const [target] = yield* newAgents(1)
      const closed: Array<number> = []
      liveAgents.attach(target!.id, {
        hint: () => {},
        echo: () => {},
        event: () => {},
        close: ({ code }) => void closed.push(code)
      })
      yield* readNow(watch.poll)
      assert.strictEqual((yield* agents.byHandle(target!.handle))?.status, "active")
      // Another node's clock is behind this one's, or its commit took a while.
      const suspendedAt = (yield* Clock.currentTimeMillis) - 10_000
      yield* sql`UPDATE agents SET status = 'suspended', suspended_at = ${suspendedAt} WHERE id = ${target!.id}`
      yield* readNow(watch.poll)
      assert.deepStrictEqual(closed, [1008])
      assert.strictEqual((yield* agents.byHandle(target!.handle))?.status, "suspended")
    }))

  it.effect("an evaluation of an older state is refused, so that neither a restore nor an unblock is lost", () =>
    Effect.gen(function*() {
      const repo = yield* EnforcementRepo
      const conversations = yield* Conversations
      const enforcement = yield* Enforcement
      const at = yield* Clock.currentTimeMillis
      const [target, others] = yield* spammer(3)
      const found = (agentId: string) =>
        Effect.map(repo.load(agentId, at - 300_000, { blocks: 5, reports: 2 }), (one) => one!)
      const stale = (agentId: string, judged: number, due: ReadonlyArray<number>) => ({ agentId, judged, due, at })
      for (const { id } of others) {
        yield* conversations.block({ agentId: id, blockedId: target.id, at, report: { id: `rpt_${id}`, reason: null } })
      }
      const damning = yield* found(target.id)
      assert.lengthOf(damning.reports, 2)
      yield* enforcement.restore({ agentId: target.id, operator: "ops", reason: null })
      assert.isFalse(
        yield* repo.judge({
          ...stale(target.id, damning.judged, damning.due),
          restrictedUntil: at + 60_000,
          suspension: "2 reports"
        })
      )
      assert.strictEqual(yield* statusOf(target), "active")
      assert.deepStrictEqual((yield* found(target.id)).due, damning.due, "what was refused answers no recount")
      yield* enforcement.sweep
      assert.strictEqual(yield* statusOf(target), "active")

      const [other, blockers] = yield* spammer(3)
      for (const { id } of blockers) yield* conversations.block({ agentId: id, blockedId: other.id, at, report: null })
      const restricting = yield* found(other.id)
      yield* unblock(blockers[0]!, other)
      assert.isFalse(
        yield* repo.judge({
          ...stale(other.id, restricting.judged, restricting.due),
          restrictedUntil: at + 60_000,
          suspension: null
        })
      )
      assert.strictEqual(yield* statusOf(other), "active")
    }))

  it.effect("groups are handed over once a suspension is seen, and are otherwise looked for every five seconds", () =>
    Effect.gen(function*() {
      const [target] = (yield* newAgents(1)) as [Party]
      const enforcement = yield* Enforcement
      const watch = yield* EnforcementWatch
      const sql = yield* SqlClient.SqlClient
      const queue = sql`INSERT INTO handovers (agent_id, since) VALUES ('agt_none', 0)`
      const handedOver = Effect.map(watch.handOverDue, ({ rows }) => rows)
      yield* readNow(watch.poll)
      yield* handedOver
      yield* queue
      assert.strictEqual(yield* handedOver, 0)
      yield* enforcement.suspend({ agentId: target.id, operator: "ops", reason: null })
      yield* readNow(watch.poll)
      assert.strictEqual(yield* handedOver, 2)
      yield* readNow(watch.poll)
      yield* queue
      assert.strictEqual(yield* handedOver, 0)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* handedOver, 1)
      // What fails stays due.
      yield* sql`INSERT INTO group_members (group_id, agent_id, role, joined_at, joined_seq) VALUES ('none', 'agt_none', 'admin', 0, 0)`
      yield* queue
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* tagOf(watch.handOverDue), "Unavailable")
      yield* sql`DELETE FROM group_members WHERE agent_id = 'agt_none'`
      assert.strictEqual(yield* handedOver, 1)
    }))

  it.effect("a suspended agent is sent to without a cap, replays nothing, and hands over the groups that it alone led", () =>
    Effect.gen(function*() {
      const [target, peer] = (yield* newAgents(2)) as [Party, Party]
      const groups = yield* Groups
      const conversations = yield* Conversations
      const enforcement = yield* Enforcement
      const watch = yield* EnforcementWatch
      const { add_results, group } = yield* groups.create(target, {
        profile: { name: "Band", description: null, avatarUrl: null },
        handles: [peer.handle]
      })
      yield* groups.accept(peer, add_results[0]?.invite_id ?? "")
      const opening = draft("opening")
      const toPeer = { _tag: "Direct", handle: peer.handle } as const
      yield* conversations.send(target, toPeer, opening)
      assert.strictEqual(yield* tagOf(conversations.send(target, toPeer, opening)), "ok", "a replay")
      assert.isTrue(yield* enforcement.suspend({ agentId: target.id, operator: "ops", reason: "because" }))
      assert.isFalse(yield* enforcement.suspend({ agentId: target.id, operator: "ops", reason: "again" }))
      assert.strictEqual(yield* tagOf(conversations.send(target, toPeer, opening)), "AgentSuspended")
      assert.strictEqual(yield* tagOf(say(target, peer)), "AgentSuspended")
      const sql = yield* SqlClient.SqlClient
      // One that cannot be replaced, and whose turn comes before.
      yield* sql`INSERT INTO group_members (group_id, agent_id, role, joined_at, joined_seq) VALUES ('none', 'agt', 'admin', 0, 0)`
      yield* sql`INSERT INTO handovers (agent_id, since) VALUES ('agt', 0)`
      assert.strictEqual(yield* tagOf(watch.handOver), "Unavailable")
      assert.deepStrictEqual(
        (yield* groups.get(peer.id, group.id)).members.map(({ handle, role }) => `${handle} ${role}`),
        [`${target.handle} admin`, `${peer.handle} admin`]
      )
      assert.deepStrictEqual(yield* sql`SELECT agent_id FROM handovers`, [{ agent_id: "agt" }])
      yield* sql`DELETE FROM group_members WHERE agent_id = 'agt'`
      assert.deepStrictEqual(yield* watch.handOver, { rows: 1, more: false })
      assert.deepStrictEqual(yield* sql`SELECT agent_id FROM handovers`, [])
      yield* sql`UPDATE inboxes SET undelivered = 1000000 WHERE agent_id = ${target.id}`
      assert.strictEqual(yield* tagOf(say(peer, target)), "ok")
      yield* enforcement.restore({ agentId: target.id, operator: "ops", reason: null })
      assert.strictEqual(yield* tagOf(say(target, peer)), "ok")
      assert.strictEqual(yield* tagOf(say(peer, target)), "RecipientBacklogged")
    }))
}

layer(layerModules(layerPgliteTest, small))("enforcement on PGlite", suite)

if (isInstalled(18)) layer(layerModules(layerPostgresTest(18), small))("enforcement on PostgreSQL 18", suite)

/** Two processes that both believe they own everything: only the statements order what they do. */
const twoNodes = Effect.gen(function*() {
  const url = Redacted.make(yield* Effect.promise(() => freshDatabase(18)))
  const node = Effect.map(
    Layer.build(Layer.fresh(layerModules(layerPg({ url, poolSize: 8 }), { LIMITS_SENDS_PER_SECOND: 1_000_000 }))),
    (context) =>
    <A, E>(
      effect: Effect.Effect<A, E, Agents | Contacts | Conversations | Enforcement | SqlClient.SqlClient>
    ) => Effect.provide(effect, context)
  )
  return [yield* node, yield* node] as const
})

const live = <A, E>(effect: Effect.Effect<A, E, Scope.Scope>) =>
  Effect.scoped(Effect.provideService(effect, Clock.Clock, Clock.Clock.defaultValue()))

describe.skipIf(!isInstalled(18))("enforcement over two nodes, PostgreSQL 18", () => {
  it.effect("15 blocks at once end restricted, 14 of them do not, 10 reports at once suspend", () =>
    live(Effect.gen(function*() {
      const nodes = yield* twoNodes
      for (let round = 0; round < 6; round++) {
        const [target, others] = yield* nodes[0](spammer(15))
        const all = others.map((other, i) =>
          nodes[i % 2]!(round < 3 ? block(other, target) : round === 3 && i === 0 ? Effect.void : report(other, target))
        )
        yield* Effect.all(round >= 4 ? all.slice(0, 10) : all, { concurrency: "unbounded" })
        assert.strictEqual(
          yield* nodes[1](statusOf(target)),
          round < 3 ? "restricted" : "suspended"
        )
      }
      const [target, others] = yield* nodes[0](spammer(15))
      yield* Effect.all(
        others.map((other, i) =>
          nodes[i % 2]!(i === 0 ? Effect.andThen(block(other, target), unblock(other, target)) : block(other, target))
        ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(yield* nodes[0](statusOf(target)), "active")
      assert.deepStrictEqual(
        yield* nodes[0](Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT no FROM recounts`)),
        []
      )
    })))

  it.effect("a restore beside the report that would suspend is not lost, nor is a suspension beside an unblock", () =>
    live(Effect.gen(function*() {
      const nodes = yield* twoNodes
      for (let round = 0; round < 12; round++) {
        const [target, others] = yield* nodes[0](spammer(12))
        const decision = { agentId: target.id, operator: "ops", reason: null }
        for (const other of others.slice(0, 9)) yield* nodes[0](report(other, target))
        const restores = round % 3 !== 2
        yield* Effect.all([
          ...others.slice(9).map((other, i) => nodes[i % 2]!(report(other, target))),
          ...others.slice(0, 3).map((other, i) => nodes[i % 2]!(unblock(other, target))),
          nodes[round % 2]!(
            Effect.flatMap(
              Enforcement,
              (enforcement) => restores ? enforcement.restore(decision) : enforcement.suspend(decision)
            )
          )
        ], { concurrency: "unbounded" })
        // Either the three reports came before, and count no more, or they are the only ones since.
        assert.strictEqual(yield* nodes[0](statusOf(target)), restores ? "active" : "suspended", `round ${round}`)
      }
    })))
})
