import { Effect } from "effect"
import { adminProgram } from "./AdminProgram.ts"

if (!await Effect.runPromise(adminProgram(process.argv.slice(2)))) process.exitCode = 1
