/**
 * A process that locks DATA_DIRs. Each line of its input names a folder, which it locks until it ends; it answers
 * `held`, or the error's tag and message.
 */
import { DataDir } from "#infrastructure/platform/disk/DataDir"
import { Effect, Layer, Scope } from "effect"
import { createInterface } from "node:readline"

const say = (text: string): void => void process.stdout.write(`${text}\n`)

createInterface({ input: process.stdin }).on("line", (folder) => {
  const taking = Effect.gen(function*() {
    const scope = yield* Scope.make()
    yield* Layer.buildWithScope(DataDir.layerAt(folder), scope)
    say("held")
  })
  Effect.runSync(Effect.catch(taking, (error) => Effect.sync(() => say(`${error._tag} ${error.message}`))))
})
say("ready")
