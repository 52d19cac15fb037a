import { closeSync, fdatasyncSync, openSync, writeSync } from "node:fs"
import { join } from "node:path"
import { median } from "./Statistics.ts"

/** Milliseconds that a folder's disk takes to sync 8 kB, the median of 100. */
export const syncTime = (folder: string): number => {
  const file = openSync(join(folder, "sync-probe"), "w")
  const page = Buffer.alloc(8192)
  const times = Array.from({ length: 100 }, () => {
    const begin = performance.now()
    writeSync(file, page)
    fdatasyncSync(file)
    return performance.now() - begin
  })
  closeSync(file)
  return median(times)
}
