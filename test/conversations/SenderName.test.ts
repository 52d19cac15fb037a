import { Accounts } from "#domain/agents/Accounts"
import { Auth } from "#domain/auth/Auth"
import { Conversations, type SendTarget } from "#domain/conversations/Conversations"
import { Groups } from "#domain/groups/Groups"
import { messageJson } from "#domain/messages/Message"
import { LiveAgents } from "#domain/push/LiveAgents"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { eachDatabase } from "../support/Databases.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const nameIn = (json: string): unknown =>
  (JSON.parse(json) as { readonly context: { readonly sender: { readonly display_name: unknown } } }).context.sender
    .display_name

eachDatabase((database) => {
  layer(layerModules(database))((it) => {
    it.effect("a message shows the name that its sender was authenticated with, however long ago that was", () =>
      Effect.gen(function*() {
        const auth = yield* Effect.provide(Auth, Auth.layer)
        const accounts = yield* Accounts
        const liveAgents = yield* LiveAgents
        const conversations = yield* Conversations
        const groups = yield* Groups
        const a = yield* newAgent("named-a")
        const b = yield* newAgent("named-b")
        yield* accounts.update(a.id, { displayName: "Ada" })
        const writer = yield* auth.authenticate(a.key)
        const reader = yield* auth.authenticate(b.key)
        const shown: Array<unknown> = []
        const ignore = () => undefined
        for (const id of [a.id, b.id]) {
          liveAgents.attach(id, {
            hint: (_no, _id, rendered) => shown.push(nameIn(messageJson(rendered, null))),
            echo: (_after, _before, frame) =>
              shown.push(nameIn(JSON.stringify((JSON.parse(frame) as { payload: unknown }).payload))),
            event: ignore,
            close: ignore
          })
        }
        yield* conversations.send(writer, { _tag: "Direct", handle: b.handle }, draft("hello"))
        yield* conversations.send(reader, { _tag: "Direct", handle: a.handle }, draft("hello"))
        const profile = { name: "Band", description: null, avatarUrl: null }
        const { add_results, group } = yield* groups.create(writer, { profile, handles: [b.handle] })
        yield* groups.accept(reader, String(add_results[0]?.invite_id))

        const targets: ReadonlyArray<SendTarget> = [
          { _tag: "Direct", handle: b.handle },
          { _tag: "Conversation", id: group.id }
        ]
        for (const [i, target] of targets.entries()) {
          const sender = yield* auth.authenticate(a.key)
          // The process stands still between the check of the key and the send.
          yield* leap("5 seconds")
          shown.length = 0
          const sent = yield* conversations.send(sender, target, draft(`late-${i}`))
          assert.strictEqual(nameIn(sent.body), "Ada", `the answer, ${target._tag}`)
          assert.deepStrictEqual(shown, ["Ada", "Ada"], `push and echo, ${target._tag}`)
          yield* leap("5 seconds")
          const again = yield* conversations.send(sender, target, draft(`late-${i}`))
          assert.deepStrictEqual([again.created, nameIn(again.body)], [false, "Ada"], `the repeat, ${target._tag}`)
        }

        // Changed: the next request is authenticated with the new name, within the second that the cache lives as well.
        yield* auth.authenticate(a.key)
        for (const displayName of ["Countess", null]) {
          yield* accounts.update(a.id, { displayName })
          for (const [i, target] of targets.entries()) {
            const sender = yield* auth.authenticate(a.key)
            shown.length = 0
            const sent = yield* conversations.send(sender, target, draft(`changed-${displayName}-${i}`))
            const again = yield* conversations.send(sender, target, draft(`changed-${displayName}-${i}`))
            const name = displayName ?? a.handle
            assert.deepStrictEqual([nameIn(sent.body), nameIn(again.body), ...shown], [name, name, name, name])
          }
        }
      }))
  })
})
