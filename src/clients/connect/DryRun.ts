import { Console, Effect, Layer } from "effect"
import { Journal } from "./Journal.ts"
import { ParleyApi } from "./ParleyApi.ts"
import { ParleySocket } from "./ParleySocket.ts"
import { type Adapter, argvOf, givenTools } from "./programs/Adapters.ts"
import { Runs } from "./programs/Runs.ts"

/**
 * Wraps the services so that they change nothing. Nothing is claimed, run, sent or acknowledged, and the journal is in
 * memory. Instead of running the program, a run prints its command and its prompt, and counts as silent.
 */
export const dryRun = (adapter: Adapter, args: ReadonlyArray<string>) =>
  Layer.mergeAll(
    Journal.layerAt(":memory:"),
    Layer.effect(
      ParleyApi,
      Effect.map(ParleyApi, (api) => ({
        ...api,
        claim: (ids) => Effect.succeed({ count: ids.length, deferred: false, expiresIn: 0 }),
        send: () => Effect.die("a dry run sends nothing")
      }))
    ),
    Layer.effect(ParleySocket, Effect.map(ParleySocket, (socket) => ({ ...socket, acknowledge: () => Effect.void }))),
    Layer.succeed(Runs, {
      run: ({ prompt, session, tools }) =>
        Effect.as(
          Console.log(
            `would run: ${
              JSON.stringify(argvOf(givenTools(adapter, tools?.url ?? null), session, args))
            }\nwith this on standard input:\n\n${prompt}`
          ),
          { _tag: "Exited", code: 0, stdout: "" } as const
        ),
      endLeftovers: () => Effect.void
    })
  )
