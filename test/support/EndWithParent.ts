/**
 * Preloaded into a server that several test files use. The server stops when the worker that started it ends, however
 * that ends. It leaves its exit code and its last output in DATA_DIR.
 */
import { appendFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"

const folder = process.env["DATA_DIR"] ?? ""
const ignored = () => undefined
process.stdin.on("error", ignored).on("close", () => {
  // From now on nobody reads the streams.
  for (const stream of [process.stdout, process.stderr]) {
    stream.write = (text: string | Uint8Array) => {
      appendFileSync(join(folder, "last.log"), text)
      return true
    }
  }
  process.kill(process.pid, "SIGTERM")
}).resume()
process.stdout.on("error", ignored)
process.stderr.on("error", ignored)
process.on("exit", (code) => writeFileSync(join(folder, "ended"), String(code)))
