/** Loaded before a server that several test files use: it stops when the worker that started it ends, however that ends, and leaves its exit code. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"

const ignored = () => undefined
process.stdin.on("error", ignored).on("close", () => process.kill(process.pid, "SIGTERM")).resume()
// By then nobody reads what it writes.
process.stdout.on("error", ignored)
process.stderr.on("error", ignored)
process.on("exit", (code) => writeFileSync(join(process.env["DATA_DIR"] ?? "", "ended"), String(code)))
