import { Database } from "#infrastructure/database/Sql"
import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { away, back } from "../support/Away.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { layerLeapingClock, leap, setBack } from "../support/Leap.ts"

const module = Layer.merge(ConsoleAccess.layer, AuditLog.layer).pipe(
  Layer.provide(Ids.layer),
  Layer.provideMerge(layerPgliteTest),
  Layer.provideMerge(layerLeapingClock)
)

layer(module)((it) => {
  it.effect("a token of npm run admin is good for its minute, and is neither a session nor a change", () =>
    Effect.gen(function*() {
      const access = yield* ConsoleAccess
      const audit = yield* AuditLog
      yield* leap("1 hour")
      // The name decides nothing: a program's token never hides.
      const program = yield* access.program("ada", "npm run admin", 1, "operator")
      const { token } = yield* access.commandToken("ada")
      assert.strictEqual((yield* access.check("token", token, false))?.operator, "ada")
      assert.deepStrictEqual((yield* access.list).map(({ id }) => id), [program.access.id])
      const actions = (looks: boolean) =>
        Effect.map(
          audit.list({ handle: null, operator: "ada", looks, before: null, limit: 10 }),
          (entries) => entries.map(({ action }) => action)
        )
      assert.deepStrictEqual(yield* actions(false), ["make program token"])
      assert.deepStrictEqual(yield* actions(true), ["ask a server", "make program token"])
    }))

  it.effect("without the database a token is known for five minutes, also when the clock is set back by an hour meanwhile", () =>
    Effect.gen(function*() {
      const access = yield* ConsoleAccess
      yield* leap("2 hours")
      const { token } = yield* access.program("ada", "a program", 1, "operator")
      assert.strictEqual((yield* access.check("token", token, true))?.operator, "ada")
      yield* away("console_access")
      yield* setBack("1 hour")
      yield* leap("4 minutes")
      assert.strictEqual((yield* access.check("token", token, true))?.operator, "ada")
      yield* leap("2 minutes")
      assert.strictEqual((yield* Effect.exit(access.check("token", token, true)))._tag, "Failure")
      yield* back("console_access")
    }))

  it.effect("without the database a credential that was checked before may read, and change nothing (wire.md O.1)", () =>
    Effect.gen(function*() {
      const access = yield* ConsoleAccess
      const { token } = yield* access.program("ada", "another program", 1, "operator")
      const link = yield* access.link("ada", "ada", "operator")
      const session = (yield* access.redeem(link.token))?.token ?? ""
      const credentials = [["token", token], ["session", session]] as const
      const ask = (reads: boolean) =>
        Effect.forEach(
          credentials,
          ([kind, credential]) => Effect.map(Effect.exit(access.check(kind, credential, reads)), ({ _tag }) => _tag)
        )
      assert.deepStrictEqual(yield* ask(false), ["Success", "Success"])
      yield* away("console_access")
      assert.deepStrictEqual(yield* ask(true), ["Success", "Success"])
      assert.deepStrictEqual(yield* ask(false), ["Failure", "Failure"])
      yield* back("console_access")
      assert.deepStrictEqual(yield* ask(false), ["Success", "Success"])
    }))

  it.effect("a server that does not know roles finds no credential of a role below operator", () =>
    Effect.gen(function*() {
      const access = yield* ConsoleAccess
      const { query } = yield* Database
      /** What the version before roles looks for. */
      const found = (token: string) =>
        Effect.map(query`SELECT FROM console_access WHERE token_hash = ${sha256(token)}`, (rows) => rows.length)
      for (const role of ["viewer", "moderator", "operator"] as const) {
        const link = yield* access.link("ada", "max", role)
        const session = yield* access.redeem(link.token)
        const program = yield* access.program("ada", "a program", 1, role)
        const known = role === "operator" ? 1 : 0
        for (const token of [link.token, session?.token ?? "", program.token])
          assert.strictEqual(yield* found(token), known, role)
        assert.deepInclude(session?.access, { role, operator: role === "operator" ? "max" : `max (${role})` })
        assert.strictEqual((yield* access.check("session", session?.token ?? "", false))?.role, role)
        assert.strictEqual((yield* access.check("token", program.token, false))?.role, role)
        assert.isUndefined(yield* access.redeem(link.token))
      }
    }))
})
