import {
  alive as aliveFor,
  chosen as chosenFor,
  gone,
  messageOf,
  presenceAt,
  type PresenceState,
  type PresenceStatus,
  unknownPresence
} from "#domain/presence/Presence"
import { assert, it } from "@effect/vitest"

const LIFETIME_MS = 300_000
const alive = (before: PresenceState, at: number) => aliveFor(before, at, LIFETIME_MS)
const chosen = (before: PresenceState, status: PresenceStatus, message: string | null, at: number) =>
  chosenFor(before, status, message, at, LIFETIME_MS)

it("a socket makes an agent online until it goes, or until it shows no life for five minutes", () => {
  const online = alive(unknownPresence, 10)
  assert.deepInclude(online, { status: "online", lastSeen: 10, expiresAt: 10 + LIFETIME_MS })
  assert.strictEqual(presenceAt(online, 10 + LIFETIME_MS - 1).status, "online")
  assert.deepInclude(presenceAt(online, 10 + LIFETIME_MS), { status: "offline", lastSeen: 10, expiresAt: null })
  assert.strictEqual(presenceAt(alive(online, 1_000), 10 + LIFETIME_MS).status, "online")
  assert.deepInclude(gone(online, 20), { status: "offline", lastSeen: 20, expiresAt: null })
})

it("a chosen status holds while the agent shows activity, and ends with its last socket or its time", () => {
  const busy = chosen(unknownPresence, "busy", "thinking", 10)
  assert.deepInclude(alive(busy, 20), { status: "busy", customMessage: "thinking", lastSeen: 20 })
  const left = gone(alive(busy, 20), 30)
  assert.deepInclude(left, { status: "offline", customMessage: "thinking", lastSeen: 30 })
  assert.deepInclude(alive(left, 40), { status: "online", customMessage: "thinking" })
  assert.strictEqual(alive(busy, 10 + LIFETIME_MS).status, "online")
})

it("an agent that chose to be offline shows no activity: last_seen is when that began", () => {
  const hidden = chosen(alive(unknownPresence, 10), "offline", null, 20)
  const still = alive(hidden, 30)
  assert.deepInclude(still, { status: "offline", lastSeen: 20 })
  assert.deepInclude(chosen(still, "offline", null, 40), { status: "offline", lastSeen: 20 })
  assert.deepInclude(gone(still, 50), { status: "offline", lastSeen: 20 })
  assert.deepInclude(presenceAt(still, 30 + LIFETIME_MS), { status: "offline", lastSeen: 20 })
})

it("a change's message goes by either name; without one, or with an empty one, there is none", () => {
  assert.strictEqual(messageOf({ status: "online", custom_message: "a" }), "a")
  assert.strictEqual(messageOf({ status: "online", custom_status: "b" }), "b")
  assert.strictEqual(messageOf({ status: "online", custom_message: "a", custom_status: "b" }), "a")
  assert.isNull(messageOf({ status: "online" }))
  assert.isNull(messageOf({ status: "online", custom_message: "" }))
})
