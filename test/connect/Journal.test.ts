import { Journal } from "#clients/connect/Journal"
import { prepare } from "#clients/connect/Places"
import type { Work } from "#clients/connect/Work"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Scope } from "effect"
import * as fc from "fast-check"
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const reply = { clientMsgId: "connect-x", to: { to: "bob" }, text: "Hello", hop: 1 }
const arrival = (n: number, conversation = "conv_a") => ({ id: `msg_${n}`, conversation, seq: n })

const opened = (path: string) =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    const journal = Context.get(yield* Layer.buildWithScope(Layer.fresh(Journal.layerAt(path)), scope), Journal)
    return { journal, close: Scope.close(scope, Exit.void) }
  })

const invariants = (work: Work | undefined): void => {
  if (work === undefined) return
  const { batch, handled, phase, reply, waiting } = work
  assert.strictEqual(batch.length > 0, phase !== "idle")
  assert.strictEqual(reply !== null, phase === "replying")
  const ids = [...waiting, ...batch, ...handled].map(({ id }) => id)
  assert.strictEqual(new Set(ids).size, ids.length)
}

/** Calls in the order in which the connector can make them. */
const call = fc.constantFrom(
  "arrive",
  "begin",
  "reply",
  "silent",
  "answered",
  "answeredPart",
  "failed",
  "release",
  "park",
  "confirm",
  "retry",
  "reopen"
)

describe("the journal", () => {
  it.effect("keeps its invariants and every unanswered message, whatever happens and whenever it is opened again", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(call, { maxLength: 40 }), (calls) =>
          Effect.runPromise(Effect.gen(function*() {
            const folder = mkdtempSync(join(tmpdir(), "parley-journal-"))
            let { close, journal } = yield* opened(join(folder, "journal"))
            let arrived = 0
            const done = new Set<string>()
            for (const [now, name] of calls.entries()) {
              const { batch = [], handled = [], phase = "idle", waiting = [] } = (yield* journal.work("conv_a")) ?? {}
              const ids = (list: ReadonlyArray<{ readonly id: string }>) => list.map(({ id }) => id)
              const finish = (list: ReadonlyArray<string>) => list.forEach((id) => done.add(id))
              if (name === "arrive") yield* journal.arrived([arrival(++arrived)], now)
              else if (name === "retry") yield* journal.retry("conv_a")
              else if (name === "reopen") {
                yield* close
                ;({ close, journal } = yield* opened(join(folder, "journal")))
              } else if (name === "begin" && phase === "idle" && waiting.length > 0)
                yield* journal.begin("conv_a", ids(waiting.slice(0, 2)), "run", now)
              else if (name === "confirm" && phase === "idle")
                yield* journal.confirmed("conv_a", ids(handled.slice(0, 1)), now)
              else if (phase === "running" && name === "reply")
                yield* journal.replying("conv_a", reply, null)
              else if (phase === "running" && name === "silent") {
                finish(ids(batch))
                yield* journal.silent("conv_a", null, now)
              } else if (phase === "running" && name === "failed")
                yield* journal.failed("conv_a", "why", [0], now)
              else if (phase !== "idle" && name === "release")
                yield* journal.release("conv_a", now, null)
              else if (phase === "replying" && name === "park")
                yield* journal.park("conv_a", "why")
              else if (phase === "replying" && (name === "answered" || name === "answeredPart")) {
                const part = name === "answered" ? ids(batch) : ids(batch.slice(0, 1))
                finish(part)
                yield* journal.answered("conv_a", part, now)
              }
              const work = yield* journal.work("conv_a")
              invariants(work)
              const open = [...work?.waiting ?? [], ...work?.batch ?? []].map(({ id }) => id)
              const expected = Array.from({ length: arrived }, (_, n) => `msg_${n + 1}`).filter((id) => !done.has(id))
              assert.sameMembers(open, expected)
            }
            yield* close
            rmSync(folder, { recursive: true })
          }))),
        { numRuns: 25 }
      )
    ))

  it.effect("can be read by its user alone, even if an older one was open to others", () =>
    Effect.gen(function*() {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "parley-journal-"))),
        (folder) => Effect.sync(() => rmSync(folder, { recursive: true }))
      )
      chmodSync(folder, 0o755)
      const path = join(folder, "journal")
      writeFileSync(path, "")
      chmodSync(path, 0o644)
      yield* prepare(folder)
      const { close, journal } = yield* opened(path)
      yield* journal.arrived([arrival(1)], 0)
      assert.strictEqual(statSync(folder).mode & 0o777, 0o700)
      const files = readdirSync(folder)
      assert.sameMembers(files, ["journal", "journal-wal", "journal-shm"])
      for (const name of files) assert.strictEqual(statSync(join(folder, name)).mode & 0o777, 0o600, name)
      yield* close
    }))

  it.effect("notes a message once, ends parking for a newer one, and says which need only an acknowledgement", () =>
    Effect.gen(function*() {
      const { close, journal } = yield* opened(":memory:")
      assert.deepStrictEqual(yield* journal.arrived([arrival(1), arrival(1), arrival(9, "conv_b")], 1), [
        "new",
        "known",
        "new"
      ])
      yield* journal.begin("conv_a", ["msg_1"], "run", 2)
      assert.strictEqual(yield* journal.runOf("conv_a"), "run")
      assert.isTrue(yield* journal.failed("conv_a", "it broke", [], 3))
      assert.deepInclude(yield* journal.work("conv_a"), { parked: "it broke", phase: "idle", failures: 1 })
      yield* journal.arrived([arrival(2)], 4)
      assert.deepInclude(yield* journal.work("conv_a"), { parked: null, failures: 0 })
      yield* journal.handled("conv_a", ["msg_1"], 5)
      assert.deepStrictEqual(yield* journal.arrived([arrival(1), arrival(2)], 6), ["handled", "known"])
      assert.deepStrictEqual((yield* journal.starts(7)).map(({ conversation }) => conversation), ["conv_a"])
      yield* close
    }))
})
