// Checks the version of Node. Loaded before everything else; its syntax works on old versions of Node.
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { isTooOld, NEEDED } from "./node-version.js"

if (isTooOld) {
  const isCheckout = existsSync(new URL("../package-lock.json", import.meta.url))
  console.error(
    `Parley needs Node ${NEEDED} or newer and this is ${process.versions.node}. ` + (isCheckout
      ? "`npm ci` brings the right one (package `node`); if install scripts are off, run `npm rebuild node` and try again."
      : "Get it from https://nodejs.org and try again.")
  )
  process.exit(1)
}

// Caches compiled code between starts, which saves a third of the time until the server listens.
const { enableCompileCache } = await import("node:module")
enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/parley", import.meta.url)))
