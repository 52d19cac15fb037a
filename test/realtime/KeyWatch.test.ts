import { closeDeadKeys, type Keyed } from "#interfaces/realtime/KeyWatch"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"

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
