import { writeFileSync } from "node:fs"
import { Session } from "node:inspector/promises"

/**
 * Loaded into the server's process before its own script (`--import`), for figures that only the process itself can
 * give: its heap after a collection, and a profile of a part of its run. Does nothing until it gets a command.
 */

export type ProbeCall =
  | { readonly probe: "memory" }
  | { readonly probe: "profile-start" }
  | { readonly probe: "profile-stop"; readonly file: string }

export interface Memory {
  /** Bytes of memory before the collection. */
  readonly found: number
  /** Bytes after a collection. */
  readonly rss: number
  readonly heap: number
  readonly external: number
}

let session: Session | undefined

const answer = async (call: ProbeCall): Promise<unknown> => {
  switch (call.probe) {
    case "memory": {
      const found = process.memoryUsage.rss()
      // Finalisers that run in one collection release objects that only the next collection can free.
      for (let i = 0; i < 4; i++) {
        globalThis.gc?.()
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
      const usage = process.memoryUsage()
      return { found, rss: usage.rss, heap: usage.heapUsed, external: usage.external } satisfies Memory
    }
    case "profile-start": {
      session = new Session()
      session.connect()
      await session.post("Profiler.enable")
      await session.post("Profiler.setSamplingInterval", { interval: 500 })
      await session.post("Profiler.start")
      return true
    }
    case "profile-stop": {
      if (session === undefined) return false
      const { profile } = await session.post("Profiler.stop")
      session.disconnect()
      writeFileSync(call.file, JSON.stringify(profile))
      return true
    }
  }
}

process.on("message", (call: ProbeCall) => {
  void answer(call).then((result) => process.send?.({ result }))
})
// The channel does not keep the server alive, and the server ends with the bench.
process.channel?.unref()
process.on("disconnect", () => process.exit(1))
