import { makeActors } from "#infrastructure/platform/Actors"
import { actors as gauge } from "#infrastructure/platform/Metrics"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"

it.effect("actors are created once, are counted, and leave memory when they are idle", () =>
  Effect.gen(function*() {
    const made: Array<string> = []
    const busy = new Set(["one"])
    const actors = yield* makeActors("group", (id) => made.push(id), (_actor, id) => !busy.has(id))
    const count = () => gauge.at("group").current
    assert.isUndefined(actors.find("one"))
    const one = actors.of("one")
    assert.strictEqual(actors.of("one"), one)
    actors.of("two")
    assert.deepStrictEqual(made, ["one", "two"])
    assert.strictEqual(count(), 2)
    yield* TestClock.adjust("1 minute")
    assert.deepStrictEqual([...actors.all()], [one])
    busy.clear()
    yield* TestClock.adjust("59 seconds")
    assert.strictEqual(count(), 1)
    yield* TestClock.adjust("1 second")
    assert.isUndefined(actors.find("one"))
    assert.strictEqual(count(), 0)
  }))
