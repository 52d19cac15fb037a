import { createDatabaseFile } from "#infrastructure/database/PreparedDatabase"
import { Effect } from "effect"
import { join, resolve } from "node:path"
import { packBundle } from "./Bundler.ts"

/** Adds the bundle and the prepared database to the compiled files of the package: `npm run build`. */
const dist = resolve(import.meta.dirname, "../dist")
await packBundle(join(dist, "bundle"))
await Effect.runPromise(createDatabaseFile(dist))
