import { placesOf, prepare, writeSettings } from "#clients/connect/Places"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"

const temporary = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "parley-places-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

it.effect("a folder of a connector is made for its user alone; one that cannot be made is named with the reason", () =>
  Effect.gen(function*() {
    const home = yield* temporary
    const { root } = placesOf({ XDG_STATE_HOME: join(home, "state") }, "ada")
    yield* prepare(root)
    assert.strictEqual(statSync(root).mode & 0o777, 0o700)
    const file = join(home, "file")
    writeFileSync(file, "")
    const below = placesOf({ XDG_STATE_HOME: file }, "ada").root
    assert.strictEqual(
      (yield* Effect.flip(prepare(below))).message,
      `${below} cannot be used: a part of the path is a file`
    )
    assert.strictEqual(
      (yield* Effect.flip(writeSettings(join(file, "connect.json"), {}))).message,
      `${file} cannot be used: it is a file`
    )
    const settings = join(home, "config/parley/connect.json")
    yield* writeSettings(settings, {})
    assert.deepStrictEqual([statSync(settings).mode & 0o777, readdirSync(dirname(settings))], [0o600, ["connect.json"]])
  }).pipe(Effect.scoped))

it.effect.skipIf(process.platform !== "linux")(
  "a folder that the kernel does not make is refused, instead of tried for ever (only on Linux)",
  () =>
    Effect.gen(function*() {
      const { root } = placesOf({ XDG_STATE_HOME: "/proc/x" }, "ada")
      assert.include((yield* Effect.flip(prepare(root))).message, `${root} cannot be used: `)
      const settings = "/proc/x/parley/connect.json"
      assert.include((yield* Effect.flip(writeSettings(settings, {}))).message, "/proc/x/parley cannot be used: ")
    })
)
