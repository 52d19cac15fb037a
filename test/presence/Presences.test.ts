import { PresenceRepo } from "#domain/presence/PresenceRepo"
import { Presences } from "#domain/presence/Presences"
import { PresenceStore } from "#domain/presence/PresenceStore"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { eachDatabase } from "../support/Databases.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

type Heard = ReadonlyArray<string | null>

/** A socket, come and gone as the gateway tells it, with the presence events that it gets. */
const connect = Effect.fnUntraced(function*(agentId: string) {
  const liveAgents = yield* LiveAgents
  const presences = yield* Presences
  const events: Array<Heard> = []
  const session: LiveSession = {
    hint: () => undefined,
    echo: () => undefined,
    event: (frame) => {
      const { payload, type } = JSON.parse(frame) as { type: string; payload: Record<string, string | null> }
      assert.strictEqual(type, "presence.update")
      events.push([payload["handle"] ?? "", payload["status"] ?? "", payload["custom_message"] ?? null])
    },
    close: () => undefined
  }
  liveAgents.attach(agentId, session)
  yield* presences.sockets(agentId)
  return {
    events,
    /** What came since the last look, once everybody has been told. */
    heard: Effect.map(presences.told, (): ReadonlyArray<Heard> => events.splice(0)),
    close: Effect.suspend(() => {
      liveAgents.detach(agentId, session)
      return presences.sockets(agentId)
    })
  }
})

const hold = Effect.fnUntraced(function*(holder: { id: string }, held: { id: string }) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO contacts (agent_id, contact_id, added_at) VALUES (${holder.id}, ${held.id}, 0)`
})

eachDatabase((database) => {
  layer(layerModules(database))((it) => {
    it.effect("sockets make an agent online and offline; those that hold it as a contact are told", () =>
      Effect.gen(function*() {
        const presences = yield* Presences
        const [a, b, c] = [yield* newAgent("events-a"), yield* newAgent("events-b"), yield* newAgent("events-c")]
        yield* hold(b, a)
        yield* hold(a, c)
        const [holder, stranger] = [yield* connect(b.id), yield* connect(c.id)]
        const first = yield* connect(a.id)
        assert.deepStrictEqual(yield* holder.heard, [["events-a", "online", null]])
        const second = yield* connect(a.id)
        yield* first.close
        assert.deepStrictEqual(yield* holder.heard, [])
        yield* presences.put(a, { status: "busy", custom_message: "thinking" })
        assert.deepStrictEqual(yield* holder.heard, [["events-a", "busy", "thinking"]])
        const third = yield* connect(a.id)
        yield* second.close
        yield* TestClock.adjust(1)
        yield* third.close
        assert.deepStrictEqual(yield* holder.heard, [["events-a", "offline", "thinking"]])
        const at = new Date(yield* Clock.currentTimeMillis).toISOString()
        const seen = { handle: "events-a", status: "offline" as const, custom_message: "thinking", last_seen: at }
        assert.deepStrictEqual(yield* presences.get(b.id, "events-a"), seen)
        yield* connect(a.id)
        assert.deepStrictEqual(yield* holder.heard, [["events-a", "online", "thinking"]])
        assert.deepStrictEqual(stranger.events, [])
      }))

    it.effect("only contacts without a block, and oneself, are visible, and only they are told", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const presences = yield* Presences
        const viewer = yield* newAgent("sees-viewer")
        const names = ["contact", "blocked", "blocker", "stranger", "deleted"] as const
        const others = yield* Effect.forEach(names, (name) => newAgent(`sees-${name}`))
        const [contact, blocked, blocker, , deleted] = others as [
          typeof viewer,
          typeof viewer,
          typeof viewer,
          typeof viewer,
          typeof viewer
        ]
        for (const other of [contact, blocked, blocker, deleted]) yield* hold(viewer, other)
        yield* sql`INSERT INTO blocks (agent_id, blocked_id, created_at) VALUES (${viewer.id}, ${blocked.id}, 0), (${blocker.id}, ${viewer.id}, 0)`
        yield* sql`UPDATE agents SET deleted_at = 1 WHERE id = ${deleted.id}`
        const watching = yield* connect(viewer.id)
        for (const other of others) if (other !== deleted) yield* connect(other.id)
        assert.deepStrictEqual(yield* watching.heard, [["sees-contact", "online", null]])
        const seen = yield* presences.getMany(viewer.id, [
          "sees-stranger",
          "sees-viewer",
          "sees-blocked",
          "nobody",
          "sees-contact",
          "sees-blocker",
          "sees-deleted"
        ])
        assert.deepStrictEqual(seen.map((one) => [one.handle, one.status]), [
          ["sees-viewer", "online"],
          ["sees-contact", "online"]
        ])
        for (const handle of ["sees-stranger", "sees-blocked", "sees-blocker", "sees-deleted", "nobody"]) {
          assert.strictEqual((yield* Effect.flip(presences.get(viewer.id, handle)))._tag, "NotFound", handle)
        }
      }))

    it.effect("without a sign of life a state ends after five minutes, with its event", () =>
      Effect.gen(function*() {
        const presences = yield* Presences
        const [a, b] = [yield* newAgent("ends-a"), yield* newAgent("ends-b")]
        yield* hold(b, a)
        const holder = yield* connect(b.id)
        yield* presences.put(a, { status: "online" })
        assert.deepStrictEqual(yield* holder.heard, [["ends-a", "online", null]])
        yield* TestClock.adjust(300_000 - 1_000)
        yield* presences.sockets(b.id)
        assert.strictEqual((yield* presences.get(b.id, "ends-a")).status, "online")
        // The sweep may be waiting for the database when the clock moves: it is given time between the steps.
        const store = yield* PresenceStore
        const there = Effect.map(store.get([a.id]), (states) => states.get(a.id)?.status === "online")
        for (let i = 0; i < 100 && (yield* there); i++) {
          yield* TestClock.adjust(100)
          yield* presences.get(b.id, "ends-a")
        }
        assert.deepStrictEqual(yield* holder.heard, [["ends-a", "offline", null]])
        assert.strictEqual((yield* presences.get(b.id, "ends-a")).status, "offline")
        // An answered ping is a sign of life.
        assert.strictEqual((yield* presences.get(b.id, "ends-b")).status, "online")
      }))

    it.effect("message and last_seen are in storage a second later, and the offline leave the memory", () =>
      Effect.gen(function*() {
        const presences = yield* Presences
        const repo = yield* PresenceRepo
        const store = yield* PresenceStore
        const a = yield* newAgent("kept-a")
        const socket = yield* connect(a.id)
        yield* presences.put(a, { status: "busy", custom_message: "thinking" })
        yield* TestClock.adjust(500)
        yield* socket.close
        const at = yield* Clock.currentTimeMillis
        const before = yield* presences.get(a.id, "kept-a")
        for (let i = 0; i < 1_000 && (yield* store.get([a.id])).size > 0; i++) {
          yield* TestClock.adjust(100)
          yield* repo.kept(a.id)
        }
        assert.strictEqual((yield* store.get([a.id])).size, 0)
        assert.deepStrictEqual(yield* repo.kept(a.id), { customMessage: "thinking", lastSeen: at })
        assert.deepStrictEqual(yield* presences.get(a.id, "kept-a"), before)
        yield* connect(a.id)
        assert.deepInclude(yield* presences.get(a.id, "kept-a"), { status: "online", custom_message: "thinking" })
      }))

    it.effect("a state that changes again while others are notified is sent once, as it is by then", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const presences = yield* Presences
        const [crowd, a, b] = [yield* newAgent("crowd"), yield* newAgent("once-a"), yield* newAgent("once-b")]
        // Several slices, so that telling them lasts longer than the changes.
        yield* sql`
          INSERT INTO contacts (agent_id, contact_id, added_at)
          SELECT 'agt_nobody_' || i, ${crowd.id}::text, 0 FROM generate_series(1, 1200) i`
        yield* hold(b, a)
        const holder = yield* connect(b.id)
        yield* presences.put(crowd, { status: "online" })
        for (let i = 0; i < 9; i++) yield* presences.put(a, { status: "busy", custom_message: String(i) })
        yield* presences.put(a, { status: "online", custom_message: "last" })
        // There are pauses between the slices.
        for (let i = 0; i < 1_000 && holder.events.at(-1)?.[2] !== "last"; i++) {
          yield* TestClock.adjust(4)
          yield* presences.get(b.id, "once-a")
        }
        const heard = yield* holder.heard
        assert.deepStrictEqual(heard.at(-1), ["once-a", "online", "last"])
        assert.isBelow(heard.length, 10)
      }))
  })
})
