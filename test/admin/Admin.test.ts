import { settings } from "#infrastructure/platform/Config"
import { DataDir } from "#infrastructure/platform/disk/DataDir"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope } from "effect"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { admin, adminHere } from "../support/Admin.ts"
import { makeDataDir } from "../support/Server.ts"

describe("operators' commands without a server that runs", () => {
  it("open the database of a standalone server that is stopped, and no other's", async () => {
    const dataDir = await makeDataDir()
    try {
      const made = await admin({ DATA_DIR: dataDir }, "agents", "create", "ada", "--display-name", "Ada")
      assert.match(made.stdout, /^ada +ac_[A-Za-z0-9_-]{43}\n$/, made.stderr)
      for (const name of [" ", "a\nb", "\u202egnp.exe"]) {
        const refused = await adminHere({ DATA_DIR: dataDir }, "agents", "create", "bea", "--display-name", name)
        assert.deepStrictEqual([refused.code, refused.stdout], [1, ""], JSON.stringify(name))
        assert.include(refused.stderr, "display name")
      }
      const shown = await adminHere({ DATA_DIR: dataDir }, "agents", "show", "@ADA", "--json")
      assert.deepInclude(JSON.parse(shown.stdout), { handle: "ada", status: "active", email: "ada@agents.invalid" })
      const scope = Effect.runSync(Scope.make())
      await Effect.runPromise(Layer.buildWithScope(DataDir.layerAt(dataDir), scope))
      const beside = await admin({ DATA_DIR: dataDir }, "agents", "suspend", "ada")
      assert.deepStrictEqual([beside.code, beside.stdout], [1, ""])
      assert.include(beside.stderr, "in use by a server")
      await Effect.runPromise(Scope.close(scope, Exit.void))
    } finally {
      await rm(dataDir, { recursive: true, force: true })
    }
  })

  it("make no database where there is none, and say what was wrong with them", async () => {
    const folder = await mkdtemp(join(tmpdir(), "parley-none-"))
    try {
      const none = await adminHere({ DATA_DIR: join(folder, "data") }, "agents", "show", "ada")
      assert.strictEqual(none.code, 1)
      assert.include(none.stderr, "There is no database")
      const secrets = {
        DATABASE_URL: "postgres://parley:hidden-from-view@localhost/parley",
        REDIS_URL: "redis://:hidden-from-view@localhost",
        S3_SECRET_ACCESS_KEY: "hidden-from-view",
        SMTP_URL: "smtp://parley:hidden-from-view@localhost",
        METRICS_TOKEN: "hidden-from-view",
        CONSOLE_PROXY_SECRET: "hidden-from-view",
        RUNNER_SECRET: "hidden-from-view",
        OTEL_EXPORTER_OTLP_HEADERS: "authorization=hidden-from-view"
      }
      assert.sameMembers(
        Object.entries(settings).filter(([, { secret }]) => secret).map(([name]) => name),
        Object.keys(secrets)
      )
      const { stdout } = await adminHere({ ...secrets, S3_ACCESS_KEY_ID: "me", PORT: "4000" }, "config")
      assert.notInclude(stdout, "hidden-from-view")
      const values = new Map(stdout.trim().split("\n").slice(1).map((line) => line.split(/ {2,}/) as [string, string]))
      assert.deepStrictEqual([...values.keys()], Object.keys(settings))
      for (const name of Object.keys(secrets)) assert.strictEqual(values.get(name), "(set, not shown)", name)
      assert.strictEqual(values.get("PORT"), "4000")
      const valueOf = async (env: Readonly<Record<string, string>>, name: string) =>
        (JSON.parse((await adminHere(env, "config", "--json")).stdout) as ReadonlyArray<
          { readonly name: string; readonly value: string }
        >)
          .find((one) => one.name === name)?.value
      assert.strictEqual(await valueOf({}, "S3_BUCKET"), "none: files in DATA_DIR")
      assert.strictEqual(await valueOf({ SHARED_DIR: "/srv/parley" }, "S3_BUCKET"), "none: files in SHARED_DIR")
      assert.strictEqual(await valueOf({ SHARED_DIR: "/srv/parley", S3_BUCKET: "files" }, "S3_BUCKET"), "files")
      const unknownSettings = await adminHere({ RUNNER_SECRT: "hidden-from-view" }, "config")
      assert.deepStrictEqual([unknownSettings.code, unknownSettings.stderr], [
        0,
        "parley: RUNNER_SECRT is set, but Parley has no such setting; the most similar name is RUNNER_SECRET\n"
      ])
      const limit = await adminHere({ LIMITS_SENDS_PER_SEC: "1" }, "config")
      assert.strictEqual(limit.code, 1)
      assert.include(limit.stderr, "LIMITS_SENDS_PER_SECOND")
      const unknown = await admin({ DATA_DIR: folder }, "agents", "frobnicate")
      assert.strictEqual(unknown.code, 2)
      assert.include(unknown.stderr + unknown.stdout, "frobnicate")
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })
})
