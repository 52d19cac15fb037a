import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { Contacts } from "#domain/contacts/Contacts"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import type { PendingInvite } from "#domain/groups/Group"
import { GroupEntity } from "#domain/groups/GroupEntity"
import { Groups } from "#domain/groups/Groups"
import { groupsTables } from "#domain/groups/GroupsTables"
import { CurrentAttempt, IdempotentIds } from "#domain/idempotency/IdempotentIds"
import { LiveAgents } from "#domain/push/LiveAgents"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import type { Settings } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import type { Page } from "#infrastructure/wire/Page"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { entityClient } from "../support/AsACaller.ts"
import {
  eachDatabase,
  freshDatabase,
  layerPgliteTest,
  layerPostgresTest,
  type TestDatabase
} from "../support/Databases.ts"
import { sweepExpired } from "../support/Expiry.ts"
import { UNSOUND } from "../support/Invariants.ts"
import { leap, setBack } from "../support/Leap.ts"
import { draft, layerModules, newAgents as agents, type Party } from "../support/Modules.ts"

const profile = { name: "Band", description: null, avatarUrl: null }

const newGroup = (creator: Party, invited: ReadonlyArray<Party>) =>
  Effect.flatMap(Groups, (groups) => groups.create(creator, { profile, handles: invited.map(({ handle }) => handle) }))

/** A group in which everybody has accepted, in this order. */
const joinedGroup = (creator: Party, members: ReadonlyArray<Party>) =>
  Effect.gen(function*() {
    const groups = yield* Groups
    const { add_results, group } = yield* newGroup(creator, members)
    for (const member of members) {
      const result = add_results.find(({ handle }) => handle === member.handle)
      yield* groups.accept(member, result?.invite_id ?? "")
    }
    return group.id
  })

const say = (from: Party, groupId: string, text: string) =>
  Effect.flatMap(
    Conversations,
    (conversations) =>
      conversations.send(from, { _tag: "Conversation", id: groupId }, draft(`${from.id} ${text}`, text))
  )

interface Row {
  readonly id: string
  readonly seq: number
  readonly sender: string
  readonly type: string
  readonly status: string
  readonly client_msg_id: string
  readonly content: { readonly text?: string; readonly data?: Readonly<Record<string, unknown>> }
  readonly context: { readonly conversation: unknown }
}

const rows = (texts: ReadonlyArray<string>): ReadonlyArray<Row> => texts.map((text) => JSON.parse(text) as Row)

const inbox = (agent: Party) =>
  Effect.flatMap(Deliveries, (deliveries) => Effect.map(deliveries.sync(agent.id, undefined, 500), rows))

const history = (agent: Party, groupId: string) =>
  Effect.flatMap(
    Conversations,
    (conversations) =>
      Effect.map(conversations.history(agent.id, groupId, { limit: 200, before: null, after: 0, around: null }), rows)
  )

const saidOf = (all: ReadonlyArray<Row>) => all.map((row) => row.content.data?.["event"] ?? row.content.text)

const tagOf = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onSuccess: () => "Done", onFailure: ({ _tag }) => _tag })

const assertSound = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  assert.deepStrictEqual(yield* sql.unsafe(UNSOUND), [])
})

const modules = (database: TestDatabase, changes: Partial<Settings> = {}) =>
  layerModules(database, {
    LIMITS_SENDS_PER_SECOND: 1_000_000,
    LIMITS_GROUP_INVITES_PER_DAY: 20,
    LIMITS_GROUP_MEMBERS: 6,
    ...changes
  })

eachDatabase((database) => {
  describe("groups", () => {
    it.effect("members get messages from their join on, and no other agent does", () =>
      Effect.gen(function*() {
        const [a, b, c, out] = (yield* agents(4)) as [Party, Party, Party, Party]
        const groups = yield* Groups
        const { add_results, group } = yield* newGroup(a, [b, c])
        assert.strictEqual((yield* say(a, group.id, "alone")).created, true)
        yield* groups.accept(b, add_results[0]?.invite_id ?? "")
        yield* say(a, group.id, "to b")
        yield* groups.accept(c, add_results[1]?.invite_id ?? "")
        yield* say(b, group.id, "to all")
        assert.deepStrictEqual(saidOf(yield* inbox(a)), ["member_joined", "member_joined", "to all"])
        assert.deepStrictEqual(saidOf(yield* inbox(b)), ["to b", "member_joined"])
        assert.deepStrictEqual(saidOf(yield* inbox(c)), ["to all"])
        assert.deepStrictEqual(saidOf(yield* history(a, group.id)), [
          "alone",
          "member_joined",
          "to b",
          "member_joined",
          "to all"
        ])
        assert.deepStrictEqual(saidOf(yield* history(b, group.id)), [
          "member_joined",
          "to b",
          "member_joined",
          "to all"
        ])
        assert.deepStrictEqual(saidOf(yield* history(c, group.id)), ["member_joined", "to all"])
        assert.deepStrictEqual((yield* inbox(c))[0]?.context.conversation, {
          type: "group",
          group_name: "Band",
          member_count: 3
        })
        assert.strictEqual(yield* tagOf(say(out, group.id, "x")), "GroupNotFound")
        assert.strictEqual(yield* tagOf(history(out, group.id)), "ConversationNotFound")
        assert.strictEqual(yield* tagOf(groups.get(out.id, group.id)), "GroupNotFound")
        assert.strictEqual(yield* tagOf(say(out, "grp_AAAAAAAAAAAAAAAA", "x")), "GroupNotFound")
        const conversations = yield* Conversations
        assert.deepStrictEqual((yield* conversations.participants(b.id, group.id)).map(({ handle }) => handle), [
          a.handle,
          b.handle,
          c.handle
        ])
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("a repeated client_msg_id is stored once, whatever became of the sender's membership", () =>
      Effect.gen(function*() {
        const [a, b] = (yield* agents(2)) as [Party, Party]
        const groupId = yield* joinedGroup(a, [b])
        const groups = yield* Groups
        const all = yield* Effect.all(Array.from({ length: 8 }, () => say(b, groupId, "once")), {
          concurrency: "unbounded"
        })
        assert.strictEqual(all.filter(({ created }) => created).length, 1)
        assert.strictEqual(new Set(all.map(({ body }) => (JSON.parse(body) as Row).id)).size, 1)
        yield* groups.leave(b.id, groupId)
        assert.strictEqual((yield* say(b, groupId, "once")).created, false)
        assert.strictEqual(yield* tagOf(say(b, groupId, "again")), "GroupNotFound")
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("the sender sees the weakest state of all who got a message", () =>
      Effect.gen(function*() {
        const [a, b, c] = (yield* agents(3)) as [Party, Party, Party]
        const groupId = yield* joinedGroup(a, [b, c])
        const deliveries = yield* Deliveries
        const { body } = yield* say(a, groupId, "hello")
        const { id } = JSON.parse(body) as Row
        const status = Effect.map(history(a, groupId), (all) => all.find((row) => row.id === id)?.status)
        assert.strictEqual(yield* status, "stored")
        yield* deliveries.read(b.id, b.handle, id)
        assert.strictEqual(yield* status, "stored")
        const last = (yield* deliveries.sync(c.id, undefined, 500)).at(-1) ?? ""
        yield* deliveries.acknowledgeThrough(c.id, (JSON.parse(last) as { delivery_id: string }).delivery_id)
        assert.strictEqual(yield* status, "delivered")
        yield* deliveries.readThrough(c.id, c.handle, groupId, 100)
        assert.strictEqual(yield* status, "read")
        assert.strictEqual((JSON.parse((yield* say(a, groupId, "hello")).body) as Row).status, "read")
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("a former member keeps nothing waiting but the notice of its removal", () =>
      Effect.gen(function*() {
        const [a, b, c] = (yield* agents(3)) as [Party, Party, Party]
        const groupId = yield* joinedGroup(a, [b, c])
        const groups = yield* Groups
        yield* say(a, groupId, "before")
        yield* groups.leave(b.id, groupId)
        assert.deepStrictEqual(yield* inbox(b), [])
        yield* groups.removeMember(a.id, groupId, c.handle)
        assert.deepStrictEqual(saidOf(yield* inbox(c)), ["member_removed"])
        assert.strictEqual(yield* tagOf(history(c, groupId)), "ConversationNotFound")
        assert.strictEqual(yield* tagOf(groups.get(c.id, groupId)), "GroupNotFound")
        // Invited again, it begins anew.
        const added = yield* groups.add(a, groupId, c.handle)
        yield* groups.accept(c, added.invite_id ?? "")
        yield* say(a, groupId, "after")
        assert.deepStrictEqual(saidOf(yield* history(c, groupId)), ["member_joined", "after"])
        assert.strictEqual((yield* groups.get(c.id, groupId)).your_role, "member")
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("the last admin leaves its place to the member that joined first; the group ends with its last member", () =>
      Effect.gen(function*() {
        const [a, b, c] = (yield* agents(3)) as [Party, Party, Party]
        const groupId = yield* joinedGroup(a, [b, c])
        const groups = yield* Groups
        assert.strictEqual(yield* groups.leave(a.id, groupId), b.handle)
        assert.strictEqual((yield* groups.get(b.id, groupId)).your_role, "admin")
        assert.deepStrictEqual(saidOf((yield* history(c, groupId)).slice(-2)), ["member_left", "admin_promoted"])
        assert.strictEqual(yield* groups.leave(c.id, groupId), null)
        assert.strictEqual(yield* groups.leave(b.id, groupId), null)
        for (const one of [a, b, c]) assert.strictEqual(yield* tagOf(groups.get(one.id, groupId)), "GroupDeleted")
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("a deleted group leaves its last message, takes the rest and its invites, and says 410 to who was in it", () =>
      Effect.gen(function*() {
        const [a, b, c, out] = (yield* agents(4)) as [Party, Party, Party, Party]
        const groupId = yield* joinedGroup(a, [b])
        const groups = yield* Groups
        const { invite_id } = yield* groups.add(a, groupId, c.handle)
        yield* say(a, groupId, "flushed")
        assert.strictEqual(yield* tagOf(groups.remove(b.id, groupId)), "Forbidden")
        yield* groups.remove(a.id, groupId)
        assert.deepStrictEqual(saidOf(yield* inbox(b)), ["group_deleted"])
        assert.deepStrictEqual(yield* groups.invites(c.id), [])
        assert.strictEqual(yield* tagOf(groups.accept(c, invite_id ?? "")), "InviteNotFound")
        for (const one of [a, b]) {
          assert.strictEqual(yield* tagOf(say(one, groupId, "late")), "GroupDeleted")
          assert.strictEqual(yield* tagOf(history(one, groupId)), "GroupDeleted")
        }
        for (const one of [c, out]) assert.strictEqual(yield* tagOf(groups.get(one.id, groupId)), "GroupNotFound")
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("a pending invite is returned again, a refusal holds for a day, and the budget is exact", () =>
      Effect.gen(function*() {
        const everybody = yield* agents(24)
        const [a, b] = everybody as unknown as [Party, Party]
        const groups = yield* Groups
        const groupId = yield* joinedGroup(a, [])
        const first = yield* groups.add(a, groupId, b.handle)
        assert.deepStrictEqual(yield* groups.add(a, groupId, b.handle), first)
        yield* groups.reject(b.id, first.invite_id ?? "")
        assert.strictEqual(yield* tagOf(groups.reject(b.id, first.invite_id ?? "")), "InviteNotFound")
        assert.strictEqual(yield* tagOf(groups.accept(b, first.invite_id ?? "")), "InviteNotFound")
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, b.handle)), "RateLimited")
        // 19 of 20 are left: 20 at once are refused as a whole, 19 fit.
        yield* leap("1 hour")
        const refused = yield* Effect.flip(newGroup(a, everybody.slice(2, 22)))
        assert.deepInclude(refused, { _tag: "RateLimited", retryAfterMs: 23 * 3_600_000 })
        assert.strictEqual((yield* newGroup(a, everybody.slice(2, 21))).add_results.length, 19)
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, everybody[23]!.handle)), "RateLimited")
        assert.deepStrictEqual(yield* sweepExpired(groupsTables, "group_refusals"), { rows: 0, more: false })
        assert.deepStrictEqual(yield* sweepExpired(groupsTables, "silent_group_changes"), { rows: 0, more: false })
        yield* leap("23 hours")
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, b.handle)), "Done")
        assert.deepStrictEqual(yield* sweepExpired(groupsTables, "group_refusals"), { rows: 1, more: false })
        assert.deepStrictEqual(yield* sweepExpired(groupsTables, "silent_group_changes"), { rows: 1, more: false })
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, everybody[23]!.handle)), "RateLimited")
      }).pipe(Effect.provide(modules(database))))

    it.effect("after the clock is set back by an hour, neither a refusal of an invite nor the budget of before holds", () =>
      Effect.gen(function*() {
        const everybody = yield* agents(22)
        const [a, b] = everybody as unknown as [Party, Party]
        const groups = yield* Groups
        yield* leap("2 hours")
        const groupId = yield* joinedGroup(a, [])
        const first = yield* groups.add(a, groupId, b.handle)
        yield* groups.reject(b.id, first.invite_id ?? "")
        yield* newGroup(a, everybody.slice(2, 21))
        yield* setBack("1 hour")
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, b.handle)), "Done")
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, everybody[21]!.handle)), "Done")
      }).pipe(Effect.provide(modules(database))))

    it.effect("a change that is repeated because its answer was lost is answered as it was done, once", () =>
      Effect.gen(function*() {
        const groups = yield* Groups
        const [a, b, c, d] = (yield* agents(4)) as [Party, Party, Party, Party]
        const id = yield* joinedGroup(a, [b, c])
        const group = (yield* entityClient(GroupEntity))(id)
        const invited = (yield* groups.add(a, id, d.handle)).invite_id ?? ""
        let calls = 0
        const twice = <A, E extends { readonly _tag: string }>(
          change: (messageIds: ReadonlyArray<string>) => Effect.Effect<A, E>
        ) =>
          Effect.gen(function*() {
            const call = ++calls
            const messageIds = [1, 2, 3].map((n) => `msg_twice${call}${n}`)
            const before = (yield* history(a, id)).length
            const first = yield* change(messageIds)
            const after = (yield* history(a, id)).length
            assert.deepStrictEqual(yield* change(messageIds), first)
            assert.deepStrictEqual((yield* history(a, id)).length, after)
            const other = yield* tagOf(change([`msg_other${call}`]))
            return [first, after - before, other]
          })
        const of = (actor: Party, messageIds: ReadonlyArray<string>) => ({ actorId: actor.id, messageIds })
        assert.deepStrictEqual(
          [
            yield* twice((ids) => group.Accept({ ...of(d, ids), handle: d.handle, inviteId: invited })),
            yield* twice((ids) => group.Promote({ ...of(a, ids), targetId: b.id })),
            yield* twice((ids) => group.Demote({ ...of(a, ids), targetId: b.id })),
            yield* twice((ids) => group.Remove({ ...of(a, ids), targetId: d.id })),
            yield* twice((ids) => group.Leave(of(b, ids)))
          ],
          [
            [undefined, 1, "InviteNotFound"],
            [undefined, 1, "Done"],
            [undefined, 1, "NotAdmin"],
            [undefined, 1, "NotMember"],
            [{ promotedHandle: null }, 1, "GroupNotFound"]
          ]
        )
        const left = yield* group.Leave(of(a, ["msg_left1", "msg_left2"]))
        assert.strictEqual(left.promotedHandle, c.handle)
        assert.deepStrictEqual(yield* group.Leave(of(a, ["msg_left1", "msg_left2"])), left)
        const ended = yield* group.Delete(of(c, ["msg_end"]))
        yield* TestClock.adjust("1 seconds")
        assert.deepStrictEqual(yield* group.Delete(of(c, ["msg_end"])), ended)
        assert.strictEqual(yield* tagOf(group.Delete(of(c, ["msg_other"]))), "GroupDeleted")
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("an invite that is refused or taken back twice for one request, with the same ids, is answered alike", () =>
      Effect.gen(function*() {
        const groups = yield* Groups
        const [a, b, c, d] = (yield* agents(4)) as [Party, Party, Party, Party]
        const { add_results, group: { id } } = yield* newGroup(a, [b, c, d])
        const [first, second, third] = add_results.map(({ invite_id }) => invite_id ?? "") as [string, string, string]
        const group = (yield* entityClient(GroupEntity))(id)
        const reject = (messageIds: ReadonlyArray<string>, inviteId = first) =>
          tagOf(group.Reject({ actorId: b.id, messageIds, inviteId }))
        const cancel = (messageIds: ReadonlyArray<string>, inviteId = second) =>
          tagOf(group.Cancel({ actorId: a.id, messageIds, inviteId }))
        assert.deepStrictEqual([yield* reject(["msg_r1"]), yield* reject(["msg_r1"])], ["Done", "Done"])
        assert.deepStrictEqual([yield* cancel(["msg_c1"]), yield* cancel(["msg_c1"])], ["Done", "Done"])
        // Other requests, and other invites, are not answered by these.
        assert.deepStrictEqual([yield* reject(["msg_r2"]), yield* cancel(["msg_c2"])], [
          "InviteNotFound",
          "InviteNotFound"
        ])
        assert.strictEqual(yield* reject(["msg_r3"], third), "InviteNotFound")
        assert.strictEqual(yield* cancel(["msg_c3"], third), "Done")
        // The second attempt refuses and takes back nothing more.
        assert.strictEqual(yield* tagOf(groups.add(a, id, b.handle)), "RateLimited")
        assert.strictEqual(yield* tagOf(groups.add(a, id, c.handle)), "Done")
        assert.strictEqual(yield* cancel(["msg_c1"]), "Done")
        assert.deepStrictEqual((yield* groups.invites(c.id)).length, 1)
      }).pipe(Effect.provide(modules(database))))

    it.effect("another attempt at an answer to an invite with the same Idempotency-Key is answered alike", () =>
      Effect.gen(function*() {
        const groups = yield* Groups
        const [a, b, c] = (yield* agents(3)) as [Party, Party, Party]
        const { add_results } = yield* newGroup(a, [b, c])
        const [first, second] = add_results.map(({ invite_id }) => invite_id ?? "") as [string, string]
        const again = <A, E extends { readonly _tag: string }>(agent: Party, effect: Effect.Effect<A, E>) =>
          Effect.provideService(Effect.all([tagOf(effect), tagOf(effect)]), CurrentAttempt, {
            agentId: agent.id,
            key: "key-1",
            createdAt: 1_000
          })
        assert.deepStrictEqual(yield* again(b, groups.reject(b.id, first)), ["Done", "Done"])
        assert.deepStrictEqual(yield* again(c, groups.accept(c, second)), ["Done", "Done"])
        assert.strictEqual(yield* tagOf(groups.reject(b.id, first)), "InviteNotFound")
        assert.strictEqual(yield* tagOf(groups.accept(c, second)), "InviteNotFound")
      }).pipe(Effect.provide(modules(database))))

    it.effect("another attempt at a change with the same Idempotency-Key finds it done, in each group", () =>
      Effect.gen(function*() {
        const groups = yield* Groups
        const [a, b] = (yield* agents(2)) as [Party, Party]
        const ids = [yield* joinedGroup(a, [b]), yield* joinedGroup(a, [b])]
        const attempt = { agentId: a.id, key: "key-1", createdAt: yield* Clock.currentTimeMillis }
        const remove = Effect.provideService(
          Effect.forEach(ids, (id) => groups.removeMember(a.id, id, b.handle), { discard: true }),
          CurrentAttempt,
          attempt
        )
        yield* remove
        yield* remove
        assert.strictEqual(yield* tagOf(groups.removeMember(a.id, ids[0] ?? "", b.handle)), "NotMember")
      }).pipe(Effect.provide(modules(database))))

    it.effect("another attempt at the same request meets the group and the invite of the first, and charges nothing", () =>
      Effect.gen(function*() {
        const [a, b, c] = (yield* agents(3)) as [Party, Party, Party]
        const groups = yield* Groups
        const again = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
          Effect.provideService(Effect.all([effect, effect]), CurrentAttempt, {
            agentId: a.id,
            key: "once",
            createdAt: 1_000
          })
        const [first, second] = yield* again(newGroup(a, [b]))
        assert.deepStrictEqual(second, first)
        assert.strictEqual((yield* groups.invites(b.id)).length, 1)
        const [one, other] = yield* again(groups.add(a, first.group.id, c.handle))
        assert.deepStrictEqual([one, (yield* groups.invites(c.id)).map(({ id }) => id)], [other, [one.invite_id]])
        // Of 20 invites 2 are spent.
        assert.strictEqual(yield* tagOf(newGroup(a, yield* agents(19))), "RateLimited")
        assert.strictEqual(yield* tagOf(newGroup(a, yield* agents(18))), "Done")
      }).pipe(Effect.provide(modules(database))))

    it.effect("pages of pending invites, oldest first, have no gap and no repeat while invites come and go", () =>
      Effect.gen(function*() {
        const [a, ...others] = (yield* agents(10)) as [Party, ...Array<Party>]
        const groups = yield* Groups
        const groupId = yield* joinedGroup(a, [])
        const invite = (to: Party) =>
          Effect.tap(
            Effect.map(groups.add(a, groupId, to.handle), ({ invite_id }) => invite_id ?? ""),
            () => leap("1 second")
          )
        const ids = yield* Effect.forEach(others.slice(0, 6), invite)
        const seen: Array<string> = []
        let cursor: string | null = null
        for (const [n, goes] of [ids[0]!, ids[4]!, ids[1]!].entries()) {
          const page: Page<typeof PendingInvite.Type> = yield* groups.pending(a.id, groupId, {
            limit: 2,
            ...(cursor === null ? {} : { cursor })
          })
          seen.push(...page.items.map(({ id }) => id))
          cursor = page.nextCursor
          yield* groups.cancel(a.id, groupId, goes)
          ids.push(yield* invite(others[6 + n]!))
        }
        while (cursor !== null) {
          const page: Page<typeof PendingInvite.Type> = yield* groups.pending(a.id, groupId, { limit: 2, cursor })
          seen.push(...page.items.map(({ id }) => id))
          cursor = page.nextCursor
        }
        // One was taken back before its page came.
        assert.deepStrictEqual(seen, ids.filter((id) => id !== ids[4]))
        const rest = yield* groups.pending(a.id, groupId, { offset: 4 })
        assert.deepStrictEqual([rest.items.length, rest.total, rest.nextCursor], [2, 6, null])
      }).pipe(Effect.provide(modules(database))))

    it.effect("an agent that cannot be invited gets the first of the reasons in their order", () =>
      Effect.gen(function*() {
        const [a, b, c, d, e] = (yield* agents(5)) as [Party, Party, Party, Party, Party]
        const sql = yield* SqlClient.SqlClient
        const groups = yield* Groups
        const contacts = yield* Contacts
        const groupId = yield* joinedGroup(a, [b])
        yield* contacts.block(c.id, a.handle)
        yield* sql`UPDATE agents SET group_invite_policy = 'contacts_only' WHERE id IN (${c.id}, ${d.id})`
        assert.strictEqual((yield* groups.add(a, groupId, a.handle)).outcome, "already_member")
        yield* contacts.block(a.id, b.handle)
        assert.strictEqual((yield* groups.add(a, groupId, b.handle)).outcome, "already_member")
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, "nobody-here")), "AgentNotFound")
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, c.handle)), "Blocked")
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, d.handle)), "InboxRestricted")
        assert.strictEqual(yield* tagOf(groups.add(b, groupId, d.handle)), "Forbidden")
        yield* contacts.add(d.id, a.handle, null)
        assert.strictEqual((yield* groups.add(a, groupId, d.handle)).outcome, "invited")
        yield* sql`UPDATE agents SET restricted_until = ${Number.MAX_SAFE_INTEGER} WHERE id = ${a.id}`
        assert.strictEqual(yield* tagOf(groups.add(a, groupId, e.handle)), "AgentRestricted")
        const { skipped } = yield* newGroup(a, [c, e, { id: "", handle: "nobody-here", displayName: null }])
        assert.deepStrictEqual(skipped.map(({ code }) => code), ["BLOCKED", "AGENT_RESTRICTED", "AGENT_NOT_FOUND"])
        yield* contacts.add(a.id, e.handle, null)
        assert.strictEqual((yield* groups.add(a, groupId, e.handle)).outcome, "invited")
        // Blocked members go on hearing each other.
        yield* say(b, groupId, "still here")
        assert.include(saidOf(yield* inbox(a)), "still here")
      }).pipe(Effect.provide(modules(database))))

    it.effect("a deleted account leaves its groups and takes its invites along; a suspended last admin is replaced", () =>
      Effect.gen(function*() {
        const [a, b, c, d] = (yield* agents(4)) as [Party, Party, Party, Party]
        const sql = yield* SqlClient.SqlClient
        const groups = yield* Groups
        const groupId = yield* joinedGroup(a, [b, c])
        const other = (yield* newGroup(d, [a])).group.id
        yield* groups.add(a, groupId, d.handle)
        yield* (yield* Accounts).remove(a.id)
        assert.deepStrictEqual((yield* groups.get(b.id, groupId)).members.map(({ handle }) => handle), [
          b.handle,
          c.handle
        ])
        assert.strictEqual((yield* groups.get(b.id, groupId)).your_role, "admin")
        const told = (yield* inbox(c)).slice(-2)
        assert.deepStrictEqual(saidOf(told), ["member_left", "admin_promoted"])
        assert.deepStrictEqual(told.map(({ sender }) => sender), [a.handle, a.handle])
        assert.deepStrictEqual(yield* groups.invites(d.id), [])
        assert.strictEqual((yield* groups.pending(d.id, other, {})).total, 0)
        yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${b.id}`
        ;(yield* Agents).forget(b.id)
        yield* groups.replaceAdmin(b.id)
        yield* groups.replaceAdmin(b.id)
        assert.strictEqual((yield* groups.get(c.id, groupId)).your_role, "admin")
        assert.strictEqual(yield* tagOf(say(b, groupId, "suspended")), "AgentSuspended")
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))

    it.effect("an agent leaves its other groups although one of them fails, and that one the next time", () =>
      Effect.gen(function*() {
        const [a, b] = (yield* agents(2)) as [Party, Party]
        const sql = yield* SqlClient.SqlClient
        const groups = yield* Groups
        for (let i = 0; i < 3; i++) yield* joinedGroup(a, [b])
        const memberships = sql`SELECT FROM group_members WHERE agent_id = ${b.id} AND left_at IS NULL`
        assert.lengthOf(yield* memberships, 3)
        yield* sql`CREATE SEQUENCE changes`
        yield* sql.unsafe(`
          CREATE FUNCTION fail_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('changes') = 1 THEN RAISE EXCEPTION USING ERRCODE = 'lock_not_available'; END IF;
            RETURN new;
          END $$`)
        yield* sql`CREATE TRIGGER fail_first BEFORE UPDATE ON groups FOR EACH ROW EXECUTE FUNCTION fail_first()`
        assert.strictEqual(yield* tagOf(groups.leaveAll(b.id)), "Unavailable")
        assert.lengthOf(yield* memberships, 1)
        yield* groups.leaveAll(b.id)
        assert.lengthOf(yield* memberships, 0)
        yield* assertSound
      }).pipe(Effect.provide(modules(database))))
  })
})

describe("groups with two owners, PGlite", () => {
  /** Two nodes in one process, on one database. Each believes that it owns every group. */
  const twoOwners = (changes: Partial<Settings> = {}) =>
    Effect.gen(function*() {
      const database = Layer.succeedContext(yield* Layer.build(layerPgliteTest))
      const owner = Effect.map(Layer.build(Layer.fresh(modules(database, changes))), (context) =>
        Effect.provideContext(context))
      return [yield* owner, yield* owner] as const
    })

  it.effect("an agent that joined through one owner is not refused by the other, which has refused it before", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoOwners()
      const [a, b] = (yield* one(agents(2))) as [Party, Party]
      const { add_results, group } = yield* one(newGroup(a, [b]))
      assert.strictEqual(yield* one(tagOf(say(b, group.id, "early"))), "GroupNotFound")
      yield* two(Effect.flatMap(Groups, (groups) => groups.accept(b, add_results[0]?.invite_id ?? "")))
      assert.strictEqual(yield* one(tagOf(say(b, group.id, "in time"))), "Done")
    }))

  it.effect("a send that another owner's change makes be decided again takes one place in the group's limit", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoOwners({ LIMITS_GROUP_SENDS_PER_SECOND: 3 })
      const [a] = (yield* one(agents(1))) as [Party]
      const groupId = yield* one(joinedGroup(a, []))
      yield* one(say(a, groupId, "1"))
      yield* two(Effect.flatMap(Groups, (groups) => groups.update(a.id, groupId, { name: "Other" })))
      assert.strictEqual(yield* one(tagOf(say(a, groupId, "2"))), "Done")
      assert.strictEqual(yield* one(tagOf(say(a, groupId, "3"))), "Done")
      assert.strictEqual(yield* one(tagOf(say(a, groupId, "4"))), "RateLimited")
    }))
})

it.effect("a group that is created after a send to its id was refused takes sends", () =>
  Effect.gen(function*() {
    const [a] = (yield* agents(1)) as [Party]
    const attempt = { agentId: a.id, key: "later", createdAt: 1_000 }
    const groupId = yield* Effect.provideService(
      Effect.flatMap(IdempotentIds, (ids) => ids.make("grp")),
      CurrentAttempt,
      attempt
    )
    assert.strictEqual(yield* tagOf(say(a, groupId, "early")), "GroupNotFound")
    assert.strictEqual((yield* Effect.provideService(newGroup(a, []), CurrentAttempt, attempt)).group.id, groupId)
    assert.strictEqual(yield* tagOf(say(a, groupId, "in time")), "Done")
  }).pipe(Effect.provide(Layer.merge(modules(layerPgliteTest), Layer.provide(IdempotentIds.layer, Ids.layer)))))

it.effect("a replay takes no place in the group's limit (wire.md C.6, G.3)", () =>
  Effect.gen(function*() {
    const [a] = (yield* agents(1)) as [Party]
    const groupId = yield* joinedGroup(a, [])
    yield* say(a, groupId, "first")
    for (let i = 0; i < 3; i++) assert.isFalse((yield* say(a, groupId, "first")).created)
    assert.strictEqual(yield* tagOf(say(a, groupId, "second")), "Done")
    assert.strictEqual(yield* tagOf(say(a, groupId, "third")), "RateLimited")
  }).pipe(Effect.provide(modules(layerPgliteTest, { LIMITS_GROUP_SENDS_PER_SECOND: 2 }))))

const live = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.provideService(effect, Clock.Clock, Clock.Clock.defaultValue())

describe.skipIf(!isInstalled(18))("how long a refused group waits, PostgreSQL 18", () => {
  it.effect("can be set", () =>
    Effect.gen(function*() {
      const [a, b] = (yield* agents(2)) as [Party, Party]
      const groups = yield* Groups
      const groupId = yield* joinedGroup(a, [])
      yield* groups.reject(b.id, (yield* groups.add(a, groupId, b.handle)).invite_id ?? "")
      yield* leap("3599 seconds")
      const refused = yield* Effect.flip(groups.add(a, groupId, b.handle))
      assert.deepInclude(refused, { _tag: "RateLimited", retryAfterMs: 1_000 })
      yield* leap("1 second")
      assert.strictEqual(yield* tagOf(groups.add(a, groupId, b.handle)), "Done")
    }).pipe(Effect.provide(modules(layerPostgresTest(), { LIMITS_GROUP_REFUSAL_SECONDS: 3_600 }))))
})

describe.skipIf(!isInstalled(18))("groups over two nodes, PostgreSQL 18", () => {
  /** Two processes that both believe they own every group: only the statements order what they do. */
  const twoNodes = Effect.gen(function*() {
    const url = Redacted.make(yield* Effect.promise(() => freshDatabase(18)))
    const node = Effect.map(
      Layer.build(Layer.fresh(modules(layerPg({ url, poolSize: 6 }), {
        LIMITS_GROUP_INVITES_PER_DAY: 1_000,
        LIMITS_GROUP_MEMBERS: 256
      }))),
      (context) =>
      <A, E>(
        effect: Effect.Effect<A, E, Groups | Conversations | Deliveries | SqlClient.SqlClient | LiveAgents>
      ) => Effect.provide(effect, context)
    )
    return [yield* node, yield* node] as const
  })

  it.effect("exactly one of 200 invitees that accept at once gets the last of 256 seats", () =>
    live(Effect.scoped(Effect.gen(function*() {
      const nodes = yield* twoNodes
      const [one] = nodes
      const everybody = yield* one(agents(455))
      const creator = everybody[0]!
      const { group } = yield* one(newGroup(creator, everybody.slice(1, 255)))
      // 255 members, as if they had accepted one by one.
      yield* one(Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        yield* sql`
          WITH joined AS (
            INSERT INTO group_members (group_id, agent_id, role, joined_at, joined_seq)
            SELECT group_id, invitee_id, 'member', 0, 0 FROM group_invites RETURNING group_id, agent_id
          ), admitted AS (
            INSERT INTO participants (agent_id, conversation_id) SELECT agent_id, group_id FROM joined
          ), gone AS (
            DELETE FROM group_invites
          ) UPDATE groups SET member_count = 255`
      }))
      const invites = yield* one(
        Effect.flatMap(
          Groups,
          (groups) => Effect.forEach(everybody.slice(255), (agent) => groups.add(creator, group.id, agent.handle))
        )
      )
      const outcomes = yield* Effect.all(
        invites.map(({ invite_id }, i) =>
          nodes[i % 2]!(Effect.flatMap(Groups, (groups) => tagOf(groups.accept(everybody[255 + i]!, invite_id ?? ""))))
        ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(outcomes.filter((outcome) => outcome === "Done").length, 1)
      assert.strictEqual(outcomes.filter((outcome) => outcome === "GroupFull").length, 199)
      assert.strictEqual(
        (yield* one(Effect.flatMap(Groups, (groups) => groups.get(creator.id, group.id)))).member_count,
        256
      )
      assert.strictEqual(
        (yield* one(Effect.flatMap(Groups, (groups) => groups.pending(creator.id, group.id, {})))).total,
        199
      )
      yield* one(say(creator, group.id, "a full house"))
      yield* one(assertSound)
    }))))

  it.effect("a removed member gets no message after its removal, and keeps none from before, while both nodes send", () =>
    live(Effect.scoped(Effect.gen(function*() {
      const nodes = yield* twoNodes
      const [one, two] = nodes
      const [a, b, c] = (yield* one(agents(3))) as [Party, Party, Party]
      const groupId = yield* one(joinedGroup(a, [b, c]))
      for (let round = 0; round < 20; round++) {
        const talk = Effect.all(
          Array.from(
            { length: 10 },
            (_, i) =>
              nodes[i % 2]!(tagOf(Effect.retry(say(i % 3 === 0 ? a : b, groupId, `${round} ${i}`), {
                while: ({ _tag }) => _tag === "Unavailable"
              })))
          ),
          { concurrency: "unbounded" }
        )
        const [sent, removed] = yield* Effect.all(
          [talk, two(Effect.flatMap(Groups, (groups) => tagOf(groups.removeMember(a.id, groupId, c.handle))))],
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual([...new Set(sent), removed], ["Done", "Done"])
        // What was left from the round before is flushed like everything else.
        assert.deepStrictEqual(saidOf(yield* one(inbox(c))), ["member_removed"])
        const { invite_id } = yield* one(Effect.flatMap(Groups, (groups) => groups.add(a, groupId, c.handle)))
        yield* two(Effect.flatMap(Groups, (groups) => groups.accept(c, invite_id ?? "")))
      }
      yield* one(assertSound)
    }))))
})
