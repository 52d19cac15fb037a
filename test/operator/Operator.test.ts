import { Budgets } from "#domain/auth/Budgets"
import { Contacts } from "#domain/contacts/Contacts"
import { Groups } from "#domain/groups/Groups"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { Clients } from "#domain/oauth/Clients"
import { Grants } from "#domain/oauth/Grants"
import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { SharedPoll } from "#infrastructure/database/SharedPoll"
import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { Readiness } from "#infrastructure/platform/Readiness"
import { callsOf } from "#interfaces/admin/AdminSocket"
import { answerOf, type ApiCall, get, type OperatorRefused, post } from "#interfaces/admin/ApiCall"
import { AccountRescue } from "#interfaces/operator/AccountRescue"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { AuditLog, withoutAddresses } from "#interfaces/operator/AuditLog"
import { Backups } from "#interfaces/operator/Backups"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { DeadDeliveries } from "#interfaces/operator/DeadDeliveries"
import { Erasure } from "#interfaces/operator/Erasure"
import { GrantAdmin } from "#interfaces/operator/GrantAdmin"
import { Invitations } from "#interfaces/operator/Invitations"
import { LimitChanges } from "#interfaces/operator/LimitChanges"
import { NearLimits } from "#interfaces/operator/NearLimits"
import { NewAgents } from "#interfaces/operator/NewAgents"
import { NodeProblems } from "#interfaces/operator/NodeProblems"
import { Nodes } from "#interfaces/operator/Nodes"
import { NodeSampler } from "#interfaces/operator/NodeSampler"
import { OperatedGroups } from "#interfaces/operator/OperatedGroups"
import { Removals } from "#interfaces/operator/Removals"
import { Reports } from "#interfaces/operator/Reports"
import { RestoredCounters } from "#interfaces/operator/RestoredCounters"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { createHash, randomBytes } from "node:crypto"
import { CommandLineHttp } from "../../src/Console.ts"
import { changeableLimits } from "../../src/Limits.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { layerModules, newAgent, newAgents, type Party } from "../support/Modules.ts"

/** No socket is open. */
const noSockets = Layer.succeed(
  UpgradeHandler,
  UpgradeHandler.of({
    path: "/v1/ws",
    upgrade: () => undefined,
    turnAway: () => undefined,
    drain: Effect.void,
    welcomeAgain: () => undefined,
    size: () => 0
  })
)

/** Calls of the operators' API by the command line of an operator, in this process. */
class Calls extends Context.Service<Calls, {
  readonly by: (operator: string, call: ApiCall) => Effect.Effect<unknown, OperatorRefused>
}>()("test/operator/Calls") {
  static readonly layer = Layer.effect(
    Calls,
    Effect.map(callsOf(CommandLineHttp), (called) =>
      Calls.of({
        by: (operator, call) => Effect.flatMap(called(operator, call), (response) => answerOf(response, "no answer"))
      }))
  )
}

const services = Layer.mergeAll(
  AccountRescue.layer,
  AgentAdmin.layer,
  AuditLog.layer,
  Layer.provide(Backups.layer, AuditLog.layer),
  GrantAdmin.layer,
  ConsoleAccess.layer,
  DeadDeliveries.layer,
  Erasure.layer,
  Invitations.layer,
  LimitChanges.layer(changeableLimits),
  NearLimits.layer,
  NewAgents.layer,
  NodeProblems.layer,
  Nodes.layer,
  OperatedGroups.layer,
  Removals.layer,
  Reports.layer,
  RestoredCounters.layer
)
const module = Calls.layer.pipe(
  Layer.provideMerge(services),
  Layer.provide(Budgets.layer),
  Layer.provide(NodeSampler.layer),
  Layer.provide([noSockets, NodeRpc.layerAlone, Readiness.layer, SharedPoll.layer]),
  Layer.provideMerge(layerModules(layerPgliteTest))
)

/** The answer to a call. */
const call = <A>(operator: string, given: ApiCall): Effect.Effect<A, OperatorRefused, Calls> =>
  Effect.map(Effect.flatMap(Calls, ({ by }) => by(operator, given)), (answer) => answer as A)

/** The actions and details of an operator's changes, the newest first. */
const changesBy = (operator: string) =>
  Effect.flatMap(
    AuditLog,
    (audit) =>
      Effect.map(audit.list({ handle: null, operator, looks: false, before: null, limit: 10 }), (entries) =>
        entries.map(({ action, detail }) => [action, detail]))
  )

/** The changes of an agent that the audit log has, the newest first. */
const changesOf = (agent: Party) =>
  Effect.flatMap(
    AuditLog,
    (audit) =>
      Effect.map(
        audit.list({ handle: agent.handle, operator: null, looks: false, before: null, limit: 10 }),
        (entries) => entries.map(({ action, detail, operator }) => ({ action, detail, operator }))
      )
  )

layer(module)((it) => {
  it.effect("agents list shows every account once, in pages, and those with one status", () =>
    Effect.gen(function*() {
      const operator = "olga"
      const [one, two, three] = yield* newAgents(3)
      yield* call(operator, post(`/agents/${two!.handle}/suspend`, {}))
      type Page = {
        readonly agents: ReadonlyArray<{ readonly handle: string; readonly status: string }>
        readonly next_cursor: string | null
      }
      const list = (query: string) => call<Page>(operator, get(`/agents?${query}`))
      const all = yield* list("limit=1000")
      assert.includeMembers(all.agents.map(({ handle }) => handle), [one!.handle, two!.handle, three!.handle])
      assert.isNull(all.next_cursor)
      const walked: Array<unknown> = []
      let cursor = ""
      do {
        const page: Page = yield* list(`limit=2${cursor}`)
        walked.push(...page.agents)
        cursor = page.next_cursor === null ? "" : `&cursor=${page.next_cursor}`
      } while (cursor !== "")
      assert.deepStrictEqual(walked, [...all.agents])
      const suspended = yield* list("status=suspended")
      assert.isTrue(suspended.agents.every(({ status }) => status === "suspended"))
      assert.include(suspended.agents.map(({ handle }) => handle), two!.handle)
      assert.include((yield* Effect.flip(list("cursor=bm90aGluZw"))).message, "cursor")
      const audit = yield* AuditLog
      const [entry] = yield* audit.list({ handle: null, operator, looks: true, before: null, limit: 1 })
      assert.deepInclude(entry, { action: "show agents", detail: "npm run admin ?cursor=bm90aGluZw" })
    }))

  it.effect("a list of changes leaves out the entries of reads, also of those by the command line", () =>
    Effect.gen(function*() {
      const [agent] = yield* newAgents(1)
      const access = yield* ConsoleAccess
      const audit = yield* AuditLog
      yield* access.program("eve", "a program", 1, "operator")
      yield* access.commandToken("eve")
      yield* call("eve", get(`/agents/${agent!.handle}`))
      yield* call("eve", get("/reports?limit=1"))
      const list = (looks: boolean) =>
        call<{ readonly entries: ReadonlyArray<{ readonly action: string }> }>(
          "ada",
          get(`/audit?operator=eve&looks=${looks}`)
        )
      const actions = (entries: ReadonlyArray<{ readonly action: string }>) => entries.map(({ action }) => action)
      assert.deepStrictEqual(actions((yield* list(false)).entries), ["make program token"])
      const all = yield* audit.list({ handle: null, operator: "eve", looks: true, before: null, limit: 10 })
      assert.deepStrictEqual(actions(all), ["show reports", "show agent", "ask a server", "make program token"])
      assert.deepStrictEqual(actions((yield* list(true)).entries), actions(all))
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
      assert.deepInclude(decided, {
        reported: reported!.handle,
        state: "dismissed",
        decidedBy: "ada",
        note: "a quarrel",
        counts: false
      })
      assert.deepStrictEqual(yield* open(), [])
      const again = yield* Effect.flip(reports.decide({ ...decision, state: "upheld", operator: "eve" }))
      assert.deepInclude(again, { _tag: "Conflict", message: "ada has already dismissed this report." })
      const unknown = yield* Effect.flip(reports.decide({ ...decision, id: "rpt_none", state: "upheld" }))
      assert.strictEqual(unknown._tag, "NotFound")
      assert.deepStrictEqual(yield* changesOf(reported!), [{
        action: "dismiss report",
        detail: `${id}: a quarrel`,
        operator: "ada"
      }])
      const listed = yield* call<{ readonly reports: ReadonlyArray<object> }>("ada", get("/reports?state=all"))
      assert.deepInclude(listed.reports[0], {
        id,
        reporter: reporter!.handle,
        reported: reported!.handle,
        reason: "spam",
        state: "dismissed",
        counts: false
      })
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
        VALUES (${webhook}, ${
        agent!.id
      }, 1, 'https://example.com/', ARRAY['message.new'], 'x', false, 9, ${Number.MAX_SAFE_INTEGER}, 0)`
      yield* sql`
        INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, attempts, finished_at, delivered, failure)
        SELECT ${webhook}, 'message.new', 'msg_' || i, i, 6, i, false, 'answered 500' FROM generate_series(1, 3) i`
      const dead = () => deadDeliveries.list({ agent: agent!.handle, webhook: null, after: null, limit: 10 })
      const [last, ...others] = yield* dead()
      assert.deepInclude(last, {
        agent: agent!.handle,
        webhookId: webhook,
        active: false,
        attempts: 6,
        failure: "answered 500",
        deadAt: 3
      })
      assert.strictEqual(yield* deadDeliveries.retry({ no: last!.no }, "ada"), 1)
      assert.deepStrictEqual(
        (yield* dead()).map(({ active, no }) => ({ active, no })),
        others.map(({ no }) => ({ active: true, no }))
      )
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
      const again = call("eve", post(`/agents/@${agent!.handle}/suspend`, {}))
      assert.strictEqual((yield* Effect.flip(again)).message, `${agent!.handle} is suspended already.`)
      yield* agents.restore(found, because)
      assert.deepStrictEqual(
        yield* changesOf(agent!),
        [
          { action: "restore", detail: "a test", operator: "ada" },
          {
            action: "refused suspend",
            detail: `npm run admin ${withoutAddresses(`/console/api/agents/@${agent!.handle}/suspend`)}`,
            operator: "eve"
          },
          { action: "suspend", detail: "a test", operator: "ada" }
        ]
      )
      yield* sql`UPDATE agents SET deleted_at = 0 WHERE id = ${agent!.id}`
      const deleted = yield* agents.find(agent!.handle)
      for (const change of [agents.suspend, agents.restore]) {
        const message = `${agent!.handle} was deleted at 1970-01-01T00:00:00.000Z.`
        assert.deepInclude(yield* Effect.flip(change(deleted, because)), { _tag: "NotFound", message })
      }
      assert.lengthOf(yield* changesOf(agent!), 3)
    }))

  it.effect("a limit is changed for all or for one agent and taken back, each with one entry; what it cannot be is refused", () =>
    Effect.gen(function*() {
      const [agent] = yield* newAgents(1)
      const limits = yield* LimitChanges
      const change = (changed: Partial<Parameters<typeof limits.change>[0]>) =>
        limits.change({
          name: "LIMITS_CARDS_PER_MINUTE",
          agent: null,
          operator: "lima",
          value: 7,
          until: null,
          reason: null,
          ...changed
        })
      const refused = [
        [{ name: "LIMITS_NONE" }, "NotFound"],
        [{ name: "LIMITS_BODY_BYTES", value: 2_000 }, "Conflict"],
        [{ value: 0 }, "ValidationFailed"],
        [{ until: -1 }, "ValidationFailed"],
        [{ until: Number.NaN }, "ValidationFailed"],
        [{ agent: "nobody-at-all" }, "NotFound"],
        [{ name: "LIMITS_REGISTER_PER_HOUR", agent: agent!.handle }, "ValidationFailed"]
      ] as const
      for (const [changed, tag] of refused)
        assert.strictEqual((yield* Effect.flip(change(changed)))._tag, tag, JSON.stringify(changed))
      assert.strictEqual(
        (yield* Effect.flip(limits.takeBack({ name: "LIMITS_CARDS_PER_MINUTE", agent: null, operator: "lima" })))._tag,
        "NotFound"
      )
      assert.deepStrictEqual(yield* changesBy("lima"), [])

      assert.deepInclude(yield* change({}), { value: 7, per: "agent", canChange: true })
      assert.strictEqual((yield* change({ agent: agent!.handle, value: 9, reason: "a test" })).value, 9)
      const valueFor = (handle: string | null) =>
        Effect.map(limits.list(handle), (all) => all.find(({ name }) => name === "LIMITS_CARDS_PER_MINUTE")?.value)
      assert.deepStrictEqual([yield* valueFor(null), yield* valueFor(agent!.handle)], [7, 9])
      yield* limits.takeBack({ name: "LIMITS_CARDS_PER_MINUTE", agent: agent!.handle, operator: "lima" })
      assert.strictEqual(yield* valueFor(agent!.handle), 7)
      yield* limits.takeBack({ name: "LIMITS_CARDS_PER_MINUTE", agent: null, operator: "lima" })
      assert.deepStrictEqual(yield* changesBy("lima"), [
        ["take limit back", "LIMITS_CARDS_PER_MINUTE"],
        ["take limit back", "LIMITS_CARDS_PER_MINUTE"],
        ["change limit", "LIMITS_CARDS_PER_MINUTE = 9: a test"],
        ["change limit", "LIMITS_CARDS_PER_MINUTE = 7"]
      ])
    }))

  it.effect("a node is drained once and serves again, and an agent is disconnected, each with one entry in the audit log", () =>
    Effect.gen(function*() {
      const [agent] = yield* newAgents(1)
      const agents = yield* AgentAdmin
      const nodes = yield* Nodes
      const self = nodes.self()
      assert.strictEqual((yield* nodes.drain(self, "nora")).state, "drained")
      assert.notStrictEqual((yield* nodes.undrain(self, "nora")).state, "drained")
      const { log_level: before } = yield* nodes.one(self)
      assert.strictEqual((yield* nodes.logLevel(self, "debug", "nora")).log_level, "debug")
      yield* nodes.logLevel(self, before ?? "info", "nora")
      const found = yield* agents.find(agent!.handle)
      assert.deepStrictEqual(yield* nodes.disconnect(found, { operator: "nora", reason: "a test" }), {
        closed: 0,
        silent: []
      })
      assert.strictEqual(
        (yield* Effect.flip(nodes.disconnect({ ...found, deletedAt: 0 }, { operator: "nora", reason: null })))._tag,
        "NotFound"
      )
      assert.deepStrictEqual(yield* changesBy("nora"), [
        ["disconnect", "a test"],
        ["set log level", `${self} ${before}`],
        ["set log level", `${self} debug`],
        ["undrain", self],
        ["drain", self]
      ])
      assert.strictEqual((yield* Effect.flip(nodes.one("10.9.9.9:1")))._tag, "NotFound")
    }))

  const verifier = randomBytes(32).toString("base64url")
  const challenge = createHash("sha256").update(verifier).digest("base64url")
  const client = { clientId: "https://host.example/client.json", redirectUri: "https://host.example/callback" }
  /** Makes a connection of the agent, and returns its code. */
  const connect = (agentId: string, changes: Partial<typeof client> = {}) =>
    Effect.flatMap(
      Grants,
      (connections) =>
        connections.connect({
          agentId,
          ...client,
          clientName: null,
          clientHost: "host.example",
          scopes: ["agent:read"],
          challenge,
          ...changes
        })
    )
  /** How many connections the agent has. */
  const connectionsOf = (agentId: string) =>
    Effect.flatMap(Grants, (connections) => Effect.map(connections.list(agentId), ({ length }) => length))

  it.effect("the connections of an agent, or of all, are counted and ended, with one entry in the audit log for the action and for each end", () =>
    Effect.gen(function*() {
      const [one, other] = [yield* newAgent("connected-one"), yield* newAgent("connected-other")]
      const admin = yield* GrantAdmin
      const found = yield* (yield* AgentAdmin).find(one.handle)
      for (const { id } of [one, one, other]) yield* connect(id)
      assert.strictEqual(yield* admin.count, 3)
      assert.strictEqual(yield* admin.endOf(found, { operator: "cora", reason: "a test" }), 2)
      assert.deepStrictEqual([yield* connectionsOf(one.id), yield* connectionsOf(other.id)], [0, 1])
      assert.strictEqual(yield* admin.endOf(found, { operator: "cora", reason: null }), 0)
      yield* connect(one.id)
      assert.strictEqual(yield* admin.endAll({ operator: "cora", reason: "a leak" }), 2)
      assert.strictEqual(yield* admin.count, 0)
      const ended = ["end connection", "con: ended by an operator"]
      const entries = (yield* changesBy("cora")).map((
        [action, detail]
      ) => [action, detail?.replace(/^con_[\w-]+/, "con") ?? null])
      assert.deepStrictEqual(entries, [
        ended,
        ended,
        ["end all connections", "a leak"],
        ["end connections", null],
        ended,
        ended,
        ["end connections", "a test"]
      ])
    }))

  it.effect("a refused client, or host of redirects, gets no token, its connections end, and it is allowed again, each with one entry", () =>
    Effect.gen(function*() {
      const agent = yield* newAgent("refusing")
      const admin = yield* GrantAdmin
      const clients = yield* Clients
      const connections = yield* Grants
      const because = { operator: "rita", reason: "a test" }
      const registered = clients.register({
        redirectUris: [client.redirectUri, "cursor://cb", "https://other.example/cb"],
        name: "A",
        method: "none"
      }).id
      const urisOf = Effect.map(clients.find(registered), (found) => found?.redirectUris.length ?? 0)
      const token = Effect.fnUntraced(function*(code: string, clientId: string) {
        const issued = yield* connections.redeem({ ...client, clientId, code, verifier })
        return "_tag" in issued ? issued._tag : issued
      })
      for (
        const [refused, left] of [
          [{ kind: "client", value: registered }, 0],
          [{ kind: "redirect_host", value: "host.example" }, 2]
        ] as const
      ) {
        const before = yield* token(yield* connect(agent.id, { clientId: registered }), registered)
        if (typeof before === "string") throw new Error(before)
        const spared = yield* connect(agent.id, {
          clientId: "https://spared.example/c",
          redirectUri: "https://spared.example/cb"
        })
        assert.strictEqual(yield* admin.refuse(refused, because), 1)
        assert.strictEqual((yield* Effect.flip(admin.refuse(refused, because)))._tag, "Conflict")
        assert.strictEqual(yield* urisOf, left)
        assert.strictEqual((yield* Effect.flip(connections.authenticate(before.access)))._tag, "Unauthorized")
        assert.deepInclude(yield* connections.refresh(before.refresh, registered), { _tag: "Unknown" })
        // A person may have allowed the client just before the refusal.
        const late = yield* connect(agent.id, { clientId: registered })
        assert.strictEqual(yield* token(late, registered), "Unknown")
        assert.deepInclude((yield* admin.refusals)[0], { ...refused, operator: "rita", reason: "a test" })
        yield* admin.allow(refused, because)
        assert.strictEqual((yield* Effect.flip(admin.allow(refused, because)))._tag, "NotFound")
        assert.isObject(yield* token(late, registered))
        assert.strictEqual(yield* urisOf, 3)
        const spare = yield* connections.redeem({
          code: spared,
          clientId: "https://spared.example/c",
          redirectUri: "https://spared.example/cb",
          verifier
        })
        assert.isTrue("access" in spare)
        yield* admin.endOf(yield* (yield* AgentAdmin).find(agent.handle), { operator: "ron", reason: null })
      }
      const entries = (yield* changesBy("rita")).map((
        [action, detail]
      ) => [action, detail?.replace(/^con_[\w-]+/, "con")])
      const ended = ["end connection", "con: ended by an operator"]
      const shown = `${registered.slice(0, 300)}: a test`
      assert.deepStrictEqual(entries, [
        ["allow redirect host", "host.example: a test"],
        ended,
        ["refuse redirect host", "host.example: a test"],
        ["allow client", shown],
        ended,
        ["refuse client", shown]
      ])
    }))

  it.effect("agents are created all or none, each with one entry in the audit log; a restored database's counters too", () =>
    Effect.gen(function*() {
      const [there] = yield* newAgents(1)
      const created = yield* NewAgents
      const given = { handles: ["created-one", "@Created-Two"], email: null, displayName: null, operator: "cara" }
      const refused = [
        [{ handles: ["created-one", there!.handle] }, "nor any other"],
        [{ handles: ["no_handle"] }, "cannot be a handle"],
        [{ email: "cara@example.com" }, "An address can have one account"],
        [{ handles: ["created-one"], email: "none" }, "is not an e-mail address"],
        [{ displayName: " " }, "A display name"]
      ] as const
      for (const [changed, message] of refused)
        assert.include((yield* Effect.flip(created.create({ ...given, ...changed }))).message, message)
      assert.deepStrictEqual(yield* changesBy("cara"), [])
      const made = yield* created.create(given)
      assert.deepStrictEqual(made.map(({ email, handle }) => [handle, email]), [
        ["created-one", "created-one@agents.invalid"],
        ["created-two", "created-two@agents.invalid"]
      ])
      yield* Effect.flatMap(RestoredCounters, (counters) => counters.moveOn("cara"))
      assert.deepStrictEqual(yield* changesBy("cara"), [["restored", null], ["create", null], ["create", null]])
    }))

  it.effect("an agent is erased, again too, each time with one entry in the audit log", () =>
    Effect.gen(function*() {
      const [agent] = yield* newAgents(1)
      const erasure = yield* Erasure
      for (let i = 0; i < 2; i++) {
        const erased = yield* erasure.erase({
          agentId: agent!.id,
          handle: agent!.handle,
          operator: "ada",
          reason: "asked by mail"
        })
        assert.include(erased.remains.map(({ what }) => what), "handle")
      }
      const entry = { action: "erase", detail: "asked by mail", operator: "ada" }
      assert.deepStrictEqual(yield* changesOf(agent!), [entry, entry])
    }))

  it.effect("groups are found by a part of their name or by a member, and shown with their members", () =>
    Effect.gen(function*() {
      const [founder, invited] = yield* newAgents(2)
      const groups = yield* OperatedGroups
      const { group } = yield* Effect.flatMap(
        Groups,
        (all) =>
          all.create(founder!, {
            profile: { name: "The Harbour Watch", description: null, avatarUrl: null },
            handles: [invited!.handle]
          })
      )
      for (const query of [{ name: "harbour", member: null }, { name: "", member: founder!.handle }]) {
        const found = yield* groups.find({ ...query, after: "", limit: 10 })
        assert.deepStrictEqual(found.map(({ id }) => id), [group.id])
      }
      const shown = yield* groups.one(group.id)
      assert.deepInclude(shown, { createdBy: founder!.handle, memberCount: 1, invites: 1 })
      assert.deepStrictEqual(shown.members.map(({ handle, role }) => [handle, role]), [[founder!.handle, "admin"]])
      assert.strictEqual((yield* Effect.flip(groups.one("grp_none")))._tag, "NotFound")
    }))
})
