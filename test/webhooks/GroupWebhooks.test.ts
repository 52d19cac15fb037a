import { Contacts } from "#domain/contacts/Contacts"
import { Conversations } from "#domain/conversations/Conversations"
import { Groups } from "#domain/groups/Groups"
import { Mutes } from "#domain/mutes/Mutes"
import { type Post, WebhookClient } from "#domain/webhooks/WebhookClient"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { forRequest } from "#infrastructure/platform/RequestId"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { eachDatabase } from "../support/Databases.ts"
import { chanceFor, eventually } from "../support/Eventually.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

interface Told {
  readonly event: string
  readonly data: Readonly<Record<string, unknown>>
}

eachDatabase((database) => {
  const posts: Array<Post> = []
  const internet = Layer.mergeAll(
    Layer.succeed(NameLookup, () => Effect.succeed(["93.184.216.34"])),
    Layer.succeed(WebhookClient, (post: Post) =>
      Effect.sync(() => {
        posts.push(post)
        return 200
      }))
  )
  const told = (host: string): ReadonlyArray<Told> =>
    posts.filter(({ url }) => url.host === host).map(({ body }) => JSON.parse(body) as Told)

  layer(layerModules(database).pipe(Layer.provideMerge(internet)))((it) => {
    it.effect("members' webhooks hear of invites, of what is said, and of the end", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const groups = yield* Groups
        const mutes = yield* Mutes
        const webhooks = yield* Webhooks
        const [a, b, c] = [yield* newAgent("group-a"), yield* newAgent("group-b"), yield* newAgent("group-c")]
        for (const { handle, id } of [a, b, c]) {
          const events = ["message.new", "group.invite.received", "group.deleted"] as const
          yield* webhooks.create(id, `https://${handle}.example/`, events, undefined)
        }
        const of = (agent: typeof a) => told(`${agent.handle}.example`)
        const heard = (agent: typeof a, n: number) =>
          Effect.promise(() => eventually(`${n} posts`, () => of(agent).length >= n ? of(agent) : undefined))
        const profile = { name: "Band", description: null, avatarUrl: null }
        const { add_results, group } = yield* groups.create(a, { profile, handles: [b.handle] })
        const { invite_id } = yield* groups.add(a, group.id, c.handle)
        const [invited] = yield* heard(b, 1)
        assert.strictEqual(invited?.event, "group.invite.received")
        const { created_at: _, ...invite } = invited?.data ?? {}
        assert.deepStrictEqual(invite, {
          id: add_results[0]?.invite_id,
          group_id: group.id,
          group_name: "Band",
          group_description: "",
          group_avatar_url: "",
          group_member_count: 1,
          inviter_handle: a.handle
        } as Record<string, unknown>)
        assert.strictEqual((yield* heard(c, 1))[0]?.data["id"], invite_id)

        yield* groups.accept(b, String(add_results[0]?.invite_id))
        const [joined] = yield* heard(a, 1)
        assert.deepStrictEqual([joined?.event, joined?.data["type"]], ["message.new", "system"])
        yield* groups.accept(c, String(invite_id))
        yield* heard(a, 2)
        yield* heard(b, 2)
        yield* mutes.mute(c.id, { kind: "conversation", id: group.id }, null)
        yield* conversations.send(a, { _tag: "Conversation", id: group.id }, draft("group-1", "hello"))
        const said = (yield* heard(b, 3))[2]
        assert.deepStrictEqual([said?.event, said?.data["content"], said?.data["sender"]], [
          "message.new",
          { text: "hello" },
          a.handle
        ])
        assert.deepStrictEqual(((said?.data["context"] ?? {}) as Record<string, unknown>)["conversation"], {
          type: "group",
          group_name: "Band",
          member_count: 3
        })
        yield* groups.remove(a.id, group.id)
        const end = (yield* heard(b, 5)).slice(3).map(({ event }) => event).sort()
        assert.deepStrictEqual(end, ["group.deleted", "message.new"])
        const { deleted_at: __, ...deleted } = of(b).find(({ event }) => event === "group.deleted")?.data ?? {}
        assert.deepStrictEqual(deleted, { group_id: group.id, deleted_by_handle: a.handle } as Record<string, unknown>)
        yield* heard(c, 2)
        yield* Effect.promise(() => chanceFor("another post"))
        // Muted: what is said is not told, what happens to the group is.
        assert.deepStrictEqual(of(c).map(({ event }) => event), ["group.invite.received", "group.deleted"])
        assert.deepStrictEqual(of(a).map(({ event }) => event), ["message.new", "message.new"])
      }))

    it.effect("a post carries the id of the request behind it; what none caused carries none", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const conversations = yield* Conversations
        const groups = yield* Groups
        const webhooks = yield* Webhooks
        const [a, b, c] = [yield* newAgent("asked-a"), yield* newAgent("asked-b"), yield* newAgent("asked-c")]
        for (const { handle, id } of [b, c]) {
          const events = ["message.new", "group.invite.received", "group.deleted", "contact.blocked"] as const
          yield* webhooks.create(id, `https://${handle}.example/`, events, undefined)
        }
        const profile = { name: "Band", description: null, avatarUrl: null }
        const { add_results, group } = yield* forRequest("r-create", groups.create(a, { profile, handles: [b.handle] }))
        yield* forRequest("r-add", groups.add(a, group.id, c.handle))
        yield* groups.accept(b, String(add_results[0]?.invite_id))
        yield* forRequest("r-say", conversations.send(a, { _tag: "Conversation", id: group.id }, draft("asked-1")))
        yield* conversations.send(a, { _tag: "Conversation", id: group.id }, draft("asked-2"))
        yield* forRequest("r-rename", groups.update(a.id, group.id, { name: "Trio" }))
        yield* forRequest("r-delete", groups.remove(a.id, group.id))
        yield* forRequest("r-direct", conversations.send(a, { _tag: "Direct", handle: c.handle }, draft("asked-3")))
        yield* forRequest("r-report", contacts.report(a.id, c.handle, null))
        const ids = ({ handle }: typeof a) =>
          posts.filter(({ url }) => url.host === `${handle}.example`).map(({ headers }) =>
            headers["X-Request-Id"] ?? "none"
          ).sort()
        const wanted = [
          ["none", "r-create", "r-delete", "r-delete", "r-rename", "r-say"],
          ["r-add", "r-direct", "r-report"]
        ]
        const count = wanted.flat().length
        yield* Effect.promise(() => eventually("the posts", () => ids(b).length + ids(c).length >= count || undefined))
        assert.deepStrictEqual([ids(b), ids(c)], wanted)
      }))
  })
})
