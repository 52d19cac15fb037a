import { spawnSync } from "node:child_process"
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { pathWith, run } from "../hosts/Install.ts"
import { PACKAGES } from "./Packages.ts"

/**
 * `npm run test:openapi`: holds the OpenAPI document against tools of others: swagger-parser and redocly accept it, and
 * the clients that openapi-typescript and hey-api generate from it compile strictly, together with a program that uses
 * them (Uses.txt). npm fetches the tools into a folder of its own. Exits with 1 if one fails.
 */

const DOCUMENT = resolve(import.meta.dirname, "../../test/contract/openapi.json")
const MINUTES_5 = 300_000

/**
 * What TypeScript calls strict. `exactOptionalPropertyTypes` is not in it, and hey-api's own code does not compile with
 * it.
 */
const TSCONFIG = {
  compilerOptions: {
    strict: true,
    noUncheckedIndexedAccess: true,
    noImplicitOverride: true,
    noEmit: true,
    target: "ES2022",
    module: "ESNext",
    moduleResolution: "bundler",
    lib: ["ES2023", "DOM", "DOM.Iterable"],
    allowImportingTsExtensions: true,
    types: []
  },
  include: ["uses.ts", "types.ts", "client"]
}

const VALIDATE = `import SwaggerParser from "@apidevtools/swagger-parser"
await SwaggerParser.validate("openapi.json")
`

const folder = await mkdtemp(join(tmpdir(), "parley-openapi-"))
process.once("exit", () => spawnSync("rm", ["-rf", folder]))
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130))
await cp(DOCUMENT, join(folder, "openapi.json"))
await cp(join(import.meta.dirname, "Uses.txt"), join(folder, "uses.ts"))
await writeFile(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }))
await writeFile(join(folder, "validate.js"), VALIDATE)
await writeFile(join(folder, "tsconfig.json"), JSON.stringify(TSCONFIG))
const env = { HOME: folder, PATH: pathWith(folder), REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" }
const installed = await run("npm", ["install", "--no-audit", "--no-fund", ...PACKAGES], {
  cwd: folder,
  env: { ...process.env, PATH: env.PATH },
  limitMs: MINUTES_5
})
if (installed.code !== 0) {
  console.log(`npm could not fetch the tools:\n${installed.output.slice(-2_000)}`)
  process.exit(1)
}

const STEPS: ReadonlyArray<readonly [what: string, program: string, args: ReadonlyArray<string>]> = [
  ["swagger-parser accepts the document", process.execPath, ["validate.js"]],
  ["redocly finds no error", "redocly", ["lint", "openapi.json"]],
  ["openapi-typescript makes types", "openapi-typescript", ["openapi.json", "-o", "types.ts"]],
  ["hey-api makes a client", "openapi-ts", ["-i", "openapi.json", "-o", "client"]],
  ["the types and the client compile strictly, with a program that uses them", "tsc", ["-p", "."]]
]

let failures = 0
for (const [what, program, args] of STEPS) {
  const { code, output } = await run(program, args, { cwd: folder, env, limitMs: MINUTES_5 })
  if (code !== 0) failures++
  console.log(code === 0 ? `✓ ${what}` : `✗ ${what}\n${output.slice(-6_000)}`)
}
await rm(folder, { recursive: true, force: true })
process.exit(failures === 0 ? 0 : 1)
