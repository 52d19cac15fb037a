import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Contacts } from "#domain/contacts/Contacts"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { AgentAdmin } from "#doors/operator/AgentAdmin"
import { AuditLog } from "#doors/operator/AuditLog"
import { ConsoleAccess } from "#doors/operator/ConsoleAccess"
import { DeadDeliveries } from "#doors/operator/DeadDeliveries"
import { Operator } from "#doors/operator/Operator"
import type { OperatorCommand } from "#doors/operator/OperatorCommand"
import { Reports } from "#doors/operator/Reports"
import { layerPgliteTest } from "../support/Databases.ts"
import { layerRooms, newAgents, type Party } from "../support/Rooms.ts"

const room = Layer.mergeAll(AgentAdmin.layer, AuditLog.layer, ConsoleAccess.layer, DeadDeliveries.layer, Operator.layer, Reports.layer).pipe(
  Layer.provideMerge(layerRooms(layerPgliteTest))
)

/** The data of a command's answer. */
const run = (command: OperatorCommand) => Effect.flatMap(Operator, (operator) => Effect.map(operator.run(command), ({ data }) => data))

/** The changes of an agent that the audit log has, the newest first. */
const changesOf = (agent: Party) =>
  Effect.flatMap(AuditLog, (audit) =>
    Effect.map(audit.list({ handle: agent.handle, operator: null, looks: false, before: null, limit: 10 }), (entries) =>
      entries.map(({ action, detail, operator }) => ({ action, detail, operator }))))

layer(room)((it) => {
  it.effect("the command line and the console leave out the same entries as reads", () =>
    Effect.gen(function*() {
      const [agent] = yield* newAgents(1)
      const access = yield* ConsoleAccess
      const audit = yield* AuditLog
      yield* access.program("eve", "a program", 1)
      yield* access.errand("eve")
      yield* run({ _tag: "Show", handle: agent!.handle, operator: "eve" })
      yield* run({ _tag: "Reports", limit: 1, state: null, operator: "eve" })
      const command = { _tag: "Audit", limit: 10, handle: null, by: "eve", operator: "ada" } as const
      const actions = (entries: unknown) => (entries as ReadonlyArray<{ readonly action: string }>).map(({ action }) => action)
      assert.deepStrictEqual(actions(yield* run({ ...command, looks: false })), ["make program token"])
      const all = yield* audit.list({ handle: null, operator: "eve", looks: true, before: null, limit: 10 })
      assert.deepStrictEqual(actions(all), ["list reports", "show", "ask a server", "make program token"])
      assert.deepStrictEqual(actions(yield* run({ ...command, looks: true })), actions(all))
    }))

  it.effect("a report is decided once, with one entry in the audit log", () =>
    Effect.gen(function*() {
      const [reporter, reported] = yield* newAgents(2)
      const reports = yield* Reports
      yield* Effect.flatMap(Contacts, (contacts) => contacts.report(reporter!.id, reported!.handle, "spam"))
      const open = () => reports.list({ state: "open", agent: reported!.handle, after: null, limit: 10 })
      const { id } = (yield* open())[0]!
      const decision = { id, operator: "ada", note: "a quarrel" } as const
      const decided = yield* reports.decide({ ...decision, state: "dismissed" })
      assert.deepInclude(decided, { reported: reported!.handle, state: "dismissed", decidedBy: "ada", note: "a quarrel", counts: false })
      assert.deepStrictEqual(yield* open(), [])
      const again = yield* Effect.flip(reports.decide({ ...decision, state: "upheld", operator: "eve" }))
      assert.deepInclude(again, { _tag: "Conflict", message: "ada has already dismissed this report." })
      const unknown = yield* Effect.flip(reports.decide({ ...decision, id: "rpt_none", state: "upheld" }))
      assert.strictEqual(unknown._tag, "NotFound")
      assert.deepStrictEqual(yield* changesOf(reported!), [{ action: "dismiss report", detail: `${id}: a quarrel`, operator: "ada" }])
      const listed = (yield* run({ _tag: "Reports", limit: 10, state: "dismissed", operator: "ada" })) as ReadonlyArray<object>
      assert.deepInclude(listed[0], { id, reporter: reporter!.handle, reported: reported!.handle, reason: "spam", state: "dismissed", counts: false })
    }))

  it.effect("a retry makes dead deliveries due, activates and wakes their webhook, and has one entry in the audit log", () =>
    Effect.gen(function*() {
      const [agent] = yield* newAgents(1)
      const deadDeliveries = yield* DeadDeliveries
      const sql = yield* SqlClient.SqlClient
      const woken: Array<string> = []
      yield* Effect.map(WebhookSignals, (signals) => signals.listen((id) => woken.push(id)))
      const webhook = `whk_${agent!.handle}`
      yield* sql`
        INSERT INTO webhooks (id, agent_id, slot, url, events, secret, active, dead_in_a_row, paused_until, created_at)
        VALUES (${webhook}, ${agent!.id}, 1, 'https://example.com/', ARRAY['message.new'], 'x', false, 9, ${Number.MAX_SAFE_INTEGER}, 0)`
      yield* sql`
        INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, attempts, finished_at, delivered, failure)
        SELECT ${webhook}, 'message.new', 'msg_' || i, i, 6, i, false, 'answered 500' FROM generate_series(1, 3) i`
      const dead = () => deadDeliveries.list({ agent: agent!.handle, webhook: null, after: null, limit: 10 })
      const [last, ...others] = yield* dead()
      assert.deepInclude(last, { agent: agent!.handle, webhookId: webhook, active: false, attempts: 6, failure: "answered 500", deadAt: 3 })
      assert.deepStrictEqual(yield* run({ _tag: "DeadWebhooks", limit: 1, operator: "ada" }), [
        {
          no: last!.no,
          handle: agent!.handle,
          webhook_id: webhook,
          url: "https://example.com/",
          event: "message.new",
          attempts: 6,
          failure: "answered 500",
          dead_at: "1970-01-01T00:00:00.003Z"
        }
      ])
      assert.strictEqual(yield* deadDeliveries.retry({ no: last!.no }, "ada"), 1)
      assert.deepStrictEqual((yield* dead()).map(({ active, no }) => ({ active, no })), others.map(({ no }) => ({ active: true, no })))
      assert.strictEqual(yield* deadDeliveries.retry({ agent: agent!.handle }, "ada"), 2)
      assert.deepStrictEqual(woken, [agent!.id, agent!.id])
      assert.strictEqual(yield* deadDeliveries.retry({ no: last!.no }, "ada"), 0)
      assert.strictEqual(yield* deadDeliveries.retry({ agent: agent!.handle }, "ada"), 0)
      const retried = { action: "retry webhook", detail: webhook, operator: "ada" }
      const none = { action: "retry webhooks", detail: "all: none is dead", operator: "ada" }
      assert.deepStrictEqual(yield* changesOf(agent!), [none, retried, retried])
    }))

  it.effect("an agent is suspended once and restored, each with one entry in the audit log; a deleted agent is neither", () =>
    Effect.gen(function*() {
      const [agent] = yield* newAgents(1)
      const agents = yield* AgentAdmin
      const sql = yield* SqlClient.SqlClient
      const found = yield* agents.find(agent!.handle)
      const because = { operator: "ada", reason: "a test" }
      yield* agents.suspend(found, because)
      assert.deepInclude(yield* agents.find(agent!.handle), { status: "suspended" })
      const again = { _tag: "Suspend", handle: `@${agent!.handle}`, operator: "eve", reason: null } as const
      assert.strictEqual((yield* Effect.flip(run(again))).message, `${agent!.handle} is suspended already.`)
      yield* agents.restore(found, because)
      assert.deepStrictEqual(yield* changesOf(agent!), ["restore", "suspend"].map((action) => ({ action, detail: "a test", operator: "ada" })))
      yield* sql`UPDATE agents SET deleted_at = 0 WHERE id = ${agent!.id}`
      const deleted = yield* agents.find(agent!.handle)
      for (const change of [agents.suspend, agents.restore]) {
        const message = `${agent!.handle} was deleted at 1970-01-01T00:00:00.000Z.`
        assert.deepInclude(yield* Effect.flip(change(deleted, because)), { _tag: "NotFound", message })
      }
      assert.lengthOf(yield* changesOf(agent!), 2)
    }))
})
