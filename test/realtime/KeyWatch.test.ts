import type { Agents } from "#domain/agents/Agents"
import type { Presences } from "#domain/presence/Presences"
import type { LiveAgents } from "#domain/push/LiveAgents"
import type { Connection } from "#interfaces/realtime/Connection"
import { closeDeadKeys, type Keyed, watchKeys } from "#interfaces/realtime/KeyWatch"
import { assert, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"

it.effect("sockets whose keys have ended are closed, and those that say HELLO meanwhile are not", () =>
  Effect.gen(function*() {
    const closed: Array<string> = []
    const session = (id: string, name = id): NonNullable<Keyed["session"]> => ({
      agent: { id },
      close: ({ code }) => void closed.push(`${name} ${code}`)
    })
    const coming: { keyHash: string; session: Keyed["session"] } = { keyHash: "", session: undefined }
    const crowd = Array.from(
      { length: 1_000 },
      (_, i): Keyed => ({ keyHash: `hash ${i}`, session: session(`agent ${i}`) })
    )
    const connections = new Set<Keyed>([
      { keyHash: "old", session: session("ada", "with the old key") },
      { keyHash: "new", session: session("ada", "with the new key") },
      { keyHash: "last", session: session("gone") },
      coming,
      ...crowd
    ])
    const asked: Array<number> = []
    yield* closeDeadKeys(connections, (ids) =>
      Effect.sync(() => {
        asked.push(ids.length)
        coming.keyHash = "good"
        coming.session = session("bob")
        connections.add({ keyHash: "good", session: session("cleo") })
        return new Map(
          ids.filter((id) => id !== "gone").map((id) => [id, id === "ada" ? "new" : id.replace("agent", "hash")])
        )
      }))
    assert.deepStrictEqual(closed, ["with the old key 1008", "gone 1008"])
    assert.isTrue(asked.length > 1 && Math.max(...asked) <= 500)
  }))

it.effect("a node that hears no other node keeps its sockets while it reads their keys, however long all reads together take", () =>
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const closed: Array<number> = []
    const connections = Array.from({ length: 2_000 }, (_, i) => ({
      keyHash: `hash ${i}`,
      session: { agent: { id: `agent ${i}` } },
      socket: { close: (code: number) => void closed.push(code) }
    }))
    let reads = 0
    let isReachable = true
    const agents = {
      keyHashes: (ids: ReadonlyArray<string>) =>
        Effect.suspend(() => {
          if (!isReachable) return Effect.never
          reads++
          return Effect.delay(
            Effect.succeed(new Map(ids.map((id) => [id, id.replace("agent", "hash")]))),
            "2 seconds"
          )
        })
    }
    yield* watchKeys({
      agents: agents as unknown as Agents["Service"],
      connections: connections as unknown as ReadonlyArray<Connection>,
      fork: () => {},
      liveAgents: { hearsAll: () => false, onParted: () => {} } as unknown as LiveAgents["Service"],
      logDefect: () => Effect.void,
      now: () => clock.currentTimeMillisUnsafe(),
      presences: {} as Presences["Service"]
    })
    // Four reads of two seconds for each check.
    yield* TestClock.adjust("30 seconds")
    assert.isAtLeast(reads, 12)
    assert.deepStrictEqual(closed, [])
    isReachable = false
    yield* TestClock.adjust("10 seconds")
    assert.isAtLeast(closed.length, connections.length)
    assert.isTrue(closed.every((code) => code === 1013))
  }))
